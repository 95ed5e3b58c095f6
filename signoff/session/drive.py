"""How a thread is driven from one decision to the next, for sync and async code alike.

The driver is one generator. It yields requests, and gets their results back, and events, which go to the
caller. Each request knows how it is carried out in either sort of code.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessageChunk
from langchain_core.runnables import RunnableConfig
from langgraph.constants import END as END_OF_GRAPH
from langgraph.constants import START
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.store.base import BaseStore, Op

from signoff.graph.build import Graph
from signoff.graph.compiled.graph import in_thread, storage_errors
from signoff.graph.errors import ThreadError
from signoff.graph.machine import Event, State
from signoff.graph.outcome import Outcome
from signoff.nodes.journal import hand_out
from signoff.nodes.model.trying import RETRYING
from signoff.nodes.node import Dependencies
from signoff.session.decisions import Action, Decision, Failed, Finished, Message, Paused
from signoff.session.events import (
    Decided,
    Follower,
    Resumed,
    Retrying,
    Said,
    SessionEvent,
    Stopping,
    Token,
)
from signoff.session.moves import Move, OnPending, Start, drop_request, look_for_request, requested, start
from signoff.session.standing import Condition, Standing, readable, standing_of, state_of

END = object()
"""What `Pull` gives when the graph has come back."""


@dataclass(frozen=True)
class Hold:
    """Holds the thread until the driver is done. Raises ThreadBusy."""

    graph: Graph
    config: RunnableConfig

    def do(self, stack: ExitStack) -> None:
        stack.enter_context(self.graph.runner(self.config))

    async def ado(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(in_thread(self.graph.runner(self.config)))


@dataclass(frozen=True)
class Look:
    """Where the thread stands."""

    graph: Graph
    config: RunnableConfig
    thread_id: str

    def do(self, stack: ExitStack | None = None) -> Standing:
        with readable(self.thread_id):
            return standing_of(self.graph, self.thread_id, self.graph.get_state(self.config))

    async def ado(self, stack: AsyncExitStack | None = None) -> Standing:
        with readable(self.thread_id):
            return standing_of(self.graph, self.thread_id, await self.graph.aget_state(self.config))


@dataclass(frozen=True)
class Write:
    """Writes to the state of the thread, in the name of one of its nodes; what was pending is dropped."""

    graph: Graph
    config: RunnableConfig
    values: dict[str, Any]
    as_node: str

    def do(self, stack: ExitStack) -> None:
        self.graph.update_state(self.config, self.values, self.as_node)

    async def ado(self, stack: AsyncExitStack) -> None:
        await self.graph.aupdate_state(self.config, self.values, self.as_node)


@dataclass(frozen=True)
class Settle:
    """Applies what a killed process has saved without a checkpoint of it, and drops the rest of the step
    `left`; nothing runs.

    LangGraph applies it when the run just goes on. Anything else would drop it, or collide with it.
    """

    graph: Graph
    config: RunnableConfig
    left: str

    def do(self, stack: ExitStack) -> None:
        if self.left == START:
            self.graph.settle(self.config)
        else:
            self.graph.update_state(self.config, None, END_OF_GRAPH)

    async def ado(self, stack: AsyncExitStack) -> None:
        if self.left == START:
            await self.graph.asettle(self.config)
        else:
            await self.graph.aupdate_state(self.config, None, END_OF_GRAPH)


@dataclass(frozen=True)
class Ops:
    """Operations on a store; nothing without one."""

    store: BaseStore | None
    ops: Sequence[Op]

    def do(self, stack: ExitStack) -> list[Any]:
        return self.store.batch(self.ops) if self.store else [None] * len(self.ops)

    async def ado(self, stack: AsyncExitStack) -> list[Any]:
        return await self.store.abatch(self.ops) if self.store else [None] * len(self.ops)


@dataclass(frozen=True)
class BlockingWork:
    """Anything else that may wait for the disk or the network."""

    work: Callable[[], Any]

    def do(self, stack: ExitStack) -> Any:
        return self.work()

    async def ado(self, stack: AsyncExitStack) -> Any:
        return await asyncio.to_thread(self.work)


@dataclass
class Stretch:
    """One run of the graph, pulled update by update."""

    graph: Graph
    given: Any
    config: RunnableConfig
    context: Any
    control: RunControl
    modes: list[str]
    updates: Iterator[Any] | None = None
    aupdates: AsyncIterator[Any] | None = None

    def _options(self, live: bool) -> dict[str, Any]:
        """live: whether it can be told of a wait while it lasts; in sync code that takes other threads."""
        modes = [*self.modes, "custom"] if live else self.modes
        return {"context": self.context, "control": self.control, "stream_mode": modes}

    def do(self, stack: ExitStack) -> Any:
        """The next (mode, data), or END; also when the run was drained."""
        if self.updates is None:
            self.updates = self.graph.stream_held(
                self.given, self.config, **self._options("messages" in self.modes)
            )
            # A driver that is left alone closes the run, whatever it stands in.
            stack.callback(getattr(self.updates, "close", lambda: None))
        try:
            return next(self.updates, END)
        except GraphDrained:
            return END

    async def ado(self, stack: AsyncExitStack) -> Any:
        if self.aupdates is None:
            self.aupdates = self.graph.astream_held(self.given, self.config, **self._options(True))
            stack.push_async_callback(self.aupdates.aclose)
        try:
            return await anext(self.aupdates, END)
        except GraphDrained:
            return END


Request = Hold | Look | Write | Settle | Ops | BlockingWork | Stretch
Driver = Generator[Any, Any, None]
"""Yields requests and events, and gets the results of the requests."""


def carry_out(driver: Driver) -> Iterator[SessionEvent]:
    """Runs a driver; gives its events."""
    with ExitStack() as stack, storage_errors():
        go_on: Callable[[], Any] = driver.__next__
        while (item := next_of(go_on)) is not END:
            if not isinstance(item, Request):
                yield item
                go_on = driver.__next__
                continue
            try:
                found = item.do(stack)
            except BaseException as error:  # noqa: BLE001  the driver decides what an error means
                go_on = _throwing(driver, error)
            else:
                go_on = _sending(driver, found)


async def acarry_out(driver: Driver) -> AsyncIterator[SessionEvent]:
    """`carry_out` for an event loop."""
    async with AsyncExitStack() as stack:
        with storage_errors():
            go_on: Callable[[], Any] = driver.__next__
            while (item := next_of(go_on)) is not END:
                if not isinstance(item, Request):
                    yield item
                    go_on = driver.__next__
                    continue
                try:
                    found = await item.ado(stack)
                except BaseException as error:  # noqa: BLE001  as above
                    go_on = _throwing(driver, error)
                else:
                    go_on = _sending(driver, found)


def next_of(go_on: Callable[[], Any]) -> Any:
    """The next item of a driver, or END."""
    try:
        return go_on()
    except StopIteration:
        return END


def _throwing(driver: Driver, error: BaseException) -> Callable[[], Any]:
    return lambda: driver.throw(error)


def _sending(driver: Driver, found: Any) -> Callable[[], Any]:
    return lambda: driver.send(found)


# What was written but not yet applied when a process was killed takes one pass in which nothing happens.
_IDLE = 2


class PauseRequest:
    """What was asked of a run from outside, by any thread of this process: to pause, or to stop."""

    def __init__(self) -> None:
        # A signal's handler may ask while the same thread is in here.
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
        """Asks the run to come to a stop at the next step boundary. False when there is no run."""
        with self._lock:
            if not self._running:
                return False
            self._word = word if self._word != "stop" else self._word
            self._control.request_drain(self._word)
            return True

    def control(self) -> RunControl:
        """The control of the next stretch; it stops at once when that was asked for already."""
        with self._lock:
            self._control = RunControl()
            if self._word:
                self._control.request_drain(self._word)
            return self._control

    @property
    def word(self) -> str | None:
        """What was asked: `pause`, `request`, `signal` or `stop`."""
        return self._word

    def stopped(self) -> bool:
        """Whether a stop was asked for; it is then seen to."""
        with self._lock:
            if self._word != "stop":
                return False
            self._word = None
            return True


@dataclass(frozen=True)
class DrivenThread:
    """What a session drives."""

    graph: Graph
    kit: Dependencies
    thread_id: str
    config: RunnableConfig
    context: Any
    on_pending: OnPending
    asked: PauseRequest
    handed: dict[str, float] = field(default_factory=dict)
    """When each action was handed out here, by the id of its interrupt; by the monotonic clock."""

    def look(self) -> Look:
        return Look(self.graph, self.config, self.thread_id)

    @property
    def turns(self) -> int:
        """The limit of one task."""
        given = self.context or {}
        own = given.get("turns") if isinstance(given, dict) else getattr(given, "turns", None)
        return own if isinstance(own, int) else self.kit.limits.turns


def drive(thread: DrivenThread, move: Move, by_step: bool, tokens: bool) -> Driver:
    """Runs the thread to its next decision; with `by_step` what the model says is one."""
    thread.asked.begin()
    try:
        yield Hold(thread.graph, thread.config)
        standing: Standing = yield thread.look()
        begun = start(move, standing, thread.on_pending, thread.kit.texts, thread.handed)
        yield Ops(thread.graph.store, [drop_request(thread.thread_id)])
        if standing.condition is not Condition.UNKNOWN:
            yield Resumed(begun.how)
        decision = None
        if begun.how == "go on":
            decision = yield from _reached(thread, standing)
        elif standing.left or standing.condition is Condition.STOPPED:
            yield Settle(thread.graph, thread.config, standing.left)
            standing = yield thread.look()
        if decision is None:
            decision = yield from _on(thread, begun, standing, by_step, tokens)
        yield Decided(decision)
    finally:
        thread.asked.end()


Part = Generator[Any, Any, Any]


def _on(thread: DrivenThread, begun: Start, standing: Standing, by_step: bool, tokens: bool) -> Part:
    """Runs the graph, again where it came back too early, until there is a decision."""
    given, extra, idle, stop = begun.given, begun.extra_turns, 0, begun.stop
    while True:
        if stop:
            yield _cancel(thread, standing)
            standing = yield thread.look()
            given = standing.go_on
        happened, said = yield from _stretch(thread, given, standing, extra, by_step, tokens)
        standing, extra = (yield thread.look()), 0
        decision = yield from _reached(thread, standing)
        if decision is not None:
            return decision
        stop = thread.asked.stopped()
        if said is not None:
            return said
        if thread.asked.word is not None:
            return Paused(thread.asked.word)
        idle = 0 if happened or stop else idle + 1
        if idle > _IDLE:
            raise ThreadError(f"Thread {standing.shown!r} does not go on; begin another one.")
        given = standing.go_on


def _cancel(thread: DrivenThread, standing: Standing) -> Write:
    # In the name of `nudge`, whose only way leads to `compress`: what was pending is dropped, and the rules
    # find the stop.
    values = {"stop": standing.task.id, "event": str(Event.NUDGED)}
    return Write(thread.graph, thread.config, values, str(State.NUDGE))


def _stretch(
    thread: DrivenThread, given: Any, standing: Standing, extra: int, by_step: bool, tokens: bool
) -> Part:
    """Runs the graph until it comes back: whether anything happened, and what was said, if that ends it."""
    follower = Follower(standing.task, thread.kit.toolbox, thread.turns, standing.task.extra_turns + extra)
    control = thread.asked.control()
    modes = ["updates", "messages"] if tokens else ["updates"]
    stretch = Stretch(thread.graph, given, thread.config, thread.context, control, modes)
    happened, said = False, None
    while (item := (yield stretch)) is not END:
        mode, data = item
        if mode == "messages":
            if text := _token(data):
                yield Token(text)
            continue
        if mode == "custom":
            if told := _retrying(data):
                yield told
            continue
        for node, written in data.items():
            state = state_of(thread.graph, node)
            for event in follower.update(state, written or {}) if state else ():
                happened = True
                if by_step and isinstance(event, Said) and event.text:
                    said = Message(event.text, event.turn, event.calls)
                    control.request_drain("step")
                yield event
        yield from _listen(thread)
    return happened, said


def _listen(thread: DrivenThread) -> Part:
    """Reads whether another process asks for a pause."""
    found = yield Ops(thread.graph.store, [look_for_request(thread.thread_id)])
    if requested(found) and thread.asked.word is None:
        yield Ops(thread.graph.store, [drop_request(thread.thread_id)])
        thread.asked.ask("request")
        yield Stopping("request")


def _token(data: Any) -> str:
    chunk, metadata = data
    ours = isinstance(chunk, AIMessageChunk) and metadata.get("langgraph_node") == State.CALL_LLM
    return chunk.text if ours else ""


def _retrying(data: Any) -> Retrying | None:
    """What a node tells of its wait; None for what tools write to the stream."""
    if not isinstance(data, dict) or data.get("type") != RETRYING:
        return None
    return Retrying(**{key: value for key, value in data.items() if key != "type"})


def _reached(thread: DrivenThread, standing: Standing) -> Part:
    """The decision that a thread stands at: what it waits for, or its end; None when it is to go on."""
    if standing.outcome is not None:
        return _ended(standing)
    if isinstance(standing.waiting, Action):
        return (yield from _handed_out(thread, standing, standing.waiting))
    return standing.waiting


def _ended(standing: Standing) -> Decision:
    with readable(standing.thread_id):
        outcome = Outcome.model_validate(standing.outcome)
    if outcome.status == "error":
        return Failed(outcome.error or outcome.reason, outcome)
    return Finished(outcome)


def _handed_out(thread: DrivenThread, standing: Standing, action: Action) -> Part:
    """The action, noted as started in the journal: who gets it next cannot know what came of it."""
    task, store = standing.task, thread.graph.store
    thread.handed.setdefault(action.interrupt_id, time.monotonic())
    call = next((call for call in task.due if call.id == action.call_id), None)
    if call is None or store is None:
        return action
    swap = hand_out(thread.thread_id, task.reply_of(call).message.id or "", call)
    first = yield BlockingWork(lambda: swap.on(store))
    return action if first else Action(**{**vars(action), "unknown": True})
