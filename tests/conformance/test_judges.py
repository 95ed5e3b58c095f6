"""The verdicts of Loopcheck: a table of recorded runs, right and wrong, for each of its cases."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from loopcheck.case import Case, load_cases
from loopcheck.judge import STATUSES
from loopcheck.observed import Death, Event, Message, ModelCall, Observed, Report, Status, StepStart, ToolRun

BY_NAME = {case.name: case for case in load_cases()}
SAY, DECIDE, RESUME = StepStart("say"), StepStart("decide"), StepStart("resume")
DIED = Death()
RIGHT, WRONG = True, False


def model(*words: str, calls: tuple[tuple[str, str, str], ...] = ()) -> ModelCall:
    """The model is called and shown these words; before them stand the calls, when there are some."""
    said = (Message("assistant", calls=calls),) if calls else ()
    return ModelCall((*said, *(Message("user", word) for word in words)))


def answered(*words: str) -> ModelCall:
    """The model is shown a call and its result."""
    call = Message("assistant", calls=(("c1", "pay", '{"to": "ada"}'),))
    return ModelCall((call, Message("tool", " ".join(words), answers="c1")))


def did(tool: str, **args: Any) -> ToolRun:
    return ToolRun(tool, args)


def end(status: Status, final: Any = "It is done.") -> Report:
    return Report(status, "", final)


DANGLING = model("pay nobody", calls=(("c1", "pay", '{"to": "ada"}'),))
WRITE = did("write", name="report", text="all of it")
HALF = did("write", name="report", text="The first half of")
A, B = did("write", name="a", text="1"), did("write", name="b", text="2")
BOTH = model("written: a", "written: b")
UNMET = model("it has not been written yet")
ADA, BOB = did("pay", to="ada", amount=5), did("pay", to="bob", amount=7)
OK, WAITS, ASKS = end("success"), end("approval"), end("question")
FAILS, GATE = ToolRun("fail", {"what": "version 2"}, "failed"), ToolRun("gate", {"passed": False}, "gate")
ANSWER, EXPIRE = StepStart("answer"), StepStart("expire")
LIMIT, ERROR, REFUSED = end("limit"), end("error"), end("refused")
GOOD = {"city": "Oslo", "population": 709_000}
SECOND, APPENDIX = model("Now write the appendix."), did("write", name="appendix")

PAYING: list[Event] = [model(), ADA]
BILLS: list[Event] = [SAY, model(), OK, SAY, model("Pay them all.")]
ASKED: list[Event] = [SAY, model(), WAITS, DECIDE]
FIVE_HUNDRED = did("pay", to="ada", amount=500)
NOT_BOB = answered("Bob is paid already.")
PAGE = ToolRun("page", {"name": "page 1"}, "read")
Run = tuple[Event, ...]


def grows(turns: int) -> list[ModelCall]:
    """As many calls of the model, each of which is shown all before it, and more."""
    return [replace(model(*(f"record {n}" for n in range(turn))), tools="its own") for turn in range(turns)]


def below(task: str, *words: str, gives: str = "") -> ModelCall:
    """A sub-agent with this task calls its model, is shown these words, and gives a task to another one."""
    calls = (("c1", "clerk", f'{{"task": "{gives}"}}'),) if gives else ()
    return ModelCall(tuple(Message("user", word) for word in words), calls=calls, who=task)


def above(result: str) -> ModelCall:
    """The agent is shown the result of its sub-agent."""
    given = Message("assistant", calls=(("c1", "clerk", "{}"),))
    return ModelCall((Message("user", "Go."), given, Message("tool", result, answers="c1")))


READ_ALL, PASS_ON = (BY_NAME[name].roles[0].task for name in ("child_out_of_turns", "recursive_delegation"))
PAY_BILL = BY_NAME["child_approved_later"].roles[0].task
PAY_ADA, PAY_BOB = (role.task for role in BY_NAME["two_children_ask"].roles)
CHAPTERS = [role.task for role in BY_NAME["limit_over_tree"].roles]
READ = below(READ_ALL)
NOTED, NOTED_TOO = did("write", name="ada", text="a bill of 5"), did("write", name="bob", text="a bill of 7")
BILL, BILL_ADA, BILL_BOB = below(PAY_BILL), below(PAY_ADA), below(PAY_BOB)
TOLD = below(PAY_BOB, "Bob is paid already.")
ONE, TWO = below(CHAPTERS[0]), below(CHAPTERS[1])
PASSED = below(PASS_ON, gives=PASS_ON)
BOTH_ASK: Run = (SAY, model(), BILL_ADA, NOTED, BILL_BOB, NOTED_TOO, WAITS, DECIDE)

RUNS: list[tuple[str, bool, Run]] = [
    ("ask_and_finish", RIGHT, (SAY, model(), ASKS)),
    ("ask_and_finish", WRONG, (SAY, model(), OK)),
    ("batch_finish", RIGHT, (SAY, model(), WRITE, OK)),
    ("batch_finish", WRONG, (SAY, model(), OK)),
    ("blind_finish", RIGHT, (SAY, model(), model("balance holds: all quiet"), OK)),
    ("blind_finish", WRONG, (SAY, model(), OK)),
    ("calls_after_finish", RIGHT, (SAY, model(), OK)),
    ("calls_after_finish", WRONG, (SAY, model(), WRITE, OK)),
    (
        "earlier_finish",
        RIGHT,
        (SAY, model(), OK, SAY, SECOND, APPENDIX, end("success", "The appendix is written.")),
    ),
    ("earlier_finish", WRONG, (SAY, model(), OK, SAY, SECOND, end("success", "The report is written."))),
    ("failed_sibling", RIGHT, (SAY, model(), model("OSError: disk-17 is full"), OK)),
    ("failed_sibling", WRONG, (SAY, model(), OK)),
    ("gate_after_write", RIGHT, (SAY, model(), GATE, UNMET, WRITE, OK)),
    ("gate_after_write", WRONG, (SAY, model(), GATE, model(), WRITE, OK)),
    ("gate_never", RIGHT, (SAY, model(), GATE, LIMIT)),
    ("gate_never", WRONG, (SAY, model(), GATE, OK)),
    ("plain_answer", RIGHT, (SAY, model(), end("success", "It is Oslo."))),
    ("plain_answer", WRONG, (SAY, *[model()] * 3, end("success", "It is Oslo."))),
    ("promise", RIGHT, (SAY, model(), WRITE, OK)),
    ("promise", WRONG, (SAY, model(), OK)),
    ("repeated_finish", RIGHT, (SAY, model(), OK)),
    ("repeated_finish", WRONG, (SAY, model(), model(), OK)),
    ("structured_never", RIGHT, (SAY, model(), ERROR)),
    ("structured_never", WRONG, (SAY, model(), OK)),
    ("structured_repaired", RIGHT, (SAY, model(), end("success", GOOD))),
    ("structured_repaired", WRONG, (SAY, model(), end("success", {"city": "Oslo"}))),
    ("talk_forever", RIGHT, (SAY, model(), LIMIT)),
    ("talk_forever", WRONG, (SAY, model(), OK)),
    ("duplicate_ids", RIGHT, (SAY, model(), A, B, BOTH, OK)),
    ("duplicate_ids", WRONG, (SAY, model(), A, BOTH, OK)),
    ("empty_reply", RIGHT, (SAY, model(), WRITE, OK)),
    ("empty_reply", WRONG, (SAY, model(), OK)),
    ("failing_tool", RIGHT, (SAY, model(), FAILS, model("it failed"), OK)),
    ("failing_tool", WRONG, (SAY, model(), FAILS, model("it failed"), ERROR)),
    ("filtered", RIGHT, (SAY, model(), ERROR)),
    ("filtered", WRONG, (SAY, model(), OK)),
    ("malformed_call", RIGHT, (SAY, model(), model(), WRITE, OK)),
    ("malformed_call", WRONG, (SAY, model(), ERROR)),
    ("reused_ids", RIGHT, (SAY, model(), A, model(), B, BOTH, OK)),
    ("reused_ids", WRONG, (SAY, model(), A, BOTH, OK)),
    ("truncated_answer", RIGHT, (SAY, model(), end("success", "It says that all is quiet."))),
    ("truncated_answer", WRONG, (SAY, model(), end("success", "It says that, as far"))),
    ("truncated_call", RIGHT, (SAY, model(), model(), WRITE, OK)),
    ("truncated_call", WRONG, (SAY, model(), HALF, OK)),
    ("truncated_finish", RIGHT, (SAY, model(), end("success", "Written, on the whole."))),
    ("truncated_finish", WRONG, (SAY, model(), end("success", "Written, and its"))),
    ("finish_on_last_turn", RIGHT, (SAY, model(), WRITE, model(), OK)),
    ("finish_on_last_turn", WRONG, (SAY, model(), WRITE, model(), LIMIT)),
    ("limit_in_batch", RIGHT, (SAY, model(), A, B, LIMIT)),
    ("limit_in_batch", WRONG, (SAY, model(), A, B, DANGLING, OK)),
    ("limit_over_pauses", RIGHT, (*BILLS, *PAYING * 3, LIMIT)),
    ("limit_over_pauses", WRONG, (*BILLS, *PAYING * 4, LIMIT)),
    ("limit_over_restart", RIGHT, (SAY, *[model()] * 3, DIED, RESUME, *[model()] * 2, LIMIT)),
    ("limit_over_restart", WRONG, (SAY, *[model()] * 3, DIED, RESUME, LIMIT)),
    ("limit_over_restart", WRONG, (SAY, *[model()] * 3, DIED, RESUME, *[model()] * 4, LIMIT)),
    ("limit_said", RIGHT, (SAY, *[model()] * 3, LIMIT)),
    ("limit_said", WRONG, (SAY, *[model()] * 3, OK)),
    ("loop", RIGHT, (SAY, *[model()] * 9, LIMIT)),
    ("loop", WRONG, (SAY, model(), ERROR)),
    ("polling", RIGHT, (SAY, model(), model("build: done"), OK)),
    ("polling", WRONG, (SAY, model("build: running, 50 %"), LIMIT)),
    ("crash_after_effect", RIGHT, (SAY, model(), ADA, DIED, RESUME, answered("unknown"), OK)),
    ("crash_after_effect", WRONG, (SAY, model(), ADA, DIED, RESUME, ADA, answered("paid"), OK)),
    ("crash_before_reply", RIGHT, (SAY, model(), WRITE, DIED, RESUME, model(), OK)),
    ("crash_before_reply", WRONG, (SAY, model(), WRITE, DIED, RESUME, WRITE, model(), OK)),
    ("crash_between_tools", RIGHT, (SAY, model(), ADA, DIED, RESUME, BOB, answered("paid"), OK)),
    ("crash_between_tools", WRONG, (SAY, model(), ADA, DIED, RESUME, DANGLING, OK)),
    ("resumed_twice", RIGHT, (SAY, model(), WRITE, DIED, RESUME, model(), OK, RESUME, REFUSED)),
    ("resumed_twice", WRONG, (SAY, model(), WRITE, DIED, RESUME, model(), OK, RESUME, model(), OK)),
    ("two_runners", RIGHT, (SAY, model(), DIED, RESUME, ADA, OK, REFUSED)),
    ("two_runners", WRONG, (SAY, model(), DIED, RESUME, ADA, ADA, OK, OK)),
    ("approved_later", RIGHT, (*ASKED, ADA, OK)),
    ("approved_later", WRONG, (SAY, model(), ADA, WAITS, DECIDE, OK)),
    ("approved_twice", RIGHT, (*ASKED, ADA, OK, DECIDE, REFUSED)),
    ("approved_twice", WRONG, (*ASKED, ADA, OK, DECIDE, model(), OK)),
    ("approved_twice", WRONG, (SAY, model(), ADA, WAITS, DECIDE, OK, DECIDE, REFUSED)),
    ("deadline", RIGHT, (SAY, model(), ASKS, EXPIRE, model("Oslo"), OK)),
    ("deadline", WRONG, (SAY, model(), ASKS, EXPIRE, model(""), OK)),
    ("decided_in_part", RIGHT, (*ASKED, WAITS, DECIDE, ADA, NOT_BOB, OK)),
    ("decided_in_part", WRONG, (*ASKED, WAITS, DECIDE, ADA, BOB, NOT_BOB, OK)),
    ("decided_in_part", WRONG, (*ASKED, WAITS, DECIDE, ADA, NOT_BOB, DANGLING, OK)),
    ("decided_in_part", WRONG, (*ASKED, ADA, NOT_BOB, OK, DECIDE, REFUSED)),
    ("decided_out_of_order", RIGHT, (*ASKED, ADA, NOT_BOB, OK)),
    ("decided_out_of_order", WRONG, (*ASKED, ADA, BOB, NOT_BOB, OK)),
    ("decided_out_of_order", WRONG, (*ASKED, ADA, NOT_BOB, DANGLING, OK)),
    ("decided_out_of_order", WRONG, (SAY, model(), ADA, WAITS, DECIDE, NOT_BOB, OK)),
    ("decided_too_late", RIGHT, (*ASKED, ADA, WAITS, DECIDE, REFUSED)),
    ("decided_too_late", WRONG, (*ASKED, ADA, WAITS, DECIDE, FIVE_HUNDRED, OK)),
    ("decided_too_late", WRONG, (SAY, model(), ADA, WAITS, DECIDE, WAITS, DECIDE, REFUSED)),
    ("edited", RIGHT, (*ASKED, ADA, model("paid 5 to ada"), OK)),
    ("edited", WRONG, (*ASKED, ADA, FIVE_HUNDRED, model("paid 5 to ada"), OK)),
    ("edited", WRONG, (SAY, model(), ADA, WAITS, DECIDE, model("paid 5 to ada"), OK)),
    ("empty_answer", RIGHT, (SAY, model(), ASKS, ANSWER, answered(""), OK)),
    ("empty_answer", WRONG, (SAY, model(), ASKS, ANSWER, DANGLING, OK)),
    ("message_while_waiting", RIGHT, (SAY, model(), WAITS, SAY, model("pay nobody"), OK)),
    ("message_while_waiting", WRONG, (SAY, model(), WAITS, SAY, DANGLING, OK)),
    ("message_while_waiting", WRONG, (SAY, model(), WAITS, SAY, ADA, model("pay nobody"), OK)),
    ("one_of_two", RIGHT, (*ASKED, ADA, OK)),
    ("one_of_two", WRONG, (*ASKED, ADA, BOB, OK)),
    ("one_of_two", WRONG, (SAY, model(), ADA, WAITS, DECIDE, OK)),
    ("other_arguments", RIGHT, (*ASKED, ADA, WAITS)),
    ("other_arguments", WRONG, (*ASKED, ADA, FIVE_HUNDRED, OK)),
    ("other_arguments", WRONG, (SAY, model(), ADA, WAITS, DECIDE, OK)),
    ("rejected", RIGHT, (*ASKED, answered("That is too much."), OK)),
    ("rejected", WRONG, (*ASKED, ADA, answered("That is too much."), OK)),
    ("rejected", WRONG, (*ASKED, model("too much", calls=(("c1", "pay", "{}"),)), OK)),
    ("stopped", RIGHT, (SAY, model(), A, end("stopped"))),
    ("stopped", WRONG, (SAY, model(), A, model(), end("stopped"))),
    (
        "child_approved_later",
        RIGHT,
        (SAY, model(), BILL, NOTED, WAITS, DECIDE, ADA, BILL, above("Ada is paid."), OK),
    ),
    ("child_approved_later", WRONG, (SAY, model(), BILL, NOTED, ADA, WAITS, DECIDE, OK)),
    ("child_approved_later", WRONG, (SAY, model(), NOTED, WAITS, DECIDE, ADA, above("Ada is paid."), OK)),
    (
        "child_out_of_turns",
        RIGHT,
        (SAY, model(), *[READ] * 3, above("clerk reached its limit of 3 turns"), OK),
    ),
    ("child_out_of_turns", WRONG, (SAY, model(), *[READ] * 9, above("Error: the limit is reached"), OK)),
    ("limit_over_tree", RIGHT, (SAY, model(), *[ONE] * 3, model(), TWO, LIMIT)),
    ("limit_over_tree", WRONG, (SAY, model(), TWO, ERROR)),
    ("limit_over_tree", WRONG, (SAY, model(), *[ONE] * 3, model(), *[TWO] * 3, model(), LIMIT)),
    ("recursive_delegation", RIGHT, (SAY, model(), *[PASSED] * 5, above("too deep"), OK)),
    ("recursive_delegation", WRONG, (SAY, model(), OK)),
    ("two_children_ask", RIGHT, (*BOTH_ASK, ADA, TOLD, OK)),
    ("two_children_ask", WRONG, (*BOTH_ASK, ADA, BOB, TOLD, OK)),
    ("two_children_ask", WRONG, (*BOTH_ASK, ADA, TOLD, below(PAY_ADA, "Bob is paid already."), OK)),
    (
        "two_children_ask",
        WRONG,
        (SAY, model(), BILL_ADA, NOTED, BILL_BOB, NOTED_TOO, ADA, WAITS, DECIDE, TOLD, OK),
    ),
    ("two_children_ask", WRONG, (SAY, model(), BILL_ADA, NOTED, WAITS, DECIDE, ADA, OK)),
    ("long_run", RIGHT, (SAY, *[PAGE] * 40, model(), OK)),
    ("long_run", WRONG, (SAY, *[PAGE] * 30, model(), OK)),
    ("stable_prompt", RIGHT, (SAY, *grows(6), OK)),
    ("stable_prompt", WRONG, (SAY, *grows(5), OK)),
    ("stable_prompt_resumed", RIGHT, (SAY, *grows(3), WAITS, DECIDE, ADA, *grows(5)[3:], OK)),
    ("stable_prompt_resumed", WRONG, (SAY, *grows(3), ADA, WAITS, DECIDE, *grows(5)[3:], OK)),
]
# What goes wrong in these is put right by the model, which tries again.
RUNS += [
    (name, verdict, run)
    for name in ("wrong_arguments", "unknown_tool", "transient_error", "big_result")
    for case, verdict, run in RUNS
    if case == "malformed_call"
]


def played(case: Case, run: Sequence[Event]) -> Run:
    """The agent above is shown the first message in each of its calls."""
    message = Message("user", case.steps[0].text)
    return tuple(
        replace(event, messages=(message, *event.messages))
        if isinstance(event, ModelCall) and not event.who
        else event
        for event in run
    )


def runs_of(name: str, verdict: bool) -> list[Run]:
    return [played(BY_NAME[name], run) for case, right, run in RUNS if (case, right) == (name, verdict)]


def test_every_case_is_tried_both_ways() -> None:
    assert {(name, right) for name, right, _ in RUNS} == {
        (n, right) for n in BY_NAME for right in (True, False)
    }


@pytest.mark.parametrize(("name", "right", "run"), RUNS)
def test_the_verdict_of_a_run(name: str, right: bool, run: Run) -> None:
    verdict = BY_NAME[name].judge(Observed(played(BY_NAME[name], run)))
    assert verdict.ok is right, verdict.why


def changed(run: Run) -> Iterator[Run]:
    """Runs that differ in one event: it is left out, comes twice, or says something else."""
    for at, event in enumerate(run):
        before, after = run[:at], run[at + 1 :]
        yield (*before, *after)
        if isinstance(event, ToolRun):
            yield (*before, event, event, *after)
        elif isinstance(event, ModelCall):
            yield (*before, replace(event, messages=event.messages[:1]), *after)
        elif isinstance(event, Report):
            yield (*before, replace(event, final="?"), *after)
            for status in ("success", "error", "limit", "approval", "refused"):
                yield (*before, replace(event, status=status), *after)


@pytest.mark.parametrize("name", BY_NAME)
def test_no_check_is_idle(name: str) -> None:
    """Each check fails in a wrong run, or in one that differs from a right one in one event."""
    case, wrong = BY_NAME[name], runs_of(name, WRONG)
    wrong += [other for run in runs_of(name, RIGHT) for other in changed(run)]
    seen = [Observed(run) for run in wrong]
    idle = [check.why for check in case.must if all(check.holds(one) for one in seen)]
    idle += [check.why for check in case.must_not if not any(check.holds(one) for one in seen)]
    assert set(idle) <= {"the model was not shown the message"}


def idlers(case: Case) -> Iterator[Run]:
    """Subjects that do nothing: they answer each step with the same status, guess the answer, or die."""
    guesses = (case.right, GOOD, "Oslo: all is quiet, on the whole")
    answers: list[Event] = [DIED, *(end("success", guess) for guess in guesses)]
    answers += [Report(status, "done", "done") for status in STATUSES]  # type: ignore[arg-type]
    steps = [StepStart(step.do, step.text) for step in case.steps]
    for answer in answers:
        yield tuple(event for step in steps for event in (step, answer))
    yield from ((), tuple(steps))


@pytest.mark.parametrize("name", BY_NAME)
def test_what_does_nothing_was_shown_nothing_or_never_ends_is_never_right(name: str) -> None:
    case = BY_NAME[name]
    runs = [*idlers(case), *(run for one, right, run in RUNS if one == name and right)]
    runs += [(*run, end("hung")) for run in runs_of(name, RIGHT)]
    assert not any(case.judge(Observed(run)).ok for run in runs)
    assert not any(case.judge(Observed(run, capped=True)).ok for run in runs_of(name, RIGHT))


def test_what_was_wrong_is_told_in_words() -> None:
    verdict = BY_NAME["approved_later"].judge(
        Observed(played(BY_NAME["approved_later"], (*ASKED, ADA, ADA, OK)))
    )
    assert verdict.why == "paid 2 times (approval → success; 1 model call; pay(ada, 5) (x2))"
