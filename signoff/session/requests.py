"""What a driver of a thread waits for, each written for sync and async alike; and how they are carried out.

The driver itself is one generator. It yields requests, and gets their results back, and events, which go to
the caller.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.constants import END as END_OF_GRAPH
from langgraph.constants import START
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.store.base import BaseStore, Op

from signoff.graph.build import Graph
from signoff.graph.compiled.graph import in_thread
from signoff.graph.compiled.runner import storage_errors
from signoff.session.events import Event
from signoff.session.standing import Standing, readable, standing_of

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
class Work:
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

    @property
    def _options(self) -> dict[str, Any]:
        return {"context": self.context, "control": self.control, "stream_mode": self.modes}

    def do(self, stack: ExitStack) -> Any:
        """The next (mode, data), or END; also when the run was drained."""
        if self.updates is None:
            self.updates = self.graph.stream_held(self.given, self.config, **self._options)
            # A driver that is left alone closes the run, whatever it stands in.
            stack.callback(getattr(self.updates, "close", lambda: None))
        try:
            return next(self.updates, END)
        except GraphDrained:
            return END

    async def ado(self, stack: AsyncExitStack) -> Any:
        if self.aupdates is None:
            self.aupdates = self.graph.astream_held(self.given, self.config, **self._options)
            stack.push_async_callback(self.aupdates.aclose)
        try:
            return await anext(self.aupdates, END)
        except GraphDrained:
            return END


Request = Hold | Look | Write | Settle | Ops | Work | Stretch
Driver = Generator[Any, Any, None]
"""Yields requests and events, and gets the results of the requests."""


def carry_out(driver: Driver) -> Iterator[Event]:
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


async def acarry_out(driver: Driver) -> AsyncIterator[Event]:
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
