"""Checks from outside what limits on one process or one file do not bound: the total."""

import errno
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

EVERY = 0.25
"""Seconds between two checks of memory."""

EVERY_DISK = 0.05
"""Seconds between two checks of the disk; what is written in between is not prevented."""

_EARLIER = 1.0
"""Timestamps of file systems may lag a little behind the clock."""
_FIRST_COUNT = 1.0
_REST = 20
"""Counting may take at most this fraction of the time: one part in so many."""

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def memory(process: int) -> int:
    """Returns the bytes in memory of `process` and its descendants; shared pages count once if possible."""
    return sum(map(_resident, family(process)))


def shared_out(process: int) -> int:
    """Like `memory`, but exact for pages that several processes share, and slower."""
    return sum(map(_proportional, family(process)))


def over_memory(process: int, most: int) -> bool:
    """Whether `process` and its descendants together use more than `most` bytes."""
    return memory(process) > most and shared_out(process) > most


def files_in(process: int, folder: str) -> int:
    """Returns how many files are in the file system of `folder`, as `process` and its descendants see it.

    Returns 0 where they see the same folder as this process.
    """
    return max(_files(member, folder) for member in family(process))


def _files(process: int, folder: str) -> int:
    path = f"/proc/{process}/root{folder}"
    # The process may end at any time, or not have the folder.
    with suppress(OSError):
        if os.stat(path).st_dev != os.stat(folder).st_dev:
            status = os.statvfs(path)
            return status.f_files - status.f_ffree
    return 0


class DiskGuard:
    """Tells whether more than `most_bytes` or `most_files` have been added to `folders` since it was created.

    Bytes are measured by the free space of the file systems, so a deleted file that is still open counts.
    Files are counted one by one: as soon as a file system has that many more, and now and then in any case,
    because others create and delete files too. since: older files never count, in seconds since 1970. still:
    called with True before such a count and with False after it, so that the processes are stopped meanwhile.
    """

    def __init__(
        self,
        folders: Sequence[str],
        most_bytes: int,
        most_files: int,
        still: Callable[[bool], None],
        since: float = 0.0,
    ) -> None:
        self._folders = folders
        self._most_bytes, self._most_files, self._still = most_bytes, most_files, still
        self._since = max(time.time() - _EARLIER, since)
        self._before = {folder: os.statvfs(folder) for folder in folders}
        self._files = {folder: _used(status) for folder, status in self._before.items()}
        self._due = time.monotonic() + _FIRST_COUNT

    def over(self) -> str:
        """Returns a sentence that names the exceeded limit; empty when there is none."""
        now = {folder: os.statvfs(folder) for folder in self._folders}
        for folder, status in now.items():
            if _free(self._before[folder]) - _free(status) > self._most_bytes:
                return "The disk was filling up while the code ran, and the interpreter was ended."
        if any(_used(status) - self._files[folder] > self._most_files for folder, status in now.items()):
            self._still(True)
            try:
                return self._check_counts(now)
            finally:
                self._still(False)
        return self._check_counts(now) if time.monotonic() >= self._due else ""

    def _check_counts(self, now: "Mapping[str, os.statvfs_result]") -> str:
        began = time.monotonic()
        many = sum(files_since(folder, self._since, self._most_files) for folder in self._folders)
        self._due = time.monotonic() + _REST * (time.monotonic() - began)
        self._files = {folder: _used(status) for folder, status in now.items()}
        too_many = "The code made far too many files and was ended."
        return too_many if many > self._most_files else ""


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


def _used(status: "os.statvfs_result") -> int:
    return status.f_files - status.f_ffree


def _free(status: "os.statvfs_result") -> int:
    return status.f_bavail * status.f_frsize


def family(process: int) -> list[int]:
    """Returns `process` and all its descendants."""
    found, waiting = [], [process]
    while waiting:
        found.append(member := waiting.pop())
        # The process may end at any time.
        with suppress(OSError):
            for task in list(Path(f"/proc/{member}/task").iterdir()):
                with suppress(OSError):
                    waiting += map(int, (task / "children").read_text().split())
    return found


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _proportional(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return _resident(process)
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
