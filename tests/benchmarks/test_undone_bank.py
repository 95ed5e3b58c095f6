"""AgentDojo's bank is as it was before, by its own hash, when a task has been undone."""

import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".bench" / "agentdojo" / "bin" / "python"


def is_there() -> bool:
    """Whether the environment has AgentDojo and what Signoff needs."""
    wanted = [str(PYTHON), "-c", "import agentdojo, deepdiff, signoff.storage.sqlite"]
    return PYTHON.exists() and subprocess.run(wanted, cwd=ROOT, capture_output=True).returncode == 0


@pytest.mark.slow
def test_the_bank_is_as_before_after_an_undone_task() -> None:
    if not is_there():
        pytest.skip("AgentDojo is not installed in .bench/agentdojo; see benchmarks/undone_bank.py")
    command = [str(PYTHON), "-m", "benchmarks.undone_bank"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    tasks = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(tasks) == 17
    for task in tasks:
        assert task["after"] == task["before"], task
        assert task["undone"] == task["effects"]
        # One of them writes what stands there already.
        assert task["changed"] == task["before"] or task["effects"] > 0
    assert max(task["effects"] for task in tasks) > 5
    assert sum(task["effects"] > 0 for task in tasks) >= 9
