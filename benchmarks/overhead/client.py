"""What a turn costs with a real client: ChatOpenAI, and a provider on loopback in a process of its own."""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.overhead.measure import HERE, Subject, Worker, workers
from benchmarks.overhead.targets import Result

TURNS = 10
SIZES = (30, 300)
"""Chunks of a reply."""
_RUNS = 9
CLIENTS = (
    *(
        Subject(name, "own_client")
        for name in (
            "signoff",
            "signoff, auto",
            "signoff, never",
            "signoff, listened to",
            "signoff, auto, listened to",
        )
    ),
    Subject("create_agent", "of_langchain_client", "langchain"),
    Subject("create_agent, listened to", "of_langchain_client", "langchain"),
)
LONG = SIZES[-1]
TARGETS: Mapping[tuple[str, str], float] = {
    ("signoff", "create_agent"): 2.4,
    ("signoff, auto", "create_agent"): 1.1,
    ("signoff, listened to", "create_agent, listened to"): 0.5,
}
"""CPU of a turn over that of another subject, with replies of `LONG` chunks: at most."""


@dataclass(frozen=True)
class ClientCost:
    """Milliseconds of CPU a turn of the process that holds the client, the least of so many runs: what else
    the machine does makes a run dearer, and never cheaper."""

    subject: str
    chunks: int
    cpu: float
    runs: int


def clients(subjects: Sequence[Subject], chunks: int, runs: int = _RUNS) -> list[ClientCost]:
    """All subjects with replies of so many chunks, one after the other, `runs` times; a first run warms each
    up."""
    found: dict[str, list[float]] = {one.name: [] for one in subjects}
    with provider() as url, workers(subjects) as by_name:
        for repeat in range(runs + 1):
            for one in subjects:
                cpu = _one(by_name[one.name], one.name, url, chunks)
                if repeat:
                    found[one.name].append(cpu)
    return [ClientCost(name, chunks, min(each) * 1e3 / TURNS, runs) for name, each in found.items()]


def _one(worker: Worker, name: str, url: str, chunks: int) -> float:
    worker.begin(name, TURNS, None, url=url, chunks=chunks)
    told = worker.end()
    if told["steps"] != TURNS - 1:
        raise RuntimeError(f"{name}, {chunks} chunks: {told}")
    return float(told["cpu"])


@contextmanager
def provider() -> Iterator[str]:
    """A provider for as long as it is needed; its address."""
    command = [sys.executable, str(HERE / "provider.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None, "it was started with pipes"
        assert child.stdout is not None, "as above"
        try:
            yield child.stdout.readline().strip()
        finally:
            child.stdin.close()


def with_client(costs: Sequence[ClientCost]) -> list[Result]:
    """Those targets for which both figures are there."""
    by_key = {(one.subject, one.chunks): one.cpu for one in costs}
    found = []
    for (own, other), most in TARGETS.items():
        if {(own, LONG), (other, LONG)} <= by_key.keys():
            name = f"CPU with a real client, {own} over {other}, {LONG} chunks"
            found.append(Result(name, by_key[own, LONG] / by_key[other, LONG], most, "times"))
    return found
