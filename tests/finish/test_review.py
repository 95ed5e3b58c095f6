"""The order in which a finish is judged, phases, and how a review that does not move ends."""

from typing import Any

import pytest
from langgraph.types import Command
from pydantic import BaseModel

from signoff import build_graph, go_on, outcome_of
from signoff.models import ScriptedModel, call
from tests.support.plays import FAIL, FINISH, GO, THINK, THREAD, WRITE, ai, check, done, play, saved, user

YES: Any = Command(resume="yes")
EMPTY = call("finish_task", summary=" ")
BAD_PERCENT = call("finish_task", summary="x", completion_percentage=250)


def claims(**args: Any) -> Any:
    return call("finish_task", **{"summary": "x", **args})


def phase(percentage: Any, following: str | None = None) -> Any:
    return claims(summary="part", completion_percentage=percentage, next_phase=following)


def kept(percentage: float, turn: int, following: str = "") -> dict[str, Any]:
    return {"percentage": percentage, "summary": "part", "next_phase": following, "turn": turn}


PARTIAL, ASKS = claims(outcome="partial", completion_percentage=40), claims(requires_user_confirmation=True)
NOBODY: dict[str, Any] = {"saved": False, "reason": "review_deadlock"}
LAST_TURN: dict[str, Any] = {"limits": {"turns": 1}}
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
    "arguments before the calls beside it": play([[FAIL, EMPTY], FINISH], ran="fail", told="<empty_summary>"),
    "a failed call voids it": play([[FAIL, FINISH], FINISH], ran="fail", refusals=1, told="<siblings> fail"),
    "that comes before a phase": play([[FAIL, phase(50)], FINISH], ran="fail", refusals=1, phases=[]),
    "a phase comes before the checks": play([phase(50), PARTIAL], checks=[never], claim="partial"),
    "checks before a person": play([ASKS, FINISH], checks=[not_for_a_person], waits="", verified="verified"),
    "a person comes last": play([ASKS], then=YES, checks=["true"], waits="finish", verified="verified"),
}

BAD_INPUT = {
    "a missing summary": play([call("finish_task"), FINISH], refusals=1, told="<arguments> summary"),
    "a percentage of 250": play([BAD_PERCENT, FINISH], refusals=1, told="<arguments> completion_percentage"),
    "a percentage in words": play([phase("most"), FINISH], refusals=1, told="completion_percentage"),
    "issues that are a number": play([claims(pending_issues=5), FINISH], refusals=1, told="pending_issues"),
    "an outcome that does not exist": play([claims(outcome="great"), FINISH], refusals=1, told="outcome"),
    **{
        f"{words!r} is no next phase": play([claims(next_phase=words)], turns=1)
        for words in (None, "n/a", "Completed.", "next_phase")
    },
}

STANDSTILL = {
    "a person accepts": play([EMPTY, EMPTY], then=YES, waits="finish", refusals=1, verified="unverified"),
    "a message sends it back": play([EMPTY, EMPTY, FINISH], then="Write a summary.", refusals=2),
    "nobody can be asked": play([EMPTY, EMPTY], **NOBODY, turns=2, refusals=2, summary="", claim=None),
    "talk and thoughts are no work": play([EMPTY, "hm", THINK, EMPTY], **NOBODY),
    "work in between is": play([EMPTY, WRITE, EMPTY, FINISH], saved=False, ran="write", refusals=2),
    "different refusals are no standstill": play([EMPTY, BAD_PERCENT, FINISH], saved=False, refusals=2),
    "other claims": play([*map(sized, (4, 5, 6, 7))], **SIZED, saved=False, refusals=3, told="6 is too"),
    "a check says the same": play([sized(4), sized(5), sized(4)], **SIZED, **NOBODY, refusals=3),
    "five other claims in a row": play([*map(sized, range(5))], **SIZED, **NOBODY, refusals=5),
    "as many as are set": play([sized(4), sized(5)], **SIZED, **NOBODY, limits={"refusals": 2}, refusals=2),
    "no limit": play([*map(sized, range(-6, 0))], **SIZED, limits=UNLIMITED, reason="turns", refusals=6),
    "anew after a limit": play([EMPTY, EMPTY, FINISH], then=go_on(3), **LAST_TURN, waits=""),
}


# Phases: a finish that says that a part is done.


IMPORTED = [user(), ai(("finish_task", "f", {"summary": "part", "completion_percentage": 40})), done("f")]
PHASES = {
    "under 100 %": play([phase(40), FINISH], refusals=0, phases=[kept(40, 1)], told="<phase> 40 <rest>"),
    "a next phase": play([phase(100, "b"), FINISH], phases=[kept(100, 1, "b")], told="<next_phase> b"),
    "after work": play([phase(50), WRITE, phase(50), FINISH], ran="write", phases=[kept(50, 1), kept(50, 3)]),
    "work after it never runs": play([[phase(50), WRITE], FINISH], told="<after_control>", whole=True),
    "an import": play([FINISH], sent=[IMPORTED], turns=2, phases=[kept(40, 1)], told="<phase> 40"),
    "back": play([phase(60), WRITE, phase(40), FINISH], ran="write", refusals=1, told="<phase_back> 40 60"),
    "no work": play([phase(60), THINK, phase(60), FINISH], phases=[kept(60, 1)], told="<phase_idle> 60"),
    "backwards again": play([phase(60), phase(40), phase(40)], **NOBODY, claim="partial", summary="part"),
    "an honest partial may be less": play([phase(60), PARTIAL], claim="partial", phases=[kept(60, 1)]),
    "the last turn": play([phase(50)], **LAST_TURN, reason="turns", claim="partial", phases=[kept(50, 1)]),
    "the next task": play([phase(50), FINISH, phase(10), FINISH], sent=["a", "b"], phases=[kept(10, 1)]),
}


PLAYS = {
    **ORDER,
    **BAD_INPUT,
    **STANDSTILL,
    **{f"a phase: {name}": case for name, case in PHASES.items()},
}


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
