"""A plain message approves nothing, and of two waits each takes the answer with its id alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command

from signoff import (
    Approval,
    Graph,
    Session,
    Waiting,
    build_graph,
    delegate,
    outcome_of,
    sqlite_storage,
)
from signoff.models import ScriptedModel, call
from tests.support.plays import FINISH, GO, THREAD
from tests.support.ways import SESSION_WAYS, WAYS

# A delegate has no storage of its own: it waits in that of the thread.
pytestmark = pytest.mark.filterwarnings("ignore::signoff.graph.errors.ApprovalWarning")
some_ways = pytest.mark.parametrize("way", ["invoke", "astream", "Session.run", "Session.aevents"])
PAY, CONFIRM = call("pay", amount=5), call("finish_task", summary="x", requires_user_confirmation=True)
BARE = ["yes", "Yes.", " ok ", "approve", "OK!"]


class Bank:
    """A graph that has a person approve each payment, alone or by one of two delegates that wait at once."""

    def __init__(self, storage: Any) -> None:
        self.storage, self.paid = storage, list[int]()

    def pay(self, amount: int) -> str:
        """Pay."""
        self.paid.append(amount)
        return f"paid {amount}"

    def one(self, *script: Any) -> Graph:
        graph = build_graph(
            ScriptedModel([*script, FINISH]), [self.pay], approvals={"pay": True}, storage=self.storage
        )
        graph.invoke(GO, THREAD)
        return graph

    def two(self) -> Graph:
        asker = build_graph(ScriptedModel([call("ask_user", question="Which year?"), FINISH]))
        payer = build_graph(ScriptedModel([PAY, FINISH]), [self.pay], approvals={"pay": True})
        team = [delegate("asker", asker, description="Asks."), delegate("payer", payer, description="Pays.")]
        both: Any = [call("asker", task="ask"), call("payer", task="pay")]
        graph = build_graph(ScriptedModel([both, FINISH]), team, storage=self.storage)
        graph.invoke(GO, THREAD)
        return graph


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Bank]:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        yield Bank(storage)


def say(graph: Graph, way: str, text: str) -> Any:
    return WAYS[way](graph, text if way in SESSION_WAYS else {"messages": [("user", text)]}, THREAD)


def waits_of(graph: Graph) -> list[str]:
    return [wait.id for wait in graph.get_state(THREAD).interrupts]


@some_ways
@pytest.mark.parametrize(("first", "paid"), [(PAY, [5]), (CONFIRM, [])], ids=["a call", "a finish"])
def test_a_bare_yes_changes_nothing_and_says_how_to_answer(
    bank: Bank, first: Any, paid: list[int], way: str
) -> None:
    graph = bank.one(first)
    before, ids = graph.get_state(THREAD), waits_of(graph)
    for word in BARE:
        say(graph, way, word)
        assert (graph.get_state(THREAD).config, waits_of(graph)) == (before.config, ids)
    decision = Session(graph, "t").run("yes")
    assert isinstance(decision, Approval)
    assert "its id" in decision.problem
    assert bank.paid == []
    graph.invoke(Command(resume={decision.interrupt_id: "yes"}), THREAD)
    assert (bank.paid, outcome_of(graph.get_state(THREAD)).status) == (paid, "success")


@some_ways
def test_one_message_to_two_waits_answers_none(bank: Bank, way: str) -> None:
    graph = bank.two()
    before, ids = graph.get_state(THREAD), waits_of(graph)
    for text in ("2024", "yes", "No, stop both."):
        say(graph, way, text)
        assert waits_of(graph) == ids
        assert graph.get_state(THREAD).values["messages"] == before.values["messages"]
    decision = Session(graph, "t").run("2024")
    assert isinstance(decision, Waiting)
    assert "its id" in decision.problem
    assert all("its id" in wait.value["problem"] for wait in graph.invoke(GO, THREAD)["__interrupt__"])
    assert (len(ids), bank.paid) == (2, [])
