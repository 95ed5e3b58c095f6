"""The compiled graph with a safe durability: LangGraph's own default saves in the background."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Durability

from signoff.graph.state import AgentState, Output


class DurableGraph(CompiledStateGraph[AgentState, Any, Any, Output]):
    """Saves every step before the next one begins (`durability="sync"`), unless told to do less."""

    def stream(self, *args: Any, durability: Durability | None = None, **kwargs: Any) -> Iterator[Any]:
        return super().stream(*args, durability=self._raised(durability), **kwargs)

    def astream(self, *args: Any, durability: Durability | None = None, **kwargs: Any) -> AsyncIterator[Any]:
        return super().astream(*args, durability=self._raised(durability), **kwargs)

    def _raised(self, durability: Durability | None) -> Durability | None:
        return durability or ("sync" if self.checkpointer else None)


class JournalledGraph(DurableGraph):
    """Always saves every step before the next one begins: no effect for a reply that is not saved.

    A weaker `durability` would lose the reply in a crash, and with it the way to know that its call has run.
    """

    def _raised(self, durability: Durability | None) -> Durability | None:
        return "sync" if self.checkpointer else durability
