"""Texts of one's own: they take the place of the usual ones everywhere, and no word in them decides anything.

What cannot stand in braces is among the mistakes.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool

from signoff import ControlTool, Limits, Session, Texts, build_graph, outcome_of
from signoff.models import ScriptedModel, call, reply
from tests.support.plays import THREAD, saved

GO: Any = {"messages": [("user", "go")]}
USUAL = Texts()


def every(mark: str) -> Texts:
    """The usual texts, each with `mark` before it."""
    parts: dict[str, Any] = {}
    for part in fields(Texts):
        text = getattr(USUAL, part.name)
        one = not isinstance(text, Mapping)
        parts[part.name] = mark + text if one else {key: mark + each for key, each in text.items()}
    return Texts(**parts)


def look(n: int) -> str:
    """Look at something."""
    return "x" * 400


# A way that passes most of the texts.
SCRIPT: list[Any] = [
    "I have talked.",
    "",
    call("nothing_of_this_name"),
    [call("look", n=1), call("think", thought="so")],
    call("look", n="many"),
    *(call("look", n=n) for n in range(8)),
    call("look", n=7),
    call("look", n=7),
    call("look", n=7),
    call("finish_task", summary=""),
    call("finish_task", summary="half", completion_percentage=50),
    call("ask_user", question="Which?"),
    call("finish_task", summary="whole", requires_user_confirmation=True),
    call("finish_task", summary="again", requires_user_confirmation=True),
]


def seen_by_a_model(texts: Texts) -> list[str]:
    """What a model is shown on that way, and what the tools are described with."""
    model = ScriptedModel(SCRIPT)
    graph = build_graph(model, [look], **saved(), policy={"texts": texts, "prompt_tokens": 2_500})
    session = Session(graph, "t")
    session.run("go")
    for answer in ("", "not yet", "yes"):
        session.resume(answer)
    shown = [message.text for seen in model.seen for message in seen.messages]
    history = graph.get_state(THREAD).values["messages"]
    tools = [tool["function"]["description"] for tool in model.seen[0].tools]
    return [*shown, *(message.text for message in history), *tools]


def test_a_doubled_brace_is_one_in_every_text() -> None:
    shown = seen_by_a_model(every("{{§}} "))
    assert not [text for text in shown if "{{" in text or "}}" in text]
    assert sum("{§}" in text for text in shown) > 100
    assert len(seen_by_a_model(USUAL)) == len(shown), "the same way was gone"


def test_a_text_that_is_empty_refuses_as_well() -> None:
    noted: list[int] = []

    @tool
    def note(n: int) -> str:
        """Note."""
        noted.append(n)
        return "noted"

    quiet = Texts(results={**dict.fromkeys(USUAL.results, ""), "undone": "{calls}"})
    script: list[Any] = [reply("", *(call("note", n=n) for n in range(3))), call("finish_task", summary="x")]
    model = ScriptedModel(script)
    build_graph(model, [note], limits=Limits(calls_per_reply=1), policy={"texts": quiet}).invoke(GO)
    assert noted == [0]


# Words that could be taken for a decision.
WORDS = ["accepted", "needs a person", "goes on", "sent back: no"]


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
