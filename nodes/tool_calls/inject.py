"""Injected arguments of tools: LangChain's `ToolRuntime`, `InjectedState`, `InjectedStore`.

LangGraph's package of agents, which has all of this, is imported for those who have tools.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from pydantic import Field

from signoff.graph.inside import private
from signoff.graph.state import AgentState

if TYPE_CHECKING:
    from langgraph.prebuilt import ToolRuntime
    from langgraph.prebuilt.tool_node import ToolCallRequest


class Injector:
    """Fills in injected arguments by LangGraph's own `ToolNode`, for the tools that have some.

    A value that the model gives for such an argument is dropped.
    """

    def __init__(self, tools: Sequence[BaseTool]) -> None:
        self._asking = {tool.name: tool for tool in tools if _asks(tool)}
        self._tools = list(tools)
        self._node = _node(list(self._asking.values())) if self._asking else None

    def filled(
        self, call: ToolCall, state: AgentState, config: RunnableConfig, context: Callable[[], Any]
    ) -> ToolCall:
        """`call` with the injected arguments; `context` returns that of the run, as the user's code gets it.
        Raises what LangGraph raises when one cannot be had."""
        if self._node is None or call["name"] not in self._asking:
            return call
        runtime = self.runtime(call, state, config, context)
        if private.inject is None or private.injected_args is None:
            return _bind_by_tool_node(self._asking[call["name"]], call, runtime)
        # ToolNode is LangGraph's documented place for injection, but gives it no public name.
        filled: ToolCall = private.inject(self._node, call, runtime)
        return filled

    def runtime(
        self, call: ToolCall, state: AgentState, config: RunnableConfig, context: Callable[[], Any]
    ) -> "ToolRuntime[Any, Any]":
        """LangGraph's runtime of a call."""
        from langgraph.prebuilt import ToolRuntime

        given = private.runtime(config)
        return ToolRuntime(
            state=state,
            context=context(),
            config=config,
            stream_writer=getattr(given, "stream_writer", _silent),
            tool_call_id=call["id"],
            store=getattr(given, "store", None),
            tools=self._tools,
        )


def _asks(tool: BaseTool) -> bool:
    try:
        if private.injected_args is None:
            # That it may ask is enough: what a call of it gets is seen then.
            _node([tool])
            return True
        found = private.injected_args(tool)
    except TypeError:
        # A partial or another callable object has no type hints to read, so it can ask for nothing by them.
        return False
    return bool(found.state or found.store or found.runtime)


def _node(tools: list[BaseTool], **options: Any) -> Any:
    from langgraph.prebuilt import ToolNode

    return ToolNode(tools, **options)


@cache
def _stand() -> Any:
    """The class of what is called in a tool's place, and keeps the arguments. Making it is not quick, and
    hardly anybody needs it."""

    class Stand(BaseTool):
        name: str = "stand"
        description: str = "Runs nothing."
        taken: list[dict[str, Any]] = Field(default_factory=list)

        def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> ToolMessage:
            self.taken.append(input["args"])
            return ToolMessage("", tool_call_id=input["id"])

        def _run(self) -> None:
            """It is only invoked."""

    return Stand


def _bind_by_tool_node(tool: BaseTool, call: ToolCall, runtime: "ToolRuntime[Any, Any]") -> ToolCall:
    """`call` as a ToolNode would invoke its tool. Slower, but public: it is run up to there."""
    stand = _stand()()

    def in_its_place(request: "ToolCallRequest", execute: Any) -> Any:
        return execute(replace(request, tool=stand, state=runtime.state, runtime=runtime))

    node = _node([tool], handle_tool_errors=False, wrap_tool_call=in_its_place)
    node.invoke({"messages": [AIMessage("", tool_calls=[call])]}, {**runtime.config, "callbacks": []})
    (args,) = stand.taken
    given = call["args"]
    added = [name for name, value in args.items() if name not in given or given[name] is not value]
    # One that asks for nothing is left as it is.
    return ToolCall(name=call["name"], args=args, id=call["id"], type="tool_call") if added else call


def _silent(_: Any) -> None:
    """Where nobody listens."""
