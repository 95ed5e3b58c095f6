"""Calls that end their process: each may do so twice; then it is told as unknown, and the thread goes on."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import StructuredTool

from signoff import build_graph, go_on, sqlite_storage
from signoff.graph.build import Graph
from signoff.models import ScriptedModel, call
from signoff.storage import SqliteStorage
from tests.support.adapted import adapted
from tests.support.ends import saved_outcome
from tests.support.interrupting import interrupt_process
from tests.support.prepared import run_python

ROOT = Path(__file__).parents[2]
CONFIG: Any = {"configurable": {"thread_id": "t"}}
# What the tools declare that a reply calls, and how often the deadly one of them ends its process.
CALLS: dict[str, tuple[list[dict[str, Any]], int]] = {
    "a read": ([{"kind": "read"}], 2),
    "a read beside others": ([{"kind": "read"}] * 3, 2),
    "an idempotent one": ([{"kind": "write", "idempotent": True}], 2),
    "an effect": ([{"kind": "write"}], 1),
}


def die() -> str:
    os._exit(9)


def graph_of(storage: SqliteStorage, name: str, end: Callable[[], Any], **options: Any) -> Graph:
    def tool(index: int, metadata: Any) -> StructuredTool:
        work = end if index == 1 or len(CALLS[name][0]) == 1 else lambda: "looked"
        return StructuredTool.from_function(work, name=f"work{index}", description="x", metadata=metadata)

    tools = [tool(index, metadata) for index, metadata in enumerate(CALLS[name][0])]

    def reply(messages: Any) -> Any:
        worked = any(message.type == "tool" for message in messages)
        return call("finish_task", summary="x") if worked else [call(tool.name) for tool in tools]

    return build_graph(ScriptedModel(reply), tools, storage=storage, **adapted(**options))


def run(graph: Graph) -> dict[str, Any]:
    """Runs the thread, or goes on with it."""
    state = graph.get_state(CONFIG)
    return graph.invoke(go_on() if state.values else {"messages": [("user", "go")]}, CONFIG)


def results(values: Any) -> list[str]:
    return [m.text.partition(":")[0] for m in values["messages"] if m.type == "tool"]


@pytest.mark.parametrize("unknown_outcomes", ["tell", "ask"])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_ends_its_process(name: str, unknown_outcomes: str, tmp_path: Path) -> None:
    tools, deadly = CALLS[name]
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = graph_of(storage, name, interrupt_process, unknown_outcomes=unknown_outcomes)
        for _ in range(deadly):
            with pytest.raises(KeyboardInterrupt):
                run(graph)
        values = run(graph)
    if (name, unknown_outcomes) == ("an effect", "ask"):
        assert values["__interrupt__"]
        return
    assert values["outcome"]["status"] == "success"
    told = ["Outcome unknown"] if len(tools) == 1 else ["looked", "Outcome unknown", "looked"]
    assert results(values)[: len(tools)] == told


def test_a_read_that_was_cut_short_once_runs_again(tmp_path: Path) -> None:
    ends = iter([interrupt_process])
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = graph_of(storage, "a read", lambda: next(ends, lambda: None)() or "looked")
        with pytest.raises(KeyboardInterrupt):
            run(graph)
        assert results(run(graph))[0] == "looked"


@pytest.mark.slow
def test_a_read_that_really_ends_its_process(tmp_path: Path) -> None:
    path, name = tmp_path / "threads.sqlite", "a read beside others"
    code = f"""
from tests.crash.test_deadly_calls import *
with sqlite_storage({str(path)!r}) as storage:
    run(graph_of(storage, {name!r}, die))
"""
    codes = [run_python("-c", code, cwd=ROOT).returncode for _ in range(3)]
    assert codes == [9, 9, 0]
    with sqlite_storage(path) as storage:
        values = graph_of(storage, name, die).get_state(CONFIG).values
    assert results(values)[:3] == ["looked", "Outcome unknown", "looked"]
    assert saved_outcome(values)
