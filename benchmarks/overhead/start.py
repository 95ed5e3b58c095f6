"""How much CPU a command takes to start, compared with a program that uses only typer."""

import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.overhead.subjects.own import defaults
from benchmarks.overhead.targets import Result

RUNS, TURNS = 7, 9
_PROGRAM = ("-m", "signoff.cli")
_TYPER = "import typer\napp = typer.Typer()\n@app.command()\ndef main() -> None: print(0)\napp()"
_ALONE = "typer alone"
COMMANDS: Mapping[str, Sequence[str]] = {
    _ALONE: ("-c", _TYPER),
    "signoff --version": (*_PROGRAM, "--version"),
    "signoff --help": (*_PROGRAM, "--help"),
    "signoff stats": (*_PROGRAM, "stats"),
    "signoff threads": (*_PROGRAM, "threads"),
    "signoff show": (*_PROGRAM, "show", "t"),
}
MOST: Mapping[str, tuple[float, bool]] = {
    "signoff --version": (0.3, True),
    "signoff --help": (0.3, True),
    "signoff stats": (0.5, False),
    "signoff threads": (1.2, False),
    "signoff show": (1.2, False),
}
"""Most seconds of CPU, and whether those of typer alone are subtracted."""


def measured(runs: int = RUNS) -> dict[str, float]:
    """Returns the median CPU seconds of each command, run alternately; a first run compiles the bytecode.

    The database holds one thread of `TURNS` turns.
    """
    found: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with TemporaryDirectory() as folder:
        database = Path(folder) / "threads.sqlite"
        defaults(TURNS, str(database))()
        env = {**os.environ, "SIGNOFF_DATABASE": str(database), "SIGNOFF_CONFIG": "none"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        for repeat in range(runs + 1):
            for name, words in COMMANDS.items():
                seconds = _seconds([sys.executable, *words], env)
                if repeat:
                    found[name].append(seconds)
    return {name: median(each) for name, each in found.items()}


def _seconds(command: Sequence[str], env: Mapping[str, str]) -> float:
    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = spent()
    subprocess.run(command, capture_output=True, env=env, check=True)
    return spent() - before


def starting(found: Mapping[str, float]) -> list[Result]:
    """Returns the targets for which the figures exist."""
    results = []
    for name, (most, subtracted) in MOST.items():
        if name in found and _ALONE in found:
            seconds = found[name] - (found[_ALONE] if subtracted else 0.0)
            beside = f"the whole process, with compiled bytecode; one thread of {TURNS} turns in SQLite"
            if subtracted:
                beside += f"; a program that uses only typer ({found[_ALONE]:.2f} s) is subtracted"
            results.append(Result(f"CPU of `{name}`", seconds, most, "s", beside=beside))
    return results
