"""The folder in which the file tools work, and nothing outside it.

A path is resolved, links and all, and must then lie in the folder; what is there is opened by
`signoff.graph.foreign_files`. Code in the sandbox is stopped while these tools work, and a command of the
shell could change anything anyway: so nothing guards against a link that is put there in between.
"""

import os
import secrets
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from langchain_core.tools import ToolException

from signoff.graph.errors import SetupError
from signoff.graph.foreign import file_name_of, valid_text
from signoff.graph.foreign_files import open_regular, read_regular
from signoff.tools.filesystem.globs import MOST_OF_RULES, Deadline, Rules, is_ignored, rules_of
from signoff.tools.filesystem.paths import DEEPEST, alike, explained, few, outside, quote_path, spelled, steps
from signoff.tools.protected import STATE, Protected, within

__all__ = ["Deadline", "FolderEntry", "Walk", "Workspace", "walk"]

OUTPUTS = f"{STATE}/outputs"
"""The location of the full texts of capped outputs in a workspace."""

MOST_VISITED = 100_000
"""How many entries a listing or a search looks at."""

EMPTY = "empty"
SKIPPED = frozenset({".git", ".venv", "__pycache__", "node_modules", STATE})
"""Folders that a recursive walk does not enter unless it starts inside them."""

_SYSTEM = ("/proc", "/sys", "/dev")
EntryKind = Literal["file", "folder", "link", "special file", "ignored"]
_KINDS: dict[int, EntryKind] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


@dataclass(frozen=True)
class FolderEntry:
    """An entry of a folder: its path below the workspace, its size in bytes, and the real path of a file.

    note: why a folder is reported and not entered. `ignored` entries are excluded by a `.gitignore`; the path
    of a folder then ends with "/".
    """

    path: str
    kind: EntryKind
    note: str = ""
    size: int = 0
    real: str = ""


class Walk:
    """The files below a folder: first a folder's own, then those of its subfolders.

    Links are reported but not followed; folders are reported only if they are empty or not entered. Folders
    excluded by a `.gitignore` are not entered. end: after how much of the bound on entries or time it
    stopped; empty if it has not.
    """

    def __init__(self, top: str, start: str, rules: Rules | None, deadline: Deadline) -> None:
        """top: the real path of the folder. start: what the paths of its entries begin with. rules: those of
        the folders above; None if nothing is excluded."""
        self.end = ""
        self._top, self._start, self._rules, self._deadline = top, start, rules, deadline
        self._left = MOST_VISITED
        self._partial: dict[str, None] = {}

    @property
    def note(self) -> str:
        """A sentence on the rules that were not applied; empty if all were."""
        names = few([quote_path(f"{folder}.gitignore") for folder in self._partial])
        return f"Applied in part, or not, as too long or too slow: {names}." if names else ""

    def __iter__(self) -> Iterator[FolderEntry]:
        waiting = [(self._start, self._rules)]
        while waiting and not self.end:
            folder, rules = waiting.pop()
            real = os.path.join(self._top, folder[len(self._start) :])
            if rules is not None and self._deadline.left:
                rules += _rules_in(real, folder)
            inner: list[tuple[str, Rules | None]] = []
            for entry in self._entries(real, folder):
                if self._deadline.left == 0:
                    self.end = f"{self._deadline.seconds:g} seconds"
                    return
                is_folder = entry.kind == "folder"
                if rules and is_ignored(rules, entry.path, self._deadline, is_folder=is_folder):
                    yield FolderEntry(entry.path + "/" * is_folder, "ignored", "as .gitignore says")
                elif is_folder and not entry.note:
                    inner.append((f"{entry.path}/", rules))
                else:
                    yield entry
                self._partial |= {name: None for name, each in rules or () if each.is_partial}
            waiting += reversed(inner)

    def _entries(self, real: str, folder: str) -> list[FolderEntry]:
        name = folder[:-1] or "."
        if folder.count("/") >= DEEPEST:
            return [FolderEntry(name, "folder", "too deep to be entered, use a command")]
        try:
            with os.scandir(real) as items:
                entries = [_entry(item, folder) for item in islice(items, self._left)]
        except OSError:
            return [FolderEntry(name, "folder", "no access")]
        self._left -= len(entries)
        if not self._left:
            self.end = f"a look at {MOST_VISITED:,} entries"
        if not entries and folder != self._start:
            return [FolderEntry(name, "folder", EMPTY)]
        return sorted(entries, key=lambda entry: entry.path)


class Workspace:
    """An existing folder. Every access refuses a path that leads out of it.

    Paths are relative to the folder ("src/app.py", "./src", "a//b"); an absolute path below the folder is
    accepted too. A link is followed as long as it stays inside. A missing name that only looks like that of
    one entry stands for that entry where something is read. Failures raise ToolException with a sentence for
    the model. A hard link cannot be told from a file: it can be read, and a write replaces it without
    touching the other name.

    protect: paths that may be read but not written, beside those of `signoff.tools.protected`; "!path" may be
    written.

    Raises SetupError if the folder does not exist or is the root of the file system, and for a path in
    `protect` that does not exist.
    """

    def __init__(self, root: str | os.PathLike[str], *, protect: Collection[str] | None = None) -> None:
        named = os.path.abspath(os.path.expanduser(os.fspath(root)))
        real = os.path.realpath(named)
        if not os.path.isdir(real):
            raise SetupError(
                f"The workspace {named} is not an existing folder; create it or name another one."
            )
        if os.path.dirname(real) == real or any(within(real, system) for system in _SYSTEM):
            raise SetupError(f"{real} cannot be a workspace; name the folder of one project.")
        self.root: str = real
        self._names = (real, named)
        self._protected = Protected(real, protect)
        self.protect: frozenset[str] | None = None if protect is None else frozenset(protect)

    def relative(self, path: str) -> str:
        """`path` as a short relative one, for messages and as a prefix; the workspace itself is "."."""
        return valid_text("/".join(steps(path, self._names))) or "."

    def real(self, path: str) -> str:
        """The absolute path of `path`, with every link resolved; what is there need not exist."""
        names = steps(path, self._names)
        if not os.path.isdir(self.root):
            raise ToolException("The workspace folder no longer exists; ask the user to restore it.")
        real = os.path.realpath(os.path.join(self.root, *names))
        if not within(real, self.root):
            raise outside(path)
        return real

    def existing(self, path: str) -> str:
        """`real`, or that of the one entry whose name only looks like that of a missing one."""
        real = self.real(path)
        return real if os.path.lexists(real) else self.real(alike(self.root, real) or path)

    def _entry(self, path: str) -> FolderEntry:
        """What is at `path`, with links resolved. Raises ToolException if it does not exist."""
        real = self.existing(path)
        with explained(path):
            info = os.lstat(real)
        kind = _KINDS.get(stat.S_IFMT(info.st_mode), "special file")
        return FolderEntry(self.relative(path), kind, size=info.st_size, real=real)

    def head(self, path: str, most: int) -> bytes:
        """The first `most` bytes of the regular file at `path`, or ToolException."""
        _check_no_folder(path)
        with explained(path):
            return read_regular(self.existing(path), most)

    def write(self, path: str, data: bytes) -> bool:
        """Replaces the file at `path`, or creates it with its folders. Returns True if created.

        A reader sees the old bytes or the new ones, even if the process is killed in between, except where
        the sandbox of `run_python` may write to single entries: see `_is_held`. The mode of a replaced file
        is kept. Raises ToolException, with nothing changed, for a protected path.
        """
        _check_no_folder(path)
        real = self.real(path)
        why = self._protected.why(path) or self._protected.why(real)
        if why:
            raise ToolException(why)
        if not os.path.lexists(real) and (other := alike(self.root, real)):
            name = spelled(os.path.relpath(other, self.root))
            raise ToolException(
                f"There is no {quote_path(path)}, but an entry whose name only looks the same. Write its "
                f"path as {name}; or take a name that looks otherwise."
            )
        with explained(path):
            return self._written(real, data)

    def _written(self, real: str, data: bytes) -> bool:
        before = os.lstat(real) if os.path.lexists(real) else None
        if before:
            # Only what is a regular file, and may be written: a rename would replace anything.
            with open_regular(real, write=True) as file:
                if self._is_held(real, before):
                    file.write(data)
                    file.truncate()
                    return False
        os.makedirs(os.path.dirname(real), exist_ok=True)
        temporary = os.path.join(os.path.dirname(real), f".signoff-{secrets.token_hex(8)}.tmp")
        try:
            # No fsync: killing the process loses nothing, and power failures are left to the file system.
            with open(temporary, "xb") as file:
                if before:
                    # Windows has no owners; only root may give a file away.
                    with suppress(OSError, AttributeError):
                        os.chown(temporary, before.st_uid, before.st_gid)
                    os.chmod(temporary, stat.S_IMODE(before.st_mode))
                file.write(data)
            os.replace(temporary, real)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        return before is None

    def _is_held(self, real: str, info: os.stat_result) -> bool:
        """Whether the sandbox of `run_python` may have been given the right to write to this very file, which
        would be lost if another one took its place: beside something protected it is given rights on single
        entries."""
        beside = os.path.dirname(real) == self.root and info.st_nlink == 1
        return beside and bool(self._protected.top())

    def keep(self, name: str) -> Callable[[str], str]:
        """A `keep` for `signoff.graph.foreign.capped`, which stores full texts in `.signoff/outputs`.

        It returns a relative path, which the file tools accept.
        """

        def keep(text: str) -> str:
            path = f"{OUTPUTS}/{file_name_of(name, text)}"
            # A link could lead from there to anywhere in the workspace.
            if self.real(OUTPUTS) != os.path.join(self.root, OUTPUTS):
                raise ToolException(f"{STATE} in the workspace is a link; ask the user to remove it.")
            with explained(path):
                self._written(os.path.join(self.root, STATE, ".gitignore"), b"*\n")
                self._written(os.path.join(self.root, path), valid_text(text).encode())
            return path

        return keep


class ThreadFolder(Workspace):
    """The folder of a thread's long results, which is only read, under absolute paths."""

    def relative(self, path: str) -> str:
        return os.path.normpath(os.path.join(self.root, super().relative(path)))


def _check_no_folder(path: str) -> None:
    if path.endswith(("/", "/.", "/..")):
        raise ToolException(f"{quote_path(path)} ends as the path of a folder; pass that of a file.")


def _rules_in(real: str, folder: str) -> Rules:
    data = b""
    # Missing or unreadable: nothing is excluded.
    with suppress(OSError):
        data = read_regular(os.path.join(real, ".gitignore"), MOST_OF_RULES + 1)
    return ((folder, rules_of(data)),) if data else ()


def _entry(item: os.DirEntry[str], prefix: str) -> FolderEntry:
    path = prefix + item.name
    try:
        info = item.stat(follow_symlinks=False)
    except OSError:
        # Deleted since it was listed: a listing is always a snapshot.
        return FolderEntry(path, "special file")
    kind = _KINDS.get(stat.S_IFMT(info.st_mode), "special file")
    is_skipped = kind == "folder" and item.name in SKIPPED
    note = "not entered unless passed as path" if is_skipped else ""
    return FolderEntry(path, kind, note, info.st_size, item.path)


def walk(place: Workspace, path: str = ".", deadline: Deadline | None = None) -> Walk:
    """The entries below the folder at `path`, also if that is itself excluded or skipped."""
    folder = "" if place.relative(".") == "." else f"{place.root}/"
    rules: Rules | None = ()
    real, deadline = place.root, deadline or Deadline(float("inf"))
    for name in steps(path, place._names):
        if rules is not None and deadline.left:
            rules += _rules_in(real, folder)
            is_left_out = name in SKIPPED or is_ignored(rules, folder + name, deadline, is_folder=True)
            rules = None if is_left_out else rules
        folder, real = f"{folder}{name}/", os.path.join(real, name)
    return Walk(place.existing(path), folder, rules, deadline)
