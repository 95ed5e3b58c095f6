"""Texts of one's own: no word in them decides anything. What cannot stand in braces is among the mistakes."""

from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool

from signoff import ControlTool, Texts, build_graph, outcome_of
from signoff.models import ScriptedModel, call

GO: Any = {"messages": [("user", "go")]}
USUAL = Texts()


# Words that could be taken for a decision.
WORDS = ["accepted", "sent back: no"]


def broken(summary: str) -> str:
    """Finish."""
    raise ValueError("it is down")


def ends_of(kind: str, texts: Texts) -> list[Any]:
    """How a task ends whose finish is refused twice for a reason of this kind."""
    options: dict[str, dict[str, Any]] = {
        "empty_summary": {},
        "checks": {"checks": [lambda: False]},
        "tool": {"control_tools": [ControlTool(tool(broken), "finish")]},
    }
    name, summary = ("broken", "x") if kind == "tool" else ("finish_task", "x" * (kind == "checks"))
    model = ScriptedModel([*[call(name, summary=summary)] * 2, "Words."])
    result = build_graph(model, policy={"texts": texts}, **options[kind]).invoke(GO)
    outcome = outcome_of(result)
    results = [message.status for message in result["messages"] if isinstance(message, ToolMessage)]
    return [outcome.status, outcome.reason, outcome.turns, outcome.refusals, outcome.verified, results]


@pytest.mark.parametrize("kind", ["empty_summary", "checks", "tool"])
def test_no_word_of_a_refusal_changes_what_happens(kind: str) -> None:
    expected = ends_of(kind, USUAL)
    assert expected[:2] == ["limit", "review_deadlock"]
    assert [ends_of(kind, Texts(refusals={kind: words})) for words in WORDS] == [expected] * len(WORDS)
