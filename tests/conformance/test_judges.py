"""The verdicts of Loopcheck: a right run of each of its cases, and what is made of it by one change."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from loopcheck.case import Case, load_cases
from loopcheck.judge import STATUSES
from loopcheck.observed import Death, Event, Message, ModelCall, Observed, Report, Status, StepStart, ToolRun

BY_NAME = {case.name: case for case in load_cases()}
SAY, DECIDE, RESUME = StepStart("say"), StepStart("decide"), StepStart("resume")
DIED = Death()


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

RUNS: dict[str, Run] = {
    "ask_and_finish": (SAY, model(), ASKS),
    "batch_finish": (SAY, model(), WRITE, OK),
    "blind_finish": (SAY, model(), model("balance holds: all quiet"), OK),
    "calls_after_finish": (SAY, model(), OK),
    "earlier_finish": (SAY, model(), OK, SAY, SECOND, APPENDIX, end("success", "The appendix is written.")),
    "failed_sibling": (SAY, model(), model("OSError: disk-17 is full"), OK),
    "gate_after_write": (SAY, model(), GATE, UNMET, WRITE, OK),
    "gate_never": (SAY, model(), GATE, LIMIT),
    "plain_answer": (SAY, model(), end("success", "It is Oslo.")),
    "promise": (SAY, model(), WRITE, OK),
    "repeated_finish": (SAY, model(), OK),
    "structured_never": (SAY, model(), ERROR),
    "structured_repaired": (SAY, model(), end("success", GOOD)),
    "talk_forever": (SAY, model(), LIMIT),
    "duplicate_ids": (SAY, model(), A, B, BOTH, OK),
    "empty_reply": (SAY, model(), WRITE, OK),
    "failing_tool": (SAY, model(), FAILS, model("it failed"), OK),
    "filtered": (SAY, model(), ERROR),
    "malformed_call": (SAY, model(), model(), WRITE, OK),
    "reused_ids": (SAY, model(), A, model(), B, BOTH, OK),
    "truncated_answer": (SAY, model(), end("success", "It says that all is quiet.")),
    "truncated_call": (SAY, model(), model(), WRITE, OK),
    "truncated_finish": (SAY, model(), end("success", "Written, on the whole.")),
    "finish_on_last_turn": (SAY, model(), WRITE, model(), OK),
    "limit_in_batch": (SAY, model(), A, B, LIMIT),
    "limit_over_pauses": (*BILLS, *PAYING * 3, LIMIT),
    "limit_over_restart": (SAY, *[model()] * 3, DIED, RESUME, *[model()] * 2, LIMIT),
    "limit_said": (SAY, *[model()] * 3, LIMIT),
    "loop": (SAY, *[model()] * 9, LIMIT),
    "polling": (SAY, model(), model("build: done"), OK),
    "crash_after_effect": (SAY, model(), ADA, DIED, RESUME, answered("unknown"), OK),
    "crash_before_reply": (SAY, model(), WRITE, DIED, RESUME, model(), OK),
    "crash_between_tools": (SAY, model(), ADA, DIED, RESUME, BOB, answered("paid"), OK),
    "resumed_twice": (SAY, model(), WRITE, DIED, RESUME, model(), OK, RESUME, REFUSED),
    "two_runners": (SAY, model(), DIED, RESUME, ADA, OK, REFUSED),
    "approved_later": (*ASKED, ADA, OK),
    "approved_twice": (*ASKED, ADA, OK, DECIDE, REFUSED),
    "deadline": (SAY, model(), ASKS, EXPIRE, model("Oslo"), OK),
    "decided_in_part": (*ASKED, WAITS, DECIDE, ADA, NOT_BOB, OK),
    "decided_out_of_order": (*ASKED, ADA, NOT_BOB, OK),
    "decided_too_late": (*ASKED, ADA, WAITS, DECIDE, REFUSED),
    "edited": (*ASKED, ADA, model("paid 5 to ada"), OK),
    "empty_answer": (SAY, model(), ASKS, ANSWER, answered(""), OK),
    "message_while_waiting": (SAY, model(), WAITS, SAY, model("pay nobody"), OK),
    "one_of_two": (*ASKED, ADA, OK),
    "other_arguments": (*ASKED, ADA, WAITS),
    "rejected": (*ASKED, answered("That is too much."), OK),
    "stopped": (SAY, model(), A, end("stopped")),
    "child_approved_later": (SAY, model(), BILL, NOTED, WAITS, DECIDE, ADA, BILL, above("Ada is paid."), OK),
    "child_out_of_turns": (SAY, model(), *[READ] * 3, above("clerk reached its limit of 3 turns"), OK),
    "limit_over_tree": (SAY, model(), *[ONE] * 3, model(), TWO, LIMIT),
    "recursive_delegation": (SAY, model(), *[PASSED] * 5, above("too deep"), OK),
    "two_children_ask": (*BOTH_ASK, ADA, TOLD, OK),
    "long_run": (SAY, *[PAGE] * 40, model(), OK),
    "stable_prompt": (SAY, *grows(6), OK),
    "stable_prompt_resumed": (SAY, *grows(3), WAITS, DECIDE, ADA, *grows(5)[3:], OK),
}
# What goes wrong in these is put right by the model, which tries again.
RUNS |= dict.fromkeys(
    ("wrong_arguments", "unknown_tool", "transient_error", "big_result"), RUNS["malformed_call"]
)

# What no run of a case may hold at any place where it does not stand anyway.
NEEDLESS = (DANGLING, BOB, FIVE_HUNDRED, WRITE, HALF, below(PAY_ADA, "Bob is paid already."))


def played(name: str) -> Run:
    """The right run of a case: the agent above is shown the first message in each of its calls."""
    message = Message("user", BY_NAME[name].steps[0].text)
    return tuple(
        replace(event, messages=(message, *event.messages))
        if isinstance(event, ModelCall) and not event.who
        else event
        for event in RUNS[name]
    )


def changed(run: Run) -> Iterator[Run]:
    """Runs that differ in one place: they end there, an event is left out, comes again, or says something
    else, or something takes place that should not."""
    for at, event in enumerate(run):
        before, after = run[:at], run[at + 1 :]
        yield (*before, *after)
        yield before
        yield tuple(other for other in run if other != event)
        for needless in NEEDLESS:
            yield (*before, needless, event, *after)
        if isinstance(event, ToolRun):
            yield (*before, event, event, *after)
        elif isinstance(event, ModelCall):
            yield (*before, replace(event, messages=event.messages[:1]), *after)
            yield (*before, *[event] * 9, *after)
        elif isinstance(event, Report):
            yield (*before, replace(event, final="?"), *after)
            for status in ("success", "error", "limit", "approval", "refused"):
                yield (*before, replace(event, status=status), *after)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_right_run_is_right_and_each_check_fails_in_one_that_differs_in_one_place(name: str) -> None:
    case, run = BY_NAME[name], played(name)
    verdict = case.judge(Observed(run))
    assert verdict.ok, verdict.why
    seen = [Observed(other) for other in changed(run)]
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
    case, run = BY_NAME[name], played(name)
    for other in (*idlers(case), RUNS[name], (*run, end("hung"))):
        assert not case.judge(Observed(other)).ok
    assert not case.judge(Observed(run, capped=True)).ok


def test_what_was_wrong_is_told_in_words() -> None:
    *begun, paid, ended = played("approved_later")
    verdict = BY_NAME["approved_later"].judge(Observed((*begun, paid, paid, ended)))
    assert verdict.why == "paid 2 times (approval → success; 1 model call; pay(ada, 5) (x2))"
