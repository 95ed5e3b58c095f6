"""Injected arguments of tools: LangChain's `ToolRuntime`, `InjectedState`, `InjectedStore`.

LangGraph's prebuilt package, which has all of this, is imported only if there are tools.
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
    """Fills in injected arguments with LangGraph's own `ToolNode`, for tools that have any.

    A value from the model for such an argument is dropped.
    """

    def __init__(self, tools: Sequence[BaseTool]) -> None:
        self._asking = {tool.name: tool for tool in tools if _asks(tool)}
        self._tools = list(tools)
        self._node = _node(list(self._asking.values())) if self._asking else None

    def filled(
        self, call: ToolCall, state: AgentState, config: RunnableConfig, context: Callable[[], Any]
    ) -> ToolCall:
        """`call` with the injected arguments; `context` returns the context of the run, as user code receives
        it. Raises LangGraph's error if an argument is not available."""
        if self._node is None or call["name"] not in self._asking:
            return call
        runtime = self.runtime(call, state, config, context)
        if private.inject is None or private.injected_args is None:
            return _bind_by_tool_node(self._asking[call["name"]], call, runtime)
        # ToolNode is LangGraph's documented place for injection, but has no public method for it.
        filled: ToolCall = private.inject(self._node, call, runtime)
        return filled

    def runtime(
        self, call: ToolCall, state: AgentState, config: RunnableConfig, context: Callable[[], Any]
    ) -> "ToolRuntime[Any, Any]":
        """LangGraph's `ToolRuntime` for a call."""
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
            # It is enough that it may request one: the call itself shows what it gets.
            _node([tool])
            return True
        found = private.injected_args(tool)
    except TypeError:
        # A partial or another callable object has no type hints, so it cannot request anything by them.
        return False
    return bool(found.state or found.store or found.runtime)


def _node(tools: list[BaseTool], **options: Any) -> Any:
    from langgraph.prebuilt import ToolNode

    return ToolNode(tools, **options)


@cache
def _stand() -> Any:
    """The class of a stand-in for a tool, which records the arguments. Created lazily: it is slow to create
    and rarely needed."""

    class Stand(BaseTool):
        name: str = "stand"
        description: str = "Runs nothing."
        taken: list[dict[str, Any]] = Field(default_factory=list)

        def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> ToolMessage:
            self.taken.append(input["args"])
            return ToolMessage("", tool_call_id=input["id"])

        def _run(self) -> None:
            """Never called: the stand-in is only invoked."""

    return Stand


def _bind_by_tool_node(tool: BaseTool, call: ToolCall, runtime: "ToolRuntime[Any, Any]") -> ToolCall:
    """`call` as a ToolNode would invoke its tool. Slower, but public: the ToolNode runs up to that point."""
    stand = _stand()()

    def in_its_place(request: "ToolCallRequest", execute: Any) -> Any:
        return execute(replace(request, tool=stand, state=runtime.state, runtime=runtime))

    node = _node([tool], handle_tool_errors=False, wrap_tool_call=in_its_place)
    node.invoke({"messages": [AIMessage("", tool_calls=[call])]}, {**runtime.config, "callbacks": []})
    (args,) = stand.taken
    given = call["args"]
    added = [name for name, value in args.items() if name not in given or given[name] is not value]
    # A tool without injected arguments is left unchanged.
    return ToolCall(name=call["name"], args=args, id=call["id"], type="tool_call") if added else call


def _silent(_: Any) -> None:
    """A stream writer that discards everything."""
