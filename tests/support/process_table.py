"""What Linux's process table says of processes that a test has started; each may end at any moment."""

import os
from pathlib import Path

from tests.support.waiting import until


def state(pid: int) -> str:
    """The letter that ps shows: R runs, S sleeps, T stands still, Z has ended; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    # A process that ends after its file was opened raises the second error.
    except (FileNotFoundError, ProcessLookupError):
        return ""


def runs(pid: int) -> bool:
    """Whether the process runs; one that has ended and waits to be collected does not."""
    return state(pid) not in ("", "Z", "X")


def gone(*pids: int, seconds: float = 10) -> bool:
    """Whether these processes end within `seconds`."""
    return until(lambda: not any(map(runs, pids)), seconds)


def long_sleep() -> str:
    """A command line of this process alone, to look for in the process table: tests run in several forks."""
    return f"sleep {7_000 + os.getpid() / 1e7:.7f}"


def found(words: str | None = None) -> list[int]:
    """The processes that run exactly these words, or this process's long sleep."""
    line = b"".join(word.encode() + b"\0" for word in (words or long_sleep()).split())
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _command_line(pid) == line]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def children(pid: int) -> list[int]:
    """The processes that `pid` has started and that are still in the table."""
    found = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += list(map(int, tasks.read_text().split()))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
