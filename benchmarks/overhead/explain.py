"""Where the time, or the memory, of a run goes: what a missed target has to be explained by."""

import cProfile
import pstats
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.overhead.crowd import QUICK, SIZES, TURNS
from benchmarks.overhead.record import Recorded
from benchmarks.overhead.subjects.own import signoff
from benchmarks.overhead.subjects.own_crowd import Crowd
from benchmarks.overhead.subjects.own_crowd import signoff as signoff_crowd

_MOST = 12
_LONG = 200
_LOOK_SECONDS, _MORE = 0.1, 1.05


def explain(recorded: Recorded, console: Console) -> None:
    """Prints a profile for each kind of target of which one was missed."""
    kinds: list[tuple[list[Any], Callable[[Console], None]]] = [
        (recorded.of_turns(), _turns),
        (recorded.of_crowds(), _crowd),
        (recorded.of_memory(), _memory),
    ]
    for results, told in kinds:
        if missed := [one.name for one in results if not one.met]:
            console.print(f"Missed: {'; '.join(missed)}.")
            told(console)


def _turns(console: Console) -> None:
    console.print(f"A run of {_LONG} turns spends its time in:")
    _profile(signoff(_LONG, None), _LONG, console)


def _crowd(console: Console) -> None:
    console.print(f"{SIZES[0]} runs at once of {TURNS} turns spend their time in:")
    _profile(_runs(), SIZES[0] * TURNS, console)


def _runs() -> Crowd:
    return signoff_crowd(TURNS, None, runs=SIZES[0], seconds=QUICK)


def _profile(run: Callable[[], object], turns: int, console: Console) -> None:
    profile = cProfile.Profile()
    profile.runcall(run)
    stats: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]  # undeclared
    rows = sorted(stats.items(), key=lambda row: -row[1][2])
    for (file, line, name), (_, calls, own, _, _) in rows[:_MOST]:
        place = f"{'/'.join(Path(file).parts[-2:])}:{line} {name}"
        cost = f"{own / turns * 1e6:8.0f} µs a turn  {calls / turns:6.1f} calls"
        console.print(f"{cost}  {place}", markup=False)


def _memory(console: Console) -> None:
    run = _runs()
    _runs()()
    console.print(f"Of {SIZES[0]} runs at once each holds, when they hold most, what these files have made:")
    found = _fullest(run).statistics("filename")
    for one in found[:_MOST]:
        place = "/".join(Path(one.traceback[0].filename).parts[-3:])
        console.print(f"{one.size / SIZES[0] / 1e3:8.1f} KB a run  {place}", markup=False)


def _fullest(run: Callable[[], object]) -> tracemalloc.Snapshot:
    """What was held while `run` went on, at the moment when it was most, as seen from a thread."""
    best: list[tuple[int, tracemalloc.Snapshot | None]] = [(0, None)]
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_SECONDS):
            held = tracemalloc.get_traced_memory()[0]
            if held > best[0][0] * _MORE:
                best[0] = held, tracemalloc.take_snapshot()

    tracemalloc.start()
    thread = threading.Thread(target=look)
    thread.start()
    run()
    ended.set()
    thread.join()
    snapshot = best[0][1] or tracemalloc.take_snapshot()
    tracemalloc.stop()
    return snapshot
