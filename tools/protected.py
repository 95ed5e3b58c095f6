"""The paths in a workspace that no tool may change, by name and by place.

One short list: git's folders, Python environments, Signoff's own folder `.signoff`, and whatever of the
running Python and of Signoff's installation lies in the workspace. A folder is told by its name or by names
directly in it; no configuration is read to find out more, and nothing is opened. The file tools ask about one
path (`why`); the sandbox of `run_python`, whose rules hold for everything below a folder, asks for the
entries at the top of the workspace (`top`).
"""

import os
import sys
import sysconfig
from collections.abc import Collection, Iterator

from platformdirs import user_cache_path, user_config_path, user_data_path

from signoff.graph.errors import SetupError
from signoff.tools.filesystem.paths import quote_path

STATE = ".signoff"
"""Signoff's own folder in a workspace: threads, and full texts of capped outputs; ignored by git."""

_GIT = "git's own files"
_ENVIRONMENT = "a Python environment"
_SIGNOFF = "Signoff's own files"
_PYTHON = "the Python that runs Signoff"
_YOURS = "what your program protects"
_NAMES = {".git": _GIT, ".venv": _ENVIRONMENT, STATE: _SIGNOFF}
# The names that tell what a folder is, and what belongs to it where it is the workspace itself.
_MARKS: tuple[tuple[str, Collection[str]], ...] = (
    (_GIT, ("HEAD", "objects", "refs")),
    (_GIT, ("HEAD", "commondir")),
    (_ENVIRONMENT, ("pyvenv.cfg",)),
    (_ENVIRONMENT, ("conda-meta",)),
)
_PARTS: dict[str, Collection[str]] = {
    _GIT: (
        *("HEAD", "config", "config.worktree", "commondir", "gitdir", "hooks", "info", "modules", "objects"),
        *("packed-refs", "refs", "reftable", "worktrees", "index"),
    ),
    _ENVIRONMENT: ("pyvenv.cfg", "conda-meta", "bin", "lib", "lib64", "include", "Scripts", "Lib", "DLLs"),
}


class Protected:
    """What is protected in the workspace `root`, an absolute path without links.

    protect: paths of the workspace to protect as well; "!path" is not protected, nor what is below it. The
    deepest path named decides. Raises SetupError for one that does not exist, since it may be a typo.
    """

    def __init__(self, root: str, protect: Collection[str] | None = None) -> None:
        self._root = root
        self._named = _named(root, protect)
        self._places = _places(root)

    def why(self, path: str) -> str | None:
        """The sentence that refuses a change of `path`, absolute or relative to the workspace; None if it may
        be changed. The path need not exist."""
        lexical = os.path.normpath(os.path.join(self._root, path))
        for candidate in dict.fromkeys((lexical, os.path.realpath(lexical))):
            if within(candidate, self._root) and (what := self._belongs(candidate)):
                shown = quote_path(os.path.relpath(lexical, self._root))
                return (
                    f"{shown} is protected: it belongs to {what}, which these tools do not change. "
                    "Work on other files, or ask the user."
                )
        return None

    def top(self) -> dict[str, str]:
        """The existing entries of the workspace that are protected, or hold what is: name and what it is."""
        entries: dict[str, str] = {}
        for name in sorted(os.listdir(self._root)):
            path = os.path.join(self._root, name)
            if what := self._belongs(path) or next(self._held(path), ""):
                entries[name] = what
        return entries

    def _held(self, folder: str) -> Iterator[str]:
        """What of the known places lies below `folder`."""
        for place, what in self._places.items():
            if within(place, folder) and self._belongs(place):
                yield what
        for place, protected in self._named.items():
            if protected and within(place, folder):
                yield _YOURS

    def _belongs(self, path: str) -> str:
        """What `path` is or is part of; empty if it is not protected."""
        folders = [path]
        while folders[-1] != self._root and within(folders[-1], self._root):
            folders.append(os.path.dirname(folders[-1]))
        named = next((self._named[folder] for folder in folders if folder in self._named), None)
        if named is not None:
            return _YOURS if named else ""
        return next((what for folder in folders if (what := self._itself(folder))), "")

    def _itself(self, path: str) -> str:
        what = self._places.get(path, "")
        if what or path == self._root:
            return what
        parent, name = os.path.split(path)
        # Some file systems do not tell upper case from lower.
        what = _NAMES.get(name.casefold(), "") or _marked(path)
        if not what and parent == self._root and name in _PARTS.get(kind := _marked(parent), ()):
            what = kind
        return what


def within(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or below it. Both are absolute."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _named(root: str, protect: Collection[str] | None) -> dict[str, bool]:
    """The absolute paths that `protect` names: True if protected, False if exempt."""
    if isinstance(protect, str):
        raise SetupError(f"protect is a collection of paths, so give [{protect!r}].")
    named: dict[str, bool] = {}
    for name in protect or ():
        path = os.path.normpath(os.path.join(root, os.path.expanduser(name.removeprefix("!"))))
        parent, last = os.path.split(path)
        path = root if path == root else os.path.join(os.path.realpath(parent), last)
        if not name.removeprefix("!") or not within(path, root) or not os.path.lexists(path):
            raise SetupError(f"protect names {name!r}, which is nothing in the workspace {root}.")
        named |= dict.fromkeys((path, os.path.realpath(path)), not name.startswith("!"))
    return named


def _places(root: str) -> dict[str, str]:
    """The folders of Signoff and of the running Python that lie in `root`, or `root` if it lies in one."""
    kept = [str(path("signoff")) for path in (user_data_path, user_config_path, user_cache_path)]
    kept += [os.environ["SIGNOFF_CACHE"]] if os.environ.get("SIGNOFF_CACHE") else []
    # An editable installation has its folders apart, behind links.
    packages = sys.modules["signoff"].__path__
    code = [os.path.join(package, name) for package in packages for name in ("", "graph", "nodes", "tools")]
    python = [*map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib", "scripts", "include"))]
    python += [os.path.dirname(os.path.realpath(sys.executable))] if sys.executable else []
    python += [sys.prefix] if sys.prefix != sys.base_prefix else []
    places: dict[str, str] = {}
    # /usr as such does not rule out a workspace in /usr/src, nor the folder of threads one in it.
    for paths, what, around in (
        ([sys.base_prefix], _PYTHON, False),
        (python, _PYTHON, True),
        (kept, _SIGNOFF, False),
        (code, _SIGNOFF, True),
    ):
        for path in (os.path.realpath(os.path.expanduser(path)) for path in paths):
            if path != root and within(path, root):
                places[path] = what
            elif around and within(root, path):
                places[root] = what
    return places


def _marked(folder: str) -> str:
    """What the folder is by the names in it."""
    for what, names in _MARKS:
        if all(os.path.lexists(os.path.join(folder, name)) for name in names):
            return what
    return ""
