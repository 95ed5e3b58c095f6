"""One command to its end: in a group of its own, within its time, its output capped while it is read."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

HALF = 512 * 1024
"""Bytes of the beginning, and of the end, of an output that are kept."""

_CHUNK = 64 * 1024
_LOOK_EVERY = 0.1
_AFTER_EXIT = 0.5


@dataclass(frozen=True)
class Ran:
    """What came of a command. code: its exit code, negative for a signal; None when it was broken off.
    late: its time was over. output: both of its streams, the middle of a very long one left out."""

    code: int | None
    output: str
    late: bool = False

    @property
    def ended(self) -> bool:
        """Whether it came to an end by itself."""
        return self.code is not None


class Kept:
    """The beginning and the end of a stream of bytes, in bounded memory, read by a thread of its own."""

    def __init__(self, half: int = HALF) -> None:
        self.closed = threading.Event()
        self._lock = threading.Lock()
        self._half = half
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._in_tail = 0
        self._dropped = 0

    def read(self, stream: IO[bytes]) -> None:
        """Reads until every process that holds the other end has closed it."""
        with stream:
            while data := stream.read(_CHUNK):
                with self._lock:
                    self.add(data)
        self.closed.set()

    def add(self, data: bytes) -> None:
        room = self._half - len(self._head)
        self._head += data[:room]
        if rest := data[max(room, 0) :]:
            self._tail.append(rest)
            self._in_tail += len(rest)
        while self._tail and self._in_tail - len(self._tail[0]) >= self._half:
            self._in_tail -= len(self._tail[0])
            self._dropped += len(self._tail.popleft())

    def text(self) -> str:
        with self._lock:
            head, dropped, tail = bytes(self._head), self._dropped, b"".join(self._tail)
        gap = f"\n[... {dropped} bytes were not kept ...]\n" if dropped else ""
        return head.decode(errors="replace") + gap + tail.decode(errors="replace")


def run_command(
    command: str | tuple[str, ...], folder: Path, seconds: float, stopped: Callable[[], bool]
) -> Ran:
    """Runs `command` in `folder`: a text by the shell, a tuple as it is. Nothing is given to it to read.

    When its `seconds` are over, or `stopped` says so, it is killed with all processes of its group; so are
    those that it leaves behind. Raises OSError when it cannot be started, ValueError for a NUL in it.
    """
    process = subprocess.Popen(
        command,
        bufsize=0,
        shell=isinstance(command, str),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    kept, until = Kept(), time.monotonic() + seconds
    assert process.stdout is not None, "it was asked for"
    threading.Thread(target=kept.read, args=(process.stdout,), name="signoff-check", daemon=True).start()
    try:
        ended = _wait(process, kept, until, stopped)
    finally:
        _kill(process)
    kept.closed.wait(_AFTER_EXIT)
    return Ran(
        process.returncode if ended else None, kept.text(), late=not ended and time.monotonic() >= until
    )


def _wait(process: subprocess.Popen[bytes], kept: Kept, until: float, stopped: Callable[[], bool]) -> bool:
    """Waits until the process has ended; whether it did so in time. What it has said by then is read."""
    pause = 0.001
    while not _has_ended(process):
        left = until - time.monotonic()
        if left <= 0 or stopped():
            return False
        # Its output is closed when it ends, as a rule; where it is closed early there is nothing to wait on.
        if kept.closed.wait(min(_LOOK_EVERY, left)):
            time.sleep(pause)
            pause = min(2 * pause, _LOOK_EVERY)
    # What it left behind may hold the output open: it is not waited for.
    kept.closed.wait(_AFTER_EXIT)
    return True


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process has ended. It is not collected yet, so that its group still has its number."""
    if not hasattr(os, "waitid"):
        # Windows, and macOS before Python 3.13.
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends the process with its whole group, also what it left behind, and collects it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
