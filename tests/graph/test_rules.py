"""The ordered rules of `decide`, on the pure functions."""

from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from signoff.graph.errors import IllegalEvent
from signoff.graph.history.reader import PENDING
from signoff.graph.history.task import read
from signoff.graph.limits import Limits, Prices
from signoff.graph.machine import ENTRIES, TRANSITIONS, Event, State, edges, enters, next_state
from signoff.graph.messages import not_run, nudge
from signoff.graph.rules import RULES, decide
from tests.support.histories import CONTROLS, ai, broken, done, nudged, sent_back, spent, state, user

WRITE, ASK, FINISH = ("write", "w"), ("ask_user", "q"), ("finish_task", "f")
TALK = [ai("a"), nudged("talked")]
REFUSAL = ai("I cannot", stop="content_filter")
THOUGHT = ai("<think>So.</think>")
COST = Limits(cost=0.000_9, prices=Prices(input=100, output=100))
TWO, THREE = Limits(turns=2), Limits(turns=3)

CASES: dict[str, tuple[list[Any], Limits, dict[str, Any], str]] = {
    "nothing at all": ([], Limits(), {}, "no_task"),
    "nothing new on an ended thread": ([user(), ai(FINISH)], Limits(), {"outcome": {"task": "m0"}}, "ended"),
    "a stop comes before everything": ([user(), ai(WRITE)], Limits(), {"stop": "m0"}, "cancelled"),
    "a stop for an earlier task stops nothing": ([user()], Limits(), {"stop": "old"}, "think"),
    "open calls before control calls": ([user(), ai(WRITE, FINISH)], Limits(), {}, "calls_open"),
    "a question": ([user(), ai(ASK)], Limits(), {}, "asked"),
    "a finish": ([user(), ai(FINISH)], Limits(), {}, "claimed"),
    "a question before a finish": ([user(), ai(FINISH), ai(ASK)], Limits(), {}, "asked"),
    "control calls before limits: a finish on the last turn": (
        [user(), *TALK, ai(FINISH)],
        TWO,
        {},
        "claimed",
    ),
    "control calls before limits: a question on the last turn": ([user(), *TALK, ai(ASK)], TWO, {}, "asked"),
    "an answered question gets one more turn": ([user(), *TALK, ai(ASK), done("q")], TWO, {}, "think"),
    "an answer not yet written down too": ([user(), *TALK, ai(ASK), user("blue")], TWO, {}, "think"),
    "a finish that a person sent back gets one more turn": (
        [user(), *TALK, ai(FINISH), sent_back("f")],
        TWO,
        {},
        "think",
    ),
    "an import that a person sent back too": (
        [user(), *TALK, ai(FINISH), done("f"), nudge("sent_back", "no", finish="m3:0")],
        TWO,
        {},
        "think",
    ),
    "feedback not yet written down too": (
        [user(), *TALK, ai(FINISH), user("the title is wrong")],
        TWO,
        {"verdicts": {"task": "m0", "calls": {"m3:0": PENDING}}},
        "think",
    ),
    "a finish that review refused gets none": (
        [user(), *TALK, ai(FINISH), broken("f")],
        TWO,
        {"verdicts": {"task": "m0", "calls": {"m3:0": "the summary is empty"}}},
        "turns",
    ),
    "a finish that waits for a person still stands": (
        [user(), ai(FINISH)],
        Limits(),
        {"verdicts": {"task": "m0", "calls": {"m1:0": PENDING}}},
        "claimed",
    ),
    "and only one more": ([user(), ai(ASK), done("q"), ai(WRITE), done("w")], TWO, {}, "turns"),
    "the second refusal in a row": (
        [user(), REFUSAL, nudged("filtered"), REFUSAL],
        Limits(),
        {},
        "content_filter",
    ),
    "the second refusal before limits": (
        [user(), REFUSAL, nudged("filtered"), REFUSAL],
        TWO,
        {},
        "content_filter",
    ),
    "a refusal, work, a refusal": (
        [user(), REFUSAL, nudged("filtered"), ai(WRITE), done("w"), REFUSAL],
        Limits(),
        {},
        "filtered",
    ),
    "the turns are used up": ([user(), ai(WRITE), done("w"), ai(WRITE), done("w")], TWO, {}, "turns"),
    "more turns were granted": (
        [user(), ai(WRITE), done("w"), ai(WRITE), done("w")],
        TWO,
        {"extra": {"task": "m0", "turns": 3}},
        "think",
    ),
    "more turns were granted, fewer than were used beyond the limit": (
        [user(), *[ai(WRITE), done("w")] * 4, nudged("resumed", extended={}, granted=2, at_turn=4)],
        TWO,
        {"extra": {"task": "m0", "turns": 2}},
        "think",
    ),
    "and used": (
        [
            user(),
            *[ai(WRITE), done("w")] * 4,
            nudged("resumed", extended={}, granted=2, at_turn=4),
            *[ai(WRITE), done("w")] * 2,
        ],
        TWO,
        {"extra": {"task": "m0", "turns": 2}},
        "turns",
    ),
    "by a version that did not store what was used, as that decided": (
        [user(), *[ai(WRITE), done("w")] * 4, nudged("resumed", extended={})],
        TWO,
        {"extra": {"task": "m0", "turns": 2}},
        "turns",
    ),
    "in the task before": (
        [
            user(),
            *[ai(WRITE), done("w")] * 4,
            nudged("resumed", extended={}, granted=9, at_turn=4),
            ai(FINISH),
            done("f"),
            user("b"),
            *[ai(WRITE), done("w")] * 2,
        ],
        TWO,
        {"outcome": {"task": "m0"}, "extra": {"task": "m0", "turns": 9}},
        "turns",
    ),
    "talk only": ([user(), *TALK * 5], Limits(), {}, "talk_turns"),
    "talk only, but went on after that limit": (
        [user(), *TALK * 5, nudged("resumed")],
        Limits(),
        {},
        "think",
    ),
    "finish_reason length": ([user(), ai("I w", stop="length")], Limits(), {}, "truncated"),
    "finish_reason length, told already": (
        [user(), ai("I w", stop="length"), nudged("truncated")],
        Limits(),
        {},
        "think",
    ),
    "an empty reply": ([user(), ai("  ")], Limits(), {}, "empty"),
    "an empty reply, told already": ([user(), ai(""), nudged("empty")], Limits(), {}, "think"),
    "only thoughts": ([user(), THOUGHT], Limits(), {}, "reasoning"),
    "only thoughts, told already": ([user(), THOUGHT, nudged("reasoning")], Limits(), {}, "think"),
    "only thoughts, and cut off": ([user(), ai("<think>So", stop="length")], Limits(), {}, "truncated"),
    "interrupted by the provider": ([user(), ai("Searching.", stop="pause_turn")], Limits(), {}, "think"),
    "the first refusal": ([user(), REFUSAL], Limits(), {}, "filtered"),
    "the same work five times": ([user(), *[ai(WRITE), done("w")] * 5], Limits(), {}, "repeats"),
    "the same work three times": ([user(), *[ai(WRITE), done("w")] * 3], Limits(), {}, "repeating"),
    "the same work three times, told already": (
        [user(), *[ai(WRITE), done("w")] * 3, nudged("repeating")],
        Limits(),
        {},
        "think",
    ),
    "a finish after the same work five times": (
        [user(), *[ai(WRITE), done("w")] * 5, ai(FINISH)],
        Limits(),
        {},
        "claimed",
    ),
    "more work than may run": (
        [user(), ai(WRITE), not_run("w", "write", "no", "tool_calls")],
        Limits(tool_calls=1),
        {},
        "tool_calls",
    ),
    "all turns of the tree are used": (
        [user(), ai(WRITE), done("w", "write")],
        Limits(tree_turns=1),
        {},
        "tree_turns",
    ),
    "one delegate more than there may be": (
        [user(), ai(WRITE), not_run("w", "write", "no", "children")],
        Limits(children=1),
        {},
        "children",
    ),
    "a delegate that would stand too deep": (
        [user(), ai(WRITE), not_run("w", "write", "no", "depth")],
        Limits(),
        {},
        "depth",
    ),
    "tokens, before a refused reply is put right": (
        [user(), spent(ai("I w", stop="length"), tokens=9)],
        Limits(tokens=9),
        {},
        "tokens",
    ),
    "cost": ([user(), spent(ai("x"), tokens=9)], COST, {}, "cost"),
    "seconds": ([user(), spent(ai("x"), seconds=9)], Limits(seconds=9), {}, "seconds"),
    "turns before all other limits": (
        [user(), *[spent(ai(WRITE), tokens=9, seconds=9), done("w")] * 5],
        Limits(turns=5, tokens=1, seconds=1),
        {},
        "turns",
    ),
    "a finish on the last token": ([user(), spent(ai(FINISH), tokens=9)], Limits(tokens=9), {}, "claimed"),
    "an answer gets no more tokens": (
        [user(), spent(ai(ASK), tokens=9), done("q")],
        Limits(tokens=9),
        {},
        "tokens",
    ),
    "an answer gets one more turn although there was only talk": (
        [user(), *TALK, ai(ASK), done("q")],
        Limits(talk_turns=1),
        {},
        "think",
    ),
    "near the limit": ([user(), ai(WRITE), done("w"), ai(WRITE), done("w")], THREE, {}, "near_limit"),
    "near the limit, told already": (
        [user(), ai(WRITE), done("w"), nudged("near_limit"), ai(WRITE), done("w")],
        THREE,
        {},
        "think",
    ),
    "an import that ends in words": ([user(), ai("All done!")], Limits(), {}, "talked"),
    "finish_reason stop decides nothing": (
        [user(), ai(WRITE, stop="stop"), done("w")],
        Limits(),
        {},
        "think",
    ),
    "work done": ([user(), ai(WRITE), done("w")], Limits(), {}, "think"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_first_rule_that_applies_fires(name: str) -> None:
    messages, limits, values, rule = CASES[name]
    decision = decide(read(state(*messages, **values), CONTROLS), limits)
    assert decision["rule"] == rule
    assert decision["why"]


def test_a_question_that_nobody_can_be_asked_is_an_error() -> None:
    assert decide(read(state(user(), ai(ASK)), CONTROLS, can_ask=False), Limits())["rule"] == "needs_person"


DIALOGUE: dict[str, tuple[list[Any], Limits, str]] = {
    "what the model says is put to the user": ([user(), ai("Hello?")], Limits(), "spoke"),
    "the user's word goes on": ([user(), ai("Hello?"), user("hi")], Limits(), "think"),
    "two words in a row are one": ([user(), ai("Hello?"), user("hi"), user("you")], Limits(), "think"),
    "the limit of turns ends a dialogue": ([user(), ai("a"), user("b"), ai("c")], TWO, "turns"),
    "talking for long does not": ([user(), *[ai("a"), user("b")] * 9, ai("c")], Limits(), "spoke"),
    "an empty reply is no word": ([user(), ai("")], Limits(), "empty"),
    "a finish ends it": ([user(), ai("a"), user("b"), ai(FINISH)], Limits(), "claimed"),
}


@pytest.mark.parametrize("name", DIALOGUE)
def test_where_talk_is_a_dialogue(name: str) -> None:
    messages, limits, rule = DIALOGUE[name]
    task = read(state(*messages), replace(CONTROLS, dialogue=True))
    assert (task.id, decide(task, limits)["rule"]) == ("m0", rule)


def test_every_rule_fires_in_some_case() -> None:
    # These need other tools or another run: the test above, loop/test_rounds.py and test_not_ready.py.
    elsewhere = {"needs_person", "round", "not_ready"}
    fired = {rule for *_, rule in [*CASES.values(), *DIALOGUE.values()]} | elsewhere
    assert fired == {rule.name for rule in RULES}


@pytest.mark.parametrize(("turns", "at"), [(30, 25), (12, 10), (6, 5), (3, 2), (2, 1)])
def test_the_reminder_comes_with_the_last_sixth_of_the_turns_left(turns: int, at: int) -> None:
    # Each with another result, so that nothing repeats.
    worked = [part for n in range(turns) for part in (ai(WRITE), done("w", str(n)))]
    fired = [
        decide(read(state(user(), *worked[: 2 * done_turns]), CONTROLS), Limits(turns=turns))["rule"]
        for done_turns in range(turns + 1)
    ]
    assert fired == ["think"] * at + ["near_limit"] * (turns - at) + ["turns"]


def test_a_reply_without_a_finish_reason_is_read_all_the_same() -> None:
    bare = AIMessage("", tool_calls=[{"name": "finish_task", "id": "f", "args": {"summary": "x"}}])
    assert decide(read(state(user(), bare), CONTROLS), Limits())["rule"] == "claimed"


LEGAL = [(state, event) for state, row in TRANSITIONS.items() for event in row]
ILLEGAL = [(state, event) for state in State for event in Event if event not in TRANSITIONS[state]]


@pytest.mark.parametrize(("state", "event"), LEGAL)
def test_a_legal_event_leads_to_a_state_with_a_row(state: State, event: Event) -> None:
    assert next_state(state, event) in TRANSITIONS


@pytest.mark.parametrize(("state", "event"), ILLEGAL)
def test_an_illegal_event_raises_and_names_the_legal_ones(state: State, event: Event) -> None:
    with pytest.raises(IllegalEvent) as raised:
        next_state(state, event)
    assert all(text in str(raised.value) for text in [f"'{state}'", f"'{event}'", *TRANSITIONS[state]])


def test_the_machine_has_no_dead_rows() -> None:
    reached, waiting = {*ENTRIES.values()}, [*{*ENTRIES.values()}]
    while waiting:
        for target in TRANSITIONS[waiting.pop()].values():
            if target not in reached:
                reached.add(target)
                waiting.append(target)
    assert reached == set(State)
    assert {event for row in TRANSITIONS.values() for event in row} == set(Event) - set(ENTRIES)


@pytest.mark.parametrize("event", set(Event) - set(ENTRIES))
def test_what_a_state_reports_does_not_come_from_outside(event: Event) -> None:
    with pytest.raises(IllegalEvent) as raised:
        enters(event)
    assert all(text in str(raised.value) for text in [f"'{event}'", *ENTRIES])


def test_every_way_of_the_table_is_drawn() -> None:
    drawn = {
        (state, target): label.split(" / ")
        for state, ways in edges().items()
        for target, label in ways.items()
    }
    told: dict[tuple[State, State], list[str]] = {}
    for here, event in LEGAL:
        told.setdefault((here, TRANSITIONS[here][event]), []).append(str(event))
    assert drawn == told
