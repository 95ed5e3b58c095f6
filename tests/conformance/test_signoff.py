"""Signoff and its guards on Loopcheck: right in all that they claim, but for the failures listed here; and
what Loopcheck says of Signoff's run of a case once one thing in it is another."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache

import pytest

from loopcheck.bench import Bench
from loopcheck.case import Case, load_cases
from loopcheck.driver import run_case
from loopcheck.faults import FAULTS, draw_fault
from loopcheck.judge import STATUSES
from loopcheck.observed import Death, Event, Message, ModelCall, Observed, Report, StepStart, ToolRun
from loopcheck.play import play
from loopcheck.subjects import SERVE, list_subjects
from tests.conformance.tiny import TASKS

pytestmark = pytest.mark.slow

Run = tuple[Event, ...]
BY_NAME = {case.name: case for case in load_cases()}


def shown(call: Event, *words: str) -> Event:
    """The model is shown these words, too."""
    assert isinstance(call, ModelCall)
    return replace(call, messages=(*call.messages, *(Message("user", text) for text in words)))


# A finish beside a read that succeeds is accepted; and words without a call are no end, so a mere answer runs
# into the limit of turns of talk. With each, what would have been right.
OWN_FAILURES: dict[str, Callable[[Run], Run]] = {
    "blind_finish": lambda run: (*run[:-1], shown(run[1], "balance holds: all quiet"), run[-1]),
    "plain_answer": lambda run: (*run[:2], Report("success", "", "It is Oslo.")),
}
# What no run of a case may hold at any place where it does not stand anyway.
DANGLING = ModelCall((Message("assistant", calls=(("c1", "pay", "{}"),)), Message("user", "pay nobody")))
PAY_ADA = BY_NAME["two_children_ask"].roles[0].task
NEEDLESS: Run = (
    DANGLING,
    ToolRun("pay", {"to": "bob", "amount": 7}),
    ToolRun("pay", {"to": "ada", "amount": 500}),
    ToolRun("write", {"name": "report", "text": "all of it"}),
    ToolRun("write", {"name": "report", "text": "The first half of"}),
    ModelCall((Message("user", PAY_ADA), Message("user", "Bob is paid already.")), who=PAY_ADA),
)


@pytest.fixture(scope="module")
def start() -> Iterator[Callable[[str], Bench]]:
    """Starts a subject, once for all, here, where Signoff and LangChain are installed."""
    adapters = {subject.name: str(subject.adapter) for subject in list_subjects()}
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(Bench([sys.executable, str(SERVE), adapters[name]])))


def unseeing(run: Run) -> Run:
    """In it the model is shown no more than its first message in each call."""
    return tuple(
        replace(event, messages=event.messages[:1]) if isinstance(event, ModelCall) else event
        for event in run
    )


def changed(run: Run) -> Iterator[Run]:
    """Runs that differ in one place: they end there, an event is left out, comes again, or says something
    else, or something takes place that should not."""
    yield unseeing(run)
    for at, event in enumerate(run):
        before, after = run[:at], run[at + 1 :]
        yield (*before, *after)
        yield before
        yield tuple(other for other in run if other != event)
        for needless in NEEDLESS:
            yield (*before, needless, needless, event, *after)
        if isinstance(event, ToolRun):
            yield (*before, event, event, *after)
        elif isinstance(event, ModelCall):
            yield (*before, *unseeing((event,)), *after)
            yield (*before, *[event] * 9, *after)
        elif isinstance(event, Report):
            yield (*before, replace(event, final="?"), *after)
            for status in ("success", "error", "limit", "approval", "refused"):
                yield (*before, replace(event, status=status), *after)


def idlers(case: Case) -> Iterator[Run]:
    """Subjects that do nothing: they answer each step with the same status, guess the answer, or die."""
    guesses = (case.right, {"city": "Oslo", "population": 709_000}, "Oslo: all is quiet, on the whole")
    answers: list[Event] = [Death(), *(Report("success", "", guess) for guess in guesses)]
    answers += [Report(status, "done", "done") for status in STATUSES]  # type: ignore[arg-type]
    steps = [StepStart(step.do, step.text) for step in case.steps]
    for answer in answers:
        yield tuple(event for step in steps for event in (step, answer))
    yield from ((), tuple(steps))


@pytest.mark.parametrize("name", BY_NAME)
def test_a_case_is_right_and_each_of_its_checks_fails_in_a_run_that_differs_in_one_place(
    name: str, start: Callable[[str], Bench]
) -> None:
    case = BY_NAME[name]
    cell = run_case(start("signoff"), case)
    assert cell.mark == ("fail" if name in OWN_FAILURES else "ok"), cell.why
    assert cell.observed is not None
    run = OWN_FAILURES.get(name, tuple)(cell.observed.events)
    assert case.judge(Observed(run)).ok
    seen = [Observed(other) for other in changed(run)]
    assert [check.why for check in case.must if all(check.holds(one) for one in seen)] == []
    assert [check.why for check in case.must_not if not any(check.holds(one) for one in seen)] == []
    # What does nothing, is shown nothing, or never ends.
    for other in (*idlers(case), unseeing(run), (*run, Report("hung"))):
        assert not case.judge(Observed(other)).ok
    assert not case.judge(Observed(run, capped=True)).ok


def test_what_was_wrong_is_told_in_words() -> None:
    case, paid = BY_NAME["approved_later"], ToolRun("pay", {"to": "ada", "amount": 5})
    asked = ModelCall((Message("user", case.steps[0].text),))
    begun = (StepStart("say"), asked, Report("approval"), StepStart("decide"))
    verdict = case.judge(Observed((*begun, paid, paid, Report("success"))))
    assert verdict.why == "paid 2 times (approval → success; 1 model call; pay(ada, 5) (x2))"


@pytest.mark.parametrize("name", ["signoff", "langchain-guarded"])
@pytest.mark.parametrize("fault", FAULTS)
def test_tasks_come_out_right_whatever_goes_wrong(
    name: str, fault: str, start: Callable[[str], Bench]
) -> None:
    planned = [(task, draw_fault(fault, task, 1)) for task in TASKS]
    runs = [play(start(name), name, task, drawn, 1) for task, drawn in planned if drawn is not None]
    assert [(one.task, one.why) for one in runs if not (one.right and one.claimed)] == []
