"""The tasks of BFCL: played straight, each is solved by BFCL's own checkers, and played wrongly it is not."""

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest

from loopcheck.sources.bfcl import SOURCE, World
from loopcheck.sources.task import Call, Task, Tool

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(find_spec("bfcl_eval") is None, reason=f"needs {SOURCE.packages[0]}"),
]
UNSEEN = {"multi_turn_base_139", "multi_turn_miss_param_139"}
"""Their last write puts on a list what is there already, and answers as another of their calls does."""


@cache
def tasks() -> Sequence[Task]:
    return SOURCE.tasks()


def played(task: Task, calls: Sequence[Call]) -> World:
    world: World = task.begin()
    for call in calls:
        try:
            task.tools[call.name].run(world, call.args)
        except ValueError:
            # What a second time may come to: the file is there already.
            assert calls.count(call) > task.calls.count(call)
    return world


def solved(task: Task, calls: Sequence[Call]) -> bool:
    return task.solved(played(task, calls), [turn.answer for turn in task.turns], calls)


def all_calls(task: Task) -> Sequence[Call]:
    return task.calls


def no_calls(task: Task) -> Sequence[Call]:
    return []


def reads_twice(task: Task) -> Sequence[Call]:
    return [call for call in task.calls for _ in range(1 + task.tools[call.name].reads)]


def last_write(task: Task, times: int) -> Sequence[Call]:
    *_, last = task.effects()
    return [call for at, call in enumerate(task.calls) for _ in range(times if at == last else 1)]


@pytest.mark.parametrize(("calls", "right"), [(all_calls, True), (reads_twice, True), (no_calls, False)])
def test_every_task_is_judged_by_what_was_played(
    calls: Callable[[Task], Sequence[Call]], right: bool
) -> None:
    assert [task.name for task in tasks() if solved(task, calls(task)) != right] == []


def test_a_missing_write_is_seen_and_a_second_one_is_judged() -> None:
    writing = [task for task in tasks() if task.effects()]
    assert {task.name for task in writing if solved(task, last_write(task, 0))} == UNSEEN
    assert {solved(task, last_write(task, 2)) for task in writing} == {True, False}


def test_what_writes_is_what_changes_a_system() -> None:
    checker = pytest.importorskip("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker")
    changed, writes = set(), set()
    for task in tasks():
        world = task.begin()
        for call in task.calls:
            before = copy.deepcopy(world.systems)
            task.tools[call.name].run(world, call.args)
            same = checker.state_checker(world.systems, before)["valid"]
            same = same and folder(world.systems) == folder(before)
            changed |= set() if same else {call.name}
            writes |= set() if task.tools[call.name].reads else {call.name}
    assert changed == writes


def folder(systems: Mapping[str, Any]) -> str:
    """Where the file system is, which BFCL's checker does not look at."""
    files = systems.get("GorillaFileSystem")
    return str(files.pwd()) if files else ""


def test_the_tasks_and_those_left_out_are_all_of_four_categories() -> None:
    names = [task.name for task in tasks()]
    assert not set(names) & set(SOURCE.left_out)
    count = Counter(name.rpartition("_")[0] for name in [*names, *SOURCE.left_out])
    kinds = ("base", "miss_func", "miss_param", "long_context")
    assert count == {f"multi_turn_{kind}": 200 for kind in kinds}


def test_what_a_user_says_is_found_in_one_turn_only() -> None:
    for task in tasks():
        says = [turn.say for turn in task.turns]
        texts = [*says, *played(task, task.calls).results]
        assert all(sum(say in text for text in texts) == 1 for say in says), task.name


def tool(name: str) -> Tool:
    return next(task.tools[name] for task in tasks() if name in task.tools)


def test_arguments_are_compared_as_the_function_gets_them() -> None:
    fill, tail = tool("fillFuelTank"), tool("tail")
    assert fill.key({"fuelAmount": 5}) == fill.key({"fuelAmount": 5.0})
    assert tail.key({"file_name": "a"}) == tail.key({"lines": 10.0, "file_name": "a"})
    with pytest.raises(ValueError, match="fuelAmount"):
        fill.key({})
    assert fill.parameters["type"] == "object"
    assert fill.parameters["properties"]["fuelAmount"]["type"] == "number"


def test_one_world_does_not_change_another() -> None:
    task = next(task for task in tasks() if task.name == "multi_turn_long_context_180")
    first, second = task.begin(), task.begin()
    for card in first.systems["TravelAPI"].credit_card_list.values():
        card["balance"] = -1.0
    cards = [*second.systems["TravelAPI"].credit_card_list.values()]
    cards += task.begin().systems["TravelAPI"].credit_card_list.values()
    assert all(card["balance"] >= 0 for card in cards)
