"""Many runs at once on SQLite and on PostgreSQL.

The benchmark starts its own server on loopback, which does not wait for the disk: so it measures the cost of
a run, not the speed of a disk.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.overhead.crowd import OWN
from benchmarks.overhead.measure import Worker, workers
from benchmarks.overhead.targets import UNLIMITED, Result
from signoff.graph.errors import SetupError

RUNS, TURNS, REPEATS = 50, 20, 5
SQLITE, POSTGRES = "SQLite", "PostgreSQL"
DEARER = 2.0
"""Most CPU per turn on PostgreSQL over that on SQLite."""


@dataclass(frozen=True)
class Stored:
    """Medians of `RUNS` runs at once: turns per second, and milliseconds of CPU per turn of their process."""

    subject: str
    storage: str
    turns_a_second: float
    cpu: float
    repeats: int


def stored(runs: int = RUNS, turns: int = TURNS, repeats: int = REPEATS) -> list[Stored]:
    """Measures both alternately. Raises SetupError if there is no PostgreSQL server."""
    found: dict[str, list[dict[str, Any]]] = {SQLITE: [], POSTGRES: []}
    with _server() as server, workers([OWN]) as by_name:
        for at in range(repeats + 1):
            for storage, each in found.items():
                url = server.fresh() if storage == POSTGRES else None
                told = _one(by_name[OWN.name], runs, turns, url)
                # The first round is a warm-up.
                if at:
                    each.append(told)
    return [_stored(storage, runs * turns, each) for storage, each in found.items()]


@contextmanager
def _server() -> Iterator[Any]:
    # It needs the test packages.
    from tests.support.servers.postgres import MISSING, Server, binaries

    programs = binaries()
    if programs is None:
        raise SetupError(f"This part was not measured: {MISSING}.")
    server = Server.begun(programs)
    try:
        yield server
    finally:
        server.remove()


def _one(worker: Worker, runs: int, turns: int, url: str | None) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        more: dict[str, Any] = {} if url is None else {"url": url}
        database = f"{folder}/threads.sqlite" if url is None else None
        worker.begin(OWN.name, turns, database, runs=runs, seconds=0.0, **more)
        found = worker.end()
    if found["wrong"] or found["steps"] != runs * (turns - 1):
        raise RuntimeError(f"{runs} runs at once: {found['why'] or found}")
    return found


def _stored(storage: str, turns: int, found: Sequence[dict[str, Any]]) -> Stored:
    wall, cpu = median(one["wall"] for one in found), median(one["cpu"] for one in found)
    return Stored(OWN.name, storage, turns / wall, cpu / turns * 1e3, len(found))


def storing(found: Sequence[Stored]) -> list[Result]:
    """Returns the target if the figures exist."""
    by_storage = {one.storage: one for one in found}
    if not by_storage:
        return []
    name = f"CPU of a turn on {POSTGRES} over {SQLITE}, {RUNS} runs at once"
    beside = f"{UNLIMITED}; runs of {TURNS} turns in one process; without the server's CPU and disk"
    times = by_storage[POSTGRES].cpu / by_storage[SQLITE].cpu
    return [Result(name, times, DEARER, "times", beside=beside)]
