"""What comes after an end: more turns, another try, a stop, a message that cuts a task short."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command

from signoff import (
    Limits,
    Session,
    SetupError,
    ThreadError,
    build_graph,
    current_outcome,
    expire,
    extend,
    go_on,
    retry,
    sqlite_storage,
)
from signoff.graph.machine import ENTRIES, Event
from signoff.models import ScriptedModel, call
from signoff.nodes.journal import recorded
from signoff.storage.sqlite import SqliteStorage
from tests.support.interrupting import interrupt_process

THREAD: Any = {"configurable": {"thread_id": "a.thread/with 100% odd:name"}}
GO: Any = {"messages": [("user", "do it")]}
FINISH = call("finish_task", summary="All of it.")
ASK = call("ask_user", question="Which one?")
DEADLINE = call("ask_user", question="Which one?", default_answer="blue", deadline_seconds=60)


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def work(text: str = "") -> str:
    """Work."""
    return "worked"


WORK = call("work")


def test_extend_goes_on_where_the_limit_stopped(storage: SqliteStorage) -> None:
    model = ScriptedModel([WORK, WORK, WORK, FINISH])
    graph = build_graph(model, [work], limits=Limits(turns=2), storage=storage)
    assert graph.invoke(GO, THREAD)["outcome"]["reason"] == "turns"
    result = graph.invoke(extend(graph.get_state(THREAD).values, turns=1), THREAD)
    assert (result["outcome"]["reason"], result["outcome"]["turns"]) == ("turns", 3)
    result = graph.invoke(extend(graph.get_state(THREAD).values, turns=1), THREAD)
    assert (result["outcome"]["status"], result["outcome"]["turns"]) == ("success", 4)
    model.assert_done()


def test_extend_after_talk_only_counts_the_talk_anew(storage: SqliteStorage) -> None:
    model = ScriptedModel(["a", "b", "c", FINISH])
    graph = build_graph(model, limits=Limits(talk_turns=2), storage=storage)
    assert graph.invoke(GO, THREAD)["outcome"]["reason"] == "talk_turns"
    result = graph.invoke(extend(graph.get_state(THREAD).values, turns=5), THREAD)
    assert result["outcome"]["status"] == "success"


def test_retry_after_the_cause_of_an_error_is_gone(storage: SqliteStorage) -> None:
    model = ScriptedModel([WORK, RuntimeError("down"), FINISH])
    graph = build_graph(model, [work], storage=storage)
    failed = graph.invoke(GO, THREAD)["outcome"]
    assert (failed["status"], failed["reason"]) == ("error", "model_error")
    assert "RuntimeError: down." in failed["error"]
    again = graph.invoke(retry(graph.get_state(THREAD).values), THREAD)["outcome"]
    assert (again["status"], again["turns"], again["task"]) == ("success", 2, failed["task"])
    assert [outcome.status for outcome in recorded(storage.store, "a.thread/with 100% odd:name")] == [
        "success"
    ]


def test_retry_after_two_refusals_counts_them_anew(storage: SqliteStorage) -> None:
    from signoff.models import reply

    refusal = reply("no", finish_reason="content_filter")
    graph = build_graph(ScriptedModel([refusal, refusal, refusal, FINISH]), storage=storage)
    assert graph.invoke(GO, THREAD)["outcome"]["reason"] == "content_filter"
    result = graph.invoke(retry(graph.get_state(THREAD).values), THREAD)
    assert result["outcome"]["status"] == "success"


def test_what_cannot_go_on_says_so(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel([ASK, FINISH]), storage=storage)
    graph.invoke(GO, THREAD)
    with pytest.raises(ThreadError, match="has not ended"):
        extend(graph.get_state(THREAD).values, turns=1)
    graph.invoke(Command(resume="blue"), THREAD)
    values = graph.get_state(THREAD).values
    with pytest.raises(ThreadError, match="ended with success"):
        extend(values, turns=1)
    with pytest.raises(ThreadError, match="ended with success"):
        retry(values)
    with pytest.raises(SetupError, match="at least 1"):
        extend(values, turns=0)


def test_a_stop_ends_the_task_and_only_this_one(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel([ASK, FINISH]), storage=storage)
    graph.invoke(GO, THREAD)
    task = graph.get_state(THREAD).values["task"]
    graph.update_state(THREAD, {"stop": task}, as_node="compress")
    stopped = graph.invoke(None, THREAD)["outcome"]
    assert (stopped["status"], stopped["reason"]) == ("error", "cancelled")
    assert stopped["open_work"] == ["ask_user({'question': 'Which one?'})"]
    assert graph.invoke(GO, THREAD)["outcome"]["status"] == "success"


def test_a_message_that_cuts_a_task_short_records_it_as_superseded(storage: SqliteStorage) -> None:
    ran: list[str] = []

    def crash() -> str:
        """Crash."""
        ran.append("crash")
        interrupt_process()
        return "never heard"

    graph = build_graph(ScriptedModel([call("crash"), FINISH]), [crash], storage=storage)
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(GO, THREAD)
    result = graph.invoke(GO, THREAD)
    assert ran == ["crash"]
    assert result["outcome"]["status"] == "success"
    outcomes = recorded(storage.store, THREAD["configurable"]["thread_id"])
    assert [(outcome.status, outcome.reason) for outcome in outcomes] == [
        ("error", "superseded"),
        ("success", "finish_task"),
    ]


def test_a_message_sent_again_with_its_id_begins_no_task(storage: SqliteStorage) -> None:
    model = ScriptedModel([FINISH])
    graph = build_graph(model, storage=storage)
    for _ in range(2):
        result = graph.invoke({"messages": [{"role": "user", "content": "do it", "id": "one"}]}, THREAD)
        assert result["outcome"]["summary"] == "All of it."
    assert current_outcome(graph.get_state(THREAD).values) is not None
    assert len(model.seen) == 1


def test_while_a_task_runs_or_waits_there_is_no_outcome(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel([FINISH, ASK]), storage=storage)
    assert graph.invoke(GO, THREAD)["outcome"]["status"] == "success"
    assert graph.invoke(GO, THREAD)["outcome"] is None


def test_the_context_sets_limits_and_prompt_for_one_run(storage: SqliteStorage) -> None:
    model = ScriptedModel([WORK, WORK, FINISH])
    graph = build_graph(model, [work], limits=Limits(turns=1), system_prompt="built", storage=storage)
    result = graph.invoke(GO, THREAD, context={"turns": 3, "system_prompt": "given"})
    assert result["outcome"]["status"] == "success"
    assert model.seen[0].messages[0].text.startswith("given")


NAMED: Any = {"configurable": {"thread_id": "t"}}


@pytest.mark.parametrize(
    ("happens", "thread_id", "event"),
    [
        (lambda graph: Session(graph, "t").stop(), "t", Event.STOP),
        (lambda graph: Session(graph, "t").fork(thread_id="fork"), "fork", Event.FORK),
        (lambda graph: expire(graph, "t", now=1e12), "t", Event.EXPIRE),
    ],
)
def test_what_comes_from_outside_is_stored_under_its_own_event(
    storage: SqliteStorage, happens: Any, thread_id: str, event: Event
) -> None:
    graph = build_graph(ScriptedModel([DEADLINE]), storage=storage)
    graph.invoke(GO, NAMED)
    happens(graph)
    history = graph.get_state_history({"configurable": {"thread_id": thread_id}})
    written = [at for at in history if at.metadata and at.metadata["source"] == "update"]
    assert (event, (ENTRIES[event],)) in [(at.values["event"], at.next) for at in written]
    assert {at.values["event"] for at in written if at.next} == {event}


def test_the_inputs_that_go_on_carry_their_own_event(storage: SqliteStorage) -> None:
    graph = build_graph(ScriptedModel(["hm"]), limits=Limits(turns=1), storage=storage)
    graph.invoke(GO, NAMED)
    ended = graph.get_state(NAMED)
    stopped = ended._replace(values={**ended.values, "outcome": None})
    failed = {**ended.values, "outcome": {**ended.values["outcome"], "status": "error"}}
    given = {Event.EXTEND: extend(ended, turns=1), Event.RETRY: retry(failed), Event.GO_ON: go_on(stopped)}
    for event, command in given.items():
        assert command is not None
        assert isinstance(command.update, dict)
        assert (command.goto, command.update["event"]) == (ENTRIES[event], event)
