"""Signoff and its guards on Loopcheck: right in all that they claim, but for the failures listed here."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from loopcheck.bench import Bench
from loopcheck.case import load_cases
from loopcheck.driver import run_case
from loopcheck.faults import ENDS, FAULTS, NOTHING, draw_fault
from loopcheck.play import play
from loopcheck.subjects import SERVE, list_subjects
from tests.conformance.tiny import TASKS

pytestmark = pytest.mark.slow

OWN_FAILURES = {
    "blind_finish": "a finish beside a read that succeeds is accepted",
    "plain_answer": "words without a call are no end, so a mere answer runs into the limit talk_turns",
}
FEW = {"batch_finish", "failed_sibling", "blind_finish", "plain_answer", "other_arguments", "stopped"}
NAMES = {case.name for case in load_cases()}


def command(name: str) -> list[str]:
    """What starts this subject here, where Signoff and LangChain are installed."""
    [found] = [subject for subject in list_subjects() if subject.name == name]
    return [sys.executable, str(SERVE), str(found.adapter)]


@pytest.fixture(scope="module")
def start() -> Iterator[Callable[[str], Bench]]:
    """Starts a subject, once: in a run of the suite all is played on one, too."""
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(Bench(command(name))))


def unexpected(bench: Bench, names: set[str]) -> list[tuple[str, str, str]]:
    """What is not as it should be in these cases: name, mark, and why."""
    lacks = bench.hello.lacks
    cells = [run_case(bench, case) for case in load_cases() if case.name in names]
    wanted = {case.name: "n/a" if lacks.keys() & set(case.needs) else "ok" for case in load_cases()}
    wanted |= dict.fromkeys(OWN_FAILURES, "fail")
    return [(cell.case, cell.mark, cell.why) for cell in cells if cell.mark != wanted[cell.case]]


def test_in_a_few_cases(start: Callable[[str], Bench]) -> None:
    assert set(OWN_FAILURES) <= FEW <= NAMES
    assert unexpected(start("signoff"), FEW) == []


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_in_all_others(start: Callable[[str], Bench]) -> None:
    assert unexpected(start("signoff"), NAMES - FEW) == []


AT_ONCE = [("signoff", NOTHING), ("signoff", ENDS[0])]
BOTH = [(name, fault) for name in ("signoff", "langchain-guarded") for fault in FAULTS]


@pytest.mark.parametrize(
    ("name", "fault"),
    [pytest.param(*one, marks=() if one in AT_ONCE else pytest.mark.thorough) for one in BOTH],
)
def test_tasks_come_out_right_whatever_goes_wrong(
    name: str, fault: str, start: Callable[[str], Bench]
) -> None:
    planned = [(task, draw_fault(fault, task, 1)) for task in TASKS]
    runs = [play(start(name), name, task, drawn, 1) for task, drawn in planned if drawn is not None]
    assert [(one.task, one.why) for one in runs if not (one.right and one.claimed)] == []
