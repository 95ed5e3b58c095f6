"""Checks from outside what limits on one process or one file do not bound: what is used in all."""

import errno
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

EVERY = 0.04
"""Seconds between two checks; what is used or written in between is not prevented."""

_EARLIER = 1.0
"""Timestamps of file systems may lag a little behind the clock."""
_FIRST_COUNT = 1.0
_REST = 20
"""Counting may take at most this fraction of the time: one part in so many."""

_USED = ("RssAnon:", "RssShmem:", "VmSwap:", "VmPTE:", "HugetlbPages:")
"""Anonymous, shared and swapped memory, and the tables for it; pages of files can be read again."""
_BUFFER_OF_A_PIPE = 65_536
_BUFFERS_OF_SOCKETS = Path("/proc/sys/net/core/wmem_default")
_BUFFER_OF_A_SOCKET = 212_992


def memory(process: int) -> int:
    """Returns the bytes that `process` uses; 0 when it has ended.

    The buffers of its pipes and sockets count as full: what is in them belongs to no process.
    """
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    fields = (line.split() for line in lines if line.startswith(_USED))
    return sum(int(size) for _, size, _ in fields) * 1024 + _buffers(process)


def resident(process: int) -> int:
    """Returns the bytes of `process` that are in memory, those of files among them, which takes no time; 0
    when it has ended."""
    try:
        pages = Path(f"/proc/{process}/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _buffers(process: int) -> int:
    kinds = []
    # The process, or one of its descriptors, may be gone at any time.
    with suppress(OSError):
        for number in os.listdir(f"/proc/{process}/fd"):
            with suppress(OSError):
                kinds.append(os.readlink(f"/proc/{process}/fd/{number}").partition(":")[0])
    size = _BUFFER_OF_A_SOCKET
    with suppress(OSError, ValueError):
        size = int(_BUFFERS_OF_SOCKETS.read_text())
    return kinds.count("pipe") * _BUFFER_OF_A_PIPE + kinds.count("socket") * size


class DiskGuard:
    """Tells whether more than `most_bytes` or `most_files` have been added to `folders` since it was created.

    Bytes are measured by the free space of the file systems, so a deleted file that is still open counts.
    Files are counted one by one: as soon as a file system has that many more, and now and then in any case,
    because others create and delete files too. since: older files never count, in seconds since 1970.
    """

    def __init__(self, folders: Sequence[str], most_bytes: int, most_files: int, since: float = 0.0) -> None:
        self._folders, self._most_bytes, self._most_files = folders, most_bytes, most_files
        self._since = max(time.time() - _EARLIER, since)
        self._free = {folder: _free(folder) for folder in folders}
        self._files = self._count_used()
        self._due = time.monotonic() + _FIRST_COUNT

    def over(self) -> str:
        """Returns a sentence that names the exceeded limit; empty when there is none."""
        if not all(map(os.path.isdir, self._folders)):
            return "The folder of this code was deleted while it ran, and the interpreter was ended."
        if any(free - _free(folder) > self._most_bytes for folder, free in self._free.items()):
            return "The disk was filling up while the code ran, and the interpreter was ended."
        used, began = self._count_used(), time.monotonic()
        if used - self._files <= self._most_files and began < self._due:
            return ""
        many = sum(files_since(folder, self._since, self._most_files) for folder in self._folders)
        self._due = time.monotonic() + _REST * (time.monotonic() - began)
        self._files = used
        too_many = "The code made far too many files and was ended."
        return too_many if many > self._most_files else ""

    def _count_used(self) -> int:
        states = map(os.statvfs, self._folders)
        return sum(state.f_files - state.f_ffree for state in states)


def files_since(folder: str, since: float, most: int) -> int:
    """Returns how many entries below `folder` were made or changed after `since`; stops counting past `most`.

    A new or changed folder that cannot be read counts as too many: a path too long for the system, or a
    folder closed to its owner, was made to hide files.
    """
    count, waiting = 0, [folder]
    while waiting:
        place = waiting.pop()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    info = entry.stat(follow_symlinks=False)
                    count += info.st_ctime >= since
                    if count > most:
                        return count
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG or _changed(place, since):
                return most + 1
    return count


def _changed(path: str, since: float) -> bool:
    with suppress(OSError):
        return os.stat(path, follow_symlinks=False).st_ctime >= since
    return True


def _free(folder: str) -> int:
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize
