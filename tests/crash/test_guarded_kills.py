"""Kills under plain `Guards` with a store and LangGraph's default durability: no effect twice, none lost."""

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.guarded_kills import POSTGRES, SQLITE, sweep

SEED = 20_005
MANY = pytest.param(63, marks=[pytest.mark.long, pytest.mark.thorough, pytest.mark.timeout(1800)])
"""The kills of each way in a thorough run, which has 500 over all ways."""

KILLS = pytest.mark.parametrize("kills", [3, MANY])
Figure = Callable[[str], None]


def check(way: str, database: str, folder: Path, kills: int, figure: Figure) -> None:
    seed = SEED if kills == 3 else int(time.time())
    found = sweep(way, database, folder, itertools.count(seed), kills)
    figure(f"plain Guards, {way}, seeds from {seed}: {found.kills} kills, {found.unknown} outcomes unknown")
    assert found.problems == []
    assert found.kills >= kills


@pytest.mark.slow
@KILLS
@pytest.mark.parametrize("way", SQLITE)
def test_no_effect_is_lost_or_takes_place_twice(way: str, kills: int, tmp_path: Path, figure: Figure) -> None:
    check(way, str(tmp_path / "threads.sqlite"), tmp_path, kills, figure)


@pytest.mark.slow
@KILLS
@pytest.mark.parametrize("way", POSTGRES)
def test_none_on_postgresql(way: str, kills: int, postgres_url: str, tmp_path: Path, figure: Figure) -> None:
    check(way, postgres_url, tmp_path, kills, figure)
