"""The arguments of `build_graph`: the kinds of tools, the control tools that a graph completes, the storage
that it opens; what a copy of a graph is, and what a graph says of itself."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from pydantic import BaseModel

from signoff import (
    Session,
    SetupError,
    StorageError,
    Texts,
    build_graph,
    go_on,
    outcome_of,
    sqlite_storage,
    standard_controls,
)
from signoff.guards import Guards
from signoff.models import ScriptedModel, call

GO: Any = {"messages": [("user", "go")]}
THREAD: Any = {"configurable": {"thread_id": "t"}}
FINISH = call("finish_task", summary="Done.")


def look() -> str:
    """Look."""
    return "seen"


# The control tools.

TEXTS = Texts(finish_task="Fertig.", ask_user="Frage.", think="Denke.")


def shown(policy: Any, saved: dict[str, Any], **options: Any) -> Any:
    """The tools and the system prompt that the model has."""
    with ScriptedModel([call("finish_task", summary="Done.", answer="All.", result={"a": 1})]) as model:
        build_graph(model, [look], policy=policy, **saved, **options).invoke(GO, THREAD)
        return model.seen[0].tools, model.seen[0].messages[0].text


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "not stored"])
def test_the_standard_controls_are_those_of_a_graph_without_them(stored: bool) -> None:
    saved: dict[str, Any] = {"checkpointer": InMemorySaver(), "store": InMemoryStore()} if stored else {}
    tools, prompt = shown({"texts": TEXTS}, saved, response_format={"type": "object"})
    given = {"response_format": {"type": "object"}, "control_tools": standard_controls()}
    assert shown({"texts": TEXTS}, saved, **given) == (tools, prompt)
    assert [offered["function"]["name"] for offered in tools] == ["look", "finish_task", "ask_user", "think"]
    assert ("deadline_seconds" in str(tools)) == stored
    assert "Fertig." in str(tools)


class Trip(BaseModel):
    place: str


@pytest.mark.parametrize(
    "strategy", [lambda kind: kind, ToolStrategy, ProviderStrategy, AutoStrategy], ids=lambda it: it.__name__
)
def test_a_strategy_of_langchain_is_taken_as_its_type(strategy: Any) -> None:
    script = [call("finish_task", summary="Done.", result={"place": "Rome"})]
    result = build_graph(ScriptedModel(script), response_format=strategy(Trip)).invoke(GO)
    assert outcome_of(result).result == Trip(place="Rome")
    guards = Guards(response_format=strategy(Trip))
    agent: Any = create_agent(ScriptedModel(script), middleware=[guards])
    assert outcome_of(agent.invoke(GO), Trip).result == Trip(place="Rome")


# The storage that a graph opens.


def test_a_path_is_opened_and_closed_with_the_graph(tmp_path: Path) -> None:
    file = tmp_path / "sub" / "threads.sqlite"
    with build_graph(ScriptedModel([FINISH]), storage=file) as graph:
        assert outcome_of(graph.invoke(GO, THREAD)).status == "success"
    with pytest.raises(StorageError):
        graph.invoke(GO, THREAD)
    graph.close()
    with sqlite_storage(file) as storage:
        again = build_graph(ScriptedModel([]), storage=storage)
        assert outcome_of(again.get_state(THREAD)).status == "success"


def test_a_given_storage_stays_open(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        with build_graph(ScriptedModel([FINISH, FINISH]), storage=storage) as graph:
            graph.invoke(GO, THREAD)
        assert outcome_of(graph.invoke(GO, THREAD)).status == "success"


COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "with_config": lambda graph: graph.with_config(tags=["mine"]),
}


@pytest.mark.parametrize("way", COPIES)
def test_a_copied_graph_is_the_same_graph(way: str, tmp_path: Path) -> None:
    script = ScriptedModel([call("ask_user", question="Which?"), FINISH])
    with build_graph(script, [look], storage=tmp_path / "t.sqlite") as graph:
        copied = COPIES[way](graph)
        (wait,) = copied.invoke(GO, THREAD)["__interrupt__"]
        assert [found.id for found in graph.get_state(THREAD).interrupts] == [wait.id]
        assert outcome_of(graph.invoke(Command(resume={wait.id: "blue"}), THREAD)).status == "success"
        assert outcome_of(copied.invoke(go_on(), THREAD)).status == "success"
        copied.close()
        for closed in (copied, graph):
            with pytest.raises(StorageError):
                closed.invoke(GO, THREAD)


def test_a_graph_is_not_pickled() -> None:
    graph = build_graph(ScriptedModel([FINISH]), checkpointer=InMemorySaver())
    for held in (graph, Session(graph, "a")):
        with pytest.raises(SetupError):
            pickle.dumps(held)
