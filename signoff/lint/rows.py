"""Repetitions in a row of steps: the same again and again, alone or as a cycle of two or three."""

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

_PERIODS = (1, 2, 3)


class Row(NamedTuple):
    """From step `start` on, `period` steps come round `times` times."""

    start: int
    period: int
    times: int


def rows(steps: Sequence[Hashable], least: int) -> Iterator[Row]:
    """The repetitions of at least `least` rounds, first to last, none within another. A step that is None
    is like no other."""
    at = 0
    while at < len(steps):
        found = (Row(at, period, _rounds(steps, at, period)) for period in _PERIODS)
        row = next((each for each in found if each.times >= least), None)
        if row:
            yield row
        at += row.period * row.times if row else 1


def _rounds(steps: Sequence[Hashable], start: int, period: int) -> int:
    """How often the `period` steps from `start` on come round in a row."""
    at = start + period
    while at < len(steps) and steps[at] is not None and steps[at] == steps[at - period]:
        at += 1
    return (at - start) // period
