"""Random kills: a thread is picked up by its ID, loses nothing and repeats nothing."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.random_kills import run_one

THREADS = 8
"""`python -m tests.random_kills --threads 200` runs more."""


def sweep(database: str, folder: Path, seed: int, figure: Callable[[str], None]) -> None:
    found = [run_one(number, database, folder) for number in range(seed, seed + THREADS)]
    wrong = {result.seed: result.problems for result in found if result.problems}
    kind = "PostgreSQL" if database.startswith("postgres") else "SQLite"
    figure(
        f"{kind}, seeds {seed} to {seed + THREADS - 1}: {THREADS} threads ended right after "
        f"{sum(result.kills for result in found)} kills at random moments, "
        f"{sum(result.unknown for result in found)} outcomes unknown, no effect twice"
    )
    assert not wrong
    assert sum(result.kills for result in found) >= THREADS


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.thorough
def test_on_sqlite(tmp_path: Path, figure: Callable[[str], None]) -> None:
    sweep(str(tmp_path / "threads.sqlite"), tmp_path, int(time.time()), figure)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.thorough
def test_on_postgresql(postgres_url: str, tmp_path: Path, figure: Callable[[str], None]) -> None:
    sweep(postgres_url, tmp_path, int(time.time()), figure)
