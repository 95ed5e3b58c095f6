"""Limits of a graph with delegates: they hold over the tree, however many run beside each other, wait, are
copied, or go on."""

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage

from signoff import Graph, Limits, Prices, Session, Storage, build_graph, go_on, outcome_of
from signoff.models import ScriptedModel, call, reply
from signoff.outcome import TreeUse
from tests.support.ends import to_the_end
from tests.support.trees import (
    ASK,
    GO,
    THREAD,
    Shop,
    by_turn,
    graph_of,
    hand_to,
    helper,
    look,
    results,
    turns_of,
)

PRICES = Prices(input=10_000, output=10_000)
"""A reply of 100 tokens costs 1."""


def paid(*parts: Any) -> Any:
    """A reply of 100 tokens."""
    return reply(*parts, usage=(90, 10))


FINISH = paid(call("finish_task", summary="Done."))
GIVES_UP = paid(call("finish_task", summary="x", outcome="blocked"))


def task_of(messages: list[BaseMessage]) -> str:
    return next(one.text for one in messages if isinstance(one, HumanMessage))


def endless(messages: list[BaseMessage]) -> Any:
    """Works without an end."""
    return paid(call("look", n=turns_of(messages)))


def tree_of(values: Any) -> TreeUse:
    tree = outcome_of(values).tree
    assert tree is not None
    return tree


# One delegate.


def worker(looks: int = 9, **limits: Any) -> Graph:
    """Looks so often, and is done."""
    steps = [paid(call("look", n=n)) for n in range(looks)]
    return graph_of([*steps, FINISH], [look], limits=Limits(**limits))


BELOW: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    # What the delegate may use, what its caller may, and how many turns the delegate had.
    "tokens of the caller": ({}, {"tokens": 450}, 4),
    "tool calls of the caller": ({}, {"tool_calls": 3}, 3),
    "cost of the caller": ({"prices": PRICES}, {"cost": 4.5, "prices": PRICES}, 4),
    "turns of its own": ({"turns": 3}, {"turns": 9}, 3),
    "turns of the caller are not its": ({}, {"turns": 3}, 10),
}


@pytest.mark.parametrize("name", BELOW)
def test_a_delegate_gets_what_is_left_above_or_its_own_limit(name: str) -> None:
    own, above, turns = BELOW[name]
    graph = graph_of([paid(*hand_to("helper")), GIVES_UP], [helper(worker(**own))], limits=Limits(**above))
    values = graph.invoke(GO)
    assert (results(values)[0].status == "success") is (turns == 10)
    tree, outcome = tree_of(values), outcome_of(values)
    assert tree.turns == outcome.turns + turns
    assert tree.total_tokens == 100 * tree.turns
    assert (outcome.usage.total_tokens, outcome.tool_calls) == (100 * outcome.turns, 1)


@pytest.mark.parametrize("limits", [{"tokens": 350}, {"cost": 3.5, "prices": PRICES}], ids=["tokens", "cost"])
def test_what_a_delegate_has_used_ends_its_caller_and_both_go_on(
    limits: dict[str, Any], storage: Storage
) -> None:
    below = worker(prices=PRICES)
    graph = graph_of(
        [paid(*hand_to("helper")), GIVES_UP], [helper(below)], limits=Limits(**limits), storage=storage
    )
    outcome = outcome_of(graph.invoke(GO, THREAD))
    assert (outcome.status, outcome.reason, outcome.turns) == ("limit", next(iter(limits)), 1)
    assert outcome.tree is not None
    # At most one reply above the limit, of the one that ran.
    assert outcome.tree.total_tokens == 400
    # More grants the whole amount once more, counted from now on, and the delegate goes on.
    for _ in range(2):
        values = graph.invoke(go_on(turns=5), THREAD)
    assert outcome_of(values).claim == "blocked"
    assert (tree_of(values).turns, tree_of(values).delegates) == (1 + 10 + 1, 1)


@pytest.mark.parametrize("limits", [Limits(tokens=100), Limits(tree_turns=1)], ids=["tokens", "tree_turns"])
def test_a_delegate_is_not_begun_when_nothing_is_left(limits: Limits) -> None:
    below = ScriptedModel([FINISH])
    graph = graph_of([paid(*hand_to("helper"))], [helper(graph_of(below))], limits=limits)
    values = graph.invoke(GO)
    assert (results(values)[0].status, below.seen) == ("error", [])
    assert (outcome_of(values).status, outcome_of(values).tree) == ("limit", None)


@pytest.mark.parametrize(("depth", "turns"), [(1, 2 + 1), (2, 2 + 2 + 1), (3, 2 + 2 + 2 + 1)])
def test_a_graph_that_delegates_to_itself_is_bounded_by_depth(depth: int, turns: int) -> None:
    def itself() -> Graph:
        return graph_of(by_turn(hand_to("helper"), GIVES_UP), [helper(itself)])

    graph = graph_of(by_turn(hand_to("helper"), GIVES_UP), [helper(itself)], limits=Limits(depth=depth))
    values = graph.invoke(GO)
    assert (outcome_of(values).claim, tree_of(values).turns) == ("blocked", turns)
    assert "depth" in results(values)[0].text


def test_a_task_has_at_most_so_many_delegates() -> None:
    team = [helper(graph_of(by_turn(FINISH)))]
    graph = graph_of([hand_to("helper", "helper"), hand_to("helper")], team, limits=Limits(children=2))
    values = graph.invoke(GO)
    assert (outcome_of(values).status, outcome_of(values).reason) == ("limit", "children")
    assert tree_of(values).delegates == 2


# Many beside each other.


def several(limits: Limits, below: Any = endless, beside: int = 4, **options: Any) -> Graph:
    """A graph that calls a delegate several times in one reply."""
    child = graph_of(ScriptedModel(below), [look], limits=Limits(turns=60, repeats=None, prices=PRICES))
    calls = paid(*[call("helper", task=f"{n}") for n in range(beside)])
    lead = ScriptedModel(lambda messages: GIVES_UP if turns_of(messages) else calls)
    return build_graph(lead, [helper(child)], limits=limits, **options)


# A limit of the tree, how the task ends, and what all have used: at least and at most.
BOUNDED: dict[str, tuple[Limits, str, str, int, int]] = {
    "turns": (Limits(tree_turns=17), "tree_turns", "turns", 17, 17),
    "tool calls": (Limits(tool_calls=11), "finish_task", "tool_calls", 11, 11),
    # Each of four may be in a reply when the limit is reached.
    "tokens": (Limits(tokens=1_500), "tokens", "total_tokens", 1_500, 1_500 + 4 * 100),
    "cost": (Limits(cost=15, prices=PRICES), "cost", "total_tokens", 1_500, 1_500 + 4 * 100),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_a_limit_holds_for_all_that_run_beside_each_other(name: str, storage: Storage) -> None:
    limits, reason, used, least, most = BOUNDED[name]
    values = several(limits, storage=storage).invoke(GO, THREAD)
    assert outcome_of(values).reason == reason
    assert least <= getattr(tree_of(values), used) <= most


def test_each_limit_above_holds_for_what_stands_below_it(storage: Storage) -> None:
    middle = several(Limits(tree_turns=6))
    graph = graph_of(
        [hand_to("one", "two"), GIVES_UP],
        [helper(middle, "one"), helper(middle, "two")],
        limits=Limits(tree_turns=11),
        storage=storage,
    )
    assert tree_of(graph.invoke(GO, THREAD)).turns == 11
    alone = graph_of([hand_to("one"), GIVES_UP], [helper(middle, "one")], limits=Limits(tree_turns=11))
    assert tree_of(alone.invoke(GO)).turns == 2 + 6


def test_what_one_leaves_is_there_for_those_beside_it(storage: Storage) -> None:
    def some(messages: list[BaseMessage]) -> Any:
        return FINISH if task_of(messages) != "0" or turns_of(messages) == 9 else endless(messages)

    values = several(Limits(tree_turns=15), some, storage=storage).invoke(GO, THREAD)
    # An equal share would have cut the long one short.
    assert (outcome_of(values).reason, tree_of(values).turns) == ("finish_task", 1 + 10 + 3 + 1)


# Those that wait, are copied, or go on.


def asking(after: int) -> Callable[[list[BaseMessage]], Any]:
    """Pays so often, asks, and pays on without an end."""
    return lambda messages: ASK if turns_of(messages) == after else call("pay", to=f"{turns_of(messages)}")


def by_task(messages: list[BaseMessage]) -> Any:
    return asking(0 if task_of(messages) == "early" else 3)(messages)


def two_that_ask(shop: Shop, limits: Limits, **options: Any) -> Graph:
    """A graph with two delegates beside each other: one asks at once, the other after it has paid thrice."""
    below = graph_of(ScriptedModel(by_task), [shop.pay], limits=Limits(repeats=None))
    both = [call("helper", task="early"), call("helper", task="late")]
    return graph_of(by_turn(both, GIVES_UP, GIVES_UP), [helper(below)], limits=limits, **options)


def stopped(session: Session) -> Session:
    session.stop()
    session.go_on()
    return session


def copied(session: Session) -> Session:
    copy = session.fork(thread_id="copy")
    copy.run()
    return copy


MEANWHILE: dict[str, Callable[[Session], Session]] = {
    "nothing": lambda session: session,
    "it was stopped, and went on": stopped,
    "it was copied: the copy": copied,
}


def answered(session: Session) -> TreeUse:
    """The one that has used nothing yet goes on first; that of the other must be known to it."""
    tree = to_the_end(session).tree
    assert tree is not None
    return tree


@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_what_waits_keeps_its_part_whatever_happens_to_the_thread(
    meanwhile: str, shop: Shop, storage: Storage
) -> None:
    session = Session(two_that_ask(shop, Limits(tree_turns=9), storage=storage), "t")
    session.run("go")
    assert answered(MEANWHILE[meanwhile](session)).turns == 9
