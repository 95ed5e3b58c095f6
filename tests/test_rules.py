"""The ordered rules of `decide`, on the pure functions."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage

from signoff.graph.errors import IllegalEvent
from signoff.graph.limits import Limits
from signoff.graph.machine import FIRST, TRANSITIONS, Event, State, edges, next_state
from signoff.graph.rules import RULES, decide
from signoff.graph.state import AgentState
from signoff.graph.task import read
from tests.histories import CONTROLS, ai, done, history, nudged, user

WRITE, ASK, FINISH = ("write", "w"), ("ask_user", "q"), ("finish_task", "f")
TALK = [ai("a"), nudged("talked")]
REFUSAL = ai("I cannot", stop="content_filter")
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
    "the first refusal": ([user(), REFUSAL], Limits(), {}, "filtered"),
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
    state = AgentState(messages=history(*messages), **values)  # type: ignore[typeddict-item]  # parts only
    decision = decide(read(state, CONTROLS), limits)
    assert decision["rule"] == rule
    assert decision["why"]


def test_a_question_that_nobody_can_be_asked_is_an_error() -> None:
    state = AgentState(messages=history(user(), ai(ASK)))  # type: ignore[typeddict-item]  # parts only
    assert decide(read(state, CONTROLS, can_ask=False), Limits())["rule"] == "needs_person"


def test_every_rule_fires_in_some_case() -> None:
    fired = {rule for *_, rule in CASES.values()} | {"needs_person"}
    assert fired == {rule.name for rule in RULES}


@pytest.mark.parametrize(("turns", "at"), [(30, 25), (12, 10), (6, 5), (3, 2), (2, 1), (1, 1)])
def test_the_reminder_comes_with_the_last_sixth_of_the_turns_left(turns: int, at: int) -> None:
    assert Limits(turns=turns).remind_at == at


def test_a_reply_without_a_finish_reason_is_read_all_the_same() -> None:
    bare = AIMessage("", tool_calls=[{"name": "finish_task", "id": "f", "args": {"summary": "x"}}])
    state = AgentState(messages=history(user(), bare))  # type: ignore[typeddict-item]  # parts only
    assert decide(read(state, CONTROLS), Limits())["rule"] == "claimed"


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
    reached, waiting = {FIRST}, [FIRST]
    while waiting:
        for target in TRANSITIONS[waiting.pop()].values():
            if target not in reached:
                reached.add(target)
                waiting.append(target)
    assert reached == set(State)
    assert {event for row in TRANSITIONS.values() for event in row} == set(Event)


def test_every_way_of_the_table_is_drawn() -> None:
    drawn = {
        (state, target): label.split(" / ")
        for state, ways in edges().items()
        for target, label in ways.items()
    }
    told: dict[tuple[State, State], list[str]] = {}
    for state, event in LEGAL:
        told.setdefault((state, TRANSITIONS[state][event]), []).append(str(event))
    assert drawn == told
