"""What the tests of the terminal share: commands to look for, and what is left of them."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from signoff.tools import ShellResult
from signoff.tools.pty.processes import processes

PYTHON = sys.executable
GETPASS = f"{PYTHON} -c 'import getpass; print(len(getpass.getpass()))'"


def long_sleep() -> str:
    """A command line of this process alone, to look for in the process table: tests run in several forks."""
    return f"sleep {7_000 + os.getpid() / 1e7:.7f}"


def found(words: str | None = None) -> list[int]:
    """The processes that run exactly these words, or this process's long sleep."""
    line = b"".join(word.encode() + b"\0" for word in (words or long_sleep()).split())
    return [each.pid for each in processes() if _command_line(each.pid) == line]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def terminals() -> int:
    """How many terminals this process holds open."""
    links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    return sum(os.path.exists(link) and "ptmx" in os.readlink(link) for link in links)


def until(true: Callable[[], bool], seconds: float = 5) -> bool:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def plain(result: ShellResult) -> tuple[int | None, str]:
    """Exit code and output of a command that ended by itself, in the shell it was given to."""
    assert (result.timed_out, result.waiting_for, result.restarted) == (False, None, False)
    return result.exit_code, result.output
