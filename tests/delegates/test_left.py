"""What is told of a tree that has ended by itself, was stopped, or superseded: what all below have used and
changed."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool

from signoff import Finished, Outcome, Session, build_graph, delegate, sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.messages import marks
from signoff.models import ScriptedModel, call
from signoff.nodes.journal import recorded
from signoff.storage.sqlite import SqliteStorage

DONE = call("finish_task", summary="Done.")
ASK = call("ask_user", question="Which one?")


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


@tool
def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


def payer(*then: Any, **options: Any) -> Graph:
    return build_graph(ScriptedModel([call("pay", to="x"), *then]), [pay], **options)


def over(name: str, below: Graph, **options: Any) -> Graph:
    """A graph that has paid, and calls one delegate."""
    made = delegate(name, below, description="Works.")
    model = ScriptedModel([call("pay", to="y"), call(name, task="Go."), DONE])
    return build_graph(model, [made, pay], **options)


@dataclass
class Left:
    """What stands below the graph at the top when it is ended; what the result of its call lists; and the
    turns and calls of the whole tree."""

    below: Callable[[], Graph]
    changed: str
    turns: int
    calls: int


CASES = {
    "one that asks": Left(lambda: payer(ASK), "pay(to='x') (ok)", 2 + 2, 2 + 1),
    "one whose delegate asks": Left(
        lambda: over("deep", payer(ASK)),
        "pay(to='y') (ok); deep(task='Go.') (unknown); deep / pay(to='x') (ok)",
        2 + 2 + 2,
        2 + 2 + 1,
    ),
    "three levels": Left(
        lambda: over("middle", over("deep", payer(ASK))),
        "pay(to='y') (ok); middle(task='Go.') (unknown); middle / pay(to='y') (ok); "
        "middle / deep(task='Go.') (unknown); middle / deep / pay(to='x') (ok)",
        2 + 2 + 2 + 2,
        2 + 2 + 2 + 1,
    ),
    "an action that was handed out may be done": Left(
        lambda: over("deep", payer(hand_over=["pay"])),
        "pay(to='y') (ok); deep(task='Go.') (unknown); deep / pay(to='x') (unknown)",
        2 + 2 + 1,
        2 + 2 + 1,
    ),
    "one that may change nothing here": Left(lambda: build_graph(ScriptedModel([ASK])), "", 2 + 1, 2),
}


@pytest.mark.parametrize("how", ["stopped", "superseded"])
@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("name", CASES)
def test_what_all_below_have_used_and_changed_is_told(
    name: str, way: str, how: str, storage: SqliteStorage
) -> None:
    case = CASES[name]
    session = Session(over("below", case.below(), storage=storage), "t", on_pending="supersede")
    session.run("go")
    if how == "stopped":
        outcome: Outcome = outcome_of_stop(session, way)
    else:
        session.run("Something else.") if way == "sync" else asyncio.run(session.arun("Something else."))
        outcome = recorded(storage.store, "t")[0]
    told = next(
        message
        for message in session.status().values["messages"]
        if isinstance(message, ToolMessage) and message.name == "below"
    )
    assert told.text.partition("What it may have changed: ")[2] == case.changed
    assert marks(told)["delegate"]["used"]["turns"] == case.turns - 2
    assert outcome.reason == {"stopped": "cancelled"}.get(how, how)
    # The outcome, too, is of a task whose calls have answers; a delegate that has begun is no open work.
    assert outcome.tree is not None
    assert (outcome.tree.turns, outcome.tree.tool_calls) == (case.turns, case.calls)
    below = [f"below / {one}" for one in case.changed.split("; ") if one]
    own = ["pay(to='y') (ok)", *(["below(task='Go.') (unknown)"] if below else [])]
    assert changes(outcome) == [*own, *below]
    assert outcome.open_work == []


def changes(outcome: Outcome) -> list[str]:
    return [f"{change.call} ({change.came})" for change in outcome.changes]


GIVES_UP = call("finish_task", summary="No way.", outcome="blocked")
BY_ITSELF: dict[str, tuple[Callable[[], Graph], list[str]]] = {
    "one that is done": (lambda: payer(DONE), ["below(task='Go.') (ok)", "below / pay(to='x') (ok)"]),
    "one that gives up": (lambda: payer(GIVES_UP), ["below(task='Go.') (error)", "below / pay(to='x') (ok)"]),
    "one that reaches its limit": (
        lambda: payer(limits={"turns": 1}),
        ["below(task='Go.') (error)", "below / pay(to='x') (ok)"],
    ),
    "one whose delegate gives up": (
        lambda: over("deep", payer(GIVES_UP), limits={"turns": 2}),
        [
            *("below(task='Go.') (error)", "below / pay(to='y') (ok)"),
            *("below / deep(task='Go.') (error)", "below / deep / pay(to='x') (ok)"),
        ],
    ),
    "one that gives up on a delegate that is done": (
        lambda: over("deep", payer(DONE), limits={"turns": 2}),
        [
            *("below(task='Go.') (error)", "below / pay(to='y') (ok)"),
            *("below / deep(task='Go.') (ok)", "below / deep / pay(to='x') (ok)"),
        ],
    ),
    "the last eight": (
        lambda: build_graph(
            ScriptedModel([[call("pay", to=str(n)) for n in range(9)], GIVES_UP]), [pay], name="many"
        ),
        [f"below / pay(to='{n}') (ok)" for n in range(1, 9)],
    ),
    "one that may change nothing": (lambda: build_graph(ScriptedModel([GIVES_UP])), []),
}


@pytest.mark.parametrize("name", BY_ITSELF)
def test_what_a_delegate_that_ended_by_itself_has_changed_is_in_the_outcome(
    name: str, storage: SqliteStorage
) -> None:
    below, expected = BY_ITSELF[name]
    ended = Session(over("below", below(), storage=storage, limits={"turns": 2}), "t").run("go")
    assert isinstance(ended, Finished)
    assert changes(ended.outcome) == ["pay(to='y') (ok)", *expected][-8:]


def test_one_that_had_ended_when_the_tree_was_stopped_has_told_all(storage: SqliteStorage) -> None:
    """Of two delegates one has given up, and the other waits: its result is in no history yet."""
    names = {"over": over("deep", payer(GIVES_UP), limits={"turns": 2}), "asks": payer(ASK)}
    team = [delegate(name, graph, description="Works.") for name, graph in names.items()]
    model = ScriptedModel([[call(name, task="Go.") for name in names], DONE])
    session = Session(build_graph(model, team, storage=storage), "t")
    session.run("go")
    ended: Any = session.stop()
    assert changes(ended.outcome) == [
        *("over(task='Go.') (error)", "over / pay(to='y') (ok)", "over / deep(task='Go.') (error)"),
        *("over / deep / pay(to='x') (ok)", "asks(task='Go.') (unknown)", "asks / pay(to='x') (ok)"),
    ]


def outcome_of_stop(session: Session, way: str) -> Outcome:
    ended: Any = session.stop() if way == "sync" else asyncio.run(session.astop())
    found: Outcome = ended.outcome
    return found
