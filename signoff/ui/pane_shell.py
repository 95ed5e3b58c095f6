"""The shell of a terminal pane: started when it is first used, typed into without blocking the screen."""

import atexit
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from langchain_core.tools import ToolException

from signoff.graph.errors import SetupError
from signoff.tools.pty.shell import Shell, ShellResult
from signoff.ui.pane_guard import Guard

_MOST_TYPED = 1_000_000
_NEW_SHELL = "The shell has ended; this is a new one."


class PaneShell:
    """A shell that `start` makes when it is first needed, and again when a person has ended it.

    say: shows words to the person, from any thread. guard: ends what is left when this process is killed.
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

    @property
    def waiting_for(self) -> str | None:
        """What the running command waits for: a `line`, a `password` or keys for a full `screen`."""
        return self._shell.waiting_for if self._shell else None

    def run(self, command: str, timeout: float) -> ShellResult:
        """Runs a command as `Shell.run` does."""
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
        """Types `data` in another thread. What is too much for a program that reads nothing is dropped."""
        if self._closed:
            return
        if self._typist is None:
            self._typist = threading.Thread(target=self._type_all, name="signoff-pane-typist", daemon=True)
            self._typist.start()
        if self._typed > _MOST_TYPED:
            self._say("Too much was typed that no program has read; the rest is left out.")
            return
        self._count(len(data))
        self._keys.put(data)

    def interrupt(self) -> None:
        """Presses ^C, ahead of everything that was typed and not read."""
        self.forget()
        if self._shell:
            with suppress(ToolException):
                # A shell that has ended runs nothing that could be interrupted.
                self._shell.interrupt()

    def forget(self) -> None:
        """Drops what was typed and has not been read."""
        with suppress(queue.Empty):
            while True:
                self._count(-len(self._keys.get_nowait() or b""))

    def reads_keys(self) -> bool:
        """Whether the program that runs reads single keys rather than whole lines."""
        with suppress(ToolException):
            # Nothing reads keys from a shell that has ended.
            return self._shell is not None and self._shell.reads_keys()
        return False

    def resize(self, rows: int, cols: int) -> None:
        """Tells the programs how large their terminal is."""
        if self._shell:
            with suppress(ToolException):
                # The next shell starts in the new size.
                self._shell.resize(rows, cols)

    def close(self) -> None:
        """Ends the shell and all it started. May be repeated."""
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
                # An application that ends by an error must leave nothing running either.
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
        # Not above: where there is no such terminal, the line before has said so.
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
