"""One bash process behind a pseudo-terminal, and whether its command waits for input.

Needs a Unix system: import it only where one is used.
"""

import os
import select
import signal
import termios
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from langchain_core.tools import ToolException
from ptyprocess import PtyProcess  # type: ignore[import-untyped]  # the package has no types

from signoff.tools.pty.environment import MARK
from signoff.tools.pty.processes import (
    Waits,
    adopt_orphans,
    end_family,
    family,
    kill_group,
    known,
    processes,
    waits,
)

INTERRUPT = b"\x03"
QUIT = b"\x1c"

_ARGUMENTS = ("--noediting", "--norc", "--noprofile", "+o", "history", "-i")
_MOST_READ = 65_536
_WRITE_SECONDS = 2.0
_END_SECONDS = 2.0
_POLL_MILLISECONDS = 500
_SIGNALS = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGPIPE", "SIGTERM", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGXFSZ")
# Python code runs between the fork and bash: one fork at a time, and the warning filter below is global.
_SPAWNING = threading.Lock()


class ShellEnded(ToolException):
    """The shell ended, or lost its terminal, while it was in use."""

    def __init__(self) -> None:
        super().__init__("The shell has ended; the next command starts a new one.")


class Bash:
    """Starts `executable` in `cwd` and passes everything it writes to `receive`, in a thread of its own.

    The last piece is empty: the terminal has closed. When `receive` raises, reading and the shell end. Raises
    OSError when bash cannot start there.
    """

    def __init__(
        self,
        executable: str,
        cwd: str,
        environment: Mapping[str, str],
        size: tuple[int, int],
        receive: Callable[[bytes], None],
    ) -> None:
        self._receive = receive
        self._owner = os.getpid()
        self._mark = f"{MARK}={environment[MARK]}"
        self._lock = threading.Lock()
        self._open = True
        self.ended = False
        """Whether `end` was called."""
        self._process = _spawned(executable, cwd, environment, size)
        self.pid: int = self._process.pid
        self._fd: int = self._process.fd
        os.set_blocking(self._fd, False)
        self._modes = _plain_modes(self._fd)
        self.plain_modes()
        self._reader = threading.Thread(target=self._read, name=f"signoff-shell-{self.pid}", daemon=True)
        self._reader.start()

    def type(self, data: bytes) -> None:
        """Types `data`. Raises ToolException when no program reads it within two seconds."""
        deadline = time.monotonic() + _WRITE_SECONDS
        while data:
            with self._terminal() as fd:
                written = _written(fd, data[:1024])
            data = data[written:]
            if not written:
                if time.monotonic() > deadline:
                    raise ToolException("The running program does not read its input; type it again later.")
                time.sleep(0.01)

    def press(self, key: bytes) -> None:
        """Presses `INTERRUPT` or `QUIT`, even where a program made them ordinary characters.

        Has no effect while the terminal's input buffer is full.
        """
        self.plain_modes()
        with self._terminal() as fd:
            _written(fd, key)

    def plain_modes(self) -> None:
        """Restores the terminal modes of the start: whole lines, echo, ^C and ^\\ as signals."""
        with self._terminal() as fd:
            termios.tcsetattr(fd, termios.TCSANOW, self._modes)

    def reads(self) -> tuple[bool, bool]:
        """Returns whether the terminal passes whole lines to programs, and whether it echoes input."""
        with self._terminal() as fd:
            local = termios.tcgetattr(fd)[3]
        return bool(local & termios.ICANON), bool(local & termios.ECHO)

    def foreground(self) -> int:
        """Returns the foreground process group of the terminal: `pid` when it is bash itself."""
        with self._terminal() as fd:
            return os.tcgetpgrp(fd)

    def alone(self) -> bool:
        """Whether nothing that it has started runs; where that is not known, whether nothing holds the
        terminal."""
        if not known():
            return self.foreground() == self.pid
        return family(self.pid, self._mark) <= {self.pid}

    def at_prompt(self, within: float) -> bool:
        """Whether bash is in the foreground, or returns to it within this many seconds.

        The group of a program that has just ended stays in the foreground until bash notices.
        """
        end = time.monotonic() + within
        while self.foreground() != self.pid:
            if time.monotonic() >= end:
                return False
            time.sleep(0.005)
        return True

    def kill_foreground(self) -> bool:
        """Kills the foreground process group, unless it is bash itself; returns whether there was one."""
        group = self.foreground()
        if group in (0, self.pid):
            return False
        kill_group(group)
        return True

    def resize(self, rows: int, cols: int) -> None:
        with self._terminal():
            self._process.setwinsize(rows, cols)

    def alive(self) -> bool:
        with self._lock:
            return self._open and bool(self._process.isalive())

    def reading(self) -> bool:
        """Whether more output may come."""
        return self._reader.is_alive()

    def exit_code(self) -> int | None:
        """Returns the exit code of bash, 128 plus the number for a signal; None while it runs."""
        self._collect()
        signalled = self._process.signalstatus
        code = self._process.exitstatus if signalled is None else 128 + signalled
        return None if code is None else int(code)

    def end(self) -> None:
        """Ends bash and all that it started. Does nothing in a fork of the owner's process."""
        if self.ended or os.getpid() != self._owner:
            return
        self.ended = True
        end_family(self.pid, self._mark)
        self._collect()
        with self._lock:
            self._open = False
        if threading.current_thread() is not self._reader:
            self._reader.join(_END_SECONDS)

    def _collect(self) -> None:
        """Waits for the process, which ends shortly after its terminal; otherwise it would stay a zombie."""
        deadline = time.monotonic() + _END_SECONDS
        while True:
            with self._lock:
                running = bool(self._process.isalive())
            if not running or time.monotonic() > deadline:
                return
            time.sleep(0.002)

    @contextmanager
    def _terminal(self) -> Iterator[int]:
        """Yields the file descriptor and keeps it open. Raises ShellEnded when the terminal has closed."""
        with self._lock:
            if not self._open:
                raise ShellEnded
            try:
                yield self._fd
            except (OSError, termios.error) as error:
                raise ShellEnded from error

    def _read(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        try:
            while self._open:
                if poll.poll(_POLL_MILLISECONDS) and not self._received():
                    break
        finally:
            with self._lock:
                self._open = False
                self._process.isalive()
                # `ptyprocess` waits a moment after closing for a status that is known by now.
                self._process.delayafterclose = 0
                self._process.fileobj.close()
                self._process.closed = True
            # Also for a shell that ended by itself and is not used again.
            self._collect()

    def _received(self) -> bool:
        try:
            data = os.read(self._fd, _MOST_READ)
        except BlockingIOError:
            return True
        except OSError:
            # Linux reports this way that no process has the terminal open any more.
            data = b""
        self._receive(data)
        return bool(data)


def _spawned(executable: str, cwd: str, environment: Mapping[str, str], size: tuple[int, int]) -> PtyProcess:
    def prepare() -> None:
        # Not by the `cwd` of `ptyprocess`: an error there would leave two copies of this program running.
        os.chdir(cwd)
        # Python ignores some signals, and everything that bash starts would inherit that.
        for name in _SIGNALS:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        adopt_orphans()

    if not os.path.isdir(cwd):
        # `ptyprocess` notices it too, but then keeps the terminal open until it is garbage-collected.
        raise NotADirectoryError(f"no folder {cwd}")
    with _SPAWNING, warnings.catch_warnings():
        # Newer Pythons warn of every fork in a threaded program; the child runs bash after a few system
        # calls.
        warnings.simplefilter("ignore", DeprecationWarning)
        return PtyProcess.spawn(
            [executable, *_ARGUMENTS], env=dict(environment), dimensions=size, preexec_fn=prepare
        )


def _written(fd: int, data: bytes) -> int:
    try:
        return os.write(fd, data)
    except BlockingIOError:
        return 0


def _plain_modes(fd: int) -> list[int | list[bytes | int]]:
    modes = termios.tcgetattr(fd)
    # A typed ^S would stop the output until a ^Q.
    modes[0] &= ~termios.IXON
    return modes


WaitingFor = Literal["line", "password", "screen"]
"""A line of input, a line that is not echoed, or keys for a full-screen program."""

QUIET_SECONDS = 0.5
"""Seconds without output before the processes are checked, and between two checks."""

_LONGEST_PAUSE = 3.0


class InputWatch:
    """Checks now and then whether one command waits for input; a check takes some milliseconds.

    A command waits when, in two checks in a row, it has written nothing, used no processor time, and one of
    its foreground processes blocks in a read of the terminal (or, where the terminal is in raw mode, in a
    `poll`, `select` or `epoll_wait`).
    """

    def __init__(self, bash: Bash) -> None:
        self._bash = bash
        self._next = 0.0
        self._pause = QUIET_SECONDS
        self._seen: tuple[WaitingFor, frozenset[tuple[int, int]]] | None = None
        self._answer: WaitingFor | None = None

    def look(self, last_output: float) -> WaitingFor | None:
        """Returns what the command waits for; `last_output` is the `time.monotonic` of its last output."""
        now = time.monotonic()
        if now - last_output < QUIET_SECONDS:
            self._seen, self._answer, self._pause = None, None, QUIET_SECONDS
            return None
        if now < self._next:
            return self._answer
        before, self._seen = self._seen, self._state()
        self._pause = QUIET_SECONDS if self._seen else min(self._pause * 1.5, _LONGEST_PAUSE)
        self._next = now + self._pause
        self._answer = self._seen[0] if self._seen and self._seen == before else None
        return self._answer

    def _state(self) -> tuple[WaitingFor, frozenset[tuple[int, int]]] | None:
        group = self._bash.foreground()
        members = [each for each in processes() if each.group == group]
        if not members or any(each.state in "RD" for each in members):
            return None
        lines, echo = self._bash.reads()
        what = _what(set().union(*(waits(each) for each in members)), lines=lines, echo=echo)
        return what and (what, frozenset((each.pid, each.ticks) for each in members))


def at_prompt(bash: Bash) -> bool:
    """Whether bash itself reads the terminal; where that is unknown, whether nothing else runs."""
    if bash.foreground() != bash.pid:
        return False
    states = [waits(each) for each in processes() if each.pid == bash.pid]
    return not states or "terminal" in states[0]


def _what(found: set[Waits], *, lines: bool, echo: bool) -> WaitingFor | None:
    if not lines:
        return "screen" if found & {"terminal", "poll", "hidden"} else None
    if not echo:
        return "password" if found & {"terminal", "hidden"} else None
    return "line" if "terminal" in found else None
