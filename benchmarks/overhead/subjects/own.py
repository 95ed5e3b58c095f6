"""Signoff, a bare loop over the model, and raw LangGraph graphs of two and of six nodes."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.prompt_values import ChatPromptValue
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

sys.path.insert(0, str(Path(__file__).parent))
from scripted import (  # type: ignore[import-not-found]  # it lies beside this file, wherever it runs
    MOST_STEPS,
    TASK,
    Scripted,
    counted,
    step,
)

from signoff import Limits, build_graph, sqlite_storage

Run = Callable[[], int]
CONFIG: RunnableConfig = {"recursion_limit": MOST_STEPS, "configurable": {"thread_id": "t"}}
# No digest is made in any subject: the same history for all.
PROMPT_TOKENS = 100_000_000


def signoff(turns: int, database: str | None) -> Run:
    """Without a time limit on tools, as the others are: so a lone sync tool needs no thread."""
    policy = {"tool_seconds": None, "prompt_tokens": PROMPT_TOKENS, "compaction": "lines"}
    return _signoff(turns, database, policy=policy)


def defaults(turns: int, database: str | None) -> Run:
    """With default settings; only the limit of turns, 30, is raised to the length of the run."""
    return _signoff(turns, database)


def writes(turns: int, database: str | None) -> Run:
    """The same with a tool that may change something, as each tool may that does not say otherwise."""
    return _signoff(turns, database, step.model_copy(update={"metadata": None}))


def _signoff(turns: int, database: str | None, tool: BaseTool = step, **given: Any) -> Run:
    model = Scripted(turns=turns, last={"name": "finish_task", "args": {"summary": "Done."}})
    given["limits"] = Limits(turns=turns)
    stack = ExitStack()
    if database is not None:
        given["storage"] = stack.enter_context(sqlite_storage(database))
    graph = build_graph(model, [tool], **given)

    def run() -> None:
        with stack:
            outcome = graph.invoke(TASK, {"configurable": {"thread_id": "t"}})["outcome"]
            assert outcome["status"] == "success", outcome

    return lambda: counted(run)


def bare_loop(turns: int, database: str | None) -> Run:
    model = Scripted(turns=turns)

    def run() -> None:
        messages: list[Any] = [("user", "go")]
        while (reply := model.invoke(messages)).tool_calls:
            messages.append(reply)
            messages += [step.invoke({**call, "type": "tool_call"}) for call in reply.tool_calls]

    return lambda: counted(run)


def model_alone(turns: int, database: str | None) -> Run:
    """What of every subject is LangChain's `invoke` on a growing history, at the least: it is given messages
    as they are, as Signoff does; a list it would read again, message by message."""
    model = Scripted(turns=turns)

    def run() -> int:
        messages: list[Any] = [HumanMessage("go")]
        while (reply := model.invoke(ChatPromptValue.model_construct(messages=messages))).tool_calls:
            messages += [reply, ToolMessage("ok", tool_call_id=reply.tool_calls[0]["id"])]
        return len(messages) // 2

    return run


class State(TypedDict):
    messages: Annotated[list[Any], add_messages]


def _graph(turns: int, database: str | None, build: Callable[[StateGraph[Any], Scripted], None]) -> Run:
    builder, stack = StateGraph(State), ExitStack()
    build(builder, Scripted(turns=turns))
    saver = stack.enter_context(SqliteSaver.from_conn_string(database)) if database else None
    graph = builder.compile(checkpointer=saver)
    options: Any = {"durability": "sync"} if saver else {}

    def run() -> None:
        with stack:
            graph.invoke(TASK, CONFIG, **options)

    return lambda: counted(run)


def _tools(state: State) -> State:
    calls = state["messages"][-1].tool_calls
    return {"messages": [step.invoke({**call, "type": "tool_call"}) for call in calls]}


def _nothing(state: State) -> dict[str, Any]:
    return {}


def going_on(state: State) -> str:
    return "tools" if state["messages"][-1].tool_calls else END


def two_nodes(turns: int, database: str | None) -> Run:
    def build(graph: StateGraph[Any], model: Scripted) -> None:
        graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
        graph.add_node("tools", _tools)
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", going_on, ["tools", END])
        graph.add_edge("tools", "model")

    return _graph(turns, database, build)


def six_nodes(turns: int, database: str | None) -> Run:
    def build(graph: StateGraph[Any], model: Scripted) -> None:
        for name in ("compress", "decide", "route", "finish"):
            graph.add_node(name, _nothing)
        graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
        graph.add_node("tools", _tools)
        for source, target in [(START, "compress"), ("compress", "decide"), ("decide", "model")]:
            graph.add_edge(source, target)
        graph.add_edge("model", "route")
        graph.add_conditional_edges("route", going_on, {"tools": "tools", END: "finish"})
        graph.add_edge("tools", "compress")
        graph.add_edge("finish", END)

    return _graph(turns, database, build)


SUBJECTS = {
    "signoff": signoff,
    "signoff, default settings": defaults,
    "signoff, default settings, a tool that writes": writes,
    "bare loop": bare_loop,
    "model alone": model_alone,
    "raw graph, 2 nodes": two_nodes,
    "raw graph, 6 nodes": six_nodes,
}
