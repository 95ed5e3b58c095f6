"""The targets for many runs at once, and whether figures meet them."""

from collections.abc import Sequence

from benchmarks.overhead.crowd import OWN, QUICK, SLOW, TOOL_SECONDS, TURNS, Crowd, SlowTools, Writers
from benchmarks.overhead.targets import EQUAL, Result

RAW = "raw graph, 2 nodes"
IDEAL = 1.2
WALLS = ((EQUAL, 0.6), (RAW, 1.2))
"""Wall time of so many runs of Signoff at once over that of another subject: at most."""
LATE = 0.5
"""Seconds that the event loop may be late beside sync tools that take `TOOL_SECONDS`."""
KILOBYTES = 90.0


def walls(crowds: Sequence[Crowd]) -> list[Result]:
    """Those targets of wall time for which the figures are there."""
    by_key = {(one.subject, one.runs, one.model): one for one in crowds}
    found = []
    for own in (one for one in crowds if one.subject == OWN.name):
        if own.model == SLOW:
            name = f"time of {own.runs:,} runs at once over the ideal, model of {SLOW:g} s"
            found.append(Result(name, own.wall / ideal(own.model), IDEAL, "times"))
            continue
        for over, most in WALLS:
            if other := by_key.get((over, own.runs, own.model)):
                name = f"time over {over}, {own.runs:,} runs at once, model of {QUICK * 1e3:g} ms"
                found.append(Result(name, own.wall / other.wall, most, "times"))
    return found


def ideal(model: float, tool: float = 0.0) -> float:
    """Seconds that a run takes in which nothing but the model and the tool takes time."""
    return TURNS * model + (TURNS - 1) * tool


def starving(found: SlowTools | None) -> list[Result]:
    """Whether runs with slow sync tools get on, and hold up nobody."""
    if found is None:
        return []
    slow = found.slow / ideal(QUICK, TOOL_SECONDS)
    runs = f"{found.runs:,} runs"
    return [
        Result(f"time of {runs} with a sync tool of {TOOL_SECONDS:g} s over the ideal", slow, IDEAL, "times"),
        Result(
            f"time of {runs} beside them, over beside async tools",
            found.quick / found.quick_async,
            IDEAL,
            "times",
        ),
        Result("the event loop late beside sync tools, at worst", found.late, LATE, "s"),
    ]


def writing(found: Sequence[Writers]) -> list[Result]:
    """How many runs on one SQLite file did not end right."""

    def name(one: Writers) -> str:
        where = f"{one.processes} processes" if one.processes > 1 else "one process"
        return f"{one.runs:,} runs in {where} on one SQLite file that end wrong"

    return [Result(name(one), one.wrong, 0) for one in found]


def memory(kilobytes: float | None, runs: int) -> list[Result]:
    """What each of many runs at once may take."""
    if kilobytes is None:
        return []
    return [Result(f"memory of each of {runs:,} runs at once", kilobytes, KILOBYTES, "KB")]
