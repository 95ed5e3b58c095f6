"""What the guards add to a turn of `create_agent`, both in this environment and so of the same versions."""

from collections.abc import Sequence

from benchmarks.overhead.measure import Figure, Subject, measure
from benchmarks.overhead.targets import Result

TURNS, RUNS = 200, 15
MOST = 1.5
BARE, GUARDED = "create_agent", "create_agent with Guards"
SUBJECTS = (Subject(BARE, "of_langchain"), Subject(GUARDED, "of_guards"))


def guards(turns: int = TURNS, runs: int = RUNS) -> list[Figure]:
    """Measures both subjects alternately, without and with storage. The minimum counts: other load on the
    machine only adds time, and adds more to the slower one."""
    return [one for stored in (False, True) for one in measure(SUBJECTS, turns, runs, stored=stored, of=min)]


def guarding(figures: Sequence[Figure]) -> list[Result]:
    """Returns the cost of guards over `create_agent` alone, for each storage with both figures."""
    found = []
    for stored, where in ((False, "no storage"), (True, "SQLite")):
        by_name = {one.subject: one for one in figures if one.stored == stored}
        if {BARE, GUARDED} <= by_name.keys():
            name = f"CPU of {GUARDED} over {BARE}, {by_name[BARE].turns:,} turns, {where}"
            ratio = by_name[GUARDED].cpu / by_name[BARE].cpu
            beside = "no journal in either; both in one environment, run alternately, the minimum of each"
            found.append(Result(name, ratio, MOST, "times", beside=beside))
    return found
