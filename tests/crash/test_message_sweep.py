"""Every message is answered once, whenever its process is killed, and by whatever way it came."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.prepared import run_python

ROOT = Path(__file__).parents[2]


def run(*words: str) -> str:
    done = run_python("-m", "tests.message_sweep", *words, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_killed_while_the_message_is_saved() -> None:
    """Right after the input is saved as it came, and after its first step."""
    cases = ["--case", "success", "--case", "question", "--then", "same"]
    assert run(*cases, "--kills", "1", "2").endswith("0 went wrong")


@pytest.mark.thorough
def test_a_drawn_sample_of_all_kills(figure: Callable[[str], None]) -> None:
    seed = str(int(time.time()))
    figure(f"messages and kills, seed {seed}: {run('--sample', '20', '--seed', seed)}")
