"""What delegates have done is undone with the task that called them, in the reverse of the order in which all
of it was done."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import interrupt

from signoff import (
    Approval,
    Finished,
    Question,
    Session,
    build_graph,
    delegate,
    extend,
    outcome_of,
    sqlite_storage,
    undo,
)
from signoff.graph.machine import Event
from signoff.models import ScriptedModel, call, reply
from signoff.storage.sqlite import SqliteStorage

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "go")]}
DONE = call("finish_task", summary="Done below.")


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


class World:
    def __init__(self) -> None:
        self.done: list[str] = []
        self.taken: list[str] = []
        self.one_by_one = threading.Lock()

    def act(self) -> BaseTool:
        def act(what: str) -> str:
            """Act."""
            # Of two that end in the same moment neither is the newer one.
            with self.one_by_one:
                self.done.append(what)
                time.sleep(0.03)
            return f"did {what}"

        tool = StructuredTool.from_function(act)
        tool.metadata = {"undo": lambda args, result: self.taken.append(args["what"])}
        return tool


def below(name: str, world: World, script: list[Any], *tools: BaseTool, **options: Any) -> BaseTool:
    graph = build_graph(ScriptedModel(script), [world.act(), *tools], **options)
    return delegate(name, graph, description="Works.")


def act(what: str) -> Any:
    return call("act", what=what)


def test_effects_of_the_whole_tree_are_undone_the_newest_first(storage: SqliteStorage) -> None:
    world = World()
    deep = below("deep", world, [act("deep 1"), act("deep 2"), DONE])
    left = below("left", world, [act("left 1"), call("deep", task="go"), act("left 2"), DONE], deep)
    right = below("right", world, [act("right 1"), act("right 2"), DONE])
    script = [act("top 1"), reply(call("left", task="go"), call("right", task="go")), act("top 2")]
    options: dict[str, Any] = {"storage": storage, "limits": {"turns": 3}, "on_failure": "undo"}
    graph = build_graph(ScriptedModel(script), [world.act(), left, right], **options)
    outcome = outcome_of(graph.invoke(GO, THREAD))
    assert len(world.done) == 8
    assert world.taken == world.done[::-1]
    assert outcome.undo is not None
    paths = {one.call: one.path for one in outcome.undo.undone}
    assert paths["act(what='deep 2')"] == ["left", "deep"]
    assert (paths["act(what='right 1')"], paths["act(what='top 1')"]) == (["right"], [])
    assert outcome.undo.standing == []
    # The results of the calls of delegates say what of theirs was undone.
    model = ScriptedModel([DONE])
    graph = build_graph(model, [world.act(), left, right], **options)
    graph.invoke(extend(graph.get_state(THREAD), 1), THREAD)
    shown = [message.text for message in model.seen[0].messages if isinstance(message, ToolMessage)]
    assert all(f"act(what='{what}')" in shown[1] for what in ("left 1", "left 2", "deep 1", "deep 2"))
    assert "act(what='right 2')" in shown[2]
    assert "left" in model.seen[0].messages[-1].text


def test_a_delegate_that_fails_alone_is_not_undone(storage: SqliteStorage) -> None:
    world = World()
    child = below("child", world, [act("a"), act("b")], limits={"turns": 2}, on_failure="undo")
    script = [call("child", task="go"), call("finish_task", summary="x", outcome="partial")]
    graph = build_graph(ScriptedModel(script), [child], storage=storage, on_failure="undo")
    assert outcome_of(graph.invoke(GO, THREAD)).status == "success"
    assert (world.done, world.taken) == (["a", "b"], [])


def test_the_policies_of_both_hold_for_what_a_delegate_has_done(storage: SqliteStorage) -> None:
    world = World()
    child = below("child", world, [act("a"), DONE])
    script = [call("child", task="go"), act("b")]
    graph = build_graph(
        ScriptedModel(script),
        [world.act(), child],
        storage=storage,
        limits={"turns": 2},
        approvals={"act": lambda args: args["what"] == "a"},
        on_failure="undo",
    )
    session = Session(graph, "t")
    decision = session.run("go")
    assert isinstance(decision, Approval)
    assert (decision.path, world.done) == (("child",), [])
    decision = session.resume("approve")
    assert isinstance(decision, Approval)
    assert (decision.path, [one.name for one in decision.calls], world.taken) == ((), ["undo_act"], [])
    assert "child / act(what='a')" in decision.calls[0].note
    session.resume("approve")
    assert world.taken == ["b", "a"]


def test_what_a_delegate_has_done_that_the_graph_has_lost_stands(storage: SqliteStorage) -> None:
    world = World()
    child = below("child", world, [act("a"), DONE])
    script = [call("child", task="go"), act("b"), DONE]
    build_graph(ScriptedModel(script), [world.act(), child], storage=storage).invoke(GO, THREAD)
    graph = build_graph(ScriptedModel([]), [world.act()], storage=storage)
    outcome = outcome_of(graph.invoke(undo(graph.get_state(THREAD)), THREAD))
    assert outcome.undo is not None
    assert [(one.call, one.why) for one in outcome.undo.standing] == [("child(task='go')", "another_graph")]
    assert world.taken == ["b"]


FORKS: dict[str, tuple[int | str | None, list[str]]] = {
    "as it ended": (None, []),
    "while its last effect was open": ("open", ["new"]),
    "before its delegate and what came after it": (1, ["new"]),
    "before what came after it": (2, ["new"]),
}


@pytest.mark.parametrize("name", FORKS)
def test_a_fork_undoes_nothing_of_what_the_tree_had_done_before(name: str, storage: SqliteStorage) -> None:
    at, own = FORKS[name]
    world = World()
    deep = below("deep", world, [act("deep"), DONE])
    child = below("child", world, [act("child"), call("deep", task="go"), DONE], deep)
    script = [act("first"), call("child", task="go"), act("last"), DONE]
    graph = build_graph(ScriptedModel(script), [world.act(), child], storage=storage)
    session = Session(graph, "t")
    session.run("go")
    assert world.done == ["first", "child", "deep", "last"]
    if at == "open":
        path = [step for turn in session.history() for step in turn.steps]
        at = [step.checkpoint_id for step in path if step.event == Event.WORK][-1]
    session.fork(at, "fork")
    again = build_graph(ScriptedModel([act("new"), DONE]), [world.act(), child], storage=storage)
    fork = Session(again, "fork")
    if own:
        fork.run()
    decision = fork.undo()
    assert isinstance(decision, Finished)
    undone = decision.outcome.undo
    assert undone is not None
    assert world.taken == own
    assert {one.why for one in undone.standing} == {"elsewhere"}
    # The thread that it came from undoes what is its own.
    world.taken.clear()
    Session(graph, "t").undo()
    assert world.taken == ["last", "deep", "child", "first"]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_undo_below_may_wait_for_a_person_itself(mode: str, storage: SqliteStorage) -> None:
    world, asked = World(), list[tuple[str, str]]()

    def take_back(args: dict[str, Any], result: str) -> str:
        asked.append((args["what"], interrupt({"question": f"Take back {args['what']}?"})))
        return "ok"

    tool = world.act()
    tool.metadata = {"undo": take_back}
    deep = delegate("deep", build_graph(ScriptedModel([act("b"), DONE]), [tool]), description="Works.")
    script = [act("a"), call("deep", task="go"), act("c"), DONE]
    child = delegate("child", build_graph(ScriptedModel(script), [tool, deep]), description="Works.")
    graph = build_graph(ScriptedModel([call("child", task="go"), DONE]), [child], storage=storage)
    session = Session(graph, "t")
    session.run("go")
    decision: Any = session.undo()
    questions = list[str]()
    while isinstance(decision, Question) and len(questions) < 5:
        questions.append(decision.text)
        answer = f"yes {len(questions)}"
        decision = session.resume(answer) if mode == "sync" else asyncio.run(session.aresume(answer))
    assert questions == ["Take back c?", "Take back b?", "Take back a?"]
    assert asked == [("c", "yes 1"), ("b", "yes 2"), ("a", "yes 3")]
    assert isinstance(decision, Finished)
    assert decision.outcome.undo is not None
    assert decision.outcome.undo.standing == []


def test_no_delegate_goes_on_that_does_not_know_what_was_undone(storage: SqliteStorage) -> None:
    """However often the task fails again before its model has said anything."""
    world, down = World(), RuntimeError("down")
    child_graph = build_graph(
        ScriptedModel([act("a"), down, act("b"), DONE]), [world.act()], model_retries=None
    )
    child = delegate("child", child_graph, description="Works.")
    script: list[Any] = [
        call("child", task="go"),
        *[down] * 3,
        call("finish_task", summary="x", outcome="partial"),
    ]
    graph = build_graph(ScriptedModel(script), [child], storage=storage, model_retries=None)
    session = Session(graph, "t")
    session.run("go")
    session.undo()
    for _ in range(3):
        decision = session.retry()
    assert isinstance(decision, Finished)
    assert (world.done, world.taken) == (["a"], ["a"])
