"""The targets for many runs at once, and whether figures meet them."""

from collections.abc import Sequence

from benchmarks.overhead.crowd import OWN, QUICK, SLOW, TOOL_SECONDS, TURNS, Crowd, SlowTools, Writers
from benchmarks.overhead.targets import EQUAL, UNLIMITED, Result

RAW = "raw graph, 2 nodes"
IDEAL = 1.2
WALLS = ((EQUAL, 0.6), (RAW, 1.2))
"""Most wall time of this many runs of Signoff at once over that of another subject."""
LATE = 0.5
"""Most seconds of event loop delay beside sync tools that take `TOOL_SECONDS`."""
KILOBYTES = 90.0
_WALL = f"time, not CPU; asyncio in one process, runs of {TURNS} turns, no storage; {UNLIMITED}"
_IDEAL = f"the ideal is {TURNS} model calls and {TURNS - 1} tool calls in sequence"


def walls(crowds: Sequence[Crowd]) -> list[Result]:
    """Returns the targets of wall time for which the figures exist."""
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
    """Returns the seconds of a run in which only the model and the tool take time."""
    return TURNS * model + (TURNS - 1) * tool


def starving(found: SlowTools | None) -> list[Result]:
    """Returns whether runs with slow sync tools make progress and delay no other run."""
    if found is None:
        return []
    slow = found.slow / ideal(QUICK, TOOL_SECONDS)
    runs = f"{found.runs:,} runs"
    default = f"default settings, so each sync call has a thread; model of {QUICK * 1e3:g} ms"
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
    """Returns how many runs on one SQLite file failed."""

    def name(one: Writers) -> str:
        where = f"{one.processes} processes" if one.processes > 1 else "one process"
        return f"{one.runs:,} runs in {where} on one SQLite file that end wrong"

    beside = f"a tool that writes; {UNLIMITED}; every step is saved"
    return [Result(name(one), one.wrong, 0, beside=beside) for one in found]


def memory(kilobytes: float | None, runs: int) -> list[Result]:
    """Returns the memory target of each of many runs at once."""
    if kilobytes is None:
        return []
    beside = f"the peak size of Python's objects, minus the size before; no storage; {UNLIMITED}"
    return [Result(f"memory of each of {runs:,} runs at once", kilobytes, KILOBYTES, "KB", beside=beside)]
