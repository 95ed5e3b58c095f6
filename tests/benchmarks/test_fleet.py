"""Many runs: the numbers about them are right, and what runs at once is not mixed up."""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from signoff import sqlite_storage
from signoff.cli.app import app
from tests.support.fleet import Fleet, plans
from tests.support.fleet_expected import expected

# pytest does not put it there, and the benchmarks are in no installed package.
sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import fleet
from benchmarks.fleet import Task, at_once

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("runs", "seed"), [(100, 5), pytest.param(500, 6, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
@pytest.mark.sample(1)
@pytest.mark.thorough
def test_the_numbers_of_a_fleet_are_those_that_its_scripts_dictate(
    runs: int, seed: int, tmp_path: Path
) -> None:
    file = tmp_path / "threads.sqlite"
    with sqlite_storage(file) as storage:
        fleet = Fleet(storage, plans(runs, seed))
        fleet.run()
        assert fleet.left() == 0
    result = CliRunner().invoke(app, ["stats", "--json", "--database", str(file)])
    found: dict[str, Any] = json.loads(result.stdout)
    assert found["waiting"].pop("seconds") > 0
    assert found["waiting"].pop("mean_seconds") > 0
    wanted = expected(plans(runs, seed))
    for document in (found, wanted):
        document["sections"].sort(key=lambda row: row["section"])
    assert found == wanted


def test_a_fleet_holds_every_way_to_end() -> None:
    """Else the equality above would say little."""
    told = [plan.told for plan in plans(500, 6)]
    assert {(one.status, one.reason) for one in told} == {
        ("success", "finish_task"),
        ("limit", "turns"),
        ("limit", "talk_turns"),
        ("error", "model_error"),
        ("error", "content_filter"),
    }
    assert {one.claim for one in told} == {"done", "partial", "blocked", "impossible", None}
    assert {one.reopened for one in told} == {"rated_low", "next_task", None}
    for number in ("cut_short", "extended", "talk", "asks"):
        assert len({getattr(one, number) for one in told}) > 1, number
    assert all(any(one.needless[kind] for one in told) for kind in ("siblings", "empty_summary"))


@pytest.mark.thorough
def test_a_hundred_tasks_at_once_all_finish_and_none_is_mixed_up(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    begun = time.monotonic()
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        found = asyncio.run(at_once(100, storage))
    seconds = time.monotonic() - begun
    assert [one.outcome["status"] for one in found.tasks] == ["success"] * 100
    assert [one.outcome["summary"] for one in found.tasks] == [
        f"{one.marker} is done." for one in found.tasks
    ]
    assert [one.markers for one in found.tasks] == [{one.marker} for one in found.tasks]
    assert found.together > 50
    turns = statistics.fmean(one.outcome["turns"] for one in found.tasks)
    assert turns < 12
    assert seconds < 300
    figure(
        f"100 tasks at once: {seconds:.1f} s, {turns:.1f} turns on average, up to {found.together} together"
    )


DONE = {"status": "success", "claim": "done", "summary": "task-00001 is done."}
ENDED: dict[str, tuple[dict[str, str], set[str], bool]] = {
    "right": (DONE, {"task-00001"}, True),
    "at a limit": ({**DONE, "status": "limit"}, {"task-00001"}, False),
    "partly": ({**DONE, "claim": "partial"}, {"task-00001"}, False),
    "with the words of another": ({**DONE, "summary": "task-00002 is done."}, {"task-00001"}, False),
    "with another one's marker": (DONE, {"task-00001", "task-00002"}, False),
}


@pytest.mark.parametrize("case", ENDED)
def test_when_a_task_of_the_fleet_has_ended_right(case: str) -> None:
    outcome, markers, right = ENDED[case]
    assert Task("task-00001", outcome, markers).right is right


def test_the_fleet_fails_when_its_tasks_take_too_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.main(tasks=2, pause=0, sqlite=False)
    monkeypatch.setattr(fleet, "MOST_AVERAGE", 2)
    with pytest.raises(SystemExit, match="0 of 2 tasks failed"):
        fleet.main(tasks=2, pause=0, sqlite=False)
