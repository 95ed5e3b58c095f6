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
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import fields
from inspect import signature
from queue import SimpleQueue
from typing import Any, Generic, Self, TypeVar, overload

from langchain_core.messages import ToolCall
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.pydantic import is_basemodel_subclass
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from pydantic import BaseModel

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

    The most recently used free thread is taken first, so that one thread serves all calls of a run.
    """
    try:
        queue = _idle.pop()
    except IndexError:
        queue = SimpleQueue()
        threading.Thread(target=_serve, args=(queue,), name="signoff-helper", daemon=True).start()
    queue.put(work)


def started(work: Callable[[], _T]) -> Future[_T]:
    """The future result of `work`, which runs in such a thread, in a copy of the current context."""
    future, context = Future[_T](), copy_context()
    future.set_running_or_notify_cancel()

    def settle() -> None:
        try:
            future.set_result(context.run(work))
        except BaseException as error:  # noqa: BLE001  it is handed to whoever waits
            future.set_exception(error)

    in_thread(settle)
    return future


def _serve(queue: SimpleQueue[_Work]) -> None:
    while True:
        queue.get()()
        if len(_idle) >= _MOST_IDLE:
            return
        _idle.append(queue)


Arguments = tuple[str, ...] | None
"""The names of a tool's arguments; None if LangChain must read the schema at each call."""


def plain_tools(tools: Iterable[BaseTool]) -> dict[str, Arguments]:
    """The tools that are a function with a schema and nothing else for LangChain to handle: no error
    handlers, no callbacks or configuration to pass on, no artifact. By name, each with its arguments."""
    if config_param is None or format_output is None or to_args is None:
        return {}
    return {tool.name: _names(tool) for tool in tools if isinstance(tool, StructuredTool) and _is_plain(tool)}


def _is_plain(tool: StructuredTool) -> bool:
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


_NO_NAMES = {"args", "kwargs", "tool_call_id"}
"""What LangChain does not pass on, or fills in."""


def _names(tool: StructuredTool) -> Arguments:
    """LangChain looks through the annotations of a schema at each call, which takes longer than to validate
    the arguments: for what is injected, has another name outside, or is left out when it is written. This
    finds out once whether there is any of that; a schema with code of its own may have it."""
    schema = tool.args_schema
    if not isinstance(schema, type) or not issubclass(schema, BaseModel):
        return None
    names, own = tuple(schema.model_fields), {"model_config", "_abc_impl", *schema.model_fields}
    parts = [one for one in schema.__mro__ if one not in BaseModel.__mro__]
    code = {name for part in parts for name in vars(part) if not name.startswith("__")} - own
    odd = any(
        found.alias is not None
        or found.validation_alias is not None
        or found.serialization_alias is not None
        or found.exclude
        for found in schema.model_fields.values()
    )
    if code or odd or schema.model_config.get("extra") == "allow" or not _NO_NAMES.isdisjoint(names):
        return None
    # The schema that the model is shown has no injected arguments.
    shown: Any = tool.tool_call_schema
    injects = not isinstance(shown, type) or set(getattr(shown, "model_fields", ())) != set(names)
    functions = [function for function in (tool.func, tool.coroutine) if function is not None]
    same = all(set(signature(function).parameters) == set(names) for function in functions)
    return names if same and not injects else None


def listened(config: RunnableConfig) -> bool:
    """Whether callbacks (tracing, an event stream) listen to this run."""
    callbacks = config.get("callbacks")
    if callbacks is None or isinstance(callbacks, list):
        return bool(callbacks)
    return bool(callbacks.handlers or callbacks.inheritable_handlers)


def call(tool: StructuredTool, request: ToolCall, read: Callable[[Any], Any], names: Arguments = None) -> Any:
    """The result of `tool.invoke(request)`, which may raise. A string is returned as it is, not in a message.
    read: reads what the function returned. names: see `plain_tools`."""
    assert tool.func is not None, "only a tool with a sync function gets here"
    args, named = _arguments(tool, request, names)
    output = tool.func(*args, **named)
    return output if type(output) is str else _result(tool, request, read(output))


async def acall(
    tool: StructuredTool, request: ToolCall, read: Callable[[Any], Awaitable[Any]], names: Arguments = None
) -> Any:
    """The result of `await tool.ainvoke(request)`, as above."""
    assert tool.coroutine is not None, "only a tool with an async function gets here"
    args, named = _arguments(tool, request, names)
    output = await tool.coroutine(*args, **named)
    return output if type(output) is str else _result(tool, request, await read(output))


# LangChain has no public name for these two steps of `invoke`.
def _arguments(
    tool: StructuredTool, request: ToolCall, names: Arguments
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    schema: Any = tool.args_schema
    if names is not None:
        read = schema.model_validate(request["args"])
        return (), {name: getattr(read, name) for name in names}
    assert to_args is not None, "without it no tool is plain"
    return to_args(tool, request["args"], request["id"])


def _result(tool: StructuredTool, request: ToolCall, output: Any) -> Any:
    if type(output) is str:
        return output
    assert format_output is not None, "without it no tool is plain"
    return format_output(output, None, request["id"], tool.name, "success")


_OF_RUNTIME = tuple(field.name for field in fields(Runtime))


class LightRuntime(Runtime[Any]):
    """A LangGraph Runtime with a cheaper copy: the copy holds the changed fields, and looks up the rest in
    the original. It applies changes of the execution info only when they are read: LangGraph makes two for
    each node, and few nodes read them."""

    __slots__ = ("_before", "_info")

    def __getattr__(self, name: str) -> Any:
        # Called for a field that this copy does not have.
        if name not in _OF_RUNTIME:
            raise AttributeError(name)
        found = getattr(object.__getattribute__(self, "_before"), name)
        if name == "execution_info" and (changes := object.__getattribute__(self, "_info")):
            found = found.patch(**changes)
        object.__setattr__(self, name, found)
        return found

    def merge(self, other: Runtime[Any]) -> Runtime[Any]:
        merged = super().merge(other)
        return LightRuntime(**{name: getattr(merged, name) for name in _OF_RUNTIME})

    def override(self, **overrides: Any) -> Runtime[Any]:
        put, made = object.__setattr__, object.__new__(LightRuntime)
        put(made, "_before", self)
        put(made, "_info", None)
        for name, value in overrides.items():
            put(made, name, value)
        return made

    def patch_execution_info(self, **overrides: Any) -> Runtime[Any]:
        changes = getattr(self, "_info", None)
        if changes is None and self.execution_info is None:
            return super().patch_execution_info(**overrides)
        put, made = object.__setattr__, object.__new__(LightRuntime)
        # A copy that only has changes of the execution info is skipped, which keeps the chain short.
        put(made, "_before", self if changes is None else object.__getattribute__(self, "_before"))
        put(made, "_info", overrides if changes is None else {**changes, **overrides})
        return made


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
