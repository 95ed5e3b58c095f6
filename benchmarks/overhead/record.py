"""The recorded results, in parts; each is saved when it is done, so that a run can be interrupted."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Self

from benchmarks.overhead.client import ClientCost, with_client
from benchmarks.overhead.crowd import SIZES, Crowd, SlowTools, Writers
from benchmarks.overhead.crowd_targets import memory, starving, walls, writing
from benchmarks.overhead.embedded import FirstTokens, waiting
from benchmarks.overhead.guards import guarding
from benchmarks.overhead.measure import SUBJECTS, Figure
from benchmarks.overhead.sessions import Session, pricing
from benchmarks.overhead.start import starting
from benchmarks.overhead.stored import Stored, storing
from benchmarks.overhead.targets import Result, alone, growth, ratios

RESULTS = Path(__file__).parent / "results.json"
_VERSIONS = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        pass
print(json.dumps(found))
"""
_PACKAGES = (
    "signoff",
    "langgraph",
    "langchain-core",
    "langchain",
    "langchain-openai",
    "openai",
    "deepagents",
    "openai-agents",
    "pydantic-ai-slim",
    "smolagents",
)


@dataclass
class Recorded:
    """Everything measured so far. dates: the day of each part. alone: by the name of the target.
    start: by the command."""

    dates: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    alone: dict[str, float] = field(default_factory=dict)
    crowds: list[Crowd] = field(default_factory=list)
    clients: list[ClientCost] = field(default_factory=list)
    slow_tools: SlowTools | None = None
    writers: list[Writers] = field(default_factory=list)
    stored: list[Stored] = field(default_factory=list)
    kilobytes_a_run: float | None = None
    start: dict[str, float] = field(default_factory=dict)
    sessions: list[Session] = field(default_factory=list)
    first_tokens: FirstTokens | None = None
    guards: list[Figure] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path) -> Self:
        found = json.loads(file.read_text())
        found["figures"] = [Figure(**one) for one in found["figures"]]
        found["crowds"] = [Crowd(**one) for one in found["crowds"]]
        found["clients"] = [ClientCost(**one) for one in found.get("clients", ())]
        found["writers"] = [Writers(**one) for one in found["writers"]]
        found["stored"] = [Stored(**one) for one in found.get("stored", ())]
        found["slow_tools"] = SlowTools(**found["slow_tools"]) if found["slow_tools"] else None
        found["sessions"] = [Session(**one) for one in found.get("sessions", ())]
        found["guards"] = [Figure(**one) for one in found.get("guards", ())]
        tokens = found.get("first_tokens")
        found["first_tokens"] = FirstTokens(**tokens) if tokens else None
        return cls(**found)

    def save(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")

    def measured(self, part: str) -> None:
        """Records the day, the machine and the versions of the latest part."""
        self.dates[part] = date.today().isoformat()
        self.machine = {
            "cores": os.cpu_count(),
            "system": platform.system(),
            "python": platform.python_version(),
        }
        now = {**self.versions, **_versions()}
        self.versions = {name: now[name] for name in _PACKAGES if name in now}

    def add_figures(self, figures: Sequence[Figure]) -> None:
        """Replaces the figures of the same lengths."""
        new = {one.turns for one in figures}
        kept = [one for one in self.figures if one.turns not in new]
        self.figures = sorted([*kept, *figures], key=lambda one: (one.turns, one.stored))

    def add_crowds(self, crowds: Sequence[Crowd]) -> None:
        """Replaces those of the same sizes with the same model."""
        new = {(one.runs, one.model) for one in crowds}
        kept = [one for one in self.crowds if (one.runs, one.model) not in new]
        self.crowds = sorted([*kept, *crowds], key=lambda one: (one.model, one.runs))

    def add_clients(self, costs: Sequence[ClientCost]) -> None:
        """Replaces those with the same number of chunks."""
        new = {one.chunks for one in costs}
        kept = [one for one in self.clients if one.chunks not in new]
        self.clients = sorted([*kept, *costs], key=lambda one: one.chunks)

    def of_clients(self) -> list[Result]:
        return with_client(self.clients)

    def of_turns(self) -> list[Result]:
        return [*ratios(self.figures), *growth(self.figures), *alone(self.alone)]

    def of_guards(self) -> list[Result]:
        return guarding(self.guards)

    def of_start(self) -> list[Result]:
        return [*starting(self.start), *waiting(self.first_tokens)]

    def of_sessions(self) -> list[Result]:
        return pricing(self.sessions)

    def of_crowds(self) -> list[Result]:
        return [
            *walls(self.crowds),
            *starving(self.slow_tools),
            *writing(self.writers),
            *storing(self.stored),
        ]

    def of_memory(self) -> list[Result]:
        return memory(self.kilobytes_a_run, SIZES[-1])

    def results(self) -> list[Result]:
        return [
            *self.of_turns(),
            *self.of_guards(),
            *self.of_clients(),
            *self.of_sessions(),
            *self.of_start(),
            *self.of_crowds(),
            *self.of_memory(),
        ]


def _versions() -> dict[str, str]:
    """Returns the versions of the frameworks, each from its own environment, this one first."""
    found: dict[str, str] = {}
    pythons = dict.fromkeys([Path(sys.executable), *(one.python for one in SUBJECTS if one.python.exists())])
    for python in pythons:
        command = [str(python), "-c", _VERSIONS, *_PACKAGES]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found = {**json.loads(told), **found}
    return {name: found[name] for name in _PACKAGES if name in found}
