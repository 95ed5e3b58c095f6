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
from collections.abc import Collection

from platformdirs import user_cache_dir, user_config_dir, user_data_dir

from signoff.graph.errors import SetupError
from signoff.graph.foreign import users_folder
from signoff.tools.filesystem.paths import quote_path

STATE = ".signoff"
"""Signoff's own folder in a workspace: threads, and full texts of capped outputs; ignored by git."""

_GIT = "git's own files"
_ENVIRONMENT = "a Python environment"
_SIGNOFF = "Signoff's own files"
_PYTHON = "the Python that runs Signoff"
_YOURS = "what your program protects"
_PACKAGES = ("", "graph", "nodes", "tools")
_NAMES = {".git": _GIT, ".venv": _ENVIRONMENT, STATE: _SIGNOFF}
# The names that tell what a folder is, and what belongs to it where it is the workspace itself.
_MARKS: tuple[tuple[str, Collection[str]], ...] = (
    (_GIT, ("HEAD", "objects", "refs")),
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
        self._known = _named(root, protect)
        # What the user has named decides for everything below it.
        places = {os.path.join(root, name): kind for kind in [_marked(root)] for name in _PARTS.get(kind, ())}
        places |= _places(root)
        self._known |= {path: what for path, what in places.items() if self._known_of(path) is None}

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
            held = (what for place, what in self._known.items() if what and within(place, path))
            if what := self._belongs(path) or next(held, ""):
                entries[name] = what
        return entries

    def _folders(self, path: str) -> list[str]:
        """`path` and the folders that hold it, up to the workspace."""
        folders = [path]
        while folders[-1] != self._root and within(folders[-1], self._root):
            folders.append(os.path.dirname(folders[-1]))
        return folders

    def _known_of(self, path: str) -> str | None:
        """What `path` belongs to by the deepest known place that holds it; empty if that is exempt, None if
        there is none."""
        return next((self._known[each] for each in self._folders(path) if each in self._known), None)

    def _belongs(self, path: str) -> str:
        """What `path` is or is part of; empty if it is not protected."""
        known = self._known_of(path)
        if known is not None:
            return known
        folders = self._folders(path)[:-1]
        return next((what for folder in folders if (what := _by_name(folder))), "")


def within(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or below it. Both are absolute."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _named(root: str, protect: Collection[str] | None) -> dict[str, str]:
    """The absolute paths that `protect` names, and what they are; empty for exempt ones."""
    if isinstance(protect, str):
        raise SetupError(f"protect is a collection of paths, so give [{protect!r}].")
    named: dict[str, str] = {}
    for name in protect or ():
        path = os.path.normpath(os.path.join(root, os.path.expanduser(name.removeprefix("!"))))
        parent, last = os.path.split(path)
        path = root if path == root else os.path.join(os.path.realpath(parent), last)
        if not name.removeprefix("!") or not within(path, root) or not os.path.lexists(path):
            raise SetupError(f"protect names {name!r}, which is nothing in the workspace {root}.")
        named |= dict.fromkeys((path, os.path.realpath(path)), "" if name.startswith("!") else _YOURS)
    return named


def _places(root: str) -> dict[str, str]:
    """The folders of Signoff and of the running Python that lie in `root`, or `root` if it lies in one."""
    python = sysconfig.get_paths()
    # /usr as such does not rule out a workspace in /usr/src, nor the folder of threads one in it.
    prefixes = [python.pop("data"), sys.prefix, sys.base_prefix]
    programs = os.path.dirname(os.path.realpath(sys.executable or prefixes[0]))
    homes = (users_folder(find) for find in (user_data_dir, user_config_dir, user_cache_dir))
    data = [str(home) for home in homes if home is not None]
    data += [os.path.expanduser(cache)] if (cache := os.environ.get("SIGNOFF_CACHE")) else []
    # An editable installation has its folders apart, behind links.
    code = [os.path.join(path, part) for path in sys.modules["signoff"].__path__ for part in _PACKAGES]
    around = dict.fromkeys((*python.values(), programs), _PYTHON) | dict.fromkeys(code, _SIGNOFF)
    inside = dict.fromkeys(prefixes, _PYTHON) | dict.fromkeys(data, _SIGNOFF) | around
    real = {os.path.realpath(path): what for path, what in inside.items()}
    places = {path: what for path, what in real.items() if path != root and within(path, root)}
    whole = [what for path, what in around.items() if within(root, os.path.realpath(path))]
    return places | ({root: whole[0]} if whole else {})


def _by_name(path: str) -> str:
    # Some file systems do not tell upper case from lower.
    return _NAMES.get(os.path.basename(path).casefold(), "") or _marked(path)


def _marked(folder: str) -> str:
    """What the folder is by the names in it."""
    for what, names in _MARKS:
        if all(os.path.lexists(os.path.join(folder, name)) for name in names):
            return what
    return ""
