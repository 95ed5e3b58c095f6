"""The terminal of a thread, shared by the model and everybody who looks: one shell, one stream of output."""

import base64
import os
import shutil
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from langchain_core.tools import ToolException

from signoff.front.pane_shell import PROMPT, Backlog, Guard, PaneShell, Words, announced, remark
from signoff.front.working import shell_path
from signoff.graph.errors import SetupError
from signoff.tools.pty.shell import Shell, ShellResult
from signoff.web.terminals import Terminals

_ROWS, _COLS = 12, 90
_KEPT = 120_000
_AT_ONCE = 64_000
_PROMPT_SECONDS = 1.0
_RESTS = "The shell has ended, since nobody used it for a while; the next line begins a new one."

_MOVED = "The shell has ended, since the thread works in {} now; the next line begins one there."


class SharedTerminal:
    """A shell in `workspace` that begins when it is first used.

    arrived: called, in any thread, when there is output and there was none before. watched: whether a page
    shows it. terminals: those of the server, which bound it.
    """

    def __init__(
        self,
        workspace: str,
        arrived: Callable[[], None],
        watched: Callable[[], bool],
        terminals: Terminals,
    ) -> None:
        self.workspace = workspace
        self._watched, self._terminals = watched, terminals
        self.size = (_ROWS, _COLS)
        self.running: str | None = None
        """The model's command that runs now."""
        self._arrived = arrived
        self._guard = Guard()
        self._shell = PaneShell(self._started, self._remark, self._guard)
        self._turn = threading.Lock()
        self._prompted = threading.Event()
        self._backlog = Backlog()
        self._kept: deque[bytes] = deque()
        self.typed = 0
        """Bytes that were ever shown in it."""
        self._size = 0

    def run(self, command: str, timeout: float) -> ShellResult:
        """Shows and runs a command of the model; returns when it has ended. Blocks.

        Raises ToolException when it cannot be run, and SetupError where there can be no shell.
        """
        if not self._turn.acquire(timeout=min(timeout, threading.TIMEOUT_MAX)):
            raise ToolException("The terminal is still running another command; try again when it has ended.")
        try:
            self.running = command
            # The first prompt belongs above the first command.
            self.open()
            self._prompted.wait(_PROMPT_SECONDS)
            self._say(announced(command))
            return self._shell.run(command, timeout)
        except (ToolException, SetupError) as error:
            self._remark(f"not run: {error}")
            raise
        finally:
            self.running = None
            self._terminals.touch(self)
            self._turn.release()

    def open(self) -> None:
        """Starts the shell, unless there is one. Raises ToolException when the server has too many. Blocks
        while another one is ended for it."""
        self._terminals.admit(self)
        self._shell.open()

    def follow(self, before: "SharedTerminal") -> None:
        """Takes the place of one in another folder, which has ended, and says so."""
        self.size = before.size
        self._remark(_MOVED.format(self.workspace))

    def is_watched(self) -> bool:
        return self.running is not None or self._watched()

    def rest(self) -> bool:
        """Ends the shell, unless something runs in it, and says so; whether there is none now."""
        rests = self._shell.rest()
        if rests:
            self._prompted.clear()
            self._remark(_RESTS)
        return rests

    def write(self, data: bytes) -> None:
        """Types `data`, soon."""
        if data == b"\x03":
            # It must not wait behind what no program reads.
            self._shell.forget()
        self._shell.write(data)

    def interrupt(self) -> None:
        """Presses ^C, whatever the running program made of that key."""
        self._shell.interrupt()

    def resize(self, rows: int, cols: int) -> None:
        self.size = (rows, cols)
        self._shell.resize(rows, cols)

    def close(self) -> None:
        """Ends the shell and everything it started. May be repeated."""
        self._shell.close()
        self._terminals.leave(self)

    def take(self) -> str:
        """What has come since, as it is sent; empty when there is nothing. Kept for those who come later."""
        parts, size = list[bytes](), 0
        while size < _AT_ONCE and (item := self._backlog.take()) is not None:
            data = _notice(item)
            parts.append(data)
            size += len(data)
        found = b"".join(parts)
        if found:
            self._keep(found)
        return base64.b64encode(found).decode()

    @property
    def recent_output(self) -> str:
        """What was shown last, for somebody who comes now."""
        return base64.b64encode(b"".join(self._kept)).decode()

    @property
    def used(self) -> bool:
        """Whether anything was ever shown in it."""
        return bool(self._kept)

    def _keep(self, data: bytes) -> None:
        self._kept.append(data)
        self._size += len(data)
        self.typed += len(data)
        while self._size > _KEPT and len(self._kept) > 1:
            self._size -= len(self._kept.popleft())

    def _started(self) -> Shell:
        path = shell_path(os.environ, Path(sys.executable), Path(shutil.which("signoff") or sys.argv[0]))
        return Shell(
            self.workspace,
            env={"PROMPT_DIRTRIM": "3", "PATH": path, **self._guard.variables},
            rows=self.size[0],
            cols=self.size[1],
            on_output=self._on_output,
            interactive=True,
            prompt=PROMPT,
        )

    def _on_output(self, data: bytes) -> None:
        self._prompted.set()
        if self._backlog.add(data):
            self._arrived()

    def _say(self, words: str) -> None:
        if self._backlog.add(Words(words)):
            self._arrived()

    def _remark(self, words: str) -> None:
        self._say(remark(words))


def _notice(item: bytes | Words) -> bytes:
    """Words of our own stand on a line of their own, over the prompt that stands there."""
    if isinstance(item, bytes):
        return item
    lines = item.words.replace("\n", "\r\n")
    return f"\r\x1b[K{lines}\x1b[m\r\n".encode()
