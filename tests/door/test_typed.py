"""A typed result, in every output."""

import asyncio
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, assert_type

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from pydantic import BaseModel

from signoff import Graph, Outcome, Session, build_graph, go_on, outcome_of
from signoff.models import ScriptedModel, call
from tests.support.plays import FINISH, GO, THREAD


class Receipt(BaseModel):
    """A receipt."""

    order: str
    day: date


JSON = {"order": "A1", "day": "2026-01-02"}
RECEIPT = Receipt(order="A1", day=date(2026, 1, 2))


def model() -> ScriptedModel:
    return ScriptedModel([call("finish_task", summary="Found.", result=JSON)] * 3)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph[Receipt]]:
    with build_graph(model(), response_format=Receipt, storage=tmp_path / "t.sqlite") as built:
        yield built


def test_invoke_returns_an_instance(graph: Graph[Receipt]) -> None:
    result = graph.invoke(GO, THREAD)
    assert_type(outcome_of(result), Outcome[Receipt])
    assert (outcome_of(result).result, result["structured_response"]) == (RECEIPT, RECEIPT)
    assert graph.invoke(go_on(), THREAD)["structured_response"] == RECEIPT
    result = asyncio.run(build_graph(model(), response_format=Receipt).ainvoke(GO))
    assert result["structured_response"] == RECEIPT


def test_a_session_has_it_too_and_a_state_where_its_type_is_said(graph: Graph[Receipt]) -> None:
    ended: Any = Session(graph, "t").run("Which receipt?")
    state = graph.get_state(THREAD)
    found = [ended.outcome.result, outcome_of(state, Receipt).result, outcome_of(state).result]
    assert found == [RECEIPT, RECEIPT, JSON]
    assert "structured_response" not in state.values


def test_every_other_output_has_it_as_json(graph: Graph[Receipt]) -> None:
    assert [*graph.stream(GO, THREAD, stream_mode="values")][-1]["structured_response"] == JSON
    assert graph.invoke(GO, THREAD, version="v2").value["structured_response"] == JSON


@pytest.mark.filterwarnings("error")
def test_a_node_of_a_parent_graph_gives_it_as_json() -> None:
    class Parent(MessagesState):
        structured_response: Any

    inner = build_graph(model(), response_format=Receipt)
    outer = StateGraph(Parent).add_node("agent", inner).add_edge(START, "agent").add_edge("agent", END)
    compiled = outer.compile(checkpointer=InMemorySaver())
    assert compiled.invoke(GO, THREAD)["structured_response"] == JSON
    assert compiled.get_state(THREAD).values["structured_response"] == JSON


def test_without_a_response_format_there_is_none() -> None:
    assert "structured_response" not in build_graph(ScriptedModel([FINISH])).invoke(GO)
