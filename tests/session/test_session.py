"""A session drives a thread: what its answers are read as, what a new task does while something waits, forks,
stops, and signals."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from signoff import (
    Approval,
    Decision,
    Ended,
    Paused,
    Question,
    Session,
    SetupError,
    ThreadBusy,
    ThreadError,
    ThreadUnknown,
    TooLate,
    Waiting,
    build_graph,
    go_on,
    sqlite_storage,
)
from signoff.events import CallFinished
from signoff.models import ScriptedModel, call
from signoff.records import read_ended
from signoff.session import pause_on_signals
from tests.support.benches.session import DONE, Bench, look, play
from tests.support.rows import ids
from tests.support.trees import outcome_at

ASK = call("ask_user", question="Which?", options=["red", "green"])
PAY = call("pay", amount=3)


def results(session: Session, name: str) -> list[str]:
    """The texts of the results of this tool."""
    return [one.text for one in session.status().values["messages"] if one.name == name]


# Answers. What fits no wait is refused in `tests/door/test_answers_refused.py`.

READ: list[tuple[Any, str]] = [
    ("blue", "blue"),
    (1, "red"),
    ("2", "green"),
    (2.5, "2.5"),
    (True, "true"),
    ({"answer": "blue"}, "blue"),
    ([{"type": "response", "args": "blue"}], "blue"),
    ({"decisions": [{"type": "respond", "message": "blue"}]}, "blue"),
    ({"colour": "blue", "shade": 3}, '{"colour": "blue", "shade": 3}'),
    ({"x": {1, 2}}, '{"x": "{1, 2}"}'),
]


@pytest.mark.parametrize(("answer", "read"), READ, ids=ascii)
def test_an_answer_to_a_question_is_read_as_words(answer: Any, read: str, bench: Bench) -> None:
    session = bench(ASK, DONE)
    session.run("do it")
    assert outcome_at(session.resume(answer)).status == "success"
    assert results(session, "ask_user") == [read]


def test_every_answer_without_words_is_read_as_the_same(bench: Bench) -> None:
    read = set()
    answers: list[Any] = ["", None, {}, []]
    for number, answer in enumerate(answers):
        session = bench(ASK, DONE, thread_id=f"{number}")
        session.run("do it")
        session.resume(answer)
        read |= set(results(session, "ask_user"))
    assert len(read) == 1
    assert read.isdisjoint({"", "null", "None", "{}", "[]"})


APPROVES: list[Any] = [
    "approve",
    " Yes ",
    True,
    {"type": "approve"},
    [{"type": "accept", "args": None}],
    {"decisions": [{"type": "approve"}]},
    '{"decisions": [{"type": "approve"}]}',
]
REJECTS: list[Any] = [
    "no",
    "reject: too much",
    False,
    [{"type": "ignore"}],
    {"type": "reject", "message": "x"},
]


@pytest.mark.parametrize("answer", APPROVES + REJECTS, ids=ascii)
def test_an_answer_to_an_approval_is_read_as_a_decision(answer: Any, bench: Bench) -> None:
    session = bench(PAY, DONE, approvals={"pay": True})
    session.run("do it")
    assert isinstance(session.resume(answer), Ended)
    assert (results(session, "pay") == ["paid 3"]) is (answer in APPROVES)


def test_an_approval_of_several_calls_shows_all_and_takes_a_decision_for_each(bench: Bench) -> None:
    session = bench([call("pay", amount=1), call("pay", amount=2)], DONE, approvals={"pay": True})
    asked = session.run("do it")
    assert isinstance(asked, Approval)
    assert [pending.args for pending in asked.calls] == [{"amount": 1}, {"amount": 2}]
    session.resume([{"type": "reject", "message": "no"}, {"type": "approve"}])
    rejected, paid = results(session, "pay")
    assert ("no" in rejected, paid) == (True, "paid 2")


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


def test_nothing_can_be_done_with_a_thread_that_nobody_began(bench: Bench) -> None:
    session = bench()
    for act in (session.run, session.step, lambda: session.resume("a"), session.stop, session.fork):
        with pytest.raises(ThreadUnknown):
            act()
    assert (ids(bench.storage), session.history()) == ([], [])


# A task that is given while something waits.

WAITING: dict[str, tuple[Any, str]] = {
    # What the model does, and the tool that its result is of.
    "a question": (ASK, "ask_user"),
    "an approval": (PAY, "pay"),
    "an action": (call("run", command="ls"), "run"),
    "a finish to confirm": (
        call("finish_task", summary="Done.", requires_user_confirmation=True),
        "finish_task",
    ),
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
def test_a_new_task_supersedes_where_that_is_said(name: str, bench: Bench) -> None:
    session, _ = waiting(bench, name, on_pending="supersede")
    end = outcome_at(session.run("something else"))
    (second,) = [one for one in session.status().values["messages"] if one.text == "something else"]
    assert (end.task, end.turns) == (second.id, 1)
    assert [one.reason for one in read_ended(bench.storage.store)] == ["superseded", "finish_task"]
    if name == "an action":
        # The program may have done it.
        assert "unknown" in results(session, "run")[0]


@pytest.mark.parametrize("name", WAITING)
def test_a_new_task_is_refused_where_that_is_said(name: str, bench: Bench) -> None:
    session, decision = waiting(bench, name, on_pending="refuse")
    before = session.status().values["messages"]
    with pytest.raises(ThreadError):
        session.run("something else")
    assert session.status().values["messages"] == before
    again = session.run()
    assert isinstance(again, Waiting)
    assert (type(again), again.interrupt_id) == (type(decision), decision.interrupt_id)


@pytest.mark.parametrize("name", WAITING)
def test_a_stop_ends_what_waits(name: str, bench: Bench) -> None:
    session, _ = waiting(bench, name)
    outcome = outcome_at(session.stop())
    assert (outcome.status, outcome.reason) == ("error", "cancelled")
    assert len(results(session, WAITING[name][1])) == 1


# What a session takes.

WRONG: dict[str, tuple[Callable[[Session], Any], str]] = {
    # What is called, and what the error names.
    "no thread id": (lambda s: Session(s.graph, ""), "thread"),
    "a thread id that is a number": (lambda s: Session(s.graph, 3), "thread"),  # type: ignore[arg-type]
    "a graph that is none": (lambda s: Session("graph", "t"), "graph"),  # type: ignore[arg-type]
    "a graph without storage": (lambda s: Session(build_graph(ScriptedModel([])), "t"), "storage"),
    "an unknown on_pending": (
        lambda s: Session(s.graph, "t", on_pending="shout"),  # type: ignore[arg-type]
        "on_pending",
    ),
    "a context that is none": (lambda s: Session(s.graph, "t", context=3), "context"),
    "an empty task": (lambda s: s.run("  "), "task"),
    "no message": (lambda s: s.run([]), "task"),
    "a system message alone": (lambda s: s.run([("system", "x")]), "task"),  # type: ignore[list-item]
    "a number as a task": (lambda s: s.run(3), "int"),  # type: ignore[arg-type]
    "bytes as a task": (lambda s: s.run(b"x"), "b'x'"),  # type: ignore[arg-type]
    "any object as a task": (lambda s: s.run(object()), "object"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_before_anything_runs(name: str, bench: Bench) -> None:
    act, named = WRONG[name]
    with pytest.raises(SetupError, match=named):
        act(bench())
    assert ids(bench.storage) == []


@pytest.mark.parametrize("by", [3, ["ada"], object()], ids=["number", "list", "object"])
def test_who_answers_is_text(by: Any, bench: Bench) -> None:
    session = bench(ASK, DONE)
    asked = session.run("do it")
    with pytest.raises(SetupError, match="by="):
        session.resume("this", by=by)
    assert session.run() == asked


@pytest.mark.parametrize("turns", [0, -1, 1.5, "3", True])
def test_turns_are_a_whole_number(turns: Any, bench: Bench) -> None:
    session = bench(call("look", where="x"), DONE, limits={"turns": 1})
    session.run("do it")
    with pytest.raises(SetupError, match="turns"):
        session.go_on(turns)


def test_its_context_counts_in_every_run(bench: Bench) -> None:
    session = bench(*[call("look", where=str(n)) for n in range(9)], DONE, context={"turns": 2})
    end = outcome_at(session.run("do it"))
    assert (end.status, end.turns) == ("limit", 2)
    assert outcome_at(session.go_on(1)).turns == 3


def test_the_history_reads_back(bench: Bench) -> None:
    session = bench("Hm.", call("look", where="here"), call("think", thought="so"), DONE, DONE)
    session.run("the first")
    session.run("the second")
    told = [(turn.number, turn.text, [type(e).__name__ for e in turn.events]) for turn in session.history()]
    assert told == [
        (1, "Hm.", ["Nudged"]),
        (2, "", ["CallFinished"]),
        (3, "", ["Thought"]),
        (4, "", []),
        (1, "", []),
    ]
    assert [step.rule for step in session.history()[0].steps if step.rule] == ["think"]


def test_any_checkpointer_will_do() -> None:
    model = ScriptedModel(play(ASK, DONE))
    session = Session(build_graph(model, checkpointer=InMemorySaver()), "t")
    assert isinstance(session.run([HumanMessage("do it")]), Question)
    assert isinstance(session.resume("a"), Ended)
    assert [turn.number for turn in session.history()] == [1, 2]
    assert isinstance(session.fork(1).run(), Ended)


# Forks.


@pytest.fixture
def looked(bench: Bench) -> Session:
    """A session whose thread has looked three times."""
    session = bench(*[call("look", where=where) for where in "abc"], DONE)
    session.run("do it")
    return session


@pytest.mark.parametrize(("at", "seen"), [(0, ""), (1, "a"), (3, "abc"), (None, "abc"), (4, "abc")])
def test_a_fork_begins_at_a_turn_and_goes_on(at: int | None, seen: str, looked: Session) -> None:
    forked = looked.fork(at)
    assert "".join(text[-1] for text in results(forked, "look")) == seen
    assert isinstance(forked.run(), Ended)
    assert len(looked.history()) == 4


def test_a_fork_begins_at_a_checkpoint(looked: Session) -> None:
    first = looked.history()[0].steps[-1]
    assert len(looked.fork(first.checkpoint_id).history()) == 1


def test_the_way_of_a_fork_is_its_own(looked: Session, bench: Bench) -> None:
    forked = looked.fork(1, "other")
    assert isinstance(forked.run("Do it another way."), Ended)
    people = [one.text for one in looked.status().values["messages"] if one.type == "human"]
    assert (people, ids(bench.storage)) == (["do it"], ["other", "t"])


@pytest.mark.parametrize("at", [-1, 9, "no-such", 1.5, True, [], "../x"], ids=ascii)
def test_a_fork_begins_nowhere_else(at: Any, looked: Session, bench: Bench) -> None:
    with pytest.raises(ThreadError if isinstance(at, int | str) and at is not True else SetupError):
        looked.fork(at)
    assert ids(bench.storage) == ["t"]


def test_a_fork_has_an_id_of_its_own(looked: Session) -> None:
    with pytest.raises(ThreadError):
        looked.fork(thread_id="t")


def test_an_effect_does_not_happen_again_in_a_fork(bench: Bench) -> None:
    paid: list[int] = []

    def give(amount: int) -> str:
        """Give."""
        paid.append(amount)
        return "given"

    session = bench(call("give", amount=3), DONE, tools=[give])
    session.run("do it")
    before = next(step for step in session.history()[0].steps if step.next == ("execute",))
    assert isinstance(session.fork(before.checkpoint_id).run(), Ended)
    assert paid == [3]


@pytest.mark.parametrize("at", [None, 1, "its checkpoint"], ids=str)
def test_a_fork_at_a_question_waits_for_an_answer_of_its_own(at: int | str | None, bench: Bench) -> None:
    session = bench(call("look", where="a"), ASK, DONE)
    asked = session.run("do it")
    assert isinstance(asked, Question)
    if at == "its checkpoint":
        at = session.history()[-1].steps[-1].checkpoint_id
        session.resume("red")
    forked = session.fork(at)
    waits = forked.status().waits
    if at == 1:
        assert waits == (), "it had not asked yet"
        return
    (wait,) = waits
    assert isinstance(wait, Question)
    assert (wait.text, wait.interrupt_id == asked.interrupt_id) == ("Which?", False)
    assert isinstance(forked.resume("blue"), Ended)


# One run at a time, and leaving it. Pauses and stops are in `tests/door/test_pause_and_stop.py`.


def test_one_run_a_session_and_one_a_thread(bench: Bench) -> None:
    entered, go = threading.Event(), threading.Event()

    @tool
    def wait() -> str:
        """Wait."""
        entered.set()
        assert go.wait(20)
        return "waited"

    session, decisions = bench(call("wait"), DONE, tools=[wait, look]), list[Decision]()
    thread = threading.Thread(target=lambda: decisions.append(session.run("do it")))
    thread.start()
    assert entered.wait(20)
    with pytest.raises(ThreadError):
        session.run()
    for command in (None, "more"):
        with pytest.raises(ThreadBusy):
            bench(DONE).run(command)
    go.set()
    thread.join(20)
    assert [type(decision) for decision in decisions] == [Ended]


def test_leaving_the_events_stops_the_run_and_frees_the_thread(bench: Bench) -> None:
    session = bench(call("look", where="x"), DONE)
    events = session.events("do it")
    for event in events:
        if isinstance(event, CallFinished):
            break
    events.close()  # type: ignore[attr-defined]  # a generator
    assert session.status().outcome is None
    assert isinstance(session.run(), Ended)


async def test_leaving_the_async_events_frees_the_thread_too(bench: Bench) -> None:
    session = bench(call("look", where="x"), DONE)
    events = session.aevents("do it")
    async for event in events:
        if isinstance(event, CallFinished):
            break
    await events.aclose()  # type: ignore[attr-defined]  # a generator
    assert isinstance(await session.arun(), Ended)


PROGRAM = """
import sys, time
from signoff import Session, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call
from signoff.session import pause_on_signals

def work() -> str:
    "Work."
    print("working", flush=True)
    time.sleep(0.5)
    return "worked"

script = [call("work"), call("finish_task", summary="Done.")]
with sqlite_storage(sys.argv[1]) as storage:
    session = Session(build_graph(ScriptedModel(script), [work], storage=storage), "t")
    with pause_on_signals(session):
        print(session.run("do it"), flush=True)
"""


@pytest.mark.slow
def test_a_signal_pauses_and_another_process_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "t.sqlite"
    with subprocess.Popen([sys.executable, "-c", PROGRAM, file], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "working\n"
        child.send_signal(signal.SIGTERM)
        assert child.stdout.read() == f"{Paused('signal')}\n"
    assert child.returncode == 0
    with sqlite_storage(file) as storage:
        session = Session(build_graph(ScriptedModel([DONE]), storage=storage), "t")
        assert isinstance(session.run(), Ended)
        assert results(session, "work") == ["worked"]


def test_signals_are_taken_in_the_main_thread_alone_and_given_back(bench: Bench) -> None:
    session, before, refused = bench(), signal.getsignal(signal.SIGTERM), list[SetupError]()
    # While nothing runs, it interrupts.
    with pytest.raises(KeyboardInterrupt), pause_on_signals(session):
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before

    def attempt() -> None:
        try:
            with pause_on_signals(session):
                pass
        except SetupError as error:
            refused.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert len(refused) == 1
