"""Limits over the tree: what delegates use counts above them, and a delegate gets at most what is left."""

from pathlib import Path
from typing import Any

import pytest

from signoff import Limits, Prices, build_graph, delegate, extend, outcome_of, sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.messages import marks
from signoff.models import ScriptedModel, call, reply

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "go")]}
DONE = call("finish_task", summary="Done.")
PRICES = Prices(input=10_000, output=10_000)


def look(n: int) -> str:
    """Look."""
    return f"{n}"


def note(text: str) -> str:
    """Note."""
    return f"noted {text}"


look.metadata = {"kind": "read"}  # type: ignore[attr-defined]  # a function takes any attribute


def paid(*parts: Any) -> Any:
    """A reply of 100 tokens."""
    return reply(*parts, usage=(90, 10))


def worker(looks: int, limits: Limits | None = None) -> Graph:
    steps = [paid(call("look", n=n)) for n in range(looks)]
    return build_graph(ScriptedModel([*steps, paid(DONE)]), [look], limits=limits)


def lead(child: Graph, limits: Limits, *then: Any) -> Graph:
    made = delegate("worker", child, description="Works.")
    return build_graph(
        ScriptedModel([paid(call("worker", task="Do it.")), *(then or (paid(DONE),))]), [made], limits=limits
    )


FAILED = paid(call("finish_task", summary="x", outcome="blocked"))
LIMITS: dict[str, tuple[Graph, Limits, str, int]] = {
    # The child, the parent's limits, why the child ended, and its turns.
    "tokens of the parent": (worker(9), Limits(tokens=450), "tokens", 4),
    "tokens of its own": (worker(9, Limits(tokens=150)), Limits(tokens=1_000), "tokens", 2),
    "tool calls of the parent": (worker(9), Limits(tool_calls=3), "tool_calls", 3),
    "tool calls of its own": (worker(9, Limits(tool_calls=1)), Limits(tool_calls=9), "tool_calls", 2),
    "cost of the parent": (
        worker(9, Limits(prices=PRICES)),
        Limits(cost=4.5, prices=PRICES),
        "cost",
        4,
    ),
    "turns are of one machine": (worker(9), Limits(turns=3), "", 10),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_delegate_gets_what_is_left_or_its_own_limit(name: str, tmp_path: Path) -> None:
    child, limits, why, turns = LIMITS[name]
    graph = lead(child, limits, FAILED if why else paid(DONE))
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = graph.copy({"checkpointer": storage.checkpointer, "store": storage.store})
        values = graph.invoke(GO, THREAD)
    mark = marks(values["messages"][2])["delegate"]
    assert (mark["reason"], mark["used"]["turns"]) == (why or "finish_task", turns)
    outcome = outcome_of(values)
    assert outcome.tree is not None
    assert outcome.tree.turns == outcome.turns + turns
    assert outcome.tree.total_tokens == 100 * outcome.tree.turns
    assert (outcome.usage.total_tokens, outcome.tool_calls) == (100 * outcome.turns, 1)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(tokens=350), "tokens"),
        (Limits(cost=3.5, prices=PRICES), "cost"),
    ],
)
def test_what_a_delegate_has_used_ends_the_parent(limits: Limits, reason: str, tmp_path: Path) -> None:
    child = worker(9, Limits(prices=PRICES) if reason == "cost" else None)
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = lead(child, limits, FAILED).copy(
            {"checkpointer": storage.checkpointer, "store": storage.store}
        )
        outcome = outcome_of(graph.invoke(GO, THREAD))
        assert (outcome.status, outcome.reason, outcome.turns) == ("limit", reason, 1)
        assert outcome.tree is not None
        # At most one reply above the limit, of the one that ran.
        assert outcome.tree.total_tokens == 400
        # More grants the whole amount once more, counted from now on, and the delegate goes on.
        for _ in range(2):
            again = outcome_of(graph.invoke(extend(graph.get_state(THREAD), turns=5), THREAD))
    assert (again.status, again.claim) == ("success", "blocked")
    assert again.tree is not None
    assert (again.tree.turns, again.tree.delegates) == (1 + 10 + 1, 1)


def test_a_delegate_is_not_begun_when_nothing_is_left() -> None:
    graph = lead(worker(9), Limits(tokens=100))
    values = graph.invoke(GO)
    assert marks(values["messages"][2])["not_run"] == "tokens"
    assert (outcome_of(values).reason, outcome_of(values).tree) == ("tokens", None)


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        (Limits(tool_calls=9), 9),
        (Limits(tokens=1_300), 1_300 + 4 * 100),
        (Limits(cost=13, prices=PRICES), 1_700),
    ],
)
def test_those_that_are_called_together_use_what_is_left_and_no_more(
    limits: Limits, most: int, tmp_path: Path
) -> None:
    def endless(messages: Any) -> Any:
        return paid(call("look", n=len(messages)))

    child = build_graph(ScriptedModel(endless), [look], limits=Limits(turns=50, prices=PRICES))
    made = delegate("worker", child, description="Works.")
    calls = paid(*[call("worker", task=f"{n}") for n in range(4)])
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = build_graph(ScriptedModel([calls, FAILED]), [made], limits=limits, storage=storage)
        outcome = outcome_of(graph.invoke(GO, THREAD))
    assert outcome.tree is not None
    if limits.tool_calls:
        # Four of the delegates themselves, and five below them.
        assert outcome.tree.tool_calls == most
    else:
        assert outcome.tree.turns > 12
        assert outcome.tree.total_tokens <= most


def test_use_is_added_up_over_all_levels() -> None:
    below = build_graph(
        ScriptedModel([paid(call("worker", task="Do it.")), paid(DONE)]),
        [delegate("worker", worker(2), description="Works.")],
    )
    middle = delegate("middle", below, description="Hands on.")
    graph = build_graph(ScriptedModel([paid(call("middle", task="Do it.")), paid(DONE)]), [middle])
    outcome = outcome_of(graph.invoke(GO))
    assert outcome.tree is not None
    assert (outcome.tree.delegates, outcome.tree.turns, outcome.tree.tool_calls) == (1, 2 + 2 + 3, 1 + 1 + 2)
    assert outcome.tree.total_tokens == 700


@pytest.mark.parametrize("stored", [False, True])
def test_summaries_of_a_delegate_count_too(stored: bool, tmp_path: Path) -> None:
    writer = ScriptedModel(lambda _: reply("What was seen so far.", usage=(200, 20)))
    looks = [paid(call("note", text=f"{n} {'x' * 400}")) for n in range(30)]
    below = build_graph(ScriptedModel([*looks, paid(DONE)]), [note], compaction=writer, prompt_tokens=3_000)
    graph = lead(below, Limits())
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        if stored:
            graph = graph.copy({"checkpointer": storage.checkpointer, "store": storage.store})
        values = graph.invoke(GO, THREAD)
    assert writer.seen
    used = marks(values["messages"][2])["delegate"]["used"]
    assert used["tokens"] == 100 * used["turns"] + 220 * len(writer.seen)
