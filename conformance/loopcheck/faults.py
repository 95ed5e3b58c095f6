"""The fault in a run of a task, selected by a seed: kills, and bad replies of providers and models."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from loopcheck.sources.task import Ask, Task

NOTHING = "nothing"
KILLS = ("killed before a call", "killed in a call", "killed after a call")
REPLIES = ("a cut reply", "words without a call", "the same ids again")
ENDS = ("a failed call beside the finish", "a second finish")
PROVIDER = ("a dropped connection", "status 429", "status 500")
ELSEWHERE = "an answer or a message from another process"
FAULTS = (NOTHING, *KILLS, *REPLIES, *ENDS, *PROVIDER, ELSEWHERE)


@dataclass(frozen=True)
class Fault:
    """at: the index, among all calls of the task, at which it happens."""

    name: str
    at: int = 0


def draw_fault(name: str, task: Task, seed: int) -> Fault | None:
    """Returns the fault with this name for this task; None if the task has no place for it."""
    places = list(_places(name, task))
    if not places and name not in (NOTHING, ENDS[1], ELSEWHERE):
        return None
    chance = random.Random(f"{seed} {name} {task.source} {task.name}")
    return Fault(name, chance.choice(places) if places else 0)


def _places(name: str, task: Task) -> Sequence[int]:
    every = range(len(task.calls))
    if name in KILLS:
        # A kill around a change of the world shows most; a task that changes nothing is killed at a read.
        return task.effects() or every
    if name == ENDS[0]:
        # The failing call omits arguments that its tool requires.
        return [at for at in every if task.tools[task.calls[at].name].parameters.get("required")]
    return every


def has_questions(task: Task) -> bool:
    return any(isinstance(move, Ask) for turn in task.turns for move in turn.moves)


def plan(tasks: Sequence[Task], seed: int) -> list[tuple[Task, Fault]]:
    """Pairs each task with one fault. Over as many seeds as there are faults, each task gets every one."""
    found = []
    for place, task in enumerate(tasks):
        turned = (FAULTS[(place + seed + more) % len(FAULTS)] for more in range(len(FAULTS)))
        found.append((task, next(filter(None, (draw_fault(name, task, seed) for name in turned)))))
    return found


def sample(planned: Sequence[tuple[Task, Fault]], seed: int) -> list[tuple[Task, Fault]]:
    """Selects one task for each fault from the whole plan: the same ones for all subjects."""
    shuffled = list(planned)
    random.Random(f"{seed} sample").shuffle(shuffled)
    # A kill shows most around a change of the world, so tasks that change nothing come last.
    shuffled.sort(key=lambda one: one[1].name in KILLS and not one[0].effects())
    first = {fault.name: (task, fault) for task, fault in reversed(shuffled)}
    return [first[name] for name in FAULTS if name in first]
