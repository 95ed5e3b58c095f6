"""Forks and copies of a tree: they have its delegates, and do none of their work again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.tools import tool

from signoff import Action, Finished, Limits, Question, Session, build_graph, delegate, sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.messages import is_reply
from signoff.models import ScriptedModel, call
from signoff.session.copying import namespaces_below
from signoff.storage.sqlite import SqliteStorage

DONE = call("finish_task", summary="Done.")
ASK = call("ask_user", question="Go on?")


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def by_turn(*steps: Any) -> ScriptedModel:
    """Says these, one after the other, in every thread anew."""

    def script(messages: list[BaseMessage]) -> Any:
        return steps[sum(map(is_reply, messages))]

    return ScriptedModel(script)


def team(storage: SqliteStorage, paid: list[str]) -> Graph:
    """Pays here, then two delegates pay, one of them two levels deep, and both ask."""

    @tool
    def pay(to: str) -> str:
        """Pay."""
        paid.append(to)
        return f"paid {to}"

    deep = build_graph(by_turn(call("pay", to="deep"), ASK, DONE), [pay])
    left = build_graph(
        by_turn(call("pay", to="left"), call("deep", task="Go."), DONE),
        [pay, delegate("deep", deep, description="Works.")],
    )
    right = build_graph(by_turn(call("pay", to="right"), ASK, call("pay", to="right again"), DONE), [pay])
    made = [delegate(name, graph, description="Works.") for name, graph in (("left", left), ("right", right))]
    calls = [call("left", task="Go."), call("right", task="Go.")]
    model = by_turn(call("pay", to="top"), calls, call("pay", to="top again"), DONE)
    return build_graph(model, [pay, *made], limits=Limits(tree_turns=50), storage=storage)


FIRST = ["deep", "left", "right", "top"]


def to_the_end(session: Session, decision: Any) -> None:
    for _ in range(3):
        if not isinstance(decision, Question):
            break
        decision = session.resume("yes", decision.interrupt_id)
    assert isinstance(decision, Finished)
    assert decision.outcome.tree is not None
    assert decision.outcome.tree.turns == 4 + 3 + 3 + 4


def test_a_fork_waits_for_the_same_and_both_end_with_each_effect_once(storage: SqliteStorage) -> None:
    paid: list[str] = []
    session = Session(team(storage, paid), "t")
    first = session.run("go")
    assert sorted(paid) == FIRST
    copy = session.fork(thread_id="copy")
    waits = copy.run()
    assert isinstance(waits, Question)
    assert {one.path for one in copy.status().waits} == {("left", "deep"), ("right",)}
    assert sorted(paid) == FIRST
    to_the_end(copy, waits)
    assert sorted(paid) == sorted([*FIRST, "right again", "top again"])
    # What the copy did is not in the thread that it was made of.
    to_the_end(session, first)
    assert sorted(paid) == sorted([*FIRST, *["right again", "top again"] * 2])


def test_a_fork_of_an_earlier_point_has_what_was_called_by_then(storage: SqliteStorage) -> None:
    paid: list[str] = []
    session = Session(team(storage, paid), "t")
    to_the_end(session, session.run("go"))
    saver, done = storage.checkpointer, sorted(paid)
    before = session.fork(at=1, thread_id="before")
    assert namespaces_below(saver, "before") == []
    after = session.fork(at=2, thread_id="after")
    assert namespaces_below(saver, "after") == namespaces_below(saver, "t")
    assert isinstance(after.run(), Finished)
    # Only what came after that point is done once more.
    assert sorted(paid) == sorted([*done, "top again"])
    to_the_end(before, before.run())
    assert sorted(paid) == sorted([*done, "top again", "deep", "left", "right", "right again", "top again"])


def test_a_fork_knows_what_its_delegates_had_begun(storage: SqliteStorage) -> None:
    """Their journals are copied: what may have been done in the first thread is not done unseen again."""

    @tool
    def pay(to: str) -> str:
        """Pay."""
        raise AssertionError("the driver does it")

    below = build_graph(by_turn(call("pay", to="x"), DONE), [pay], hand_over=["pay"])
    made = delegate("below", below, description="Works.")
    session = Session(build_graph(by_turn(call("below", task="Go."), DONE), [made], storage=storage), "t")
    first = session.run("go")
    copied = session.fork(thread_id="copy").run()
    assert isinstance(first, Action)
    assert isinstance(copied, Action)
    assert (first.unknown, copied.unknown) == (False, True)
