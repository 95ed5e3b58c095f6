"""Folding: the prompt stays within its budget, the history stays whole, and nothing that waits is lost."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately
from langgraph.types import Command

from signoff import Limits, build_graph, sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.messages import is_reply
from signoff.models import ScriptedModel, call, reply
from signoff.tools.files import workspace_tools
from tests.support.histories import assert_sendable

THREAD: Any = {"configurable": {"thread_id": "long"}}
BUDGET = 4_000
TINY = 100
"""Less than the system prompt: a prompt holds one turn, and every turn is summarised before the next one."""
FIRST = "Remember: the word is heron."
FINISH = call("finish_task", summary="All of it.")


def note(text: str) -> str:
    """Note."""
    return f"noted {text}"


def script(turns: int, usage: Any = None) -> list[Any]:
    return [*notes(turns, usage=usage), FINISH]


def notes(turns: int, usage: Any = None) -> list[Any]:
    return [reply(call("note", text=f"{i} " + "x" * 400), usage=usage) for i in range(turns)]


def turns_shown(view: Sequence[BaseMessage]) -> int:
    return sum(is_reply(message) for message in view)


USAGES = {
    "the provider counts": None,
    "it does not": False,
    "it counts more than can be": (80_000, 20),
    "it counts nonsense": (0, 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("usage", USAGES.values(), ids=USAGES)
@pytest.mark.sample(1)
def test_a_long_run_stays_within_the_budget_and_knows_its_task(usage: Any) -> None:
    with ScriptedModel(script(60, usage)) as model:
        graph = build_graph(model, [note], prompt_tokens=BUDGET, limits=Limits(turns=100))
        result = graph.invoke({"messages": [("user", FIRST)]})
    assert result["outcome"]["turns"] == 61
    assert turns_shown(result["messages"]) == 61
    for seen in model.seen:
        assert_sendable(seen.messages)
        assert count_tokens_approximately(seen.messages) <= BUDGET
        assert FIRST in [message.text for message in seen.messages]
    compacted = model.seen[-1].messages[3].text
    assert "older lines are not listed" in compacted
    assert re.search(r"- note\({'text': '\d\d xxx.*-> success: noted", compacted)


def test_what_the_provider_counts_on_top_of_the_estimate_counts() -> None:
    """Tools, say, or a tokenizer with more tokens: 1,500 on top of every prompt."""

    def counted(messages: list[BaseMessage]) -> Any:
        size = count_tokens_approximately(messages) + 1_500
        shown.append(size)
        step = call("note", text=f"{len(shown)} " + "x" * 400)
        return reply(step, usage=(size, 10)) if len(shown) < 60 else FINISH

    shown: list[int] = []
    model = ScriptedModel(counted)
    build_graph(model, [note], prompt_tokens=BUDGET, limits=Limits(turns=100)).invoke({"messages": ["go"]})
    assert len(shown) == 60
    assert max(shown) <= BUDGET


def test_the_prefix_stays_the_same_for_many_turns() -> None:
    with ScriptedModel(script(60)) as model:
        build_graph(model, [note], prompt_tokens=BUDGET, limits=Limits(turns=100)).invoke(
            {"messages": ["go"]}
        )
    summaries = {
        text
        for seen in model.seen
        for text in [m.text for m in seen.messages]
        if "summarised to save space" in text
    }
    assert 1 < len(summaries) < 12


def test_earlier_tasks_are_summarised_and_the_current_one_is_kept(tmp_path: Path) -> None:
    with (
        ScriptedModel([*script(30), *script(30)]) as model,
        sqlite_storage(tmp_path / "threads.sqlite") as storage,
    ):
        graph = build_graph(model, [note], prompt_tokens=BUDGET, limits=Limits(turns=100), storage=storage)
        graph.invoke({"messages": ["the first task"]}, THREAD)
        graph.invoke({"messages": ["the second task"]}, THREAD)
    last = model.seen[-1].messages
    assert "the second task" in [message.text for message in last if isinstance(message, HumanMessage)]
    assert "the first task" not in [message.text for message in last]


def test_one_turn_larger_than_the_budget_is_still_sent() -> None:
    with ScriptedModel(script(3)) as model:
        build_graph(model, [note], prompt_tokens=TINY).invoke({"messages": ["go"]})
    assert [turns_shown(seen.messages) for seen in model.seen] == [0, 1, 1, 1]


# An imported history.


def imported(turns: int, open_calls: int) -> list[BaseMessage]:
    """A long history of another program, whose last calls were never answered."""
    found: list[BaseMessage] = [HumanMessage("an old task")]
    for number in range(turns):
        calls = [{"name": "note", "args": {"text": "x" * 400}, "id": f"c{number}", "type": "tool_call"}]
        found.append(AIMessage("", tool_calls=calls))
        if number < turns - open_calls:
            found.append(ToolMessage("noted", tool_call_id=f"c{number}"))
    return [*found, HumanMessage(FIRST)]


@pytest.mark.parametrize("open_calls", [0, 1, 40])
def test_an_imported_history_fits_from_the_first_prompt_on(open_calls: int) -> None:
    with ScriptedModel(script(2)) as model:
        graph = build_graph(model, [note], prompt_tokens=BUDGET)
        graph.invoke({"messages": imported(40, open_calls)})
    for seen in model.seen:
        assert_sendable(seen.messages)
        assert count_tokens_approximately(seen.messages) <= BUDGET
        assert FIRST in [message.text for message in seen.messages]


def test_a_summary_whose_last_message_was_removed_is_made_anew(tmp_path: Path) -> None:
    with (
        ScriptedModel([*notes(30), call("ask_user", question="Go on?"), *script(2)]) as model,
        sqlite_storage(tmp_path / "threads.sqlite") as storage,
    ):
        graph = build_graph(model, [note], prompt_tokens=BUDGET, limits=Limits(turns=100), storage=storage)
        graph.invoke({"messages": [FIRST]}, THREAD)
        removed = graph.get_state(THREAD).values["digest"]["upto"]
        graph.update_state(
            THREAD, {"messages": [{"role": "remove", "content": "", "id": removed}]}, "ask_user"
        )
        go_on(graph)
        assert go_on(graph)["outcome"]["status"] == "success"
    for seen in model.seen:
        assert_sendable(seen.messages)
        assert count_tokens_approximately(seen.messages) <= BUDGET


def go_on(graph: Graph) -> dict[str, Any]:
    waits = graph.get_state(THREAD).interrupts
    return graph.invoke(Command(resume={waits[0].id: "yes"}) if waits else None, THREAD)


# The last turn alone is too large.


def long(text: str) -> str:
    """Return much."""
    return f"{text} begins " + f"{text} " * 8_000 + f"{text} ends"


def short() -> str:
    """Return little."""
    return "short result"


@pytest.mark.parametrize("results", [1, 3])
def test_the_largest_results_of_the_last_turn_are_cut_and_kept_in_files(
    results: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls = [call("long", text="abc"[number]) for number in range(results)]
    with ScriptedModel([[*calls, call("short")], *notes(3), FINISH]) as model:
        graph = build_graph(
            model,
            [long, short, note],
            prompt_tokens=BUDGET,
            result_chars=10**6,
            limits=Limits(turns=9),
        )
        history = graph.invoke({"messages": [FIRST]})["messages"]
    for seen in model.seen:
        assert_sendable(seen.messages)
        assert count_tokens_approximately(seen.messages) <= BUDGET
    whole = [m.text for m in history if isinstance(m, ToolMessage) and m.name == "long"]
    cut = [m.text for m in model.seen[1].messages if isinstance(m, ToolMessage) and m.name == "long"]
    assert len(whole) == len(cut) == results
    for text, shown, name in zip(whole, cut, "abc", strict=False):
        assert len(text) > 16_000
        assert shown.startswith(f"{name} begins ")
        assert shown.endswith(f" {name} ends")
        (place,) = re.findall(r"the full text is in (\S+) ", shown)
        assert Path(place).read_text("utf-8") == text
    assert "short result" in [message.text for message in model.seen[1].messages]
    assert "long(" in model.seen[2].messages[3].text, "the next prompt has it in the summary"


def test_what_was_cut_is_kept_where_the_model_can_read_it(tmp_path: Path) -> None:
    """With the tools of a workspace that is in the workspace."""

    def reads(messages: list[BaseMessage]) -> Any:
        found = [re.search(r"the full text is in (\S+) ", message.text) for message in messages]
        return call("read_file", path=next(match[1] for match in found if match))

    def ends(messages: list[BaseMessage]) -> Any:
        assert "1|a begins a a" in messages[-1].text
        return FINISH

    with ScriptedModel([call("long", text="a"), reads, ends]) as model:
        tools: list[Any] = [long, *workspace_tools(tmp_path)]
        result = build_graph(model, tools, prompt_tokens=BUDGET).invoke({"messages": [FIRST]})
    assert result["outcome"]["status"] == "success"
