"""A result is an instance of its `response_format`, also for a type checker; on disk it is JSON."""

import copy
import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, assert_type

import pytest
from langchain.agents import create_agent
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from signoff import (
    Failed,
    Finished,
    Graph,
    Outcome,
    RunResult,
    Session,
    SetupError,
    ThreadError,
    build_graph,
    outcome_of,
    sqlite_storage,
)
from signoff.guards import Guards, guarded
from signoff.models import ScriptedModel, call
from signoff.storage.sqlite import SqliteStorage

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "do it")]}


class Trip(BaseModel):
    """A journey."""

    to: str
    day: date
    class_: int = Field(2, alias="class")


@dataclass
class Place:
    """A town."""

    name: str
    days: set[int]


class Sum(TypedDict):
    """A number."""

    total: int


GIVEN = {"to": "Graz", "day": "2026-11-23", "class": 1}
FINISH = call("finish_task", summary="Booked.", result=GIVEN)
TRIP = Trip.model_validate(GIVEN)


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def test_what_a_type_checker_knows(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel([FINISH, FINISH]), response_format=Trip, storage=storage)
    assert_type(graph, Graph[Trip])
    result = graph.invoke(GO, THREAD)
    assert_type(result, RunResult[Trip])
    outcome = outcome_of(result)
    assert_type(outcome, Outcome[Trip])
    assert_type(outcome.result, Trip | None)
    session = Session(graph, "u")
    assert_type(session, Session[Trip])
    match session.run("do it"):
        case Finished(outcome=ended):
            assert_type(ended, Outcome[Trip])
            assert ended.result == outcome.result == TRIP
        case other:
            raise AssertionError(other)
    values = graph.get_state(THREAD).values
    assert_type(outcome_of(values, Trip).result, Trip | None)
    plain = build_graph(ScriptedModel([]))
    assert_type(plain, Graph[Any])
    assert_type(Failed("no", Outcome(status="error", reason="no")).outcome, Outcome[Any])


SHAPES: dict[str, tuple[Any, Any, Any, Any]] = {
    "a model": (Trip, GIVEN, TRIP, {"to": "Graz", "day": "2026-11-23", "class_": 1}),
    "a dataclass": (
        Place,
        {"name": "Graz", "days": [1, 1]},
        Place("Graz", {1}),
        {"name": "Graz", "days": [1]},
    ),
    "a TypedDict": (Sum, {"total": 3}, {"total": 3}, {"total": 3}),
    "a JSON schema": ({"type": "object"}, {"a": 1}, {"a": 1}, {"a": 1}),
    "text around the object": (Sum, '{"total": 3}', {"total": 3}, {"total": 3}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_instance_and_what_is_stored(shape: str, storage: SqliteStorage) -> None:
    response_format, given, instance, stored = SHAPES[shape]
    finish = call("finish_task", summary="Done.", result=given)
    graph = build_graph(ScriptedModel([finish]), response_format=response_format, storage=storage)
    result = graph.invoke(GO, THREAD)
    assert outcome_of(result).result == instance
    assert result["outcome"]["result"] == stored
    values = graph.get_state(THREAD).values
    assert (type(result["outcome"]), json.loads(json.dumps(values["outcome"]))) == (dict, values["outcome"])
    assert outcome_of(values).result == stored, "nothing says there of what type it is"
    # What is made of the instance again is what was stored.
    assert outcome_of(result).model_dump() == values["outcome"]


async def test_in_an_event_loop_and_of_a_snapshot(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel([FINISH]), response_format=Trip, storage=storage)
    result = await graph.ainvoke(GO, THREAD)
    assert_type(result, RunResult[Trip])
    assert outcome_of(result).result == outcome_of(graph.get_state(THREAD), Trip).result == TRIP


def test_without_a_result_there_is_none() -> None:
    blocked = call("finish_task", summary="No trains.", outcome="blocked")
    outcome = outcome_of(build_graph(ScriptedModel([blocked]), response_format=Trip).invoke(GO))
    assert (outcome.claim, outcome.result) == ("blocked", None)


def test_what_has_not_ended_and_what_is_no_result_is_told(storage: SqliteStorage) -> None:
    asks = call("ask_user", question="Where to?")
    graph = build_graph(ScriptedModel([asks]), response_format=Trip, storage=storage)
    result = graph.invoke(GO, THREAD)
    assert result["__interrupt__"][0].value["question"] == "Where to?"
    with pytest.raises(ThreadError, match="has not ended: it waits"):
        outcome_of(result)
    with pytest.raises(SetupError, match=r"takes what graph\.invoke returned"):
        outcome_of({"messages": []})


def test_a_result_of_an_older_shape_is_told() -> None:
    values = build_graph(ScriptedModel([FINISH]), response_format=Trip).invoke(GO)
    with pytest.raises(SetupError, match="does not fit response_format"):
        outcome_of(dict(values), Place)


def test_a_copy_is_a_dict_like_any_other() -> None:
    result = build_graph(ScriptedModel([FINISH]), response_format=Trip).invoke(GO)
    assert isinstance(result, dict)
    assert type(pickle.loads(pickle.dumps(result))) is type(copy.deepcopy(result)) is dict


@pytest.mark.parametrize("shape", SHAPES)
async def test_of_an_agent_with_guards(shape: str) -> None:
    response_format, given, instance, stored = SHAPES[shape]
    finish = call("finish_task", summary="Done.", result=given)

    def agent() -> Any:
        around = [Guards(response_format=response_format)]
        return create_agent(ScriptedModel([finish]), middleware=around)

    plain, held = agent().invoke(GO), guarded(agent())
    assert outcome_of(plain).result == stored, "nothing says there of what type it is"
    if isinstance(response_format, type):
        assert outcome_of(plain, response_format).result == instance
    assert outcome_of(held.invoke(GO)).result == instance
    assert outcome_of(await guarded(agent()).ainvoke(GO)).result == instance
