"""The paths in a workspace that no tool may change: what Signoff itself starts, imports or lets git read.

The same definition serves all tools that write: the sandbox of `run_python` searches for all such paths when
it starts (`find_protected`), the file tools check one path at a time (`PathGuard`).
"""

import errno
import json
import os
import re
import stat
import sys
import sysconfig
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from platformdirs import user_cache_path, user_config_path, user_data_path

from signoff.graph.errors import SetupError

__all__ = ["PROTECTED"]

GIT, PYTHON, SIGNOFF = "git", "python", "signoff"

PROTECTED = frozenset({GIT, PYTHON, SIGNOFF})
"""What is protected by default.

git: `.git`, bare repositories, and files that their configuration includes. python: virtual environments,
conda environments, and the running Python. signoff: Signoff's installation, its dependencies installed in
editable mode, its folder `.signoff`, and the user's folders for threads and models.
"""

STATE = ".signoff"
"""Signoff's own folder in a workspace: threads, and full texts of capped outputs; ignored by git."""

_OF_AN_ENVIRONMENT = ("pyvenv.cfg", "conda-meta", "bin", "lib", "lib64", "include", "Scripts", "Lib", "DLLs")
_OF_A_REPOSITORY = (
    *("HEAD", "config", "config.worktree", "commondir", "gitdir", "hooks", "info", "modules", "objects"),
    *("packed-refs", "refs", "reftable", "worktrees", "index"),
)
_INCLUDED = re.compile(
    # A key may be on the same line as its section's name.
    rb"^\s*(?:\[[^\]\"\r\n]*(?:\"(?:[^\"\\\r\n]|\\.)*\")?\s*\]\s*)?"
    rb"path\s*=\s*(?:\"([^\"\r\n]+)\"|([^\"\r\n;#]+))",
    re.MULTILINE | re.IGNORECASE,
)
_HOME = re.compile(r"^\s*home\s*=\s*(.+?)\s*$", re.MULTILINE)
_MOST_OF_A_CONFIGURATION = 100_000
_GITS = "git's own files"
_MOST_TWINS = 200
_MOST_INCLUDED = 50


@dataclass(frozen=True)
class Protected:
    """One protected path. path: absolute; its parents contain no links, but it may be a link itself.

    why: what it is, as in "PATH is (part of) WHY". link: whether it is a symbolic link, whose target is
    listed separately.
    """

    path: str
    why: str
    link: bool = False


@dataclass(frozen=True)
class Wish:
    """The parsed `protect=`: the kinds, and the absolute paths that are protected or exempt."""

    kinds: frozenset[str]
    also: frozenset[str]
    lifted: frozenset[str]


def read_wish(root: str, protect: Collection[str] | None) -> Wish:
    """Parses `protect=` for the workspace `root`; None means the default, `PROTECTED`.

    A name in `PROTECTED` is a kind, anything else a path below the workspace, "!path" an exempt path. Raises
    SetupError for a path that does not exist, since it may be a typo.
    """
    if isinstance(protect, str):
        raise SetupError(f"protect is a collection of names, so give [{protect!r}] or {{{protect!r}}}.")
    wanted = PROTECTED if protect is None else frozenset(protect)
    also: set[str] = set()
    lifted: set[str] = set()
    for name in wanted - PROTECTED:
        path = os.path.normpath(os.path.join(root, os.path.expanduser(name.removeprefix("!"))))
        parent, last = os.path.split(path)
        path = root if path == root else os.path.join(os.path.realpath(parent), last)
        if not name.removeprefix("!") or not os.path.lexists(path) or not within(path, root):
            raise SetupError(
                f"protect names {name!r}, which is none of {', '.join(sorted(PROTECTED))} and nothing in "
                f"the workspace {root}."
            )
        (lifted if name.startswith("!") else also).update({path, os.path.realpath(path)})
    return Wish(wanted & PROTECTED, frozenset(also), frozenset(lifted))


def within(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or below it. Both are absolute."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


class PathGuard:
    """Checks one path at a time. Reads only the folders above it."""

    def __init__(self, root: str, protect: Collection[str] | None = None) -> None:
        self._root = root
        self._wish = read_wish(root, protect)
        self._protect = protect
        self._fixed = _fixed(root, self._wish)
        if PYTHON in self._wish.kinds:
            homes = (
                os.path.realpath(home) for name in _names_in(root) for home in _home(os.path.join(root, name))
            )
            self._fixed |= {home: "a virtual environment" for home in homes if home not in self._wish.lifted}
        self._known = {
            (info.st_dev, info.st_ino): why
            for path, why in self._fixed.items()
            if (info := _stat(path)) is not None
        }

    def why(self, relative: str) -> str:
        """What the real path `relative` below the workspace is or is part of; empty if it is not protected.

        The path need not exist: anything below `.git` belongs to git from the first file on.
        """
        steps = [step for step in relative.split("/") if step not in ("", ".")]
        if self._root in self._wish.lifted:
            return ""
        found = self._known_as(self._root)
        path = self._root
        included: set[str] = set()
        for depth, name in enumerate(steps):
            if not found:
                found = self._of_members(path, name) if depth == 0 else ""
            if GIT in self._wish.kinds:
                files = _included(os.path.join(path, ".git"))
                included.update(os.path.realpath(file) for file in files)
            path = os.path.join(path, name)
            if path in self._wish.lifted:
                return ""
            found = found or self._itself(path, name)
        return found or (_GITS if path in included else "")

    def _known_as(self, path: str) -> str:
        info = _stat(path)
        named = self._fixed.get(path, "")
        return named or ("" if info is None else self._known.get((info.st_dev, info.st_ino), ""))

    def _itself(self, path: str, name: str) -> str:
        found = self._known_as(path) or _matching_name(name, self._wish) or _kind(path, self._wish)
        return found or self._home_of_any(path)

    def _home_of_any(self, path: str) -> str:
        """Whether any environment in the workspace was created from the Python at `path`.

        Checked only for an installed Python, since it requires a walk through the workspace.
        """
        if PYTHON not in self._wish.kinds or not _holds_python(path):
            return ""
        places = find_protected(self._root, self._protect)
        return next((place.why for place in places if within(path, place.path) and not place.link), "")

    def _of_members(self, root: str, name: str) -> str:
        """What `name` belongs to in a workspace that is itself an environment or a repository."""
        return _member(_kind(root, self._wish), name)


def find_protected(root: str, protect: Collection[str] | None = None) -> tuple[Protected, ...]:
    """All currently protected paths in the workspace `root`, outermost first; none below another.

    Walks the whole workspace without following links. Includes links to something protected, and hard links
    to protected files. If everything is protected, the root is the only entry.
    """
    wish = read_wish(root, protect)
    finder = _Finder(root, wish, _fixed(root, wish))
    finder.walk()
    return tuple(sorted(finder.found.values(), key=lambda place: place.path))


def open_places(root: str, closed: Collection[str]) -> list[str]:
    """The paths in `root` that may be writable if rights on a folder apply to everything below it, as with
    Landlock.

    These are all entries except those in `closed`, the folders above them, and links: so nothing new can be
    created in a folder above a closed path.
    """
    if not any(within(path, root) for path in closed):
        return [root]
    found = []
    with os.scandir(root) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.path not in closed and not entry.is_symlink():
                folder = entry.is_dir(follow_symlinks=False)
                found += open_places(entry.path, closed) if folder else [entry.path]
    return found


@dataclass
class _Finder:
    """One walk through a workspace."""

    root: str
    wish: Wish
    fixed: dict[str, str]
    found: dict[str, Protected] = field(default_factory=dict)
    twins: list[tuple[tuple[int, int], str, int]] = field(default_factory=list)

    def walk(self) -> None:
        if self.root in self.wish.lifted:
            return
        if self.root in self.fixed:
            self._add(self.root, self.fixed[self.root])
            return
        for path, why in self.fixed.items():
            self._add_way(path, why)
        waiting = [self.root]
        while waiting:
            folder = waiting.pop()
            waiting += self._folder(folder)
        self._add_twins()
        self._drop_covered()

    def _folder(self, folder: str) -> Iterator[str]:
        """Examines the entries of `folder`, and returns the subfolders to visit."""
        try:
            with os.scandir(folder) as found:
                entries = list(found)
        except PermissionError:
            # Code inside could make it accessible again.
            self._add(folder, "a folder that cannot be looked into")
            return
        except OSError as error:
            # Gone since it was listed, or its path is too long to start anything there.
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
                return
            raise
        kind = _kind_of_names({entry.name for entry in entries}, folder, self.wish)
        if kind and folder != self.root:
            self._add(folder, kind)
            self._find_named(folder, kind)
            return
        for entry in entries:
            why = _member(kind, entry.name) if kind else ""
            yield from self._entry(entry, why or _matching_name(entry.name, self.wish))
        if kind:
            self._find_named(folder, kind)

    def _entry(self, entry: os.DirEntry[str], why: str) -> Iterator[str]:
        path = entry.path
        if path in self.wish.lifted:
            return
        if entry.is_symlink():
            self._link(path, why)
        elif why or path in self.found:
            self._add(path, why or self.found[path].why)
            self._find_named(path, why)
        elif entry.is_dir(follow_symlinks=False):
            yield path
        else:
            # It may be gone since it was listed.
            with suppress(OSError):
                info = entry.stat(follow_symlinks=False)
                if info.st_nlink > 1:
                    self.twins.append(((info.st_dev, info.st_ino), path, info.st_nlink))

    def _link(self, path: str, why: str) -> None:
        target = os.path.realpath(path)
        led = why or self.fixed.get(target, "") or _matching_name(os.path.basename(target), self.wish)
        led = led or _kind(target, self.wish)
        if led:
            self._add(path, led, link=True)
            self._add_way(target, led)

    def _find_named(self, path: str, why: str) -> None:
        """Protects what a repository's configuration or an environment refers to elsewhere in the
        workspace."""
        for named in (*_included(path), *_separate(path), *_home(path)):
            self._add_way(named, why)

    def _add_way(self, path: str, why: str) -> None:
        """Protects `path` with links resolved, and each link on the way."""
        todo, at, links = Path(path).parts[::-1], "", 0
        waiting = list(todo)
        while waiting:
            at = os.path.join(at, waiting.pop())
            if at in self.wish.lifted:
                return
            if os.path.islink(at) and links < 40:
                links += 1
                if within(at, self.root) and at != self.root:
                    self._add(at, why, link=True)
                target = os.path.join(os.path.dirname(at), os.readlink(at))
                waiting += Path(os.path.normpath(target)).parts[::-1]
                at = ""
        if within(at, self.root) and at != self.root and os.path.exists(at):
            self._add(at, why)

    def _add(self, path: str, why: str, *, link: bool = False) -> None:
        if path not in self.wish.lifted:
            self.found.setdefault(path, Protected(path, why, link))

    def _add_twins(self) -> None:
        """Adds hard links to protected files; searches only if files have several names."""
        names = Counter(identity for identity, _, _ in self.twins)
        # If all names of a file have been seen, none of them is in a protected place.
        twins = [(identity, path) for identity, path, count in self.twins if names[identity] < count]
        if not twins:
            return
        known = {identity for place in self.found for identity in _identities(place)}
        if PYTHON in self.wish.kinds:
            known |= _identities_of_python()
        paths = [path for identity, path in twins if identity in known]
        # A package cache has thousands, each in its own folder.
        while len(paths) > _MOST_TWINS:
            paths = sorted({parent for path in paths if (parent := os.path.dirname(path)) != self.root})
        for path in paths:
            self._add(path, "a second name of a protected file")

    def _drop_covered(self) -> None:
        for path in sorted(self.found):
            parents = (str(parent) for parent in Path(path).parents)
            if any(parent in self.found and not self.found[parent].link for parent in parents):
                del self.found[path]


def _names_in(folder: str) -> list[str]:
    with suppress(OSError):
        return os.listdir(folder)
    return []


def _matching_name(name: str, wish: Wish) -> str:
    # Some file systems do not tell upper case from lower.
    if GIT in wish.kinds and name.casefold() == ".git":
        return _GITS
    return ""


def _kind(folder: str, wish: Wish) -> str:
    """What the folder at this path is, with links followed; empty if it is not protected."""
    names = (*_OF_AN_ENVIRONMENT[:2], "HEAD", "objects", "refs", "commondir")
    there = {name for name in names if os.path.lexists(os.path.join(folder, name))}
    return _kind_of_names(there, folder, wish)


def _kind_of_names(names: Collection[str], folder: str, wish: Wish) -> str:
    if PYTHON in wish.kinds:
        if "pyvenv.cfg" in names:
            return "a virtual environment"
        if "conda-meta" in names and os.path.isdir(os.path.join(folder, "conda-meta")):
            return "a conda environment"
    if GIT in wish.kinds and "HEAD" in names and ({"objects", "refs"} <= set(names) or "commondir" in names):
        return "a git repository"
    return ""


def _member(kind: str, name: str) -> str:
    """Whether `name` is part of the environment or repository that is the workspace itself."""
    if not kind:
        return ""
    return kind if name in (_OF_A_REPOSITORY if "git" in kind else _OF_AN_ENVIRONMENT) else ""


def _fixed(root: str, wish: Wish) -> dict[str, str]:
    """Protected places with a known path, if they are inside `root` or contain it."""
    known = dict.fromkeys(wish.also, "protected by your program")
    if SIGNOFF in wish.kinds:
        state = (path for path in _state_folders(root) if within(path, root))
        known |= dict.fromkeys((*state, *_own_folders()), "Signoff's own files")
        known |= dict.fromkeys(_editable(), "installed in editable mode for Signoff")
    if PYTHON in wish.kinds:
        known |= dict.fromkeys(_python_folders(), "the Python that runs Signoff")
    found: dict[str, str] = {}
    for path, why in known.items():
        if why == "the Python that runs Signoff" and within(root, path):
            # /usr as such does not rule out a workspace in /usr/src; only Python's own folders there count.
            inner = (os.path.realpath(each) for each in _inner_folders())
            found |= {root if within(root, each) else each: why for each in inner if _meet(root, each)}
        elif _meet(root, real := os.path.realpath(path)):
            found |= {path: why, real: why} if not within(root, real) else {root: why}
        elif within(path, root):
            found[path] = why
    return {path: why for path, why in found.items() if path not in wish.lifted}


def _state_folders(root: str) -> tuple[str, ...]:
    """Signoff's folders for threads, full texts, settings and models."""
    own = (user_data_path("signoff"), user_config_path("signoff"), user_cache_path("signoff"))
    folders = (*own, os.environ.get("SIGNOFF_CACHE") or root)
    places = [os.path.abspath(os.path.expanduser(folder)) for folder in folders]
    return (os.path.join(root, STATE), *(place for place in places if place != root))


def _meet(root: str, path: str) -> bool:
    return within(path, root) or within(root, path)


def _python_folders() -> tuple[str, ...]:
    """The running Python's own folders, as named and with links resolved."""
    names = (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)
    return tuple(dict.fromkeys(path for name in names for path in (name, os.path.realpath(name))))


def _inner_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    names = ("stdlib", "platstdlib", "purelib", "platlib", "scripts", "include")
    programs = (os.path.dirname(os.path.realpath(sys.executable)),) if sys.executable else ()
    return (*(paths[name] for name in names), *programs)


@cache
def _own_folders() -> tuple[str, ...]:
    """The real folders of Signoff's modules; an editable installation has several."""
    top = [os.path.realpath(path) for path in sys.modules["signoff"].__path__]
    inner = [
        os.path.realpath(os.path.join(path, name)) for path in top for name in ("graph", "nodes", "tools")
    ]
    return tuple(dict.fromkeys((*top, *inner, os.path.dirname(os.path.realpath(__file__)))))


@cache
def _editable() -> tuple[str, ...]:
    """The folders of Signoff's dependencies that are installed in editable mode."""
    found = []
    with suppress(metadata.PackageNotFoundError):
        for needed in metadata.requires("signoff") or ():
            name = re.split(r"[^\w.-]", needed, maxsplit=1)[0]
            # Extras that are not installed, and installers with another metadata format.
            with suppress(metadata.PackageNotFoundError, ValueError, KeyError, TypeError):
                told = json.loads(metadata.distribution(name).read_text("direct_url.json") or "{}")
                if told["dir_info"].get("editable"):
                    found.append(url2pathname(urlsplit(told["url"]).path))
    return tuple(found)


def _included(repository: str) -> list[str]:
    """The files that a repository's configuration includes, recursively."""
    waiting = [os.path.join(repository, name) for name in ("config", "config.worktree")]
    found: list[str] = []
    while waiting and len(found) < _MOST_INCLUDED:
        file = waiting.pop()
        # A `.git` file, as in a linked work tree, has no configuration of its own.
        with suppress(OSError), open(file, "rb") as opened:
            told = _INCLUDED.findall(opened.read(_MOST_OF_A_CONFIGURATION))
            paths = (os.path.expanduser(os.fsdecode(quoted or plain).strip()) for quoted, plain in told)
            named = [os.path.normpath(os.path.join(os.path.dirname(file), path)) for path in paths]
            waiting += [path for path in named if path not in found]
            found += named
    return found


def _separate(path: str) -> list[str]:
    """The repository to which a `.git` file points."""
    if os.path.basename(path).casefold() != ".git" or not os.path.isfile(path):
        return []
    with suppress(OSError), open(path, "rb") as opened:
        told = os.fsdecode(opened.read(_MOST_OF_A_CONFIGURATION)).strip()
        if told.startswith("gitdir:"):
            return [os.path.normpath(os.path.join(os.path.dirname(path), told[7:].strip()))]
    return []


def _home(environment: str) -> list[str]:
    """The Python installation from which a virtual environment was created."""
    with suppress(OSError), open(os.path.join(environment, "pyvenv.cfg"), errors="replace") as opened:
        told = _HOME.search(opened.read(_MOST_OF_A_CONFIGURATION))
        if told and os.path.isabs(told.group(1)):
            return [os.path.dirname(told.group(1))]
    return []


def _holds_python(folder: str) -> bool:
    """Whether this folder contains Python's standard library, as an installation does."""
    libraries = os.path.join(folder, "lib")
    names = (name for name in _names_in(libraries) if name.startswith("python"))
    return any(os.path.lexists(os.path.join(libraries, name, "os.py")) for name in names)


def _identities(place: str) -> Iterator[tuple[int, int]]:
    """Device and number of every file at or below `place` that has several names."""
    if not os.path.isdir(place) or os.path.islink(place):
        info = _stat(place)
        if info is not None and info.st_nlink > 1:
            yield info.st_dev, info.st_ino
        return
    for folder, _, names in os.walk(place):
        for name in names:
            info = _stat(os.path.join(folder, name), follow=False)
            if info is not None and info.st_nlink > 1 and stat.S_ISREG(info.st_mode):
                yield info.st_dev, info.st_ino


@cache
def _identities_of_python() -> frozenset[tuple[int, int]]:
    return frozenset(identity for place in _python_folders() for identity in _identities(place))


def _stat(path: str, *, follow: bool = True) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=follow)
    except OSError:
        return None
