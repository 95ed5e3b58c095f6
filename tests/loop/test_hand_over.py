"""Calls that the graph yields to its driver."""

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.types import Command

from signoff import Action, Finished, Limits, Outcome, Session, SetupError, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call
from signoff.storage.sqlite import SqliteStorage

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "build it")]}
FINISH = call("finish_task", summary="x")


@tool
def shell(command: str) -> str:
    """Run a command."""
    raise AssertionError("the driver runs it")


shell.metadata = {"kind": "terminal"}


def look() -> str:
    """Look."""
    return "looked"


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


OBSERVED: list[tuple[Any, str, str]] = [
    ("3 files", "3 files", "success"),
    ({"output": "no such file", "status": "error"}, "no such file", "error"),
    ({"output": "3 files"}, "3 files", "success"),
    ({"exit": 1}, '{"exit": 1}', "success"),
    ("", "(no output)", "success"),
    ({"output": {"code": 1}, "status": "error"}, '{"output": {"code": 1}, "status": "error"}', "error"),
    ({"status": "error"}, '{"status": "error"}', "error"),
    ({"output": "", "status": "error"}, "(no output)", "error"),
    ({("a", 1): 2}, "{('a', 1): 2}", "success"),
]


@pytest.mark.parametrize(("observed", "text", "status"), OBSERVED)
@pytest.mark.parametrize("hand_over", [["shell"], ["terminal"]])
def test_the_driver_gets_the_action_and_gives_what_it_observed(
    observed: Any, text: str, status: str, hand_over: list[str], storage: SqliteStorage
) -> None:
    model = ScriptedModel([[call("look"), call("shell", command="ls"), call("look")], FINISH])
    graph = build_graph(model, [shell, look], hand_over=hand_over, storage=storage)
    (pending,) = graph.invoke(GO, THREAD)["__interrupt__"]
    assert pending.value == {
        "type": "action",
        "tool": "shell",
        "args": {"command": "ls"},
        "kind": "terminal",
        "call_id": "call_2",
    }
    result = graph.invoke(Command(resume={pending.id: observed}), THREAD)
    found = [(m.text, m.status) for m in result["messages"] if isinstance(m, ToolMessage)]
    assert found[:3] == [("looked", "success"), (text, status), ("looked", "success")]
    assert result["outcome"]["tool_calls"] == 3


def test_a_message_takes_the_action_back_which_may_have_been_done(storage: SqliteStorage) -> None:
    model = ScriptedModel([call("shell", command="rm -r ."), FINISH, FINISH])
    graph = build_graph(model, [shell], hand_over=["shell"], storage=storage)
    graph.invoke(GO, THREAD)
    task = graph.get_state(THREAD).values["task"]
    result = graph.invoke({"messages": [("user", "stop, not that")]}, THREAD)
    first = next(m for m in result["messages"] if isinstance(m, ToolMessage))
    assert first.text.startswith("Outcome unknown")
    assert first.text.endswith("The user wrote instead: stop, not that")
    assert result["outcome"]["open_points"] == [
        "it is not known whether shell(command='rm -r .') took effect"
    ]
    assert result["outcome"]["task"] == task


def test_an_approval_comes_first_and_its_edit_is_handed_over(storage: SqliteStorage) -> None:
    model = ScriptedModel([call("shell", command="rm -r ."), FINISH])
    graph = build_graph(model, [shell], hand_over=["shell"], approvals={"shell": True}, storage=storage)
    (asked,) = graph.invoke(GO, THREAD)["__interrupt__"]
    edit = {"type": "edit", "edited_action": {"name": "shell", "args": {"command": "ls"}}}
    (action,) = graph.invoke(Command(resume={asked.id: [edit]}), THREAD)["__interrupt__"]
    assert action.value["args"] == {"command": "ls"}
    result = graph.invoke(Command(resume={action.id: "3 files"}), THREAD)
    assert '(The user changed the arguments to {"command": "ls"}.)\n3 files' in [
        m.text for m in result["messages"]
    ]


def test_a_tool_may_declare_itself_handed_over(storage: SqliteStorage) -> None:
    declared = shell.model_copy(update={"metadata": {"kind": "terminal", "hand_over": True}})
    graph = build_graph(ScriptedModel([call("shell", command="ls")]), [declared], storage=storage)
    assert graph.invoke(GO, THREAD)["__interrupt__"][0].value["type"] == "action"


def test_without_a_checkpointer_there_is_no_driver() -> None:
    model = ScriptedModel([call("shell", command="ls"), FINISH])
    result = build_graph(model, [shell], hand_over=["shell"]).invoke(GO)
    assert "needs a driver, and this run cannot wait" in result["messages"][2].text


def test_a_name_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SetupError, match="neither a tool of this graph nor a kind"):
        build_graph(ScriptedModel([]), [shell], hand_over=["shel"])


def with_command(reply: AIMessage, command: str) -> AIMessage:
    changed = {**reply.tool_calls[0], "args": {"command": command}}
    return reply.model_copy(update={"tool_calls": [changed]})


def test_an_approval_holds_for_the_approved_arguments_only(storage: SqliteStorage) -> None:
    model = ScriptedModel([call("shell", command="ls"), FINISH])
    graph = build_graph(model, [shell], hand_over=["shell"], approvals={"shell": True}, storage=storage)
    graph.invoke(GO, THREAD)
    waiting = graph.invoke(Command(resume="approve"), THREAD)
    assert waiting["__interrupt__"][0].value["args"] == {"command": "ls"}
    graph.update_state(THREAD, {"messages": [with_command(waiting["messages"][-1], "rm -r .")]})
    result = graph.invoke(None, THREAD)
    assert "__interrupt__" not in result
    assert "there is none for exactly this call" in result["messages"][2].text
    assert result["outcome"]["status"] == "success"


CHANGES: dict[str, Any] = {
    "the call got a result": lambda reply: ToolMessage("3 files", tool_call_id=reply.tool_calls[0]["id"]),
    "the call became another": lambda reply: reply.model_copy(
        update={"tool_calls": [{**reply.tool_calls[0], "name": "look", "args": {}}]}
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_history_that_was_changed_while_the_driver_worked(name: str, storage: SqliteStorage) -> None:
    model = ScriptedModel([call("shell", command="ls"), FINISH])
    graph = build_graph(model, [shell, look], hand_over=["shell"], storage=storage)
    reply = graph.invoke(GO, THREAD)["messages"][-1]
    graph.update_state(THREAD, {"messages": [CHANGES[name](reply)]})
    assert graph.get_state(THREAD).next == ("hand_over",)
    result = graph.invoke(None, THREAD)
    assert result["outcome"]["status"] == "success"


def test_a_message_that_comes_by_an_update_takes_the_action_back_too(storage: SqliteStorage) -> None:
    model = ScriptedModel([call("shell", command="rm -r ."), FINISH, FINISH])
    graph = build_graph(model, [shell], hand_over=["shell"], storage=storage)
    graph.invoke(GO, THREAD)
    graph.update_state(THREAD, {"messages": [("user", "stop, not that")]})
    result = graph.invoke(None, THREAD)
    assert "stop, not that" in next(m.text for m in result["messages"] if isinstance(m, ToolMessage))
    assert result["outcome"]["status"] == "success"


# What the driver does counts as working time.


def driven(storage: SqliteStorage, answer: Callable[[Session], Any], seconds: float) -> Outcome:
    """How a task ends whose model hands over one call after the other."""
    model = ScriptedModel(call("shell", command=f"{at}") for at in count())
    graph = build_graph(model, [shell], hand_over=["shell"], storage=storage, limits=Limits(seconds=seconds))
    session = Session(graph, "t")
    decision = session.run("go")
    while isinstance(decision, Action):
        decision = answer(session)
    assert isinstance(decision, Finished)
    return decision.outcome


@pytest.mark.parametrize("said", [{"output": "ok", "seconds": 600}, '{"output": "ok", "seconds": 600}'])
def test_what_a_driver_reports_counts(said: Any, storage: SqliteStorage) -> None:
    """As text it comes from a command line."""
    ended = driven(storage, lambda s: s.resume(said), 1500)
    assert (ended.reason, ended.tool_calls) == ("seconds", 3)
    assert ended.seconds_active > 1800


def test_else_the_time_from_the_hand_out_to_the_answer(storage: SqliteStorage) -> None:
    def work(session: Session) -> Any:
        time.sleep(0.15)
        return session.resume("ok")

    ended = driven(storage, work, 0.35)
    assert (ended.reason, ended.tool_calls <= 3) == ("seconds", True)
    assert ended.seconds_waiting < ended.seconds_active


def test_what_stood_while_nobody_ran_it_was_waiting(storage: SqliteStorage) -> None:
    model = ScriptedModel([call("shell", command="ls"), FINISH])
    graph = build_graph(model, [shell], hand_over=["shell"], storage=storage, limits=Limits(seconds=60))
    assert isinstance(Session(graph, "t").run("go"), Action)
    time.sleep(0.15)
    done = Session(graph, "t").resume("ok")
    assert isinstance(done, Finished)
    assert done.outcome.seconds_waiting >= 0.15 > done.outcome.seconds_active


@pytest.mark.parametrize("seconds", ["5", True, -1, float("inf"), float("nan"), None])
def test_what_is_no_number_of_seconds_is_not_counted(seconds: Any, storage: SqliteStorage) -> None:
    model = ScriptedModel([call("shell", command="ls"), FINISH])
    graph = build_graph(model, [shell], hand_over=["shell"], storage=storage, limits=Limits(seconds=60))
    graph.invoke(GO, THREAD)
    outcome = graph.invoke(Command(resume={"output": "ok", "seconds": seconds}), THREAD)["outcome"]
    assert (outcome["status"], outcome["seconds_active"] < 5) == ("success", True)
