"""Calls a plain tool without LangChain's callbacks where nobody listens to them: a tenth of the time."""

from collections.abc import Iterable
from inspect import signature
from typing import Any

from langchain_core.messages import ToolCall
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.tools.base import _format_output, _get_runnable_config_param
from langchain_core.utils.pydantic import is_basemodel_subclass


def plain_tools(tools: Iterable[BaseTool]) -> frozenset[str]:
    """The names of those that are a function with a schema and nothing else that LangChain would look after:
    no handlers of errors, no callbacks or configuration to pass on, no artifact."""
    return frozenset(tool.name for tool in tools if _is_plain(tool))


def _is_plain(tool: BaseTool) -> bool:
    if type(tool) is not StructuredTool or tool.func is None or not isinstance(tool.args_schema, type):
        return False
    own = tool.handle_tool_error or tool.handle_validation_error or tool.callbacks or tool.verbose
    if own or tool.response_format != "content" or not is_basemodel_subclass(tool.args_schema):
        return False
    try:
        asks = "callbacks" in signature(tool.func).parameters
    except (TypeError, ValueError):
        return False
    return not asks and _get_runnable_config_param(tool.func) is None


def listened(config: RunnableConfig) -> bool:
    """Whether callbacks (tracing, a stream of events) wait for what happens in this run."""
    callbacks = config.get("callbacks")
    if callbacks is None or isinstance(callbacks, list):
        return bool(callbacks)
    return bool(callbacks.handlers or callbacks.inheritable_handlers)


def call(tool: StructuredTool, request: ToolCall) -> Any:
    """What `tool.invoke(request)` gives: the result, or the error that is raised."""
    # LangChain has no public name for these two steps of `invoke`.
    args, named = tool._to_args_and_kwargs(request["args"], request["id"])
    assert tool.func is not None, "a plain tool has one"
    return _format_output(tool.func(*args, **named), None, request["id"], tool.name, "success")
