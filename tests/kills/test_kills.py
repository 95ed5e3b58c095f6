"""Killed at any moment, a thread is picked up by its id: no effect takes place twice, and each is told."""

import time
from collections.abc import Callable

import pytest

from tests.kills.__main__ import TARGETS, swept

SEED = 2
FEW = {"sqlite": 3, "postgresql": 2}
MANY = 100
"""Kills of each target on each database: in all 25, always the same, and 1,000, others each time."""


def database_of(kind: str, request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("postgres_url") if kind == "postgresql" else "")


@pytest.mark.slow
@pytest.mark.parametrize("kind", FEW)
@pytest.mark.parametrize("target", TARGETS)
def test_a_few_kills(target: str, kind: str, request: pytest.FixtureRequest) -> None:
    found = swept(target, FEW[kind], SEED, database_of(kind, request))
    assert found.faults == ()


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("kind", FEW)
@pytest.mark.parametrize("target", TARGETS)
def test_many_kills(
    target: str, kind: str, request: pytest.FixtureRequest, figure: Callable[[str], None]
) -> None:
    seed = int(time.time())
    found = swept(target, MANY, seed, database_of(kind, request))
    figure(f"{target} on {kind}, seed {seed}: {found.kills} kills, {found.unknown} effects told as unknown")
    assert found.faults == ()
