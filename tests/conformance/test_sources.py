"""The public tasks: played as they should be, the checker of their source says yes, and in no other way."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from loopcheck.sources.registry import SOURCES
from loopcheck.sources.task import Ask, Call, Move, State, Task

pytestmark = [
    pytest.mark.timeout(900),
    # Of the clients of models that the packages import.
    pytest.mark.filterwarnings("ignore"),
]


class Counts(NamedTuple):
    """tasks: how many take part. idle: of these, those that want nothing of the world and nothing said.

    blind: those whose checker does not see that the last write is missing.
    """

    tasks: int
    idle: int
    blind: int


COUNTS = {"agentdojo": Counts(97, 5, 3), "bfcl": Counts(0, 0, 2), "tau2": Counts(0, 26, 0)}


@pytest.fixture(scope="module", params=COUNTS)
def tasks(request: pytest.FixtureRequest) -> Sequence[Task]:
    try:
        return SOURCES[request.param].tasks()
    except ModuleNotFoundError as missing:
        pytest.skip(f"{SOURCES[request.param].packages[0]} is not installed: {missing}")


def moves_of(task: Task) -> list[Move]:
    return [move for turn in task.turns for move in turn.moves]


def is_write(task: Task, move: Move) -> bool:
    return bool(move.does) if isinstance(move, Ask) else not task.tools[move.name].reads


def played(task: Task, moves: Sequence[Move]) -> State:
    state = task.begin()
    for move in moves:
        if isinstance(move, Call):
            task.tools[move.name].run(state, move.args)
        elif move.does is not None:
            move.does(state)
    return state


def is_solved(task: Task, moves: Sequence[Move], answers: Sequence[str]) -> bool:
    calls = [move for move in moves if isinstance(move, Call)]
    return bool(task.solved(played(task, moves), answers, calls))


def test_every_task_is_solved_by_its_moves_and_not_by_nothing(tasks: Sequence[Task]) -> None:
    for task in tasks:
        moves, answers = moves_of(task), [turn.answer for turn in task.turns]
        assert is_solved(task, moves, answers), task.name
        assert not task.twice(map(task.key, task.calls)), task.name
    names = [task.name for task in tasks]
    assert len(set(names)) == len(names) >= COUNTS[tasks[0].source].tasks
    idle = [task for task in tasks if is_solved(task, [], [])]
    assert len(idle) == COUNTS[tasks[0].source].idle


def test_a_missing_write_is_seen(tasks: Sequence[Task]) -> None:
    blind = []
    for task in tasks:
        moves, answers = moves_of(task), [turn.answer for turn in task.turns]
        last = [at for at, move in enumerate(moves) if is_write(task, move)][-1:]
        if last and is_solved(task, [*moves[: last[0]], *moves[last[0] + 1 :]], answers):
            blind.append(task.name)
    assert len(blind) == COUNTS[tasks[0].source].blind
