"""What a tool asks for beside its arguments: LangChain's `ToolRuntime`, `InjectedState`, `InjectedStore`."""

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import ToolCall
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolNode, ToolRuntime
from langgraph.prebuilt.tool_node import _get_all_injected_args

from signoff.graph.state import AgentState


class Injector:
    """Fills in injected arguments by LangGraph's own `ToolNode`, for the tools that have some.

    A value that the model gives for such an argument is dropped.
    """

    def __init__(self, tools: Sequence[BaseTool]) -> None:
        asking = [tool for tool in tools if _asks(tool)]
        self._asking = {tool.name for tool in asking}
        self._tools = list(tools)
        self._node = ToolNode(asking) if asking else None

    def filled(self, call: ToolCall, state: AgentState, config: RunnableConfig) -> ToolCall:
        """`call` with the injected arguments. Raises what LangGraph raises when one cannot be had."""
        if self._node is None or call["name"] not in self._asking:
            return call
        given = config.get("configurable", {}).get("__pregel_runtime")
        runtime: ToolRuntime[Any, Any] = ToolRuntime(
            state=state,
            context=getattr(given, "context", None),
            config=config,
            stream_writer=getattr(given, "stream_writer", _silent),
            tool_call_id=call["id"],
            store=getattr(given, "store", None),
            tools=self._tools,
        )
        # ToolNode is LangGraph's documented place for injection, but gives it no public name.
        return self._node._inject_tool_args(call, runtime)


def _asks(tool: BaseTool) -> bool:
    try:
        found = _get_all_injected_args(tool)
    except TypeError:
        # A partial or another callable object has no type hints to read, so it can ask for nothing by them.
        return False
    return bool(found.state or found.store or found.runtime)


def _silent(_: Any) -> None:
    """Where nobody listens."""
