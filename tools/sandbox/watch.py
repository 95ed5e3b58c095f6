"""Looks from outside at what limits of one process or one file do not bound: the sum of them."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

EVERY = 0.25
"""Seconds between two looks."""

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def memory(process: int) -> int:
    """Bytes in memory of `process` and all its descendants; shared pages count once where that is known."""
    family = _family(process)
    return sum(map(_resident, family))


def shared_out(process: int) -> int:
    """As `memory`, but exact for pages that several of them share, and slower."""
    return sum(map(_proportional, _family(process)))


def over_memory(process: int, most: int) -> bool:
    """Whether `process` and its descendants together use more than `most` bytes."""
    return memory(process) > most and shared_out(process) > most


def files_in(process: int, folder: str) -> int:
    """How many files are in the file system of `folder`, as `process` and its descendants see it.

    Counts none where they see the folder of this process.
    """
    return max(_files(member, folder) for member in _family(process))


def _files(process: int, folder: str) -> int:
    path = f"/proc/{process}/root{folder}"
    # It may end at any time, or not have the folder.
    with suppress(OSError):
        if os.stat(path).st_dev != os.stat(folder).st_dev:
            status = os.statvfs(path)
            return status.f_files - status.f_ffree
    return 0


def disk_guard(folders: list[str], most: int) -> Callable[[], bool]:
    """A function that says whether a file system of `folders` has `most` bytes less free than now."""
    before = {folder: _free(folder) for folder in folders}
    return lambda: any(free - _free(folder) > most for folder, free in before.items())


def _free(folder: str) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def _family(process: int) -> list[int]:
    found, waiting = [], [process]
    while waiting:
        found.append(member := waiting.pop())
        for task in Path(f"/proc/{member}/task").glob("*/children"):
            # It may end at any time.
            with suppress(OSError):
                waiting += map(int, task.read_text().split())
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
