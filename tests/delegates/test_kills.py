"""A tree of machines under SIGKILL: two delegates of one reply, each with one below it, effects and questions
in each."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.prepared import run_python

SWEEP = Path(__file__).parents[1] / "support" / "sweeps" / "nested.py"


def check(where: Path, way: str, first: int, stride: int, most: int) -> int:
    """Kills that many times, and says how often it did."""
    numbers = [str(number) for number in (first, stride, most)]
    done = run_python(SWEEP, where, way, *numbers, cwd=SWEEP.parents[3])
    assert done.returncode == 0, done.stderr
    kills = [json.loads(line) for line in done.stdout.splitlines()]
    for kill in kills:
        assert kill["twice"] == [], kill
        # What had started and was cut short is told as unknown, and never run again.
        assert len(kill["missing"]) <= kill["unknown"], kill
        assert kill["asked"] == [["left"], ["left", "deep"], ["right"], ["right", "deep"]], kill
        assert (kill["status"], kill["turns"], kill["told"]) == ("success", 18, ["success"] * 3), kill
    return sum((not kill["alive"]) + kill["again"] for kill in kills)


@pytest.mark.slow
@pytest.mark.parametrize(("way", "first", "stride"), [("sync", 40, 110), ("async", 70, 130)])
def test_no_effect_runs_twice_and_no_wait_is_lost(
    way: str, first: int, stride: int, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    kills = check(tmp_path, way, first, stride, 100)
    figure(f"a tree of five machines, {way}: {kills} kills, no effect twice, no wait lost")
    assert kills >= 4


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize(("way", "first"), [("sync", 5), ("async", 9)])
def test_the_same_at_many_more_moments(
    way: str, first: int, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    kills = check(tmp_path, way, first, 9, 100)
    figure(f"a tree of five machines, {way}: {kills} kills, no effect twice, no wait lost")
    assert kills >= 50
