"""Actions that delegates hand over: each is noted for the machine that made it, and told as unknown once
somebody may have done it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolCall
from langchain_core.tools import tool

from signoff import Action, Finished, Session, build_graph, delegate, sqlite_storage
from signoff.graph.build import Graph
from signoff.models import ScriptedModel, call
from signoff.session.status import look
from signoff.storage.sqlite import SqliteStorage

DONE = call("finish_task", summary="Done.")


@tool
def pay(to: str) -> str:
    """Pay."""
    raise AssertionError("the driver does it")


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def says(*calls: tuple[str, dict[str, Any], str]) -> Any:
    """A reply with these calls, each with its own id."""
    return AIMessage("", tool_calls=[ToolCall(name=name, args=args, id=own) for name, args, own in calls])


def by_turn(*steps: Any) -> ScriptedModel:
    """Says these, one after the other, in whatever process a thread goes on."""
    return ScriptedModel(lambda messages: steps[sum(isinstance(one, AIMessage) for one in messages)])


def payer(call_id: str) -> Graph:
    return build_graph(by_turn(says(("pay", {"to": "x"}, call_id)), DONE), [pay], hand_over=["pay"])


def lead(storage: SqliteStorage, below: Graph, *more: Any) -> Graph:
    """Calls one delegate under the id `call_0`, and what more there is in the same reply."""
    made = delegate("below", below, description="Works.")
    model = by_turn(says(("below", {"task": "Go."}, "call_0"), *more), DONE)
    return build_graph(model, [made, pay], hand_over=["pay"], storage=storage)


def deeper(call_id: str) -> Graph:
    model = by_turn(says(("deep", {"task": "Go."}, "call_0")), DONE)
    return build_graph(model, [delegate("deep", payer(call_id), description="Works.")])


@pytest.mark.parametrize("call_id", ["call_0", "call_1"])
@pytest.mark.parametrize("make", [payer, deeper])
def test_an_action_that_is_handed_out_again_is_unknown_and_its_answer_arrives(
    make: Any, call_id: str, storage: SqliteStorage
) -> None:
    """A provider may give the call of a delegate, and a call in it, the very same id."""
    graph = lead(storage, make(call_id))
    first, again = Session(graph, "t").run("go"), Session(graph, "t").run()
    assert isinstance(first, Action)
    assert isinstance(again, Action)
    assert (first.unknown, again.unknown) == (False, True)
    decision = Session(graph, "t").resume("paid it")
    assert isinstance(decision, Finished)
    told = [message.text for message in look(graph, "t").values["messages"] if message.type == "tool"]
    assert told[0] == "below is done (asserted). Done."


def test_actions_beside_each_other_are_told_apart(storage: SqliteStorage) -> None:
    """The parent's own action has the id of its delegate's, and waits after it."""
    session = Session(lead(storage, payer("call_1"), ("pay", {"to": "mine"}, "call_1")), "t")
    first = session.run("go")
    assert isinstance(first, Action)
    mine = session.resume("paid x", first.interrupt_id)
    assert isinstance(mine, Action)
    assert [(one.path, one.unknown) for one in (first, mine)] == [(("below",), False), ((), False)]
    assert isinstance(session.resume("paid mine"), Finished)
    results = {m.tool_call_id: m.text for m in session.status().values["messages"] if m.type == "tool"}
    assert results["call_1"] == "paid mine"


def two(storage: SqliteStorage) -> Graph:
    made = [delegate(name, payer("call_0"), description="Works.") for name in ("a", "b")]
    calls = says(("a", {"task": "Go."}, "call_0"), ("b", {"task": "Go."}, "call_1"))
    return build_graph(by_turn(calls, DONE), made, storage=storage)


def test_all_that_wait_are_noted_for_whoever_drives_next(storage: SqliteStorage) -> None:
    session = Session(two(storage), "t")
    first = session.run("go")
    assert isinstance(first, Action)
    # One driver does both, one after the other.
    second = session.resume("paid a", first.interrupt_id)
    assert isinstance(second, Action)
    assert (first.unknown, second.unknown) == (False, False)
    # Another one cannot know what that one has done.
    found = Session(two(storage), "t").run()
    assert isinstance(found, Action)
    assert found.unknown


def test_a_driver_that_died_may_have_done_any_of_them(storage: SqliteStorage) -> None:
    Session(two(storage), "t").run("go")
    other = Session(two(storage), "t")
    first = other.run()
    assert isinstance(first, Action)
    second = other.resume("paid a", first.interrupt_id)
    assert isinstance(second, Action)
    assert (first.unknown, second.unknown) == (True, True)
