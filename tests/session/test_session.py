"""A session drives a thread: what its answers are read as, what a new task does while something waits, forks,
leaving a run, and signals. Pauses, stops and going on are in `tests/door/`."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.tools import tool

from signoff import (
    Ended,
    Paused,
    Question,
    Session,
    SetupError,
    ThreadError,
    ThreadUnknown,
    TooLate,
    Waiting,
    go_on,
)
from signoff.events import CallFinished
from signoff.models import call
from signoff.records import read_ended
from signoff.session import pause_on_signals
from tests.support.benches.session import DONE, Bench
from tests.support.ends import outcome_at
from tests.support.rows import ids

ASK = call("ask_user", question="Which?", options=["red", "green"])
PAY = call("pay", amount=3)


def results(session: Session, name: str) -> list[str]:
    """The texts of the results of this tool."""
    return [one.text for one in session.status().values["messages"] if one.name == name]


# Answers. How they are read: `tests/loop/`; what fits no wait: `tests/door/test_answers_refused.py`.


def test_what_waits_or_has_ended_is_given_again_and_an_answer_counts_once(bench: Bench) -> None:
    session = bench("Well.", ASK, call("ask_user", question="And?"), DONE)
    first = session.run("do it")
    assert isinstance(first, Question)
    assert session.run() == first
    second = session.resume("a", first.interrupt_id)
    with pytest.raises(TooLate):
        session.resume("a", first.interrupt_id)
    assert session.run() == second
    end = session.resume("b")
    assert session.run() == session.run(go_on(3)) == end
    with pytest.raises(TooLate):
        session.resume("c")


# A task that is given while something waits.

WAITING: dict[str, tuple[Any, str]] = {
    # What the model does, and the tool that its result is of.
    "a question": (ASK, "ask_user"),
    "an approval": (PAY, "pay"),
    "an action": (call("run", command="ls"), "run"),
    "a finish": (call("finish_task", summary="Done.", requires_user_confirmation=True), "finish_task"),
}


def waiting(bench: Bench, name: str, **options: Any) -> tuple[Session, Waiting]:
    approvals = {"pay": True, "run": "hand_over"}
    session = bench(WAITING[name][0], DONE, DONE, approvals=approvals, **options)
    decision = session.run("the first task")
    assert isinstance(decision, Waiting)
    return session, decision


@pytest.mark.parametrize("name", WAITING)
def test_a_new_task_is_the_answer(name: str, bench: Bench) -> None:
    session, _ = waiting(bench, name)
    end = outcome_at(session.run("never mind"))
    assert end.task == session.status().values["messages"][0].id
    assert "never mind" in results(session, WAITING[name][1])[0]


@pytest.mark.parametrize("name", WAITING)
def test_a_new_task_is_refused_or_supersedes_where_that_is_said(name: str, bench: Bench) -> None:
    session, decision = waiting(bench, name, on_pending="refuse")
    before = session.status().values["messages"]
    with pytest.raises(ThreadError):
        session.run("something else")
    assert session.status().values["messages"] == before
    again = session.run()
    assert isinstance(again, Waiting)
    assert (type(again), again.interrupt_id) == (type(decision), decision.interrupt_id)
    end = outcome_at(Session(session.graph, "t", on_pending="supersede").run("something else"))
    (second,) = [one for one in session.status().values["messages"] if one.text == "something else"]
    assert (end.task, end.turns) == (second.id, 1)
    assert [one.reason for one in read_ended(bench.storage.store)] == ["superseded", "finish_task"]
    if name == "an action":
        # The program may have done it.
        assert "unknown" in results(session, "run")[0]


# What a session takes.


def test_nothing_can_be_done_with_a_thread_that_nobody_began(bench: Bench) -> None:
    session = bench()
    for act in (session.run, session.step, lambda: session.resume("a"), session.stop, session.fork):
        with pytest.raises(ThreadUnknown):
            act()
    assert (ids(bench.storage), session.history()) == ([], [])


# Forks.


@pytest.fixture
def looked(bench: Bench) -> Session:
    """A session whose thread has looked three times."""
    session = bench(*[call("look", where=where) for where in "abc"], DONE)
    session.run("do it")
    return session


FORKS: list[tuple[Any, str]] = [(0, ""), (1, "a"), (3, "abc"), (None, "abc"), ("a checkpoint", "a")]


@pytest.mark.parametrize(("at", "seen"), FORKS)
def test_a_fork_begins_at_a_turn_or_a_checkpoint_and_goes_its_own_way(
    at: Any, seen: str, looked: Session, bench: Bench
) -> None:
    if at == "a checkpoint":
        at = looked.history()[1].steps[0].checkpoint_id
    forked = looked.fork(at, "other")
    assert "".join(text[-1] for text in results(forked, "look")) == seen
    assert isinstance(forked.run("Do it another way."), Ended)
    people = [one.text for one in looked.status().values["messages"] if one.type == "human"]
    assert (people, len(looked.history()), ids(bench.storage)) == (["do it"], 4, ["other", "t"])


@pytest.mark.parametrize("at", [-1, 9, "../x", 1.5, True], ids=ascii)
def test_a_fork_begins_nowhere_else_and_has_an_id_of_its_own(at: Any, looked: Session, bench: Bench) -> None:
    with pytest.raises(SetupError if isinstance(at, float | bool) else ThreadError):
        looked.fork(at)
    with pytest.raises(ThreadError):
        looked.fork(thread_id="t")
    assert ids(bench.storage) == ["t"]


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_fork_at_a_question_waits_for_an_answer_of_its_own(is_answered: bool, bench: Bench) -> None:
    session = bench(call("look", where="a"), ASK, DONE)
    asked = session.run("do it")
    assert isinstance(asked, Question)
    at = session.history()[-1].steps[-1].checkpoint_id if is_answered else None
    if is_answered:
        session.resume("red")
    forked = session.fork(at)
    (wait,) = forked.status().waits
    assert isinstance(wait, Question)
    assert (wait.text, wait.interrupt_id == asked.interrupt_id) == ("Which?", False)
    assert isinstance(forked.resume("blue"), Ended)
    # One that begins before it has not asked yet.
    assert session.fork(1).status().waits == ()


# Leaving a run.


def test_leaving_the_events_stops_the_run_and_frees_the_thread(bench: Bench) -> None:
    session = bench(call("look", where="x"), DONE)
    events: Any = session.events("do it")
    assert any(isinstance(event, CallFinished) for event in events)
    events.close()
    assert session.status().outcome is None
    assert isinstance(session.run(), Ended)


async def test_leaving_the_async_events_frees_the_thread_too(bench: Bench) -> None:
    session = bench(call("look", where="x"), DONE)
    events: Any = session.aevents("do it")
    async for event in events:
        if isinstance(event, CallFinished):
            break
    await events.aclose()
    assert isinstance(await session.arun(), Ended)


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals come there")
def test_a_signal_pauses_a_run_in_the_main_thread_and_is_given_back(bench: Bench) -> None:
    before = signal.getsignal(signal.SIGTERM)

    @tool
    def work() -> str:
        """Work."""
        signal.raise_signal(signal.SIGTERM)
        return "worked"

    session = bench(call("work"), DONE, tools=[work])
    with pause_on_signals(session):
        assert session.run("do it") == Paused("signal")
    assert isinstance(session.run(), Ended)
    assert results(session, "work") == ["worked"]
    # While nothing runs, it interrupts.
    with pytest.raises(KeyboardInterrupt), pause_on_signals(session):
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before

    with ThreadPoolExecutor(1) as pool:
        refused = pool.submit(pause_on_signals(session).__enter__).exception(60)
    assert isinstance(refused, SetupError)
