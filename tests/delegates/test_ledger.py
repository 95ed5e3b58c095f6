"""The ledger of a tree: however many machines run beside each other, they use no more than its limits."""

import asyncio
import operator
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt

from signoff import Limits, Prices, SetupError, build_graph, delegate, extend, outcome_of, sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.history.task import read
from signoff.graph.machine import State
from signoff.graph.messages import is_reply, marks
from signoff.graph.rules import decide
from signoff.graph.state import TreeBudget
from signoff.models import ScriptedModel, call, reply
from signoff.nodes.delegates.descent import TreeBound
from signoff.nodes.delegates.ledger import TreeMachine
from signoff.nodes.delegates.results import used_by
from signoff.session.replay import replay
from signoff.session.status import deps_of
from signoff.storage.sqlite import SqliteStorage

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "go")]}
PRICES = Prices(input=10_000, output=10_000)
FAILED = reply(call("finish_task", summary="x", outcome="blocked"), usage=(90, 10))
ASK = reply(call("ask_user", question="Which?"), usage=(90, 10))
WAYS = pytest.mark.parametrize("way", ["sync", "async"])


def look(n: int) -> str:
    """Look."""
    return f"{n}"


look.metadata = {"kind": "read"}  # type: ignore[attr-defined]  # a function takes any attribute


def endless(messages: list[Any]) -> Any:
    """Works without an end, 100 tokens a reply."""
    return reply(call("look", n=len(messages)), usage=(90, 10))


def lead(limits: Limits, below: Any = endless, beside: int = 4, **options: Any) -> Graph:
    """A graph that calls a delegate several times in one reply."""
    child = build_graph(ScriptedModel(below), [look], limits=Limits(turns=60, repeats=None, prices=PRICES))
    made = delegate("worker", child, description="Works.")
    calls = reply(*[call("worker", task=f"{n}") for n in range(beside)], usage=(90, 10))

    def script(messages: list[Any]) -> Any:
        return FAILED if any(map(is_reply, messages)) else calls

    return build_graph(ScriptedModel(script), [made], limits=limits, **options)


def run(graph: Graph, given: Any, way: str = "sync") -> Any:
    return graph.invoke(given, THREAD) if way == "sync" else asyncio.run(graph.ainvoke(given, THREAD))


@contextmanager
def opened(where: str, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Where a thread and its ledger are kept."""
    if where == "sqlite":
        with sqlite_storage(tmp_path / "threads.sqlite") as storage:
            yield {"storage": storage}
    elif where == "a store without a swap":
        yield {"checkpointer": InMemorySaver(), "store": InMemoryStore()}
    else:
        yield {"checkpointer": InMemorySaver()} if where == "no store" else {}


@dataclass
class Bounded:
    """A limit of the tree, the task's end, and what all have used: exactly, or at least and at most."""

    limits: Limits
    reason: str
    used: str
    least: int
    most: int


BOUNDED = {
    "turns": Bounded(Limits(tree_turns=17), "tree_turns", "turns", 17, 17),
    "tool calls": Bounded(Limits(tool_calls=11), "finish_task", "tool_calls", 11, 11),
    "tokens": Bounded(Limits(tokens=1_500), "tokens", "total_tokens", 1_500, 1_500 + 4 * 100),
    "cost": Bounded(Limits(cost=15, prices=PRICES), "cost", "total_tokens", 1_500, 1_500 + 4 * 100),
}


@pytest.mark.filterwarnings("ignore::signoff.graph.errors.JournalWarning")
@WAYS
@pytest.mark.parametrize("where", ["sqlite", "a store without a swap", "no store", "nothing"])
@pytest.mark.parametrize("name", BOUNDED)
def test_a_limit_of_the_tree_holds_for_all_that_run_beside_each_other(
    name: str, where: str, way: str, tmp_path: Path
) -> None:
    case = BOUNDED[name]
    with opened(where, tmp_path) as kept:
        outcome = outcome_of(run(lead(case.limits, **kept), GO, way))
    assert outcome.reason == case.reason
    assert outcome.tree is not None
    assert case.least <= getattr(outcome.tree, case.used) <= case.most


def test_each_limit_above_holds_for_what_stands_below_it(tmp_path: Path) -> None:
    middle = lead(Limits(tree_turns=6, depth=5))
    both = [delegate(name, middle, description="Works.") for name in ("one", "two")]
    calls = [call(made.name, task="Go.") for made in both]
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = build_graph(
            ScriptedModel([calls, FAILED]), both, limits=Limits(tree_turns=11), storage=storage
        )
        values = graph.invoke(GO, THREAD)
    outcome = outcome_of(values)
    assert outcome.tree is not None
    assert (outcome.reason, outcome.tree.turns) == ("tree_turns", 11)
    # Each of the two had at most six turns with all below it.
    used = [marks(found)["delegate"]["used"]["turns"] for found in values["messages"] if found.type == "tool"]
    assert sum(used) == 10
    assert max(used) <= 6


def test_a_delegate_that_ends_early_leaves_its_part_to_the_others(tmp_path: Path) -> None:
    def some(messages: list[Any]) -> Any:
        task = next(message.text for message in messages if isinstance(message, HumanMessage))
        replies = sum(map(is_reply, messages))
        done = reply(call("finish_task", summary="Done."), usage=(90, 10))
        return done if task != "0" or replies == 9 else endless(messages)

    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        outcome = outcome_of(lead(Limits(tree_turns=15), some, storage=storage).invoke(GO, THREAD))
    assert outcome.tree is not None
    # An equal share would have cut the long one short.
    assert (outcome.reason, outcome.tree.turns) == ("finish_task", 1 + 10 + 3 + 1)


def test_an_extension_of_the_tree_is_exact_too(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = lead(Limits(tree_turns=9), storage=storage)
        assert outcome_of(graph.invoke(GO, THREAD)).reason == "tree_turns"
        again = lead(Limits(tree_turns=9), storage=storage)
        outcome = outcome_of(again.invoke(extend(again.get_state(THREAD), turns=7), THREAD))
    assert outcome.tree is not None
    assert outcome.tree.turns <= 16


def test_an_extension_of_the_tree_adds_to_what_was_used_above_a_lower_limit(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        lead(Limits(tree_turns=9), storage=storage).invoke(GO, THREAD)
        again = lead(Limits(tree_turns=2), storage=storage)
        ends = []
        for _ in range(2):
            outcome = outcome_of(again.invoke(extend(again.get_state(THREAD), turns=3), THREAD))
            assert outcome.tree is not None
            ends.append((outcome.reason, outcome.tree.turns))
    assert ends == [("tree_turns", 12), ("tree_turns", 15)]


@pytest.mark.filterwarnings("ignore::signoff.graph.errors.JournalWarning")
@pytest.mark.parametrize("where", ["sqlite", "no store"])
def test_what_waits_keeps_what_it_has_used(where: str, tmp_path: Path) -> None:
    def asking(messages: list[Any]) -> Any:
        return ASK if sum(map(is_reply, messages)) == 2 else endless(messages)

    with opened(where, tmp_path) as kept:
        graph = lead(Limits(tree_turns=20), asking, beside=3, **kept)
        found = graph.invoke(GO, THREAD)["__interrupt__"]
        # Each has had three turns; the two that wait on are in the ledger while the third goes on.
        values = graph.invoke(Command(resume={found[2].id: "this"}), THREAD)
        assert len(values["__interrupt__"]) == 2
        values = graph.invoke(Command(resume={one.id: "this" for one in found[:2]}), THREAD)
    outcome = outcome_of(values)
    assert outcome.tree is not None
    assert (outcome.reason, outcome.tree.turns) == ("tree_turns", 20)


def test_nothing_is_no_limit_of_zero() -> None:
    with pytest.raises(SetupError, match="tree_turns"):
        Limits(tree_turns=0)
    graph = lead(Limits(tree_turns=1))
    values = graph.invoke(GO)
    assert {marks(found)["not_run"] for found in values["messages"] if found.type == "tool"} == {"tree_turns"}
    assert (outcome_of(values).reason, outcome_of(values).tree) == ("tree_turns", None)


def test_without_delegates_nothing_is_written(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        done = reply(call("finish_task", summary="x"), usage=(1, 1))
        steps = [endless([]), done]
        graph = build_graph(ScriptedModel(steps), [look], limits=Limits(tree_turns=2), storage=storage)
        assert outcome_of(graph.invoke(GO, THREAD)).status == "success"
        assert ledgers(storage) == []
        assert "tree" not in graph.get_state(THREAD).values


def ledgers(storage: SqliteStorage) -> list[dict[str, Any]]:
    return [item.value["machines"] for item in storage.store.search(("signoff", "ledger"))]


def test_the_ledger_says_in_the_end_what_the_outcome_says(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        outcome = outcome_of(lead(Limits(tokens=1_500), storage=storage).invoke(GO, THREAD))
        ((machine,),) = [list(found.values()) for found in ledgers(storage)]
    assert outcome.tree is not None
    assert machine["used"]["tokens"] == outcome.tree.total_tokens
    assert machine["used"]["tree_turns"] == outcome.tree.turns
    assert machine.keys() == {"used", "turn", "reply"}


def test_what_a_rule_read_of_the_ledger_was_saved_before(tmp_path: Path) -> None:
    """Each decision of each machine comes out again from the state before it, without the store."""
    limits, again = Limits(turns=60, repeats=None, prices=PRICES), 0
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = lead(Limits(tree_turns=17), storage=storage)
        graph.invoke(GO, THREAD)
        assert replay(graph, "t").differences == ()
        saved = list(storage.checkpointer.list(THREAD))
        places = {one.config["configurable"]["checkpoint_ns"] for one in saved} - {""}
        assert len(places) == 4
        for place in places:
            config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": place}}
            after: Any = None
            for state in graph.get_state_history(config):
                if after and state.next == (str(State.DECIDE),):
                    values: Any = state.values
                    decided = decide(read(values, deps_of(graph).toolbox), limits)
                    assert decided == after.values["decision"]
                    again += 1
                after = state
    assert again >= 20


def machine(turns: int, others: int = 0) -> tuple[TreeMachine, dict[str, Any]]:
    """A delegate after so many replies of 100 tokens, and a ledger in which another one has used some."""
    messages: list[Any] = [HumanMessage("go", id="go")]
    for n in range(turns):
        usage = {"input_tokens": 90, "output_tokens": 10, "total_tokens": 100}
        calls = [{"name": "look", "args": {"n": n}, "id": f"c{n}"}]
        messages.append(AIMessage("", id=f"r{n}", tool_calls=calls, usage_metadata=usage))
        messages.append(ToolMessage(f"{n}", tool_call_id=f"c{n}", id=f"t{n}"))
    graph = build_graph(ScriptedModel([]), [look])
    task = read({"messages": messages, "outcome": None}, deps_of(graph).toolbox)
    bounds = (TreeBound("", {"tree_turns": 10, "tokens": 1_000}),)
    other = {"b:2": {"used": {"tree_turns": others, "tokens": 100 * others}}}
    return TreeMachine("a:1", task, Limits(turns=60), bounds), other


def test_a_reservation_that_is_made_again_counts_once() -> None:
    one, row = machine(2, others=3)
    once, found = one.deciding(row)
    assert one.deciding(once) == (once, found)
    # In another process the reply may have been asked for.
    once["a:1"]["open"]["by"] = "another"
    assert one.deciding(once)[0]["a:1"]["open"]["again"] == 1
    assert once["a:1"]["open"]["turn"] == 3


@pytest.mark.parametrize(("others", "reserved"), [(6, True), (8, False), (20, False)])
def test_a_turn_begins_only_where_one_is_left(others: int, reserved: bool) -> None:
    one, row = machine(2, others)
    assert ("open" in one.deciding(row)[0]["a:1"]) is reserved


def test_a_reply_that_a_crash_cut_short_is_lost_once_and_no_turn() -> None:
    one, row = machine(2)
    row, _ = one.deciding(row)
    # The process ends in the model call; another one begins it again, and a third one once more.
    for _ in range(2):
        row, _ = one.begun_again(row, calling=True)
        row, _ = one.deciding(row)
    after, _ = machine(3)
    row, found = after.deciding(row)
    assert row["a:1"]["lost"] == {"tokens": 200, "cost": 0}
    assert (row["a:1"]["used"]["tokens"], row["a:1"]["used"]["tree_turns"]) == (300, 3)
    assert replace(after.task, tree=found).lost("tokens") == 200
    assert replace(after, task=replace(after.task, tree=found)).deciding(row)[0] == row


def test_what_is_lost_below_counts_above() -> None:
    one, _ = machine(2)
    budget = TreeBudget(task=one.task.id, above={}, lost={"tokens": 50, "cost": 0.5})
    lost = replace(one.task, tree=budget)
    assert used_by(lost, None)["tokens"] == used_by(one.task, None)["tokens"] + 50 == 250
    assert used_by(lost, PRICES)["cost"] == pytest.approx(used_by(one.task, PRICES)["cost"] + 0.5)


def test_a_reply_that_was_settled_and_not_saved_is_lost_too() -> None:
    before, row = machine(2)
    row, _ = before.deciding(row)
    after, _ = machine(3)
    row, _ = after.replied(row, 1)
    assert row["a:1"]["used"]["tokens"] == 300
    # The process ends before the reply is in the history; another one asks for it again.
    row, _ = before.begun_again(row, calling=True)
    row, found = after.replied(row, 1)
    assert (row["a:1"]["used"]["tokens"], row["a:1"]["lost"]["tokens"]) == (300, 100)
    assert found["lost"]["tokens"] == 100


def test_each_reply_after_one_that_was_settled_and_not_saved_is_lost_too() -> None:
    before, row = machine(2)
    row, _ = before.deciding(row)
    after, _ = machine(3)
    row, _ = after.replied(row, 1)
    # The process ends before the reply is in the history, and so does the next one, as it asks again.
    for _ in range(2):
        row, _ = before.begun_again(row, calling=True)
    row, found = after.replied(row, 1)
    assert row["a:1"]["used"]["tokens"] == 300
    assert row["a:1"]["lost"]["tokens"] == found["lost"]["tokens"] == 200


def test_a_reply_that_has_arrived_is_not_begun_again() -> None:
    """Its calls are still open: it is settled after them."""
    before, row = machine(2)
    row, _ = before.deciding(row)
    row["a:1"]["open"]["by"] = "another"
    after, _ = machine(3)
    assert after.begun_again(row, calling=False)[0] == row


def confirmed(n: int) -> str:
    """Works, once a person has said so."""
    return str(interrupt({"type": "question", "question": f"{n}?", "options": []}))


def in_another_process(work: Callable[[], object]) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("limits", [Limits(tokens=10_000), Limits(tokens=10_000, tool_calls=50)])
def test_answers_in_other_processes_cost_no_reply(limits: Limits, tmp_path: Path) -> None:
    work = [reply(call("confirmed", n=n), usage=(90, 10)) for n in range(3)]

    def step(answer: str | None) -> dict[str, Any]:
        with sqlite_storage(tmp_path / "threads.sqlite") as storage:
            done = reply(call("finish_task", summary="Done."), usage=(90, 10))
            child = build_graph(scripted_by_replies([*work, done]), [confirmed])
            team = [delegate("worker", child, description="Works.")]
            called = reply(call("worker", task="go"), usage=(90, 10))
            top = scripted_by_replies([called, done])
            graph = build_graph(top, team, limits=limits, storage=storage)
            given = GO if answer is None else Command(resume=answer)
            found: dict[str, Any] = graph.invoke(given, THREAD)
            return found

    in_another_process(lambda: step(None))
    for _ in range(2):
        in_another_process(lambda: step("yes"))
    outcome = outcome_of(step("yes"))
    assert outcome.tree is not None
    assert (outcome.status, outcome.tree.turns, outcome.tree.total_tokens) == ("success", 6, 600)


def scripted_by_replies(replies: Sequence[Any]) -> ScriptedModel:
    """A model that finds its place in the script by the history, whichever process asks it."""
    return ScriptedModel(lambda messages: replies[sum(isinstance(one, AIMessage) for one in messages)])


class SideBySide(TypedDict):
    messages: Annotated[list[Any], operator.add]


@pytest.mark.parametrize("deeper", [False, True])
@pytest.mark.parametrize("stored", [True, False])
def test_machines_in_a_tool_share_what_is_left(stored: bool, deeper: bool, tmp_path: Path) -> None:
    ran = list[int]()

    def slow(n: int) -> str:
        """Looks for a while."""
        ran.append(n)
        time.sleep(0.02)
        return f"{n}"

    def two(messages: list[Any]) -> Any:
        return reply(call("slow", n=len(messages)), call("slow", n=-len(messages)))

    builder = StateGraph(SideBySide)
    for name in ("a", "b"):
        below = build_graph(ScriptedModel(two), [slow], limits=Limits(turns=8))
        if deeper:
            # Each calls one delegate, which is alone below it, and not in the tree.
            called = scripted_by_replies([call("worker", task="go"), *[FAILED] * 9])
            below = build_graph(called, [delegate("worker", below, description="Works.")])
        builder.add_node(name, below)
        builder.add_edge(START, name)
    inside: Any = builder.compile()

    def both(task: str) -> str:
        """Does both at once."""
        inside.invoke({"messages": [("user", task)]})
        return "done"

    steps = [call("both", task="go"), call("finish_task", summary="Done.")]
    made = delegate("helper", build_graph(ScriptedModel(steps), [both]), description="Works.")
    steps = [call("helper", task="go"), call("finish_task", summary="Done.")]
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = build_graph(
            ScriptedModel(steps), [made], limits=Limits(tool_calls=9), storage=storage if stored else None
        )
        graph.invoke(GO, THREAD)
    # Of nine calls, those of delegates count, too.
    assert len(ran) == (6 if deeper else 8)
