"""A caller's own limit of LangGraph's steps: it raises, the state is kept, and the thread goes on."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableLambda
from langgraph.errors import GraphRecursionError

from signoff import Finished, Session, build_graph, current_outcome, go_on, sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.messages import is_reply
from signoff.models import ScriptedModel, call

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "look")]}
LOOKS = 12


def script(messages: list[BaseMessage]) -> Any:
    turns = sum(map(is_reply, messages))
    return call("look", n=turns) if turns < LOOKS else call("finish_task", summary="Seen.")


@pytest.fixture
def looked() -> list[int]:
    return []


@pytest.fixture
def graph(tmp_path: Path, looked: list[int]) -> Iterator[Graph]:
    def look(n: int) -> str:
        """Look."""
        looked.append(n)
        return str(n)

    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        yield build_graph(ScriptedModel(script), [look], storage=storage)


async def _astream(graph: Graph, config: Any) -> list[Any]:
    return [item async for item in graph.astream(GO, config)]


WAYS: dict[str, Callable[[Graph, Any], Any]] = {
    "invoke": lambda graph, config: graph.invoke(GO, config),
    "ainvoke": lambda graph, config: asyncio.run(graph.ainvoke(GO, config)),
    "stream": lambda graph, config: list(graph.stream(GO, config)),
    "astream": lambda graph, config: asyncio.run(_astream(graph, config)),
    "batch": lambda graph, config: graph.batch([GO], config),
    "abatch": lambda graph, config: asyncio.run(graph.abatch([GO], [config])),
    "bound": lambda graph, config: graph.with_config(config).invoke(GO),
    "in a chain": lambda graph, config: (RunnableLambda(lambda _: GO) | graph).invoke(None, config),
    "Session": lambda graph, config: Session(
        graph, "t", config={"recursion_limit": config["recursion_limit"]}
    ).run("look"),
}


@pytest.mark.parametrize("way", WAYS)
def test_it_raises_and_the_thread_goes_on(graph: Graph, looked: list[int], way: str) -> None:
    with pytest.raises(GraphRecursionError):
        WAYS[way](graph, THREAD | {"recursion_limit": 6})
    state = graph.get_state(THREAD)
    assert (current_outcome(state.values), state.values["messages"][0].text) == (None, "look")
    before = list(looked)
    with pytest.raises(GraphRecursionError):
        graph.invoke(go_on(state), THREAD | {"recursion_limit": 6})
    assert looked[: len(before)] == before
    assert isinstance(Session(graph, "t").run(), Finished)
    assert looked == list(range(LOOKS))


@pytest.mark.parametrize("way", [way for way in WAYS if way != "bound"])
def test_langchain_s_own_default_counts_as_not_given(graph: Graph, looked: list[int], way: str) -> None:
    """`batch` and chains fill it in, so that nobody can tell it from a caller's own."""
    WAYS[way](graph, THREAD | {"recursion_limit": 25})
    assert looked == list(range(LOOKS))


def test_bound_to_the_graph_that_number_counts_as_well(graph: Graph) -> None:
    with pytest.raises(GraphRecursionError):
        graph.with_config(recursion_limit=25).invoke(GO, THREAD)


def test_without_one_there_is_none(graph: Graph, looked: list[int]) -> None:
    graph.invoke(GO, THREAD)
    assert looked == list(range(LOOKS))
