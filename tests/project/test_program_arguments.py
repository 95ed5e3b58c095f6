"""Programs among the tests and benchmarks that were told to do nothing do not say that all went right."""

from argparse import ArgumentTypeError

import pytest

from tests.support.arguments import at_least
from tests.support.prepared import ROOT, run_python


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "1.5"])
def test_a_number_that_is_too_small_or_none(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is no whole number from 1 up"):
        at_least(1)(text)
    assert at_least(1)("1") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "option"),
    [
        ("tests.simulate", "--seeds"),
        ("tests.kills", "--kills"),
        ("benchmarks.workers", "--threads"),
        ("benchmarks.workers", "--steps"),
        ("benchmarks.overhead", "--turns"),
    ],
)
@pytest.mark.sample(2)
def test_nothing_to_do_is_refused(program: str, option: str) -> None:
    done = run_python("-m", program, f"{option}=0", cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"argument {option}: '0' is no whole number from" in done.stderr
