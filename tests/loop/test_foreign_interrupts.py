"""What a tool does by means of LangGraph: it asks a person by `interrupt()`, or runs a graph of its own."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from signoff import Action, Approval, Finished, Question, Session, build_graph, sqlite_storage
from signoff.graph.build import Graph
from signoff.models import ScriptedModel, call
from signoff.storage.sqlite import SqliteStorage

DONE = call("finish_task", summary="Done.")


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def asking(value: Any, storage: SqliteStorage) -> Graph:
    @tool
    def ask(what: str) -> str:
        """Ask."""
        return f"got {interrupt(value)!r}"

    return build_graph(ScriptedModel([call("ask", what="x"), DONE]), [ask], storage=storage)


def told(session: Session) -> str:
    return next(one.text for one in session.status().values["messages"] if isinstance(one, ToolMessage))


PAY = {"action_requests": [{"name": "pay", "args": {"to": "x"}}]}
ASKED: dict[str, tuple[Any, type, Any, Any]] = {
    "text": ("Which?", Question, "blue", "blue"),
    "a path of its own": ({"question": "Overwrite?", "path": "/etc/hosts"}, Question, "no", "no"),
    "what an approval of LangChain looks like": (
        PAY,
        Approval,
        "approve",
        {"decisions": [{"type": "approve"}]},
    ),
    "an approval of words": ({"type": "approval", "action_requests": ["pay"]}, Question, "yes", "yes"),
    "an approval with too few rules": ({**PAY, "review_configs": [{}, {}]}, Question, "yes", "yes"),
    "options that are none": ({"question": "Which?", "options": 3}, Question, "blue", "blue"),
    "a confirmation of nothing": ({"type": "confirmation", "pending_issues": 3}, Question, "yes", "yes"),
    "a deadline that is none": ({"question": "Which?", "deadline": float("nan")}, Question, "blue", "blue"),
    "an action": ({"type": "action", "tool": "press", "args": {}}, Action, "pressed", "pressed"),
}


@pytest.mark.parametrize("by", [None, "grace"])
@pytest.mark.parametrize("name", ASKED)
def test_whatever_a_tool_asks_by_can_be_answered(name: str, by: str | None, storage: SqliteStorage) -> None:
    """It gets the bare answer: only Signoff's own questions keep who has answered them."""
    value, kind, answer, got = ASKED[name]
    session = Session(asking(value, storage), "t")
    waits = session.run("go")
    assert isinstance(waits, Question | Approval | Action)
    assert (type(waits), waits.path, session.status().waiting) == (kind, (), waits)
    assert isinstance(session.resume(answer, waits.interrupt_id, by=by), Finished)
    assert told(session) == f"got {got!r}"


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_value_that_cannot_be_saved_fails_the_call(way: str, storage: SqliteStorage) -> None:
    session = Session(asking(object(), storage), "t")
    ended = session.run("go") if way == "sync" else asyncio.run(session.arun("go"))
    assert isinstance(ended, Finished)
    assert told(session).startswith("TypeError: interrupt() asks by a value that cannot be saved (object)")


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_graph_in_a_tool_does_not_say_what_comes_next_above_it(way: str, storage: SqliteStorage) -> None:
    def over(_: Any) -> Any:
        return Command(graph=Command.PARENT, goto="finish", update={"messages": [("ai", "hi")]})

    node: Any = over
    made = StateGraph(MessagesState)
    made.add_node("over", node)
    made.add_edge(START, "over")
    below: Any = made.compile()

    @tool
    def hand_over(to: str) -> str:
        """Hand over."""
        return str(below.invoke({"messages": [("user", to)]}))

    model = ScriptedModel([call("hand_over", to="x"), DONE])
    session = Session(build_graph(model, [hand_over], storage=storage), "t")
    ended = session.run("go") if way == "sync" else asyncio.run(session.arun("go"))
    assert isinstance(ended, Finished)
    assert told(session).startswith("ParentCommand: ")
