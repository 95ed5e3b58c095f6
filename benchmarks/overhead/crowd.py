"""Many runs at once in one process, and many writers of one SQLite file."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.overhead.measure import Subject, Worker, workers

TURNS = 9
QUICK, SLOW = 0.02, 2.0
"""How many seconds a model call takes."""
TOOL_SECONDS = 2.0
SIZES = (100, 1_000)
PROCESSES = 4
_REPEATS = {100: 5, 1_000: 2}
_WARM = 5
_SLOW_TOOLS = "signoff beside slow tools"

OWN = Subject("signoff", "own_crowd")
CROWDS = (
    OWN,
    Subject("bare loop", "own_crowd"),
    Subject("raw graph, 2 nodes", "own_crowd"),
    Subject("create_agent", "of_langchain_crowd", "langchain"),
    Subject("create_agent, equal features", "of_langchain_crowd", "langchain"),
)


@dataclass(frozen=True)
class Crowd:
    """Medians of this many runs at once: seconds until all ended, and CPU seconds. model: seconds a call."""

    subject: str
    runs: int
    model: float
    wall: float
    cpu: float
    repeats: int


@dataclass(frozen=True)
class SlowTools:
    """Runs with a slow sync tool, beside as many with a quick async one: seconds until each kind had ended,
    and the worst delay of the event loop; and the same with a slow async tool, which needs no thread."""

    runs: int
    slow: float
    quick: float
    late: float
    slow_async: float
    quick_async: float
    late_async: float


@dataclass(frozen=True)
class Writers:
    """Runs at once on one SQLite file, in this many processes: how many failed, why, and seconds."""

    runs: int
    processes: int
    wrong: int
    why: str
    wall: float


def crowd(
    subjects: Sequence[Subject], runs: int, seconds: float = QUICK, repeats: int | None = None
) -> list[Crowd]:
    """Measures all subjects in turn with this many runs at once, after a few warm-up runs of each.

    Raises RuntimeError if a run fails.
    """
    repeats = repeats or _REPEATS.get(runs, 1)
    found: dict[str, list[dict[str, Any]]] = {one.name: [] for one in subjects}
    with workers(subjects) as by_name:
        for one in subjects:
            _one(by_name[one.name], one.name, _WARM, QUICK)
        for _ in range(repeats):
            for one in subjects:
                found[one.name].append(_one(by_name[one.name], one.name, runs, seconds))
    return [_crowd(name, runs, seconds, each) for name, each in found.items()]


def _crowd(name: str, runs: int, seconds: float, found: Sequence[dict[str, Any]]) -> Crowd:
    wall, cpu = median(one["wall"] for one in found), median(one["cpu"] for one in found)
    return Crowd(name, runs, seconds, wall, cpu, len(found))


def _one(worker: Worker, name: str, runs: int, seconds: float, **more: Any) -> dict[str, Any]:
    worker.begin(name, TURNS, None, runs=runs, seconds=seconds, **more)
    return _right(name, runs, worker.end())


def _right(name: str, runs: int, found: dict[str, Any]) -> dict[str, Any]:
    if found["wrong"] or found["steps"] != runs * (TURNS - 1):
        raise RuntimeError(f"{name}, {runs} runs at once: {found['why'] or found}")
    return found


def slow_tools(runs: int = SIZES[0], repeats: int = 1) -> SlowTools:
    """Measures Signoff with a slow sync tool in half of the runs."""
    found: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    with workers([OWN]) as by_name:
        worker = by_name[OWN.name]
        for is_async in [*found] * repeats:
            told: dict[str, Any] = {"tool_seconds": TOOL_SECONDS, "is_async": is_async}
            worker.begin(_SLOW_TOOLS, TURNS, None, runs=runs, seconds=QUICK, **told)
            found[is_async].append(_right(_SLOW_TOOLS, 2 * runs, worker.end()))
    return SlowTools(runs, *_slow_figures(found[False]), *_slow_figures(found[True]))


def _slow_figures(found: Sequence[dict[str, Any]]) -> tuple[float, float, float]:
    walls = [median(one["walls"][group] for one in found) for group in (0, 1)]
    return walls[0], walls[1], median(one["late"] for one in found)


def writers(runs: int, processes: int = 1) -> Writers:
    """Measures Signoff with a tool that writes, so that it writes checkpoints and journal, on one file.

    `runs` is the total over all processes, which open the new file at the same time.
    """
    each = runs // processes
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        made = [Worker(OWN) for _ in range(processes)]
        for worker in made:
            stack.callback(worker.close)
            _one(worker, OWN.name, 1, 0.0)
        for worker in made:
            given: dict[str, Any] = {"runs": each, "seconds": QUICK, "kind": "write"}
            worker.begin(OWN.name, TURNS, f"{folder}/threads.sqlite", **given)
        found = [_ended(worker, each) for worker in made]
    wrong, why = sum(one["wrong"] for one in found), next((one["why"] for one in found if one["why"]), "")
    return Writers(processes * each, processes, wrong, why, max(one["wall"] for one in found))


def _ended(worker: Worker, runs: int) -> dict[str, Any]:
    try:
        found = worker.end()
    except RuntimeError as error:
        # All runs of a process that could not open the file.
        return {"wrong": runs, "why": str(error), "wall": 0.0}
    missing = runs * (TURNS - 1) - found["steps"]
    if missing and not found["wrong"]:
        return {**found, "wrong": 1, "why": f"{missing} steps missing"}
    return found


def kilobytes_a_run(runs: int = SIZES[-1]) -> float:
    """Returns the peak size of Python's objects per run with this many runs at once.

    Objects that exist before the first run do not count.
    """
    with workers([OWN]) as by_name:
        worker = by_name[OWN.name]
        _one(worker, OWN.name, _WARM, QUICK)
        worker.begin(OWN.name, TURNS, None, memory=True, runs=runs, seconds=QUICK)
        peak: int = _right(OWN.name, runs, worker.end())["peak"]
    return peak / runs / 1e3
