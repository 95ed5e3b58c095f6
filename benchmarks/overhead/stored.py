"""Many runs at once on SQLite and PostgreSQL, and on PostgreSQL with an earlier version.

The benchmark starts its own server on loopback, which does not wait for the disk: so it measures the cost of
a run, not the speed of a disk. It measures the earlier version if its environment exists:
`git worktree add FOLDER COMMIT`, then `uv venv .bench/signoff-0.1.0` and `uv pip install --python
.bench/signoff-0.1.0/bin/python "FOLDER[postgres]"`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.overhead.crowd import OWN
from benchmarks.overhead.measure import Subject, Worker, installed, workers
from benchmarks.overhead.targets import UNLIMITED, Result
from signoff.graph.errors import SetupError

RUNS, TURNS, REPEATS = 50, 20, 5
BEFORE = "signoff 0.1.0"
SQLITE, POSTGRES = "SQLite", "PostgreSQL"
DEARER, FASTER = 2.0, 1.5
"""Most CPU per turn on PostgreSQL over that on SQLite; least turns per second over `BEFORE`."""

_BEFORE = Subject(BEFORE, OWN.file, BEFORE.replace(" ", "-"))


@dataclass(frozen=True)
class Stored:
    """Medians of `RUNS` runs at once: turns per second, and milliseconds of CPU per turn of their process."""

    subject: str
    storage: str
    turns_a_second: float
    cpu: float
    repeats: int


def stored(runs: int = RUNS, turns: int = TURNS, repeats: int = REPEATS) -> list[Stored]:
    """Measures all of them alternately. Raises SetupError if there is no PostgreSQL server."""
    subjects = installed([OWN, _BEFORE])
    kinds = [(OWN.name, SQLITE), *((one.name, POSTGRES) for one in subjects)]
    found: dict[tuple[str, str], list[dict[str, Any]]] = {kind: [] for kind in kinds}
    with _server() as server, _workers(subjects) as by_name:
        for at in range(repeats + 1):
            for name, storage in kinds:
                url = server.fresh() if storage == POSTGRES else None
                told = _one(by_name[name], runs, turns, url)
                # The first round is a warm-up.
                if at:
                    found[name, storage].append(told)
    return [_stored(name, storage, runs * turns, each) for (name, storage), each in found.items()]


@contextmanager
def _server() -> Iterator[Any]:
    # It needs the test packages.
    from tests.support.servers.postgres import MISSING, Server, binaries

    programs = binaries()
    if programs is None:
        raise SetupError(f"This part was not measured: {MISSING}.")
    server = Server(programs)
    try:
        yield server
    finally:
        server.remove()


@contextmanager
def _workers(subjects: Sequence[Subject]) -> Iterator[dict[str, Worker]]:
    """Starts one process for each, even if they share a file."""
    with workers(subjects[:1]) as own, workers(subjects[1:]) as before:
        yield {**own, **before}


def _one(worker: Worker, runs: int, turns: int, url: str | None) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        more: dict[str, Any] = {} if url is None else {"url": url}
        database = f"{folder}/threads.sqlite" if url is None else None
        worker.begin(OWN.name, turns, database, runs=runs, seconds=0.0, **more)
        found = worker.end()
    if found["wrong"] or found["steps"] != runs * (turns - 1):
        raise RuntimeError(f"{runs} runs at once: {found['why'] or found}")
    return found


def _stored(name: str, storage: str, turns: int, found: Sequence[dict[str, Any]]) -> Stored:
    wall, cpu = median(one["wall"] for one in found), median(one["cpu"] for one in found)
    return Stored(name, storage, turns / wall, cpu / turns * 1e3, len(found))


def storing(found: Sequence[Stored]) -> list[Result]:
    """Returns the targets for which the figures exist."""
    by_key = {(one.subject, one.storage): one for one in found}
    own = by_key.get((OWN.name, POSTGRES))
    if own is None:
        return []
    results, runs = [], f"{RUNS} runs at once"
    beside = f"{UNLIMITED}; runs of {TURNS} turns in one process; without the server's CPU and disk"
    if sqlite := by_key.get((OWN.name, SQLITE)):
        name = f"CPU of a turn on {POSTGRES} over {SQLITE}, {runs}"
        results.append(Result(name, own.cpu / sqlite.cpu, DEARER, "times", beside=beside))
    if before := by_key.get((BEFORE, POSTGRES)):
        name = f"time of a turn on {POSTGRES} over {BEFORE}, {runs}"
        beside = f"{beside}; at most 1 / {FASTER:g}, which is {FASTER:g} times the turns a second"
        slower = before.turns_a_second / own.turns_a_second
        results.append(Result(name, slower, 1 / FASTER, "times", beside=beside))
    return results
