"""Code that exists only for speed; each part returns what the public way returns.

`lazy`: properties that are computed once, at the first access. `in_thread`: threads for sync tools and model
calls, which are reused, since starting a thread takes as long as a small tool. `plain_tools` and `call`: run
a plain tool without LangChain's callbacks when nothing listens, in a tenth of the time. `LightRuntime`: a
LangGraph Runtime with a cheaper copy. LangGraph copies the runtime three times per super-step, and its
execution info twice, with `dataclasses.replace`, which inspects the class and checks the names each time: a
twentieth of the cost of a turn. `unheard`: saves the same kind of copies of callbacks and metadata for a
nested run.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from inspect import signature
from queue import SimpleQueue
from typing import Any, Generic, Self, TypeVar, overload

from langchain_core.messages import ToolCall
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.pydantic import is_basemodel_subclass
from langgraph.runtime import ExecutionInfo, Runtime
from langgraph.store.base import BaseStore

from signoff.graph.inside.private import RUNTIME, config_param, format_output, to_args

_T = TypeVar("_T")


class lazy(Generic[_T]):
    """`functools.cached_property` without the lock that it takes before Python 3.12, which costs more than
    most of these properties. Two threads may compute the same value twice."""

    def __init__(self, work: Callable[[Any], _T]) -> None:
        self._work = work
        self.__doc__ = work.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> _T: ...

    def __get__(self, instance: object | None, owner: type) -> Self | _T:
        if instance is None:
            return self
        value = self._work(instance)
        # From now on, the instance attribute is found first. Not set by `vars`, which creates a dict for each
        # instance, nor by the instance's own class, which may be frozen.
        object.__setattr__(instance, self._name, value)
        return value


_MOST_IDLE = 16
_Work = Callable[[], object]
_idle: deque[SimpleQueue[_Work]] = deque()
# None of these threads exists in a child process.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)


def in_thread(work: _Work) -> None:
    """Runs `work`, which must not raise, in a daemon thread, so that one that hangs blocks nothing else.

    The most recently used free thread is taken first, so that one thread serves all calls of a run. If `work`
    returns False, its thread is not reused.
    """
    try:
        queue = _idle.pop()
    except IndexError:
        queue = SimpleQueue()
        threading.Thread(target=_serve, args=(queue,), name="signoff-helper", daemon=True).start()
    queue.put(work)


def _serve(queue: SimpleQueue[_Work]) -> None:
    while True:
        if queue.get()() is False or len(_idle) >= _MOST_IDLE:
            return
        _idle.append(queue)


def plain_tools(tools: Iterable[BaseTool]) -> frozenset[str]:
    """The names of the tools that are a function with a schema and nothing else for LangChain to handle: no
    error handlers, no callbacks or configuration to pass on, no artifact."""
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
    """Whether callbacks (tracing, an event stream) listen to this run."""
    callbacks = config.get("callbacks")
    if callbacks is None or isinstance(callbacks, list):
        return bool(callbacks)
    return bool(callbacks.handlers or callbacks.inheritable_handlers)


def call(tool: StructuredTool, request: ToolCall) -> Any:
    """The result of `tool.invoke(request)`, which may raise. A string is returned as it is, not in a
    message."""
    assert tool.func is not None, "only a tool with a sync function gets here"
    args, named = _arguments(tool, request)
    return _result(tool, request, tool.func(*args, **named))


async def acall(tool: StructuredTool, request: ToolCall) -> Any:
    """The result of `await tool.ainvoke(request)`, as above."""
    assert tool.coroutine is not None, "only a tool with an async function gets here"
    args, named = _arguments(tool, request)
    return _result(tool, request, await tool.coroutine(*args, **named))


# LangChain has no public name for these two steps of `invoke`.
def _arguments(tool: StructuredTool, request: ToolCall) -> tuple[tuple[Any, ...], dict[str, Any]]:
    assert to_args is not None, "without it no tool is plain"
    return to_args(tool, request["args"], request["id"])


def _result(tool: StructuredTool, request: ToolCall, output: Any) -> Any:
    if type(output) is str:
        return output
    assert format_output is not None, "without it no tool is plain"
    return format_output(output, None, request["id"], tool.name, "success")


_OF_RUNTIME = tuple(field.name for field in fields(Runtime))
_OF_INFO = tuple(field.name for field in fields(ExecutionInfo))


class LightRuntime(Runtime[Any]):
    """A LangGraph Runtime with a cheaper copy: the copy holds the changed fields, and looks up the rest in
    the original."""

    __slots__ = ("_before",)

    def __getattr__(self, name: str) -> Any:
        # Called for a field that this copy does not have.
        if name in _OF_RUNTIME:
            return getattr(object.__getattribute__(self, "_before"), name)
        raise AttributeError(name)

    def merge(self, other: Runtime[Any]) -> Runtime[Any]:
        merged = super().merge(other)
        return LightRuntime(**{name: getattr(merged, name) for name in _OF_RUNTIME})

    def override(self, **overrides: Any) -> Runtime[Any]:
        put, made = object.__setattr__, object.__new__(LightRuntime)
        put(made, "_before", self)
        for name, value in overrides.items():
            put(made, name, value)
        return made

    def patch_execution_info(self, **overrides: Any) -> Runtime[Any]:
        info = self.execution_info
        if info is None:
            return super().patch_execution_info(**overrides)
        for name, value in overrides.items():
            if getattr(info, name) != value:
                return self.override(execution_info=_copied(info, overrides))
        # It never changes, so it need not be copied either: nearly every node succeeds at its first attempt.
        return self


def with_light_runtime(config: RunnableConfig | None, store: BaseStore | None) -> RunnableConfig:
    """`config` of a run that starts with a runtime of this kind, unless it has or inherits one."""
    given = config or RunnableConfig()
    configurable, around = given.get("configurable", {}), var_child_runnable_config.get()
    inherited = around.get("configurable", {}) if around else {}
    if RUNTIME is None or RUNTIME in configurable or RUNTIME in inherited:
        return given
    return {**given, "configurable": {**configurable, RUNTIME: LightRuntime(store=store)}}


_OWN_NOTES = "langgraph_"


def unheard(config: RunnableConfig) -> RunnableConfig:
    """`config` of a nested run that nothing listens to, without callbacks, and without the metadata that
    LangGraph keeps for them and would copy at each step. None of that is saved."""
    noted = config.get("metadata", {}).items()
    kept = {name: value for name, value in noted if not name.startswith(_OWN_NOTES)}
    return {**config, "callbacks": None, "metadata": kept}


@contextmanager
def within_config(config: RunnableConfig) -> Iterator[None]:
    """Inside this context, code sees this configuration as that of the surrounding run."""
    token = var_child_runnable_config.set(config)
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)


def _copied(info: ExecutionInfo, changes: Mapping[str, Any]) -> ExecutionInfo:
    made = object.__new__(ExecutionInfo)
    for name in _OF_INFO:
        object.__setattr__(made, name, changes[name] if name in changes else getattr(info, name))
    return made
