"""A finish that a person must confirm: what is asked, what the model is told, and what may come between."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from signoff import ControlTool, Effect, build_graph, go_on, sqlite_storage
from signoff.graph.messages import KEY, marks
from signoff.models import ScriptedModel, call
from signoff.nodes.journal import recorded
from signoff.storage.sqlite import SqliteStorage
from signoff.tools.control import standard_controls
from tests.support.cases.confirm import CONFIRM, NO_MESSAGE
from tests.support.cases.loop import FINISH, GO, THREAD
from tests.support.histories import ai, done, user

START: Any = {"messages": GO}


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


NO_ISSUES: list[Any] = [None, "", [], [" "], "none", ["None."], ["N/A"], ["no issues"], ["none", ""]]


@pytest.mark.parametrize("issues", NO_ISSUES)
def test_words_for_no_open_problem_are_none(issues: Any, storage: SqliteStorage) -> None:
    """Small models fill in something."""
    graph = build_graph(
        ScriptedModel([call("finish_task", summary="x", pending_issues=issues)]), storage=storage
    )
    assert graph.invoke(START, THREAD)["outcome"]["pending_issues"] == []


def test_the_claim_is_the_payload_of_the_interrupt(storage: SqliteStorage) -> None:
    step = call("finish_task", summary="All of it.", pending_issues="the logo", outcome="done")
    (pending,) = build_graph(ScriptedModel([step]), storage=storage).invoke(START, THREAD)["__interrupt__"]
    assert pending.value == {
        "type": "confirmation",
        "call_id": "call_1",
        "summary": "All of it.",
        "claim": "done",
        "pending_issues": ["the logo"],
    }


def finish_result(values: dict[str, Any]) -> ToolMessage:
    """The result of the first finish."""
    return next(m for m in values["messages"] if isinstance(m, ToolMessage) and m.name == "finish_task")


GOES_ON = "\nGo on with the task, then call finish_task again."
TOLD: dict[str, tuple[Any, str]] = {
    "a yes": ("yes", "Accepted. A person confirmed it. The task has ended."),
    "a yes with words": (
        {"type": "approve", "message": "Well done."},
        "Accepted. A person confirmed it. The task has ended. Well done.",
    ),
    "feedback": ("The {title}.", f"A person did not accept this: The {{title}}.{GOES_ON}"),
    "a no": (False, f"A person did not accept this: (no feedback){GOES_ON}"),
    "nothing": (None, f"A person did not accept this: (no feedback){GOES_ON}"),
    "no words": (" ", f"A person did not accept this: (no feedback){GOES_ON}"),
    "an empty object": ({}, f"A person did not accept this: (no feedback){GOES_ON}"),
    "a number": (7, f"A person did not accept this: 7{GOES_ON}"),
    "something else": ({"type": "maybe"}, f'A person did not accept this: {{"type": "maybe"}}{GOES_ON}'),
    "an odd key": ({("a", 1): 2}, f"A person did not accept this: {{('a', 1): 2}}{GOES_ON}"),
}


@pytest.mark.parametrize("name", TOLD)
def test_the_model_is_told_and_no_answer_raises(name: str, storage: SqliteStorage) -> None:
    answer, told = TOLD[name]
    graph = build_graph(ScriptedModel([CONFIRM, FINISH]), storage=storage)
    (pending,) = graph.invoke(START, THREAD)["__interrupt__"]
    result = graph.invoke(Command(resume={pending.id: answer}), THREAD)
    assert finish_result(result).text == told
    assert (result["outcome"]["status"], result["outcome"]["refusals"]) == (
        "success",
        int("not accept" in told),
    )


@pytest.mark.parametrize("answer", [Command(resume="no"), {"messages": NO_MESSAGE}, Command(resume="yes")])
def test_another_process_picks_up_a_thread_that_waits(answer: Any, tmp_path: Path) -> None:
    file = tmp_path / "threads.sqlite"
    with sqlite_storage(file) as storage:
        asked = build_graph(ScriptedModel([CONFIRM]), storage=storage).invoke(START, THREAD)
    sent_back = answer != Command(resume="yes")
    script = [CONFIRM] if sent_back else []
    with sqlite_storage(file) as storage, ScriptedModel(script) as model:
        graph = build_graph(model, storage=storage)
        assert graph.get_state(THREAD).interrupts[0].value == asked["__interrupt__"][0].value
        graph.invoke(answer, THREAD)
    with sqlite_storage(file) as storage:
        graph = build_graph(ScriptedModel([]), storage=storage)
        if sent_back:
            graph.invoke(Command(resume="yes"), THREAD)
        outcome = graph.get_state(THREAD).values["outcome"]
        history = graph.get_state(THREAD).values["messages"]
    assert (outcome["status"], outcome["refusals"], outcome["turns"]) == ("success", sent_back, 1 + sent_back)
    results = [message for message in history if isinstance(message, ToolMessage)]
    assert [bool(marks(found).get("confirmed")) for found in results] == [False] * sent_back + [True]


def test_the_time_of_waiting_is_noted(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel([CONFIRM]), storage=storage)
    reply = graph.invoke(START, THREAD)["messages"][-1]
    earlier = {**reply.response_metadata[KEY], "at": reply.response_metadata[KEY]["at"] - 3600}
    metadata = {**reply.response_metadata, KEY: earlier}
    old = reply.model_copy(update={"response_metadata": metadata})
    graph.update_state(THREAD, {"messages": [old]}, as_node="review")
    graph.update_state(THREAD, {"event": "needs a person"}, as_node="review")
    graph.invoke(None, THREAD)
    outcome = graph.invoke(Command(resume="yes"), THREAD)["outcome"]
    assert 3600 <= outcome["seconds_waiting"] < 3700


def test_without_a_checkpointer_nobody_can_be_asked() -> None:
    outcome = build_graph(ScriptedModel([CONFIRM])).invoke(START)["outcome"]
    assert (outcome["status"], outcome["reason"]) == ("error", "needs_person")
    assert (outcome["claim"], outcome["verified"], outcome["summary"]) == ("done", None, "All of it.")
    assert outcome["pending_issues"] == ["The model asks a person to confirm the result."]
    assert (outcome["open_work"], outcome["turns"]) == ([], 1)
    assert "storage=" in outcome["error"]


def test_a_done_with_open_issues_ends_so_too_after_its_checks() -> None:
    script = [call("finish_task", summary="Done.", pending_issues=["The README is old."])]
    graph = build_graph(ScriptedModel(script), checks=["echo 3 passed"])
    outcome = graph.invoke(START)["outcome"]
    assert (outcome["status"], outcome["reason"], outcome["claim"]) == ("error", "needs_person", "done")
    assert outcome["pending_issues"] == ["The README is old."]
    assert outcome["checks"] == [{"name": "echo 3 passed", "passed": True, "said": "3 passed"}]


def test_an_honest_partial_with_open_issues_needs_nobody() -> None:
    script = [call("finish_task", summary="Half.", outcome="partial", pending_issues=["The rest."])]
    outcome = build_graph(ScriptedModel(script)).invoke(START)["outcome"]
    assert (outcome["status"], outcome["claim"]) == ("success", "partial")


def test_a_message_before_a_person_was_asked_begins_a_new_task(storage: SqliteStorage) -> None:
    """The process was killed between the reply and its review."""
    graph = build_graph(ScriptedModel([CONFIRM, FINISH]), storage=storage)
    graph.invoke(START, THREAD, interrupt_before=["review"])
    result = graph.invoke({"messages": NO_MESSAGE}, THREAD)
    assert finish_result(result).text.startswith("Superseded, not run")
    found = [(outcome.reason, outcome.refusals) for outcome in recorded(storage.store, "a thread")]
    assert found == [("superseded", 0), ("finish_task", 0)]


def test_a_message_may_be_marked_to_begin_a_task(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel([CONFIRM, FINISH]), storage=storage)
    graph.invoke(START, THREAD)
    message = user("and now that").model_copy(update={"additional_kwargs": {KEY: {"begins": True}}})
    outcome = graph.invoke({"messages": [message]}, THREAD)["outcome"]
    assert (outcome["status"], outcome["turns"], outcome["refusals"]) == ("success", 1, 0)
    assert [found.reason for found in recorded(storage.store, "a thread")] == ["superseded", "finish_task"]


def test_feedback_is_shown_once_as_the_result(storage: SqliteStorage) -> None:
    with ScriptedModel([CONFIRM, FINISH]) as model:
        graph = build_graph(model, storage=storage)
        graph.invoke(START, THREAD)
        graph.invoke({"messages": NO_MESSAGE}, THREAD)
    texts = [str(message.text) for message in model.seen[-1].messages]
    assert sum("The title is wrong." in text for text in texts) == 1


def test_a_message_that_comes_by_an_update_is_feedback_too(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel([CONFIRM, FINISH]), storage=storage)
    graph.invoke(START, THREAD)
    graph.update_state(THREAD, {"messages": NO_MESSAGE})
    outcome = graph.invoke(None, THREAD)["outcome"]
    assert (outcome["status"], outcome["refusals"], outcome["turns"]) == ("success", 1, 2)


def test_a_command_may_answer_and_add_a_message(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel([CONFIRM, FINISH]), storage=storage)
    graph.invoke(START, THREAD)
    both: Any = Command(resume="yes", update={"messages": NO_MESSAGE})
    outcome = graph.invoke(both, THREAD)["outcome"]
    assert (outcome["status"], outcome["refusals"]) == ("success", 1)


def with_args(reply: AIMessage, **args: Any) -> AIMessage:
    changed = {**reply.tool_calls[0], "args": args}
    return reply.model_copy(update={"tool_calls": [changed]})


CHANGES: dict[str, tuple[Any, str, int]] = {
    "the claim became invalid": (lambda reply: with_args(reply, summary=" "), "Refused", 2),
    "another problem stays open": (
        lambda reply: with_args(reply, summary="x", pending_issues=["y"]),
        "Accepted. A person confirmed it.",
        1,
    ),
    "a newer finish that needs nobody": (
        lambda reply: ai(("finish_task", "g")),
        "Not run: the conversation",
        2,
    ),
    "the call got a result": (
        lambda reply: ToolMessage("ok", tool_call_id=reply.tool_calls[0]["id"], name="finish_task"),
        "ok",
        1,
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_history_that_was_changed_while_it_waited(name: str, storage: SqliteStorage) -> None:
    change, told, turns = CHANGES[name]
    graph = build_graph(ScriptedModel([CONFIRM, FINISH]), storage=storage)
    reply = graph.invoke(START, THREAD)["messages"][-1]
    graph.update_state(THREAD, {"messages": [change(reply)]})
    result = graph.invoke(None, THREAD)
    if result.get("__interrupt__"):
        result = graph.invoke(Command(resume="yes"), THREAD)
    assert finish_result(result).text.startswith(told)
    assert (result["outcome"]["status"], result["outcome"]["turns"]) == ("success", turns)


def test_a_stop_while_it_waits_cancels_the_task(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel([CONFIRM]), storage=storage)
    graph.invoke(START, THREAD)
    graph.update_state(THREAD, {"stop": graph.get_state(THREAD).values["task"]}, as_node="compress")
    outcome = graph.invoke(None, THREAD)["outcome"]
    assert (outcome["reason"], outcome["refusals"], outcome["claim"]) == ("cancelled", 0, None)
    assert outcome["open_work"][0].startswith("finish_task(")


def test_a_thread_that_lost_its_next_step_asks_again(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel([CONFIRM]), storage=storage)
    graph.invoke(START, THREAD, interrupt_before=["confirm"])
    graph.update_state(THREAD, {}, as_node="finish")
    result = graph.invoke(go_on(graph.get_state(THREAD)), THREAD)
    assert result["__interrupt__"][0].value["type"] == "confirmation"


def test_a_finish_tool_of_ones_own_takes_part() -> None:
    def hand_in(report: str, requires_user_confirmation: bool = True) -> str:
        """Hand the work in."""
        return report

    controls = [*standard_controls(), ControlTool(tool(hand_in), Effect.FINISH)]
    model = ScriptedModel([call("hand_in", report="42")])
    graph = build_graph(model, control_tools=controls, checkpointer=InMemorySaver(), store=InMemoryStore())
    (pending,) = graph.invoke(START, THREAD)["__interrupt__"]
    assert (pending.value["claim"], pending.value["summary"]) == ("done", "report: 42")
    outcome = graph.invoke(Command(resume="yes"), THREAD)["outcome"]
    assert (outcome["status"], outcome["reason"], outcome["pending_issues"]) == ("success", "hand_in", [])


def test_an_import_in_which_two_finishes_have_one_id(storage: SqliteStorage) -> None:
    """Feedback belongs to the one that was shown, and the other does not come back."""
    needs = ("finish_task", "1", {"summary": "b", "requires_user_confirmation": True})
    history = [user(), ai(("finish_task", "1", {"summary": "a"})), done("1"), ai(needs), done("1")]
    with ScriptedModel([FINISH]) as model:
        graph = build_graph(model, storage=storage)
        assert graph.invoke({"messages": history}, THREAD)["__interrupt__"][0].value["summary"] == "b"
        outcome = graph.invoke({"messages": NO_MESSAGE}, THREAD)["outcome"]
    assert (outcome["summary"], outcome["turns"], outcome["refusals"]) == ("All of it.", 3, 1)
