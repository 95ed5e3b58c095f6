"""A node of the graph: runs one function, fetches what it asks for, checks the event that it reports.

A node function is a plain function, or a generator that yields requests (store operations, a model call, tool
calls) and gets their results back. So it is written once, and runs in sync and in async graphs alike.
"""

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.store.base import BaseStore, Op

from signoff.graph.machine import TRANSITIONS, Event, State, next_state
from signoff.graph.reducers import append_messages
from signoff.graph.state import AgentState
from signoff.nodes.binding import Keeper
from signoff.nodes.kit import Kit, Run


@dataclass(frozen=True)
class Report:
    """What a node reports: one event, and what it writes to the state.

    Only the last state, whose row of the table is empty, reports no event.
    """

    event: Event | None
    update: dict[str, Any] = field(default_factory=dict)


class Request(Protocol):
    """Something that a node waits for."""

    def do(self, run: Run) -> Any: ...

    async def ado(self, run: Run) -> Any: ...


@dataclass(frozen=True)
class Store:
    """Operations on the store; without a store every result is None."""

    ops: Sequence[Op]

    def do(self, run: Run) -> list[Any]:
        return run.store.batch(self.ops) if run.store and self.ops else [None] * len(self.ops)

    async def ado(self, run: Run) -> list[Any]:
        return await run.store.abatch(self.ops) if run.store and self.ops else [None] * len(self.ops)


@dataclass(frozen=True)
class Swap:
    """Puts `after` if the value is still `before`; says whether it did.

    Atomic where the store has a `swap` of its own (`sqlite_storage`). With any other store two runners of one
    thread at the same moment could both succeed.
    """

    namespace: tuple[str, ...]
    key: str
    before: dict[str, Any] | None
    after: dict[str, Any]

    def do(self, run: Run) -> bool:
        return run.store is None or self.on(run.store)

    def on(self, store: BaseStore) -> bool:
        """Does it on `store`."""
        if swap := getattr(store, "swap", None):
            return bool(swap(self.namespace, self.key, self.before, self.after))
        item = store.get(self.namespace, self.key)
        if (item.value if item else None) != self.before:
            return False
        store.put(self.namespace, self.key, self.after)
        return True

    async def ado(self, run: Run) -> bool:
        return await asyncio.to_thread(self.do, run)


@dataclass(frozen=True)
class Files:
    """Work on files, which an event loop must not wait for."""

    work: Callable[[], object]

    def do(self, run: Run) -> None:
        self.work()

    async def ado(self, run: Run) -> None:
        await asyncio.to_thread(self.work)


_T = TypeVar("_T")
Part = Generator[Any, Any, _T]
"""A part of a node that yields requests and gives a value."""

Steps = Part[Report]
Work = Callable[[AgentState, Run], Report | Steps]


class Node(Runnable[AgentState, dict[str, Any]]):
    """A state of the machine as a LangGraph node.

    LangGraph wraps a plain function so that it switches threads in an async run; this does not.
    """

    def __init__(self, state: State, kit: Kit, work: Work) -> None:
        self.state = state
        self.kit = kit
        self.work = work
        self.name = str(state)

    def invoke(
        self, input: AgentState, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        run = Run(self.kit, config or {})
        steps = self.work(input, run)
        turn = steps if isinstance(steps, Report) else _next(steps.__next__)
        while not isinstance(turn, Report):
            assert not isinstance(steps, Report), "only a generator asks for something"
            try:
                answer = turn.do(run)
            except BaseException as error:  # noqa: BLE001  the node decides what an error means
                turn = _next(partial(steps.throw, error))
            else:
                turn = _next(partial(steps.send, answer))
        run.give_back()
        return self._checked(turn, input)

    async def ainvoke(
        self, input: AgentState, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        run = Run(self.kit, config or {})
        steps = self.work(input, run)
        turn = steps if isinstance(steps, Report) else _next(steps.__next__)
        while not isinstance(turn, Report):
            assert not isinstance(steps, Report), "as above"
            try:
                answer = await turn.ado(run)
            except BaseException as error:  # noqa: BLE001  as above
                turn = _next(partial(steps.throw, error))
            else:
                turn = _next(partial(steps.send, answer))
        run.give_back()
        return self._checked(turn, input)

    def _checked(self, report: Report, state: AgentState) -> dict[str, Any]:
        if report.event is not None or TRANSITIONS[self.state]:
            next_state(self.state, report.event)
        update = {"event": str(report.event or "ended"), **report.update}
        if self.kit.keeper is not None and not update.keys().isdisjoint(("messages", "task")):
            update |= kept(self.kit.keeper, state, update)
        return update


def kept(keeper: Keeper, state: AgentState, update: Mapping[str, Any]) -> dict[str, Any]:
    """What the model keeps in the thread, where this step changes it."""
    before, task = state.get("acting"), update.get("task", state.get("task", ""))
    messages = append_messages(state.get("messages"), [update.get("messages", [])])
    found = keeper.kept(before, messages, task)
    return {} if found == before else {"acting": found}


def _next(go_on: Callable[[], Request]) -> Request | Report:
    """The next request of a node, or its report when it has come to its end."""
    try:
        return go_on()
    except StopIteration as end:
        report: Report = end.value
        return report
