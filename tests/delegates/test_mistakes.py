"""What does not fit a tree: one clear sentence each, and nothing is lost."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.types import Command

from signoff import Failed, Finished, Session, ThreadError, build_graph, delegate, outcome_of, sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.messages import is_reply, marks
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


@pytest.mark.parametrize("args", [{"x": 1}, {}, {"task": ""}, {"task": " \n"}, {"task": 5}, {"task": None}])
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


@dataclass
class Shop:
    """What was paid."""

    paid: list[str] = field(default_factory=list)

    @property
    def pay(self) -> Any:
        @tool
        def pay(to: str) -> str:
            """Pay."""
            self.paid.append(to)
            return "paid"

        return pay


def by_turn(*steps: Any) -> Callable[[list[BaseMessage]], Any]:
    """Says these, one after the other, in every graph anew."""
    return lambda messages: steps[sum(map(is_reply, messages))]


def other_graph() -> Any:
    """A delegate of the same name, whose graph does not have the state that asks."""
    graph = build_graph(ScriptedModel([]))
    del graph.nodes["ask_user"]
    return delegate("a", graph, description="Works.")


def plain_tool() -> Any:
    @tool
    def a(task: str) -> str:
        """Work."""
        raise AssertionError("it is never run here")

    return a


CHANGED: dict[str, tuple[Callable[[], list[Any]], str]] = {
    "another graph": (
        lambda: [other_graph()],
        "'a' is in the state 'ask_user', which its graph does not",
    ),
    "a plain tool": (lambda: [plain_tool()], "'a' is at work in this thread, and this graph has none"),
    "nothing": (list, "'a' is at work in this thread, and this graph has none"),
}


def at_work(storage: SqliteStorage, shop: Shop, **more: Any) -> str:
    """A thread whose delegate has paid, and asks; the id of its question. more: what the model has given it
    beside the task."""
    below = build_graph(ScriptedModel([call("pay", to="x"), ASK]), [shop.pay])
    found = parent(storage, [call("a", task="Go.", **more)], a=below).invoke(GO, THREAD)["__interrupt__"]
    return str(found[0].id)


@pytest.mark.parametrize("more", [{}, {"priority": "high"}], ids=["", "given more than it knows"])
@pytest.mark.parametrize("name", CHANGED)
def test_a_graph_of_a_delegate_that_has_changed_in_between(
    name: str, more: dict[str, str], storage: SqliteStorage
) -> None:
    tools, said = CHANGED[name]
    shop = Shop()
    waits = at_work(storage, shop, **more)
    changed = build_graph(ScriptedModel([DONE]), tools(), storage=storage)
    with pytest.raises(ThreadError, match=said):
        changed.invoke(Command(resume={waits: "this"}), THREAD)
    # With the graph that it was, it goes on where it stood.
    again = parent(storage, [DONE], a=build_graph(ScriptedModel([DONE]), [shop.pay]))
    assert outcome_of(again.invoke(Command(resume={waits: "this"}), THREAD)).status == "success"
    assert shop.paid == ["x"]


@pytest.mark.parametrize("answered", ["a", "b"])
@pytest.mark.parametrize("changed", ["a", "b"])
@pytest.mark.parametrize("name", ["a plain tool", "nothing"])
def test_one_of_two_that_has_changed_in_between(
    name: str, changed: str, answered: str, storage: SqliteStorage
) -> None:
    """Neither goes on before both can: what the other has begun would be told as never run."""
    shop = Shop()
    steps = [call("pay", to="x"), ASK, DONE]

    def team(*kept: str) -> list[Any]:
        below = [build_graph(ScriptedModel(by_turn(*steps)), [shop.pay]) for _ in kept]
        return [delegate(one, graph, description="Works.") for one, graph in zip(kept, below, strict=True)]

    lead = ScriptedModel(by_turn([call("a", task="Go."), call("b", task="Go.")], DONE))
    whole = build_graph(lead, team("a", "b"), storage=storage)
    waits = {one.value["path"][0]: one.id for one in whole.invoke(GO, THREAD)["__interrupt__"]}
    tools: list[Any] = team("b" if changed == "a" else "a")
    if name == "a plain tool":
        plain = plain_tool()
        plain.name = changed
        tools.append(plain)
    with pytest.raises(ThreadError, match=f"The delegate '{changed}' is at work in this thread, and this"):
        build_graph(lead, tools, storage=storage).invoke(Command(resume={waits[answered]: "this"}), THREAD)
    assert {one.path for one in look(whole, "t").waits} == {("a",), ("b",)}
    values = whole.invoke(Command(resume=dict.fromkeys(waits.values(), "this")), THREAD)
    assert outcome_of(values).status == "success"
    assert shop.paid == ["x", "x"]


@pytest.mark.parametrize("more", [{}, {"priority": "high"}], ids=["", "given more than it knows"])
@pytest.mark.parametrize("how", ["a new message", "a stop"])
@pytest.mark.parametrize("name", CHANGED)
def test_it_can_be_left_and_is_not_told_as_never_begun(
    name: str, how: str, more: dict[str, str], storage: SqliteStorage
) -> None:
    at_work(storage, Shop(), **more)
    changed = build_graph(ScriptedModel([DONE]), CHANGED[name][0](), storage=storage)
    session = Session(changed, "t", on_pending="supersede")
    if how == "a stop":
        assert isinstance(session.stop(), Failed)
    else:
        assert isinstance(session.run("Something else."), Finished)
    told = next(m for m in session.status().values["messages"] if isinstance(m, ToolMessage))
    assert told.text == "a was begun, and was ended before it had finished."
    assert (told.status, marks(told)["unknown"], "not_run" in marks(told)) == ("error", True, False)


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
