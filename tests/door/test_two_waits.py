"""Two waits at once, in delegates: each answer goes to its wait, or is refused and changes nothing."""

from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command

from signoff import (
    Approval,
    BadAnswer,
    Ended,
    Graph,
    Question,
    Session,
    ThreadError,
    TooLate,
    Waiting,
    build_graph,
    delegate,
    outcome_of,
    sqlite_storage,
)
from signoff.models import ScriptedModel, call
from signoff.storage import SqliteStorage

# A delegate has no storage of its own: it waits in that of the thread.
pytestmark = pytest.mark.filterwarnings("ignore::signoff.graph.errors.ApprovalWarning")
CONFIG: Any = {"configurable": {"thread_id": "team"}}
TASK = {"messages": [("user", "Do both.")]}


def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def build(storage: SqliteStorage) -> Graph:
    done = call("finish_task", summary="Done.")
    asker = build_graph(ScriptedModel([call("ask_user", question="Which year?"), done]))
    payer = build_graph(ScriptedModel([call("pay", amount=5), done]), tools=[pay], approvals={"pay": True})
    team = [delegate("asker", asker, description="Asks."), delegate("payer", payer, description="Pays.")]
    lead: list[Any] = [[call("asker", task="ask"), call("payer", task="pay")]]
    return build_graph(ScriptedModel([*lead, call("finish_task", summary="Both.")]), team, storage=storage)


def test_each_is_answered_by_its_id(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        session = Session(build(storage), "team")
        decision = session.run("Do both.")
        with pytest.raises(BadAnswer):
            session.resume("2024")
        with pytest.raises(BadAnswer):
            session.run(Command(resume="2024"))
        for wait in session.status().waits:
            match wait:
                case Question():
                    assert wait.path == ("asker",)
                    assert wait.read("2024") == "2024"
                    decision = session.resume("2024", wait.interrupt_id, by="ada")
                case Approval():
                    assert wait.path == ("payer",)
                    decision = session.resume("approve", wait.interrupt_id)
        assert isinstance(decision, Ended)
        assert decision.outcome.status == "success"
        with pytest.raises(TooLate):
            session.resume("x", wait.interrupt_id)


def test_both_are_answered_at_once_in_langgraphs_way(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        graph = build(storage)
        waits = graph.invoke(TASK, CONFIG)["__interrupt__"]
        both = {
            wait.id: "2024" if wait.value["type"] == "question" else {"decisions": [{"type": "approve"}]}
            for wait in waits
        }
        assert outcome_of(graph.invoke(Command(resume=both), CONFIG)).status == "success"


def test_a_message_while_several_wait_changes_nothing(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        graph = build(storage)
        before = graph.invoke(TASK, CONFIG)
        after = graph.invoke({"messages": [("user", "2024")]}, CONFIG)
        assert [wait.id for wait in after["__interrupt__"]] == [wait.id for wait in before["__interrupt__"]]
        assert all("by its id" in wait.value["problem"] for wait in after["__interrupt__"])
        assert after["messages"] == before["messages"]
        waiting = Session(graph, "team").run("2024")
        assert isinstance(waiting, Waiting)
        assert "by its id" in waiting.problem


@pytest.mark.parametrize("word", ["yes", "Yes.", "ok", "approve"])
@pytest.mark.parametrize("what", ["a call", "a finish"])
def test_a_bare_yes_approves_nothing(tmp_path: Path, word: str, what: str) -> None:
    first = call("pay", amount=5)
    if what == "a finish":
        first = call("finish_task", summary="x", requires_user_confirmation=True)
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        script = [first, call("finish_task", summary="Done.")]
        graph = build_graph(ScriptedModel(script), [pay], approvals={"pay": True}, storage=storage)
        graph.invoke(TASK, CONFIG)
        result = graph.invoke({"messages": [("user", word)]}, CONFIG)
        (wait,) = result["__interrupt__"]
        assert "by its id" in wait.value["problem"]
        assert len(result["messages"]) == 2
        assert outcome_of(graph.invoke(Command(resume={wait.id: "yes"}), CONFIG)).status == "success"


def test_a_mistyped_edit_leaves_the_approval(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        script = [call("pay", amount=5), call("finish_task", summary="Done.")]
        graph = build_graph(ScriptedModel(script), [pay], approvals={"pay": True}, storage=storage)
        (wait,) = graph.invoke(TASK, CONFIG)["__interrupt__"]
        edit = {"type": "edit", "edited_action": {"name": "pay", "args": {"amount": "five"}}}
        for refused in (
            lambda: graph.invoke(Command(resume={wait.id: edit}), CONFIG),
            lambda: Session(graph, "team").resume(edit),
            lambda: list(graph.stream(Command(resume=[edit]), CONFIG)),
        ):
            with pytest.raises(BadAnswer, match="amount"):
                refused()
            assert graph.get_state(CONFIG).interrupts == (wait,)
        edit["edited_action"]["args"] = {"amount": 6}  # type: ignore[index]
        result = graph.invoke(Command(resume={wait.id: edit}), CONFIG)
        assert "paid 6" in [message.text for message in result["messages"]][2]


def test_a_mistyped_edit_of_a_delegates_call_leaves_the_approval(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        graph = build(storage)
        _, wait = graph.invoke(TASK, CONFIG)["__interrupt__"]
        edit = {"type": "edit", "edited_action": {"name": "pay", "args": {"amount": "five"}}}
        with pytest.raises(ThreadError, match="amount"):
            graph.invoke(Command(resume={wait.id: edit}), CONFIG)
        assert [one.id for one in graph.get_state(CONFIG).interrupts][1] == wait.id
