"""The figures of a task: what counts as back to work, a needless refusal, going on, being cut short."""

import json
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from signoff.graph.finish.figures import figures, refusal_kind
from signoff.graph.finish.recorded import Figures
from signoff.graph.history.reader import read_messages
from signoff.graph.history.task import current_task
from signoff.graph.kinds import Effect, Kind
from signoff.graph.messages import not_run, nudge, result
from signoff.graph.outcome import conclude
from signoff.graph.state import Ending, RefusedFinish, Verdicts
from signoff.graph.texts import REFUSALS
from signoff.tools.control import standard_controls
from signoff.tools.toolbox import Toolbox, make_toolbox
from tests.support.histories import ai, broken, done, malformed, state, user


def write() -> str:
    """Write."""
    return ""


def read() -> str:
    """Read."""
    return ""


def toolbox() -> Toolbox:
    made = make_toolbox([write, read], standard_controls())
    return replace(made, kinds={**made.kinds, "read": Kind.READ})


BOX = toolbox()
FINISH, WRITE, READ = ("finish_task", "f"), ("write", "w"), ("read", "r")
NO = "siblings"
TALKED, RESUMED = nudge("talked", "go on"), nudge("resumed", "go on")


def finish(call_id: str, **args: Any) -> AIMessage:
    return ai(("finish_task", call_id, {"summary": "All of it.", **args}))


def refused(call_id: str, kind: str = NO, **fields: Any) -> BaseMessage:
    """The answer of `review` to a finish; `verdicts` finds the kind beside it."""
    reason = REFUSALS[kind].format(**{"names": "a tool", "error": "no", "open": "60 %", **fields})
    answer = result(call_id, "finish_task", f"Refused: {reason}", ok=False)
    return answer.model_copy(update={"artifact": kind})


def verdicts(messages: tuple[BaseMessage, ...]) -> Verdicts:
    """A verdict for every finish that has been answered with a refusal."""
    kinds = {m.tool_call_id: m.artifact for m in messages if isinstance(m, ToolMessage) and m.artifact}
    found: dict[str, str | RefusedFinish] = {}
    for place, message in enumerate(messages):
        for index, call in enumerate(message.tool_calls if isinstance(message, AIMessage) else ()):
            if call["name"] == "finish_task" and call["id"] in kinds:
                found[f"m{place}:{index}"] = RefusedFinish(kind=kinds[call["id"]], why="")
    return Verdicts(task="m0", calls=found)


def of(
    *messages: BaseMessage,
    status: str = "success",
    reason: str = "finish_task",
    earlier: Figures | None = None,
    **claim: Any,
) -> Figures:
    """The figures of a task with this history that ended so."""
    before = state(*messages, verdicts=verdicts(messages))
    reader = read_messages(before, BOX)
    task = current_task(reader, before)
    ending = Ending(task=task.id, status=status, reason=reason)
    if status == "success":
        ending["claim"] = {"summary": "All of it.", **claim}
    outcome = conclude(task, ending, "t", lambda _: True)
    return figures(
        task,
        outcome,
        reader.section.nudges,
        changes=BOX.is_effect,
        earlier=earlier,
        at=100.0,
    )


NEXT_REPLIES: dict[str, tuple[list[BaseMessage], int]] = {
    "a working tool": ([ai(WRITE), done("w")], 1),
    "one that fails": ([ai(WRITE), broken("w")], 1),
    "a finish": ([ai(FINISH)], 1),
    "a question": ([ai(("ask_user", "q"))], 1),
    "words again": ([ai("nearly")], 0),
    "a thought alone": ([ai(("think", "t", {"thought": "hm"}))], 0),
    "a thought beside work": ([ai(("think", "t", {"thought": "hm"}), WRITE)], 1),
    "nothing at all": ([ai()], 0),
    "a malformed call": ([malformed("write", "w")], 0),
    "no reply": ([], 0),
    "work only in the reply after the next": ([ai("nearly"), ai(WRITE)], 0),
}


@pytest.mark.parametrize("case", NEXT_REPLIES)
def test_a_reminder_led_back_to_work_when_the_next_reply_did(case: str) -> None:
    replies, back = NEXT_REPLIES[case]
    found = of(user(), ai("hi"), TALKED, *replies, status="limit", reason="turns")
    assert found["nudges"] == {"talked": {"given": 1, "back": back}}
    assert found["talk"] == 1 + sum(bool(m.text) for m in replies if isinstance(m, AIMessage))


BETWEEN: dict[str, tuple[tuple[BaseMessage, ...], dict[str, Any], int]] = {
    "nothing": ((), {}, 1),
    "words": ((ai("but"), TALKED), {}, 1),
    "a thought": ((ai(("think", "t", {"thought": "hm"})), done("t")), {}, 1),
    "a read": ((ai(READ), done("r")), {}, 0),
    "a write": ((ai(WRITE), done("w")), {}, 0),
    "a write that failed": ((ai(WRITE), broken("w")), {}, 0),
    "a write that was never run": ((ai(WRITE), not_run("w", "write", "Not run", "rejected")), {}, 1),
    "nothing, but it claims less": ((), {"outcome": "partial"}, 0),
}


@pytest.mark.parametrize("case", BETWEEN)
def test_a_refusal_was_needless_when_the_claim_was_accepted_without_work_between(case: str) -> None:
    between, claim, needless = BETWEEN[case]
    found = of(user(), ai(WRITE, FINISH), broken("w"), refused("f"), *between, finish("g", **claim), **claim)
    assert found["refused"] == {"siblings": {"times": 1, "needless": needless}}


def test_work_beside_the_accepted_finish_counts() -> None:
    found = of(user(), finish("f"), refused("f"), ai(WRITE, ("finish_task", "g")), done("w"))
    assert found["refused"]["siblings"]["needless"] == 0


def test_a_refusal_that_nothing_follows_is_not_needless() -> None:
    found = of(user(), finish("f"), refused("f"), status="limit", reason="turns")
    assert found["refused"] == {"siblings": {"times": 1, "needless": 0}}


def test_what_a_person_sent_back_is_never_needless() -> None:
    told = result("f", "finish_task", "Not yet.", ok=False, sent_back=True)
    found = of(user(), finish("f"), told, finish("g"))
    assert found["refused"] == {"sent_back": {"times": 1, "needless": 0}}


def test_an_imported_refusal_has_no_reason() -> None:
    found = of(user(), finish("f"), broken("f"), finish("g"))
    assert found["refused"] == {"other": {"times": 1, "needless": 1}}


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_refusal_is_named_by_its_kind_whatever_its_words_are(kind: str) -> None:
    assert refusal_kind({"kind": kind, "why": "sent back: accepted"}) == kind


STOPPED = (user(), ai(WRITE), done("w"))
AFTER: dict[str, tuple[tuple[BaseMessage, ...], dict[str, Any], int]] = {
    "a finish at once": ((ai(FINISH),), {}, 1),
    "a look, then a finish": ((ai(READ), done("r"), ai(FINISH)), {}, 1),
    "words, then a finish": ((ai("done!"), TALKED, ai(FINISH)), {}, 1),
    "a change, then a finish": ((ai(WRITE), done("w"), ai(FINISH)), {}, 0),
    "a change that failed": ((ai(WRITE), broken("w"), ai(FINISH)), {}, 0),
    "a change that was not run": ((ai(WRITE), not_run("w", "write", "No", "rejected"), ai(FINISH)), {}, 1),
    "a finish that claims less": ((finish("f", outcome="partial"),), {"outcome": "partial"}, 0),
}


@pytest.mark.parametrize("case", AFTER)
def test_a_limit_cut_a_task_short_when_nothing_changed_until_the_accepted_finish(case: str) -> None:
    after, claim, cut_short = AFTER[case]
    limit = of(*STOPPED, status="limit", reason="turns")
    found = of(*STOPPED, RESUMED, *after, earlier=limit, **claim)
    assert found["ends"] == [{"status": "limit", "reason": "turns", "turns": 1}]
    assert (limit["cut_short"], found["cut_short"]) == (0, cut_short)


WENT_ON: dict[str, tuple[tuple[BaseMessage, ...], int]] = {
    "it ends at once": ((), 0),
    "a look": ((ai(READ), done("r")), 0),
    "the same look again": ((ai(READ), done("r"), ai(("read", "s")), done("s")), 1),
    "another look": ((ai(READ), done("r"), ai(("read", "s", {"path": "b"})), done("s")), 0),
    "words": ((ai("it is done"), TALKED, ai("really"), TALKED), 2),
    "words before the last change": ((ai("and now"), TALKED, ai(("write", "v")), done("v")), 0),
    "a thought": ((ai(("think", "t", {"thought": "hm"})), done("t")), 0),
    "a question": ((ai(("ask_user", "q", {"question": "Well?"})), done("q")), 0),
    "a finish that was refused": ((finish("e"), refused("e", "empty_summary")), 1),
}


@pytest.mark.parametrize("case", WENT_ON)
def test_replies_after_the_last_change_that_brought_nothing(case: str) -> None:
    between, went_on = WENT_ON[case]
    assert of(*STOPPED, *between, ai(FINISH)).get("went_on") == went_on
    assert of(*STOPPED, *between, status="limit", reason="turns").get("went_on") == 0


def test_a_person_who_confirmed_is_known_of() -> None:
    yes = result("f", "finish_task", "Confirmed.", confirmed=True)
    assert of(user(), ai(FINISH), yes).get("confirmed") is True
    assert of(user(), ai(FINISH), done("f")).get("confirmed") is False


def test_an_error_before_a_retry_is_no_limit() -> None:
    failed = of(*STOPPED, status="error", reason="model_error")
    found = of(*STOPPED, RESUMED, ai(FINISH), earlier=failed)
    assert (found["ends"][0]["status"], found["cut_short"]) == ("error", 0)


def test_the_same_end_recorded_twice_is_one() -> None:
    limit = of(*STOPPED, status="limit", reason="turns")
    assert of(*STOPPED, status="limit", reason="turns", earlier=limit)["ends"] == []
    first = of(*STOPPED, RESUMED, ai(FINISH), earlier=limit)
    again = of(*STOPPED, RESUMED, ai(FINISH), earlier=first)
    assert again == first


def test_each_limit_is_judged_by_what_came_after_it() -> None:
    first = of(*STOPPED, status="limit", reason="turns")
    more = (*STOPPED, RESUMED, ai(WRITE), done("w"))
    second = of(*more, status="limit", reason="turns", earlier=first)
    found = of(*more, RESUMED, ai(FINISH), earlier=second)
    assert [end["turns"] for end in found["ends"]] == [1, 2]
    assert found["cut_short"] == 1


def test_the_rules_that_left_a_trace() -> None:
    history = [user(), ai("hi"), TALKED, ai(("ask_user", "q")), done("q", "blue"), ai(FINISH)]
    assert of(*history)["rules"] == {"talked": 1, "think": 3, "claimed": 1, "asked": 1}
    ended = of(user(), ai(WRITE), done("w"), status="limit", reason="turns")
    assert ended["rules"] == {"think": 1, "turns": 1}
    assert of(user(), status="error", reason="model_error")["rules"] == {}


def test_the_model_and_the_times_come_from_the_replies() -> None:
    first, last = ai(WRITE), ai(FINISH)
    first.response_metadata = {"signoff": {"at": 50.0, "seconds": 2.0}}
    last.response_metadata = {"model_name": "small", "signoff": {"at": 90.0, "seconds": 1.0}}
    found = of(user(), first, done("w"), last)
    assert (found["model"], found["began"], found["at"]) == ("small", 48.0, 100.0)
    nothing = of(user(), status="error", reason="model_error")
    assert (nothing["model"], nothing["began"]) == ("", None)


def test_the_record_stays_small() -> None:
    """Whatever a model writes: reasons, kinds and names are bounded, texts are not in it."""
    huge = "x" * 100_000
    messages: list[BaseMessage] = [HumanMessage(huge)]
    earlier: Figures | None = None
    for number in range(40):
        reply = ai(huge, (huge, f"c{number}"), ("finish_task", f"f{number}", {"summary": huge}))
        reply.response_metadata = {"model_name": huge}
        no, told = refused(f"f{number}", "arguments", error=huge), nudge(f"kind{number}" + huge, "")
        messages += [reply, no, told]
        messages.append(RESUMED)
        earlier = of(*messages, status="limit", reason=huge, earlier=earlier)
    assert earlier is not None
    assert len(json.dumps(earlier)) < 2048


def test_effects_are_looked_up_by_meaning() -> None:
    assert BOX.controls.effect("finish_task") is Effect.FINISH
    assert (BOX.is_effect("write"), BOX.is_effect("read")) == (True, False)
