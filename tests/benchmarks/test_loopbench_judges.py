"""Every judge of LoopBench says yes to what is right and no to what is wrong."""

import sys
from pathlib import Path
from typing import Any

import pytest

# pytest does not put it there, and the benchmarks are in no installed package.
sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.loopbench.observed import Died, Event, Observed, Ran, Sent, Shown, Status, Stepped, Told
from benchmarks.loopbench.scenario import Scenario
from benchmarks.loopbench.scenarios import SCENARIOS, THEMES
from benchmarks.loopbench.scenarios.children import CHAPTERS, PASS_ON, PAY_ADA, PAY_BILL, PAY_BOB, READ_ALL

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
SAY, DECIDE, RESUME = Stepped("say"), Stepped("decide"), Stepped("resume")
DIED = Died()


def model(*words: str, calls: tuple[tuple[str, str, str], ...] = ()) -> Shown:
    """The model is called and shown these words; before them stand the calls, when there are some."""
    said = (Sent("assistant", calls=calls),) if calls else ()
    return Shown((*said, *(Sent("user", word) for word in words)))


def answered(*words: str) -> Shown:
    """The model is shown a call and its result."""
    call = Sent("assistant", calls=(("c1", "pay", '{"to": "ada"}'),))
    return Shown((call, Sent("tool", " ".join(words), answers="c1")))


def did(tool: str, **args: Any) -> Ran:
    return Ran(tool, args)


def end(status: Status, final: Any = "It is done.") -> Told:
    return Told(status, "", final)


DANGLING = model("pay nobody", calls=(("c1", "pay", '{"to": "ada"}'),))
WRITE = did("write", name="report", text="all of it")
HALF = did("write", name="report", text="The first half of")
A, B = did("write", name="a", text="1"), did("write", name="b", text="2")
BOTH = model("written: a", "written: b")
ADA, BOB = did("pay", to="ada", amount=5), did("pay", to="bob", amount=7)
OK, WAITS, ASKS = end("success"), end("approval"), end("question")
LIMIT, ERROR, REFUSED = end("limit"), end("error"), end("refused")
GOOD = {"city": "Oslo", "population": 709_000}

PAYING: list[Event] = [model(), ADA]
Run = tuple[Event, ...]
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
        [(SAY, OK, SAY, did("write", name="appendix"), end("success", "The appendix is written."))],
        [
            (SAY, OK, SAY, end("success", "The report is written.")),
            (SAY, OK, SAY, did("write", name="appendix"), end("success", "The report is written.")),
            (SAY, OK, SAY, did("write", name="appendix"), ERROR),
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
        [(SAY, end("success", GOOD))],
        [(SAY, end("success", {"city": "Oslo"})), (SAY, end("error", GOOD))],
    ),
    "gate_never": ([(SAY, model(), LIMIT), (SAY, ASKS)], [(SAY, model(), OK)]),
    "gate_after_write": (
        [(SAY, model(), model("it has not been written yet"), WRITE, OK)],
        [
            (SAY, model(), WRITE, OK),
            (SAY, model(), model("it has not been written yet"), OK),
            (SAY, model(), model("it has not been written yet"), WRITE, ERROR),
        ],
    ),
    "ask_and_finish": ([(SAY, model(), ASKS)], [(SAY, model(), OK)]),
    "truncated_call": (
        [(SAY, model(), model(), WRITE, OK), (SAY, model(), ERROR)],
        [(SAY, HALF, OK), (SAY, HALF, ERROR), (SAY, HALF, WRITE, OK), (SAY, model(), OK)],
    ),
    "truncated_finish": (
        [(SAY, end("success", "Written, on the whole.")), (SAY, ERROR)],
        [(SAY, end("success", "Written, and its"))],
    ),
    "truncated_answer": (
        [(SAY, end("success", "It says that all is quiet.")), (SAY, LIMIT)],
        [(SAY, end("success", "It says that, as far"))],
    ),
    "empty_reply": ([(SAY, model(), WRITE, OK), (SAY, ERROR)], [(SAY, model(), OK)]),
    "filtered": ([(SAY, ERROR)], [(SAY, OK)]),
    "duplicate_ids": (
        [(SAY, A, B, BOTH, OK), (SAY, ERROR)],
        [
            (SAY, A, OK),
            (SAY, A, A, B, BOTH, OK),
            (SAY, A, B, model("written: a"), OK),
            (SAY, A, A, ERROR),
        ],
    ),
    "reused_ids": (
        [(SAY, A, B, BOTH, OK), (SAY, A, ERROR)],
        [(SAY, A, OK), (SAY, A, B, B, BOTH, OK), (SAY, A, B, model("written: b"), OK)],
    ),
    "failing_tool": ([(SAY, model(), OK)], [(SAY, model(), ERROR)]),
    "limit_said": ([(SAY, LIMIT)], [(SAY, OK), (SAY, ERROR)]),
    "finish_on_last_turn": ([(SAY, WRITE, OK)], [(SAY, WRITE, LIMIT), (SAY, OK)]),
    "limit_in_batch": (
        [(SAY, A, B, LIMIT), (SAY, A, B, model("not run"), OK)],
        [(SAY, A, B, WRITE, LIMIT), (SAY, A, B, DANGLING, OK)],
    ),
    "limit_over_pauses": (
        [(SAY, OK, SAY, *PAYING * 3, LIMIT), (SAY, OK, SAY, *PAYING * 2, model(), ERROR)],
        [
            (SAY, OK, SAY, *PAYING * 5, LIMIT),
            (SAY, OK, SAY, model(), ADA, LIMIT),
            (SAY, OK, SAY, *PAYING * 3, OK),
        ],
    ),
    "limit_over_restart": (
        [(SAY, *[model()] * 3, DIED, RESUME, *[model()] * 2, LIMIT)],
        [(SAY, *[model()] * 3, DIED, RESUME, *[model()] * 4, LIMIT), (SAY, DIED, RESUME, OK)],
    ),
    "loop": ([(SAY, LIMIT), (SAY, ERROR)], [(SAY, OK)]),
    "polling": (
        [(SAY, model("build: done"), OK)],
        [(SAY, model("build: running, 50 %"), LIMIT), (SAY, model("build: running, 50 %"), OK)],
    ),
    "crash_after_effect": (
        [(SAY, model(), ADA, DIED, RESUME, answered("unknown"), OK)],
        [
            (SAY, model(), ADA, DIED, RESUME, ADA, answered("paid"), OK),
            (SAY, model(), ADA, DIED, RESUME, REFUSED),
            (SAY, model(), ADA, DIED, RESUME, model("what now?"), OK),
        ],
    ),
    "crash_between_tools": (
        [(SAY, model(), ADA, DIED, RESUME, BOB, answered("paid"), OK)],
        [
            (SAY, model(), ADA, DIED, RESUME, ADA, BOB, answered("paid"), OK),
            (SAY, model(), ADA, DIED, RESUME, BOB, BOB, answered("paid"), OK),
            (SAY, model(), ADA, DIED, RESUME, DANGLING, OK),
            (SAY, model(), ADA, DIED, RESUME, REFUSED),
        ],
    ),
    "crash_before_reply": (
        [(SAY, WRITE, DIED, RESUME, OK)],
        [(SAY, WRITE, DIED, RESUME, WRITE, OK), (SAY, WRITE, DIED, RESUME, ERROR)],
    ),
    "resumed_twice": (
        [(SAY, WRITE, DIED, RESUME, model(), OK, Stepped("resume"), REFUSED)],
        [
            (SAY, WRITE, DIED, RESUME, model(), OK, Stepped("resume"), model(), OK),
            (SAY, WRITE, DIED, RESUME, WRITE, OK, Stepped("resume"), OK),
            (SAY, WRITE, DIED, RESUME, ERROR, Stepped("resume"), OK),
        ],
    ),
    "two_runners": (
        [(SAY, DIED, RESUME, ADA, OK, REFUSED)],
        [(SAY, DIED, RESUME, ADA, ADA, OK, OK), (SAY, DIED, RESUME, ADA, ERROR, REFUSED)],
    ),
    "approved_later": (
        [(SAY, WAITS, DECIDE, ADA, OK)],
        [
            (SAY, ADA, WAITS, DECIDE, OK),
            (SAY, WAITS, DECIDE, OK),
            (SAY, WAITS, DECIDE, ADA, ADA, OK),
            (SAY, WAITS, DECIDE, ADA, ERROR),
        ],
    ),
    "approved_twice": (
        [(SAY, WAITS, DECIDE, ADA, OK, Stepped("decide"), REFUSED)],
        [
            (SAY, WAITS, DECIDE, ADA, OK, Stepped("decide"), ADA, OK),
            (SAY, WAITS, DECIDE, ADA, OK, Stepped("decide"), model(), OK),
            (SAY, WAITS, DECIDE, ADA, OK, Stepped("decide"), ERROR),
        ],
    ),
    "message_while_waiting": (
        [(SAY, WAITS, Stepped("say"), model("pay nobody"), OK), (SAY, WAITS, Stepped("say"), REFUSED)],
        [
            (SAY, WAITS, Stepped("say"), ADA, model("pay nobody"), OK),
            (SAY, WAITS, Stepped("say"), DANGLING, OK),
            (SAY, WAITS, Stepped("say"), model("go on"), OK),
            (SAY, WAITS, Stepped("say"), ERROR),
        ],
    ),
    "other_arguments": (
        [(SAY, WAITS, DECIDE, ADA, WAITS), (SAY, WAITS, DECIDE, ADA, ERROR)],
        [(SAY, WAITS, DECIDE, ADA, did("pay", to="ada", amount=500), OK), (SAY, WAITS, DECIDE, OK)],
    ),
    "edited": (
        [(SAY, WAITS, DECIDE, ADA, model("paid 5 to ada"), OK)],
        [
            (SAY, WAITS, DECIDE, did("pay", to="ada", amount=500), model("paid 5 to ada"), OK),
            (SAY, WAITS, DECIDE, ADA, model("paid 500 to ada"), OK),
            (SAY, WAITS, DECIDE, ADA, model("paid 5 to ada"), ERROR),
        ],
    ),
    "rejected": (
        [(SAY, WAITS, DECIDE, answered("That is too much."), OK)],
        [
            (SAY, WAITS, DECIDE, ADA, answered("That is too much."), OK),
            (SAY, WAITS, DECIDE, answered("No."), OK),
            (SAY, WAITS, DECIDE, model("too much", calls=(("c1", "pay", "{}"),)), OK),
        ],
    ),
    "one_of_two": (
        [(SAY, WAITS, DECIDE, ADA, OK)],
        [(SAY, WAITS, DECIDE, ADA, BOB, OK), (SAY, WAITS, DECIDE, OK), (SAY, ADA, WAITS, DECIDE, OK)],
    ),
    "empty_answer": (
        [(SAY, model(), ASKS, Stepped("answer"), answered(""), OK)],
        [
            (SAY, model(), ASKS, Stepped("answer"), ASKS),
            (SAY, model(), ASKS, Stepped("answer"), DANGLING, OK),
            (SAY, model(), OK, Stepped("answer"), answered(""), OK),
        ],
    ),
    "deadline": (
        [(SAY, model(), ASKS, Stepped("expire"), model("Oslo"), OK)],
        [(SAY, model(), ASKS, Stepped("expire"), model(""), OK), (SAY, ASKS, Stepped("expire"), ASKS)],
    ),
    "stopped": (
        [(SAY, model(), A, end("stopped"))],
        [
            (SAY, model(), A, OK),
            (SAY, model(), A, model(), end("stopped")),
            (SAY, model(), A, B, end("stopped")),
        ],
    ),
}


def below(task: str, *words: str, gives: str = "") -> Shown:
    """A sub-agent with this task calls its model, is shown these words, and gives a task to another one."""
    calls = (("c1", "clerk", f'{{"task": "{gives}"}}'),) if gives else ()
    return Shown(tuple(Sent("user", word) for word in words), calls=calls, who=task)


def above(result: str) -> Shown:
    """The agent is shown the result of its sub-agent."""
    given = Sent("assistant", calls=(("c1", "clerk", "{}"),))
    return Shown((Sent("user", "Go."), given, Sent("tool", result, answers="c1")))


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
            (SAY, model(), BILL, NOTED, WAITS, DECIDE, ADA, ERROR),
        ],
    ),
    "two_children_ask": (
        [(*BOTH_ASK, ADA, TOLD, OK), (*BOTH_ASK, ADA, WAITS, Stepped("decide"), TOLD, OK)],
        [
            (*BOTH_ASK, ADA, BOB, TOLD, OK),
            (*BOTH_ASK, BOB, TOLD, OK),
            (*BOTH_ASK, ADA, OK),
            (*BOTH_ASK, NOTED, ADA, TOLD, OK),
            (*BOTH_ASK, ADA, TOLD, below(PAY_ADA, "Bob is paid already."), OK),
            (*BOTH_ASK, ADA, TOLD, WAITS),
            (*BOTH_ASK, ADA, TOLD, ERROR),
            (SAY, model(), BILL_ADA, NOTED, WAITS, DECIDE, ADA, OK),
        ],
    ),
    "limit_over_tree": (
        [(SAY, model(), *[ONE] * 3, model(), TWO, LIMIT), (SAY, model(), *[ONE] * 3, model(), TWO, ERROR)],
        [
            (SAY, model(), *[ONE] * 3, model(), *[TWO] * 3, model(), LIMIT),
            (SAY, model(), *[ONE] * 3, model(), TWO, OK),
            (SAY, model(), ONE, ERROR),
        ],
    ),
    "recursive_delegation": (
        [(SAY, model(), *[PASSED] * 5, above("too deep"), OK), (SAY, model(), *[PASSED] * 5, LIMIT)],
        [(SAY, model(), below(PASS_ON), OK), (SAY, model(), OK), (SAY, model(), PASSED, WAITS)],
    ),
}
GOES_ON: tuple[list[Run], list[Run]] = (
    [(SAY, model(), WRITE, OK)],
    [(SAY, model(), ERROR), (SAY, WRITE, ERROR), (SAY, model(), OK), (SAY, WRITE, WRITE, OK)],
)
for name in ("malformed_call", "wrong_arguments", "unknown_tool", "transient_error", "big_result"):
    CASES[name] = GOES_ON


def _table(side: int) -> list[Any]:
    return [
        pytest.param(BY_NAME[name], run, id=f"{name}-{at}")
        for name, sides in CASES.items()
        for at, run in enumerate(sides[side])
    ]


def test_every_judge_is_tried_both_ways() -> None:
    assert set(CASES) == set(BY_NAME)
    assert all(right and wrong for right, wrong in CASES.values())


@pytest.mark.parametrize(("scenario", "run"), _table(0))
def test_says_yes_to_what_is_right(scenario: Scenario, run: Run) -> None:
    found = scenario.judge(Observed(run))
    assert found.ok, found.why


@pytest.mark.parametrize(("scenario", "run"), _table(1))
def test_says_no_to_what_is_wrong(scenario: Scenario, run: Run) -> None:
    assert not scenario.judge(Observed(run)).ok


@pytest.mark.parametrize("scenario", THEMES["Sub-agents"], ids=lambda scenario: str(scenario.name))
@pytest.mark.parametrize(
    "status", ["success", "limit", "error", "question", "approval", "stopped", "refused"]
)
def test_an_agent_that_calls_no_sub_agent_is_never_right(scenario: Scenario, status: Status) -> None:
    for run in ((SAY, end(status)), (SAY, model(), end(status)), (SAY, WAITS, DECIDE, end(status))):
        assert not scenario.judge(Observed(run)).ok


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: str(scenario.name))
def test_what_does_not_end_by_itself_is_never_right(scenario: Scenario) -> None:
    for run in CASES[scenario.name][0]:
        assert not scenario.judge(Observed(run, capped=True)).ok
        assert not scenario.judge(Observed((*run, end("hung")))).ok
