"""Every private name of LangGraph, LangChain and pydantic that Signoff knows, and no other file knows one.

Each makes a run faster, and none is needed: it is looked up when it is first asked for, and is None where the
installed version has no such name. Then the public way is gone, with the same results:

- `PregelNode`, `ChannelRead`, `ChannelWrite`, `ChannelWriteTupleEntry`, `SEND`: the nodes of a compiled graph
  run as LangGraph compiled them (`lean.py`).
- `RUNTIME`: a run's runtime is known by its type, else asked of `langgraph.runtime.get_runtime`, and copied
  as LangGraph does (`light.py`).
- `SCRATCHPAD`: reads always run one by one, as they must when one of them brings an answer, and one that
  ended its process is not told from one that was cut short by chance: it is run again.
- `RESUMING`: the last name that is known is used: LangGraph has no public way to enter a subgraph again.
- `CHECKPOINTER`: a run's checkpointer is known by its type.
- `format_output`, `config_param`, `to_args`: every tool is called by its `invoke`
  (`graph/inside/speed.py`).
- `inject`, `injected_args`: a `ToolNode` is invoked up to the point where it would call the tool
  (`nodes/tool_calls/inject.py`).
- `FIELDS_SET`: a message is rebuilt by `model_construct`.
- `PRIVATE`: a copy of a model hands its private attributes on, one by one.

What a chat model or a tool is made of (`_stream`, `_generate`, `_llm_type`, `_run`, `_arun` and the like) is
no such name: LangChain documents them as what a class of one's own defines.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from pydantic import BaseModel

if TYPE_CHECKING:
    from langgraph.pregel._read import ChannelRead, PregelNode
    from langgraph.pregel._write import ChannelWrite, ChannelWriteTupleEntry

    __all__ = ["ChannelRead", "ChannelWrite", "ChannelWriteTupleEntry", "PregelNode"]

SEND: str  # used only in `lean.py`, where it is known to be there
RUNTIME: str | None
SCRATCHPAD: str | None
RESUMING: str | None
CHECKPOINTER: str | None
format_output: Callable[..., Any] | None
config_param: Callable[..., str | None] | None
to_args: Callable[..., tuple[tuple[Any, ...], dict[str, Any]]] | None
inject: Callable[..., Any] | None
injected_args: Callable[..., Any] | None
FIELDS_SET: Any
PRIVATE: Any

NAMES: Mapping[str, tuple[str, str]] = {
    "PregelNode": ("langgraph.pregel._read", "PregelNode"),
    "ChannelRead": ("langgraph.pregel._read", "ChannelRead"),
    "ChannelWrite": ("langgraph.pregel._write", "ChannelWrite"),
    "ChannelWriteTupleEntry": ("langgraph.pregel._write", "ChannelWriteTupleEntry"),
    "SEND": ("langgraph._internal._constants", "CONFIG_KEY_SEND"),
    "RUNTIME": ("langgraph._internal._constants", "CONFIG_KEY_RUNTIME"),
    "SCRATCHPAD": ("langgraph._internal._constants", "CONFIG_KEY_SCRATCHPAD"),
    "RESUMING": ("langgraph._internal._constants", "CONFIG_KEY_RESUMING"),
    "CHECKPOINTER": ("langgraph._internal._constants", "CONFIG_KEY_CHECKPOINTER"),
    "format_output": ("langchain_core.tools.base", "_format_output"),
    "config_param": ("langchain_core.tools.base", "_get_runnable_config_param"),
    "to_args": ("langchain_core.tools", "StructuredTool._to_args_and_kwargs"),
    "inject": ("langgraph.prebuilt", "ToolNode._inject_tool_args"),
    "injected_args": ("langgraph.prebuilt.tool_node", "_get_all_injected_args"),
    "FIELDS_SET": ("pydantic", "BaseModel.__pydantic_fields_set__"),
    "PRIVATE": ("pydantic", "BaseModel.__pydantic_private__"),
}
"""Where each name is found: the module, and the name in it."""

LEAN = ("PregelNode", "ChannelRead", "ChannelWrite", "ChannelWriteTupleEntry", "SEND")
"""What `lean.py` is built of."""


def __getattr__(name: str) -> Any:
    # Looked up only now: to import Signoff must not import all of LangGraph.
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, path = NAMES[name]
    try:
        found = attrgetter(path)(import_module(module))
    except (ImportError, AttributeError):
        found = None
    globals()[name] = found
    return found


def has(*names: str) -> bool:
    """Whether the installed versions have all of these names."""
    return all(_own(name) is not None for name in names)


def runtime(config: RunnableConfig) -> Any:
    """LangGraph's runtime of the run that `config` belongs to; None outside of a run."""
    if (key := _runtime_key(config)) is not None:
        return config.get("configurable", {}).get(key)
    from langgraph.runtime import get_runtime

    try:
        return get_runtime()
    except (RuntimeError, LookupError):
        return None


def with_runtime(config: RunnableConfig, made: Any) -> RunnableConfig:
    """`config` of a run with this runtime in place of its own; `config` itself where it has none."""
    if (key := _runtime_key(config)) is None:
        return config
    return {**config, "configurable": {**config.get("configurable", {}), key: made}}


def _runtime_key(config: RunnableConfig) -> str | None:
    if (key := _own("RUNTIME")) is not None:
        found: str = key
        return found
    from langgraph.runtime import Runtime

    known = config.get("configurable", {}).items()
    return next((name for name, value in known if isinstance(value, Runtime)), None)


def has_saver(configurable: Mapping[str, Any]) -> bool:
    """Whether this configuration is that of a run which saves what it does, and not that of a caller."""
    return bool(saver_of(configurable))


def saver_of(configurable: Mapping[str, Any]) -> Any:
    """The checkpointer of the run that this configuration is of; None for a caller's configuration."""
    if (key := _own("CHECKPOINTER")) is not None:
        return configurable.get(key)
    return next((value for value in configurable.values() if isinstance(value, BaseCheckpointSaver)), None)


def within_saver(configurable: Mapping[str, Any], saver: BaseCheckpointSaver[Any]) -> dict[str, Any]:
    """The configuration by which a graph without a checkpointer reads and writes a machine of a thread. The
    last name that is known is used: LangGraph has no public way to write below a thread's own machine."""
    return {**configurable, _own("CHECKPOINTER") or "__pregel_checkpointer": saver}


def is_answered(configurable: Mapping[str, Any]) -> bool:
    """Whether a node that runs with this configuration may bring an answer to an `interrupt` in it."""
    if (key := _own("SCRATCHPAD")) is None:
        return True
    pad = configurable.get(key)
    try:
        return pad is not None and (bool(pad.resume) or pad.get_null_resume() is not None)
    except (AttributeError, TypeError):
        return True


def is_resumed(config: RunnableConfig) -> bool:
    """Whether a node that runs with this configuration may be the first one of a run that goes on where
    another one stopped. LangGraph counts the steps of a run from where it begins; new input is one."""
    if (key := _own("SCRATCHPAD")) is None:
        return True
    pad, limit = config.get("configurable", {}).get(key), config.get("recursion_limit")
    try:
        return pad is not None and limit is not None and bool(pad.stop - pad.step > limit)
    except (AttributeError, TypeError):
        return True


def within_namespace(configurable: Mapping[str, Any], ns: str, *, goes_on: bool) -> dict[str, Any]:
    """The configuration of a graph that a node runs in the checkpoint namespace `ns`, of its own thread.

    goes_on: something of it is saved there, and it goes on from that. LangGraph would number the graphs that
    a node runs, and add the number to the namespace; from the first on it adds none.
    """
    made = {**configurable, "checkpoint_ns": ns, "checkpoint_id": None}
    made[_own("RESUMING") or "__pregel_resuming"] = goes_on
    key = _own("SCRATCHPAD") or "__pregel_scratchpad"
    if (pad := made.get(key)) is not None:
        made[key] = replace(pad, subgraph_counter=count().__next__)
    return made


def looking_into(thread_id: str, ns: str, saver: BaseCheckpointSaver[Any]) -> RunnableConfig:
    """The configuration that names what a graph has saved in the checkpoint namespace `ns` of a thread.
    Without the checkpointer LangGraph would look for a graph of that name among its own nodes."""
    key = _own("CHECKPOINTER") or "__pregel_checkpointer"
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, key: saver}}


def played(*, runtime: Any, pad: Any, saver: BaseCheckpointSaver[Any] | None) -> dict[str, Any]:
    """The configuration of a node that is run without LangGraph. Where a key has no name any more, it is the
    last that is known: LangGraph has no public way to play a node."""
    return {
        _own("RUNTIME") or "__pregel_runtime": runtime,
        _own("SCRATCHPAD") or "__pregel_scratchpad": pad,
        _own("CHECKPOINTER") or "__pregel_checkpointer": saver,
        _own("SEND") or "__pregel_send": lambda _: None,
    }


_Message = TypeVar("_Message", bound=BaseMessage)


def with_fields_set(message: _Message, names: set[str]) -> _Message:
    """`message` with `names` as pydantic's record of the fields that were given. The set is not copied, so
    that one serves all messages of a kind."""
    slot = _own("FIELDS_SET")
    if slot is None:
        return cast(_Message, type(message).model_construct(names, **dict(message)))
    slot.__set__(message, names)
    return message


def share_private(twin: Any, model: BaseModel) -> None:
    """Makes the private attributes of `model`, as pydantic calls them, those of its copy `twin` as well: what
    one of them notes there, the other has."""
    slot = _own("PRIVATE")
    if slot is None:
        twin.__dict__[_SHARED] = model
        kind: type[BaseModel] = type(twin)
        twin.__class__ = _sharing(kind)
    else:
        slot.__set__(twin, slot.__get__(model))


_SHARED = "_signoff_shared"


class _Sharing:
    """Looks the private attributes up at the model that this one is a copy of."""

    def __getattr__(self: Any, name: str) -> Any:
        if name in type(self).__private_attributes__:
            return getattr(self.__dict__[_SHARED], name)
        return super().__getattr__(name)  # type: ignore[misc]  # pydantic's, hidden from type checkers

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if name in type(self).__private_attributes__:
            setattr(self.__dict__[_SHARED], name, value)
        else:
            super().__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if name in type(self).__private_attributes__:
            delattr(self.__dict__[_SHARED], name)
        else:
            super().__delattr__(name)


@lru_cache(maxsize=256)
def _sharing(model: type[BaseModel]) -> type[BaseModel]:
    names = {"__module__": model.__module__, "__qualname__": model.__qualname__, "__doc__": model.__doc__}
    metaclass: Any = type(model)
    made: type[BaseModel] = metaclass(model.__name__, (_Sharing, model), names)
    return made


def _own(name: str) -> Any:
    known = globals()
    return known[name] if name in known else __getattr__(name)
