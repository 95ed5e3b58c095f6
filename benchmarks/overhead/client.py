"""What a turn costs with a real client of OpenAI's API and a provider on loopback in its own process."""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.overhead.measure import HERE, Subject, Worker, workers
from benchmarks.overhead.targets import UNLIMITED, Result

TURNS = 10
SIZES = (30, 300)
"""The number of chunks in a reply."""
_RUNS = 9
LISTENED = ", listened to"
_PEERS = {
    "create_agent": ("of_langchain_client", "langchain"),
    "deepagents": ("of_deepagents_client", "deepagents"),
    "pydantic-ai": ("of_pydantic_ai_client", "pydantic-ai"),
    "OpenAI Agents": ("of_openai_agents_client", "openai-agents"),
}
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
    *(
        Subject(name + listens, file, env)
        for name, (file, env) in _PEERS.items()
        for listens in ("", LISTENED)
    ),
)
LONG = SIZES[-1]
TARGETS: Mapping[tuple[str, str], tuple[float, float | None, str]] = {
    ("signoff", "create_agent"): (2.4, 1.6, "invoke; Signoff streams for its guard, create_agent does not"),
    ("signoff, auto", "create_agent"): (1.1, None, 'invoke; streaming="auto", so that neither streams'),
    ("signoff, listened to", "create_agent, listened to"): (0.5, None, 'stream_mode="messages"'),
}
"""CPU per turn over that of another subject, with replies of `LONG` chunks: the limit, the stretch value, and
the settings that the name does not mention."""


@dataclass(frozen=True)
class ClientCost:
    """Medians of this many runs: milliseconds of CPU per turn of the client's process, and, if a caller
    listens, milliseconds until the first token of a run."""

    subject: str
    chunks: int
    cpu: float
    runs: int
    first: float | None = None


def clients(subjects: Sequence[Subject], chunks: int, runs: int = _RUNS) -> list[ClientCost]:
    """Measures all subjects alternately with replies of this many chunks, `runs` times, after a warm-up run
    of each."""
    found: dict[str, list[dict[str, Any]]] = {one.name: [] for one in subjects}
    with provider() as url, workers(subjects) as by_name:
        for repeat in range(runs + 1):
            for one in subjects:
                told = _one(by_name[one.name], one.name, url, chunks)
                if repeat:
                    found[one.name].append(told)
    return [_cost(name, chunks, each) for name, each in found.items()]


def _one(worker: Worker, name: str, url: str, chunks: int) -> dict[str, Any]:
    worker.begin(name, TURNS, None, url=url, chunks=chunks)
    told = worker.end()
    if told["steps"] != TURNS - 1:
        raise RuntimeError(f"{name}, {chunks} chunks: {told}")
    return told


def _cost(name: str, chunks: int, found: Sequence[dict[str, Any]]) -> ClientCost:
    first = [one["first"] * 1e3 for one in found if "first" in one]
    cpu = median(one["cpu"] for one in found) * 1e3 / TURNS
    return ClientCost(name, chunks, cpu, len(found), median(first) if first else None)


@contextmanager
def provider(program: str = "provider") -> Iterator[str]:
    """Runs a provider; yields its address."""
    command = [sys.executable, "-m", f"benchmarks.overhead.{program}"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE.parents[1]
    ) as child:
        assert child.stdin is not None, "it was started with pipes"
        assert child.stdout is not None, "as above"
        try:
            yield child.stdout.readline().strip()
        finally:
            child.stdin.close()


def with_client(costs: Sequence[ClientCost]) -> list[Result]:
    """Returns the targets for which both figures exist."""
    by_key = {(one.subject, one.chunks): one.cpu for one in costs}
    found = []
    for (own, other), (most, stretch, how) in TARGETS.items():
        if {(own, LONG), (other, LONG)} <= by_key.keys():
            name = f"CPU with a real client, {own} over {other}, {LONG} chunks"
            beside = f"{how}; ChatOpenAI; {UNLIMITED}; runs of {TURNS} turns, no storage, nothing subtracted"
            measured = by_key[own, LONG] / by_key[other, LONG]
            found.append(Result(name, measured, most, "times", stretch, beside))
    return found
