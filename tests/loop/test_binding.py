"""A person's decision, a driver's action and the journal are bound to exactly the call that was meant."""

from collections.abc import Callable, Iterator
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import Command, interrupt

from signoff import build_graph, sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.messages import marks
from signoff.models import ScriptedModel, call
from signoff.nodes.journal import recorded
from signoff.storage.sqlite import SqliteStorage
from tests.support.interrupting import interrupt_process

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "go")]}
FINISH = call("finish_task", summary="x")


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def tool_of(kind: str, name: str, work: Callable[..., str]) -> BaseTool:
    return StructuredTool.from_function(work, name=name, description=name, metadata={"kind": kind})


class Ledger:
    """Two tools that note what ran: `pay`, of a kind that is given, and `wire`."""

    def __init__(self, kind: str = "write") -> None:
        self.ran: list[Any] = []
        self.tools = [tool_of(kind, "pay", self.pay), tool_of(kind, "wire", self.wire)]

    def pay(self, n: int) -> str:
        self.ran.append(("pay", n))
        return f"paid {n}"

    def wire(self, n: int) -> str:
        self.ran.append(("wire", n))
        return f"wired {n}"


def told(values: dict[str, Any]) -> list[str]:
    return [str(m.text) for m in values["messages"] if isinstance(m, ToolMessage)][:-1]


def change_arguments(graph: Graph, n: int, **where: Any) -> None:
    reply = next(m for m in graph.get_state(THREAD).values["messages"] if isinstance(m, AIMessage))
    changed = {**reply.tool_calls[0], "args": {"n": n}}
    graph.update_state(THREAD, {"messages": [reply.model_copy(update={"tool_calls": [changed]})]}, **where)


@pytest.mark.parametrize("kind", ["read", "write"])
def test_edited_arguments_are_what_runs(kind: str, storage: SqliteStorage) -> None:
    ledger = Ledger(kind)
    script = [call("pay", n=1), FINISH]
    graph = build_graph(ScriptedModel(script), ledger.tools, approvals={"pay": True}, storage=storage)
    graph.invoke(GO, THREAD)
    edit = {"type": "edit", "edited_action": {"name": "pay", "args": {"n": 9}}}
    result = graph.invoke(Command(resume=[edit]), THREAD)
    assert ledger.ran == [("pay", 9)]
    assert told(result) == ['(The user changed the arguments to {"n": 9}.)\npaid 9']


def test_an_answer_counts_only_for_the_arguments_that_were_shown(storage: SqliteStorage) -> None:
    ledger = Ledger()
    script = [call("pay", n=1), FINISH]
    graph = build_graph(ScriptedModel(script), ledger.tools, approvals={"pay": True}, storage=storage)
    (asked,) = graph.invoke(GO, THREAD)["__interrupt__"]
    change_arguments(graph, 1_000_000, as_node="route_tools")
    (again,) = graph.invoke(Command(goto="approve", resume={asked.id: "approve"}), THREAD)["__interrupt__"]
    assert ledger.ran == []
    assert again.value["action_requests"][0]["args"] == {"n": 1_000_000}


def test_an_answer_counts_only_for_the_calls_that_were_shown(storage: SqliteStorage) -> None:
    ledger = Ledger()
    script: list[Any] = [[call("pay", n=1), call("wire", n=5)], FINISH]
    first = build_graph(ScriptedModel(script), ledger.tools, approvals={"pay": True}, storage=storage)
    (asked,) = first.invoke(GO, THREAD)["__interrupt__"]
    second = build_graph(ScriptedModel([FINISH]), ledger.tools, approvals={"wire": True}, storage=storage)
    (again,) = second.invoke(Command(resume={asked.id: "approve"}), THREAD)["__interrupt__"]
    assert ledger.ran == []
    assert "the calls have changed" in again.value["problem"]
    assert again.value["action_requests"][0]["name"] == "wire"


def test_a_handed_over_read_is_never_run_by_the_graph(storage: SqliteStorage) -> None:
    ledger = Ledger("read")
    script: list[Any] = [[call("pay", n=1), call("wire", n=5)], FINISH]
    graph = build_graph(ScriptedModel(script), ledger.tools, hand_over=["wire"], storage=storage)
    (action,) = graph.invoke(GO, THREAD)["__interrupt__"]
    assert (action.value["tool"], ledger.ran) == ("wire", [("pay", 1)])


def test_a_stop_comes_before_an_approval(storage: SqliteStorage) -> None:
    ledger = Ledger()
    graph = build_graph(
        ScriptedModel([call("pay", n=1)]), ledger.tools, approvals={"pay": True}, storage=storage
    )
    graph.invoke(GO, THREAD)
    task = graph.get_state(THREAD).values["task"]
    graph.update_state(THREAD, {"stop": task}, as_node="approve")
    assert graph.invoke(None, THREAD)["outcome"]["reason"] == "cancelled"
    assert ledger.ran == []


@pytest.mark.parametrize("limit", [None, 120.0])
def test_parallel_reads_that_ask_get_each_their_own_answer(
    limit: float | None, storage: SqliteStorage
) -> None:
    def slow() -> str:
        sleep(0.2)
        return f"slow: {interrupt('the slow question')}"

    def quick() -> str:
        return f"quick: {interrupt('the quick question')}"

    tools = [tool_of("read", "slow", slow), tool_of("read", "quick", quick)]
    model = ScriptedModel([[call("slow"), call("quick")], FINISH])
    graph = build_graph(model, tools, storage=storage, tool_seconds=limit)
    given: Any = GO
    for _ in range(2):
        (asked,) = graph.invoke(given, THREAD)["__interrupt__"]
        given = Command(resume={asked.id: f"answer to {asked.value}"})
    result = graph.invoke(given, THREAD)
    assert told(result) == ["slow: answer to the slow question", "quick: answer to the quick question"]
    # Then they run one after the other, and each counts its own seconds.
    slow_took, quick_took = [marks(m)["seconds"] for m in result["messages"] if "seconds" in marks(m)][1:3]
    assert slow_took >= 0.2 > quick_took


def test_the_journal_is_bound_to_the_arguments(storage: SqliteStorage) -> None:
    """A fork from before the call, with other arguments under the same ids."""
    ledger = Ledger()
    graph = build_graph(ScriptedModel([call("pay", n=1), FINISH, FINISH]), ledger.tools, storage=storage)
    graph.invoke(GO, THREAD)
    before = next(s for s in graph.get_state_history(THREAD) if s.next == ("execute",))
    reply = before.values["messages"][-1]
    changed = reply.model_copy(update={"tool_calls": [{**reply.tool_calls[0], "args": {"n": 7}}]})
    fork = graph.update_state(before.config, {"messages": [changed], "event": "work"}, as_node="route_tools")
    result = graph.invoke(None, fork)
    assert ledger.ran == [("pay", 1), ("pay", 7)]
    assert told(result) == ["paid 7"]


class CutShort:
    """A tool whose process dies in it the first time."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.tool = tool_of("write", "pay", self.pay)

    def pay(self, n: int) -> str:
        self.paid.append(n)
        if len(self.paid) == 1:
            interrupt_process()
        return f"paid {n}"


def test_an_unknown_outcome_names_the_arguments_that_ran(storage: SqliteStorage) -> None:
    cut = CutShort()
    model = ScriptedModel([call("pay", n=1), FINISH])
    graph = build_graph(model, [cut.tool], approvals={"pay": True}, storage=storage)
    graph.invoke(GO, THREAD)
    edit = {"type": "edit", "edited_action": {"name": "pay", "args": {"n": 500}}}
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(Command(resume=[edit]), THREAD)
    (text,) = told(graph.invoke(None, THREAD))
    assert "Outcome unknown" in text
    assert '"n": 500' in text


def test_a_message_while_an_unknown_outcome_is_asked_about_is_the_answer(storage: SqliteStorage) -> None:
    cut = CutShort()
    graph = build_graph(
        ScriptedModel([call("pay", n=1), FINISH]), [cut.tool], unknown_outcomes="ask", storage=storage
    )
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(GO, THREAD)
    assert graph.invoke(None, THREAD)["__interrupt__"]
    result = graph.invoke({"messages": [("user", "I looked: it went through.")]}, THREAD)
    assert told(result)[0].endswith("I looked: it went through.")
    assert [outcome.status for outcome in recorded(storage.store, "t")] == ["success"]


def test_asking_about_an_unknown_outcome_allows_no_more_than_the_policy(storage: SqliteStorage) -> None:
    cut = CutShort()
    graph = build_graph(
        ScriptedModel([call("pay", n=1), FINISH]),
        [cut.tool],
        approvals={"pay": ["approve", "reject"]},
        unknown_outcomes="ask",
        storage=storage,
    )
    graph.invoke(GO, THREAD)
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(Command(resume=["approve"]), THREAD)
    (asked,) = graph.invoke(None, THREAD)["__interrupt__"]
    assert asked.value["review_configs"][0]["allowed_decisions"] == ["approve", "reject"]


def test_a_call_that_paused_in_the_middle_is_not_told_as_not_run(storage: SqliteStorage) -> None:
    paid: list[str] = []

    def pay() -> str:
        paid.append("pay")
        return str(interrupt("the receipt?"))

    graph = build_graph(ScriptedModel([call("pay"), FINISH]), [tool_of("write", "pay", pay)], storage=storage)
    graph.invoke(GO, THREAD)
    result = graph.invoke({"messages": [("user", "never mind")]}, THREAD)
    assert paid == ["pay"]
    assert told(result)[0].startswith("Outcome unknown")
