"""A typed result, in every output."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, assert_type

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from pydantic import BaseModel

from signoff import Ended, Graph, Outcome, Session, build_graph, go_on, outcome_of, sqlite_storage
from signoff.models import ScriptedModel, call


class Receipt(BaseModel):
    """A receipt."""

    order: str
    day: date


JSON = {"order": "A1", "day": "2026-01-02"}
RECEIPT = Receipt(order="A1", day=date(2026, 1, 2))
TASK: Any = {"messages": [("user", "Which receipt?")]}
CONFIG: Any = {"configurable": {"thread_id": "a"}}


def model() -> ScriptedModel:
    return ScriptedModel([call("finish_task", summary="Found.", result=JSON)] * 3)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph[Receipt]]:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        yield build_graph(model(), response_format=Receipt, storage=storage)


def test_invoke_returns_an_instance(graph: Graph[Receipt]) -> None:
    result = graph.invoke(TASK, CONFIG)
    assert_type(outcome_of(result), Outcome[Receipt])
    assert (outcome_of(result).result, result["structured_response"]) == (RECEIPT, RECEIPT)
    assert graph.invoke(go_on(), CONFIG)["structured_response"] == RECEIPT


async def test_ainvoke_returns_an_instance() -> None:
    result = await build_graph(model(), response_format=Receipt).ainvoke(TASK)
    assert result["structured_response"] == RECEIPT


def test_a_state_and_a_session(graph: Graph[Receipt]) -> None:
    match Session(graph, "a").run("Which receipt?"):
        case Ended(outcome=outcome):
            assert outcome.result == RECEIPT
    state = graph.get_state(CONFIG)
    assert (outcome_of(state, Receipt).result, outcome_of(state).result) == (RECEIPT, JSON)
    assert "structured_response" not in state.values


def test_every_other_output_has_it_as_json(graph: Graph[Receipt]) -> None:
    assert list(graph.stream(TASK, CONFIG, stream_mode="values"))[-1]["structured_response"] == JSON
    assert graph.invoke(TASK, CONFIG, version="v2").value["structured_response"] == JSON


@pytest.mark.filterwarnings("error")
def test_a_node_of_a_parent_graph_gives_it_as_json() -> None:
    class Parent(MessagesState):
        structured_response: Any

    inner = build_graph(model(), response_format=Receipt)
    outer = StateGraph(Parent).add_node("agent", inner).add_edge(START, "agent").add_edge("agent", END)
    compiled = outer.compile(checkpointer=InMemorySaver())
    assert compiled.invoke(TASK, CONFIG)["structured_response"] == JSON
    assert compiled.get_state(CONFIG).values["structured_response"] == JSON


def test_without_a_response_format_there_is_none() -> None:
    graph = build_graph(ScriptedModel([call("finish_task", summary="Found.")]))
    assert "structured_response" not in graph.invoke(TASK)
