"""`interrupt()` in code of the user's own, in a run that cannot wait for the answer: it is told."""

import asyncio
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents.middleware import (
    after_agent,
    after_model,
    before_agent,
    before_model,
    wrap_model_call,
    wrap_tool_call,
)
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt

from signoff import build_graph
from signoff.graph.errors import ApprovalWarning, MiddlewareWarning
from signoff.models import ScriptedModel, call

GO: Any = {"messages": [("user", "go")]}
THREAD: Any = {"configurable": {"thread_id": "t"}}
FINISH = call("finish_task", summary="Done.")
TOLD = "interrupt() asks a person, and this run cannot wait for the answer; build the graph with storage="


def asks(*given: Any, **more: Any) -> Any:
    return interrupt("Which?")


@tool
def ask() -> str:
    """Ask a person."""
    return f"It is {interrupt('Which?')}."


@tool
def look() -> str:
    """Look."""
    return "seen"


def asking_hook(state: Any, runtime: Any) -> None:
    interrupt("Which?")


def asking_check(claim: Any) -> bool:
    return bool(interrupt("Which?"))


def asking_wrapper(request: Any, handler: Any) -> Any:
    interrupt("Which?")


async def asking_async_wrapper(request: Any, handler: Any) -> Any:
    interrupt("Which?")


def played(graph: Any, way: str, given: Any = GO, config: Any = None) -> dict[str, Any]:
    return dict(graph.invoke(given, config) if way == "sync" else asyncio.run(graph.ainvoke(given, config)))


WAYS = pytest.mark.parametrize("way", ["sync", "async"])


@WAYS
@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize("beside", [0, 2])
def test_the_call_of_a_tool_is_answered_as_not_finished(kind: str, beside: int, way: str) -> None:
    asking = ask.model_copy(update={"metadata": {"kind": kind}})
    calls = [call("ask"), *[call("look")] * beside]
    graph = build_graph(ScriptedModel([calls, FINISH]), [asking, look])
    with pytest.warns(ApprovalWarning, match="The tool ask: ") as warned:
        found = played(graph, way)
    assert TOLD in str(warned[0].message)
    results = [message for message in found["messages"] if message.type == "tool"]
    assert (results[0].status, results[0].text) == (
        "error",
        "ask was begun and not finished: it asks a person, and this run cannot wait for an answer. Go on "
        "without it.",
    )
    assert [one.text for one in results[1 : 1 + beside]] == ["seen"] * beside
    assert found["outcome"]["status"] == "success"
    assert "__interrupt__" not in found


def hooked(hook: Callable[..., Any]) -> dict[str, Any]:
    return {"middleware": [hook(asking_hook)]}


# What a graph is built with, the reason of its end and what its error names.
ERRORS: dict[str, tuple[dict[str, Any], str, str]] = {
    "before_agent": (hooked(before_agent), "middleware", "before_agent of the middleware asking_hook failed"),
    "before_model": (hooked(before_model), "middleware", "before_model of the middleware asking_hook failed"),
    "after_model": (hooked(after_model), "middleware", "after_model of the middleware asking_hook failed"),
    "a prompt": ({"system_prompt": asks}, "model_error", "passed as system_prompt= (asks) raised"),
    "the choice of tools": ({"select_tools": asks}, "model_error", "passed as select_tools= (asks) raised"),
}


@WAYS
@pytest.mark.parametrize("case", ERRORS)
def test_before_and_after_a_model_call_it_is_an_error_of_the_outcome(case: str, way: str) -> None:
    options, reason, names = ERRORS[case]
    found = played(build_graph(ScriptedModel([FINISH]), [look], **options), way)
    outcome = found["outcome"]
    assert (outcome["status"], outcome["reason"]) == ("error", reason)
    assert TOLD in outcome["error"]
    assert names in outcome["error"]
    assert "__interrupt__" not in found


@WAYS
def test_around_a_model_call_too(way: str) -> None:
    around = wrap_model_call(asking_wrapper if way == "sync" else asking_async_wrapper)
    outcome = played(build_graph(ScriptedModel([FINISH]), middleware=[around]), way)["outcome"]
    assert (outcome["status"], outcome["reason"]) == ("error", "model_error")
    assert TOLD in outcome["error"]


@WAYS
def test_around_the_call_of_a_tool_it_is_as_in_the_tool(way: str) -> None:
    around = wrap_tool_call(asking_wrapper if way == "sync" else asking_async_wrapper)
    graph = build_graph(ScriptedModel([call("look"), FINISH]), [look], middleware=[around])
    with pytest.warns(ApprovalWarning, match="The tool look: "):
        found = played(graph, way)
    assert "look was begun and not finished" in found["messages"][2].text


@WAYS
def test_after_a_finish_it_is_a_warning_as_any_failure_there(way: str) -> None:
    graph = build_graph(ScriptedModel([FINISH]), middleware=[after_agent(asking_hook)])
    with pytest.warns(MiddlewareWarning, match="after_agent of the middleware asking_hook failed"):
        assert played(graph, way)["outcome"]["status"] == "success"


@WAYS
def test_a_check_that_asks_does_not_pass(way: str) -> None:
    blocked = call("finish_task", summary="Nobody can be asked.", outcome="blocked")
    graph = build_graph(ScriptedModel([FINISH, blocked]), checks=[asking_check])
    found = played(graph, way)
    assert "asking_check raised NobodyToAsk" in found["messages"][2].text
    assert found["outcome"]["claim"] == "blocked"


@WAYS
def test_within_a_graph_that_can_wait_it_waits(way: str) -> None:
    inner = build_graph(ScriptedModel([call("ask"), FINISH]), [ask])
    around = StateGraph(MessagesState).add_node("agent", inner).set_entry_point("agent")
    graph = around.compile(checkpointer=InMemorySaver(), store=InMemoryStore())
    with warnings.catch_warnings():
        warnings.simplefilter("error", ApprovalWarning)
        found = played(graph, way, config=THREAD)
        assert [one.value for one in found["__interrupt__"]] == ["Which?"]
        found = played(graph, way, Command(resume="blue"), THREAD)
    assert "It is blue." in [message.text for message in found["messages"]]
