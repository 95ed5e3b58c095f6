"""A finish that a person must confirm: which one, how the answer is read, and what may come between."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.types import Command

from signoff import (
    Approval,
    BadAnswer,
    ControlTool,
    Graph,
    Session,
    build_graph,
    go_on,
    outcome_of,
    standard_controls,
    stop,
)
from signoff.models import ScriptedModel, call
from signoff.records import read_ended
from tests.support.plays import (
    FAIL,
    FINISH,
    GO,
    TEXTS,
    THREAD,
    WRITE,
    ai,
    check,
    done,
    play,
    results,
    saved,
    user,
)

CONFIRM = call("finish_task", summary="All of it.", requires_user_confirmation=True)
YES: Any = Command(resume="yes")
NO: Any = Command(resume="The title is wrong.")
MESSAGE = "The title is wrong."
SENT_BACK = "<sent_back> The title is wrong."
LAST_TURN = {"turns": 1}
NEEDS = ("finish_task", "f", {"summary": "All of it.", "requires_user_confirmation": True})
IMPORT = [user(), ai(NEEDS), done("f")]
EARLIER, SAME_ID = ai(("finish_task", "e")), ai(("finish_task", "f"))
APPROVED = {"type": "approve", "message": "Well done."}


def claims(**args: Any) -> Any:
    return call("finish_task", **{"summary": "x", **args})


@tool
def hand_in(report: str, requires_user_confirmation: bool = True) -> str:
    """Hand the work in."""
    return report


HAND_IN = {"control_tools": [*standard_controls(), ControlTool(hand_in, "finish")]}
WHO_IS_ASKED = {
    "the model asks": play([CONFIRM], reason=None, waits="finish"),
    "about less than done, too": play(
        [claims(outcome="partial", requires_user_confirmation=True)], reason=None, waits="finish"
    ),
    "open issues alone ask nobody": play(
        [claims(pending_issues=["the logo"])], waits="", pending_issues=["the logo"]
    ),
    "nor do those of an honest end": play(
        [claims(outcome="partial", pending_issues=["x"])], waits="", claim="partial"
    ),
    "the approvals name the tool": play(
        [FINISH], approvals={"finish_task": True}, reason=None, waits="finish"
    ),
    "by a list": play(
        [FINISH], approvals={"finish_task": ["approve", "reject"]}, reason=None, waits="finish"
    ),
    "by a function": play(
        [FINISH], approvals={"finish_task": lambda args: bool(args["summary"])}, reason=None
    ),
    "a function says no": play([FINISH], approvals={"finish_task": lambda args: False}, waits=""),
    "a no": play([FINISH], approvals={"finish_task": False}, waits=""),
    "a kind does not mean it": play([FINISH], approvals={"write": True}, waits=""),
    "nor does a function of all tools": play([FINISH], approvals=lambda name, args: True, waits=""),
    "a finishing tool of one's own asks": play(
        [call("hand_in", report="42")], then=YES, options=HAND_IN, waits="finish", reason="hand_in"
    ),
    "there is nobody": play(
        [CONFIRM], saved=False, reason="needs_person", claim="done", summary="All of it."
    ),
    "a failed call beside it comes first": play(
        [[FAIL, CONFIRM], FINISH], ran="fail", waits="", turns=2, refusals=1
    ),
    "bad arguments come first": play(
        [claims(summary=" ", requires_user_confirmation=True), FINISH], waits="", turns=2, refusals=1
    ),
    **{
        f"{issues!r} is no issue": play([claims(pending_issues=issues)], pending_issues=[])
        for issues in (None, "", [], [" "], "none", ["None."], ["N/A"], ["no issues"], ["none", ""])
    },
}

ANSWERED = {
    "a yes": play([CONFIRM], then=YES, verified="asserted", turns=1, refusals=0, told="<confirmed>"),
    "a yes with words": play([CONFIRM], then=Command(resume=APPROVED), told="<confirmed> Well done."),
    "a no without words": play(
        [CONFIRM, FINISH], then=Command(resume=False), turns=2, refusals=1, told="<no_feedback>"
    ),
    "braces": play([CONFIRM, FINISH], then=Command(resume="The {title}."), told="<sent_back> The {title}."),
    "what is wrong": play([CONFIRM, FINISH], then=NO, turns=2, refusals=1, told=SENT_BACK),
    "a message is what is wrong": play([CONFIRM, FINISH], then=MESSAGE, turns=2, refusals=1, told=SENT_BACK),
    "an answer beside a message": play(
        [CONFIRM, FINISH], then=Command(resume="yes", update={"messages": MESSAGE}), turns=2, refusals=1
    ),
    "a no, then a yes": play([CONFIRM, CONFIRM], then=[NO, YES], turns=2, refusals=1),
    "on the last turn one more": play([CONFIRM, FINISH], then=NO, limits=LAST_TURN, turns=2, refusals=1),
    "each time one more": play(
        [CONFIRM, CONFIRM, FINISH], then=[NO, MESSAGE], limits=LAST_TURN, turns=3, refusals=2
    ),
    "and only one more": play(
        [CONFIRM, WRITE], then=NO, limits=LAST_TURN, ran="write", reason="turns", turns=2, refusals=1
    ),
    "work before it has run": play([[WRITE, CONFIRM]], then=YES, ran="write"),
    "work after it never runs": play([[CONFIRM, WRITE]], then=YES, told="<after_control>", whole=True),
    "nothing new while it waits": play([CONFIRM], then=[[]], reason=None),
    "a stop while it waits": play([CONFIRM], then=stop(), reason="cancelled", refusals=0),
    "the next task": play(
        [CONFIRM, FINISH, CONFIRM, FINISH], then=[MESSAGE, "b", MESSAGE], turns=2, refusals=1
    ),
    "an import waits": play([], sent=[IMPORT], reason=None, waits="finish"),
    "an import, confirmed": play([], sent=[IMPORT, YES], turns=1),
    "an import, sent back": play([FINISH], sent=[IMPORT, NO], turns=2, refusals=1, nudges=1, told=SENT_BACK),
    "an import, sent back on the last turn": play(
        [FINISH], sent=[IMPORT, MESSAGE], limits=LAST_TURN, turns=2, refusals=1
    ),
    "an import, sent back: an earlier claim does not stand again": play(
        [FINISH], sent=[[user(), EARLIER, done("e"), *IMPORT[1:]], MESSAGE], turns=3, refusals=1
    ),
    "an import with one id twice: it is about the last": play(
        [FINISH], sent=[[user(), SAME_ID, done("f"), *IMPORT[1:]], MESSAGE], turns=3, refusals=1
    ),
    "an import of two tasks asks nobody about the first": play(
        [FINISH], sent=[[*IMPORT, user("b")]], waits="", turns=1, refusals=0
    ),
}

PLAYS = {**WHO_IS_ASKED, **{f"answered: {name}": case for name, case in ANSWERED.items()}}


@pytest.mark.parametrize("name", PLAYS)
def test_a_finish_that_a_person_must_confirm(name: str) -> None:
    check(PLAYS[name])


YES_WORDS = ("y", "OK", " Confirm ", "confirmed", "Yes!", "approve", "approved", "accept", "accepted", "true")
NO_WORDS = ("no", "N", "reject", "Rejected.", "false")
READ_AS: dict[str, tuple[Any, str | None]] = {
    # What is wrong with it; None for a yes.
    **{repr(word): (word, None) for word in YES_WORDS},
    **{repr(word): (word, "<no_feedback>") for word in NO_WORDS},
    "true": (True, None),
    "a yes, but": ("  yes, but the title is wrong ", "yes, but the title is wrong"),
    "a rejection": ({"type": "reject"}, "<no_feedback>"),
    "a rejection with words": ({"type": "reject", "message": "wrong"}, "wrong"),
    "an inbox ignores": ({"type": "ignore", "args": None}, "<no_feedback>"),
    "an inbox responds": ({"type": "response", "args": "wrong"}, "wrong"),
    "an inbox responds yes": ({"type": "response", "args": "yes"}, None),
    "an inbox accepts": ([{"type": "accept", "args": None}], None),
    "a form": ({"confirmed": True}, None),
    "a form with what is wrong": ({"confirmed": "no", "feedback": "wrong"}, "wrong"),
    "a form whose words are a yes": ({"confirmed": False, "feedback": "yes"}, "yes"),
    "a form of words": ({"confirmed": "wrong"}, "wrong"),
    "a form of feedback alone": ({"feedback": "wrong"}, "wrong"),
    "a decision": ({"decisions": [{"type": "approve"}]}, None),
    "a decision with words": ({"decisions": [{"type": "reject", "message": "wrong"}]}, "wrong"),
    "a list": (["yes"], None),
}


@pytest.mark.parametrize("name", READ_AS)
def test_an_answer_is_read(name: str) -> None:
    answer, wrong = READ_AS[name]
    case = play([CONFIRM] if wrong is None else [CONFIRM, FINISH], then=Command(resume=answer))
    first = results(check(case).result, "finish_task")[0]
    assert first.strip() == ("<confirmed>" if wrong is None else f"<sent_back> {wrong}")


UNREADABLE: dict[str, Any] = {
    "a number": 1,
    "an empty form": {},
    "a list in a list": [["yes"]],
    "an edit in words": {"decisions": [{"type": "edit", "args": {"summary": "x"}}]},
    "of another finish": "yes@0a1b2c",
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_no_answer_is_refused(name: str) -> None:
    session = Session(build_graph(ScriptedModel([CONFIRM]), **saved()), "t")
    asked = session.run("do it")
    assert isinstance(asked, Approval)
    with pytest.raises(BadAnswer):
        asked.read(UNREADABLE[name])
    with pytest.raises(BadAnswer):
        session.resume(UNREADABLE[name])
    assert session.run() == asked


def waiting(*script: Any, storage: Any = None) -> tuple[Graph, AIMessage]:
    """A graph whose finish waits, and the reply that made it."""
    graph = build_graph(ScriptedModel([CONFIRM, *script]), policy={"texts": TEXTS}, **(storage or saved()))
    return graph, graph.invoke(GO, THREAD)["messages"][-1]


def test_what_is_shown_is_a_call_with_two_decisions() -> None:
    (wait,) = waiting()[0].get_state(THREAD).interrupts
    (request,) = wait.value.pop("action_requests")
    args = {"summary": "All of it.", "requires_user_confirmation": True}
    assert (request["name"], request["args"]) == ("finish_task", args)
    assert wait.value == {
        "type": "approval",
        "finish": True,
        "call_ids": ["call_1"],
        "review_configs": [{"action_name": "finish_task", "allowed_decisions": ["approve", "reject"]}],
    }


@pytest.mark.parametrize("answer", ["yes", "no"])
def test_another_graph_picks_up_a_thread_that_waits(answer: str) -> None:
    storage = saved()
    first, _ = waiting(storage=storage)
    again = build_graph(ScriptedModel([FINISH]), **storage)
    assert again.get_state(THREAD).interrupts == first.get_state(THREAD).interrupts
    outcome = outcome_of(again.invoke(Command(resume=answer), THREAD))
    sent_back = answer == "no"
    assert (outcome.status, outcome.refusals, outcome.turns) == ("success", sent_back, 1 + sent_back)


def test_the_time_of_waiting_is_noted() -> None:
    graph, _ = waiting()
    time.sleep(0.3)
    assert outcome_of(graph.invoke(YES, THREAD)).seconds_waiting >= 0.3


def test_a_message_before_a_person_was_asked_begins_a_task() -> None:
    """The process was killed between the reply and its review."""
    storage = saved()
    graph = build_graph(ScriptedModel([CONFIRM, FINISH]), policy={"texts": TEXTS}, **storage)
    graph.invoke(GO, THREAD, interrupt_before=["review"])
    result = graph.invoke({"messages": [("user", MESSAGE)]}, THREAD)
    assert results(result)[0] == "<superseded>"
    ended = [(task.reason, task.refusals) for task in read_ended(storage["store"])]
    assert ended == [("superseded", 0), ("finish_task", 0)]


def test_a_session_may_begin_a_task_by_a_message_while_a_finish_waits() -> None:
    storage = saved()
    graph, _ = waiting(FINISH, storage=storage)
    Session(graph, "t", on_pending="supersede").run("and now that")
    outcome = outcome_of(graph.get_state(THREAD))
    assert (outcome.status, outcome.turns, outcome.refusals) == ("success", 1, 0)
    assert [task.reason for task in read_ended(storage["store"])] == ["superseded", "finish_task"]


def with_args(reply: AIMessage, **args: Any) -> AIMessage:
    return reply.model_copy(update={"tool_calls": [{**reply.tool_calls[0], "args": args}]})


CHANGES: dict[str, tuple[Callable[[AIMessage], Any], str, int]] = {
    # The message that is written, what the call is told, and the turns at the end.
    "a message": (lambda reply: user(MESSAGE), SENT_BACK, 2),
    "the claim became invalid": (lambda reply: with_args(reply, summary=" "), "<refused> <empty_summary>", 2),
    "the claim became another": (
        lambda reply: with_args(reply, summary="x", requires_user_confirmation=True),
        "<confirmed>",
        1,
    ),
    "a newer finish that needs nobody": (lambda reply: ai(("finish_task", "g")), "<left_behind>", 2),
    "the call got a result": (
        lambda reply: ToolMessage("ok", tool_call_id=reply.tool_calls[0]["id"], name="finish_task"),
        "ok",
        1,
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_history_that_was_changed_while_it_waited(name: str) -> None:
    change, told, turns = CHANGES[name]
    graph, reply = waiting(FINISH)
    graph.update_state(THREAD, {"messages": [change(reply)]})
    result = graph.invoke(None, THREAD)
    if result.get("__interrupt__"):
        result = graph.invoke(YES, THREAD)
    assert results(result, "finish_task")[0].strip() == told
    assert (outcome_of(result).status, outcome_of(result).turns) == ("success", turns)


def test_a_claim_that_was_changed_is_checked_and_asked_anew() -> None:
    seen: list[str] = []
    checks = [lambda claim: seen.append(claim["summary"])]
    graph = build_graph(ScriptedModel([CONFIRM]), checks=checks, **saved())
    reply = graph.invoke(GO, THREAD)["messages"][-1]
    changed = with_args(reply, summary="b", requires_user_confirmation=True)
    graph.update_state(THREAD, {"messages": [changed]})
    (wait,) = graph.invoke(None, THREAD)["__interrupt__"]
    assert (wait.value["action_requests"][0]["args"]["summary"], seen) == ("b", ["All of it.", "b"])
    assert outcome_of(graph.invoke(YES, THREAD)).summary == "b"


def test_a_thread_that_lost_its_next_step_asks_again() -> None:
    graph = build_graph(ScriptedModel([CONFIRM]), **saved())
    graph.invoke(GO, THREAD, interrupt_before=["confirm"])
    # A process that is killed between two writes leaves a thread without a next step.
    graph.update_state(THREAD, {}, as_node="finish")
    assert graph.invoke(go_on(), THREAD)["__interrupt__"][0].value["finish"]
