"""Calls that the program runs: what is handed out, who decides before, and what is observed."""

from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.types import Command

from signoff import Graph, SetupError, build_graph, delegate, outcome_of
from signoff.models import ScriptedModel, call
from tests.support.plays import FINISH, GO, TEXTS, THREAD, results, saved

SHELL = call("shell", command="ls")


def shell(command: str) -> str:
    """Run a command."""
    raise AssertionError("the driver runs it")


def look() -> str:
    """Look."""
    return "looked"


def handing_over(*script: Any, rule: Any = "hand_over", **options: Any) -> Graph:
    tools = [
        StructuredTool.from_function(shell, metadata={"kind": "terminal"}),
        StructuredTool.from_function(look, metadata={"kind": "read"}),
    ]
    options = {"approvals": {"shell": rule}, "policy": {"texts": TEXTS}, **saved(), **options}
    return build_graph(ScriptedModel(script), tools, **options)


OBSERVED: dict[str, tuple[Any, str, str]] = {
    "text": ("3 files", "3 files", "success"),
    "output": ({"output": "3 files"}, "3 files", "success"),
    "an error": ({"output": "no such file", "status": "error"}, "no such file", "error"),
    "a document": ({"exit": 1}, '{"exit": 1}', "success"),
}


@pytest.mark.parametrize("name", OBSERVED)
def test_the_driver_gives_what_it_observed(name: str) -> None:
    observed, text, status = OBSERVED[name]
    graph = handing_over([call("look"), SHELL, call("look")], FINISH)
    (wait,) = graph.invoke(GO, THREAD)["__interrupt__"]
    result = graph.invoke(Command(resume={wait.id: observed}), THREAD)
    told = [(one.text, one.status) for one in result["messages"] if isinstance(one, ToolMessage)]
    assert told[:3] == [("looked", "success"), (text, status), ("looked", "success")]
    assert outcome_of(result).tool_calls == 3


def test_what_is_handed_out_is_shown_as_a_call_without_decisions() -> None:
    (wait,) = handing_over(SHELL).invoke(GO, THREAD)["__interrupt__"]
    (request,) = wait.value.pop("action_requests")
    assert (request["name"], request["args"]) == ("shell", {"command": "ls"})
    assert wait.value == {
        "type": "action",
        "tool": "shell",
        "args": {"command": "ls"},
        "kind": "terminal",
        "call_id": "call_1",
        "review_configs": [{"action_name": "shell", "allowed_decisions": []}],
    }


def test_a_message_takes_the_action_back_which_may_have_been_done() -> None:
    graph = handing_over(SHELL, FINISH, FINISH)
    graph.invoke(GO, THREAD)
    task = graph.get_state(THREAD).values["task"]
    result = graph.invoke({"messages": [("user", "stop, not that")]}, THREAD)
    told = results(result, "shell")[0]
    assert told.startswith("<maybe_run> shell")
    assert told.endswith("<instead> stop, not that")
    outcome = outcome_of(result)
    assert (outcome.task, outcome.changes[0].came) == (task, "unknown")
    assert "shell(command='ls')" in outcome.open_points[0]


def test_an_approval_comes_first_and_its_edit_is_handed_over() -> None:
    graph = handing_over(SHELL, FINISH, rule={"allowed_decisions": ["edit"], "hand_over": True})
    (asked,) = graph.invoke(GO, THREAD)["__interrupt__"]
    edit = {"type": "edit", "edited_action": {"name": "shell", "args": {"command": "pwd"}}}
    (action,) = graph.invoke(Command(resume={asked.id: [edit]}), THREAD)["__interrupt__"]
    assert (action.value["type"], action.value["args"]) == ("action", {"command": "pwd"})
    result = graph.invoke(Command(resume={action.id: "/home"}), THREAD)
    assert results(result, "shell") == ['<edited> {"command": "pwd"} /home']


def test_where_nobody_can_be_waited_for_the_call_does_not_run() -> None:
    graph = handing_over(SHELL, FINISH, checkpointer=None, store=None)
    assert results(graph.invoke(GO), "shell")[0].startswith("<nobody> shell")


def deploy(place: str) -> str:
    """Deploy."""
    return f"deployed to {place}"


FIRST: dict[str, Any] = {"allowed_decisions": ["approve"], "hand_over": True}
RULES: dict[str, tuple[Any, dict[str, Any] | None, str]] = {
    # Of a tool that writes: the approvals, its metadata, and what it waits for first.
    "no rule": (None, None, ""),
    "of the tool": ({"deploy": "hand_over"}, None, "action"),
    "of its kind": ({"write": "hand_over"}, None, "action"),
    "the tool's no in place of its kind": ({"write": "hand_over", "deploy": False}, None, ""),
    "a person's in place of its kind": ({"write": "hand_over", "deploy": ["approve"]}, None, "approval"),
    "a person first": ({"deploy": FIRST}, None, "approval"),
    "the tool says so": (None, {"hand_over": True}, "action"),
    "the tool says so, and a person first": ({"deploy": True}, {"hand_over": True}, "approval"),
    "the tool says no, its kind says so": ({"write": "hand_over"}, {"hand_over": False}, "action"),
    # What a function returns hands nothing over, and what it does not know asks.
    "a function": (lambda name, args: "hand_over", None, "approval"),
}


@pytest.mark.parametrize("name", RULES)
def test_who_decides_and_who_runs_it(name: str) -> None:
    approvals, metadata, first = RULES[name]
    tool = StructuredTool.from_function(deploy, metadata=metadata)
    model = ScriptedModel([call("deploy", place="x"), FINISH])
    waits = build_graph(model, [tool], approvals=approvals, **saved()).invoke(GO, THREAD).get("__interrupt__")
    assert (waits[0].value["type"] if waits else "") == first


IMPOSSIBLE: dict[str, tuple[Any, str]] = {
    "a tool of a delegate": ({"deploy": "hand_over"}, "deploy"),
    "a finish": ({"finish_task": "hand_over"}, "finish_task"),
    "to edit a finish": ({"finish_task": ["edit"]}, "approve, reject"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_cannot_be_handed_over_or_approved_is_refused(name: str) -> None:
    approvals, named = IMPOSSIBLE[name]
    helper = delegate("helper", build_graph(ScriptedModel([FINISH]), [deploy]), description="Helps.")
    with pytest.raises(SetupError, match=named):
        build_graph(ScriptedModel([]), [helper], approvals=approvals)
