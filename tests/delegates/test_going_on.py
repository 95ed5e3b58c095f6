"""A tree after its end: `retry` and `extend` go on in the delegates that ended with it, no effect twice."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

from signoff import (
    Extend,
    Finished,
    Limits,
    Question,
    Session,
    build_graph,
    delegate,
    outcome_of,
    sqlite_storage,
)
from signoff.graph.build import Graph
from signoff.graph.finish.again import GoingOn, extend, retry
from signoff.graph.messages import marks
from signoff.graph.texts import DEFAULT_TEXTS
from signoff.models import ScriptedModel, call, reply
from signoff.session.commands import Retry
from signoff.session.events import Entered
from signoff.session.replay import replay
from signoff.storage.sqlite import SqliteStorage
from signoff.workers.drive import drive
from signoff.workers.inbox import Order, post

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "go")]}
DONE = call("finish_task", summary="Done.")
DOWN = RuntimeError("down")
WAYS = pytest.mark.parametrize("way", ["sync", "async"])


@dataclass
class Shop:
    """What was paid, in order."""

    done: list[str] = field(default_factory=list)

    @property
    def pay(self) -> Any:
        @tool
        def pay(to: str) -> str:
            """Pay."""
            self.done.append(to)
            return f"paid {to}"

        return pay


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def graph_of(steps: list[Any], tools: list[Any], **options: Any) -> Graph:
    return build_graph(ScriptedModel(steps), tools, model_retries=None, **options)


def team(shop: Shop, storage: SqliteStorage, child: list[Any], lead: list[Any], deep: int = 1) -> Graph:
    """A graph above a delegate that pays, with machines between them that only hand on."""
    graph = graph_of(child, [shop.pay])
    for _ in range(deep - 1):
        made = delegate("helper", graph, description="Helps.")
        graph = graph_of([call("helper", task="Do it."), DOWN, DONE], [made])
    return graph_of(lead, [delegate("helper", graph, description="Helps.")], storage=storage)


def invoke(graph: Graph, given: Any, way: str) -> Any:
    return graph.invoke(given, THREAD) if way == "sync" else asyncio.run(graph.ainvoke(given, THREAD))


@WAYS
@pytest.mark.parametrize("deep", [1, 2, 3])
def test_a_retry_goes_on_in_the_delegate_that_failed(
    deep: int, way: str, shop: Shop, storage: SqliteStorage
) -> None:
    # The provider is down for everybody; then it is there again.
    child, lead = (
        [call("pay", to="x"), DOWN, call("pay", to="y"), DONE],
        [call("helper", task="Go."), DOWN, DONE],
    )
    graph = team(shop, storage, child, lead, deep)
    values = invoke(graph, GO, way)
    assert (outcome_of(values).reason, shop.done) == ("model_error", ["x"])
    values = invoke(graph, retry(graph.get_state(THREAD)), way)
    outcome = outcome_of(values)
    assert (outcome.status, shop.done) == ("success", ["x", "y"])
    (told,) = [found for found in values["messages"] if found.type == "tool" and found.name == "helper"]
    assert told.text == "helper is done (asserted). Done."
    assert outcome.tree is not None
    # The delegate's replies of before count once.
    assert outcome.tree.turns == 2 + 2 * (deep - 1) + 3
    assert replay(graph, "t").differences == ()


@WAYS
def test_an_extension_goes_on_in_the_delegate_at_its_limit(
    way: str, shop: Shop, storage: SqliteStorage
) -> None:
    pays = [reply(call("pay", to=f"{n}"), usage=(90, 10)) for n in range(5)]
    done = reply(DONE, usage=(90, 10))
    lead = [reply(call("helper", task="Go."), usage=(90, 10)), done]
    child = graph_of([*pays, done], [shop.pay])
    graph = graph_of(
        lead, [delegate("helper", child, description="Helps.")], limits=Limits(tokens=400), storage=storage
    )
    values = invoke(graph, GO, way)
    assert (outcome_of(values).reason, shop.done) == ("tokens", ["0", "1", "2"])
    values = invoke(graph, extend(graph.get_state(THREAD), turns=5), way)
    outcome = outcome_of(values)
    assert (outcome.status, shop.done) == ("success", ["0", "1", "2", "3", "4"])
    assert outcome.tree is not None
    assert (outcome.tree.turns, outcome.tree.total_tokens) == (2 + 6, 800)


def test_a_delegate_at_its_own_limit_gets_more_turns_with_its_parent(
    shop: Shop, storage: SqliteStorage
) -> None:
    child = graph_of([call("pay", to=f"{n}") for n in range(4)] + [DONE], [shop.pay], limits={"turns": 2})
    made = delegate("helper", child, description="Helps.")
    graph = graph_of([call("helper", task="Go."), DONE], [made], limits={"turns": 1}, storage=storage)
    session = Session(graph, "t")
    first = session.run("go")
    assert isinstance(first, Finished)
    assert (first.outcome.reason, shop.done) == ("turns", ["0", "1"])
    assert isinstance(session.extend(3), Finished)
    assert shop.done == ["0", "1", "2", "3"]


def test_a_delegate_gets_all_of_its_turns_that_was_answered_beyond_its_limit(
    shop: Shop, storage: SqliteStorage
) -> None:
    pays = [call("pay", to=f"{n}") for n in range(9)]
    child = graph_of([call("ask_user", question="Which?"), *pays], [shop.pay], limits={"turns": 1})
    made = delegate("helper", child, description="Helps.")
    graph = graph_of([call("helper", task="Go."), DONE], [made], limits={"turns": 1}, storage=storage)
    session = Session(graph, "t")
    assert isinstance(session.run("go"), Question)
    assert isinstance(session.resume("this"), Finished)
    assert shop.done == ["0"]
    events = [event for event in session.events(Extend(3)) if isinstance(event, Entered)]
    assert shop.done == ["0", "1", "2", "3"]
    told = {event.path: (event.turn, event.turns) for event in events}
    assert told == {(): (2, 4), ("helper",): (5, 5)}
    assert {event.turns for event in events if event.path} == {5}


def test_what_was_ended_by_a_stop_goes_on_where_it_stood(shop: Shop, storage: SqliteStorage) -> None:
    child = [call("pay", to="x"), call("ask_user", question="Which?"), call("pay", to="y"), DONE]
    graph = team(shop, storage, child, [call("helper", task="Go."), DONE])
    session = Session(graph, "t")
    assert isinstance(session.run("go"), Question)
    session.stop()
    question = session.retry()
    assert isinstance(question, Question)
    assert question.path == ("helper",)
    assert isinstance(session.resume("this"), Finished)
    assert shop.done == ["x", "y"]


@pytest.mark.parametrize("deep", [1, 2])
@pytest.mark.parametrize("end", ["a stop", "an error", "a stop, twice"])
def test_the_model_is_not_shown_how_its_task_had_ended(
    end: str, deep: int, shop: Shop, storage: SqliteStorage
) -> None:
    """The message that says so follows a result that is taken back."""
    model = ScriptedModel([call("helper", task="Go."), *([DOWN] if end == "an error" else []), DONE])
    graph = graph_of([DOWN, DONE] if end == "an error" else [call("ask_user", question="Which?"), DONE], [])
    for _ in range(deep - 1):
        made = delegate("helper", graph, description="Helps.")
        graph = graph_of(
            [call("helper", task="Do it."), *([DOWN] if end == "an error" else []), DONE], [made]
        )
    lead = build_graph(
        model, [delegate("helper", graph, description="Helps.")], storage=storage, model_retries=None
    )
    session = Session(lead, "t")
    session.run("go")
    for _ in range({"a stop": 1, "an error": 0, "a stop, twice": 2}[end]):
        session.stop()
        session.retry()
    found = session.retry() if end == "an error" else session.resume("this")
    assert isinstance(found, Finished)
    assert found.outcome.status == "success"
    said = [message.text for message in model.seen[-1].messages if isinstance(message, AIMessage)]
    # Between what was taken back and what follows stands a line that tells nothing.
    assert {*said} <= {"", DEFAULT_TEXTS.between["assistant"].format()}
    assert said[0] == ""
    assert replay(lead, "t").differences == ()


def test_what_the_model_has_read_is_not_taken_back(shop: Shop, storage: SqliteStorage) -> None:
    lead = [
        call("helper", task="Go."),
        call("think", thought="It failed."),
        DOWN,
        call("helper", task="New."),
        DONE,
    ]
    graph = team(shop, storage, [call("pay", to="x"), DOWN, DONE], lead)
    graph.invoke(GO, THREAD)
    values = graph.invoke(retry(graph.get_state(THREAD)), THREAD)
    told = [found.text for found in values["messages"] if found.type == "tool" and found.name == "helper"]
    failed, done = told
    assert failed.startswith("helper did not succeed (error: The model failed: RuntimeError: down.")
    assert done.startswith("helper is done (asserted).")


def test_a_worker_goes_on_in_the_delegate_too(shop: Shop, storage: SqliteStorage) -> None:
    lead = [call("helper", task="Go."), DOWN, DONE]
    graph = team(shop, storage, [call("pay", to="x"), DOWN, DONE], lead)
    session = Session(graph, "t")
    session.run("go")
    post(storage.store, "t", Order("again", Retry("again"), session.status().task.id))
    assert isinstance(drive(graph, "t").decision, Finished)
    assert shop.done == ["x"]


def test_it_is_told_once_however_often_a_process_dies() -> None:
    ended = {"task": "go", "status": "error", "reason": "model_error"}
    state: dict[str, Any] = {
        "messages": [AIMessage("", id="r")],
        "outcome": ended,
        "ended": {"task": "go", "message": "r"},
    }
    again, texts = GoingOn("mark", 0, {}), DEFAULT_TEXTS
    found = again.command(state, texts)
    assert found is not None
    assert isinstance(found.update, dict)
    (mark,) = found.update["messages"]
    assert (mark.id, marks(mark)["nudge"]) == ("mark", "resumed")
    # It failed again; whoever looks next takes that as its result.
    later = {**state, "messages": [*state["messages"], mark], "ended": {"task": "go", "message": "mark"}}
    assert again.command(later, texts) is None
    assert GoingOn("other", 3, {}).command(state, texts) is None
