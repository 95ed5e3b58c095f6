"""Calls a model so that the call can be ended at any time, whatever the provider does.

A provider can be silent, or send without end. So every call has bounds, which are checked with each chunk by
the guard inside the model, and from outside by the code that waits for the call.

In sync code the whole stream runs in a helper thread, and the run waits for it. A thread that waits for the
network cannot be interrupted, so its connection is closed. No provider's package has a public way to its
connection, but every one has a stack frame that reads from it: there the socket is found. If none is found,
the time limits end the call. In an event loop the call is part of the run's own task, and is cancelled.
"""

import asyncio
import contextvars
import gc
import socket
import struct
import sys
import threading
import time
from asyncio.trsock import TransportSocket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing, closing, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import Any, Generic, TypeVar

from signoff.graph.history.task import Task
from signoff.graph.inside.speed import in_thread
from signoff.graph.limits import Limits
from signoff.graph.rules import budget

STOPS = ("stop", "signal")
"""The drain reasons that cut off a running reply; a pause lets it complete."""

_QUIET = 0.7
"""After a pause was requested, a call that sends nothing for this many seconds is ended."""
_MUTE, _ENDING = 0.1, 1.0
_WEIGHING = 0.5
_CHARS = 4
_BYTES, _LEAST_BYTES = 8, 1_000_000
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


@dataclass(slots=True)
class CallBounds:
    """The bounds of one call, and its progress. Times are of the monotonic clock.

    silence: seconds until the first chunk, and between two. until: when the task's time is up. tokens: how
    many may be written, and which limit says so. chars: how long the reply may be. control: LangGraph's
    control of the run, which tells when somebody wants it to stop. end: why the call is ended; None while it
    goes on; `cut`: it ends at a chunk, by itself. heard: whether a chunk has come, `last` when. since: the
    time of the chunk after which `carried` counts, and the bytes that had come by then.
    """

    silence: float | None = None
    until: float | None = None
    tokens: tuple[float, EarlyEnd] | None = None
    chars: int | None = None
    control: Any = None
    end: EarlyEnd | None = None
    heard: bool = False
    last: float = field(default_factory=time.monotonic)
    written: int = 0
    cut: bool = False
    since: tuple[float, int] | None = None
    _asked: float | None = None
    _weighed: float = 0.0

    def renewed(self) -> "CallBounds":
        """These bounds for another attempt of the same call."""
        return replace(self, last=time.monotonic())

    def again(self) -> None:
        """Restarts the bounds for another attempt of the same call."""
        self.end, self.heard, self.cut, self.written, self.last = None, False, False, 0, time.monotonic()
        self.since = None

    def took(self, chars: int) -> EarlyEnd | None:
        """Records a chunk of this many characters; returns why the reply must end there, if it must."""
        self.heard, self.last = True, time.monotonic()
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
    def most_bytes(self) -> int | None:
        """How much may come over the network between two chunks: what the largest reply takes at most."""
        return None if self.chars is None else max(_BYTES * self.chars, _LEAST_BYTES)

    def carried(self, received: int) -> None:
        """Notes how many bytes have arrived so far. A line without an end is kept by the provider's package
        until there is no memory left, and no chunk ever comes of it."""
        if self.since is None or self.since[0] != self.last or received < self.since[1]:
            self.since = self.last, received
        elif self.most_bytes is not None and received - self.since[1] > self.most_bytes:
            self.end = self.end or EarlyEnd.SIZE

    @property
    def to_weigh(self) -> bool:
        """Whether it is time to measure the received bytes: finding the connection is more expensive than a
        check."""
        now = time.monotonic()
        if now - max(self.last, self._weighed) < _WEIGHING:
            return False
        self._weighed = now
        return True

    @property
    def mute(self) -> bool:
        """Whether the call receives nothing that could end it from inside."""
        return time.monotonic() - self.last > (_ENDING if self.cut else _MUTE)

    def ending(self, seconds: float) -> None:
        """The reply has a finish reason: sets how long to wait for anything that may follow."""
        self.silence = seconds if self.silence is None else min(seconds, self.silence)

    def over(self) -> bool:
        """Whether the call is to be ended now, chunk or no chunk."""
        if self.end is None:
            self.end = self._over(time.monotonic())
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
        now = time.monotonic()
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
        until=None if time_left is None else time.monotonic() + time_left.limit - time_left.used,
        tokens=min(bounds, default=None),
        chars=chars,
        control=control,
    )


Socket = socket.socket | TransportSocket

_KEPT = ("_sock", "sock", "_transport", "transport")
_WAITING = (CoroutineType, GeneratorType, AsyncGeneratorType)
_DEEPEST = 200
# Of Linux's `struct tcp_info`: eight bytes, 24 numbers of 32 bits, three of 64, then the bytes received.
_RECEIVED = struct.Struct("=8x24I3QQ")


def frames_of_thread(thread: int) -> Iterator[FrameType]:
    """The frames of the call that a helper thread makes, from the one that waits."""
    frame = sys._current_frames().get(thread)
    while frame is not None and frame.f_code is not _Helper._run.__code__:
        yield frame
        frame = frame.f_back


def frames_of_stream(stream: Any) -> Iterator[FrameType]:
    """The frames of a stream for which a task waits, from its own to the one that waits. The frames around
    it, LangGraph's and ours, hold no connection and have many values.

    What an `async for` waits for names no generator; that it refers to one is known to the collector.
    """
    waits: Any = stream
    for _ in range(_DEEPEST):
        if not isinstance(waits, _WAITING):
            waits = next((each for each in gc.get_referents(waits) if isinstance(each, _WAITING)), None)
            if waits is None:
                return
        for frame, following in (
            ("cr_frame", "cr_await"),
            ("gi_frame", "gi_yieldfrom"),
            ("ag_frame", "ag_await"),
        ):
            if found := getattr(waits, frame, None):
                yield found
                waits = getattr(waits, following)
                break
        else:
            return


def sockets(frames: Iterable[FrameType]) -> list[Socket]:
    """The sockets that these frames work with, each once."""
    found = dict[int, Socket]()
    for frame in frames:
        for value in list(frame.f_locals.values()):
            for each in _sockets(value):
                found[each.fileno()] = each
    return list(found.values())


def _sockets(value: object) -> Iterator[Socket]:
    for each in (value, *(getattr(value, name, None) for name in _KEPT)):
        if not isinstance(each, Socket) and callable(info := getattr(each, "get_extra_info", None)):
            each = info("socket")
        if isinstance(each, Socket):
            yield each


def received(connections: Iterable[Socket]) -> int:
    """Bytes that have come over these connections; 0 for those of which the system does not tell."""
    total = 0
    for connection in connections:
        try:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED.size)
            total += _RECEIVED.unpack(info)[-1]
        except (AttributeError, OSError, struct.error):
            continue
    return total


_T = TypeVar("_T")

_SHORTEST, _LONGEST = 0.02, 0.25
_PATIENCE = 0.4
_GRACE = 1.0
_LATE, _MOST_BUSY = 0.1, 8


class CallEnded(SystemExit):
    """Raised in a helper thread whose call is ended.

    No error of the network, which a provider's package would take as a reason to try again; and a thread
    that ends by it says nothing.
    """


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
    try:
        pause = _SHORTEST
        while not ended.is_set() and not watch.over():
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), watch.next_look(pause))
            helper.weigh()
            pause = min(2 * pause, _LONGEST)
        begun = time.monotonic()
        while not ended.is_set() and helper.end(time.monotonic() - begun):
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), 0.05)
    except asyncio.CancelledError:
        helper.end(_PATIENCE)
        raise
    return list(helper.taken), helper.error


async def acall(
    watch: CallBounds, items: Callable[[], AsyncIterator[_T]]
) -> tuple[list[_T], BaseException | None]:
    """`call` for a loop."""
    taken, stream = list[_T](), items()
    canceller = _Canceller(watch, stream)
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

    __slots__ = ("_before", "_busy", "_cancelled", "_due", "_handle", "_loop", "_stream", "_task", "_watch")

    def __init__(self, watch: CallBounds, stream: object) -> None:
        task = asyncio.current_task()
        assert task is not None, "a node runs in a task"
        self._watch, self._task, self._loop, self._stream = watch, task, asyncio.get_running_loop(), stream
        self._before, self._cancelled = task.cancelling(), 0
        self._busy = 0
        # Not at once, as for a thread: a loop may serve a thousand calls.
        self._look_in(watch.next_look(_LONGEST))

    def _look_in(self, seconds: float) -> None:
        self._due = self._loop.time() + seconds
        self._handle = self._loop.call_at(self._due, self._look)

    def _is_busy(self) -> bool:
        """Whether the loop is late with this look: then what has come may wait to be read, and nothing is
        wrong with the call. So it is for a while only."""
        self._busy = self._busy + 1 if self._loop.time() - self._due > _LATE else 0
        return 0 < self._busy < _MOST_BUSY

    def _look(self) -> None:
        after = self._watch.next_look(_LONGEST)
        if not self._is_busy() and self._watch.to_weigh:
            self._watch.carried(received(sockets(frames_of_stream(self._stream))))
        if self._watch.over():
            # Some packages swallow it; a second one too early would interrupt the closing of the connection.
            after = _GRACE if self._watch.mute else _SHORTEST
            if self._watch.mute:
                self._cancelled += 1
                self._task.cancel()
        self._look_in(after)

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
        self._lock, self._done = threading.Lock(), threading.Lock()
        self._thread: int | None = None
        self._struck = False
        self._done.acquire()

    def start(self, tell: Callable[[], None] | None = None) -> None:
        context = contextvars.copy_context()
        in_thread(lambda: context.run(self._run, tell))

    def _run(self, tell: Callable[[], None] | None) -> bool:
        """Takes all items. Whether the thread can be used again."""
        with self._lock:
            self._thread = threading.get_ident()
        WATCH.set(self._watch)
        try:
            with closing(self._items()) as stream:  # type: ignore[type-var]  # it is a generator
                for item in stream:
                    self.taken.append(item)
        except BaseException as error:  # noqa: BLE001  it is told to whoever waits
            self.error = error
        with self._lock:
            self._thread = None
        self._done.release()
        if tell:
            tell()
        return not self._struck

    def wait(self) -> None:
        """Waits until the call has ended, or has been ended."""
        pause = _SHORTEST
        try:
            while not self._done.acquire(timeout=self._watch.next_look(pause)):
                pause = min(2 * pause, _LONGEST)
                self.weigh()
                if self._watch.over():
                    self._ended()
                    return
        except BaseException:
            # Ctrl-C, in a program that does not drain.
            self.end(_PATIENCE)
            raise

    def weigh(self) -> None:
        """Tells the watch what has come over the network, when no chunk comes of it."""
        if self._watch.to_weigh:
            with self._lock:
                if self._thread is not None:
                    self._watch.carried(received(sockets(frames_of_thread(self._thread))))

    def _ended(self) -> None:
        begun = time.monotonic()
        while not self._done.acquire(timeout=0.05):
            if not self.end(time.monotonic() - begun):
                return

    def end(self, waited: float) -> bool:
        """Ends the call while it waits for the network. False if it is abandoned: it has not ended within its
        grace period, and its daemon thread blocks nothing."""
        if self._watch.mute or waited >= _PATIENCE:
            with self._lock:
                if self._thread is not None:
                    # Nothing has come yet: a package would take a closed connection as a reason to try again.
                    self._strike(raising=not self._watch.heard or waited >= _PATIENCE)
        if waited < _GRACE:
            return True
        self.error = self.error or TimeoutError("the call could not be ended")
        return False

    def _strike(self, *, raising: bool) -> None:
        assert self._thread is not None, "looked at by the caller, under the lock"
        if raising:
            self._struck = True
            _raise_in(self._thread)
        for found in sockets(frames_of_thread(self._thread)):
            if not isinstance(found, socket.socket):
                continue
            # Of the plain class: a secure one would first drop what the other thread is reading with.
            with suppress(OSError):
                socket.socket.shutdown(found, socket.SHUT_RDWR)


def _raise_in(thread: int) -> None:
    """Raises `CallEnded` in another thread, as soon as that runs Python again."""
    # Rarely needed, and slow to import.
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(CallEnded))
