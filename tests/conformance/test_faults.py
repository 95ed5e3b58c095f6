"""Tasks under faults: what is drawn, that a loop is right under each, and that a careless one is caught."""

from collections import Counter
from collections.abc import Iterator

import pytest

from loopcheck.bench import Bench
from loopcheck.faults import (
    ELSEWHERE,
    ENDS,
    FAULTS,
    KILLS,
    NOTHING,
    PROVIDER,
    REPLIES,
    Fault,
    draw_fault,
    plan,
    sample,
)
from loopcheck.play import TaskRun, find_unclaimed, play
from loopcheck.sources.task import Task, Turn
from tests.conformance.tiny import LOOK, LOOP, QUESTION, TASKS, TURNS


@pytest.mark.parametrize("begin", [0, 7, 2**31])
def test_over_as_many_seeds_as_there_are_faults_a_task_meets_each_once(begin: int) -> None:
    plans = [plan(TASKS, seed) for seed in range(begin, begin + len(FAULTS))]
    for at, task in enumerate(TASKS):
        assert Counter(planned[at][1].name for planned in plans) == Counter(FAULTS), task.name


def test_a_task_without_a_place_for_a_fault_meets_another_one() -> None:
    silent = Task("tiny", "no calls", [Turn("Hello.", (), "Hello.")], {}, dict, lambda *_: True)
    has_places = {NOTHING, ENDS[1], ELSEWHERE}
    assert {name for name in FAULTS if draw_fault(name, silent, 1)} == has_places
    assert {plan([silent], seed)[0][1].name for seed in range(len(FAULTS))} == has_places


def test_a_sample_is_part_of_the_plan_with_each_fault_once() -> None:
    planned = plan([TASKS[at % 3] for at in range(40)], 5)
    chosen = sample(planned, 5)
    assert [fault.name for _, fault in chosen] == list(FAULTS)
    assert all(one in planned for one in chosen)
    # Tasks that change nothing say little about a kill, so they are not drawn for one.
    assert all(task.effects() for task, fault in chosen if fault.name in KILLS)


def test_the_same_seed_draws_the_same_everywhere() -> None:
    """What is written here was drawn once: another machine, or Python, has to draw it, too."""
    assert [(task.name, fault.name, fault.at) for task, fault in plan(TASKS, 3)] == [
        ("two turns", "killed after a call", 1),
        ("a question", "a cut reply", 0),
        ("a look", "words without a call", 0),
    ]


@pytest.mark.parametrize(
    ("name", "task", "lacks", "left_out"),
    [
        (KILLS[1], TURNS, {"crash"}, "crash"),
        (ENDS[1], TURNS, {"finish_call"}, "finish_call"),
        (REPLIES[1], TURNS, {"finish_call"}, "words end a run there"),
        (REPLIES[1], QUESTION, {"finish_again", "ask"}, "words end a run there"),
        (ELSEWHERE, TURNS, {"durable_wait"}, ""),
        (ELSEWHERE, QUESTION, {"ask", "memory"}, "memory"),
    ],
)
def test_a_fault_is_left_out_where_what_it_needs_is_not_claimed(
    name: str, task: Task, lacks: set[str], left_out: str
) -> None:
    assert find_unclaimed(Fault(name), task, dict.fromkeys(lacks, "small")).partition(":")[0] == left_out


# Played by a small loop.


def played(bench: Bench, task: Task, name: str) -> TaskRun:
    return play(bench, "loop", task, Fault(name, at=min(2, len(task.calls) - 1)), 1)


@pytest.fixture(scope="module")
def loop() -> Iterator[Bench]:
    with Bench(LOOP) as bench:
        yield bench


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_loop_is_right_under_every_fault(loop: Bench, fault: str) -> None:
    for task in TASKS:
        run = played(loop, task, fault)
        assert run.right, run
        assert (run.claimed, run.why, run.twice, run.lost) == (True, "", [], [])
        assert run.processes == (2 if fault in (*KILLS, ELSEWHERE) else 1)


# What is done twice, left out, or said to be done is wrong.
ERROR, NOT_SAID, TWICE, ENDLESS = range(4)
CARELESS = [
    ("drops results", NOTHING, TURNS, ENDLESS),
    ("takes what was cut short for done", KILLS[0], TURNS, NOT_SAID),
    ("runs calls again", KILLS[1], TURNS, TWICE),
    ("runs calls again, keeps results late", KILLS[2], TURNS, TWICE),
    ("takes a cut reply for the end", REPLIES[0], TURNS, NOT_SAID),
    ("believes words", REPLIES[1], TURNS, NOT_SAID),
    ("knows calls by their ids alone", REPLIES[2], TURNS, ENDLESS),
    ("believes a finish beside a failure", ENDS[0], LOOK, NOT_SAID),
    ("breaks at a second finish, runs calls again", ENDS[1], TURNS, ERROR),
    *(("tries once, forgets all with an error", name, TURNS, NOT_SAID) for name in PROVIDER),
    ("forgets in another process", ELSEWHERE, TURNS, NOT_SAID),
    ("forgets in another process", ELSEWHERE, QUESTION, NOT_SAID),
]


@pytest.mark.slow
@pytest.mark.parametrize(("careless", "fault", "task", "how"), CARELESS)
def test_a_careless_loop_is_caught(careless: str, fault: str, task: Task, how: int) -> None:
    with Bench([*LOOP, *careless.split(", ")]) as bench:
        run = played(bench, task, fault)
    assert (run.right, run.claimed, bool(run.why)) == (False, True, True)
    assert (run.ended, bool(run.twice)) == (how in (NOT_SAID, TWICE), how == TWICE)


def test_every_fault_catches_somebody() -> None:
    assert {fault for _, fault, _, _ in CARELESS} == set(FAULTS)


@pytest.mark.slow
def test_a_run_in_which_nothing_went_wrong_says_nothing_of_a_fault(loop: Bench) -> None:
    run = play(loop, "loop", LOOK, Fault(KILLS[2], at=9), 1)
    assert (run.right, run.claimed, bool(run.why)) == (True, False, True)
