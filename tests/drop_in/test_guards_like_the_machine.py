"""The machine and `create_agent` with guards decide alike: the same messages, outcomes and questions,
whatever the model says and whatever history a thread begins with."""

import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from signoff.models import call, reply
from tests.support.guarded import Case, KeepsTheLastReply, by_the_guards, by_the_machine
from tests.support.ways import GRAPH_WAYS

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
# How many the thorough test draws; the full sweep is EXAMPLES=10000.
EXAMPLES = int(os.environ.get("EXAMPLES", "200"))

PERHAPS = call("finish_task", summary="Perhaps.", requires_user_confirmation=True)
PARTS = (
    "some words",
    *(call("look", name=name) for name in ("a", "bad")),
    call("look", wrong=1),
    call("Look", id="same", name="a"),
    *(call("save", name=name) for name in ("x", "bad")),
    call("nobody_has_this"),
    call("think", thought="hm"),
    call("ask_user", question="Which?"),
    *(call("finish_task", summary=summary) for summary in ("All of it.", "")),
    call("finish_task", summary="Half of it.", completion_percentage=50, next_phase="the rest"),
    call("finish_task", outcome="blocked", summary="There is no key."),
    PERHAPS,
)
REPLIES = (
    "only words",
    reply(""),
    reply("cut o", finish_reason="length"),
    reply("no", finish_reason="content_filter"),
    RuntimeError("the model is down"),
)
LOOK, ASK = ("look", {"name": "a"}), ("ask_user", {"question": "Which?"})
FINISH, SAVE = ("finish_task", {"summary": "ok"}), ("save", {"name": "x"})
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    LOOK,
    ("look", {"wrong": 1}),
    SAVE,
    FINISH,
    ASK,
    ("nobody_has_this", {}),
)
# Longer than any of these runs is.
AT_LAST = [call("finish_task", summary="At last.")] * 20

steps = st.one_of(st.lists(st.sampled_from(PARTS), min_size=1, max_size=3), st.sampled_from(REPLIES))
limits = {
    "turns": st.sampled_from([1, 2, 4, 8]),
    "tool_calls": st.sampled_from([None, 1, 3]),
    "repeats": st.sampled_from([None, 2, 5]),
    "refusals": st.sampled_from([2, 5]),
    "talk_turns": st.sampled_from([2, 5]),
}


def not_blank(claim: Any) -> bool:
    return bool(claim.get("summary") != "All of it.")


rules = st.fixed_dictionaries(
    {
        "limits": st.fixed_dictionaries(limits),
        "policy": st.fixed_dictionaries({"talk": st.sampled_from(["balanced", "strict", "natural"])}),
        "checks": st.sampled_from([(), (not_blank,)]),
    }
)


def said(number: int, *calls: tuple[str, dict[str, Any], str]) -> AIMessage:
    made = [{"name": name, "args": args, "id": own} for name, args, own in calls]
    return AIMessage("", id=f"m{number}", tool_calls=made)


def was_so(call_id: str, own: str) -> ToolMessage:
    return ToolMessage("it was so", tool_call_id=call_id, id=own)


@st.composite
def histories(draw: st.DrawFn) -> list[BaseMessage]:
    """Imported ones: calls without a result, results of nothing, ids that come again."""
    messages, number = list[BaseMessage](), 0
    for _ in range(draw(st.integers(0, 4))):
        at = len(messages)
        match draw(st.sampled_from(["user", "words", "calls", "calls"])):
            case "user":
                messages.append(HumanMessage("and this", id=f"m{at}"))
            case "words":
                messages.append(AIMessage("words", id=f"m{at}"))
            case _:
                chosen = draw(st.lists(st.sampled_from(CALLS), min_size=1, max_size=3))
                ids = [draw(st.sampled_from([f"i{number + place}", "i0"])) for place in range(len(chosen))]
                number += len(chosen)
                messages.append(said(at, *((*one, own) for one, own in zip(chosen, ids, strict=True))))
                answered = [own for own in ids if draw(st.booleans())]
                messages += [was_so(own, f"m{at}-{n}") for n, own in enumerate(answered)]
    return [*messages, HumanMessage("do it", id=f"m{len(messages)}")]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    saved = draw(st.booleans())
    begun: Any = draw(st.one_of(st.just("do it"), histories()))
    script = draw(st.lists(steps, max_size=6))
    # To a finish that waits a yes is no answer: the machine keeps the wait, which LangGraph has dropped.
    waits = any(isinstance(step, list) and PERHAPS in step for step in script)
    words = ["and this"] if waits else ["and this", "yes"]
    more = draw(st.lists(st.sampled_from(words), max_size=2)) if saved else []
    return Case([*script, *AT_LAST], [begun, *more], saved, draw(rules))


def at_once(case: Case) -> None:
    assert by_the_guards(case) == by_the_machine(case)


def in_a_loop(case: Case) -> None:
    assert by_the_guards(case, way=GRAPH_WAYS["ainvoke"]) == by_the_machine(case)


def where_messages_are_removed(case: Case) -> None:
    """The messages differ, but not how each task ends, nor what is asked."""
    # What waits says that a bare yes is no answer, and here it went with the messages.
    case = replace(case, given=["and this" if one == "yes" else one for one in case.given])
    played = by_the_guards(case, KeepsTheLastReply())
    assert [one[1:] for one in played] == [one[1:] for one in by_the_machine(case)]


def drawn(check: Callable[[Case], None], examples: int) -> None:
    # A function of its own: Hypothesis takes settings for one once.
    def checked(case: Case) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(case)

    always_the_same = settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        print_blob=True,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    given(cases())(always_the_same(checked))()


# What many drawn ones have found: an id that comes twice, in the task before and in one task.
IMPORTED = [
    [
        said(0, (*LOOK, "i0"), (*LOOK, "i1"), (*LOOK, "i0")),
        was_so("i1", "r1"),
        HumanMessage("and this", id="m1"),
        said(2, (*ASK, "i0"), (*LOOK, "i4")),
        was_so("i4", "r4"),
        HumanMessage("do it", id="m3"),
    ],
    [said(0, (*LOOK, "i0")), said(1, (*ASK, "i0")), HumanMessage("do it", id="m2")],
]


CHECKS = pytest.mark.parametrize("check", [at_once, in_a_loop, where_messages_are_removed])


@CHECKS
def test_the_guards_decide_as_the_machine(check: Callable[[Case], None]) -> None:
    for history in IMPORTED:
        check(Case(["only words", *AT_LAST], [history]))
    drawn(check, 4)


@CHECKS
@pytest.mark.thorough
@pytest.mark.timeout(7_200)
def test_the_guards_decide_as_the_machine_in_many_examples(check: Callable[[Case], None]) -> None:
    drawn(check, EXAMPLES)
