"""The order in which a finish is judged, phases, and how a review that does not move ends."""

from typing import Any

import pytest
from langgraph.types import Command
from pydantic import BaseModel

from signoff import build_graph, go_on, outcome_of
from signoff.models import ScriptedModel, call
from tests.support.plays import (
    ASK,
    FAIL,
    FINISH,
    GO,
    TEXTS,
    THINK,
    THREAD,
    WRITE,
    ai,
    check,
    done,
    play,
    saved,
    user,
)

YES: Any = Command(resume="yes")
NO: Any = Command(resume="Write a summary.")
EMPTY = call("finish_task", summary=" ")
BAD_PERCENT = call("finish_task", summary="x", completion_percentage=250)
GHOST = [call("ghost"), FINISH]


def claims(**args: Any) -> Any:
    return call("finish_task", **{"summary": "x", **args})


PARTIAL, ASKS = claims(outcome="partial"), claims(requires_user_confirmation=True)
UNLIMITED = {"turns": 6, "refusals": None}


class Size(BaseModel):
    """A size."""

    size: int


def sized(size: int) -> Any:
    return claims(result={"size": size})


def at_least_7(arguments: dict[str, Any]) -> Any:
    size = arguments["result"]["size"]
    return size >= 7 or f"{size} is too small"


def not_for_a_person(claim: dict[str, Any]) -> bool:
    return not claim["requires_user_confirmation"]


def never() -> bool:
    raise AssertionError("it must not run")


SIZED: dict[str, Any] = {"checks": [at_least_7], "form": Size}
ORDER = {
    "arguments come before the calls beside it": play(
        [[FAIL, EMPTY], FINISH], ran="fail", refusals=1, told="<refused> <empty_summary>"
    ),
    "a call beside it that failed voids it": play(
        [[FAIL, FINISH], FINISH], ran="fail", refusals=1, told="<siblings> fail"
    ),
    "so does one that does not exist": play([GHOST, FINISH], refusals=1, told="<siblings> ghost"),
    "that comes before a phase": play(
        [[FAIL, claims(completion_percentage=50)], FINISH], ran="fail", refusals=1, phases=[]
    ),
    "a phase comes before the checks": play(
        [claims(completion_percentage=50), PARTIAL], checks=[never], claim="partial"
    ),
    "bad arguments run no check": play([EMPTY, PARTIAL], checks=[never], claim="partial"),
    "checks come before a person": play(
        [ASKS, FINISH], checks=[not_for_a_person], waits="", refusals=1, verified="verified"
    ),
    "a person comes last, and what the checks said holds": play(
        [ASKS], then=YES, checks=[lambda: True], waits="finish", verified="verified"
    ),
}

BAD_INPUT = {
    "a missing summary": play([call("finish_task"), FINISH], refusals=1, told="<arguments> summary"),
    "a percentage of 250": play([BAD_PERCENT, FINISH], refusals=1, told="<arguments> completion_percentage"),
    "a percentage below 0": play([claims(completion_percentage=-5), FINISH], refusals=1),
    "a percentage in words": play(
        [claims(completion_percentage="most"), FINISH], refusals=1, told="completion_percentage"
    ),
    "issues that are a number": play([claims(pending_issues=5), FINISH], refusals=1, told="pending_issues"),
    "issues that are an object": play([claims(pending_issues={"a": 1}), FINISH], refusals=1),
    "issues that hold numbers": play(
        [claims(pending_issues=["a", 1]), FINISH], refusals=1, told="pending_issues.1"
    ),
    "an outcome that does not exist": play([claims(outcome="great"), FINISH], refusals=1, told="outcome"),
    **{
        f"{words!r} is no next phase": play([claims(next_phase=words)], turns=1)
        for words in (None, "", "None", "n/a", "Done!", "Completed.", "next_phase")
    },
}

STANDSTILL = {
    "the same refusal twice: a person is asked, who accepts": play(
        [EMPTY, EMPTY], then=YES, waits="finish", refusals=1, verified="unverified", turns=2
    ),
    "who sends it back": play(
        [EMPTY, EMPTY, FINISH], then=NO, refusals=2, turns=3, told="<sent_back> Write a summary."
    ),
    "a message sends it back": play([EMPTY, EMPTY, FINISH], then="Write a summary.", refusals=2),
    "after a person's word it has one more try": play(
        [EMPTY, EMPTY, EMPTY, FINISH], then=NO, waits="finish", refusals=3
    ),
    "nobody can be asked: a limit": play(
        [EMPTY, EMPTY], saved=False, reason="review_deadlock", turns=2, refusals=2, summary="", claim=None
    ),
    "another refusal in between changes nothing": play(
        [EMPTY, BAD_PERCENT, EMPTY], saved=False, reason="review_deadlock", refusals=3
    ),
    "talk and thoughts are no work": play([EMPTY, "hm", THINK, EMPTY], saved=False, reason="review_deadlock"),
    "work in between is": play(
        [EMPTY, WRITE, EMPTY, WRITE, FINISH], saved=False, ran="write write", refusals=2
    ),
    "work that failed is work, too": play([EMPTY, FAIL, EMPTY, FINISH], saved=False, ran="fail", refusals=2),
    "so is an answer": play(
        [EMPTY, ASK, EMPTY, FINISH], then=Command(resume="blue"), waits="question", refusals=2
    ),
    "a call that did not run is none": play(
        [GHOST, GHOST], saved=False, reason="review_deadlock", refusals=2
    ),
    "a failing call beside each is": play(
        [[FAIL, FINISH], [FAIL, FINISH], FINISH], saved=False, ran="fail fail", refusals=2
    ),
    "different refusals are no standstill": play([EMPTY, BAD_PERCENT, FINISH], saved=False, refusals=2),
    "nor is one reason for other claims": play(
        [EMPTY, call("finish_task", summary=""), FINISH], saved=False, refusals=2
    ),
    "what a check says of each claim differs": play(
        [sized(4), sized(5), sized(6), sized(7)], **SIZED, saved=False, refusals=3, told="6 is too small"
    ),
    "a check says something else of the same claim": play(
        [FINISH] * 3,
        checks=[lambda messages: len(messages) > 5 or f"{len(messages)}"],
        saved=False,
        refusals=2,
    ),
    "a check says the same of the same claim": play(
        [sized(4), sized(5), sized(4)], **SIZED, saved=False, reason="review_deadlock", refusals=3
    ),
    "five other claims in a row are too many": play(
        [*map(sized, range(5))], **SIZED, saved=False, reason="review_deadlock", refusals=5
    ),
    "as many as are set, and a person decides": play(
        [sized(4), sized(5)], then=YES, **SIZED, limits={"refusals": 2}, waits="finish", verified="unverified"
    ),
    "work in between starts the row anew": play(
        [sized(1), sized(2), WRITE, sized(3), sized(7)],
        **SIZED,
        limits={"refusals": 3},
        ran="write",
        refusals=3,
    ),
    "without a limit they go on to the last turn": play(
        [*map(sized, range(-6, 0))], **SIZED, limits=UNLIMITED, saved=False, reason="turns", refusals=6
    ),
    "one that a person sent back is none of the row": play(
        [ASKS, EMPTY, FINISH], then=NO, limits={"refusals": 2}, waits="finish", refusals=2
    ),
    "arguments that cannot be read at all": play(
        [BAD_PERCENT, BAD_PERCENT], then=YES, waits="finish", refusals=1, summary="x", verified="unverified"
    ),
    "on the last turn a person is still asked": play(
        [EMPTY, EMPTY], then=YES, limits={"turns": 2}, refusals=1, turns=2
    ),
    "after a limit it may be refused anew": play(
        [EMPTY, EMPTY, FINISH], then=go_on(3), limits={"turns": 1}, waits="", refusals=2
    ),
}


# Phases: a finish that says that a part is done.


def phase(percentage: float = 100, following: str | None = None, **more: Any) -> Any:
    return claims(summary=more.pop("summary", "part"), completion_percentage=percentage, next_phase=following)


def kept(percentage: float, turn: int, following: str = "") -> dict[str, Any]:
    return {"percentage": percentage, "summary": "part", "next_phase": following, "turn": turn}


IMPORTED = [user(), ai(("finish_task", "f", {"summary": "part", "completion_percentage": 40})), done("f")]
PHASES = {
    "under 100 %": play(
        [phase(40), FINISH], turns=2, refusals=0, nudges=0, phases=[kept(40, 1)], told="<phase> 40 <rest>"
    ),
    "a next phase": play(
        [phase(100, "tests"), FINISH], phases=[kept(100, 1, "tests")], told="<next_phase> tests"
    ),
    "one after the other": play(
        [phase(30, "b"), WRITE, phase(60), FINISH], ran="write", phases=[kept(30, 1, "b"), kept(60, 3)]
    ),
    "the same again after work": play(
        [phase(50), WRITE, phase(50), FINISH], ran="write", refusals=0, phases=[kept(50, 1), kept(50, 3)]
    ),
    "more without work is believed": play([phase(50), phase(60), FINISH], refusals=0),
    "work before it in its reply": play([[WRITE, phase(50)], FINISH], ran="write", phases=[kept(50, 1)]),
    "work after it never runs": play([[phase(50), WRITE], FINISH], told="<after_control>", whole=True),
    "it asks nobody": play([claims(completion_percentage=50, pending_issues=["x"]), FINISH], waits=""),
    "an import": play([FINISH], sent=[IMPORTED], turns=2, phases=[kept(40, 1)], told="<phase> 40"),
    "an import of one after a claim: the older claim does not stand again": play(
        [FINISH], sent=[[user(), ai(("finish_task", "e")), done("e"), *IMPORTED[1:]]], turns=3
    ),
    "backwards is refused": play(
        [phase(60), WRITE, phase(40), FINISH], ran="write", refusals=1, told="<phase_back> 40 60"
    ),
    "the same without work is refused": play(
        [phase(60), THINK, phase(60), FINISH], refusals=1, phases=[kept(60, 1)], told="<phase_idle> 60"
    ),
    "an empty summary is refused": play([phase(40, summary=""), FINISH], refusals=1, phases=[]),
    "backwards again and again": play(
        [phase(60), phase(40), phase(40)],
        saved=False,
        reason="review_deadlock",
        claim="partial",
        summary="part",
    ),
    "an honest partial may be less than a phase": play(
        [phase(60), claims(outcome="partial", completion_percentage=40)],
        claim="partial",
        phases=[kept(60, 1)],
    ),
    "an honest blocked is none": play(
        [claims(outcome="blocked", next_phase="b")], claim="blocked", phases=[]
    ),
    "on the last turn": play(
        [phase(50, "b")], limits={"turns": 1}, reason="turns", claim="partial", phases=[kept(50, 1, "b")]
    ),
    "then going on": play([phase(50), FINISH], then=go_on(3), limits={"turns": 1}, phases=[kept(50, 1)]),
    "a limit after it": play(
        [phase(50), "a", "b"], limits={"talk_turns": 2}, reason="talk_turns", claim="partial"
    ),
    "an error after it": play([phase(50), RuntimeError("down")], reason="model_error", phases=[kept(50, 1)]),
    "the next task may begin at less": play(
        [phase(50), FINISH, phase(10), FINISH], sent=["a", "b"], refusals=0, phases=[kept(10, 1)]
    ),
}

PLAYS = {**ORDER, **BAD_INPUT, **STANDSTILL, **{f"a phase: {name}": case for name, case in PHASES.items()}}


@pytest.mark.parametrize("name", PLAYS)
def test_a_review(name: str) -> None:
    check(PLAYS[name])


def test_a_person_is_shown_why_it_was_refused_and_an_end_says_it() -> None:
    asked = check(play([EMPTY, EMPTY], then=YES)).waits[0]
    ended = outcome_of(check(play([EMPTY, EMPTY], saved=False, reason="review_deadlock")).result)
    assert "<empty_summary>" in asked["problem"]
    assert "<empty_summary>" in str(ended.error)
    assert ended.next


def test_a_kill_after_the_verdict_does_not_judge_again() -> None:
    ran: list[str] = []
    graph = build_graph(ScriptedModel([FINISH]), checks=[lambda: ran.append("check")], **saved())
    graph.invoke(GO, THREAD, interrupt_before=["finish"])
    # A process that is killed between two writes leaves a thread without a next step.
    graph.update_state(THREAD, {}, as_node="finish")
    outcome = outcome_of(graph.invoke(go_on(), THREAD))
    assert (outcome.verified, outcome.turns, ran) == ("verified", 1, ["check"])


class Killed(BaseException):
    """What a process that is killed looks like from inside."""


def test_a_kill_in_the_checks_runs_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    storage = saved()
    graph = build_graph(ScriptedModel([FINISH]), checks=[lambda: ran.append("check")], **storage)
    graph.invoke(GO, THREAD, interrupt_before=["review"])

    def lost(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        # The checks run, and nothing of what came of them is saved.
        patched.setattr(storage["checkpointer"], "put_writes", lost)
        with pytest.raises(Killed):
            graph.invoke(None, THREAD)
    assert outcome_of(graph.invoke(None, THREAD)).verified == "verified"
    assert ran == ["check", "check"]


def test_the_model_still_sees_a_phase_when_its_turn_is_folded() -> None:
    writes = [call("write", text=f"{number} " * 200) for number in range(12)]
    model = ScriptedModel([phase(30, "the tests"), *writes, FINISH])

    def write(text: str) -> str:
        """Write."""
        return text

    policy = {"prompt_tokens": 1600, "texts": TEXTS}
    build_graph(model, [write], policy=policy).invoke(GO)
    last = "\n".join(message.text for message in model.seen[-1].messages)
    assert "<phase>" not in last
    assert "the tests" in last
