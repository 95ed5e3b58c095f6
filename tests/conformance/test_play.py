"""Tasks under faults, played by a small loop: it is right under each, and caught where it is careless."""

from collections.abc import Iterator

import pytest

from loopcheck.bench import Bench
from loopcheck.faults import ELSEWHERE, ENDS, FAULTS, KILLS, NOTHING, PROVIDER, REPLIES, Fault
from loopcheck.play import TaskRun, play
from loopcheck.sources.task import Task
from tests.conformance.tiny import LOOK, LOOP, QUESTION, TASKS, TURNS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def loop() -> Iterator[Bench]:
    with Bench(LOOP) as bench:
        yield bench


def played(bench: Bench, task: Task, name: str) -> TaskRun:
    return play(bench, "loop", task, Fault(name, at=min(2, len(task.calls) - 1)), 1)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: str(task.name))
@pytest.mark.parametrize("fault", FAULTS)
def test_a_loop_is_right_under_every_fault(loop: Bench, task: Task, fault: str) -> None:
    found = played(loop, task, fault)
    assert found.right, found
    assert (found.claimed, found.why, found.twice, found.lost) == (True, "", [], [])
    assert found.processes == (2 if fault in (*KILLS, ELSEWHERE) else 1)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: str(task.name))
def test_where_there_are_no_questions_and_no_finish_it_is_asked_and_ended_in_words(task: Task) -> None:
    with Bench([*LOOP, "lacks ask", "lacks finish_call"]) as bench:
        found = [played(bench, task, fault) for fault in FAULTS]
    assert [one.fault for one in found if not one.claimed] == [REPLIES[1], ENDS[1]]
    assert [one for one in found if one.claimed and not one.right] == []


# What is done twice, left out, or said to be done is wrong.
DONE, TWICE = "it said that it is done, and is not", "an effect took place too often"
NOT_SAID = "it said that it is done, and the model did not"
ENDLESS = "it does not end by itself"
CARELESS = [
    ("drops results", NOTHING, TURNS, ENDLESS),
    ("takes what was cut short for done", KILLS[0], TURNS, NOT_SAID),
    ("takes what was cut short for done", KILLS[0], LOOK, NOT_SAID),
    ("runs calls again", KILLS[1], TURNS, TWICE),
    ("runs calls again, keeps results late", KILLS[2], TURNS, TWICE),
    ("takes a cut reply for the end", REPLIES[0], TURNS, NOT_SAID),
    ("believes words", REPLIES[1], TURNS, NOT_SAID),
    ("knows calls by their ids alone", REPLIES[2], TURNS, ENDLESS),
    ("believes a finish beside a failure", ENDS[0], TURNS, NOT_SAID),
    ("believes a finish beside a failure", ENDS[0], LOOK, NOT_SAID),
    ("breaks at a second finish, runs calls again", ENDS[1], TURNS, "error: two calls of done"),
    *(("tries once, forgets all with an error", name, TURNS, NOT_SAID) for name in PROVIDER),
    ("forgets in another process", ELSEWHERE, TURNS, NOT_SAID),
    ("forgets in another process", ELSEWHERE, QUESTION, NOT_SAID),
    ("forgets in another process", ELSEWHERE, LOOK, NOT_SAID),
]


@pytest.mark.parametrize(("careless", "fault", "task", "why"), CARELESS)
def test_a_careless_loop_is_caught(careless: str, fault: str, task: Task, why: str) -> None:
    with Bench([*LOOP, *careless.split(", ")]) as bench:
        found = played(bench, task, fault)
    assert not found.right
    assert found.why == why
    assert bool(found.twice) == (why == TWICE)


def test_a_run_in_which_nothing_went_wrong_says_nothing_of_a_fault() -> None:
    with Bench(LOOP) as bench:
        found = play(bench, "loop", LOOK, Fault(KILLS[2], at=9), 1)
    assert (found.right, found.claimed) == (True, False)
    assert found.why == "what was to go wrong did not come about"


def test_every_fault_catches_somebody() -> None:
    assert {fault for _, fault, _, _ in CARELESS} == set(FAULTS)
