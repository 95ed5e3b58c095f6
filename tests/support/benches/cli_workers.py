"""Threads of the workers, driven by commands: one is handed over, worked on, and looked at."""

import json
from typing import Any

from tests.support.benches.cli import Bench


def handed(bench: Bench, task: str = "Change the port", *words: str) -> None:
    result = bench("submit", task, "-t", "t1", "-w", str(bench.workspace), *words)
    assert (result.exit_code, result.stderr) == (0, "")


def work(bench: Bench, *words: str) -> str:
    """What a worker says that runs until nothing is left to begin."""
    done = bench("worker", "--until-idle", *words)
    assert (done.exit_code, done.stdout) == (0, ""), done.output
    return done.stderr


def row(bench: Bench) -> dict[str, Any]:
    (found,) = json.loads(bench("threads", "--json").stdout)["threads"]
    return dict(found)
