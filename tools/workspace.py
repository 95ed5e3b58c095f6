"""The folder in which the file tools work, and nothing outside it.

A path is resolved, links and all, and must then lie in the folder; what is there is opened by
`signoff.graph.foreign_files`. Code in the sandbox is stopped while these tools work, and a command of the
shell could change anything anyway: so nothing guards against a link that is put there in between.
"""

import errno
import os
import secrets
import stat
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO, Literal

from langchain_core.tools import ToolException

from signoff.graph.errors import SetupError
from signoff.graph.foreign import Outputs, file_name_of, valid_text
from signoff.graph.foreign_files import NotRegular, open_regular, read_regular
from signoff.tools.filesystem.globs import IgnoreRules, is_ignored, rules_of
from signoff.tools.filesystem.paths import DEEPEST, alike, explained, outside, quote_path, spelled, steps
from signoff.tools.protected import STATE, Protected, within

__all__ = ["FolderEntry", "Workspace"]

OWN_FOLDER = STATE
"""The tools' own folder in a workspace: full texts of capped outputs, ignored by git."""

OUTPUTS = f"{OWN_FOLDER}/outputs"
"""The location of full texts in a workspace."""

MOST_BYTES = 10_000_000
"""The largest file that is read as a whole."""

MOST_VISITED = 100_000
"""How many entries a listing or a search looks at."""

SKIPPED = frozenset({".git", ".venv", "__pycache__", "node_modules", OWN_FOLDER})
"""Folders that a recursive walk does not enter unless it starts inside them."""

_MOST_IGNORE_BYTES = 500_000
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_SYSTEM = ("/proc", "/sys", "/dev")
_Rules = list[tuple[str, IgnoreRules]]


@dataclass(frozen=True)
class FolderEntry:
    """An entry of a folder: its path below the workspace, and for a file its size in bytes and real path.

    A folder is `empty`, `skipped` (not entered by the walk), `closed` (could not be opened) or `deep` (too
    deep to be entered). `ignored` entries are excluded by a `.gitignore`; the path of a folder then ends with
    "/".
    """

    path: str
    kind: Literal["file", "folder", "link", "other", "empty", "skipped", "closed", "deep", "ignored"]
    size: int = 0
    real: str = ""


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
        self.root = real
        self._names = (real, named)
        self._protected = Protected(real, protect)
        self.protect = None if protect is None else frozenset(protect)

    def relative(self, path: str) -> str:
        """`path` as a short relative one, for messages and as a prefix; the workspace itself is "."."""
        return "/".join(steps(path, self._names)) or "."

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
        if os.path.lexists(real):
            return real
        real = os.path.realpath(alike(self.root, real) or real)
        if not within(real, self.root):
            raise outside(path)
        return real

    def entry(self, path: str) -> FolderEntry:
        """What is at `path`, with links resolved. Raises ToolException if it does not exist."""
        real = self.existing(path)
        with explained(path):
            info = os.lstat(real)
        name = self.relative(path)
        if stat.S_ISREG(info.st_mode):
            return FolderEntry(name, "file", info.st_size, real)
        return FolderEntry(name, "folder" if stat.S_ISDIR(info.st_mode) else "other", 0, real)

    def read(self, path: str, most: int = MOST_BYTES) -> bytes:
        """The bytes of the regular file at `path`, at most `most` of them, or ToolException."""
        with self.open(path) as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise ToolException(f"{quote_path(path)} is larger than {most:,} bytes; choose a smaller file.")
        return data

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        """The regular file at `path`, for reading; its `name` is the real path. Failures inside the block
        become ToolException, too."""
        _check_no_folder(path)
        real = self.existing(path)
        with explained(path), open_regular(real) as file:
            yield file

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
        before = _replaced(real)
        # A rename would replace a file that its owner made read-only.
        effective = os.access in os.supports_effective_ids
        if before and not os.access(real, os.W_OK, effective_ids=effective):
            name = quote_path(os.path.relpath(real, self.root))
            raise ToolException(f"{name} is read-only; leave it as it is or ask the user.")
        if before and self._is_held(real, before):
            with open_regular(real, write=True) as file:
                file.write(data)
                file.truncate()
            return False
        os.makedirs(os.path.dirname(real), exist_ok=True)
        temporary = os.path.join(os.path.dirname(real), f".signoff-{secrets.token_hex(8)}.tmp")
        try:
            _create(temporary, data, before)
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

    def walk(self, path: str = ".") -> Iterator[FolderEntry]:
        """The files below the folder at `path`: first a folder's own, then those of its subfolders.

        Links are reported but not followed; folders are reported only if they are empty or not entered.
        Folders excluded by a `.gitignore` are not entered, unless `path` itself is excluded or skipped.
        Raises ToolException only for `path` itself.
        """
        top = self.existing(path)
        start = "" if self.relative(path) == "." else self.relative(path) + "/"
        with explained(path):
            entries = _entries(top, start)
        rules = self._rules_above(start)
        if rules is not None:
            rules += _rules_in(top, start, entries)
        waiting: list[tuple[str, _Rules | None]] = []
        while True:
            kept = [_ignored_entry(entry, rules) for entry in entries] if rules else entries
            yield from (entry for entry in kept if entry.kind != "folder")
            waiting += [(entry.path, rules) for entry in reversed(kept) if entry.kind == "folder"]
            if not waiting:
                return
            folder, rules = waiting.pop()
            real = f"{top}{os.sep}{folder[len(start) :]}"
            entries = _inside(real, folder)
            own = [] if rules is None else _rules_in(real, f"{folder}/", entries)
            rules = [*rules, *own] if rules and own else own or rules

    def _rules_above(self, start: str) -> _Rules | None:
        """The ignore rules of the folders above `start`; None if it is itself excluded."""
        rules: _Rules = []
        names = start.split("/")[:-1]
        for depth, name in enumerate(names):
            folder = "".join(f"{above}/" for above in names[:depth])
            rules += _rules_in(os.path.join(self.root, folder), folder)
            if name in SKIPPED or is_ignored(rules, folder + name, is_folder=True):
                return None
        return rules

    def keep(self, name: str) -> Callable[[str], str]:
        """A `keep` for `signoff.graph.foreign.capped`, which stores full texts in `.signoff/outputs`.

        It returns a relative path, which `read` accepts.
        """

        def keep(text: str) -> str:
            path = f"{OUTPUTS}/{file_name_of(name, text)}"
            for own, data in ((f"{OWN_FOLDER}/.gitignore", b"*\n"), (path, valid_text(text).encode())):
                # A link could lead from there to anywhere in the workspace.
                if self.real(own) != os.path.join(self.root, own):
                    raise ToolException(
                        f"{OWN_FOLDER} in the workspace is a link; ask the user to remove it."
                    )
                with explained(own):
                    self._written(os.path.join(self.root, own), data)
            return path

        return keep


class ThreadFolder(Workspace):
    """The folder of a thread's long results, which is only read, under absolute paths."""

    def __init__(self, outputs: Outputs) -> None:
        super().__init__(outputs.own)
        self.keep = outputs.keep  # type: ignore[method-assign]  # they are kept in this very folder

    def relative(self, path: str) -> str:
        return os.path.normpath(os.path.join(self.root, super().relative(path)))

    def write(self, path: str, data: bytes) -> bool:
        raise ToolException(f"{quote_path(path)} may only be read; write to a file in the workspace.")

    def _rules_above(self, start: str) -> _Rules | None:
        return None


class Deadline:
    """A bound on the time of a walk or a search."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return self._end - time.monotonic()


def _check_no_folder(path: str) -> None:
    if path.endswith(("/", os.sep)):
        raise ToolException(
            f"{quote_path(path)} ends in a slash, so it is a folder; pass the path of a file."
        )


def _rules_in(real: str, folder: str, entries: Sequence[FolderEntry] | None = None) -> _Rules:
    if entries is not None and not any(entry.path == f"{folder}.gitignore" for entry in entries):
        return []
    try:
        data = read_regular(os.path.join(real, ".gitignore"), _MOST_IGNORE_BYTES + 1)
    except OSError:
        # Missing or unreadable: nothing is excluded.
        return []
    if len(data) > _MOST_IGNORE_BYTES:
        return []
    return [(folder, rules_of(data.decode("utf-8-sig", "surrogateescape")))]


def _inside(real: str, folder: str) -> list[FolderEntry]:
    if folder.count("/") >= DEEPEST - 1:
        return [FolderEntry(folder, "deep")]
    try:
        return _entries(real, folder + "/") or [FolderEntry(folder, "empty")]
    except OSError:
        return [FolderEntry(folder, "closed")]


def _entries(folder: str, prefix: str) -> list[FolderEntry]:
    with os.scandir(folder) as entries:
        return sorted((_entry(item, prefix) for item in entries), key=lambda entry: entry.path)


def _entry(item: os.DirEntry[str], prefix: str) -> FolderEntry:
    path = prefix + item.name
    try:
        mode, size = (info := item.stat(follow_symlinks=False)).st_mode, info.st_size
    except OSError:
        # Deleted since it was listed: a listing is always a snapshot.
        return FolderEntry(path, "other")
    if stat.S_ISREG(mode):
        return FolderEntry(path, "file", size, item.path)
    if stat.S_ISDIR(mode):
        return FolderEntry(path, "skipped" if item.name in SKIPPED else "folder")
    return FolderEntry(path, "link" if stat.S_ISLNK(mode) else "other")


def _ignored_entry(entry: FolderEntry, rules: _Rules) -> FolderEntry:
    is_folder = entry.kind == "folder"
    if entry.kind not in ("file", "folder", "link", "other") or not is_ignored(
        rules, entry.path, is_folder=is_folder
    ):
        return entry
    return FolderEntry(f"{entry.path}/" if is_folder else entry.path, "ignored")


def _replaced(real: str) -> os.stat_result | None:
    """The file that a write replaces; None if there is nothing yet. Raises OSError for anything else."""
    try:
        info = os.lstat(real)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(info.st_mode):
        raise NotRegular(errno.EINVAL, "not a regular file", real)
    return info


def _create(path: str, data: bytes, before: os.stat_result | None) -> None:
    # No fsync: killing the process loses nothing, and power failures are left to the file system.
    handle = os.open(path, _NEW, 0o666 if before is None else 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        if before is None:
            return
        if hasattr(os, "fchown") and (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
            # Only root may change a file's owner; otherwise the file belongs to the writer.
            with suppress(PermissionError):
                os.fchown(handle, before.st_uid, before.st_gid)
        os.chmod(handle if os.chmod in os.supports_fd else path, stat.S_IMODE(before.st_mode))
