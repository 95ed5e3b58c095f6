"""The command line as a real process: in a terminal, and watched from outside."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from signoff import sqlite_storage
from signoff.session.status import look, reading_graph
from tests.support.benches.cli import Bench

SECONDS = 60.0


class Terminal:
    """A process with a terminal, and what it has printed so far."""

    def __init__(self, process: subprocess.Popen[str], screen: int) -> None:
        self.process = process
        self.screen = screen
        self.text = ""

    def until(self, words: str) -> str:
        """Reads until `words` were printed; all that was printed since the last time."""
        limit = time.monotonic() + SECONDS
        while words not in self.text:
            assert time.monotonic() < limit, self.text
            assert self._read(), self.text
        found, self.text = self.text, self.text.partition(words)[2]
        return found[: len(found) - len(self.text)]

    def type(self, text: str) -> None:
        os.write(self.screen, text.encode())

    def end(self) -> int:
        """Reads to the end; the exit code."""
        while self._read():
            pass
        return self.process.wait(SECONDS)

    def _read(self) -> bool:
        if not select.select([self.screen], [], [], 1)[0]:
            return self.process.poll() is None
        try:
            data = os.read(self.screen, 65536)
        except OSError:
            # Linux reports the end of a terminal's other side as an error.
            return False
        self.text += data.decode(errors="replace")
        return bool(data)


@contextmanager
def terminal(bench: Bench, *words: str) -> Iterator[Terminal]:
    screen, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    bench.env["TERM"] = "xterm-256color"
    # Its own, so that ^C reaches it as from a keyboard.
    own: dict[str, Any] = {
        "start_new_session": True,
        "preexec_fn": lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    }
    process = bench.start(*words, stdin=inside, stdout=inside, stderr=inside, **own)
    os.close(inside)
    try:
        yield Terminal(process, screen)
    finally:
        process.kill()
        process.wait()
        os.close(screen)


def run_words(bench: Bench, *words: str) -> tuple[str, ...]:
    return ("run", "Change the port", "--thread", "t1", "--workspace", str(bench.workspace), *words)


def wait_until(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < limit, "it never came to that"
        time.sleep(0.05)


def wait_for(bench: Bench, turns: int) -> None:
    """Waits until the thread has had as many turns."""

    def reached() -> bool:
        if not bench.database.exists():
            return False
        with sqlite_storage(bench.database) as storage:
            return look(reading_graph(storage), "t1").task.turns >= turns

    wait_until(reached)
