"""The targets for many runs at once, and whether figures meet them."""

from collections.abc import Sequence

from benchmarks.overhead.crowd import OWN, QUICK, SLOW, TOOL_SECONDS, TURNS, Crowd, SlowTools, Writers
from benchmarks.overhead.targets import EQUAL, UNLIMITED, Result

RAW = "raw graph, 2 nodes"
IDEAL = 1.2
WALLS = ((EQUAL, 0.6), (RAW, 1.2))
"""Wall time of so many runs of Signoff at once over that of another subject: at most."""
LATE = 0.5
"""Seconds that the event loop may be late beside sync tools that take `TOOL_SECONDS`."""
KILOBYTES = 90.0
_WALL = f"time, not CPU; asyncio in one process, runs of {TURNS} turns, no storage; {UNLIMITED}"
_IDEAL = f"the ideal is {TURNS} calls of the model and {TURNS - 1} of the tool one after the other"


def walls(crowds: Sequence[Crowd]) -> list[Result]:
    """Those targets of wall time for which the figures are there."""
    by_key = {(one.subject, one.runs, one.model): one for one in crowds}
    found = []
    for own in (one for one in crowds if one.subject == OWN.name):
        if own.model == SLOW:
            name = f"time of {own.runs:,} runs at once over the ideal, model of {SLOW:g} s"
            beside = f"{_WALL}; {_IDEAL}"
            found.append(Result(name, own.wall / ideal(own.model), IDEAL, "times", beside=beside))
            continue
        for over, most in WALLS:
            if other := by_key.get((over, own.runs, own.model)):
                name = f"time over {over}, {own.runs:,} runs at once, model of {QUICK * 1e3:g} ms"
                found.append(Result(name, own.wall / other.wall, most, "times", beside=_WALL))
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
    default = f"default settings, so that each sync call has a thread; model of {QUICK * 1e3:g} ms"
    beside, held_up = f"{default}; {_IDEAL}", found.quick / found.quick_async
    name = f"time of {runs} with a sync tool of {TOOL_SECONDS:g} s over the ideal"
    return [
        Result(name, slow, IDEAL, "times", beside=beside),
        Result(
            f"time of {runs} beside them, over beside async tools", held_up, IDEAL, "times", beside=default
        ),
        Result("the event loop late beside sync tools, at worst", found.late, LATE, "s", beside=default),
    ]


def writing(found: Sequence[Writers]) -> list[Result]:
    """How many runs on one SQLite file did not end right."""

    def name(one: Writers) -> str:
        where = f"{one.processes} processes" if one.processes > 1 else "one process"
        return f"{one.runs:,} runs in {where} on one SQLite file that end wrong"

    beside = f"a tool that writes; {UNLIMITED}; every step is saved"
    return [Result(name(one), one.wrong, 0, beside=beside) for one in found]


def memory(kilobytes: float | None, runs: int) -> list[Result]:
    """What each of many runs at once may take."""
    if kilobytes is None:
        return []
    beside = f"the most that Python's objects take, less what was there; no storage; {UNLIMITED}"
    return [Result(f"memory of each of {runs:,} runs at once", kilobytes, KILOBYTES, "KB", beside=beside)]
