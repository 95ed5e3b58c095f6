"""Control tools that are added, or called by other names, by configuration alone."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.types import Command

from signoff import ControlTool, Effect, build_graph
from signoff.graph.errors import SetupError
from signoff.models import ScriptedModel, call
from signoff.tools.control import standard_controls
from tests.support.cases.loop import FINISH, GO, SUCCESS, WRITE
from tests.support.reviews import Review, both_modes, play


@tool
def escalate(reason: str) -> str:
    """Give the task to a person."""
    return f"Paged a person: {reason}"


@both_modes
@pytest.mark.parametrize(
    ("effect", "case"),
    [
        (
            Effect.FINISH,
            Review(
                [call("escalate", reason="too hard")],
                ends={"status": "success", "reason": "escalate", "result": "Paged a person: too hard"},
            ),
        ),
        (
            Effect.ASK,
            Review(
                [call("escalate", reason="too hard"), FINISH],
                given=[GO, Command(resume="try again")],
                asks={"type": "question", "question": '{"reason": "too hard"}'},
                ends={**SUCCESS, "turns": 2},
                says=["try again"],
            ),
        ),
        (
            Effect.CONTINUE,
            Review([call("escalate", reason="x"), FINISH], ends={**SUCCESS, "turns": 2}, says=["Noted."]),
        ),
    ],
)
async def test_escalate_is_added_by_configuration(
    effect: Effect, case: Review, mode: str, tmp_path: Path
) -> None:
    case.options = {"control_tools": [*standard_controls(), ControlTool(escalate, effect)]}
    await play(case, mode, tmp_path)


TASK_DONE = call("task_done", summary="All of it.")
NAMED = {
    "an alias": (standard_controls(aliases=["task_done"]), TASK_DONE, "finish_task"),
    "an alias beside which finish_task stays": (
        standard_controls(aliases=["task_done"]),
        FINISH,
        "finish_task",
    ),
    "a slip of an alias": (
        standard_controls(aliases=["task_done"]),
        call("functions.task_done", summary="All of it."),
        "finish_task",
    ),
    "another name": (standard_controls(finish="task_done"), TASK_DONE, "task_done"),
    "another name, of which finish_task is an alias": (
        standard_controls(finish="task_done"),
        FINISH,
        "task_done",
    ),
}


@both_modes
@pytest.mark.parametrize("name", NAMED)
async def test_finish_task_by_other_names(name: str, mode: str, tmp_path: Path) -> None:
    controls, step, reason = NAMED[name]
    case = Review([step], options={"control_tools": controls}, ends={**SUCCESS, "reason": reason, "turns": 1})
    await play(case, mode, tmp_path)


def test_an_alias_stops_the_stream_too() -> None:
    """What follows it never comes."""
    graph = build_graph(
        ScriptedModel([[TASK_DONE, WRITE]]), control_tools=standard_controls(aliases=["task_done"])
    )
    messages = graph.invoke({"messages": GO})["messages"]
    assert [found["name"] for found in messages[1].tool_calls] == ["finish_task"]


def test_another_name_is_told_everywhere() -> None:
    with ScriptedModel(["hm", call("task_done", summary=""), TASK_DONE]) as model:
        build_graph(model, control_tools=standard_controls(finish="task_done")).invoke({"messages": GO})
    for seen in model.seen:
        assert "finish_task" not in "\n".join(message.text for message in seen.messages)
        assert "finish_task" not in str(seen.tools)
    assert "call task_done" in model.seen[-1].messages[3].text
    assert "task_done" in model.seen[0].messages[0].text


def test_a_finishing_tool_in_place_of_finish_task_is_told() -> None:
    with ScriptedModel([call("escalate", reason="x")]) as model:
        build_graph(model, control_tools=[ControlTool(escalate, Effect.FINISH)]).invoke({"messages": GO})
    assert "Call `escalate`" in model.seen[0].messages[0].text


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an alias that is a control tool": (
        {"control_tools": standard_controls(aliases=["think"])},
        "the same name",
    ),
    "an alias twice": ({"control_tools": standard_controls(aliases=["done", "done"])}, "the same name"),
    "an alias that is a tool": (
        {"tools": [escalate], "control_tools": standard_controls(aliases=["escalate"])},
        "the name of a control tool",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_names_that_clash_are_told_at_once(name: str) -> None:
    options, says = WRONG[name]
    with pytest.raises(SetupError, match=says):
        build_graph(ScriptedModel([]), **options)


def test_only_a_finish_can_be_decided() -> None:
    with pytest.raises(SetupError, match=r"needs Effect\.FINISH"):
        ControlTool(escalate, Effect.ASK, decide=lambda value: Effect.FINISH)
