"""The targets, as data, and whether figures meet them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.overhead.measure import Figure


@dataclass(frozen=True)
class Ratio:
    """CPU of a turn of Signoff over that of another subject, measured in turns in one run: at most `most`."""

    over: str
    turns: int
    stored: bool
    most: float
    stretch: float

    @property
    def name(self) -> str:
        where = "SQLite" if self.stored else "no storage"
        return f"CPU over {self.over}, {self.turns:,} turns, {where}"


@dataclass(frozen=True)
class Result:
    """A target and what was measured."""

    name: str
    measured: float
    most: float
    unit: str = ""
    stretch: float | None = None

    @property
    def met(self) -> bool:
        return self.measured <= self.most


BARE, EQUAL = "create_agent", "create_agent, equal features"
RATIOS = (
    Ratio(BARE, 200, False, 0.75, 0.6),
    Ratio(EQUAL, 200, False, 0.42, 0.35),
    Ratio(BARE, 200, True, 0.75, 0.6),
    Ratio(EQUAL, 200, True, 0.33, 0.2),
    Ratio(BARE, 1_000, True, 0.28, 0.15),
)
LENGTHS = (50, 200, 1_000)
LONG = 10_000
DISK_AT, DISK, DISK_GROWTH = 200, 8.0, 1.15
GROWTH = ((1_000, 1.45), (LONG, 2.0))
OPENING, MEMORY = "opening 1,000 turns again", "memory of 1,000 turns"
IMPORTING, HEAVY = "import signoff, over langgraph.graph", "packages that the import should not need"
ALONE = ((OPENING, 100.0, "ms"), (MEMORY, 6.0, "MB"), (IMPORTING, 0.1, "s"), (HEAVY, 0.0, ""))


def ratios(figures: Sequence[Figure]) -> list[Result]:
    """Those targets for which both figures are there."""
    by_key = {(one.subject, one.turns, one.stored): one for one in figures}
    found = []
    for target in RATIOS:
        own = by_key.get(("signoff", target.turns, target.stored))
        other = by_key.get((target.over, target.turns, target.stored))
        if own and other:
            found.append(Result(target.name, own.cpu / other.cpu, target.most, "times", target.stretch))
    return found


def growth(figures: Sequence[Figure]) -> list[Result]:
    """How a turn's own CPU (without that of `model.invoke`) and its place on disk grow with the run."""
    own = {one.turns: one for one in figures if one.subject == "signoff" and not one.stored}
    model = {one.turns: one for one in figures if one.subject == "model alone"}
    disk = {one.turns: one for one in figures if one.subject == "signoff" and one.stored}
    found = []
    for turns, most in GROWTH:
        if {50, turns} <= own.keys() & model.keys():
            now, before = own[turns].cpu - model[turns].cpu, own[50].cpu - model[50].cpu
            found.append(Result(f"CPU of a turn, {turns:,} turns over 50", now / before, most, "times"))
    if DISK_AT in disk:
        found.append(Result(f"disk of a turn, {DISK_AT:,} turns", disk[DISK_AT].kilobytes, DISK, "KB"))
    if {50, LONG} <= disk.keys():
        grown = disk[LONG].kilobytes / disk[50].kilobytes
        found.append(Result(f"disk of a turn, {LONG:,} turns over 50", grown, DISK_GROWTH, "times"))
    return found


def alone(found: Mapping[str, float]) -> list[Result]:
    """What only Signoff is asked, as far as it was measured."""
    return [Result(name, found[name], most, unit) for name, most, unit in ALONE if name in found]
