"""The compiled graph with a safe durability, and one runner a thread."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import DEFAULT_RECURSION_LIMIT
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Durability

from signoff.graph.runner import runner, thread_to_hold
from signoff.graph.state import AgentState, Output


class DurableGraph(CompiledStateGraph[AgentState, Any, Any, Output]):
    """Saves every step before the next one begins (`durability="sync"`), unless told to do less.

    Holds the thread while it runs it (LangGraph's own default saves in the background and lets several runs
    of one thread overwrite each other): a second run at the same time raises ThreadBusy.
    """

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:
        with self.runner(config):
            yield from self.stream_held(input, config, **kwargs)

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        async with in_thread(self.runner(config)):
            async for item in self.astream_held(input, config, **kwargs):
                yield item

    def stream_held(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        *,
        durability: Durability | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """`stream`, for a caller that holds the thread already."""
        return super().stream(input, _without_default(config), durability=self._raised(durability), **kwargs)

    def astream_held(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        *,
        durability: Durability | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        """`astream`, for a caller that holds the thread already."""
        return super().astream(input, _without_default(config), durability=self._raised(durability), **kwargs)

    def runner(self, config: RunnableConfig | None) -> AbstractContextManager[None]:
        """Holds the thread that `config` names. Raises ThreadBusy when another runner holds it."""
        thread_id = thread_to_hold(self.checkpointer, self.config, config)
        if thread_id is None or not isinstance(self.checkpointer, BaseCheckpointSaver):
            return nullcontext()
        return runner(self.checkpointer, thread_id)

    def _raised(self, durability: Durability | None) -> Durability | None:
        return durability or ("sync" if self.checkpointer else None)


class JournalledGraph(DurableGraph):
    """Always saves every step before the next one begins: no effect for a reply that is not saved.

    A weaker `durability` would lose the reply in a crash, and with it the way to know that its call has run.
    """

    def _raised(self, durability: Durability | None) -> Durability | None:
        return "sync" if self.checkpointer else durability


@asynccontextmanager
async def in_thread(context: AbstractContextManager[None]) -> AsyncIterator[None]:
    """A context that may wait for the disk or the network, for an event loop."""
    if isinstance(context, nullcontext):
        yield
        return
    entering = asyncio.ensure_future(asyncio.to_thread(context.__enter__))
    try:
        await asyncio.shield(entering)
    except asyncio.CancelledError:
        # The thread of a pool cannot be cancelled: what it takes is given back.
        await asyncio.wait([entering])
        if entering.exception() is None:
            context.__exit__(None, None, None)
        raise
    try:
        yield
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)


def _without_default(config: RunnableConfig | None) -> RunnableConfig | None:
    """`config` without LangChain's default limit of 25 steps, which `batch` and chains fill in.

    LangChain's own merging of configurations takes that number for "not given", too.
    """
    if config is None or config.get("recursion_limit") != DEFAULT_RECURSION_LIMIT:
        return config
    rest = config.copy()
    del rest["recursion_limit"]
    return rest
