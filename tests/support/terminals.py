"""What the tests of the terminal share: a command to look for, and what is left of it."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

PYTHON = sys.executable


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


def until(true: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
