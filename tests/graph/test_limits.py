"""The limits of a task: what counts, what is refused, what the model is told; on the pure functions."""

from typing import Any

import pytest
from langchain_core.messages import BaseMessage, ToolMessage

from signoff import Limits, Prices, SetupError
from signoff.graph.history.task import read
from signoff.graph.history.usage import Used
from signoff.graph.machine import Event
from signoff.graph.messages import nudge, result
from signoff.graph.rules import COUNTED, RULES, budgets, decide, nearest
from signoff.graph.state import Context
from signoff.graph.texts import DEFAULT_TEXTS
from signoff.graph.vocabulary import REASONS
from tests.support.histories import CONTROLS, ai, broken, done, nudged, spent, state, user

WORK, ASK, THINK = ("work", "w"), ("ask_user", "q"), ("think", "t")
DIGEST = {
    "input_tokens": 40,
    "output_tokens": 2,
    "total_tokens": 42,
    "estimated": True,
    "seconds": 1.5,
}
SPENT = {"task": "m0", **DIGEST}


def ran(call_id: str, seconds: float) -> ToolMessage:
    return result(call_id, "work", "ok", seconds=seconds)


def extended(**digest: Any) -> BaseMessage:
    return nudge("resumed", "go on", extended=digest)


def refused(call_id: str, why: str = "tool_calls") -> ToolMessage:
    return result(call_id, "work", "no", ok=False, not_run=why)


USED: dict[str, tuple[list[BaseMessage], dict[str, Any], dict[str, Any]]] = {
    "nothing": ([], {}, {"total_tokens": 0, "tool_calls": 0, "seconds": 0.0}),
    "tokens of every reply": (
        [spent(ai("a"), tokens=10), spent(ai("b"), tokens=20)],
        {},
        {"input_tokens": 28, "output_tokens": 2, "total_tokens": 30, "estimated": 0},
    ),
    "seconds of replies and results": ([spent(ai(WORK), seconds=1.5), ran("w", 2.0)], {}, {"seconds": 3.5}),
    "waiting for a person is free": (
        [spent(ai(ASK), seconds=1.0), result("q", "ask_user", "blue", answered=True, waited=900.0)],
        {},
        {"seconds": 1.0},
    ),
    "work calls that ran, also those that failed": (
        [ai(WORK, ("work", "v")), done("w"), broken("v")],
        {},
        {"tool_calls": 2},
    ),
    "calls that were not run are not counted": (
        [ai(WORK, ("work", "v")), refused("w", "rejected"), refused("v")],
        {},
        {"tool_calls": 0, "refused": 1},
    ),
    "control calls are no work": ([ai(THINK), done("t"), ai(ASK), done("q")], {}, {"tool_calls": 0}),
    "an open call has not run": ([ai(WORK)], {}, {"tool_calls": 0}),
    "a digest that a model wrote": (
        [],
        {"spent": SPENT},
        {"total_tokens": 42, "seconds": 1.5, "estimated": 1},
    ),
    "a digest of another task": ([], {"spent": {**SPENT, "task": "old"}}, {"total_tokens": 0}),
    "an earlier task": (
        [spent(ai(WORK), tokens=9), done("w"), user("b")],
        {},
        {"total_tokens": 0, "tool_calls": 0},
    ),
    "what came before an extension": (
        [spent(ai(WORK), tokens=9, seconds=1), done("w"), extended(), spent(ai(WORK), tokens=5), done("w")],
        {},
        {"total_tokens": 5, "tool_calls": 1, "seconds": 0.0},
    ),
    "a digest before an extension": (
        [extended(**DIGEST)],
        {"spent": {**SPENT, "total_tokens": 50}},
        {"total_tokens": 8, "seconds": 0.0},
    ),
    "refused before an extension": ([ai(WORK), refused("w"), extended()], {}, {"refused": 0}),
    "a retry grants nothing": ([spent(ai("a"), tokens=9), nudged("resumed")], {}, {"total_tokens": 9}),
}


@pytest.mark.parametrize("name", USED)
def test_what_is_used(name: str) -> None:
    messages, values, expected = USED[name]
    used = read(state(user(), *messages, **values), CONTROLS).used._asdict()
    assert {key: used[key] for key in expected} == expected


def test_a_reply_of_ours_without_a_count_is_estimated_and_an_imported_one_is_not() -> None:
    words = "word " * 100
    ours = read(state(user(words), spent(ai(words))), CONTROLS).used
    assert ours.estimated == 1
    assert 100 < ours.input_tokens < 200
    assert 100 < ours.output_tokens < 200
    assert ours.total_tokens == ours.input_tokens + ours.output_tokens
    assert read(state(user(words), ai(words)), CONTROLS).used == Used()


COSTS = {
    "input and output": (Prices(input=2, output=10), Used(1_000_000, 500_000), 7.0),
    "cached input at its own price": (
        Prices(input=2, output=0, cached_input=0.5),
        Used(1_000_000, 0, cached_tokens=400_000),
        1.4,
    ),
    "cached input without one": (Prices(input=2, output=0), Used(1_000_000, 0, cached_tokens=400_000), 2.0),
    "a free model": (Prices(input=0, output=0), Used(10**9, 10**9), 0.0),
}


@pytest.mark.parametrize("name", COSTS)
def test_what_tokens_cost(name: str) -> None:
    prices, used, cost = COSTS[name]
    assert prices.cost(used) == pytest.approx(cost)


def test_the_providers_count_of_cached_tokens_is_read() -> None:
    reply = spent(ai("a"), tokens=11)
    reply.usage_metadata = {
        "input_tokens": 10,
        "output_tokens": 1,
        "total_tokens": 11,
        "input_token_details": {"cache_read": 8},
    }
    assert read(state(user(), reply), CONTROLS).used.cached_tokens == 8


MONEY = Prices(input=1_000_000, output=1_000_000)
NEAR: dict[str, tuple[Limits, int, float, str | None]] = {
    "nothing is near": (Limits(tokens=100, seconds=100), 50, 50, None),
    "tokens": (Limits(tokens=100), 84, 0, "about 16 tokens"),
    "tokens, not yet": (Limits(tokens=100), 83, 0, None),
    "seconds": (Limits(seconds=60), 0, 50, "about 10 second(s) of working time"),
    "cost": (Limits(cost=100, prices=MONEY), 90, 0, "about 10 % of what it may cost"),
    "tool calls": (Limits(tool_calls=1), 0, 0, "0 tool call(s)"),
    "turns": (Limits(turns=2), 0, 0, "1 turn(s)"),
    "the one of which the least is left": (
        Limits(turns=2, tokens=100, seconds=60),
        90,
        59,
        "about 1 second(s) of working time",
    ),
    "one that is over ends the task in place of it": (Limits(turns=2, tokens=100), 100, 0, None),
}


@pytest.mark.parametrize("name", NEAR)
def test_the_nearest_limit_is_the_one_that_is_told(name: str) -> None:
    limits, tokens, seconds, left = NEAR[name]
    task = read(state(user(), spent(ai(WORK), tokens, seconds), done("w")), CONTROLS)
    found = nearest(task, limits)
    assert (found.remaining(DEFAULT_TEXTS) if found else None) == left
    if found:
        assert decide(task, limits)["rule"] == "near_limit"


def test_one_reminder_for_all_limits() -> None:
    limits = Limits(turns=3, tokens=100)
    told = [user(), spent(ai(WORK), 90), done("w"), nudged("near_limit"), spent(ai(WORK), 1), done("w", "2")]
    assert decide(read(state(*told), CONTROLS), limits)["rule"] == "think"


def test_why_is_told_in_figures() -> None:
    limits = Limits(tokens=1000, seconds=2, cost=1.5, prices=MONEY, tool_calls=3)
    task = read(state(user(), spent(ai(WORK), 1234, 2.5), ran("w", 0.0)), CONTROLS)
    assert [found.why for found in budgets(task, limits)] == [
        "1 of 30 turns are used",
        "1 of 3 tool calls are used",
        "1,234 of 1,000 tokens are used",
        "1234 of 1.5 is spent",
        "2.5 of 2 seconds of working time are used",
    ]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no turns": ({"turns": 0}, "turns: .*greater than or equal to 1"),
    "no tool calls": ({"tool_calls": 0}, "tool_calls: "),
    "tokens below zero": ({"tokens": -1}, "tokens: "),
    "no time": ({"seconds": 0}, "seconds: .*greater than 0"),
    "endless time": ({"seconds": float("inf")}, "seconds: "),
    "no number": ({"seconds": float("nan")}, "seconds: "),
    "text": ({"turns": "many"}, "turns: .*integer"),
    "one repetition": ({"repeats": 1}, "repeats: "),
    "a limit that does not exist": ({"turn": 3}, "there is no 'turn'; there are turns, "),
    "prices below zero": ({"prices": {"input": -1, "output": 1}}, "Prices: input: "),
    "half of the prices": ({"prices": {"input": 1}}, "Prices: output: "),
    "two things": ({"turns": 0, "tokens": 0}, "turns: .*; tokens: "),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_limits_are_refused_with_a_sentence(name: str) -> None:
    given, message = WRONG[name]
    with pytest.raises(SetupError, match=message):
        Limits(**given)


@pytest.mark.parametrize("name", COUNTED)
def test_every_limit_that_is_counted_has_a_rule_and_words_for_the_model_and_for_people(name: str) -> None:
    assert name in Limits.model_fields
    assert name in {rule.name for rule in RULES if rule.event is Event.EXHAUSTED}
    assert name in DEFAULT_TEXTS.amounts
    assert name in REASONS


def test_what_is_counted_of_a_task_is_limited() -> None:
    """By the same name, so that the model checker tells the counts apart."""
    tokens = {"input_tokens", "output_tokens", "total_tokens", "cached_tokens", "estimated"}
    # What delegates have used counts for the limit of the same kind; `depth` is no amount.
    below = {name for name in Used._fields if name.startswith("below_")}
    others = {"refused", "retries", "held", "no_more_children", "too_deep"} | below
    assert set(Used._fields) - tokens - others <= set(COUNTED)
    assert set(DEFAULT_TEXTS.amounts) == set(COUNTED)


@pytest.mark.parametrize("name", sorted(set(Limits.model_fields) - {"prices"}))
def test_every_limit_can_be_set_for_one_run_and_is_described(name: str) -> None:
    described = Context.model_json_schema()["properties"][name]
    assert described["description"]
    with pytest.raises(SetupError, match=f"Context: {name}: "):
        Context.model_validate({name: 0})
