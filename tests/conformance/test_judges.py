"""Every case of Loopcheck says yes to what is right and no to what is wrong."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from loopcheck.case import Case, load_cases
from loopcheck.judge import STATUSES
from loopcheck.observed import Death, Event, Message, ModelCall, Observed, Report, Status, StepStart, ToolRun
from loopcheck.table import group_by_theme

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
FORGOTTEN = ModelCall((Message("user", "So far all was quiet."),), who="nobody")
Run = tuple[Event, ...]


def grows(turns: int) -> list[ModelCall]:
    """As many calls of the model, each of which is shown all before it, and more."""
    return [replace(model(*(f"record {n}" for n in range(turn))), tools="its own") for turn in range(turns)]


CASES: dict[str, tuple[list[Run], list[Run]]] = {
    "batch_finish": (
        [(SAY, model(), WRITE, OK), (SAY, model(), ERROR)],
        [(SAY, model(), OK), (SAY, model(), WRITE, model(), WRITE, OK)],
    ),
    "failed_sibling": (
        [(SAY, model(), model("OSError: disk-17 is full"), OK), (SAY, model(), ERROR)],
        [(SAY, model(), OK), (SAY, model(), model("something went wrong"), OK)],
    ),
    "blind_finish": ([(SAY, model(), model("balance holds: all quiet"), OK)], [(SAY, model(), OK)]),
    "repeated_finish": ([(SAY, model(), OK)], [(SAY, model(), model(), OK), (SAY, model(), ERROR)]),
    "calls_after_finish": (
        [(SAY, model(), OK), (SAY, model(), WRITE, model("written: report"), OK)],
        [(SAY, model(), WRITE, OK)],
    ),
    "earlier_finish": (
        [(SAY, model(), OK, SAY, SECOND, APPENDIX, end("success", "The appendix is written."))],
        [
            (SAY, model(), OK, SAY, SECOND, end("success", "The report is written.")),
            (SAY, model(), OK, SAY, SECOND, APPENDIX, end("success", "The report is written.")),
            (SAY, model(), OK, SAY, SECOND, APPENDIX, ERROR),
            (SAY, model(), OK, SAY, model(), APPENDIX, end("success", "The appendix is written.")),
            (SAY, model(), OK, SAY, SECOND, end("success", "The appendix is written.")),
        ],
    ),
    "plain_answer": (
        [(SAY, model(), end("success", "It is Oslo."))],
        [
            (SAY, *[model()] * 5, LIMIT),
            (SAY, model(), OK),
            (SAY, *[model()] * 3, end("success", "It is Oslo.")),
        ],
    ),
    "promise": ([(SAY, model(), WRITE, OK), (SAY, model(), ERROR)], [(SAY, model(), OK)]),
    "talk_forever": ([(SAY, model(), LIMIT)], [(SAY, model(), OK)]),
    "structured_never": ([(SAY, model(), ERROR)], [(SAY, model(), OK), (SAY, model(), end("hung"))]),
    "structured_repaired": (
        [(SAY, model(), end("success", GOOD))],
        [(SAY, model(), end("success", {"city": "Oslo"})), (SAY, model(), end("error", GOOD))],
    ),
    "gate_never": (
        [(SAY, model(), GATE, LIMIT), (SAY, model(), GATE, ASKS)],
        [(SAY, model(), GATE, OK), (SAY, model(), ERROR)],
    ),
    "gate_after_write": (
        [(SAY, model(), GATE, UNMET, WRITE, OK)],
        [
            (SAY, model(), GATE, model(), WRITE, OK),
            (SAY, model(), GATE, UNMET, OK),
            (SAY, model(), GATE, UNMET, WRITE, ERROR),
            (SAY, model(), UNMET, WRITE, OK),
        ],
    ),
    "ask_and_finish": ([(SAY, model(), ASKS)], [(SAY, model(), OK)]),
    "truncated_call": (
        [(SAY, model(), model(), WRITE, OK), (SAY, model(), ERROR)],
        [
            (SAY, model(), HALF, OK),
            (SAY, model(), HALF, ERROR),
            (SAY, model(), HALF, WRITE, OK),
            (SAY, model(), OK),
        ],
    ),
    "truncated_finish": (
        [(SAY, model(), end("success", "Written, on the whole.")), (SAY, model(), ERROR)],
        [(SAY, model(), end("success", "Written, and its"))],
    ),
    "truncated_answer": (
        [(SAY, model(), end("success", "It says that all is quiet.")), (SAY, model(), LIMIT)],
        [(SAY, model(), end("success", "It says that, as far"))],
    ),
    "empty_reply": ([(SAY, model(), WRITE, OK), (SAY, model(), ERROR)], [(SAY, model(), OK)]),
    "filtered": ([(SAY, model(), ERROR)], [(SAY, model(), OK)]),
    "duplicate_ids": (
        [(SAY, model(), A, B, BOTH, OK), (SAY, model(), ERROR)],
        [
            (SAY, model(), A, BOTH, OK),
            (SAY, model(), B, BOTH, OK),
            (SAY, model(), A, A, B, BOTH, OK),
            (SAY, model(), A, B, model("written: a"), OK),
            (SAY, model(), A, B, model("written: b"), OK),
            (SAY, model(), A, A, ERROR),
            (SAY, model(), B, B, ERROR),
        ],
    ),
    "reused_ids": (
        [(SAY, model(), A, model(), B, BOTH, OK), (SAY, model(), A, model(), ERROR)],
        [
            (SAY, model(), A, BOTH, OK),
            (SAY, model(), B, BOTH, OK),
            (SAY, model(), A, A, ERROR),
            (SAY, model(), A, B, B, BOTH, OK),
            (SAY, model(), A, B, model("written: a"), OK),
            (SAY, model(), A, B, model("written: b"), OK),
        ],
    ),
    "failing_tool": (
        [(SAY, model(), FAILS, model("it failed"), OK)],
        [
            (SAY, model(), FAILS, model("it failed"), ERROR),
            (SAY, model(), FAILS, OK),
            (SAY, model(), model(), OK),
        ],
    ),
    "limit_said": (
        [(SAY, *[model()] * 3, LIMIT), (SAY, *[model()] * 4, LIMIT)],
        [(SAY, *[model()] * 3, OK), (SAY, *[model()] * 3, ERROR), (SAY, model(), LIMIT)],
    ),
    "finish_on_last_turn": (
        [(SAY, model(), WRITE, model(), OK)],
        [(SAY, model(), WRITE, model(), LIMIT), (SAY, model(), OK)],
    ),
    "limit_in_batch": (
        [(SAY, model(), A, B, LIMIT), (SAY, model(), LIMIT), (SAY, model(), A, B, model("not run"), OK)],
        [(SAY, model(), A, B, WRITE, LIMIT), (SAY, model(), A, B, DANGLING, OK), (SAY, model(), A, B, OK)],
    ),
    "limit_over_pauses": (
        [(*BILLS, *PAYING * 3, LIMIT), (*BILLS, *PAYING * 2, model(), ERROR)],
        [
            (*BILLS, *PAYING * 4, LIMIT),
            (*BILLS, ADA, LIMIT),
            (*BILLS, *PAYING * 3, OK),
            (SAY, model(), OK, SAY, *PAYING * 3, LIMIT),
        ],
    ),
    "limit_over_restart": (
        [(SAY, *[model()] * 3, DIED, RESUME, *[model()] * 2, LIMIT)],
        [
            (SAY, *[model()] * 3, DIED, RESUME, *[model()] * 4, LIMIT),
            (SAY, *[model()] * 3, DIED, RESUME, *[model()] * 2, OK),
            (SAY, *[model()] * 3, DIED, RESUME, LIMIT),
        ],
    ),
    "loop": (
        [(SAY, *[model()] * 9, LIMIT), (SAY, *[model()] * 9, ERROR)],
        [(SAY, *[model()] * 9, OK), (SAY, model(), ERROR)],
    ),
    "polling": (
        [(SAY, model(), model("build: done"), OK)],
        [(SAY, model("build: running, 50 %"), LIMIT), (SAY, model("build: running, 50 %"), OK)],
    ),
    "crash_after_effect": (
        [(SAY, model(), ADA, DIED, RESUME, answered("unknown"), OK)],
        [
            (SAY, model(), ADA, DIED, RESUME, ADA, answered("paid"), OK),
            (SAY, model(), ADA, DIED, RESUME, REFUSED),
            (SAY, model(), ADA, DIED, RESUME, model("what now?"), OK),
            (SAY, model(), ADA, DIED, RESUME, ERROR),
            (SAY, model(), DIED, RESUME, ADA, answered("paid"), OK),
        ],
    ),
    "crash_between_tools": (
        [(SAY, model(), ADA, DIED, RESUME, BOB, answered("paid"), OK)],
        [
            (SAY, model(), ADA, DIED, RESUME, ADA, BOB, answered("paid"), OK),
            (SAY, model(), ADA, DIED, RESUME, BOB, BOB, answered("paid"), OK),
            (SAY, model(), ADA, DIED, RESUME, DANGLING, OK),
            (SAY, model(), ADA, DIED, RESUME, REFUSED),
            (SAY, model(), ADA, DIED, RESUME, ERROR),
            (SAY, model(), DIED, RESUME, ADA, BOB, answered("paid"), OK),
        ],
    ),
    "crash_before_reply": (
        [(SAY, model(), WRITE, DIED, RESUME, model(), OK)],
        [
            (SAY, model(), WRITE, DIED, RESUME, WRITE, model(), OK),
            (SAY, model(), WRITE, DIED, RESUME, ERROR),
            (SAY, model(), DIED, RESUME, model(), OK),
        ],
    ),
    "resumed_twice": (
        [(SAY, model(), WRITE, DIED, RESUME, model(), OK, RESUME, REFUSED)],
        [
            (SAY, model(), WRITE, DIED, RESUME, model(), OK, RESUME, model(), OK),
            (SAY, model(), WRITE, DIED, RESUME, WRITE, OK, RESUME, OK),
            (SAY, model(), WRITE, DIED, RESUME, ERROR, RESUME, OK),
            (SAY, model(), DIED, RESUME, model(), OK, RESUME, REFUSED),
        ],
    ),
    "two_runners": (
        [(SAY, model(), DIED, RESUME, ADA, OK, REFUSED)],
        [
            (SAY, model(), DIED, RESUME, ADA, ADA, OK, OK),
            (SAY, model(), DIED, RESUME, ADA, ERROR, REFUSED),
            (SAY, model(), DIED, RESUME, OK, REFUSED),
        ],
    ),
    "approved_later": (
        [(*ASKED, ADA, OK)],
        [
            (SAY, model(), ADA, WAITS, DECIDE, OK),
            (*ASKED, OK),
            (*ASKED, ADA, ADA, OK),
            (*ASKED, ADA, ERROR),
            (SAY, model(), OK, DECIDE, ADA, OK),
        ],
    ),
    "approved_twice": (
        [(*ASKED, ADA, OK, DECIDE, REFUSED)],
        [
            (*ASKED, ADA, OK, DECIDE, ADA, OK),
            (*ASKED, ADA, OK, DECIDE, model(), OK),
            (*ASKED, ADA, OK, DECIDE, ERROR),
            (SAY, model(), ADA, WAITS, DECIDE, OK, DECIDE, REFUSED),
            (SAY, model(), REFUSED, DECIDE, ADA, OK, DECIDE, REFUSED),
        ],
    ),
    "message_while_waiting": (
        [(SAY, model(), WAITS, SAY, model("pay nobody"), OK), (SAY, model(), WAITS, SAY, REFUSED)],
        [
            (SAY, model(), WAITS, SAY, ADA, model("pay nobody"), OK),
            (SAY, model(), WAITS, SAY, DANGLING, OK),
            (SAY, model(), WAITS, SAY, model("go on"), OK),
            (SAY, model(), WAITS, SAY, model("pay nobody"), ERROR),
            (SAY, model(), REFUSED, SAY, REFUSED),
        ],
    ),
    "other_arguments": (
        [(*ASKED, ADA, WAITS), (*ASKED, ADA, ERROR)],
        [
            (*ASKED, ADA, FIVE_HUNDRED, OK),
            (*ASKED, OK),
            (SAY, model(), ADA, WAITS, DECIDE, OK),
            (SAY, model(), ERROR, DECIDE, ADA, OK),
        ],
    ),
    "edited": (
        [(*ASKED, ADA, model("paid 5 to ada"), OK)],
        [
            (*ASKED, FIVE_HUNDRED, model("paid 5 to ada"), OK),
            (*ASKED, ADA, FIVE_HUNDRED, model("paid 5 to ada"), OK),
            (*ASKED, ADA, model("paid 500 to ada"), OK),
            (*ASKED, ADA, model("paid 5 to ada"), ERROR),
            (SAY, model(), ADA, WAITS, DECIDE, model("paid 5 to ada"), OK),
            (SAY, model(), OK, DECIDE, ADA, model("paid 5 to ada"), OK),
        ],
    ),
    "rejected": (
        [(*ASKED, answered("That is too much."), OK)],
        [
            (*ASKED, ADA, answered("That is too much."), OK),
            (*ASKED, answered("No."), OK),
            (*ASKED, model("too much", calls=(("c1", "pay", "{}"),)), OK),
            (*ASKED, answered("That is too much."), ERROR),
            (SAY, model(), OK, DECIDE, answered("That is too much."), OK),
        ],
    ),
    "one_of_two": (
        [(*ASKED, ADA, OK), (*ASKED, ADA, WAITS, DECIDE, OK)],
        [
            (*ASKED, ADA, BOB, OK),
            (*ASKED, OK),
            (SAY, model(), ADA, WAITS, DECIDE, OK),
            (*ASKED, ADA, ERROR),
            (SAY, model(), OK, DECIDE, ADA, OK),
        ],
    ),
    "empty_answer": (
        [(SAY, model(), ASKS, ANSWER, answered(""), OK)],
        [
            (SAY, model(), ASKS, ANSWER, ASKS),
            (SAY, model(), ASKS, ANSWER, answered(""), ERROR),
            (SAY, model(), ASKS, ANSWER, DANGLING, OK),
            (SAY, model(), OK, ANSWER, answered(""), OK),
        ],
    ),
    "deadline": (
        [(SAY, model(), ASKS, EXPIRE, model("Oslo"), OK)],
        [
            (SAY, model(), ASKS, EXPIRE, model(""), OK),
            (SAY, model(), ASKS, EXPIRE, ASKS),
            (SAY, model(), OK, EXPIRE, model("Oslo"), OK),
        ],
    ),
    "stopped": (
        [(SAY, model(), A, end("stopped")), (SAY, model(), A, ERROR)],
        [
            (SAY, model(), end("stopped")),
            (SAY, model(), A, OK),
            (SAY, model(), A, model(), end("stopped")),
            (SAY, model(), A, B, end("stopped")),
            (SAY, model(), ERROR),
        ],
    ),
    "decided_out_of_order": (
        [(*ASKED, ADA, NOT_BOB, OK)],
        [
            (*ASKED, BOB, NOT_BOB, OK),
            (*ASKED, ADA, BOB, NOT_BOB, OK),
            (*ASKED, NOT_BOB, OK),
            (*ASKED, ADA, OK),
            (*ASKED, ADA, NOT_BOB, DANGLING, OK),
            (*ASKED, ADA, NOT_BOB, ERROR),
            (SAY, model(), ADA, WAITS, DECIDE, NOT_BOB, OK),
            (SAY, model(), OK, DECIDE, ADA, NOT_BOB, OK),
        ],
    ),
    "decided_in_part": (
        [(*ASKED, WAITS, DECIDE, ADA, NOT_BOB, OK), (*ASKED, REFUSED, DECIDE, ADA, NOT_BOB, OK)],
        [
            (*ASKED, ADA, NOT_BOB, OK, DECIDE, REFUSED),
            (*ASKED, WAITS, DECIDE, NOT_BOB, OK),
            (*ASKED, WAITS, DECIDE, ADA, BOB, NOT_BOB, OK),
            (*ASKED, WAITS, DECIDE, ADA, OK),
            (*ASKED, WAITS, DECIDE, ADA, NOT_BOB, DANGLING, OK),
            (*ASKED, WAITS, DECIDE, ADA, NOT_BOB, ERROR),
            (SAY, model(), OK, DECIDE, WAITS, DECIDE, ADA, NOT_BOB, OK),
        ],
    ),
    "decided_too_late": (
        [(*ASKED, ADA, WAITS, DECIDE, end_) for end_ in (REFUSED, WAITS, ERROR)],
        [
            (*ASKED, ADA, WAITS, DECIDE, FIVE_HUNDRED, OK),
            (*ASKED, ADA, OK, DECIDE, REFUSED),
            (*ASKED, WAITS, DECIDE, REFUSED),
            (SAY, model(), ADA, WAITS, DECIDE, WAITS, DECIDE, REFUSED),
            (SAY, model(), OK, DECIDE, ADA, WAITS, DECIDE, REFUSED),
        ],
    ),
    "long_run": (
        [(SAY, *[PAGE] * 40, model(), OK)],
        [(SAY, *[PAGE] * 30, ERROR), (SAY, *[PAGE] * 30, model(), OK), (SAY, *[PAGE] * 40, FORGOTTEN, OK)],
    ),
    "stable_prompt": (
        [(SAY, *grows(6), OK)],
        [
            (SAY, *grows(5), OK),
            (SAY, *grows(6), ERROR),
            (SAY, *grows(6)[:5], model("Here is a summary."), OK),
            (SAY, *grows(6)[:5], replace(grows(6)[5], tools="others"), OK),
        ],
    ),
    "stable_prompt_resumed": (
        [(SAY, *grows(3), WAITS, DECIDE, ADA, *grows(5)[3:], OK)],
        [
            (SAY, *grows(3), WAITS, DECIDE, ADA, *grows(2), OK),
            (SAY, *grows(3), WAITS, DECIDE, ADA, *grows(4)[3:], OK),
            (SAY, *grows(3), WAITS, DECIDE, ADA, *grows(5)[3:], ERROR),
            (SAY, *grows(3), WAITS, DECIDE, *grows(5)[3:], OK),
            (SAY, *grows(3), ADA, WAITS, DECIDE, *grows(5)[3:], OK),
            (SAY, *grows(3), OK, DECIDE, ADA, *grows(5)[3:], OK),
        ],
    ),
}


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
CASES |= {
    "child_out_of_turns": (
        [
            (SAY, model(), *[READ] * 3, above("clerk reached its limit of 3 turns"), OK),
            (SAY, model(), *[READ] * 3, above("It did not finish."), OK),
            (SAY, model(), *[READ] * 3, LIMIT),
            (SAY, model(), *[READ] * 3, ERROR),
        ],
        [
            (SAY, model(), *[READ] * 3, above("record 2 holds: all quiet"), OK),
            (SAY, model(), *[READ] * 3, OK),
            (SAY, model(), READ, above("Error: the limit is reached"), OK),
            (SAY, model(), *[READ] * 9, above("Error: the limit is reached"), OK),
        ],
    ),
    "child_approved_later": (
        [(SAY, model(), BILL, NOTED, WAITS, DECIDE, ADA, BILL, above("Ada is paid."), OK)],
        [
            (SAY, model(), BILL, NOTED, ADA, WAITS, DECIDE, OK),
            (SAY, model(), BILL, NOTED, WAITS, DECIDE, BILL, NOTED, ADA, OK),
            (SAY, model(), BILL, NOTED, WAITS, DECIDE, ADA, ADA, OK),
            (SAY, model(), BILL, NOTED, WAITS, DECIDE, OK),
            (SAY, model(), BILL, NOTED, WAITS, DECIDE, WAITS),
            (SAY, model(), NOTED, WAITS, DECIDE, ADA, above("Ada is paid."), OK),
            (SAY, model(), BILL, NOTED, OK, DECIDE, ADA, OK),
            (SAY, model(), BILL, NOTED, WAITS, DECIDE, ADA, ERROR),
        ],
    ),
    "two_children_ask": (
        [(*BOTH_ASK, ADA, TOLD, OK), (*BOTH_ASK, ADA, WAITS, StepStart("decide"), TOLD, OK)],
        [
            (*BOTH_ASK, ADA, BOB, TOLD, OK),
            (*BOTH_ASK, BOB, TOLD, OK),
            (*BOTH_ASK, ADA, OK),
            (*BOTH_ASK, NOTED, ADA, TOLD, OK),
            (*BOTH_ASK, ADA, TOLD, below(PAY_ADA, "Bob is paid already."), OK),
            (*BOTH_ASK, ADA, TOLD, WAITS),
            (*BOTH_ASK, ADA, TOLD, ERROR),
            (*BOTH_ASK, NOTED_TOO, ADA, TOLD, OK),
            (SAY, model(), BILL_ADA, NOTED, BILL_BOB, NOTED_TOO, ADA, WAITS, DECIDE, TOLD, OK),
            (SAY, model(), BILL_ADA, NOTED, BILL_BOB, NOTED_TOO, OK, DECIDE, ADA, TOLD, OK),
            (SAY, model(), NOTED, BILL_BOB, NOTED_TOO, WAITS, DECIDE, ADA, TOLD, OK),
            (SAY, model(), BILL_ADA, NOTED, WAITS, DECIDE, ADA, OK),
        ],
    ),
    "limit_over_tree": (
        [(SAY, model(), *[ONE] * 3, model(), TWO, LIMIT), (SAY, model(), *[ONE] * 3, model(), TWO, ERROR)],
        [
            (SAY, model(), *[ONE] * 3, model(), *[TWO] * 3, model(), LIMIT),
            (SAY, model(), *[ONE] * 3, model(), TWO, OK),
            (SAY, model(), ONE, ERROR),
            (SAY, model(), TWO, ERROR),
        ],
    ),
    "recursive_delegation": (
        [(SAY, model(), *[PASSED] * 5, above("too deep"), OK), (SAY, model(), *[PASSED] * 5, LIMIT)],
        [(SAY, model(), below(PASS_ON), OK), (SAY, model(), OK), (SAY, model(), PASSED, WAITS)],
    ),
}
GOES_ON: tuple[list[Run], list[Run]] = (
    [(SAY, model(), model(), WRITE, OK)],
    [
        (SAY, model(), ERROR),
        (SAY, model(), WRITE, ERROR),
        (SAY, model(), OK),
        (SAY, model(), WRITE, WRITE, OK),
    ],
)
for name in ("malformed_call", "wrong_arguments", "unknown_tool", "transient_error", "big_result"):
    CASES[name] = GOES_ON
TABLE = [(name, at, run) for name, sides in CASES.items() for at, runs in enumerate(sides) for run in runs]


def played(case: Case, run: Sequence[Event]) -> Run:
    """The agent above is shown the first message in each of its calls."""
    message = Message("user", case.steps[0].text)
    return tuple(
        replace(event, messages=(message, *event.messages))
        if isinstance(event, ModelCall) and not event.who
        else event
        for event in run
    )


def _table(side: int) -> list[Any]:
    rows = [(name, run) for name, at, run in TABLE if at == side]
    return [
        pytest.param(BY_NAME[name], played(BY_NAME[name], run), id=f"{name}-{number}")
        for number, (name, run) in enumerate(rows)
    ]


def test_every_case_is_tried_both_ways() -> None:
    assert set(CASES) == set(BY_NAME)
    assert all(right and wrong for right, wrong in CASES.values())


@pytest.mark.parametrize(("case", "run"), _table(0))
def test_says_yes_to_what_is_right(case: Case, run: Run) -> None:
    found = case.judge(Observed(run))
    assert found.ok, found.why


@pytest.mark.parametrize(("case", "run"), _table(1))
def test_says_no_to_what_is_wrong(case: Case, run: Run) -> None:
    assert not case.judge(Observed(run)).ok


each = pytest.mark.parametrize("case", load_cases(), ids=lambda case: str(case.name))


@each
def test_no_check_is_idle(case: Case) -> None:
    """Each check is wrong in some run; that the message is shown is tried below."""
    wrong = [Observed(played(case, run)) for run in CASES[case.name][1]]
    idle = [one.why for one in case.must if all(one.holds(seen) for seen in wrong)]
    idle += [one.why for one in case.must_not if not any(one.holds(seen) for seen in wrong)]
    assert set(idle) <= {"the model was not shown the message"}


@each
def test_a_run_in_which_the_model_was_not_shown_the_message_is_never_right(case: Case) -> None:
    for run in CASES[case.name][0]:
        assert not case.judge(Observed(tuple(run))).ok


def idlers(case: Case) -> list[Run]:
    """Subjects that do nothing: they answer each step with the same status, or never."""
    steps = [StepStart(step.do, step.text) for step in case.steps]
    ends = [Report(status, "done", "done") for status in STATUSES]  # type: ignore[arg-type]
    said: list[Run] = [tuple(event for step in steps for event in (step, end_)) for end_ in ends]
    silent: list[Run] = [(), tuple(steps), tuple(event for step in steps for event in (step, DIED))]
    final = case.right, {"city": "Oslo", "population": 709_000}, "Oslo: all is quiet, on the whole"
    knowing: list[Run] = [
        tuple(event for step in steps for event in (step, end("success", guess))) for guess in final
    ]
    return [*said, *silent, *knowing]


@each
def test_a_subject_that_does_nothing_is_never_right(case: Case) -> None:
    """What must not happen counts only together with what must."""
    for run in idlers(case):
        assert not case.judge(Observed(run)).ok


@pytest.mark.parametrize("case", group_by_theme(load_cases())["Sub-agents"], ids=lambda case: str(case.name))
@pytest.mark.parametrize(
    "status", ["success", "limit", "error", "question", "approval", "stopped", "refused"]
)
def test_an_agent_that_calls_no_sub_agent_is_never_right(case: Case, status: Status) -> None:
    runs: list[Run] = [(SAY, end(status)), (SAY, model(), end(status)), (SAY, WAITS, DECIDE, end(status))]
    assert not any(case.judge(Observed(played(case, run))).ok for run in runs)


@each
def test_what_does_not_end_by_itself_is_never_right(case: Case) -> None:
    for run in CASES[case.name][0]:
        seen = played(case, run)
        assert not case.judge(Observed(seen, capped=True)).ok
        assert not case.judge(Observed((*seen, end("hung")))).ok


def test_what_was_wrong_is_told_in_words() -> None:
    case = BY_NAME["approved_later"]
    found = case.judge(Observed(played(case, (*ASKED, ADA, ADA, OK))))
    assert found.why == "paid 2 times (approval → success; 1 model call; pay(ada, 5) (x2))"
