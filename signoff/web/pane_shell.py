"""The shell of the web terminal: its input, its pending output, and its end."""

import atexit
import queue
import re
import secrets
import subprocess
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from langchain_core.tools import ToolException

from signoff import SetupError
from signoff.front.text import cut, one_line, plain
from signoff.tools import Shell, ShellResult
from signoff.tools.processes.helpers import isolated, program_text
from signoff.tools.pty import processes as pty_processes

PROMPT = r"\[\e[1;34m\]\w\[\e[0m\] \$ "
"""What bash shows while it waits, as in `PS1`: the folder."""
_MOST_LINES = 12
_MOST_CHARACTERS = 1_500
MOST = 200_000
"""How many bytes are stored; more push the oldest out."""
_SWITCHES = re.compile(rb"\x1b\[\?([0-9]{1,4})([hl])")
_LONGEST_SWITCH = 8
_CHUNK = 4_096
_NAME = "SIGNOFF_PANE"
_SECONDS = 2.0
# Not run as a module of the package, whose import takes long and much memory.
_CODE = f"""
import sys, types
if not sys.stdin.buffer.read(1):
    made = sys.modules["processes"] = types.ModuleType("processes")
    exec({program_text(pty_processes.__file__)!r}, made.__dict__)
    made.end_marked(sys.argv[1])
"""
_MOST_TYPED = 1_000_000
_NEW_SHELL = "The shell has ended; this is a new one."


def announced(command: str) -> str:
    """A command of the agent as if it had been typed; a long one is cut."""
    lines = plain(cut(command.strip(), _MOST_CHARACTERS)).split("\n")
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"… {len(lines) - _MOST_LINES} more lines"]
    return "\x1b[1;32m$\x1b[39m " + "\n  ".join(lines)


def remark(words: str) -> str:
    """Words of the server itself."""
    return f"\x1b[2;3m[{one_line(words)}]"


class Backlog:
    """Output, and texts of the server itself, in the order in which they came.

    Any thread may add, one thread takes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: deque[bytes | str] = deque()
        self._size = 0
        self._lost = 0
        self._end = b""
        self._switched: dict[bytes, bytes] = {}

    def add(self, item: bytes | str) -> bool:
        """Adds one; returns whether nothing was waiting before."""
        with self._lock:
            first = not self._items
            if isinstance(item, str):
                self._items.append(item)
            else:
                self._items.extend(item[at : at + _CHUNK] for at in range(0, len(item), _CHUNK))
                self._size += len(item)
            while self._size > MOST:
                self._drop(self._items.popleft())
            return first

    def take(self) -> bytes | str | None:
        """Returns the next text or piece of output; None when there is nothing.

        If bytes were dropped, it first returns the modes they set (such as those of a full-screen program, or
        of the cursor), then a text that says how much is missing.
        """
        with self._lock:
            if self._lost:
                return self._gap()
            if not self._items:
                return None
            item = self._items.popleft()
            if isinstance(item, str):
                return item
            self._size -= len(item)
            return item

    def _drop(self, item: bytes | str) -> None:
        if isinstance(item, str):
            return
        self._size -= len(item)
        self._lost += len(item)
        found = self._end + item
        self._switched.update(_SWITCHES.findall(found))
        self._end = found[-_LONGEST_SWITCH:]

    def _gap(self) -> bytes | str:
        if self._switched:
            # The first character ends a sequence whose end was dropped.
            modes = b"".join(b"\x1b[?%b%b" % each for each in self._switched.items())
            self._switched = {}
            return b"\x18" + modes + b"\x1b[m"
        lost, self._lost, self._end = self._lost, 0, b""
        self._drop_first_line()
        return f"\x1b[2;3m[… {lost / 1e6:.1f} MB of output not shown …]"

    def _drop_first_line(self) -> None:
        """Drops the line whose beginning is missing."""
        if self._items and isinstance(self._items[0], bytes):
            line, end, rest = self._items[0].partition(b"\n")
            if end:
                self._size -= len(line) + 1
                self._items[0] = rest


class Guard:
    """A process that briefly outlives this one, to end all processes with `variables` in their environment.

    bash sends SIGHUP to its background jobs only while it waits for a command, and a program may ignore it.
    So when the server is killed, another process must end what it started. Does nothing on systems that
    do not show what processes do.
    """

    def __init__(self) -> None:
        self.variables = {_NAME: secrets.token_hex(16)}
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Starts watching, unless it already does."""
        if self._process or not pty_processes.known():
            return
        mark = f"{_NAME}={self.variables[_NAME]}"
        self._process = subprocess.Popen(
            isolated(_CODE, mark),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # In a session of its own it does not end with the server's terminal.
            start_new_session=True,
        )

    def end(self) -> None:
        """Stops watching: nothing is left to end. May be called again."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.communicate(b".", timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class PaneShell:
    """A shell that `start` creates when it is first needed, and again after a person has ended it.

    say: shows a text to the person, from any thread. guard: ends what is left when this process is killed.
    """

    def __init__(self, start: Callable[[], Shell], say: Callable[[str], None], guard: Guard) -> None:
        self._start = start
        self._say = say
        self._shell: Shell | None = None
        self._opening = threading.RLock()
        self._runs = 0
        self._lost = False
        self._keys: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._typed = 0
        self._counting = threading.Lock()
        self._typist: threading.Thread | None = None
        self._closed = False
        self._guard = guard

    def run(self, command: str, timeout: float) -> ShellResult:
        """Runs a command like `Shell.run`."""
        with self._opening:
            shell = self._opened()
            self._runs += 1
        try:
            result = shell.run(command, timeout)
        finally:
            with self._opening:
                self._runs -= 1
        lost, self._lost = self._lost, False
        return replace(result, restarted=result.restarted or lost)

    def open(self) -> None:
        """Starts the shell in another thread, unless there is one."""
        self.write(b"")

    def write(self, data: bytes) -> None:
        """Types `data` in another thread. Drops what exceeds the buffer of a program that reads nothing."""
        if self._closed:
            return
        if self._typist is None:
            self._typist = threading.Thread(target=self._type_all, name="signoff-pane-typist", daemon=True)
            self._typist.start()
        if self._typed > _MOST_TYPED:
            self._say("Too much was typed that no program has read; the rest is dropped.")
            return
        self._count(len(data))
        self._keys.put(data)

    def interrupt(self) -> None:
        """Presses ^C, ahead of all input that was not read."""
        self.forget()
        if self._shell:
            with suppress(ToolException):
                # An ended shell runs nothing that could be interrupted.
                self._shell.interrupt()

    def forget(self) -> None:
        """Drops input that has not been read."""
        with suppress(queue.Empty):
            while True:
                self._count(-len(self._keys.get_nowait() or b""))

    def resize(self, rows: int, cols: int) -> None:
        """Sets the size of the terminal."""
        if self._shell:
            with suppress(ToolException):
                # The next shell starts in the new size.
                self._shell.resize(rows, cols)

    def rest(self) -> bool:
        """Ends the shell if nothing runs in it, and returns whether there is none now. The next use
        starts a new one."""
        with self._opening:
            if self._shell is None:
                return not self._runs
            with suppress(ToolException):
                # An ended shell runs nothing.
                if self._runs or not self._shell.unused():
                    return False
            self._shell.close()
            atexit.unregister(self.close)
            self._shell, self._lost = None, True
            self._guard.end()
            return True

    def close(self) -> None:
        """Ends the shell and all it started. May be called again."""
        self._closed = True
        self._keys.put(None)
        with self._opening:
            if self._shell:
                self._shell.close()
                atexit.unregister(self.close)
            self._guard.end()

    def _opened(self) -> Shell:
        with self._opening:
            if self._closed:
                raise ToolException("The terminal was closed; open the thread again.")
            if self._shell is None:
                self._guard.begin()
                self._shell = self._start()
                # A server that ends with an error must not leave anything running either.
                atexit.register(self.close)
            return self._shell

    def _count(self, change: int) -> None:
        with self._counting:
            self._typed += change

    def _type_all(self) -> None:
        while (data := self._keys.get()) is not None:
            self._count(-len(data))
            try:
                self._type(data)
            except (ToolException, SetupError) as error:
                if not self._closed:
                    self._say(str(error))

    def _type(self, data: bytes) -> None:
        shell = self._opened()
        # Not at the top: where there is no such terminal, the previous line has raised an error.
        from signoff.tools.pty.bash import ShellEnded

        try:
            shell.write(data)
        except ShellEnded:
            self._replace(shell)

    def _replace(self, ended: Shell) -> None:
        with self._opening:
            if self._runs or self._closed or self._shell is not ended:
                return
            ended.close()
            atexit.unregister(self.close)
            self._shell, self._lost = None, True
            self._say(_NEW_SHELL)
            self._opened()
