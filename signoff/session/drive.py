"""Drives a thread from one decision to the next, in sync and async code.

The driver is one generator. It yields requests, whose results it receives, and events, which go to the
caller. Each request has a sync and an async implementation.
"""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, aclosing, closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

from langchain_core.messages import AIMessageChunk
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.constants import END as END_OF_GRAPH
from langgraph.constants import START
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.store.base import BaseStore

from signoff.graph import clock
from signoff.graph.build import Graph
from signoff.graph.compiled.going_on import stop, turn_limit
from signoff.graph.compiled.graph import in_thread, is_running, storage_errors
from signoff.graph.compiled.holds import holding
from signoff.graph.errors import ThreadError, quote_id
from signoff.graph.history.replies import Call
from signoff.graph.history.task import Task
from signoff.graph.machine import State
from signoff.graph.outcome import typed_outcome
from signoff.nodes.delegates.descent import LISTENS
from signoff.nodes.journal import hand_out, handed_to
from signoff.nodes.node import Dependencies
from signoff.nodes.requests import Operation, Store, Swap, atell, tell
from signoff.nodes.tool_calls.progress import ListeningControl
from signoff.session.commands import (
    OnPending,
    Start,
    ThreadCommand,
    drop_request,
    look_for_request,
    requested,
    start,
)
from signoff.session.decisions import Action, Decision, Ended, Message, Paused
from signoff.session.events import Decided, Resumed, Said, SessionEvent, Stopping
from signoff.session.following import Follower
from signoff.session.nested import Nested, Stood, stood_below
from signoff.session.status import (
    Condition,
    Standing,
    ThreadStatus,
    mark_paused,
    readable,
    shown,
    standing,
    state_of,
)

_T = TypeVar("_T")
Part = Generator[Any, Any, _T]
"""A part of a driver that yields requests, and perhaps events, and returns a value."""

END = object()
"""What `Stretch` returns when the graph has returned."""


@dataclass
class Held:
    """The resources of a driver until it is done, and the scope of its requests."""

    store: BaseStore | None
    stack: Any
    """An ExitStack, or an AsyncExitStack in an event loop."""
    hold: Any = None
    """The hold on the thread, once it has one."""


@dataclass(frozen=True)
class HoldThread:
    """Holds the thread until the driver is done; returns the configuration by which it writes. Raises
    ThreadBusy."""

    graph: Graph
    config: RunnableConfig

    def do(self, held: Held) -> RunnableConfig:
        held.hold = held.stack.enter_context(self.graph.runner(self.config))
        return cast(RunnableConfig, holding(self.config, held.hold))

    async def ado(self, held: Held) -> RunnableConfig:
        held.hold = await held.stack.enter_async_context(in_thread(self.graph.runner(self.config)))
        return cast(RunnableConfig, holding(self.config, held.hold))


@dataclass(frozen=True)
class ByHold:
    """A swap of an entry that only the runner of the thread may write."""

    swap: Swap

    def do(self, held: Held) -> bool:
        with held.hold.here():
            return self.swap.do(held)

    async def ado(self, held: Held) -> bool:
        with held.hold.here():
            return await self.swap.ado(held)


@dataclass
class Stretch:
    """One run of the graph, pulled update by update. listened: the caller wants events. below: also those of
    its delegates; each item is then preceded by its namespace, split into parts."""

    graph: Graph
    given: Any
    config: RunnableConfig
    context: Any
    control: RunControl
    modes: list[str]
    listened: bool
    below: bool = False
    updates: Iterator[Any] | None = None
    aupdates: AsyncIterator[Any] | None = None

    def _options(self, live: bool) -> dict[str, Any]:
        """live: whether a wait can be reported while it lasts; in sync code that requires other threads."""
        modes = [*self.modes, "custom"] if live else self.modes
        return {
            "context": self.context,
            "control": self.control,
            "stream_mode": modes,
            **({"subgraphs": True} if self.below else {}),
        }

    def do(self, held: Held) -> Any:
        """The next (namespace, mode, data), or END; also when the run was drained."""
        if self.updates is None:
            self.updates = self.graph.stream_held(
                self.given, self.config, **self._options("messages" in self.modes)
            )
            # An abandoned driver closes the run, wherever it is.
            held.stack.callback(getattr(self.updates, "close", lambda: None))
        try:
            return self._placed(next(self.updates, END))
        except GraphDrained:
            return END

    async def ado(self, held: Held) -> Any:
        if self.aupdates is None:
            self.aupdates = self.graph.astream_held(self.given, self.config, **self._options(self.listened))
            held.stack.push_async_callback(self.aupdates.aclose)
        try:
            return self._placed(await anext(self.aupdates, END))
        except GraphDrained:
            return END

    def _placed(self, item: Any) -> Any:
        return item if item is END or self.below else ((), *item)


Driver = Generator[Any, Any, None]
"""Yields requests and events, and gets the results of the requests."""


def events_of(thread: "DrivenThread", command: ThreadCommand, wanted: "Wanted") -> Iterator[SessionEvent]:
    """Drives the thread; yields its events, each with number and time, if the caller wants them."""
    numbers = itertools.count(1)
    with (
        ExitStack() as stack,
        storage_errors(),
        closing(tell(drive(thread, command, wanted), Held(thread.graph.store, stack))) as events,
    ):
        for event in events:
            yield numbered(event, next(numbers)) if wanted.events else event


def numbered(event: SessionEvent, number: int) -> SessionEvent:
    return replace(event, seq=number, at=clock.now())


async def aevents_of(
    thread: "DrivenThread", command: ThreadCommand, wanted: "Wanted"
) -> AsyncIterator[SessionEvent]:
    """`events_of`, for an event loop."""
    numbers = itertools.count(1)
    async with AsyncExitStack() as stack:
        with storage_errors():
            async with aclosing(
                atell(drive(thread, command, wanted), Held(thread.graph.store, stack))
            ) as events:
                async for event in events:
                    yield numbered(event, next(numbers)) if wanted.events else event


SIGNAL = "signal"
"""The word of a request that a signal made, not a person."""

# Writes that were not applied when a process was killed need one pass in which nothing else happens.
_IDLE = 2


class PauseRequest:
    """A request from any thread of this process to a run: to pause or to stop."""

    def __init__(self) -> None:
        # A signal handler may call this while the same thread is in here.
        self._lock = threading.RLock()
        self._running = False
        self._word: str | None = None
        self._control = RunControl()

    def begin(self) -> None:
        with self._lock:
            if self._running:
                raise ThreadError("This session is running its thread already; wait for that, or pause it.")
            self._running, self._word = True, None

    def end(self) -> None:
        with self._lock:
            self._running = False

    def ask(self, word: str) -> bool:
        """Asks the run to stop at the next step boundary. Returns False if there is no run."""
        with self._lock:
            if not self._running:
                return False
            self._word = word if self._word != "stop" else self._word
            self._control.request_drain(self._word)
            return True

    def control(self, listening: bool) -> RunControl:
        """The control of the next stretch; if a request was already made, it stops at once."""
        with self._lock:
            self._control = ListeningControl() if listening else RunControl()
            if self._word:
                self._control.request_drain(self._word)
            return self._control

    @property
    def word(self) -> str | None:
        """The request: `pause`, `request`, `signal` or `stop`."""
        return self._word

    def stopped(self) -> bool:
        """Whether a stop was requested; if so, it counts as handled."""
        with self._lock:
            if self._word != "stop":
                return False
            self._word = None
            return True


@dataclass(frozen=True)
class DrivenThread:
    """The thread that a session drives."""

    graph: Graph
    deps: Dependencies
    thread_id: str
    config: RunnableConfig
    context: Any
    on_pending: OnPending
    asked: PauseRequest
    handed: dict[str, float] = field(default_factory=dict)
    """When each action was handed out here, by interrupt id, on the monotonic clock."""
    beside: set[str] = field(default_factory=set)
    """The actions recorded as handed out here that were not yet returned as a decision, by interrupt id."""

    def look(self) -> Part[Standing]:
        """Where the thread stands."""
        return standing(self.graph, self.thread_id, self.config)

    def status(self) -> Part[ThreadStatus]:
        """The thread's status, for anybody."""
        saver = self.graph.checkpointer
        assert isinstance(saver, BaseCheckpointSaver), "a session has one"
        # Asked first: otherwise a run that ends in between would look as if it had been stopped.
        asked = partial(is_running, saver, self.thread_id)
        running = yield Operation(asked, partial(asyncio.to_thread, asked))
        found = yield from self.look()
        return shown(found, self.deps.shape, running=running)

    def settle(self, left: str) -> Operation:
        """Applies the writes that a killed process has saved without a checkpoint, and drops the rest of the
        step `left`; nothing runs.

        LangGraph applies them if the run simply continues. Anything else would drop them, or collide with
        them.
        """
        if left == START:
            return Operation(
                partial(self.graph.settle, self.config), partial(self.graph.asettle, self.config)
            )
        given = (self.config, None, END_OF_GRAPH)
        return Operation(partial(self.graph.update_state, *given), partial(self.graph.aupdate_state, *given))

    def stood_below(self, task: Task) -> Part[Mapping[str, Stood]]:
        """The positions of the delegates that may continue with this task of the thread."""
        return stood_below(self.graph, self.thread_id, self.deps, task)

    @property
    def turns(self) -> int:
        """The turn limit of one task."""
        return turn_limit(self.context, self.deps.limits.turns)


@dataclass(frozen=True)
class Wanted:
    """What the caller of a run wants. by_step: text of the model is a decision. events: yield events. pieces:
    include partial results. below: include events of delegates."""

    by_step: bool = False
    events: bool = False
    pieces: bool = False
    below: bool = False


def drive(thread: DrivenThread, command: ThreadCommand, wanted: Wanted) -> Driver:
    """Runs the thread to its next decision."""
    thread.asked.begin()
    try:
        thread = replace(thread, config=(yield HoldThread(thread.graph, thread.config)))
        status = yield from thread.look()
        begun = start(command, status, thread.on_pending, thread.deps.texts, thread.turns, thread.handed)
        yield Store([drop_request(thread.thread_id)])
        if status.condition is not Condition.UNKNOWN:
            yield Resumed(begun.how, begun.interrupt_id, begun.by, begun.extra_turns)
        decision = None
        if begun.at_rest or (begun.how == "go on" and status.outcome is None):
            decision = yield from _reached(thread, status)
        elif status.left or status.condition.has_work_left:
            yield thread.settle(status.left)
            status = yield from thread.look()
        if decision is None:
            decision = yield from _on(thread, begun, status, wanted)
        yield Decided(decision)
    finally:
        thread.asked.end()


def _on(thread: DrivenThread, begun: Start, status: Standing, wanted: Wanted) -> Part[Any]:
    """Runs the graph until there is a decision, again if it returned too early."""
    given, extra, idle = begun.given, begun.extra_turns, 0
    while True:
        happened, said = yield from _stretch(thread, given, status, extra, wanted)
        status, extra = (yield from thread.look()), 0
        stopped = thread.asked.stopped()
        # A task that was stopped in the last step before a wait does not wait.
        decision = None if stopped and status.waits else (yield from _reached(thread, status))
        if decision is not None:
            return decision
        if said is not None and not stopped:
            return said
        if (word := thread.asked.word) is not None:
            if word != SIGNAL:
                yield mark_paused(status)
            return Paused(word)
        idle = 0 if happened or stopped else idle + 1
        if idle > _IDLE:
            raise ThreadError(f"Thread {quote_id(status.thread_id)} cannot continue; begin another one.")
        given = stop() if stopped else status.go_on


def _stretch(thread: DrivenThread, given: Any, status: Standing, extra: int, wanted: Wanted) -> Part[Any]:
    """Runs the graph until it returns: whether anything happened, and the model's text, if that is the
    decision."""
    task, messages = status.task, status.values.get("messages", ()) if wanted.events else None
    undoing = status.values.get("undo") or {}
    undone = len(undoing.get("done", ())) if status.outcome is None else 0
    follower = Follower(task, thread.deps.toolbox, thread.turns, extra, messages, undone)
    control = thread.asked.control(wanted.pieces)
    modes = ["updates", "messages"] if wanted.pieces else ["updates"]
    config = thread.config
    if thread.deps.toolbox.delegates:
        config = {**config, "configurable": {**config.get("configurable", {}), LISTENS: True}}
    below = wanted.below and bool(thread.deps.toolbox.delegates)
    stretch = Stretch(thread.graph, given, config, thread.context, control, modes, wanted.events, below)
    nested = Nested(thread.deps, (yield from thread.stood_below(task)) if below else {}, extra)
    happened, said = False, None
    while (item := (yield stretch)) is not END:
        ns, mode, data = item
        if ns:
            for event in nested.events(ns, mode, data):
                happened = True
                yield event
            continue
        if mode == "messages":
            if (chunk := _piece(data)) and chunk.text:
                yield follower.token(chunk.text, chunk.id)
            continue
        if mode == "custom":
            yield from follower.wrote(data)
            continue
        for node, written in data.items():
            state = state_of(thread.graph, node)
            for event in follower.update(state, written) if state else ():
                happened = True
                if wanted.by_step and isinstance(event, Said) and event.text:
                    said = Message(event.text, event.turn, _names(event), event.message_id)
                    control.request_drain("step")
                yield event
        yield from _listen(thread)
    # A delegate may have stopped for a request, and one may have come since the last step.
    yield from _listen(thread)
    return happened, said


def _listen(thread: DrivenThread) -> Part[Any]:
    """Reads whether another process requests a pause."""
    found = yield Store([look_for_request(thread.thread_id)])
    if (by := requested(found)) and thread.asked.word is None:
        yield Store([drop_request(thread.thread_id)])
        thread.asked.ask(by)
        yield Stopping(by)


def _names(said: Said) -> tuple[str, ...]:
    return tuple(called.name for called in said.calls)


def _piece(data: Any) -> AIMessageChunk | None:
    chunk, metadata = data
    ours = isinstance(chunk, AIMessageChunk) and metadata.get("langgraph_node") == State.CALL_LLM
    # An item of a delegate is preceded by its namespace.
    ours = ours and "|" not in str(metadata.get("langgraph_checkpoint_ns", ""))
    return chunk if ours else None


def _reached(thread: DrivenThread, status: Standing) -> Part[Any]:
    """The decision at which a thread has arrived: what it waits for, or its end; None if it must continue."""
    if status.outcome is not None:
        return _ended(status, thread.deps)
    first: Decision | None = status.wait()
    for waiting in status.waits:
        if isinstance(waiting, Action):
            handed = yield from _handed_out(thread, status, waiting)
            first = handed if waiting is status.wait() else first
    return first


def _ended(status: Standing, deps: Dependencies) -> Decision:
    with readable(status.thread_id):
        return Ended(typed_outcome(status.values["outcome"], deps.shape))


def was_handed_out(store: BaseStore, status: ThreadStatus, action: Action) -> bool:
    """Whether the action was already handed out, by any process; only reads."""
    made = _call_of(action, status)
    if made is None:
        return False
    (found,) = store.batch([handed_to(status.thread_id, *made, action._machine)])
    return found is not None


def _handed_out(thread: DrivenThread, status: Standing, action: Action) -> Part[Action]:
    """The action, recorded as started in the journal: the next one to receive it cannot know its result.

    All waiting actions are recorded, since a driver may see all of them; the one that it gets as its decision
    is unknown if another driver had it before, or this one already got it as its decision.
    """
    decision, own = action is status.wait(), action.interrupt_id
    if decision:
        thread.handed.setdefault(own, clock.monotonic())
    made = _call_of(action, status)
    if made is None or thread.graph.store is None:
        return action
    first = yield ByHold(hand_out(thread.thread_id, *made, action._machine))
    if not decision:
        thread.beside.update({own} if first else ())
        return action
    seen = own in thread.beside
    thread.beside.discard(own)
    return action if first or seen else replace(action, unknown=True)


def _call_of(action: Action, status: ThreadStatus) -> tuple[str, Call] | None:
    """The reply and the call of an action, as in the journal; None for an action of another graph."""
    if action.path:
        call = Call(0, action._call_id, action.tool, action.args)
        return (action._reply_id, call) if action._machine else None
    task = status.task
    due = next((call for call in task.due if call.id == action._call_id), None)
    return None if due is None else (task.reply_of(due).message.id or "", due)
