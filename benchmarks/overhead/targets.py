"""The targets, as data, and whether figures meet them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.overhead.measure import DEFAULTS, Figure

OWN = "signoff"
UNLIMITED = "Signoff without a time limit on tools, like the others"
AS_BUILT = "Signoff with default settings, except for the turn limit; no time is subtracted"


@dataclass(frozen=True)
class Ratio:
    """CPU per turn of Signoff over that of another subject, measured alternately: at most `most`.

    own: which one of Signoff's own subjects."""

    over: str
    turns: int
    stored: bool
    most: float
    stretch: float | None = None
    own: str = OWN

    @property
    def name(self) -> str:
        where = "SQLite" if self.stored else "no storage"
        settings = "" if self.own == OWN else f" with {self.own.removeprefix(f'{OWN}, ')}"
        return f"CPU{settings} over {self.over}, {self.turns:,} turns, {where}"

    @property
    def beside(self) -> str:
        return UNLIMITED if self.own == OWN else AS_BUILT


@dataclass(frozen=True)
class Result:
    """A target and its measured value. beside: settings and subtracted times that are not in the name."""

    name: str
    measured: float
    most: float
    unit: str = ""
    stretch: float | None = None
    beside: str = ""

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
    Ratio(BARE, 200, False, 0.65, own=DEFAULTS),
    Ratio(EQUAL, 200, False, 0.34, own=DEFAULTS),
    Ratio(BARE, 200, True, 0.55, own=DEFAULTS),
    Ratio(EQUAL, 200, True, 0.2, own=DEFAULTS),
    Ratio(BARE, 1_000, True, 0.24, own=DEFAULTS),
)
LENGTHS = (50, 200, 1_000)
LONG = 10_000
DISK_AT, DISK, DISK_GROWTH = 200, 8.0, 1.15
GROWTH = ((1_000, 1.45), (LONG, 2.0))
OPENING, MEMORY = "opening 1,000 turns again", "memory of 1,000 turns"
IMPORTING, HEAVY = "import signoff; signoff.build_graph", "packages that the import should not need"
SUBTRACTED = f"{UNLIMITED}; the CPU of the model call alone (its row above) is subtracted from both"
ALONE = (
    (
        OPENING,
        100.0,
        "ms",
        "a new process, SQLite; from the end of the imports until the session knows its status",
    ),
    (MEMORY, 6.0, "MB", f"{UNLIMITED}; no storage; the peak size of Python's objects, minus the size before"),
    (IMPORTING, 0.1, "s", "CPU; langgraph.graph is imported before and not counted"),
    (HEAVY, 0.0, "", "imported by `import signoff`, in addition to those of langgraph.graph"),
)


def ratios(figures: Sequence[Figure]) -> list[Result]:
    """Returns the targets for which both figures exist."""
    by_key = {(one.subject, one.turns, one.stored): one for one in figures}
    found = []
    for target in RATIOS:
        own = by_key.get((target.own, target.turns, target.stored))
        other = by_key.get((target.over, target.turns, target.stored))
        if own and other:
            result = Result(
                target.name, own.cpu / other.cpu, target.most, "times", target.stretch, target.beside
            )
            found.append(result)
    return found


def growth(figures: Sequence[Figure]) -> list[Result]:
    """Returns how a turn's own CPU (without `model.invoke`) and its size on disk grow with the run."""
    own = {one.turns: one for one in figures if one.subject == OWN and not one.stored}
    model = {one.turns: one for one in figures if one.subject == "model alone"}
    disk = {(one.subject, one.turns): one.kilobytes for one in figures if one.stored}
    found = []
    for turns, most in GROWTH:
        if {50, turns} <= own.keys() & model.keys():
            now, before = own[turns].cpu - model[turns].cpu, own[50].cpu - model[50].cpu
            name = f"CPU of a turn, {turns:,} turns over 50"
            found.append(Result(name, now / before, most, "times", beside=SUBTRACTED))
    if (DEFAULTS, DISK_AT) in disk:
        name = f"disk of a turn, {DISK_AT:,} turns"
        found.append(Result(name, disk[DEFAULTS, DISK_AT], DISK, "KB", beside=AS_BUILT))
    if {(OWN, 50), (OWN, LONG)} <= disk.keys():
        grown = disk[OWN, LONG] / disk[OWN, 50]
        name = f"disk of a turn, {LONG:,} turns over 50"
        found.append(Result(name, grown, DISK_GROWTH, "times", beside=UNLIMITED))
    return found


def alone(found: Mapping[str, float]) -> list[Result]:
    """Returns the targets for Signoff alone, as far as they were measured."""
    return [
        Result(name, found[name], most, unit, beside=beside)
        for name, most, unit, beside in ALONE
        if name in found
    ]
