"""Seeded schedules of every kind break no law; a schedule that does is told with its seed."""

from collections.abc import Callable

import pytest

from tests.simulate.__main__ import simulate
from tests.simulate.choices import shortest

FEW = [(first, 125) for first in range(0, 1_000, 125)]
MANY = [pytest.param(first, 500, marks=pytest.mark.thorough) for first in range(1_000, 4_000, 500)]


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(("first", "seeds"), [*FEW, *MANY])
def test_no_schedule_breaks_a_law(first: int, seeds: int, figure: Callable[[str], None]) -> None:
    met, played, fault = simulate(seeds, first)
    assert fault is None, str(fault)
    laws = {name for name in met if name.startswith("law")}
    figure(f"schedules {first} to {first + played - 1}: {met['fault: kill']} kills, {len(laws)} laws met")


def test_a_schedule_is_made_as_short_as_what_breaks_something() -> None:
    drawn = [4, 0, 7, 3, 9, 1, 2, 8]
    assert shortest(drawn, lambda given: 7 in given and 9 in given) == [7, 9]
