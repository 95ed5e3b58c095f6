"""Whether the command in a terminal waits for somebody to type, and for what."""

import time
from typing import Literal

from signoff.tools.pty_bash import Bash
from signoff.tools.pty_processes import Waits, processes, waits

WaitingFor = Literal["line", "password", "screen"]
"""A line of input, a line that is not echoed, or keys for a program that has the whole terminal."""

QUIET_SECONDS = 0.5
"""How long nothing may have been written before the processes are looked at, and again between looks."""

_LONGEST_PAUSE = 3.0


class Watch:
    """Looks at one command now and then; a look at the process table costs some milliseconds.

    A command waits when, twice in a row, it has written nothing, used no processor time, and one of its
    foreground processes sits in a read of the terminal (or, where the terminal is in raw mode, in a wait
    for several things).
    """

    def __init__(self, bash: Bash) -> None:
        self._bash = bash
        self._next = 0.0
        self._pause = QUIET_SECONDS
        self._seen: tuple[WaitingFor, frozenset[tuple[int, int]]] | None = None
        self._answer: WaitingFor | None = None

    def look(self, last_output: float) -> WaitingFor | None:
        """What the command waits for; `last_output` is the `time.monotonic` of its last output."""
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
    """Whether bash itself reads the terminal; where that cannot be known, whether nothing else runs."""
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
