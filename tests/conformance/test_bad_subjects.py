"""Subjects that hang, flood, crash or do nothing: each scores nothing, with a reason, and is gone."""

import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import repeat
from pathlib import Path

import pytest

from loopcheck.bench import Bench
from loopcheck.case import load_cases
from loopcheck.driver import run_case
from loopcheck.explain import explain
from loopcheck.faults import ELSEWHERE, ENDS, FAULTS, KILLS, Fault
from loopcheck.play import play
from loopcheck.process import NoAnswer
from tests.conformance.tiny import LOOK, SUITE, TASKS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MARK = "LOOPCHECK_TEST"
FEW_CASES = [
    case for case in load_cases() if case.name in ("approved_later", "crash_after_effect", "limit_said")
]
# Characters of why something failed.
LONGEST = 4_000


def bad(way: str) -> list[str]:
    return [sys.executable, str(Path(__file__).parent / "subjects" / "bad.py"), way]


@pytest.fixture(autouse=True)
def nobody_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No process that a test has started outlives it: all of them inherit a mark."""
    monkeypatch.setenv(MARK, str(tmp_path))
    yield
    end = time.monotonic() + 60
    while left := processes(tmp_path):
        assert time.monotonic() < end, left
        time.sleep(0.05)


def processes(mark: Path) -> list[str]:
    marked = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended, or is another user's
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                marked.append((folder / "cmdline").read_text())
    return marked


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("never serves", "serve"),
        ("speaks another protocol", "protocol 2"),
        ("does not speak JSON", "JSON"),
        ("lacks what there is not", "crashes"),
    ],
)
def test_what_does_not_serve_is_told_with_the_reason(way: str, told: str) -> None:
    with pytest.raises(NoAnswer) as refused:
        Bench(bad(way), start=1.0 if way == "never serves" else 60.0)
    assert told in str(refused.value)
    assert len(str(refused.value)) < 300


WAYS = {
    "hangs in a step": "no answer",
    "answers for ever": "bytes",
    "says success": "not shown",
    "leaves a child as it crashes": "died",
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_no_good_scores_nothing_and_is_told(way: str, capfd: pytest.CaptureFixture[str]) -> None:
    """It claims all that there is, so nothing is left out."""
    with Bench(bad(way), patience=0.5) as bench:
        cells = [run_case(bench, case) for case in FEW_CASES]
        explained = list(map(explain, FEW_CASES, repeat(bench.hello), cells))
        runs = [play(bench, "bad", LOOK, Fault(name), 1) for name in (KILLS[0], ENDS[1], ELSEWHERE)]
    assert [(cell.mark, WAYS[way] in cell.why) for cell in cells] == [("fail", True)] * len(FEW_CASES)
    assert [text for text in explained if len(text) > 10 * LONGEST or "\x1b" in text] == []
    whys = [*(cell.why for cell in cells), *(run.why for run in runs)]
    assert [len(why) for why in whys if not 0 < len(why) < LONGEST] == []
    assert [run for run in runs if run.right or not run.claimed] == []
    assert "Traceback" not in capfd.readouterr().err


def test_what_calls_the_model_once_and_gives_up_is_right_where_an_honest_error_is_and_in_no_task() -> None:
    with Bench(bad("gives up"), patience=10) as bench:
        marks = [run_case(bench, case).mark for case in load_cases()]
        runs = [play(bench, "bad", task, Fault(name), 1) for task in TASKS for name in FAULTS]
    told = f"right in {marks.count('ok')} of the {len(marks)} unit cases"
    assert told in " ".join((SUITE / "README.md").read_text().split())
    assert [run for run in runs if run.right or not run.claimed] == []


def suite_with(folder: Path) -> "subprocess.Popen[str]":
    """The suite on a subject that hangs in its first step, when it has come there."""
    command = [sys.executable, "-m", "loopcheck", "run", "--jobs", "1", "--what", "cases", "--name", "own"]
    own = ["--command", shlex.join(bad("hangs in a step")), "--folder", str(folder)]
    suite = subprocess.Popen([*command, *own], cwd=SUITE, stderr=subprocess.PIPE, text=True)
    while not (folder / "hangs").exists() and suite.poll() is None:
        time.sleep(0.01)
    return suite


def test_a_suite_that_is_told_to_end_ends_its_subject(tmp_path: Path) -> None:
    with suite_with(tmp_path) as suite:
        # Meanwhile no other one writes the same files.
        with suite_with(tmp_path) as second:
            assert (second.wait(60), second.returncode) == (2, 2)
        suite.terminate()
        _, told = suite.communicate(timeout=60)
    assert (suite.returncode, "Traceback" in told) == (130, False)
