"""A tree of machines under SIGKILL: two delegates of one reply, each with one below it, effects and questions
in each."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.nested_kills import RESULTS
from tests.support.prepared import run_python
from tests.support.sweeps.nested import faults, kills_of

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "delegate.md"
SWEEP = Path(__file__).parents[1] / "support" / "sweeps" / "nested.py"


def check(where: Path, way: str, first: int, stride: int, most: int, database: str = "") -> int:
    """Kills that many times, and says how often it did."""
    numbers = [str(number) for number in (first, stride, most)]
    done = run_python(SWEEP, where, way, *numbers, database, cwd=SWEEP.parents[3])
    assert done.returncode == 0, done.stderr
    kills = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(faults(kill), kill) for kill in kills if faults(kill)] == []
    return sum(map(kills_of, kills))


def test_what_was_recorded_of_the_whole_sweep() -> None:
    recorded = json.loads(RESULTS.read_text())
    for found in recorded.values():
        wrong = ("effects_twice", "effects_lost", "waits_lost", "ended_otherwise", "ledger_wrong")
        assert [found[name] for name in wrong] == [0] * len(wrong)
    assert recorded["postgresql"]["kills"] >= 200
    assert recorded["sqlite"]["kills"] >= 1_000
    page = PAGE.read_text()
    assert all(f"{found['kills']:,} kills" in page for found in recorded.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "first", "stride"), [("sync", 40, 190), ("async", 70, 230), ("in-turn", 60, 270)]
)
def test_no_effect_runs_twice_and_no_wait_is_lost(
    way: str, first: int, stride: int, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    kills = check(tmp_path, way, first, stride, 100)
    figure(f"a tree of five machines, {way}: {kills} kills, no effect twice, no wait lost")
    assert kills >= 4


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize(("way", "first"), [("sync", 5), ("async", 9), ("in-turn", 13)])
def test_the_same_at_many_more_moments(
    way: str, first: int, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    kills = check(tmp_path, way, first, 21, 100)
    figure(f"a tree of five machines, {way}: {kills} kills, no effect twice, no wait lost")
    assert kills >= 50
