"""The folder in which the file tools work, and nothing outside it."""

import os
import secrets
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO, Literal

from langchain_core.tools import ToolException

from signoff.graph.errors import SetupError
from signoff.graph.foreign import file_name_of, valid_text
from signoff.tools.filesystem.globs import IgnoreRule, is_ignored, rules_of
from signoff.tools.filesystem.paths import FOLDER_FLAGS, Place, beneath, quote_path, steps
from signoff.tools.protected import STATE, PathGuard

__all__ = ["FolderEntry", "Workspace"]

OWN_FOLDER = STATE
"""The tools' own folder in a workspace: full texts of capped outputs, ignored by git."""

MOST_BYTES = 10_000_000
"""The largest file that is read as a whole."""

SKIPPED = frozenset({".git", ".venv", "__pycache__", "node_modules", OWN_FOLDER})
"""Folders that a recursive walk does not enter unless it starts inside them."""

_MOST_IGNORE_BYTES = 500_000
OUTPUTS = f"{OWN_FOLDER}/outputs"
"""The location of full texts in a workspace."""

_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_SYSTEM = ("/proc", "/sys", "/dev")


@dataclass(frozen=True)
class FolderEntry:
    """An entry of a folder: its path below the workspace, and its size in bytes for a file.

    A folder is `empty`, `skipped` (not entered by the walk) or `closed` (could not be opened). `ignored`
    entries are excluded by a `.gitignore`; the path of a folder then ends with "/".
    """

    path: str
    kind: Literal["file", "folder", "link", "other", "empty", "skipped", "closed", "ignored"]
    size: int = 0


class Workspace:
    """An existing folder. Every access refuses a path that leads out of it, at any time.

    Paths are relative to the folder ("src/app.py", "./src", "a//b"); an absolute path below the folder is
    accepted too. A link is followed as long as it stays inside. Failures raise ToolException with a sentence
    for the model. A hard link cannot be told from a file: it can be read, and a write replaces it without
    touching the other name.

    protect: what may be read but not written, as in `signoff.tools.protected`: by default git's own folders,
    Python environments, Signoff's installation and its folder `.signoff`.

    Raises SetupError if the folder does not exist or is the root of the file system, and for a path in
    `protect` that does not exist.
    """

    def __init__(self, root: str | os.PathLike[str], *, protect: Collection[str] | None = None) -> None:
        given = os.path.abspath(os.path.expanduser(os.fspath(root)))
        real = os.path.realpath(given)
        if not os.path.isdir(real):
            raise SetupError(
                f"The workspace {given} is not an existing folder; create it or name another one."
            )
        if os.path.dirname(real) == real or any(real == at or real.startswith(f"{at}/") for at in _SYSTEM):
            raise SetupError(f"{real} cannot be a workspace; name the folder of one project.")
        self.root = real
        self._roots = (real, given)
        self.protect = None if protect is None else frozenset(protect)
        self._guard = PathGuard(real, protect)

    def relative(self, path: str) -> str:
        """`path` as a short relative one, for messages and as a prefix; the workspace itself is "."."""
        return "/".join(steps(path, self._roots)) or "."

    def kind(self, path: str) -> Literal["file", "folder", "other"]:
        """The kind of entry at `path`, with links resolved. Raises ToolException if it does not exist."""
        with beneath(self._roots, path) as place:
            mode = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode
        return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"

    def read(self, path: str, most: int = MOST_BYTES) -> bytes:
        """The bytes of the regular file at `path`, at most `most` of them, or ToolException."""
        with self.open(path) as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise ToolException(f"{quote_path(path)} is larger than {most:,} bytes; choose a smaller file.")
        return data

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        """The regular file at `path`, for reading. Failures inside the block become ToolException, too."""
        with beneath(self._roots, path) as place:
            _regular(os.stat(place.name, dir_fd=place.folder, follow_symlinks=False), path)
            handle = os.open(place.name, _READ, dir_fd=place.folder)
            with os.fdopen(handle, "rb") as file:
                _regular(os.fstat(handle), path)
                yield file

    def write(self, path: str, data: bytes) -> bool:
        """Replaces the file at `path` atomically, or creates it with its folders. Returns True if created.

        A reader sees the old bytes or the new ones, even if the process is killed in between. The mode of a
        replaced file is kept. Raises ToolException, with nothing changed, for a protected path.
        """
        return self._written(path, data, self._check(path))

    def _check(self, path: str) -> Callable[[str], None]:
        def check(real: str) -> None:
            why = self._guard.why(real)
            if why:
                raise ToolException(
                    f"{quote_path(path)} is protected: it belongs to {why}, which these tools do not change. "
                    "Work on other files, or ask the user."
                )

        return check

    def _written(self, path: str, data: bytes, check: Callable[[str], None]) -> bool:
        with beneath(self._roots, path, create=True, check=check) as place:
            before = _replaceable(place, path)
            temporary = os.path.join(os.path.dirname(place.name), f".signoff-{secrets.token_hex(8)}.tmp")
            try:
                _create(place.folder, temporary, data, before)
                os.replace(temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
            except BaseException:
                _remove(place.folder, temporary)
                raise
        return before is None

    def walk(self, path: str = ".") -> Iterator[FolderEntry]:
        """The files below the folder at `path`: first a folder's own, then those of its subfolders.

        Links are reported but not followed; folders are reported only if they are empty or not entered.
        Folders excluded by a `.gitignore` are not entered, unless `path` itself is excluded or skipped.
        Raises ToolException only for `path` itself.
        """
        start = "" if self.relative(path) == "." else self.relative(path) + "/"
        found = self._scanned(path, start)
        rules = self._rules_above(start)
        if rules is not None:
            rules += self._rules_in(start, found)
        waiting: list[tuple[str, list[IgnoreRule] | None]] = []
        while True:
            kept = [_ignored_entry(entry, rules) for entry in found] if rules else found
            yield from (entry for entry in kept if entry.kind != "folder")
            waiting += [(entry.path, rules) for entry in reversed(kept) if entry.kind == "folder"]
            if not waiting:
                return
            folder, rules = waiting.pop()
            found = self._inside(folder)
            own = [] if rules is None else self._rules_in(f"{folder}/", found)
            rules = [*rules, *own] if rules and own else own or rules

    def _rules_above(self, start: str) -> list[IgnoreRule] | None:
        """The ignore rules of the folders above `start`; None if it is itself excluded."""
        rules: list[IgnoreRule] = []
        names = start.split("/")[:-1]
        for depth, name in enumerate(names):
            folder = "".join(f"{above}/" for above in names[:depth])
            rules += self._rules_in(folder)
            if name in SKIPPED or is_ignored(rules, folder + name, is_folder=True):
                return None
        return rules

    def _rules_in(self, folder: str, found: Sequence[FolderEntry] | None = None) -> list[IgnoreRule]:
        name = f"{folder}.gitignore"
        if found is not None and not any(entry.path == name for entry in found):
            return []
        try:
            data = self.read(name, _MOST_IGNORE_BYTES)
        except ToolException:
            # Missing or unreadable: nothing is excluded.
            return []
        return rules_of(data.decode("utf-8-sig", "surrogateescape"), folder)

    def _inside(self, folder: str) -> list[FolderEntry]:
        try:
            return self._scanned(folder, folder + "/") or [FolderEntry(folder, "empty")]
        except ToolException:
            return [FolderEntry(folder, "closed")]

    def keep(self, name: str) -> Callable[[str], str]:
        """A `keep` for `signoff.graph.foreign.capped`, which stores full texts in `.signoff/outputs`.

        It returns a relative path, which `read` accepts.
        """

        def keep(text: str) -> str:
            path = f"{OUTPUTS}/{file_name_of(name, text)}"
            self._written(f"{OWN_FOLDER}/.gitignore", b"*\n", _only_own)
            self._written(path, valid_text(text).encode(), _only_own)
            return path

        return keep

    def _scanned(self, path: str, prefix: str) -> list[FolderEntry]:
        with beneath(self._roots, path) as place:
            if place.folder is None:
                return _scanned(place.name, prefix)
            folder = os.open(place.name, FOLDER_FLAGS, dir_fd=place.folder)
            try:
                return _scanned(folder, prefix)
            finally:
                os.close(folder)


def _only_own(real: str) -> None:
    # A link could lead from there to anywhere in the workspace.
    if real != OWN_FOLDER and not real.startswith(f"{OWN_FOLDER}/"):
        raise ToolException(f"{OWN_FOLDER} in the workspace is a link; ask the user to remove it.")


def _scanned(folder: str | int, prefix: str) -> list[FolderEntry]:
    with os.scandir(folder) as found:
        return sorted((_entry(item, prefix) for item in found), key=lambda entry: entry.path)


def _entry(item: os.DirEntry[str], prefix: str) -> FolderEntry:
    path = prefix + item.name
    try:
        mode, size = (info := item.stat(follow_symlinks=False)).st_mode, info.st_size
    except OSError:
        # Deleted since it was listed: a listing is always a snapshot.
        return FolderEntry(path, "other")
    if stat.S_ISREG(mode):
        return FolderEntry(path, "file", size)
    if stat.S_ISDIR(mode):
        return FolderEntry(path, "skipped" if item.name in SKIPPED else "folder")
    return FolderEntry(path, "link" if stat.S_ISLNK(mode) else "other")


def _ignored_entry(entry: FolderEntry, rules: Sequence[IgnoreRule]) -> FolderEntry:
    is_folder = entry.kind == "folder"
    if entry.kind not in ("file", "folder", "link", "other") or not is_ignored(
        rules, entry.path, is_folder=is_folder
    ):
        return entry
    return FolderEntry(f"{entry.path}/" if is_folder else entry.path, "ignored")


def _regular(info: os.stat_result, path: str) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise ToolException(f"{quote_path(path)} is a folder; pass the path of a file.")
    if not stat.S_ISREG(info.st_mode):
        raise ToolException(
            f"{quote_path(path)} is not a regular file (a device, a pipe or the like); choose another."
        )


def _replaceable(place: Place, path: str) -> os.stat_result | None:
    try:
        info = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    _regular(info, path)
    # A rename would replace a file that its owner made read-only.
    effective = os.access in os.supports_effective_ids
    if not os.access(place.name, os.W_OK, dir_fd=place.folder, effective_ids=effective):
        raise ToolException(f"{quote_path(path)} is read-only; leave it as it is or ask the user.")
    return info


def _create(folder: int | None, name: str, data: bytes, before: os.stat_result | None) -> None:
    # No fsync: killing the process loses nothing, and power failures are left to the file system.
    handle = os.open(name, _CREATE, 0o666 if before is None else 0o600, dir_fd=folder)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        if before is None:
            return
        if hasattr(os, "fchown") and (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
            # Only root may change a file's owner; otherwise the file belongs to the writer.
            with suppress(PermissionError):
                os.fchown(handle, before.st_uid, before.st_gid)
        os.chmod(handle if os.chmod in os.supports_fd else name, stat.S_IMODE(before.st_mode))


def _remove(folder: int | None, name: str) -> None:
    # Missing when it was never created.
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
