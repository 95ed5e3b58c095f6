"""The tasks of AgentDojo: played straight, each is solved by its own utility; played wrongly it is not."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec

import pytest

from loopcheck.sources.agentdojo import SOURCE
from loopcheck.sources.task import Call, State, Task

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(find_spec("agentdojo") is None, reason=f"needs {SOURCE.packages[0]}"),
    # Of the clients of models that the package imports.
    pytest.mark.filterwarnings("ignore"),
]
BLIND = {f"banking user_task_{number}" for number in (5, 6, 9)}
"""Their utility finds what it looks for in the first environment already, or only asks that it stays."""
NOTHING_ASKED = BLIND | {"banking user_task_8", "banking user_task_10"}
"""And those that ask for a look, whatever is answered."""
TRACES = {"get_webpage", "get_unread_emails"}


@cache
def tasks() -> Sequence[Task]:
    return SOURCE.tasks()


def played(task: Task, calls: Sequence[Call]) -> State:
    env = task.begin()
    for call in calls:
        try:
            task.tools[call.name].run(env, call.args)
        except ValueError:
            # What a second time may come to: the file is gone already.
            assert calls.count(call) > task.calls.count(call)
    return env


def solved(task: Task, calls: Sequence[Call], answered: bool = True) -> bool:
    answers = [turn.answer for turn in task.turns] if answered else []
    return task.solved(played(task, calls), answers, calls)


def last_write(task: Task, times: int) -> Sequence[Call]:
    *_, last = task.effects()
    return [call for at, call in enumerate(task.calls) for _ in range(times if at == last else 1)]


def all_calls(task: Task) -> Sequence[Call]:
    return task.calls


def reads_twice(task: Task) -> Sequence[Call]:
    return [call for call in task.calls for _ in range(1 + task.tools[call.name].reads)]


@pytest.mark.parametrize("calls", [all_calls, reads_twice])
def test_every_task_is_solved_by_its_solution(calls: Callable[[Task], Sequence[Call]]) -> None:
    assert len(tasks()) == 97
    assert [task.name for task in tasks() if not solved(task, calls(task))] == []


def test_a_task_is_not_solved_by_nothing() -> None:
    assert {task.name for task in tasks() if solved(task, [], answered=False)} == NOTHING_ASKED


def test_a_missing_write_is_seen_and_a_second_one_is_judged() -> None:
    writing = [task for task in tasks() if task.effects()]
    assert {task.name for task in writing if solved(task, last_write(task, 0))} == BLIND
    assert {solved(task, last_write(task, 2)) for task in writing} == {True, False}


def test_what_writes_is_what_changes_the_environment() -> None:
    changed, writes = set(), set()
    for task in tasks():
        env = task.begin()
        for call in task.calls:
            before = env.model_dump()
            task.tools[call.name].run(env, call.args)
            changed |= set() if env.model_dump() == before else {call.name}
            writes |= set() if task.tools[call.name].reads else {call.name}
    assert changed == writes | TRACES


def test_schemas_stand_for_themselves_and_keys_are_of_whole_arguments() -> None:
    tools = {name: tool for task in tasks() for name, tool in task.tools.items()}
    assert not [name for name, tool in tools.items() if "$ref" in json.dumps(tool.parameters)]
    latest = tools["get_most_recent_transactions"]
    assert latest.key({}) == latest.key({"n": 100})
    with pytest.raises(ValueError, match="url"):
        tools["get_webpage"].key({})
