"""Where the time or memory of a run goes, to explain a missed target."""

import cProfile
import json
import pstats
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.overhead.client import LONG as CHUNKS
from benchmarks.overhead.client import TURNS as CLIENT_TURNS
from benchmarks.overhead.client import provider
from benchmarks.overhead.crowd import QUICK, SIZES, TURNS
from benchmarks.overhead.record import Recorded
from benchmarks.overhead.start import COMMANDS
from benchmarks.overhead.subjects.own import defaults, signoff
from benchmarks.overhead.subjects.own_client import SUBJECTS as with_client
from benchmarks.overhead.subjects.own_crowd import Crowd
from benchmarks.overhead.subjects.own_crowd import signoff as signoff_crowd
from benchmarks.prompt_tokens import o200k
from benchmarks.prompt_tokens import own as own_request

_MOST = 12
_LONG = 200
_LOOK_SECONDS, _MORE = 0.1, 1.05


def explain(recorded: Recorded, console: Console) -> None:
    """Prints a profile for each kind of target that was missed."""
    kinds: list[tuple[list[Any], Callable[[Console], None]]] = [
        (recorded.of_turns(), _turns),
        (recorded.of_guards(), _guards),
        (recorded.of_clients(), _client),
        (recorded.of_sessions(), _session),
        (recorded.of_start(), _start),
        (recorded.of_crowds(), _crowd),
        (recorded.of_memory(), _memory),
    ]
    for results, told in kinds:
        if missed := [one.name for one in results if not one.met]:
            console.print(f"Missed: {'; '.join(missed)}.")
            told(console)


def _turns(console: Console) -> None:
    for words, made in (("", signoff), (" with default settings", defaults)):
        console.print(f"A run of {_LONG} turns{words} spends its time in:")
        profile(made(_LONG, None), _LONG, console)


def _guards(console: Console) -> None:
    console.print(f"A run of {_LONG} turns of create_agent with Guards spends its time in:")
    # LangChain may be missing if only Signoff is measured.
    subjects = import_module("benchmarks.overhead.subjects.of_guards")
    profile(subjects.guards(_LONG, None), _LONG, console)


def _client(console: Console) -> None:
    console.print(f"A run with a real client, {CHUNKS} chunks a reply, listened to, spends its time in:")
    with provider() as url:
        run = with_client["signoff, listened to"](CLIENT_TURNS, None, url=url, chunks=CHUNKS)
        profile(run, CLIENT_TURNS, console)


def _session(console: Console) -> None:
    count, asked = o200k(), own_request(waits=True)
    assert count is not None, "the sessions were counted"
    console.print("The first request of a session has these tokens:")
    told = {tool["function"]["name"]: json.dumps(tool, separators=(",", ":")) for tool in asked.tools}
    for name, text in {**told, **{one.type: one.text for one in asked.messages}}.items():
        console.print(f"{count(text):8,}  {name}", markup=False)


def _start(console: Console) -> None:
    for name, words in COMMANDS.items():
        command = [sys.executable, "-X", "importtime", *words]
        told = subprocess.run(command, capture_output=True, text=True, check=False).stderr
        found = sorted((_imported(line) for line in told.splitlines() if line.count("|") == 2), reverse=True)
        seconds, places = sum(own for own, _ in found) / 1e6, found[:_MOST]
        console.print(f"`{name}` takes {seconds:.2f} s to import {len(found):,} modules, most of it in:")
        for own, place in places:
            console.print(f"{own / 1e3:8.1f} ms  {place}", markup=False)


def _imported(line: str) -> tuple[int, str]:
    """Returns the microseconds of a module itself, and its name. The first line is the heading."""
    own, _, place = line.removeprefix("import time:").split("|")
    return int(own) if own.strip().isdecimal() else 0, place.strip()


def _crowd(console: Console) -> None:
    console.print(f"{SIZES[0]} runs at once of {TURNS} turns spend their time in:")
    profile(_runs(), SIZES[0] * TURNS, console)


def _runs() -> Crowd:
    return signoff_crowd(TURNS, None, runs=SIZES[0], seconds=QUICK)


class _Profile(cProfile.Profile):
    """Profiles one thread. It may still run, so open calls do not count: another clock would end them."""

    def create_stats(self) -> None:
        self.snapshot_stats()


def profile(run: Callable[[], object], turns: int, console: Console) -> None:
    """Measures CPU, including that of the run's threads: waits cost nothing."""
    profiles = [_Profile(time.thread_time)]

    def begin(*_: object) -> None:
        profiles.append(_Profile(time.thread_time))
        profiles[-1].enable()

    threading.setprofile(begin)
    try:
        profiles[0].runcall(run)
    finally:
        threading.setprofile(None)
    stats: dict[Any, Any] = pstats.Stats(*profiles).stats  # type: ignore[attr-defined]  # undeclared
    rows = sorted(stats.items(), key=lambda row: -row[1][2])
    for (file, line, name), (_, calls, own, _, _) in rows[:_MOST]:
        place = f"{'/'.join(Path(file).parts[-2:])}:{line} {name}"
        cost = f"{own / turns * 1e6:8.0f} µs a turn  {calls / turns:6.1f} calls"
        console.print(f"{cost}  {place}", markup=False)


def _memory(console: Console) -> None:
    run = _runs()
    _runs()()
    console.print(f"At the peak, each of {SIZES[0]} runs at once holds objects created in these files:")
    found = _fullest(run).statistics("filename")
    for one in found[:_MOST]:
        place = "/".join(Path(one.traceback[0].filename).parts[-3:])
        console.print(f"{one.size / SIZES[0] / 1e3:8.1f} KB a run  {place}", markup=False)


def _fullest(run: Callable[[], object]) -> tracemalloc.Snapshot:
    """Returns what was allocated at the peak of `run`, sampled from a thread."""
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
