"""Delegates whose graph is not Signoff's: what they ask, how they end, and what bounds them."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from signoff import (
    Outcome,
    Question,
    Session,
    SetupError,
    build_graph,
    delegate,
    outcome_of,
    sqlite_storage,
)
from signoff.graph.build import Graph
from signoff.graph.errors import ApprovalWarning
from signoff.models import ScriptedModel, call
from signoff.session.expiring import expire_all
from signoff.storage.sqlite import SqliteStorage

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "go")]}
BLOCKED = call("finish_task", summary="x", outcome="blocked")
LATER = 9e12


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def last_text(values: Any) -> Any:
    return values["messages"][-1].text


def other(
    work: Callable[[Any], Any], *, again: bool = False, read: Any = last_text, name: str = "other"
) -> Any:
    """A delegate of one node. again: which goes round for ever."""
    node: Any = work
    made = StateGraph(MessagesState)
    made.add_node("work", node)
    made.add_edge(START, "work")
    made.add_edge("work", "work" if again else END)
    return delegate(name, made.compile(), description="Works.", read=read)


def asks(value: Any) -> Callable[[Any], Any]:
    return lambda _: {"messages": [("ai", f"it is {interrupt(value)}")]}


def lead(*delegates: Any, **options: Any) -> Graph:
    calls = [call(made.name, task="Go.") for made in delegates]
    return build_graph(ScriptedModel([calls, BLOCKED]), list(delegates), **options)


def told(values: Any) -> list[str]:
    return [str(found.text) for found in values["messages"] if isinstance(found, ToolMessage)][:-1]


@pytest.mark.parametrize("way", ["sync", "async"])
def test_one_that_asks_where_nobody_can_answer_is_a_failed_call(way: str) -> None:
    graph = lead(other(asks("Which?")))
    with pytest.warns(ApprovalWarning, match="The delegate other: interrupt"):
        values = graph.invoke(GO) if way == "sync" else asyncio.run(graph.ainvoke(GO))
    assert told(values)[0].startswith("other did not succeed (error: It needs a person). other was begun and")
    assert outcome_of(values).claim == "blocked"


ASKED: dict[str, tuple[Any, str]] = {
    "text": ("Which?", "Which?"),
    "a list": (["a", 1], '["a", 1]'),
    "nothing": (None, "null"),
    "a question": ({"question": "Which?"}, "Which?"),
}


@pytest.mark.parametrize("name", ASKED)
def test_whatever_it_asks_by_is_shown_with_its_path(name: str, storage: SqliteStorage) -> None:
    value, text = ASKED[name]
    graph = lead(*[other(asks(value), name=one) for one in ("one", "two")], storage=storage)
    session = Session(graph, "t")
    assert isinstance(session.run("go"), Question)
    waits = [one for one in session.status().waits if isinstance(one, Question)]
    assert [(one.path, one.text) for one in waits] == [(("one",), text), (("two",), text)]
    # Each answer arrives at the one that it was given to.
    for one in waits:
        session.resume(f"for {one.path[0]}", one.interrupt_id)
    assert told(session.status().values) == [
        f"{one} is done (asserted). it is for {one}" for one in ("one", "two")
    ]


def test_its_question_waits_on_after_its_deadline(storage: SqliteStorage) -> None:
    """Only a run of its graph could take the answer; so none is reported that was never given."""
    asked = {"type": "question", "question": "Which?", "default": "blue", "deadline": 1.0}
    session = Session(lead(other(asks(asked)), storage=storage), "t")
    session.run("go")
    for _ in range(2):
        assert expire_all(session.graph, "t", now=LATER) == []
    assert isinstance(session.run(), Question)


READ: dict[str, tuple[Any, str]] = {
    "text": ("found", "other is done (asserted). found"),
    "an outcome": (Outcome(status="success", reason="done", claim="done", summary="ok"), "other is done"),
    "nothing": (None, "other did not succeed (error: raised). TypeError: read= returned NoneType"),
    "an object": (object(), "other did not succeed (error: raised). TypeError: read= returned object"),
    "a number": (3, "other did not succeed (error: raised). TypeError: read= returned int"),
}


@pytest.mark.parametrize("name", READ)
def test_what_read_returns_is_text_or_an_outcome(name: str) -> None:
    value, text = READ[name]
    values = lead(other(lambda _: {}, read=lambda _: value)).invoke(GO)
    assert told(values)[0].startswith(text)


@pytest.mark.parametrize(("own", "steps"), [(None, 100), (7, 7)])
def test_its_steps_are_bounded(own: int | None, steps: int) -> None:
    """The limit of the graph above it is far too high for one that goes round for ever."""
    done = []

    def work(_: Any) -> Any:
        done.append(1)
        return {}

    made = other(work, again=True)
    if own is not None:
        made = made.model_copy(update={"graph": made.graph.with_config({"recursion_limit": own})})
    values = lead(made).invoke(GO)
    assert len(done) == steps
    assert told(values)[0].startswith("other did not succeed (error: raised). GraphRecursionError")


@tool
def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


def test_a_policy_may_name_the_tools_of_delegates(storage: SqliteStorage) -> None:
    below = build_graph(ScriptedModel([call("pay", to="x")]), [pay])
    middle = build_graph(
        ScriptedModel([call("below", task="Go.")]), [delegate("below", below, description="Works.")]
    )
    made = delegate("middle", middle, description="Works.")
    graph = lead(made, storage=storage, approvals={"pay": True})
    (waits,) = graph.invoke(GO, THREAD)["__interrupt__"]
    assert (waits.value["type"], waits.value["path"]) == ("approval", ["middle", "below"])
    with pytest.raises(
        SetupError, match=r"names .'spend'., which is neither a tool of this graph, or of a delegate, nor"
    ):
        lead(made, approvals={"spend": True})
    # What another graph calls, nobody knows here.
    with pytest.raises(SetupError, match=r"names .'pay'."):
        lead(other(lambda _: {}), approvals={"pay": True})


def test_an_answer_goes_on_in_it(storage: SqliteStorage) -> None:
    graph = lead(other(asks("Which?")), storage=storage)
    (waits,) = graph.invoke(GO, THREAD)["__interrupt__"]
    assert waits.value == {
        "type": "question",
        "question": "Which?",
        "options": [],
        "value": "Which?",
        "path": ["other"],
    }
    values = graph.invoke(Command(resume={waits.id: "blue"}), THREAD)
    assert told(values) == ["other is done (asserted). it is blue"]
