"""The path of a thread, as its checkpoints tell it, after every way in which a run can go."""

import time
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from signoff import Limits, ThreadError, build_graph, retry, sqlite_storage
from signoff.graph.machine import State
from signoff.models import ScriptedModel, call, reply
from signoff.session.path import before_turn, steps
from signoff.storage.sqlite import SqliteStorage
from tests.support.cases.path import (
    ASK,
    FINISH,
    GO,
    HAPPENINGS,
    KILLED_BEFORE,
    THREAD,
    WORK,
    Thread,
    told,
    work,
    works,
)
from tests.support.other_machine import OTHER, other_machine


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


happenings = pytest.mark.parametrize("happens", HAPPENINGS, ids=lambda happens: happens.__name__)


@happenings
def test_the_path_of_a_thread_that(happens: Callable[[Thread], None], storage: SqliteStorage) -> None:
    thread = Thread(storage)
    happens(thread)
    path = thread.path()
    assert told(path) == HAPPENINGS[happens]


@happenings
def test_every_step_says_what_langgraph_says(
    happens: Callable[[Thread], None], storage: SqliteStorage
) -> None:
    thread = Thread(storage)
    happens(thread)
    graph = thread.graph()
    path = thread.path()
    assert path[-1].checkpoint_id == graph.get_state(THREAD).config["configurable"]["checkpoint_id"]
    for step in path:
        at: Any = {"configurable": {"thread_id": "t", "checkpoint_id": step.checkpoint_id}}
        state = graph.get_state(THREAD if step is path[-1] else at)
        assert step.at == state.created_at
        killed = happens in KILLED_BEFORE and step is path[-1]
        assert step.next == (KILLED_BEFORE[happens] if killed else state.next)
        assert step.task == state.values.get("task", "")
        if step.state is State.DECIDE:
            assert (step.rule, step.why) == (
                state.values["decision"]["rule"],
                state.values["decision"]["why"],
            )
        else:
            assert step.rule == step.why == ""


@happenings
def test_a_limit_gives_the_last_steps(happens: Callable[[Thread], None], storage: SqliteStorage) -> None:
    thread = Thread(storage)
    happens(thread)
    whole = thread.path()
    for limit in range(1, len(whole) + 3):
        assert steps(storage.checkpointer, "t", limit) == whole[-limit:]


def test_decide_gives_its_rule_and_reason(storage: SqliteStorage) -> None:
    thread = Thread(storage)
    works(thread)
    decided = [(step.event, step.rule, step.why) for step in thread.path() if step.state is State.DECIDE]
    assert decided[0] == ("think", "think", "nothing else applies")
    assert [rule for _, rule, _ in decided] == ["think", "think", "claimed"]


def test_a_state_of_another_version_keeps_its_name(storage: SqliteStorage) -> None:
    thread = Thread(storage)
    graph = other_machine(thread.graph(ASK, FINISH), State.ASK_USER)
    (pending,) = graph.invoke(GO, THREAD)["__interrupt__"]
    graph.invoke(Command(resume={pending.id: "blue"}), THREAD)
    (step,) = [step for step in thread.path() if step.name == OTHER]
    assert (step.state, step.event) == (None, "answered")


def test_a_thread_that_does_not_exist_has_no_path(storage: SqliteStorage) -> None:
    assert steps(storage.checkpointer, "t") == []


def test_without_the_steps_between_the_last_one_is_told() -> None:
    saver = InMemorySaver()
    build_graph(ScriptedModel([ASK]), checkpointer=saver).invoke(GO, THREAD, durability="exit")
    assert told(steps(saver, "t")) == ["decide asked"]


# Turns.


def test_the_step_before_each_turn(storage: SqliteStorage) -> None:
    thread = Thread(storage)
    graph = thread.graph(FINISH, WORK, RuntimeError("down"), WORK, FINISH)
    graph.invoke(GO, THREAD)
    graph.invoke(GO, THREAD)
    graph.invoke(retry(graph.get_state(THREAD).values), THREAD)
    path = thread.path()
    found = [path.index(before_turn(path, turn)) for turn in (1, 2, 3)]
    replies = [i for i, step in enumerate(path) if step.event == "replied"]
    assert [at + 1 for at in found] == replies[1:], "of the current task; right before the try that succeeded"
    assert {path[at].next for at in found} == {("call_llm",)}


@pytest.mark.parametrize("turn", [-1, 0, 3])
def test_a_turn_that_never_came_is_refused(turn: int, storage: SqliteStorage) -> None:
    thread = Thread(storage)
    works(thread)
    with pytest.raises(ThreadError, match=f"has 2 turns, and none is number {turn}"):
        before_turn(thread.path(), turn)
    with pytest.raises(ThreadError, match="has 0 turns"):
        before_turn([], 1)


def test_the_turn_that_comes_next_counts(storage: SqliteStorage) -> None:
    graph = Thread(storage).graph(WORK)
    graph.invoke(GO, THREAD, interrupt_before=["call_llm"])
    path = steps(storage.checkpointer, "t")
    assert before_turn(path, 1) == path[-1]


# Length. (Crashes: see test_kill.)


@pytest.mark.timed
@pytest.mark.slow
@pytest.mark.thorough
def test_a_thousand_turns_are_read_quickly(storage: SqliteStorage, figure: Callable[[str], None]) -> None:
    script = repeat(reply(call("work"), "x" * 500, usage=(10, 10)))
    graph = build_graph(
        ScriptedModel(script), [work], limits=Limits(turns=1000, repeats=None), storage=storage
    )
    graph.invoke(GO, THREAD)
    begun = time.perf_counter()
    path = steps(storage.checkpointer, "t")
    seconds = time.perf_counter() - begun
    figure(f"the path of 1,000 turns ({len(path)} steps) is read in {seconds:.2f} s")
    assert len(path) > 4000
    assert seconds < 3
