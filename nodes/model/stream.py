"""Calls a model so that the call can be ended at any time, whatever the provider does.

A provider can be silent, or send without end. So every call has bounds, which are checked with each chunk by
the guard inside the model, and from outside by the code that waits for the call.

In an event loop the call is part of the run's own task, and is cancelled. In sync code the whole stream runs
in a daemon thread, and the run waits for it. A thread that waits for the network cannot be interrupted, so it
is abandoned: the run goes on, and whatever the thread receives later is dropped.
"""

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, closing, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar

from signoff.graph import clock
from signoff.graph.history.task import Task
from signoff.graph.inside.speed import in_thread
from signoff.graph.limits import Limits
from signoff.graph.rules import budget

STOPS = ("stop", "signal")
"""The drain reasons that cut off a running reply; a pause lets it complete."""

_QUIET = 0.7
"""After a pause was requested, a call that sends nothing for this many seconds is ended."""
_MUTE, _ENDING = 0.1, 1.0
_CHARS = 4
_PER = 1_000_000


class EarlyEnd(StrEnum):
    """Why a call is ended before its reply is whole.

    `stopped`: the run was asked to pause or stop. `silent`: nothing has arrived for too long. `seconds`,
    `tokens`, `cost`: that limit of the task is reached. `size`: the reply is too large.
    """

    STOPPED = "stopped"
    SILENT = "silent"
    SECONDS = "seconds"
    TOKENS = "tokens"
    COST = "cost"
    SIZE = "size"


class Silent(TimeoutError):
    """The model sent nothing for too long."""


class Abandoned(Exception):
    """Raised in the thread of a call for which nobody waits any more, so that nothing of it is handed on."""


@dataclass(slots=True)
class CallBounds:
    """The bounds of one call, and its progress. Times are of the monotonic clock.

    silence: seconds until the first chunk, and between two. until: when the task's time is up. tokens: how
    many may be written, and which limit says so. chars: how long the reply may be. control: LangGraph's
    control of the run, which tells when somebody wants it to stop. end: why the call is ended; None while it
    goes on; `cut`: it ends at a chunk, by itself. heard: whether a chunk has come, `last` when. abandoned:
    nobody waits for the call any more.
    """

    silence: float | None = None
    until: float | None = None
    tokens: tuple[float, EarlyEnd] | None = None
    chars: int | None = None
    control: Any = None
    end: EarlyEnd | None = None
    heard: bool = False
    last: float = field(default_factory=clock.monotonic)
    written: int = 0
    cut: bool = False
    abandoned: bool = False
    _asked: float | None = None

    def renewed(self) -> "CallBounds":
        """These bounds for another attempt of the same call."""
        now = clock.monotonic()
        return replace(self, end=None, heard=False, last=now, written=0, cut=False, abandoned=False)

    def took(self, chars: int) -> EarlyEnd | None:
        """Records a chunk of this many characters; returns why the reply must end there, if it must."""
        self.heard, self.last = True, clock.monotonic()
        # A chunk without a word takes place, too.
        self.written += chars or 1
        if self.control is not None and self.control.drain_reason in STOPS:
            self.end = EarlyEnd.STOPPED
        elif self.until is not None and self.last >= self.until:
            self.end = EarlyEnd.SECONDS
        elif self.tokens is not None and self.written >= self.tokens[0] * _CHARS:
            self.end = self.tokens[1]
        elif self.chars is not None and self.written > self.chars:
            self.end = EarlyEnd.SIZE
        self.cut = self.end is not None
        return self.end

    @property
    def mute(self) -> bool:
        """Whether the call receives nothing that could end it from inside."""
        return clock.monotonic() - self.last > (_ENDING if self.cut else _MUTE)

    def ending(self, seconds: float) -> None:
        """The reply has a finish reason: sets how long to wait for anything that may follow."""
        self.silence = seconds if self.silence is None else min(seconds, self.silence)

    def over(self) -> bool:
        """Whether the call is to be ended now, chunk or no chunk."""
        if self.end is None:
            self.end = self._over(clock.monotonic())
        return self.end is not None

    def _over(self, now: float) -> EarlyEnd | None:
        if self.control is not None and self.control.drain_requested:
            if self.control.drain_reason in STOPS:
                return EarlyEnd.STOPPED
            self._asked = now if self._asked is None else self._asked
            if now - max(self._asked, self.last) >= _QUIET:
                return EarlyEnd.STOPPED
        if self.until is not None and now >= self.until:
            return EarlyEnd.SECONDS
        return EarlyEnd.SILENT if self.silence is not None and now - self.last >= self.silence else None

    def next_look(self, most: float) -> float:
        """Seconds until the next useful check, at most `most`."""
        times = [self.until, None if self.silence is None else self.last + self.silence]
        now = clock.monotonic()
        return max(0.001, min([most, *(at - now for at in times if at is not None)]))


WATCH: ContextVar[CallBounds | None] = ContextVar("signoff_watch", default=None)
"""The watch of the call that is being made, for the guard inside the model."""


def watch_of(
    task: Task, limits: Limits, *, silence: float | None, chars: int | None, control: Any
) -> CallBounds:
    """The watch of the next call for `task`: by what its limits leave of time and tokens.

    The prompt is counted only when the reply is complete: else a task with little budget left could never
    finish.
    """
    bounds = list[tuple[float, EarlyEnd]]()
    time_left = budget("seconds", task, limits)
    if tokens := budget("tokens", task, limits):
        bounds.append((tokens.limit - tokens.used, EarlyEnd.TOKENS))
    if (cost := budget("cost", task, limits)) and limits.prices and limits.prices.output:
        bounds.append(((cost.limit - cost.used) / limits.prices.output * _PER, EarlyEnd.COST))
    return CallBounds(
        silence=silence,
        until=None if time_left is None else clock.monotonic() + time_left.limit - time_left.used,
        tokens=min(bounds, default=None),
        chars=chars,
        control=control,
    )


_T = TypeVar("_T")

_SHORTEST, _LONGEST = 0.02, 0.25
_GRACE = 1.0


def call(watch: CallBounds, items: Callable[[], Iterator[_T]]) -> tuple[list[_T], BaseException | None]:
    """The items of `items()` until it ends, or its watch ends it; and the error that ended it, if any."""
    helper = _Helper(watch, items)
    helper.start()
    helper.wait()
    return list(helper.taken), helper.error


async def acall_in_thread(
    watch: CallBounds, items: Callable[[], Iterator[_T]]
) -> tuple[list[_T], BaseException | None]:
    """`call` for a loop: for what has no async way of its own, and would hold a thread of a pool forever."""
    helper, loop, ended = _Helper(watch, items), asyncio.get_running_loop(), asyncio.Event()

    def tell() -> None:
        # The loop may be closed when an abandoned call ends.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(ended.set)

    helper.start(tell)
    seconds: float | None = watch.next_look(_SHORTEST)
    try:
        while seconds is not None and not await _is_set_within(ended, seconds):
            seconds = helper.next_wait()
    finally:
        if not ended.is_set():
            helper.abandon()
    return list(helper.taken), helper.error


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


async def acall(
    watch: CallBounds, items: Callable[[], AsyncIterator[_T]]
) -> tuple[list[_T], BaseException | None]:
    """`call` for a loop."""
    taken, stream = list[_T](), items()
    canceller = _Canceller(watch)
    token = WATCH.set(watch)
    try:
        async with aclosing(stream):  # type: ignore[type-var]  # it is a generator
            async for item in stream:
                taken.append(item)
    except asyncio.CancelledError as error:
        if not canceller.own():
            raise
        return taken, error
    except Exception as error:  # noqa: BLE001  it is told to whoever waits
        return taken, error
    finally:
        WATCH.reset(token)
        canceller.close()
    if canceller.from_outside():
        # The model's own code swallowed both cancellations.
        raise asyncio.CancelledError
    return taken, None


class _Canceller:
    """Checks the watch of a call in the running task now and then, and cancels the task when it must end."""

    __slots__ = ("_before", "_cancelled", "_handle", "_loop", "_task", "_watch")

    def __init__(self, watch: CallBounds) -> None:
        task = asyncio.current_task()
        assert task is not None, "a node runs in a task"
        self._watch, self._task, self._loop = watch, task, asyncio.get_running_loop()
        self._before, self._cancelled = task.cancelling(), 0
        # Not at once, as for a thread: a loop may serve a thousand calls.
        self._handle = self._loop.call_later(watch.next_look(_LONGEST), self._look)

    def _look(self) -> None:
        after = self._watch.next_look(_LONGEST)
        if self._watch.over():
            # Some packages swallow it; a second one too early would interrupt the closing of the connection.
            after = _GRACE if self._watch.mute else _SHORTEST
            if self._watch.mute:
                self._cancelled += 1
                self._task.cancel()
        self._handle = self._loop.call_later(after, self._look)

    def from_outside(self) -> bool:
        """Whether other code has cancelled the task, too."""
        return self._task.cancelling() > self._before + self._cancelled

    def own(self) -> bool:
        """Whether it was cancelled here and nowhere else."""
        return self._cancelled > 0 and not self.from_outside()

    def close(self) -> None:
        self._handle.cancel()
        for _ in range(self._cancelled):
            self._task.uncancel()
        self._cancelled = 0


class _Helper(Generic[_T]):
    """A call in a helper thread. taken: what has come of it; error: what ended it."""

    def __init__(self, watch: CallBounds, items: Callable[[], Iterator[_T]]) -> None:
        self.taken: list[_T] = []
        self.error: BaseException | None = None
        self._watch, self._items = watch, items
        self._pause = _SHORTEST
        self._due: float | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def start(self, tell: Callable[[], None] | None = None) -> None:
        context = contextvars.copy_context()
        in_thread(lambda: context.run(self._run, tell))

    def _run(self, tell: Callable[[], None] | None) -> None:
        WATCH.set(self._watch)
        try:
            with closing(self._items()) as stream:  # type: ignore[type-var]  # it is a generator
                for item in stream:
                    self.taken.append(item)
        except BaseException as error:  # noqa: BLE001  it is told to whoever waits
            self.error = error
        self._done.release()
        if tell:
            tell()

    def wait(self) -> None:
        """Waits until the call has ended, or is abandoned."""
        ended = False
        seconds: float | None = self._watch.next_look(_SHORTEST)
        try:
            while seconds is not None and not (ended := self._done.acquire(timeout=seconds)):
                seconds = self.next_wait()
        finally:
            # Also on Ctrl-C, in a program that does not drain.
            if not ended:
                self.abandon()

    def next_wait(self) -> float | None:
        """How many seconds to wait for the call before the next look; None when it is to be abandoned."""
        if not self._watch.over():
            self._pause = min(2 * self._pause, _LONGEST)
            return self._watch.next_look(self._pause)
        now = clock.monotonic()
        self._due = now if self._due is None else self._due
        # After a chunk that came just now, it ends by itself.
        return None if self._watch.mute or now - self._due >= _GRACE else _SHORTEST

    def abandon(self) -> None:
        """Leaves the call to its daemon thread, which blocks nothing."""
        self._watch.abandoned = True
        self.error = self.error or TimeoutError("the call was abandoned")
