"""The whole loop with a scripted model: each case is a script, the way it goes, and how it ends."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.types import Command

from signoff import build_graph, sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.messages import is_genuine
from signoff.models import ScriptedModel
from tests.support.cases.confirm import CONFIRMING
from tests.support.cases.loop import ASK, CASES, FINISH, GO, THINK, THREAD, WRITE, Bench
from tests.support.histories import assert_sendable

ALL = {**CASES, **CONFIRMING}


def answered(messages: list[BaseMessage]) -> bool:
    """Whether every call of the history has exactly one result."""
    calls = [
        found["id"]
        for message in messages
        if isinstance(message, AIMessage)
        for found in [*message.tool_calls, *message.invalid_tool_calls]
    ]
    results = [message.tool_call_id for message in messages if isinstance(message, ToolMessage)]
    return sorted(map(str, calls)) == sorted(results)


async def go(graph: Graph, given: Any, mode: str) -> dict[str, Any]:
    what = given if isinstance(given, Command) else {"messages": given}
    return await graph.ainvoke(what, THREAD) if mode == "async" else graph.invoke(what, THREAD)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("name", ALL)
@pytest.mark.sample(100)
async def test_case(name: str, mode: str, tmp_path: Path) -> None:
    case, bench = ALL[name], Bench()
    with (
        ScriptedModel(case.script, disable_streaming=not case.streamed) as model,
        sqlite_storage(tmp_path / "threads.sqlite") as storage,
    ):
        graph = build_graph(model, bench.tools(), limits=case.limits, storage=storage)
        for given in case.given:
            result = await go(graph, given, mode)
    assert bench.ran == case.ran
    outcome, messages = result["outcome"], result["messages"]
    if case.ends is None:
        assert outcome is None
        assert result["__interrupt__"]
    else:
        assert {key: outcome[key] for key in case.ends} == case.ends
        assert answered(messages)
    shown = "\n".join(str(message.text) for message in messages if not isinstance(message, AIMessage))
    assert [text for text in case.says if text not in shown] == []
    for seen in model.seen:
        assert_sendable(seen.messages)


def test_a_question_without_a_checkpointer_ends_with_the_question() -> None:
    with ScriptedModel([ASK]) as model:
        outcome = build_graph(model).invoke({"messages": GO})["outcome"]
    assert (outcome["status"], outcome["reason"]) == ("error", "needs_person")
    assert "Which one?" in outcome["error"]


def test_the_question_is_the_payload_of_the_interrupt(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        result = build_graph(ScriptedModel([ASK]), storage=storage).invoke({"messages": GO}, THREAD)
    (pending,) = result["__interrupt__"]
    assert pending.value == {
        "type": "question",
        "question": "Which one?",
        "options": ["red", "blue"],
        "call_id": "call_1",
    }


def test_system_messages_join_the_prompt_in_order() -> None:
    with ScriptedModel([FINISH]) as model:
        graph = build_graph(model, system_prompt="You are Ada.")
        graph.invoke({"messages": [("system", "Be kind."), ("user", "do it"), ("system", "Be brief.")]})
    system = model.seen[0].messages[0].text
    assert system.startswith("You are Ada.")
    assert system.endswith("Be kind.\n\nBe brief.")
    assert "finish_task" in system


def test_the_prompt_stays_byte_identical_over_a_run() -> None:
    with ScriptedModel([WRITE, "talk", THINK, FINISH]) as model:
        build_graph(model, Bench().tools()).invoke({"messages": GO})
    for before, after in zip(model.seen, model.seen[1:], strict=False):
        assert after.messages[: len(before.messages)] == before.messages


def test_an_answer_is_shown_once_as_the_result(tmp_path: Path) -> None:
    with ScriptedModel([ASK, FINISH]) as model, sqlite_storage(tmp_path / "t.sqlite") as storage:
        graph = build_graph(model, storage=storage)
        graph.invoke({"messages": GO}, THREAD)
        graph.invoke({"messages": [("user", "green")]}, THREAD)
    view = model.seen[-1].messages
    assert [str(message.text) for message in view].count("green") == 1
    assert [type(m) for m in view if is_genuine(m)] == [HumanMessage]


def test_the_state_says_why_the_machine_went_where_it_went(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        graph = build_graph(ScriptedModel([ASK]), storage=storage)
        graph.invoke({"messages": GO}, THREAD)
        decision = graph.get_state(THREAD).values["decision"]
    assert decision == {"rule": "asked", "event": "asked", "why": "ask_user stands (call_1)"}
