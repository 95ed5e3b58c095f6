"""The command line at a terminal where a person sits: in this process, or in one of its own."""

import fcntl
import os
import pty
import select
import sys
import termios
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from signoff.cli.app import app
from tests.support.benches.cli import Bench
from tests.support.waiting import SECONDS


class Terminal:
    """What a person sees and types."""

    def __init__(self, screen: int) -> None:
        self._screen = screen
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
        os.write(self._screen, text.encode())

    def drain(self) -> None:
        """Reads to the end."""
        while self._read():
            pass

    def _read(self) -> bool:
        if not select.select([self._screen], [], [], 1)[0]:
            return True
        try:
            data = os.read(self._screen, 65536)
        except OSError:
            # Linux reports the end of a terminal's other side as an error.
            return False
        self.text += data.decode(errors="replace")
        return bool(data)


def in_a_process(bench: Bench, inside: int, words: tuple[str, ...]) -> int:
    """Its terminal is its own, so that ^C reaches it as from a keyboard."""

    def own_the_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    streams = dict.fromkeys(("stdin", "stdout", "stderr"), inside)
    with bench.start(*words, **streams, start_new_session=True, preexec_fn=own_the_terminal) as process:
        return process.wait(SECONDS)


def in_this_process(bench: Bench, inside: int, words: tuple[str, ...]) -> int:
    with (
        pytest.MonkeyPatch.context() as patch,
        open(inside, encoding="utf-8", closefd=False) as stdin,
        open(inside, "w", encoding="utf-8", closefd=False) as stdout,
    ):
        for name, value in bench.env.items():
            patch.delenv(name, raising=False) if value is None else patch.setenv(name, value)
        for name, stream in (("stdin", stdin), ("stdout", stdout), ("stderr", stdout)):
            patch.setattr(sys, name, stream)
        with pytest.raises(SystemExit) as ended:
            app(list(words))
    return int(ended.value.code or 0)


def at_terminal(
    bench: Bench,
    person: Callable[[Terminal], object],
    *words: str,
    command: Callable[[Bench, int, tuple[str, ...]], int] = in_this_process,
) -> int:
    """The exit code of `signoff WORDS` at a terminal where `person` sits."""
    screen, inside = pty.openpty()
    termios.tcsetwinsize(inside, (40, 100))
    bench.env["TERM"] = "xterm-256color"
    with ThreadPoolExecutor(1) as pool:
        sitting = pool.submit(_sit, Terminal(screen), person)
        try:
            code = command(bench, inside, words)
        finally:
            os.close(inside)
        sitting.result(SECONDS)
    os.close(screen)
    return code


def _sit(shown: Terminal, person: Callable[[Terminal], object]) -> None:
    try:
        person(shown)
    except BaseException:
        # Whatever the command still asks, nobody answers any more.
        shown.type("\x04")
        raise
    finally:
        shown.drain()


def run_words(bench: Bench, *words: str) -> tuple[str, ...]:
    return ("run", "Change the port", "--thread", "t1", "--workspace", str(bench.workspace), *words)
