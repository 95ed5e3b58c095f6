"""Where work in the tagged protocol stands: a failed execution makes it `Debugging`."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from signoff.graph.messages import KEY as MARKS
from signoff.graph.messages import not_run, nudge
from signoff.models.text_protocol.status import KEY, Position, Progress, current_status, positions

TASK = HumanMessage("Do it.")


def thought(status: str | None = None, approach: str | None = None, own: str | None = None) -> AIMessage:
    """A reply with a thought; `own`: what the model said where its status was forced."""
    args = {"thought": "t", "approach": approach, "status": status}
    calls = [{"name": "think", "args": args, "id": "t", "type": "tool_call"}]
    notes = {} if own is None else {"status": own}
    return AIMessage("", tool_calls=calls, response_metadata={KEY: notes})


def ran(ok: bool, name: str | None = "run_python", call_id: str = "c") -> ToolMessage:
    return ToolMessage("", tool_call_id=call_id, name=name, status="success" if ok else "error")


def called(name: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": {}, "id": "c", "type": "tool_call"}])


CASES: Mapping[str, tuple[Sequence[BaseMessage], Progress]] = {
    "nothing": ([], Progress(None, None)),
    "no thought": ([TASK], Progress(None, None)),
    "the model's own": ([TASK, thought("Working", "look")], Progress("look", "Working")),
    "the last one": ([thought("A", "x"), thought("B", "y")], Progress("y", "B")),
    "what is not said stays": ([thought("A", "x"), thought("B")], Progress("x", "B")),
    "code that ran": ([thought("A"), ran(True)], Progress(None, "A")),
    "code that failed": ([thought("A", "x"), ran(False)], Progress("x", "Debugging")),
    "a thought after it": ([thought("A"), ran(False), thought("B")], Progress(None, "B")),
    "repaired": ([thought("A"), ran(False), thought("Debugging", own="B"), ran(True)], Progress(None, "B")),
    "repaired in silence": ([thought("A"), ran(False), ran(True)], Progress(None, "A")),
    "failed again": (
        [thought("A"), ran(False), thought("Debugging", own="B"), ran(False)],
        Progress(None, "Debugging"),
    ),
    "the last of several": ([thought("A"), ran(False), ran(True)], Progress(None, "A")),
    "a shell": ([ran(False, "run_shell")], Progress(None, "Debugging")),
    "another tool": ([thought("A"), ran(False, "read_file")], Progress(None, "A")),
    "a result without a name": ([called("run_python"), ran(False, None)], Progress(None, "Debugging")),
    "a result of nothing known": ([ran(False, None)], Progress(None, None)),
    "not run": ([thought("A"), not_run("c", "run_python", "no", "rejected")], Progress(None, "A")),
    "a reminder": ([thought("A"), nudge("talked", "go on")], Progress(None, "A")),
    "an answer": (
        [thought("A"), HumanMessage("yes", additional_kwargs={MARKS: {"answers": ["q"]}})],
        Progress(None, "A"),
    ),
    "a new task": ([thought("Finished", "x"), ran(False), TASK], Progress(None, None)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_approach_and_status(case: str) -> None:
    messages, expected = CASES[case]
    assert current_status(messages) == expected
    assert current_status(messages) == current_status([*messages])


def test_other_executors_and_another_thought() -> None:
    messages: list[Any] = [thought("A"), called("note"), ran(False), ran(False, "deploy")]
    assert current_status(messages, executors=["deploy"]).status == "Debugging"
    assert current_status(messages, executors=[]).status == "A"
    assert current_status(messages, executors=[], think="note").status is None


def test_after_every_message() -> None:
    found = positions([thought("A"), ran(False), thought("Debugging", own="B"), ran(True)])
    assert [(at.status, at.own, at.failing) for at in found] == [
        ("A", "A", False),
        ("Debugging", "A", True),
        ("Debugging", "B", True),
        ("B", "B", False),
    ]
    assert list(positions([])) == []
    assert Position() == Position(None, None, None, False)
