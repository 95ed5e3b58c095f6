"""The compiled graph with a safe durability: LangGraph's own default saves in the background."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import DEFAULT_RECURSION_LIMIT
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Durability

from signoff.graph.state import AgentState, Output


class DurableGraph(CompiledStateGraph[AgentState, Any, Any, Output]):
    """Saves every step before the next one begins (`durability="sync"`), unless told to do less."""

    def stream(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        *,
        durability: Durability | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        return super().stream(input, _without_default(config), durability=self._raised(durability), **kwargs)

    def astream(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        *,
        durability: Durability | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        return super().astream(input, _without_default(config), durability=self._raised(durability), **kwargs)

    def _raised(self, durability: Durability | None) -> Durability | None:
        return durability or ("sync" if self.checkpointer else None)


class JournalledGraph(DurableGraph):
    """Always saves every step before the next one begins: no effect for a reply that is not saved.

    A weaker `durability` would lose the reply in a crash, and with it the way to know that its call has run.
    """

    def _raised(self, durability: Durability | None) -> Durability | None:
        return "sync" if self.checkpointer else durability


def _without_default(config: RunnableConfig | None) -> RunnableConfig | None:
    """`config` without LangChain's default limit of 25 steps, which `batch` and chains fill in.

    LangChain's own merging of configurations takes that number for "not given", too.
    """
    if config is None or config.get("recursion_limit") != DEFAULT_RECURSION_LIMIT:
        return config
    rest = config.copy()
    del rest["recursion_limit"]
    return rest
