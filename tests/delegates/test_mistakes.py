"""What does not fit a tree: one clear sentence each, and nothing is lost."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command

from signoff import Session, ThreadError, build_graph, delegate, outcome_of, sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.messages import marks
from signoff.models import ScriptedModel, call
from signoff.nodes.journal import hand_out
from signoff.session.status import look
from signoff.storage.sqlite import SqliteStorage

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "go")]}
DONE = call("finish_task", summary="Done.")
ASK = call("ask_user", question="Which?")


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def parent(storage: SqliteStorage, steps: list[Any], **children: Any) -> Graph:
    made = [delegate(name, graph, description="Works.") for name, graph in children.items()]
    return build_graph(ScriptedModel(steps), made, storage=storage)


def both(storage: SqliteStorage) -> tuple[Graph, list[Any]]:
    calls = [call("a", task="Go."), call("b", task="Go.")]
    child = build_graph(ScriptedModel([ASK, ASK, DONE, DONE]))
    graph = parent(storage, [calls, DONE], a=child, b=child)
    return graph, graph.invoke(GO, THREAD)["__interrupt__"]


def test_an_answer_for_a_path_that_no_longer_waits(storage: SqliteStorage) -> None:
    graph, (first, second) = both(storage)
    graph.invoke(Command(resume={second.id: "this"}), THREAD)
    before = graph.get_state(THREAD).config
    for gone in ({second.id: "again"}, {second.id: "again", first.id: "this"}, {"0" * 32: "what"}):
        with pytest.raises(
            ThreadError, match=rf"no longer waits for this answer .*; it waits for a: {first.id}"
        ):
            graph.invoke(Command(resume=gone), THREAD)
    assert graph.get_state(THREAD).config == before
    assert outcome_of(graph.invoke(Command(resume={first.id: "that"}), THREAD)).status == "success"
    with pytest.raises(ThreadError, match="it waits for nothing"):
        graph.invoke(Command(resume={first.id: "that"}), THREAD)


@pytest.mark.parametrize("args", [{"x": 1}, {}, {"task": ""}, {"task": 5}, {"task": None}])
def test_a_persons_edit_that_does_not_fit_is_told_and_begins_nothing(
    args: dict[str, Any], storage: SqliteStorage
) -> None:
    below = ScriptedModel([DONE])
    made = delegate("a", build_graph(below), description="Works.")
    model = ScriptedModel([call("a", task="Go."), DONE])
    graph = build_graph(model, [made], approvals={"delegate": True}, storage=storage)
    session = Session(graph, "t")
    session.run("go")
    session.resume([{"type": "edit", "edited_action": {"name": "a", "args": args}}])
    (told, *_) = [m for m in session.status().values["messages"] if isinstance(m, ToolMessage)]
    assert (told.status, marks(told)["not_run"], marks(told)["ran"]) == ("error", "invalid", args)
    assert "task" in told.text
    assert below.seen == []


def test_a_graph_of_a_delegate_that_has_changed_in_between(storage: SqliteStorage) -> None:
    paid: list[str] = []

    @tool
    def pay(to: str) -> str:
        """Pay."""
        paid.append(to)
        return "paid"

    calls = call("a", task="Go.")
    graph = parent(storage, [calls], a=build_graph(ScriptedModel([call("pay", to="x"), ASK]), [pay]))
    (waits,) = graph.invoke(GO, THREAD)["__interrupt__"]

    def work(_: Any) -> Any:
        return {"messages": [("ai", "hm")]}

    node: Any = work
    made = StateGraph(MessagesState)
    made.add_node("other_work", node)
    made.add_edge(START, "other_work")
    made.add_edge("other_work", END)
    read: Any = lambda values: values["messages"][-1].text  # noqa: E731  as a user writes it
    other = delegate("a", made.compile(), description="Works.", read=read)
    changed = build_graph(ScriptedModel([DONE]), [other], storage=storage)
    with pytest.raises(ThreadError, match="ask_user"):
        changed.invoke(Command(resume={waits.id: "this"}), THREAD)
    # With the graph that it was, it goes on where it stood.
    again = parent(storage, [DONE], a=build_graph(ScriptedModel([DONE]), [pay]))
    assert outcome_of(again.invoke(Command(resume={waits.id: "this"}), THREAD)).status == "success"
    assert paid == ["x"]


def test_a_thread_of_before_delegates_takes_them_up(storage: SqliteStorage) -> None:
    """What a plain tool of the name has begun is not done once more by the delegate that is called so now."""

    @tool
    def helper(task: str) -> str:
        """Help."""
        raise AssertionError("it is never run here")

    old = build_graph(ScriptedModel([call("helper", task="Pay.")]), [helper], storage=storage)
    old.invoke(GO, THREAD, interrupt_before=["execute"])
    # Its process ended while the tool ran.
    task = look(old, "t").task
    assert hand_out("t", task.reply_of(task.due[0]).message.id or "", task.due[0]).on(storage.store)
    seen = ScriptedModel([DONE])
    steps = [DONE, call("helper", task="New."), DONE]
    graph = parent(storage, steps, helper=build_graph(seen))
    values = graph.invoke(None, THREAD)
    told = next(message for message in values["messages"] if message.type == "tool")
    assert told.text.startswith("Outcome unknown")
    assert seen.seen == []
    values = graph.invoke({"messages": [HumanMessage("more")]}, THREAD)
    assert outcome_of(values).status == "success"
    assert [message.text for message in seen.seen[0].messages if isinstance(message, HumanMessage)] == [
        "New."
    ]
