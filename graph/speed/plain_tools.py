"""Calls a plain tool without LangChain's callbacks where nobody listens to them: a tenth of the time."""

from collections.abc import Callable, Iterable
from inspect import signature
from typing import Any

from langchain_core.messages import ToolCall
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.pydantic import is_basemodel_subclass

from signoff.graph.private import config_param, format_output, to_args


def plain_tools(tools: Iterable[BaseTool]) -> frozenset[str]:
    """The names of those that are a function with a schema and nothing else that LangChain would look after:
    no handlers of errors, no callbacks or configuration to pass on, no artifact."""
    if config_param is None or format_output is None or to_args is None:
        return frozenset()
    return frozenset(tool.name for tool in tools if _is_plain(tool))


def _is_plain(tool: BaseTool) -> bool:
    if type(tool) is not StructuredTool or not isinstance(tool.args_schema, type):
        return False
    own = tool.handle_tool_error or tool.handle_validation_error or tool.callbacks or tool.verbose
    if own or tool.response_format != "content" or not is_basemodel_subclass(tool.args_schema):
        return False
    return all(_asks_nothing(function) for function in (tool.func, tool.coroutine) if function is not None)


def _asks_nothing(function: Callable[..., Any]) -> bool:
    try:
        asks = "callbacks" in signature(function).parameters
    except (TypeError, ValueError):
        return False
    return not asks and config_param is not None and config_param(function) is None


def listened(config: RunnableConfig) -> bool:
    """Whether callbacks (tracing, a stream of events) wait for what happens in this run."""
    callbacks = config.get("callbacks")
    if callbacks is None or isinstance(callbacks, list):
        return bool(callbacks)
    return bool(callbacks.handlers or callbacks.inheritable_handlers)


def call(tool: StructuredTool, request: ToolCall) -> Any:
    """What `tool.invoke(request)` gives: the result, or the error that is raised. A text is given as it is,
    and not in a message."""
    assert tool.func is not None, "only a tool with a sync function gets here"
    args, named = _given(tool, request)
    return _result(tool, request, tool.func(*args, **named))


async def acall(tool: StructuredTool, request: ToolCall) -> Any:
    """What `await tool.ainvoke(request)` gives, as above."""
    assert tool.coroutine is not None, "only a tool with an async function gets here"
    args, named = _given(tool, request)
    return _result(tool, request, await tool.coroutine(*args, **named))


# LangChain has no public name for these two steps of `invoke`.
def _given(tool: StructuredTool, request: ToolCall) -> tuple[tuple[Any, ...], dict[str, Any]]:
    assert to_args is not None, "without it no tool is plain"
    return to_args(tool, request["args"], request["id"])


def _result(tool: StructuredTool, request: ToolCall, output: Any) -> Any:
    if type(output) is str:
        return output
    assert format_output is not None, "without it no tool is plain"
    return format_output(output, None, request["id"], tool.name, "success")
