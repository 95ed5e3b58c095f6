"""The tasks of τ²-bench: played as they should be they are solved, and in no other way."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import pytest

from loopcheck.sources.task import Ask, Call, Move, Task
from loopcheck.sources.tau2 import DOMAINS, LEFT_OUT, SOURCE, every_task, play, tasks

pytest.importorskip("tau2", reason=f"{SOURCE.title} is not installed: see the packages of its source")

NOTHING_ASKED = {"airline": 19, "retail": 7}
"""How many tasks want nothing of the world, and nothing said: what they test is that the agent refuses, or
what a language model judges."""


def solved(task: Task, moves: Sequence[Move], answer: str) -> bool:
    calls = [move for move in moves if isinstance(move, Call)]
    return task.solved(play(task, moves, task.begin()), [answer], calls)


def writes(task: Task) -> list[int]:
    """The places, among the moves, of those that change the world."""
    moves = task.turns[0].moves
    return [
        at
        for at, move in enumerate(moves)
        if (move.does if isinstance(move, Ask) else not task.tools[move.name].reads)
    ]


def test_every_task_of_the_domains_takes_part() -> None:
    names = [task.name for task in every_task()]
    assert Counter(name.split()[0] for name in names) == DOMAINS
    assert len(set(names)) == len(names)
    assert [task.name for task in tasks()] == [name for name in names if name not in LEFT_OUT]


def test_the_words_of_the_user_tell_the_places_in_a_task_apart() -> None:
    for task in every_task():
        [turn] = task.turns
        words = [turn.say, *(move.answer for move in turn.moves if isinstance(move, Ask))]
        assert len(words) > 1, task.name
        assert all(words), task.name
        assert sum(one in other for one in words for other in words) == len(words), task.name


def test_a_world_is_not_changed_by_what_happens_in_another() -> None:
    for task in {task.name.split()[0]: task for task in every_task() if task.effects()}.values():
        [turn] = task.turns
        before = task.begin()
        assert solved(task, turn.moves, turn.answer)
        assert not task.solved(before, [turn.answer], [])
        assert before.get_db_hash() == task.begin().get_db_hash()


def test_equal_calls_have_equal_keys() -> None:
    refuel = next(task for task in every_task() if task.name.startswith("telecom")).tools["refuel_data"]
    args = {"customer_id": "C1", "line_id": "L1"}
    assert refuel.key({**args, "gb_amount": 2}) == refuel.key({"gb_amount": 2.0, **args})
    for wrong in (args, {**args, "gb_amount": 2, "more": 1}):
        with pytest.raises(TypeError):
            refuel.key(wrong)


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_every_task_is_solved_by_its_moves_and_by_no_less() -> None:
    for task in tasks():
        [turn] = task.turns
        assert not task.twice(map(task.key, turn.calls)), task.name
        assert solved(task, turn.moves, turn.answer), task.name
    idle = [task for task in tasks() if solved(task, [], "")]
    assert Counter(task.name.split()[0] for task in idle) == NOTHING_ASKED
    assert not [task.name for task in idle if writes(task)]


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_a_write_left_out_or_made_twice_is_judged() -> None:
    for task in tasks():
        [turn] = task.turns
        for at in writes(task)[-1:]:
            before, write, after = turn.moves[:at], turn.moves[at], turn.moves[at + 1 :]
            assert not solved(task, [*before, *after], turn.answer), task.name
            world = play(task, [*before, write], task.begin())
            with suppress(ValueError):  # the second time it may be refused
                play(task, [write], world)
            assert task.solved(world, [turn.answer], turn.calls) in (True, False)


@pytest.mark.thorough
def test_what_is_left_out_is_not_solved_by_its_moves() -> None:
    for task in every_task():
        [turn] = task.turns
        assert task.name not in LEFT_OUT or not solved(task, turn.moves, turn.answer), task.name
