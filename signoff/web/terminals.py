"""How many shells a server keeps: a bound, and an end for those that nobody uses or watches."""

import threading
import time
from collections.abc import Callable
from typing import Protocol

from langchain_core.tools import ToolException

MOST_TERMINALS = 64
"""Shells of one server at once: each is a process of some megabytes, and so is what guards its end."""
IDLE_SECONDS = 600.0
_AGAIN_SECONDS = 30.0


class Resting(Protocol):
    """A terminal whose shell may be ended; whoever uses it next gets a new one."""

    def is_watched(self) -> bool:
        """Whether a page shows it, or the thread runs."""

    def rest(self) -> bool:
        """Ends the shell, unless something runs in it; whether there is none now."""


class Terminals:
    """The terminals that have a shell, and when each was used last. Any thread may ask."""

    def __init__(
        self,
        most: int = MOST_TERMINALS,
        idle_seconds: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most, self._idle_seconds, self._clock = most, idle_seconds, clock
        self._used: dict[Resting, float] = {}
        """Least recently used first."""
        self._changing = threading.Lock()

    def __len__(self) -> int:
        return len(self._used)

    def admit(self, terminal: Resting) -> None:
        """Lets it have a shell, and notes that it is used. Beyond the bound, the shell that was used least
        recently ends if nobody watches it and nothing runs in it.

        Raises ToolException when there is none such.
        """
        with self._changing:
            if terminal not in self._used and len(self._used) >= self._most and not self._made_room():
                raise ToolException(
                    f"This server has {self._most} terminals already, and each is in use; end what runs in "
                    "one of them, close the pages that show it, and try again."
                )
            self._note(terminal)

    def touch(self, terminal: Resting) -> None:
        """Notes that it is used, if it has a shell."""
        with self._changing:
            if terminal in self._used:
                self._note(terminal)

    def leave(self, terminal: Resting) -> None:
        """It has no shell any more."""
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
                    # Something runs in it: it need not be asked at each moment.
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
