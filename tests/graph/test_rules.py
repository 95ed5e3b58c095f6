"""The ordered rules of `decide` and the table of the machine, as tables of pure functions.

This file may import the core: what a rule decides of a history is its own, whatever a run makes of it.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from langchain_core.messages import BaseMessage

from signoff import Limits, Prices
from signoff.graph.errors import IllegalEvent
from signoff.graph.history.task import read
from signoff.graph.machine import ENTRIES, TRANSITIONS, Event, State, enters, next_state
from signoff.graph.messages import not_run
from signoff.graph.rules import COUNTED, RULES, decide
from signoff.graph.texts import DEFAULT_TEXTS
from signoff.graph.vocabulary import REASONS
from tests.support.histories import CONTROLS, ai, broken, done, nudged, sent_back, spent, state, user

WRITE, ASK, FINISH = ("write", "w"), ("ask_user", "q"), ("finish_task", "f")
TALK = [ai("a"), nudged("talked")]
REFUSAL = ai("I cannot", stop="content_filter")
THOUGHT = ai("<think>So.</think>")
COST = Limits(cost=0.000_9, prices=Prices(input=100, output=100))
PLAIN, TWO, THREE = Limits(), Limits(turns=2), Limits(turns=3)


class Case(NamedTuple):
    rule: str
    messages: list[Any]
    limits: Limits
    values: dict[str, Any]


def when(rule: str, *messages: BaseMessage, limits: Limits = PLAIN, **values: Any) -> Case:
    """The rule that fires for this history, these limits and these values of the state."""
    return Case(rule, list(messages), limits, values)


CASES: dict[str, Case] = {
    "nothing at all": when("no_task"),
    "nothing new on an ended thread": when("ended", user(), ai(FINISH), outcome={"task": "m0"}),
    "a stop comes before everything": when("cancelled", user(), ai(WRITE), stop="m0"),
    "open calls before control calls": when("calls_open", user(), ai(WRITE, FINISH)),
    "a question": when("asked", user(), ai(ASK)),
    "a finish": when("claimed", user(), ai(FINISH)),
    "a question before a finish": when("asked", user(), ai(FINISH), ai(ASK)),
    "control calls before limits: a finish on the last turn": when(
        "claimed", user(), *TALK, ai(FINISH), limits=TWO
    ),
    "a finish that a person sent back gets one more turn": when(
        "think", user(), *TALK, ai(FINISH), sent_back("f"), limits=TWO
    ),
    "a finish that review refused gets none": when(
        "turns",
        user(),
        *TALK,
        ai(FINISH),
        broken("f"),
        limits=TWO,
        verdicts={"task": "m0", "calls": {"m3:0": "the summary is empty"}},
    ),
    "an answered question gets one more turn": when("think", user(), *TALK, ai(ASK), done("q"), limits=TWO),
    "the second refusal in a row": when("content_filter", user(), REFUSAL, nudged("filtered"), REFUSAL),
    "the turns are used up": when("turns", user(), ai(WRITE), done("w"), ai(WRITE), done("w"), limits=TWO),
    "talk only": when("talk_turns", user(), *TALK * 5),
    "finish_reason length": when("truncated", user(), ai("I w", stop="length")),
    "an empty reply": when("empty", user(), ai("  ")),
    "only thoughts": when("reasoning", user(), THOUGHT),
    "the first refusal": when("filtered", user(), REFUSAL),
    "the same work five times": when("repeats", user(), *[ai(WRITE), done("w")] * 5),
    "the same work three times": when("repeating", user(), *[ai(WRITE), done("w")] * 3),
    "more work than may run": when(
        "tool_calls",
        user(),
        ai(WRITE),
        not_run("w", "write", "no", "tool_calls"),
        limits=Limits(tool_calls=1),
    ),
    "all turns of the tree are used": when(
        "tree_turns", user(), ai(WRITE), done("w", "write"), limits=Limits(tree_turns=1)
    ),
    "one delegate more than there may be": when(
        "children", user(), ai(WRITE), not_run("w", "write", "no", "children"), limits=Limits(children=1)
    ),
    "a delegate that would stand too deep": when(
        "depth", user(), ai(WRITE), not_run("w", "write", "no", "depth")
    ),
    "tokens, before a refused reply is put right": when(
        "tokens", user(), spent(ai("I w", stop="length"), tokens=9), limits=Limits(tokens=9)
    ),
    "cost": when("cost", user(), spent(ai("x"), tokens=9), limits=COST),
    "seconds": when("seconds", user(), spent(ai("x"), seconds=9), limits=Limits(seconds=9)),
    "near the limit": when("near_limit", user(), ai(WRITE), done("w"), ai(WRITE), done("w"), limits=THREE),
    "an import that ends in words": when("talked", user(), ai("All done!")),
    "finish_reason stop decides nothing": when("think", user(), ai(WRITE, stop="stop"), done("w")),
    "work done": when("think", user(), ai(WRITE), done("w")),
}


DIALOGUE: dict[str, Case] = {
    "what the model says is put to the user": when("spoke", user(), ai("Hello?")),
    "the user's word goes on": when("think", user(), ai("Hello?"), user("hi")),
    "the limit of turns ends a dialogue": when("turns", user(), ai("a"), user("b"), ai("c"), limits=TWO),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_first_rule_that_applies_fires(case: Case) -> None:
    decision = decide(read(state(*case.messages, **case.values), CONTROLS), case.limits)
    assert decision["rule"] == case.rule
    assert decision["why"]


REMINDERS = [rule.name for rule in RULES if rule.event is Event.REMIND and rule.name != "round"]


@pytest.mark.parametrize("rule", REMINDERS)
def test_the_model_is_reminded_once_of_one_thing(rule: str) -> None:
    case = next(case for case in CASES.values() if case.rule == rule)
    told = state(*case.messages, nudged(rule), **case.values)
    assert decide(read(told, CONTROLS), case.limits)["rule"] == "think"


@pytest.mark.parametrize("case", DIALOGUE.values(), ids=DIALOGUE)
def test_where_talk_is_a_dialogue(case: Case) -> None:
    task = read(state(*case.messages), replace(CONTROLS, dialogue=True))
    assert (task.id, decide(task, case.limits)["rule"]) == ("m0", case.rule)


def test_a_question_that_nobody_can_be_asked_is_an_error() -> None:
    assert decide(read(state(user(), ai(ASK)), CONTROLS, can_ask=False), Limits())["rule"] == "needs_person"


def test_every_rule_fires_in_some_case() -> None:
    # These need other tools or another run: the test above, and those of rounds and of what runs next.
    elsewhere = {"needs_person", "round", "not_ready"}
    assert {case.rule for case in [*CASES.values(), *DIALOGUE.values()]} | elsewhere == {
        r.name for r in RULES
    }


@pytest.mark.parametrize("name", COUNTED)
def test_every_limit_that_is_counted_has_a_rule_and_words_for_the_model_and_for_people(name: str) -> None:
    assert name in Limits.model_fields
    assert name in {rule.name for rule in RULES if rule.event is Event.EXHAUSTED}
    assert name in DEFAULT_TEXTS.amounts
    assert name in REASONS


# The machine.


@pytest.mark.parametrize("here", State)
def test_a_state_takes_the_events_of_its_row_and_no_other(here: State) -> None:
    row = TRANSITIONS[here]
    for event in Event:
        if event in row:
            assert next_state(here, event) is row[event]
        else:
            with pytest.raises(IllegalEvent) as raised:
                next_state(here, event)
            assert all(f"'{name}'" in str(raised.value) for name in (here, event))
            assert all(name in str(raised.value) for name in row), "the legal ones are named"


@pytest.mark.parametrize("event", Event)
def test_only_an_entry_comes_from_outside(event: Event) -> None:
    if event in ENTRIES:
        assert enters(event) is ENTRIES[event]
    else:
        with pytest.raises(IllegalEvent) as raised:
            enters(event)
        assert all(name in str(raised.value) for name in (event, *ENTRIES))


def test_the_machine_has_no_dead_rows() -> None:
    reached = {*ENTRIES.values()}
    while more := {target for state in reached for target in TRANSITIONS[state].values()} - reached:
        reached |= more
    assert reached == set(TRANSITIONS) == set(State)
    assert {event for row in TRANSITIONS.values() for event in row} == set(Event) - set(ENTRIES)
