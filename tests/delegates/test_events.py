"""The events of a session with delegates: what happens below, as it happens, with the way to it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.tools import tool
from langgraph.config import get_stream_writer

from signoff import Action, Answer, Question, Session, build_graph, delegate, sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.messages import is_reply
from signoff.models import ScriptedModel, call, reply
from signoff.session.decisions import Finished
from signoff.session.events import (
    Answered,
    CallFinished,
    CallProgress,
    CallStarted,
    Decided,
    Ended,
    Said,
    SessionEvent,
    Token,
    from_dict,
)
from signoff.storage.sqlite import SqliteStorage

DONE = reply("I am done.", call("finish_task", summary="Done."))
ASK = call("ask_user", question="Which one?")


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def by_turn(*steps: Any) -> ScriptedModel:
    def script(messages: list[BaseMessage]) -> Any:
        return steps[sum(map(is_reply, messages))]

    return ScriptedModel(script)


@tool
def pay(to: str) -> str:
    """Pay."""
    get_stream_writer()(f"paying {to}")
    return f"paid {to}"


def team(storage: SqliteStorage) -> Graph:
    """Two delegates beside each other; one of them has one, too, which asks."""
    deep = build_graph(by_turn(call("pay", to="deep"), ASK, DONE), [pay])
    left = build_graph(
        by_turn(call("deep", task="Go."), DONE), [delegate("deep", deep, description="Works.")]
    )
    right = build_graph(by_turn(call("pay", to="right"), DONE), [pay])
    made = [delegate(name, graph, description="Works.") for name, graph in (("left", left), ("right", right))]
    calls = [call("left", task="Go."), call("right", task="Go.")]
    return build_graph(by_turn(calls, DONE), made, storage=storage)


def events(session: Session, command: Any, way: str, **options: Any) -> list[SessionEvent]:
    async def collected() -> list[SessionEvent]:
        return [event async for event in session.aevents(command, **options)]

    return list(session.events(command, **options)) if way == "sync" else asyncio.run(collected())


def of(found: list[SessionEvent], path: tuple[str, ...], *kinds: type) -> list[Any]:
    return [event for event in found if event.path == path and isinstance(event, kinds)]


@pytest.mark.parametrize("way", ["sync", "async"])
def test_what_happens_below_is_told_with_its_path(way: str, storage: SqliteStorage) -> None:
    session = Session(team(storage), "t")
    found = events(session, "go", way)
    assert [one.name for one in of(found, (), CallStarted)] == ["left", "right"]
    assert [one.name for one in of(found, ("left",), CallStarted)] == ["deep"]
    for path in (("left", "deep"), ("right",)):
        (begun,), (ended,) = of(found, path, CallStarted), of(found, path, CallFinished)
        (wrote,) = of(found, path, CallProgress)
        assert (begun.name, ended.result, wrote.data) == ("pay", f"paid {path[-1]}", f"paying {path[-1]}")
        assert begun.call_id == ended.call_id == wrote.call_id
        assert [one.turn for one in of(found, path, Said)] == [1, 2]
    assert len(of(found, ("right",), Ended)) == 1
    assert of(found, ("left", "deep"), Ended) == []
    decided = found[-1]
    assert isinstance(decided, Decided)
    assert isinstance(decided.decision, Question)
    assert decided.decision.path == ("left", "deep")
    # Its answer is told by the machine that asked; what it does then has the number of its turn.
    found = events(session, Answer("this"), way)
    (answered,) = of(found, ("left", "deep"), Answered)
    assert (answered.question, answered.answer) == ("Which one?", "this")
    assert [one.turn for one in of(found, ("left", "deep"), Said)] == [3]
    assert of(found, ("right",), Said, CallStarted, Ended) == []
    assert [one.ok for one in of(found, (), CallFinished)] == [True, True]
    assert isinstance(found[-1], Decided)
    assert isinstance(found[-1].decision, Finished)
    assert [one.seq for one in found] == list(range(1, len(found) + 1))
    assert [from_dict(one.to_dict()) for one in found] == found


@pytest.mark.parametrize("way", ["sync", "async"])
def test_pieces_of_a_delegates_reply_are_its_own(way: str, storage: SqliteStorage) -> None:
    below = build_graph(by_turn(DONE))
    made = delegate("below", below, description="Works.")
    graph = build_graph(by_turn(call("below", task="Go."), DONE), [made], storage=storage)
    found = events(Session(graph, "t"), "go", way)
    for path in ((), ("below",)):
        text = "".join(one.text for one in of(found, path, Token))
        assert text == "I am done."
        ids = {one.message_id for one in of(found, path, Token)}
        assert ids == {of(found, path, Said)[-1].message_id}


@pytest.mark.parametrize("options", [{"delegates": False}, {"tokens": False}])
def test_they_are_left_out_where_nobody_wants_them(options: Any, storage: SqliteStorage) -> None:
    found = events(Session(team(storage), "t"), "go", "sync", **options)
    assert {event.path for event in found} == {()}
    # What a tool below writes is not taken for a call of this machine that has the same id.
    assert of(found, (), CallProgress) == []


def test_a_retry_tells_what_goes_on_below(storage: SqliteStorage) -> None:
    session = Session(team(storage), "t")
    session.run("go")
    session.stop()
    assert isinstance(session.retry(), Question | Action)
    found = events(session, Answer("this"), "sync")
    assert [one.turn for one in of(found, ("left", "deep"), Said)] == [3]
