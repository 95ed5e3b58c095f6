"""What counts toward the limits of a task, what it costs, and of which limit the model is told."""

import re
from typing import Any

import pytest
from langchain.agents.middleware import ModelFallbackMiddleware
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI

from signoff import Limits, Outcome, Prices, SetupError, Texts, build_graph, outcome_of
from signoff.models import ScriptedModel, call, reply
from tests.support.plays import FINISH, GO, THREAD, ai, saved, user


def work(n: int = 0) -> str:
    """Work."""
    if n < 0:
        raise ValueError("it broke")
    return f"worked {n}"


def paid(*parts: Any, tokens: int) -> Any:
    """A reply for this many tokens, all but one of which were read."""
    return reply(*parts, usage=(tokens - 1, 1))


WORK = call("work", n=1)


def test_what_is_used_is_that_of_the_task() -> None:
    """Each reply's tokens, and the work calls that ran, also one that failed."""
    script = [paid(WORK, call("work", n=-1), tokens=90), paid(FINISH, tokens=20), paid(FINISH, tokens=9)]
    graph = build_graph(ScriptedModel(script), [work], **saved())
    first, second = (outcome_of(graph.invoke(GO, THREAD)) for _ in range(2))
    assert (first.usage.input_tokens, first.usage.output_tokens, first.usage.estimated) == (108, 2, False)
    assert (first.tool_calls, first.turns) == (2, 2)
    assert (second.usage.total_tokens, second.tool_calls, second.turns) == (9, 0, 1)


def test_a_reply_without_a_count_is_estimated_and_an_imported_one_is_not_counted() -> None:
    words = "word " * 100
    script = ScriptedModel([reply(words, call("finish_task", summary="Done."), usage=False)])
    usage = outcome_of(build_graph(script).invoke({"messages": [user("go"), ai(words), user(words)]})).usage
    assert usage.estimated
    assert 100 < usage.input_tokens < 2_000
    assert 100 < usage.output_tokens < 200
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    imported = build_graph(ScriptedModel([])).invoke({"messages": [user(), ai(words, ("finish_task", "f"))]})
    assert outcome_of(imported).usage.total_tokens == 0


# What tokens cost.


def usage(read: int, wrote: int = 0, cached: int = 0) -> Any:
    counted = {"input_tokens": read, "output_tokens": wrote, "total_tokens": read + wrote}
    return {**counted, "input_token_details": {"cache_read": cached}}


COSTS: dict[str, tuple[Prices, Any, float]] = {
    "input and output": (Prices(input=2, output=10), usage(1_000_000, 500_000), 7.0),
    "cached input at its own price": (
        Prices(input=2, output=0, cached_input=0.5),
        usage(1_000_000, cached=400_000),
        1.4,
    ),
}


@pytest.mark.parametrize(("prices", "counted", "cost"), COSTS.values(), ids=COSTS)
def test_what_tokens_cost(prices: Prices, counted: Any, cost: float) -> None:

    def reason(limit: float) -> str:
        model = ScriptedModel([reply(WORK, usage=counted), reply(FINISH, usage=usage(0))])
        graph = build_graph(model, [work], limits=Limits(cost=limit, prices=prices))
        return outcome_of(graph.invoke({"messages": ["go"]})).reason

    assert (reason(cost * 0.999), reason(cost * 1.001)) == ("cost", "finish_task")


# The prices of `genai-prices`: dollars for a million tokens.


def turns(model_name: str, read: int, wrote: int, limits: Limits | None = None, **context: Any) -> int:
    """How many turns a limit allows of a model that works four times."""
    script = [reply(call("work", n=n), usage=usage(read, wrote)) for n in range(4)]
    model = ScriptedModel([*script, FINISH], model_name=model_name)
    graph = build_graph(model, [work], limits=limits)
    return outcome_of(graph.invoke({"messages": ["go"]}, context=context)).turns


LISTED: dict[str, tuple[float, str, int, int, int]] = {
    "input of a known model": (2.4, "gpt-4o", 500_000, 0, 2),
    "of a price in tiers the highest": (2.4, "gemini-2.5-pro", 500_000, 0, 2),
}


@pytest.mark.parametrize("name", LISTED)
def test_the_prices_of_a_known_model_by_its_name(name: str) -> None:
    cost, model, read, wrote, allowed = LISTED[name]
    assert turns(model, read, wrote, Limits(cost=cost)) == allowed
    assert turns(model, read, wrote, cost=cost) == allowed, "a run may set the limit"
    assert turns(model, read, wrote) == 5


@pytest.mark.parametrize("model", [ScriptedModel([]), ChatOpenAI(model="gpt-9000", api_key="none")])
def test_a_model_without_a_known_price_is_refused_under_a_limit_of_cost(model: Any) -> None:
    name = "scripted" if isinstance(model, ScriptedModel) else "gpt-9000"
    with pytest.raises(SetupError, match=name):
        build_graph(model, limits=Limits(cost=1))
    with pytest.raises(SetupError, match=name):
        build_graph(model).invoke({"messages": ["go"]}, context={"cost": 1})
    assert build_graph(model, limits=Limits(cost=1, prices=Prices(input=1, output=1)))


class Priced(ScriptedModel):
    model_name: str = "gpt-4o-mini"


def behind_a_fallback(second: ScriptedModel, cost: float) -> Outcome[Any]:
    """The graph's own model, which fails always, costs 0.15 dollars for a million tokens."""
    first = Priced(script=[PermissionError("401")] * 9)
    graph = build_graph(first, [work], middleware=[ModelFallbackMiddleware(second)], limits={"cost": cost})
    return outcome_of(graph.invoke({"messages": ["go"]}))


@pytest.mark.parametrize(("cost", "turns"), [(0.2, 1), (2.0, 1), (3.0, 2)])
def test_a_reply_of_a_fallback_counts_at_its_own_price(cost: float, turns: int) -> None:
    replies = [reply(call("work", n=n), usage=usage(1_000_000)) for n in range(3)]
    outcome = behind_a_fallback(ScriptedModel(replies, model_name="gpt-4o"), cost)
    assert (outcome.reason, outcome.turns) == ("cost", turns)


def test_a_fallback_without_a_known_price_is_not_asked_under_a_limit_of_cost() -> None:
    second = ScriptedModel([FINISH])
    assert behind_a_fallback(second, 1).status == "error"
    assert second.seen == []


# Near a limit.

TOLD = Texts(
    nudges={"near_limit": "NEAR {left}."}, amounts={"turns": "turns {left}", "tokens": "tokens {left}"}
)
# The tokens of the first reply, of 100, and what the model is told; the turns are limited to two.
NEAR: dict[str, tuple[int, str]] = {
    "the only one that is near": (83, "turns 1"),
    "the one of which the least is left": (90, "tokens 10"),
}


def reminders(model: ScriptedModel) -> list[str]:
    last = model.seen[-1].messages
    return [found[1] for message in last for found in re.finditer(r"NEAR (.+)\.", message.text)]


@pytest.mark.parametrize(("used", "left"), NEAR.values(), ids=NEAR)
def test_the_nearest_limit_is_the_one_that_is_told(used: int, left: str) -> None:
    model = ScriptedModel([paid(WORK, tokens=used), FINISH])
    graph = build_graph(model, [work], limits=Limits(turns=2, tokens=100), policy={"texts": TOLD})
    assert outcome_of(graph.invoke({"messages": ["go"]})).turns == 2
    assert reminders(model) == [left]


@pytest.mark.parametrize(("turns", "at"), [(12, 10), (2, 1)])
def test_the_reminder_comes_once_with_the_last_sixth_of_the_turns_left(turns: int, at: int) -> None:
    model = ScriptedModel([call("work", n=n) for n in range(turns)])
    graph = build_graph(model, [work], limits=Limits(turns=turns), policy={"texts": TOLD})
    assert outcome_of(graph.invoke({"messages": [HumanMessage("go")]})).reason == "turns"
    assert reminders(model) == [f"turns {turns - at}"]
    shown = ["NEAR" in str(seen.messages) for seen in model.seen]
    assert shown == [False] * at + [True] * (turns - at)
