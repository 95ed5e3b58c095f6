"""Runs subjects in their own processes, alternately, so that a slow machine slows all of them."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from loopcheck.subjects import ENVIRONMENTS

HERE = Path(__file__).parent
DEFAULTS, WRITES = "signoff, default settings", "signoff, default settings, a tool that writes"


@dataclass(frozen=True)
class Subject:
    """A subject to measure. env: the environment below .bench/ (None: this one). stores: whether it keeps its
    history in SQLite. most: the longest run, in turns."""

    name: str
    file: str
    env: str | None = None
    stores: bool = True
    most: int = 1_000

    @property
    def python(self) -> Path:
        return ENVIRONMENTS / self.env / "bin" / "python" if self.env else Path(sys.executable)


SUBJECTS = (
    Subject("signoff", "own", most=10_000),
    Subject(DEFAULTS, "own"),
    Subject(WRITES, "own"),
    Subject("bare loop", "own", stores=False),
    Subject("model alone", "own", stores=False, most=10_000),
    Subject("raw graph, 2 nodes", "own"),
    Subject("raw graph, 6 nodes", "own"),
    Subject("create_agent", "of_langchain", "langchain"),
    Subject("create_agent with Guards", "of_guards", most=200),
    Subject("create_agent, equal features", "of_langchain", "langchain", most=200),
    Subject("deepagents", "of_deepagents", "deepagents", most=200),
    Subject("OpenAI Agents", "of_openai_agents", "openai-agents", most=200),
    Subject("pydantic-ai", "of_pydantic_ai", "pydantic-ai", stores=False, most=200),
    Subject("smolagents", "of_smolagents", "smolagents", stores=False, most=200),
)


@dataclass(frozen=True)
class Figure:
    """One subject at one length, medians unless stated otherwise: milliseconds of CPU and of time, and KB on
    disk, per turn."""

    subject: str
    turns: int
    stored: bool
    cpu: float
    wall: float
    kilobytes: float
    runs: int


class Worker:
    """A process that runs the subjects of one file. Raises RuntimeError for a failed run."""

    def __init__(self, subject: Subject) -> None:
        self._name = subject.name
        env = {**os.environ, "LANGSMITH_TRACING": "false", "OPENAI_API_KEY": "none", "PYTHONHASHSEED": "0"}
        command = [subject.python, HERE / "worker.py", HERE / "subjects" / f"{subject.file}.py"]
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=env,
        )
        assert self._child.stdin is not None, "it was started with pipes"
        assert self._child.stdout is not None, "as above"
        self._to, self._from = self._child.stdin, self._child.stdout

    def run(self, subject: str, turns: int, *, stored: bool, memory: bool = False) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            self.begin(subject, turns, f"{folder}/threads.sqlite" if stored else None, memory=memory)
            found = self.end()
        if found["steps"] != turns - 1:
            raise RuntimeError(f"{subject}, {turns} turns: {found}")
        return found

    def begin(
        self, subject: str, turns: int, database: str | None, *, memory: bool = False, **crowd: Any
    ) -> None:
        """Starts a run, or many at once, which get `crowd`; `end` returns the result."""
        given = {"subject": subject, "turns": turns, "database": database, "memory": memory, "crowd": crowd}
        self._to.write(json.dumps(given) + "\n")
        self._to.flush()

    def end(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._from.readline() or '{"error": "it has ended"}')
        if "error" in found:
            raise RuntimeError(f"A run of {self._name} failed: {found['error']}")
        return found

    def close(self) -> None:
        self._to.close()
        self._child.wait()
        self._from.close()


@contextmanager
def workers(subjects: Sequence[Subject]) -> Iterator[dict[str, Worker]]:
    """Starts one process for each file of subjects; yields them by the subject's name."""
    with ExitStack() as stack:
        by_file: dict[str, Worker] = {}
        for subject in subjects:
            if subject.file not in by_file:
                by_file[subject.file] = Worker(subject)
                stack.callback(by_file[subject.file].close)
        yield {subject.name: by_file[subject.file] for subject in subjects}


def measure(
    subjects: Sequence[Subject],
    turns: int,
    runs: int,
    *,
    stored: bool,
    of: Callable[[Iterable[float]], float] = median,
) -> list[Figure]:
    """Measures all subjects at one length, `runs` times alternately, after a short warm-up run of each.

    of: selects the figure that counts.
    """
    chosen = [one for one in subjects if turns <= one.most and (one.stores or not stored)]
    found: dict[str, list[dict[str, Any]]] = {one.name: [] for one in chosen}
    with workers(chosen) as by_name:
        for one in chosen:
            by_name[one.name].run(one.name, 10, stored=stored)
        for _ in range(runs):
            for one in chosen:
                found[one.name].append(by_name[one.name].run(one.name, turns, stored=stored))
    return [_figure(name, turns, stored, each, of) for name, each in found.items()]


def _figure(
    name: str,
    turns: int,
    stored: bool,
    found: Sequence[dict[str, Any]],
    of: Callable[[Iterable[float]], float],
) -> Figure:
    def a_turn(key: str, unit: float) -> float:
        return float(of(one[key] for one in found)) / turns * unit

    return Figure(
        name, turns, stored, a_turn("cpu", 1e3), a_turn("wall", 1e3), a_turn("bytes", 1e-3), len(found)
    )


def installed(subjects: Sequence[Subject] = SUBJECTS) -> list[Subject]:
    """Returns the subjects whose environment exists."""
    return [one for one in subjects if one.python.exists()]
