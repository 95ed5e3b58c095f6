"""The benchmark of AgentDojo's tasks under faults: what its faults do, and how a run is judged, on a task of
our own; and a task of AgentDojo's where its environment is there."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

# pytest does not put it there, and the benchmarks are in no installed package.
sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.agentdojo.__main__ import PYTHON
from benchmarks.agentdojo.faults import ENDS, KILLS, NAMES, Fault, drawn
from benchmarks.agentdojo.pages import PAGE, page, table
from benchmarks.agentdojo.run import claimed, run
from benchmarks.agentdojo.subjects import SUBJECTS
from benchmarks.agentdojo.task import Call, Done, Task, Tool

ROOT = Path(__file__).parents[2]
GUARDED = ("create_agent with Guards", "Signoff")


class Amount(BaseModel):
    amount: int


def pay(state: dict[str, int], args: Mapping[str, Any]) -> str:
    state["paid"] += args["amount"]
    return "paid"


def balance(state: dict[str, int], args: Mapping[str, Any]) -> str:
    return str(state["paid"] + args["amount"])


def solved(answer: str, state: dict[str, int], ran: Sequence[Call]) -> bool:
    return state["paid"] == 7 and answer == "Seven."


TOOLS = {
    "pay": Tool("pay", "Pay.", Amount, pay, reads=False),
    "balance": Tool("balance", "Look.", Amount, balance, reads=True),
}
CALLS = (Call("balance", {"amount": 0}), Call("pay", {"amount": 3}), Call("pay", {"amount": 4}))
TASK = Task("shop", "Pay seven.", TOOLS, CALLS, "Seven.", lambda: {"paid": 0}, solved)


@pytest.mark.parametrize("subject", GUARDED)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sample(8)
def test_what_is_guarded_is_right_under_every_fault(subject: str, name: str) -> None:
    fault = drawn(name, TASK, 1)
    assert fault is not None
    done = run(subject, TASK, fault)
    assert done.right, done


@pytest.mark.parametrize(
    ("fault", "right", "twice"),
    [
        (Fault("nothing"), True, []),
        (Fault("words without a call", 1), False, []),
        (Fault("killed in a call", 1), False, ["pay"]),
    ],
)
def test_create_agent_alone_is_judged_by_what_took_place(fault: Fault, right: bool, twice: list[str]) -> None:
    done = run("create_agent", TASK, fault)
    assert (done.right, done.twice, done.wrongly) == (right, twice, not right), done


def test_a_kill_takes_a_second_process() -> None:
    assert [run("Signoff", TASK, Fault(kill, 1)).processes for kill in KILLS] == [2, 2, 2]


def test_the_places_of_faults_are_those_of_the_seed() -> None:
    first, again, other = ([drawn(name, TASK, seed) for name in NAMES] for seed in (1, 1, 5))
    assert first == again != other
    assert all(one is not None and one.at in TASK.effects() for one in first if one and one.name in KILLS)


def test_a_task_without_a_place_for_a_fault_is_left_out() -> None:
    reading = Task("look", "Look.", TOOLS, (), "Nothing.", lambda: {"paid": 0}, solved)
    assert [name for name in NAMES if drawn(name, reading, 1) is None] == [
        one for one in NAMES if one not in ("nothing", ENDS[1])
    ]


def test_the_table_has_a_denominator_for_each_figure() -> None:
    runs = [
        Done("create_agent", "a", "nothing", solved=True, ended=True),
        Done("create_agent", "b", "nothing", solved=True, ended=True, twice=["pay"]),
        Done("Signoff", "a", "a second finish", ended=True),
    ]
    lines = table(runs).splitlines()
    assert "| nothing | 1 of 2 |  |" in lines
    assert "| **all** | **1 of 2** | **0 of 1** |" in lines
    assert "| said that it is done, wrongly | 1 | 1 |" in lines
    assert not claimed("create_agent", ENDS[1])
    assert all(claimed(one, name) for one in SUBJECTS for name in NAMES if name != ENDS[1])


def test_the_page_is_of_the_recorded_results() -> None:
    assert PAGE.read_text() == page()


@pytest.mark.thorough
@pytest.mark.skipif(not PYTHON.exists(), reason="AgentDojo is not installed (benchmarks.agentdojo --install)")
@pytest.mark.timeout(300)
def test_a_task_of_agentdojo_is_played_under_every_fault() -> None:
    command = [sys.executable, "-m", "benchmarks.agentdojo", "--tasks", "1", "--seed", "3"]
    played = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stderr
    rows = [line for line in played.stdout.splitlines() if line.startswith("| **all**")]
    guarded, own = (cell.strip(" *").split(" of ") for cell in rows[0].split("|")[3:5])
    assert guarded[0] == guarded[1] == own[0] == own[1]
