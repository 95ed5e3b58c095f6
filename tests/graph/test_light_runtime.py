"""The runtime of a run is LangGraph's own but for how it is copied."""

import copy
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.graph import START, StateGraph
from langgraph.runtime import ExecutionInfo, Runtime, get_runtime
from langgraph.store.memory import InMemoryStore
from typing_extensions import TypedDict

from signoff import build_graph, sqlite_storage
from signoff.graph.inside.speed import LightRuntime, with_light_runtime
from signoff.graph.state import Context
from signoff.models import ScriptedModel, call

FINISH = call("finish_task", summary="Done.")
GO: Any = {"messages": [("user", "go")]}
INFO = ExecutionInfo("c1", "ns", "t1", thread_id="t")
STORE = InMemoryStore()


def parts(runtime: Runtime[Any]) -> dict[str, Any]:
    return {field.name: getattr(runtime, field.name) for field in fields(Runtime)}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"store": STORE, "previous": 7},
        {"execution_info": None},
        {"context": {"a": 1}, "execution_info": INFO},
    ],
)
def test_a_copy_is_what_langgraph_makes(changes: dict[str, Any]) -> None:
    given: dict[str, Any] = {"context": 1, "store": STORE, "execution_info": INFO}
    light, own = LightRuntime(**given).override(**changes), Runtime(**given).override(**changes)
    assert isinstance(light, LightRuntime)
    assert parts(light) == parts(own)


@pytest.mark.parametrize("again", [copy.copy, replace, lambda runtime: runtime.merge(Runtime())])
def test_a_copy_of_a_copy_is_whole(again: Callable[[Runtime[Any]], Runtime[Any]]) -> None:
    given: dict[str, Any] = {"context": 1}
    light: Runtime[Any] = LightRuntime(**given).override(store=STORE).override(previous=7)
    own: Runtime[Any] = Runtime(**given).override(store=STORE).override(previous=7)
    assert parts(again(light)) == parts(again(own)) == parts(light)
    with pytest.raises(AttributeError):
        light.nothing_of_this_name  # type: ignore[attr-defined]  # noqa: B018  that is the point


def test_the_execution_info_is_patched_as_langgraph_does() -> None:
    light: Runtime[Any] = LightRuntime(execution_info=INFO)
    own: Runtime[Any] = Runtime(execution_info=INFO)
    patches: list[dict[str, Any]] = [{"node_first_attempt_time": 3.5}, {"node_attempt": 2}]
    for patch in patches:
        light, own = light.patch_execution_info(**patch), own.patch_execution_info(**patch)
    assert parts(light) == parts(own)
    assert light.execution_info == ExecutionInfo("c1", "ns", "t1", "t", None, 2, 3.5)
    with pytest.raises(RuntimeError, match="before it has been set"):
        LightRuntime().patch_execution_info(node_attempt=2)


def test_a_tool_sees_all_of_it(tmp_path: Path) -> None:
    seen: list[Runtime[Any]] = []

    def look() -> str:
        """Look."""
        seen.append(get_runtime())
        return "seen"

    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph = build_graph(ScriptedModel([call("look"), FINISH]), [look], storage=storage)
        graph.invoke(GO, {"configurable": {"thread_id": "t"}}, context=Context(turns=9))
        (runtime,) = seen
        assert type(runtime) is LightRuntime
        assert (runtime.context, runtime.store) == (Context(turns=9), storage.store)
        assert runtime.execution_info is not None
        assert (runtime.execution_info.thread_id, runtime.execution_info.node_attempt) == ("t", 1)


class Outer(TypedDict):
    said: str


def test_inside_another_graph_that_graphs_runtime_is_inherited() -> None:
    seen: list[Runtime[Any]] = []

    def look() -> str:
        """Look."""
        seen.append(get_runtime())
        return "seen"

    def node(_: Outer) -> Outer:
        config = var_child_runnable_config.get()
        assert with_light_runtime({"tags": ["a"]}, None) == {"tags": ["a"]}
        assert with_light_runtime(config, None) is config
        seen.append(get_runtime())
        inner = build_graph(ScriptedModel([call("look"), FINISH]), [look])
        return Outer(said=inner.invoke(GO)["outcome"]["status"])

    builder: Any = StateGraph(Outer, context_schema=Context)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    outer = builder.compile()
    assert outer.invoke({"said": ""}, context=Context(turns=9)) == {"said": "success"}
    around, inside = seen
    assert (type(inside), inside.context) == (Runtime, Context(turns=9))
    assert inside.control is around.control is not None


def test_a_runtime_that_a_server_seeds_stays() -> None:
    seeded: Any = {"configurable": {"__pregel_runtime": Runtime(context=1)}}
    assert with_light_runtime(seeded, None) is seeded
