"""Programs among the tests and benchmarks that were told to do nothing do not say that all went right."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("program", "option"),
    [
        ("tests.stateful", "--examples"),
        ("tests.stateful", "--steps"),
        ("tests.fuzz_replies", "--replies"),
        ("tests.random_kills", "--threads"),
        ("benchmarks.workers", "--threads"),
        ("benchmarks.workers", "--steps"),
    ],
)
@pytest.mark.parametrize("number", ["0", "-1", "x"])
def test_nothing_to_do_is_refused(program: str, option: str, number: str) -> None:
    words = [sys.executable, "-m", program, f"{option}={number}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"argument {option}: {number!r} is no whole number from 1 up" in done.stderr
