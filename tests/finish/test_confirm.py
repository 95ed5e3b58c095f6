"""A finish that a person must confirm: which one, how the answer is read, and what may come between."""

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.types import Command

from signoff import ControlTool, Graph, build_graph, outcome_of, standard_controls, stop
from signoff.models import ScriptedModel, call
from tests.support.plays import FINISH, GO, TEXTS, THREAD, WRITE, ai, check, done, play, results, saved, user

CLAIM: dict[str, Any] = {"summary": "All of it.", "requires_user_confirmation": True}
CONFIRM = call("finish_task", **CLAIM)
YES: Any = Command(resume="yes")
NO: Any = Command(resume="The title is wrong.")
MESSAGE = "The title is wrong."
SENT_BACK = "<sent_back> The title is wrong."
LAST_TURN = {"turns": 1}
BOTH: Any = Command(resume="yes", update={"messages": MESSAGE})
IMPORT = [user(), ai(("finish_task", "f", CLAIM)), done("f")]
EARLIER = ai(("finish_task", "e"))
APPROVED = {"type": "approve", "message": "Well done."}


def claims(**args: Any) -> Any:
    return call("finish_task", **{"summary": "x", **args})


@tool
def hand_in(report: str, requires_user_confirmation: bool = True) -> str:
    """Hand the work in."""
    return report


LOGO, HANDS_IN = claims(pending_issues=["the logo"]), call("hand_in", report="42")
HAND_IN = {"control_tools": [*standard_controls(), ControlTool(hand_in, "finish")]}
WHO_IS_ASKED = {
    "the model asks": play([CONFIRM], reason=None, waits="finish"),
    "open issues alone ask nobody": play([LOGO], waits="", pending_issues=["the logo"]),
    "the approvals name it": play([FINISH], approvals={"finish_task": True}, reason=None, waits="finish"),
    "a function says no": play([FINISH], approvals={"finish_task": lambda args: False}, waits=""),
    "a kind does not mean it": play([FINISH], approvals={"write": True}, waits=""),
    "nor does a function of all tools": play([FINISH], approvals=lambda name, args: True, waits=""),
    "a tool of one's own asks": play([HANDS_IN], then=YES, options=HAND_IN, waits="finish", reason="hand_in"),
    "there is nobody": play([CONFIRM], saved=False, reason="needs_person", claim="done"),
    **{
        f"{issues!r} is no issue": play([claims(pending_issues=issues)], pending_issues=[])
        for issues in (None, [" "], "none", ["N/A", "no issues"])
    },
}

ANSWERED = {
    "a yes": play([CONFIRM], then=YES, verified="asserted", turns=1, refusals=0, told="<confirmed>"),
    "a yes with words": play([CONFIRM], then=Command(resume=APPROVED), told="<confirmed> Well done."),
    "a no": play([CONFIRM, FINISH], then=Command(resume=False), refusals=1, told="<no_feedback>"),
    "what is wrong": play([CONFIRM, FINISH], then=NO, turns=2, refusals=1, told=SENT_BACK),
    "a message is what is wrong": play([CONFIRM, FINISH], then=MESSAGE, turns=2, refusals=1, told=SENT_BACK),
    "an answer beside a message": play([CONFIRM, FINISH], then=BOTH, turns=2, refusals=1),
    "on the last turn one more": play([CONFIRM, FINISH], then=NO, limits=LAST_TURN, turns=2, refusals=1),
    "and only one": play([CONFIRM, WRITE], then=NO, limits=LAST_TURN, ran="write", reason="turns", turns=2),
    "a stop while it waits": play([CONFIRM], then=stop(), reason="cancelled", refusals=0),
    "an import, confirmed": play([], sent=[IMPORT, YES], turns=1),
    "an import, sent back": play([FINISH], sent=[IMPORT, NO], turns=2, refusals=1, nudges=1, told=SENT_BACK),
    "an import, sent back: an earlier claim does not stand again": play(
        [FINISH], sent=[[user(), EARLIER, done("e"), *IMPORT[1:]], MESSAGE], turns=3, refusals=1
    ),
}

PLAYS = {**WHO_IS_ASKED, **{f"answered: {name}": case for name, case in ANSWERED.items()}}


@pytest.mark.parametrize("name", PLAYS)
def test_a_finish_that_a_person_must_confirm(name: str) -> None:
    check(PLAYS[name])


READ_AS: dict[str, tuple[Any, str | None]] = {
    # What is wrong with it; None for a yes.
    **{repr(word): (word, None) for word in ("OK", " Confirm ", "Yes!", "accepted")},
    **{repr(word): (word, "<no_feedback>") for word in ("no", "Rejected.")},
    "a yes, but": ("  yes, but the title is wrong ", "yes, but the title is wrong"),
    "a rejection with words": ({"type": "reject", "message": "wrong"}, "wrong"),
    "an inbox responds": ({"type": "response", "args": "wrong"}, "wrong"),
    "an inbox accepts": ([{"type": "accept", "args": None}], None),
    "a form with what is wrong": ({"confirmed": "no", "feedback": "wrong"}, "wrong"),
    "a decision with words": ({"decisions": [{"type": "reject", "message": "wrong"}]}, "wrong"),
}


@pytest.mark.parametrize(("answer", "wrong"), READ_AS.values(), ids=READ_AS)
def test_an_answer_is_read(answer: Any, wrong: str | None) -> None:
    case = play([CONFIRM] if wrong is None else [CONFIRM, FINISH], then=Command(resume=answer))
    first = results(check(case).result, "finish_task")[0]
    assert first.strip() == ("<confirmed>" if wrong is None else f"<sent_back> {wrong}")


def waiting(*script: Any, storage: Any = None) -> tuple[Graph, AIMessage]:
    """A graph whose finish waits, and the reply that made it."""
    graph = build_graph(ScriptedModel([CONFIRM, *script]), policy={"texts": TEXTS}, **(storage or saved()))
    return graph, graph.invoke(GO, THREAD)["messages"][-1]


def test_what_is_shown_is_a_call_with_two_decisions() -> None:
    (wait,) = waiting()[0].get_state(THREAD).interrupts
    (request,) = wait.value.pop("action_requests")
    assert (request["name"], request["args"]) == ("finish_task", CLAIM)
    assert wait.value == {
        "type": "approval",
        "finish": True,
        "call_ids": ["call_1"],
        "review_configs": [{"action_name": "finish_task", "allowed_decisions": ["approve", "reject"]}],
    }


def with_args(reply: AIMessage, **args: Any) -> AIMessage:
    return reply.model_copy(update={"tool_calls": [{**reply.tool_calls[0], "args": args}]})


CHANGES: dict[str, tuple[Callable[[AIMessage], Any], str, int]] = {
    # The message that is written, what the call is told, and the turns at the end.
    "a message": (lambda reply: user(MESSAGE), SENT_BACK, 2),
    "the claim became invalid": (lambda reply: with_args(reply, summary=" "), "<refused> <empty_summary>", 2),
    "a newer finish that needs nobody": (lambda reply: ai(("finish_task", "g")), "<left_behind>", 2),
    "the call got a result": (lambda reply: done(str(reply.tool_calls[0]["id"])), "ok", 1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_history_that_was_changed_while_it_waited(name: str) -> None:
    change, told, turns = CHANGES[name]
    graph, reply = waiting(FINISH)
    graph.update_state(THREAD, {"messages": [change(reply)]})
    result = graph.invoke(None, THREAD)
    if result.get("__interrupt__"):
        result = graph.invoke(YES, THREAD)
    assert results(result)[0].strip() == told
    assert (outcome_of(result).status, outcome_of(result).turns) == ("success", turns)


def test_a_claim_that_was_changed_is_checked_and_asked_anew() -> None:
    seen: list[str] = []
    checks = [lambda claim: seen.append(claim["summary"])]
    graph = build_graph(ScriptedModel([CONFIRM]), checks=checks, **saved())
    reply = graph.invoke(GO, THREAD)["messages"][-1]
    graph.update_state(THREAD, {"messages": [with_args(reply, **CLAIM | {"summary": "b"})]})
    (wait,) = graph.invoke(None, THREAD)["__interrupt__"]
    assert (wait.value["action_requests"][0]["args"]["summary"], seen) == ("b", ["All of it.", "b"])
    assert outcome_of(graph.invoke(YES, THREAD)).summary == "b"
