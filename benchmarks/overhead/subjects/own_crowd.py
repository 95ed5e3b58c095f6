"""Many runs at once: Signoff, a bare loop over the model, and a raw LangGraph graph of two nodes."""

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph

sys.path.insert(0, str(Path(__file__).parent))
from crowds import (  # type: ignore[import-not-found]  # it lies beside this file, wherever it runs
    One,
    Waiting,
    at_once,
    step_tool,
)
from own import State, going_on  # type: ignore[import-not-found]  # as above
from scripted import MOST_STEPS, TASK  # type: ignore[import-not-found]  # as above

from signoff import build_graph, postgres_storage, sqlite_storage

Crowd = Callable[[], dict[str, Any]]
all_at_once: Callable[..., Crowd] = at_once
FINISH = {"name": "finish_task", "args": {"summary": "Done."}}


def _signoff(model: Waiting, tool: Any, **given: Any) -> One:
    graph = build_graph(model, [tool], **given)
    # Several processes may run on one file. Where nothing is stored no subject is given a thread.
    first = f"{os.getpid()}-{id(graph)}" if "storage" in given else ""

    async def one(number: int) -> bool:
        config: RunnableConfig = {"configurable": {"thread_id": f"{first}-{number}"}} if first else {}
        result = await graph.ainvoke(TASK, config)
        return bool(result["outcome"]["status"] == "success")

    return one


def signoff(
    turns: int,
    database: str | None,
    *,
    runs: int,
    seconds: float,
    is_async: bool = True,
    kind: str = "read",
    url: str | None = None,
) -> Crowd:
    """url: of a PostgreSQL database, in place of `database`."""
    stack, given = ExitStack(), dict[str, Any](policy={"tool_seconds": None})
    if url is not None:
        given["storage"] = stack.enter_context(postgres_storage(url))
    elif database is not None:
        given["storage"] = stack.enter_context(sqlite_storage(database))
    model = Waiting(turns=turns, last=FINISH, seconds=seconds)
    go = all_at_once((_signoff(model, step_tool(0.0, is_async=is_async, kind=kind), **given), runs))

    def run() -> dict[str, Any]:
        with stack:
            return go()

    return run


def beside_slow_tools(
    turns: int, database: str | None, *, runs: int, seconds: float, tool_seconds: float, is_async: bool
) -> Crowd:
    """Two groups of so many runs: one whose tool takes long, and one whose tool takes no time."""
    model = Waiting(turns=turns, last=FINISH, seconds=seconds)
    slow = _signoff(model, step_tool(tool_seconds, is_async=is_async))
    quick = _signoff(model, step_tool(0.0, is_async=True))
    return all_at_once((slow, runs), (quick, runs))


def bare_loop(turns: int, database: str | None, *, runs: int, seconds: float, is_async: bool = True) -> Crowd:
    model, tool = Waiting(turns=turns, seconds=seconds), step_tool(0.0, is_async=is_async)

    async def one(number: int) -> bool:
        messages: list[Any] = [("user", "go")]
        while (reply := await model.ainvoke(messages)).tool_calls:
            messages.append(reply)
            messages += [await tool.ainvoke({**call, "type": "tool_call"}) for call in reply.tool_calls]
        return len(messages) == 2 * turns - 1

    return all_at_once((one, runs))


def two_nodes(turns: int, database: str | None, *, runs: int, seconds: float, is_async: bool = True) -> Crowd:
    model, tool = Waiting(turns=turns, seconds=seconds), step_tool(0.0, is_async=is_async)

    async def ask(state: State) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    async def use(state: State) -> dict[str, Any]:
        calls = state["messages"][-1].tool_calls
        return {"messages": [await tool.ainvoke({**call, "type": "tool_call"}) for call in calls]}

    builder = StateGraph(State)
    builder.add_node("model", ask)
    builder.add_node("tools", use)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", going_on, ["tools", END])
    builder.add_edge("tools", "model")
    graph = builder.compile()

    async def one(number: int) -> bool:
        result = await graph.ainvoke(TASK, {"recursion_limit": MOST_STEPS})
        return len(result["messages"]) == 2 * turns

    return all_at_once((one, runs))


SUBJECTS: dict[str, Callable[..., Crowd]] = {
    "signoff": signoff,
    "signoff beside slow tools": beside_slow_tools,
    "bare loop": bare_loop,
    "raw graph, 2 nodes": two_nodes,
}
