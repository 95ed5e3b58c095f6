"""The terminal of a thread, shared by the model and all open pages: one shell, one stream of output."""

import base64
import os
import shutil
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from langchain_core.tools import ToolException

from signoff import SetupError
from signoff.front.working import shell_path
from signoff.tools import Shell, ShellResult
from signoff.web.pane_shell import PROMPT, Backlog, Guard, PaneShell, announced, remark
from signoff.web.terminals import Terminals

_ROWS, _COLS = 12, 90
_KEPT = 120_000
_AT_ONCE = 64_000
_PROMPT_SECONDS = 1.0
_RESTS = "The shell was closed because nobody used it for a while; the next line starts a new one."

_MOVED = "The shell was closed because the thread now works in {}; the next line starts one there."


class SharedTerminal:
    """A shell in `workspace` that starts on first use.

    arrived: called, in any thread, when output arrives after there was none. watched: whether a page shows
    it. terminals: those of the server, which limit their number.
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
        """The model's running command."""
        self._arrived = arrived
        self._guard = Guard()
        self._shell = PaneShell(self._started, self._remark, self._guard)
        self._turn = threading.Lock()
        self._prompted = threading.Event()
        self._backlog = Backlog()
        self._kept: deque[bytes] = deque()
        self.typed = 0
        """How many bytes were ever shown in it."""
        self._size = 0

    def run(self, command: str, timeout: float) -> ShellResult:
        """Shows and runs a command of the model; returns when it has ended. Blocks.

        Raises ToolException if it cannot run, and SetupError if no shell is possible.
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
        """Starts the shell, unless there is one. Raises ToolException if the server has too many. Blocks
        while another one ends to make room."""
        self._terminals.admit(self)
        self._shell.open()

    def follow(self, before: "SharedTerminal") -> None:
        """Replaces a terminal in another folder, which has ended, and says so."""
        self.size = before.size
        self._remark(_MOVED.format(self.workspace))

    def is_watched(self) -> bool:
        return self.running is not None or self._watched()

    def rest(self) -> bool:
        """Ends the shell, unless something runs in it, and says so; returns whether there is none now."""
        rests = self._shell.rest()
        if rests:
            self._prompted.clear()
            self._remark(_RESTS)
        return rests

    def write(self, data: bytes) -> None:
        """Types `data` without waiting for it."""
        if data == b"\x03":
            # It must not wait behind input that no program reads.
            self._shell.forget()
        self._shell.write(data)

    def interrupt(self) -> None:
        """Presses ^C, even where the running program gave that key another meaning."""
        self._shell.interrupt()

    def resize(self, rows: int, cols: int) -> None:
        self.size = (rows, cols)
        self._shell.resize(rows, cols)

    def close(self) -> None:
        """Ends the shell and everything it started. May be called again."""
        self._shell.close()
        self._terminals.leave(self)

    def take(self) -> str:
        """Returns the output since the last call, encoded; empty if none. Keeps it for later readers."""
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
        """Returns the recent output, for a new reader."""
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
        if self._backlog.add(words):
            self._arrived()

    def _remark(self, words: str) -> None:
        self._say(remark(words))


def _notice(item: bytes | str) -> bytes:
    """Returns the server's own text on a line of its own, in place of the prompt."""
    if isinstance(item, bytes):
        return item
    lines = item.replace("\n", "\r\n")
    return f"\r\x1b[K{lines}\x1b[m\r\n".encode()
