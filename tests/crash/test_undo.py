"""An undo of five effects under SIGKILL: none is undone twice, and none is forgotten."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.prepared import run_python
from tests.support.sweeps.undo import EFFECTS

SWEEP = Path(__file__).parents[1] / "support" / "sweeps" / "undo.py"


def check(where: Path, way: str, stride: int) -> tuple[int, int]:
    """How often it was killed, and how many undos were told as unknown."""
    done = run_python(SWEEP, where, way, str(stride), cwd=SWEEP.parents[3])
    assert done.returncode == 0, done.stderr
    kills, unknown = [json.loads(line) for line in done.stdout.splitlines()], 0
    for kill in kills:
        assert kill["lines"] == len(EFFECTS), kill
        for effect in EFFECTS:
            happened, told = kill["undone"].count(effect), kill["told"][effect]
            if told == "undone":
                assert happened == 1, kill
            else:
                assert (told, happened <= 1) == ("undo_unknown", True), kill
                unknown += 1
        # The newest first, whatever was cut short.
        order = [EFFECTS.index(effect) for effect in kill["undone"]]
        assert order == sorted(order, reverse=True), kill
    return len(kills) - 1, unknown


@pytest.mark.slow
@pytest.mark.parametrize(("way", "stride"), [("failure", 9), ("request-async", 13)])
def test_an_undo_that_is_killed_goes_on_and_undoes_nothing_twice(
    way: str, stride: int, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    kills, unknown = check(tmp_path, way, stride)
    figure(f"an undo of five effects, {way}: {kills} kills, none twice, none forgotten, {unknown} unknown")
    assert kills >= 4


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("way", "stride", "least"),
    [("failure", 1, 40), ("request-async", 1, 40), ("request", 3, 13), ("failure-async", 3, 13)],
)
def test_the_same_at_many_more_writes(
    way: str, stride: int, least: int, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    """Two ways, which have both causes and both kinds of run, at every write; the others at every third."""
    kills, unknown = check(tmp_path, way, stride)
    figure(f"an undo of five effects, {way}: {kills} kills, none twice, none forgotten, {unknown} unknown")
    assert kills >= least
    # An undo was cut short between its start and its end.
    assert unknown > 0
