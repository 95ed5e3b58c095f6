"""Limits the number of shells of a server, and ends those that nobody uses or watches."""

import threading
import time
from collections.abc import Callable
from typing import Protocol

from langchain_core.tools import ToolException

MOST_TERMINALS = 64
"""Most shells of one server: each is a process of some megabytes, and so is the process that guards it."""
IDLE_SECONDS = 600.0
_AGAIN_SECONDS = 30.0


class Resting(Protocol):
    """A terminal whose shell may be ended; the next use starts a new one."""

    def is_watched(self) -> bool:
        """Whether a page shows it, or the thread runs."""

    def rest(self) -> bool:
        """Ends the shell, unless something runs in it; returns whether there is none now."""


class Terminals:
    """The terminals that have a shell, and when each was last used. Safe to call from any thread."""

    def __init__(
        self,
        most: int = MOST_TERMINALS,
        idle_seconds: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most, self._idle_seconds, self._clock = most, idle_seconds, clock
        self._used: dict[Resting, float] = {}
        """The least recently used first."""
        self._changing = threading.Lock()

    def __len__(self) -> int:
        return len(self._used)

    def admit(self, terminal: Resting) -> None:
        """Allows it a shell, and notes its use. Above the limit, the least recently used shell ends if nobody
        watches it and nothing runs in it.

        Raises ToolException if there is no such shell.
        """
        with self._changing:
            if terminal not in self._used and len(self._used) >= self._most and not self._made_room():
                raise ToolException(
                    f"This server has {self._most} terminals already, and each is in use; end what runs in "
                    "one of them, close the pages that show it, and try again."
                )
            self._note(terminal)

    def touch(self, terminal: Resting) -> None:
        """Notes its use, if it has a shell."""
        with self._changing:
            if terminal in self._used:
                self._note(terminal)

    def leave(self, terminal: Resting) -> None:
        """Notes that it no longer has a shell."""
        with self._changing:
            self._used.pop(terminal, None)

    def end_idle(self) -> None:
        """Ends the shells that nobody has used or watched for some minutes. May take a while."""
        with self._changing:
            for terminal, used in list(self._used.items()):
                if self._clock() - used <= self._idle_seconds:
                    continue
                if terminal.is_watched():
                    self._note(terminal)
                elif terminal.rest():
                    del self._used[terminal]
                else:
                    # Something runs in it: there is no need to try again at once.
                    self._used[terminal] = self._clock() - self._idle_seconds + _AGAIN_SECONDS

    def _made_room(self) -> bool:
        for terminal in list(self._used):
            if not terminal.is_watched() and terminal.rest():
                del self._used[terminal]
                return True
        return False

    def _note(self, terminal: Resting) -> None:
        self._used.pop(terminal, None)
        self._used[terminal] = self._clock()
