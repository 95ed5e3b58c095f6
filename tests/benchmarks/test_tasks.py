"""The benchmarks of whole tasks: both loops do what is claimed, and the pages say what was recorded."""

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import delegate_cost, iterations
from benchmarks.comparison import Prices, fewer, rows
from benchmarks.file_tasks import TASKS, TURNS, FileTask, run_task
from benchmarks.fleet import at_once
from benchmarks.iterations import CLASSES, simulated
from benchmarks.loops import LOOPS, PLAIN, SIGNOFF, Run
from benchmarks.prompt_tokens import more, o200k
from benchmarks.workers.proof import Plan, prove
from signoff import sqlite_storage
from signoff.models import ScriptedModel, call
from tests.support.servers.postgres import Server
from tests.support.sources import REPOSITORY

PRICES = Prices(input=2.0, output=10.0)


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return simulated(latency=0)


def test_the_plain_loop_never_ends_and_signoff_ends_with_the_work(runs: list[Run]) -> None:
    assert len(runs) == 40
    for run in runs:
        ended = ("30 turns", 30) if run.loop == PLAIN else ("finish_task (done)", CLASSES[run.kind][1])
        assert (run.ended, run.turns) == ended, run


def test_the_rows_are_means_of_the_runs(runs: list[Run]) -> None:
    found = rows(runs, PRICES)
    paid = [run.input_tokens * 2 + run.output_tokens * 10 for run in runs if run.loop == PLAIN]
    assert found[-2].cost == pytest.approx(sum(paid) / len(paid) / 1e6)
    assert {row.loop: row.turns for row in found if row.kind == "all"} == {PLAIN: 30, SIGNOFF: 8.7}
    assert fewer(found)["turns"] == pytest.approx(0.71)


SOLUTIONS = [
    {"settings.ini": "[http]\ntimeout = 30\nretries = 5\n"},
    {"notes.txt": "buy milk\n"},
    {"letter.txt": "Dear Ann,\nI did not receive your parcel.\nBob\n"},
    {
        "cart.py": "def total_price(prices):\n    return sum(prices)\n",
        "shop.py": "from cart import total_price\n\nprint(total_price([1, 2]))\n",
    },
    {"maths.py": "def add(a, b):\n    return a + b\n\n\ndef subtract(a, b):\n    return a - b\n"},
]


@pytest.mark.parametrize(("task", "solution"), list(zip(TASKS, SOLUTIONS, strict=True)))
def test_a_file_task_can_be_done_right_and_is_not_right_by_itself(
    task: FileTask, solution: dict[str, str], tmp_path: Path
) -> None:
    steps = [call("write_file", path=path, content=text) for path, text in solution.items()]
    finish = call("finish_task", summary="x")
    for loop, script, right in (
        (SIGNOFF, [*steps, finish], True),
        (SIGNOFF, [finish], False),
        (PLAIN, ["Done."], False),
    ):
        (tmp_path / f"{loop}{right}").mkdir()
        assert run_task(loop, ScriptedModel(script), task, tmp_path / f"{loop}{right}").right is right


def test_the_docs_quote_the_simulated_and_the_recorded_table(runs: list[Run]) -> None:
    page = (REPOSITORY / "docs" / "benchmarks" / "index.md").read_text()
    _, recorded = iterations.recorded()
    assert [(run.loop, run.task) for run in recorded] == [
        (loop, one.words) for one in TASKS for loop in LOOPS
    ]
    assert all(0 < run.turns <= TURNS for run in recorded)
    for row in (*rows(runs, PRICES)[-2:], *rows(recorded, PRICES)):
        assert f"| {row.loop.partition(': ')[2]} | {row.turns:.1f} | {row.tokens:,.0f} |" in page


def test_the_first_request_is_little_longer_than_that_of_create_agent() -> None:
    # 4.4 characters make a token here.
    assert 2_000 < more(len, waits=False) <= more(len, waits=True) <= 2_420
    count = o200k()
    assert count is None or more(count, waits=True) <= 550


def test_the_page_of_delegates_has_the_recorded_table() -> None:
    """Of runs that are compared round by round: a machine that is slow for a while slows both."""
    assert delegate_cost.compared({"alone": [1.0, 4.0, 2.0], "a": [1.1, 4.4, 5.0]}) == {"a": 1.1}
    text = delegate_cost.PAGE.read_text("utf-8")
    assert delegate_cost.page(text, json.loads(delegate_cost.RESULTS.read_text("utf-8"))) == text


def program(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)


@pytest.mark.slow
def test_ten_finishes_cost_one_with_the_inner_guard() -> None:
    told = json.loads(program("benchmarks.double_finish", "--json", "--no-model", "--pause", "0.02").stdout)
    for part in ("server", "scripted"):
        guarded, bare = told[part]["with"], told[part]["without"]
        assert (guarded["finishes"], bare["finishes"]) == (1, 10)
        assert guarded["tokens"] < bare["tokens"] / 3


@pytest.mark.slow
def test_a_benchmark_runs_as_a_program() -> None:
    # One that misses its target says so by its exit code.
    done = program("benchmarks.delegate_cost", "--turns", "10", "--runs", "1", "--processes", "1")
    assert ("Traceback" in done.stderr, "sync" in done.stdout) == (False, True)


@pytest.mark.slow
def test_a_hundred_tasks_at_once_all_finish_and_none_is_mixed_up(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        told = asyncio.run(at_once(100, storage))
    assert [one.right for one in told.tasks] == [True] * 100
    assert told.together > 50
    mixed_up = replace(told.tasks[0], markers=told.tasks[0].markers | told.tasks[1].markers)
    assert not mixed_up.right


@pytest.mark.slow
def test_of_workers_that_are_killed_nothing_is_lost_and_nothing_is_done_twice(
    tmp_path: Path, own_postgres_server: Server
) -> None:
    plan = Plan(threads=12, steps=6, kills=2, stops=1, restarts=1)
    told = prove(plan, own_postgres_server, tmp_path)
    assert told.right, f"{told}\n{(tmp_path / 'log').read_text()}"
    assert told.calls_twice == 0
