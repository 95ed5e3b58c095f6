"""What is told of a tree that was stopped, or superseded, at work: what all below have used and changed."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool

from signoff import Outcome, Session, build_graph, delegate, sqlite_storage
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
    # The outcome, too, is of a task whose calls have their answers; what was open is its open work.
    assert outcome.tree is not None
    assert (outcome.tree.turns, outcome.tree.tool_calls) == (case.turns, case.calls)
    may = [change.came for change in outcome.changes]
    assert may == (["ok", "unknown"] if case.changed else ["ok"])
    assert outcome.open_work == ["below({'task': 'Go.'})"]


def outcome_of_stop(session: Session, way: str) -> Outcome:
    ended: Any = session.stop() if way == "sync" else asyncio.run(session.astop())
    found: Outcome = ended.outcome
    return found
