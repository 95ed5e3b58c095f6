"""Reads a line from the terminal so that a signal ends the wait at every moment."""

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def read_line(prompt: str) -> str:
    """The next line, without its end. Raises EOFError at the end of the input, and what a signal raises.

    `input()` misses a signal that comes between its prompt and its read: the handler then waits for the line.
    """
    sys.stdout.write(prompt)
    sys.stdout.flush()
    if sys.platform != "win32":
        with _wakeup() as woken:
            select.select([sys.stdin, woken], [], [])
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\r\n")


@contextmanager
def _wakeup() -> Iterator[int]:
    """A file descriptor that becomes readable when a signal comes."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    try:
        yield woken
    finally:
        signal.set_wakeup_fd(before)
        os.close(woken)
        os.close(wake)
