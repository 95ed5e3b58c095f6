"""When a model's call that is going on is to be ended, and why.

A provider can be silent, or send without end. So every call has a watch. It is looked at with each chunk, by
the guard inside the model, and from beside the call, by whoever waits for it (`nodes/model/stream.py`).
"""

import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from signoff.graph.history.task import Task
from signoff.graph.limits import Limits
from signoff.graph.rules import budget

STOPS = ("stop", "signal")
"""The reasons of a drain that end a running reply; a pause lets one that is coming in come to its end."""

_QUIET = 0.7
"""After a pause was asked for, a call that brings nothing for so many seconds is ended."""
_MUTE, _ENDING = 0.1, 1.0
_CHARS = 4
_BYTES, _LEAST_BYTES = 8, 1_000_000
_PER = 1_000_000


class End(StrEnum):
    """Why a call is ended before its reply is whole.

    `stopped`: somebody asked the run to pause or stop. `silent`: nothing has come for too long. `seconds`,
    `tokens`, `cost`: that limit of the task is reached. `size`: the reply is too large.
    """

    STOPPED = "stopped"
    SILENT = "silent"
    SECONDS = "seconds"
    TOKENS = "tokens"
    COST = "cost"
    SIZE = "size"


class Silent(TimeoutError):
    """The model brought nothing for too long."""


@dataclass
class Watch:
    """The bounds of one call, and what has come of it. Times are of the monotonic clock.

    silence: seconds until the first chunk, and between two. until: when the task's time is up. tokens: how
    many may be written, and which limit says so. chars: how long the reply may be. control: LangGraph's
    control of the run, which tells when somebody wants it to stop. end: why the call is ended; None while it
    goes on; `cut`: it ends at a chunk, by itself. heard: whether a chunk has come, `last` when. since: the
    time of the chunk after which `carried` counts, and the bytes that had come by then.
    """

    silence: float | None = None
    until: float | None = None
    tokens: tuple[float, End] | None = None
    chars: int | None = None
    control: Any = None
    end: End | None = None
    heard: bool = False
    last: float = field(default_factory=time.monotonic)
    written: int = 0
    cut: bool = False
    since: tuple[float, int] | None = None
    _asked: float | None = None

    def again(self) -> None:
        """The same call is tried anew."""
        self.end, self.heard, self.cut, self.written, self.last = None, False, False, 0, time.monotonic()
        self.since = None

    def took(self, chars: int) -> End | None:
        """A chunk with so many characters has come. Why the reply is to be ended there, if it is."""
        self.heard, self.last = True, time.monotonic()
        # A chunk without a word takes place, too.
        self.written += chars or 1
        if self.control is not None and self.control.drain_reason in STOPS:
            self.end = End.STOPPED
        elif self.until is not None and self.last >= self.until:
            self.end = End.SECONDS
        elif self.tokens is not None and self.written >= self.tokens[0] * _CHARS:
            self.end = self.tokens[1]
        elif self.chars is not None and self.written > self.chars:
            self.end = End.SIZE
        self.cut = self.end is not None
        return self.end

    @property
    def most_bytes(self) -> int | None:
        """How much may come over the network between two chunks: what the largest reply takes at most."""
        return None if self.chars is None else max(_BYTES * self.chars, _LEAST_BYTES)

    def carried(self, received: int) -> None:
        """So many bytes have come by now. A line without an end is kept by the provider's package until there
        is no memory left, and no chunk ever comes of it."""
        if self.since is None or self.since[0] != self.last or received < self.since[1]:
            self.since = self.last, received
        elif self.most_bytes is not None and received - self.since[1] > self.most_bytes:
            self.end = self.end or End.SIZE

    @property
    def mute(self) -> bool:
        """Whether the call brings nothing at which it could end by itself."""
        return time.monotonic() - self.last > (_ENDING if self.cut else _MUTE)

    def ending(self, seconds: float) -> None:
        """The reply has said how it ends: for what may still come it is waited so long at most."""
        self.silence = seconds if self.silence is None else min(seconds, self.silence)

    def over(self) -> bool:
        """Whether the call is to be ended now, chunk or no chunk."""
        if self.end is None:
            self.end = self._over(time.monotonic())
        return self.end is not None

    def _over(self, now: float) -> End | None:
        if self.control is not None and self.control.drain_requested:
            if self.control.drain_reason in STOPS:
                return End.STOPPED
            self._asked = now if self._asked is None else self._asked
            if now - max(self._asked, self.last) >= _QUIET:
                return End.STOPPED
        if self.until is not None and now >= self.until:
            return End.SECONDS
        return End.SILENT if self.silence is not None and now - self.last >= self.silence else None

    def next_look(self, most: float) -> float:
        """Seconds until it is worth looking again, at most so many."""
        times = [self.until, None if self.silence is None else self.last + self.silence]
        now = time.monotonic()
        return max(0.001, min([most, *(at - now for at in times if at is not None)]))


WATCH: ContextVar[Watch | None] = ContextVar("signoff_watch", default=None)
"""The watch of the call that is being made, for the guard inside the model."""


def watch_of(task: Task, limits: Limits, *, silence: float | None, chars: int | None, control: Any) -> Watch:
    """The watch of the next call for `task`: by what its limits leave of time and tokens.

    What the model is shown is counted when the reply is whole, as ever: else a task with a little left could
    never hear whether it is done.
    """
    bounds = list[tuple[float, End]]()
    time_left = budget("seconds", task, limits)
    if tokens := budget("tokens", task, limits):
        bounds.append((tokens.limit - tokens.used, End.TOKENS))
    if (cost := budget("cost", task, limits)) and limits.prices and limits.prices.output:
        bounds.append(((cost.limit - cost.used) / limits.prices.output * _PER, End.COST))
    return Watch(
        silence=silence,
        until=None if time_left is None else time.monotonic() + time_left.limit - time_left.used,
        tokens=min(bounds, default=None),
        chars=chars,
        control=control,
    )
