"""Limits hold over the tree: delegates use at most what the machines above them have left, however many run
beside each other, wait, are copied, or go on."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from signoff import (
    Graph,
    Limits,
    Prices,
    Question,
    Session,
    Storage,
    build_graph,
    go_on,
    outcome_of,
    standard_controls,
)
from signoff.models import ScriptedModel, call, reply
from signoff.outcome import TreeUse
from signoff.session import expire
from tests.support.trees import (
    DOWN,
    GO,
    ONCE,
    THREAD,
    Shop,
    by_turn,
    graph_of,
    hand_to,
    helper,
    look,
    outcome_at,
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
    "tokens of its own": ({"tokens": 150}, {"tokens": 1_000}, 2),
    "tool calls of the caller": ({}, {"tool_calls": 3}, 3),
    "tool calls of its own": ({"tool_calls": 1}, {"tool_calls": 9}, 2),
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


def test_summaries_of_a_delegate_count_too(storage: Storage) -> None:
    @tool
    def note(text: str) -> str:
        """Note."""
        return f"noted {text}"

    writer = ScriptedModel(lambda _: reply("What was seen so far.", usage=(200, 20)))
    notes = [paid(call("note", text=f"{n} {'x' * 400}")) for n in range(30)]
    policy = {"compaction": writer, "prompt_tokens": 3_000}
    below = graph_of([*notes, FINISH], [note], policy=policy)
    graph = graph_of([paid(*hand_to("helper")), FINISH], [helper(below)], storage=storage)
    tree = tree_of(graph.invoke(GO, THREAD))
    assert writer.seen
    assert tree.total_tokens == 100 * tree.turns + 220 * len(writer.seen)


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


@dataclass
class Bounded:
    """A limit of the tree, how the task ends, and what all have used: at least and at most."""

    limits: Limits
    reason: str
    used: str
    least: int
    most: int
    where: str = "a database"


TURNS = Bounded(Limits(tree_turns=17), "tree_turns", "turns", 17, 17)
BOUNDED = {
    "turns": TURNS,
    "turns, with a store beside the saver": replace(TURNS, where="memory with a store"),
    "turns, without a store": replace(TURNS, where="memory"),
    "turns, without storage": replace(TURNS, where="nowhere"),
    "tool calls": Bounded(Limits(tool_calls=11), "finish_task", "tool_calls", 11, 11),
    # Each of four may be in a reply when the limit is reached.
    "tokens": Bounded(Limits(tokens=1_500), "tokens", "total_tokens", 1_500, 1_500 + 4 * 100),
    "cost": Bounded(Limits(cost=15, prices=PRICES), "cost", "total_tokens", 1_500, 1_500 + 4 * 100),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", BOUNDED)
def test_a_limit_holds_for_all_that_run_beside_each_other(name: str, storage: Storage) -> None:
    case = BOUNDED[name]
    kept: dict[str, dict[str, Any]] = {
        "a database": {"storage": storage},
        "memory with a store": {"checkpointer": InMemorySaver(), "store": InMemoryStore()},
        "memory": {"checkpointer": InMemorySaver()},
        "nowhere": {},
    }
    values = several(case.limits, **kept[case.where]).invoke(GO, THREAD)
    assert outcome_of(values).reason == case.reason
    assert case.least <= getattr(tree_of(values), case.used) <= case.most


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
    """Pays so often, asks, and pays on without an end. One that asks at once can be answered by the clock."""
    by_clock: dict[str, Any] = {} if after else {"default_answer": "yes", "deadline_seconds": 60}
    question = call("ask_user", question="Go on?", **by_clock)
    return lambda messages: (
        question if turns_of(messages) == after else call("pay", to=f"{turns_of(messages)}")
    )


def by_task(messages: list[BaseMessage]) -> Any:
    return asking(0 if task_of(messages) == "early" else 3)(messages)


def asker(shop: Shop) -> Graph:
    controls = standard_controls(deadlines=True)
    limits = Limits(repeats=None)
    return graph_of(ScriptedModel(by_task), [shop.pay], limits=limits, control_tools=controls)


def two_that_ask(shop: Shop, limits: Limits, **options: Any) -> Graph:
    """A graph with two delegates beside each other: one asks at once, the other after it has paid thrice."""
    both = [call("helper", task="early"), call("helper", task="late")]
    return graph_of(by_turn(both, GIVES_UP, GIVES_UP), [helper(asker(shop))], limits=limits, **options)


def stopped(session: Session) -> Session:
    session.stop()
    session.go_on()
    return session


def copied(session: Session) -> Session:
    copy = session.fork(thread_id="copy")
    copy.run()
    return copy


def expired(session: Session) -> Session:
    assert expire(session.graph, "t", now=9e12)
    session.run()
    return session


MEANWHILE: dict[str, Callable[[Session], Session]] = {
    "nothing": lambda session: session,
    "it was stopped, and went on": stopped,
    "it was copied: the copy": copied,
    "a question has expired": expired,
}


def answered(session: Session) -> TreeUse:
    """The one that has used nothing yet goes on first; that of the other must be known to it."""
    while waits := session.status().waits:
        session.resume("yes", waits[0].interrupt_id)
    outcome = session.status().outcome
    assert outcome is not None
    assert outcome.tree is not None
    return outcome.tree


@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_what_waits_keeps_its_part_whatever_happens_to_the_thread(
    meanwhile: str, shop: Shop, storage: Storage
) -> None:
    session = Session(two_that_ask(shop, Limits(tree_turns=9), storage=storage), "t")
    session.run("go")
    assert answered(MEANWHILE[meanwhile](session)).turns == 9


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_without_a_store_too_those_that_have_not_had_their_turn_count(shop: Shop) -> None:
    session = Session(two_that_ask(shop, Limits(tool_calls=8), checkpointer=InMemorySaver()), "t")
    assert isinstance(session.run("go"), Question)
    assert answered(session).tool_calls == 8


def test_those_that_failed_and_go_on_know_what_each_of_them_has_used(shop: Shop, storage: Storage) -> None:
    """They go on one after the other: what the second had used must count while the first one runs."""
    first, second = ([call("pay", to=f"{n}") for n in range(times)] for times in (2, 3))
    again = [call("pay", to=f"again {n}") for n in range(9)]
    child = graph_of([*first, DOWN, *second, DOWN, *again], [shop.pay], **ONCE)
    graph = graph_of(
        [hand_to("helper", "helper"), DOWN, GIVES_UP],
        [helper(child, parallel=1)],
        limits=Limits(tree_turns=10),
        storage=storage,
        **ONCE,
    )
    session = Session(graph, "t")
    assert outcome_at(session.run("go")).status == "error"
    outcome = outcome_at(session.go_on())
    assert outcome.tree is not None
    assert (outcome.reason, outcome.tree.turns) == ("tree_turns", 10)
