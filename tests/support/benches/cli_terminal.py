"""The command line in a terminal: in this process, with a person in a thread, or in a process of its own."""

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from subprocess import Popen

import pytest

from signoff.cli.app import app
from tests.support.benches.cli import Bench
from tests.support.waiting import SECONDS as SECONDS
from tests.support.waiting import wait_until as wait_until


class Terminal:
    """What a person sees and types. process: of the command, where it has one of its own."""

    def __init__(self, screen: int, process: Popen[str] | None = None) -> None:
        self._screen = screen
        self._process = process
        self.text = ""

    @property
    def process(self) -> Popen[str]:
        assert self._process is not None, "the command runs in this process"
        return self._process

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

    def end(self) -> int:
        """Reads to the end; the exit code of the process."""
        self.drain()
        return self.process.wait(SECONDS)

    def drain(self) -> None:
        """Reads to the end."""
        while self._read():
            pass

    def _read(self) -> bool:
        if not select.select([self._screen], [], [], 1)[0]:
            return self._process is None or self._process.poll() is None
        try:
            data = os.read(self._screen, 65536)
        except OSError:
            # Linux reports the end of a terminal's other side as an error.
            return False
        self.text += data.decode(errors="replace")
        return bool(data)


def _pair() -> tuple[int, int]:
    screen, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    return screen, inside


@contextmanager
def terminal(bench: Bench, *words: str) -> Iterator[Terminal]:
    """A terminal with a process of its own."""
    screen, inside = _pair()
    bench.env["TERM"] = "xterm-256color"
    process = bench.start(
        *words,
        stdin=inside,
        stdout=inside,
        stderr=inside,
        # Its own, so that ^C reaches it as from a keyboard.
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(inside)
    try:
        yield Terminal(screen, process)
    finally:
        process.kill()
        process.wait()
        os.close(screen)


def at_terminal(bench: Bench, person: Callable[[Terminal], object], *words: str) -> tuple[int, str]:
    """The exit code of `signoff WORDS` at a terminal where `person` sits, and what was printed at the end."""
    screen, inside = _pair()
    shown, failures = Terminal(screen), list[Exception]()
    helper = threading.Thread(target=_sit, args=(shown, person, failures), daemon=True)
    helper.start()
    try:
        code = _command(inside, words, {**bench.env, "TERM": "xterm-256color"})
    finally:
        os.close(inside)
        helper.join(SECONDS)
        with suppress(OSError):
            os.close(screen)
    if failures:
        raise failures[0]
    return code, shown.text


def _sit(shown: Terminal, person: Callable[[Terminal], object], failures: list[Exception]) -> None:
    try:
        person(shown)
    except Exception as failure:  # noqa: BLE001  raised again where the test sees it
        failures.append(failure)
        # Whatever the command still asks, nobody answers any more.
        shown.type("\x04")
    shown.drain()


def _command(inside: int, words: tuple[str, ...], env: dict[str, str | None]) -> int:
    with (
        pytest.MonkeyPatch.context() as patch,
        open(inside, encoding="utf-8", closefd=False) as stdin,
        open(inside, "w", encoding="utf-8", closefd=False) as stdout,
    ):
        for name, value in env.items():
            patch.delenv(name, raising=False) if value is None else patch.setenv(name, value)
        for name, stream in (("stdin", stdin), ("stdout", stdout), ("stderr", stdout)):
            patch.setattr(sys, name, stream)
        with pytest.raises(SystemExit) as ended:
            app(list(words))
    return int(ended.value.code or 0)


def run_words(bench: Bench, *words: str) -> tuple[str, ...]:
    return ("run", "Change the port", "--thread", "t1", "--workspace", str(bench.workspace), *words)
