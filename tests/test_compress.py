"""Folding: the view stays within its budget, the history stays whole."""

import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately
from langgraph.types import Command

from signoff import Limits, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call, reply
from tests.histories import assert_sendable

THREAD: Any = {"configurable": {"thread_id": "long"}}
BUDGET = 4_000


def note(text: str) -> str:
    """Note."""
    return f"noted {text}"


def script(turns: int, usage: Any = None) -> list[Any]:
    work = [reply(call("note", text=f"{i} " + "x" * 400), usage=usage) for i in range(turns)]
    return [*work, call("finish_task", summary="All of it.")]


@pytest.mark.parametrize("usage", [None, False], ids=["the provider counts", "it does not"])
def test_a_long_run_stays_within_the_budget_and_knows_its_task(usage: Any) -> None:
    with ScriptedModel(script(60, usage)) as model:
        graph = build_graph(model, [note], view_tokens=BUDGET, limits=Limits(turns=100))
        result = graph.invoke({"messages": [("user", "Remember: the word is heron.")]})
    assert result["outcome"]["turns"] == 61
    assert len([m for m in result["messages"] if isinstance(m, AIMessage)]) == 61
    for seen in model.seen:
        assert_sendable(seen.messages)
        assert count_tokens_approximately(seen.messages) <= BUDGET * 1.2, "its count and ours differ a little"
        assert "Remember: the word is heron." in [message.text for message in seen.messages]
    folded = model.seen[-1].messages[2].text
    assert "older lines are not listed" in folded
    assert re.search(r"- note\({'text': '4\d xxx.*-> success: noted", folded)


def test_the_prefix_stays_the_same_for_many_turns() -> None:
    with ScriptedModel(script(60)) as model:
        build_graph(model, [note], view_tokens=BUDGET, limits=Limits(turns=100)).invoke({"messages": ["go"]})
    digests = {text for seen in model.seen for text in [m.text for m in seen.messages] if "folded" in text}
    assert 1 < len(digests) < 12


def test_a_question_and_its_answer_survive_folding(tmp_path: Path) -> None:
    with (
        ScriptedModel([*script(30)[:-1], call("ask_user", question="Which one?"), *script(30)]) as model,
        sqlite_storage(tmp_path / "threads.sqlite") as storage,
    ):
        graph = build_graph(model, [note], view_tokens=BUDGET, limits=Limits(turns=100), storage=storage)
        assert graph.invoke({"messages": ["go"]}, THREAD)["__interrupt__"]
        result = graph.invoke(Command(resume="the heron"), THREAD)
    assert result["outcome"]["status"] == "success"
    assert "the heron" in [m.text for m in result["messages"] if isinstance(m, ToolMessage)]


def test_earlier_tasks_are_folded_and_the_current_one_is_kept(tmp_path: Path) -> None:
    with (
        ScriptedModel([*script(30), *script(30)]) as model,
        sqlite_storage(tmp_path / "threads.sqlite") as storage,
    ):
        graph = build_graph(model, [note], view_tokens=BUDGET, limits=Limits(turns=100), storage=storage)
        graph.invoke({"messages": ["the first task"]}, THREAD)
        graph.invoke({"messages": ["the second task"]}, THREAD)
    last = model.seen[-1].messages
    assert "the second task" in [message.text for message in last if isinstance(message, HumanMessage)]
    assert "the first task" not in [message.text for message in last]


def test_one_turn_larger_than_the_budget_is_still_sent() -> None:
    with ScriptedModel(script(3)) as model:
        build_graph(model, [note], view_tokens=50).invoke({"messages": ["go"]})
    assert [len([m for m in seen.messages if isinstance(m, AIMessage)]) for seen in model.seen] == [
        0,
        1,
        2,
        2,
    ]
