"""Programs of the tests and benchmarks: what was told to do nothing is refused, exit codes are passed on."""

import subprocess
import sys

import pytest

from tests.support.sources import REPOSITORY

pytestmark = pytest.mark.slow


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("program", "option"),
    [
        ("tests.simulate", "--seeds"),
        ("tests.kills", "--kills"),
        ("benchmarks.workers", "--steps"),
        ("benchmarks.overhead", "--turns"),
    ],
)
def test_no_program_runs_nothing(program: str, option: str) -> None:
    done = run(program, f"{option}=0")
    assert (done.returncode, done.stdout) == (2, "")
    assert option in done.stderr


def test_the_exit_code_is_that_of_the_command() -> None:
    done = run("tests.budget", "it", "1", sys.executable, "-c", "raise SystemExit(7)")
    assert done.returncode == 7
