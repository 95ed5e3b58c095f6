"""Every private name of other packages that Signoff uses; no other file uses one.

Each makes a run faster, and none is required: it is looked up at its first use, and is None if the installed
version has no such name. Then a public way is used instead, with the same results:

- `PregelNode`, `ChannelRead`, `ChannelWrite`, `ChannelWriteTupleEntry`, `SEND`: the nodes of a compiled graph
  run as LangGraph compiled them (`nodes.py`).
- `RUNTIME`: a run's runtime is found by its type, else by `langgraph.runtime.get_runtime`, and copied as
  LangGraph does (`speed.py`).
- `SCRATCHPAD`: reads always run one by one, as they must when one of them receives an answer, and a read that
  killed its process cannot be told from one interrupted by chance: it runs again.
- `RESUMING`: the last known name is used: LangGraph has no public way to enter a subgraph again.
- `CHECKPOINTER`: a run's checkpointer is found by its type.
- `DURABILITY`: a guarded call looks for the checkpoint of its reply, however the run saves.
- `READ`: it is not known which channels, and so which nodes, a graph has.
- `format_output`, `config_param`, `to_args`: every tool is called by its `invoke`
  (`graph/inside/speed.py`).
- `inject`, `injected_args`: a `ToolNode` is invoked up to the point where it would call the tool
  (`nodes/tool_calls/inject.py`).
- `FIELDS_SET`: a message is rebuilt by `model_construct`.
- `PRIVATE`: a copy of a model passes on its private attributes one by one.

The methods of a chat model or a tool (`_stream`, `_generate`, `_llm_type`, `_run`, `_arun` and the like) do
not count as private: LangChain documents them for subclasses to implement.
"""

from collections.abc import Callable, Mapping, Sequence
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

SEND: str  # used only in `nodes.py`, after a check that it exists
RUNTIME: str | None
SCRATCHPAD: str | None
RESUMING: str | None
CHECKPOINTER: str | None
DURABILITY: str | None
READ: str | None
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
    "DURABILITY": ("langgraph._internal._constants", "CONFIG_KEY_DURABILITY"),
    "READ": ("langgraph._internal._constants", "CONFIG_KEY_READ"),
    "format_output": ("langchain_core.tools.base", "_format_output"),
    "config_param": ("langchain_core.tools.base", "_get_runnable_config_param"),
    "to_args": ("langchain_core.tools", "StructuredTool._to_args_and_kwargs"),
    "inject": ("langgraph.prebuilt", "ToolNode._inject_tool_args"),
    "injected_args": ("langgraph.prebuilt.tool_node", "_get_all_injected_args"),
    "FIELDS_SET": ("pydantic", "BaseModel.__pydantic_fields_set__"),
    "PRIVATE": ("pydantic", "BaseModel.__pydantic_private__"),
}
"""The location of each name: the module, and the name in it."""

LEAN = ("PregelNode", "ChannelRead", "ChannelWrite", "ChannelWriteTupleEntry", "SEND")
"""The names that `nodes.py` needs."""


def __getattr__(name: str) -> Any:
    # Looked up only now: importing Signoff must not import all of LangGraph.
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
    """LangGraph's runtime for the run with this configuration; None outside a run."""
    if (key := _runtime_key(config)) is not None:
        return config.get("configurable", {}).get(key)
    from langgraph.runtime import get_runtime

    try:
        return get_runtime()
    except (RuntimeError, LookupError):
        return None


def with_runtime(config: RunnableConfig, made: Any) -> RunnableConfig:
    """`config` of a run with this runtime instead of its own; `config` itself if it has none."""
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
    """Whether this is the configuration of a run that saves, not that of a caller."""
    return bool(saver_of(configurable))


def saver_of(configurable: Mapping[str, Any]) -> Any:
    """The checkpointer of the run with this configuration; None for a caller's configuration."""
    if (key := _own("CHECKPOINTER")) is not None:
        return configurable.get(key)
    return next((value for value in configurable.values() if isinstance(value, BaseCheckpointSaver)), None)


def durability_of(configurable: Mapping[str, Any]) -> str | None:
    """When the run with this configuration saves its checkpoints; None where nobody has said so."""
    key = _own("DURABILITY")
    return None if key is None else configurable.get(key)


def channels_of(configurable: Mapping[str, Any]) -> Sequence[str]:
    """The names of the channels of the graph whose node has this configuration; none if not known."""
    try:
        return tuple(configurable[_own("READ")].args[1])
    except (AttributeError, IndexError, KeyError, TypeError):
        return ()


def within_saver(configurable: Mapping[str, Any], saver: BaseCheckpointSaver[Any]) -> dict[str, Any]:
    """The configuration by which a graph without a checkpointer reads and writes a machine in a thread. Uses
    the last known name: LangGraph has no public way to write below a thread's own machine."""
    return {**configurable, _own("CHECKPOINTER") or "__pregel_checkpointer": saver}


def is_answered(configurable: Mapping[str, Any]) -> bool:
    """Whether a node with this configuration may receive an answer to its `interrupt`."""
    if (key := _own("SCRATCHPAD")) is None:
        return True
    pad = configurable.get(key)
    try:
        return pad is not None and (bool(pad.resume) or pad.get_null_resume() is not None)
    except (AttributeError, TypeError):
        return True


def is_resumed(config: RunnableConfig) -> bool:
    """Whether a node with this configuration may be the first one of a resumed run. LangGraph counts the
    steps of a run from its start; new input is a step."""
    if (key := _own("SCRATCHPAD")) is None:
        return True
    pad, limit = config.get("configurable", {}).get(key), config.get("recursion_limit")
    try:
        return pad is not None and limit is not None and bool(pad.stop - pad.step > limit)
    except (AttributeError, TypeError):
        return True


def within_namespace(configurable: Mapping[str, Any], ns: str, *, goes_on: bool) -> dict[str, Any]:
    """The configuration of a graph that a node runs in the checkpoint namespace `ns` of the node's thread.

    goes_on: there is saved state to continue from. LangGraph would number the graphs that a node runs, and
    add the number to the namespace; it adds none for the first.
    """
    made = {**configurable, "checkpoint_ns": ns, "checkpoint_id": None}
    made[_own("RESUMING") or "__pregel_resuming"] = goes_on
    key = _own("SCRATCHPAD") or "__pregel_scratchpad"
    if (pad := made.get(key)) is not None:
        made[key] = replace(pad, subgraph_counter=count().__next__)
    return made


def looking_into(thread_id: str, ns: str, saver: BaseCheckpointSaver[Any]) -> RunnableConfig:
    """The configuration for what a graph has saved in the checkpoint namespace `ns` of a thread. Without the
    checkpointer, LangGraph would look for a graph of that name among its own nodes."""
    key = _own("CHECKPOINTER") or "__pregel_checkpointer"
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, key: saver}}


def played(*, runtime: Any, pad: Any, saver: BaseCheckpointSaver[Any] | None) -> dict[str, Any]:
    """The configuration of a node that runs without LangGraph. If a key's name no longer exists, the last
    known one is used: LangGraph has no public way to run a single node."""
    return {
        _own("RUNTIME") or "__pregel_runtime": runtime,
        _own("SCRATCHPAD") or "__pregel_scratchpad": pad,
        _own("CHECKPOINTER") or "__pregel_checkpointer": saver,
        _own("SEND") or "__pregel_send": lambda _: None,
    }


_Message = TypeVar("_Message", bound=BaseMessage)


def with_fields_set(message: _Message, names: set[str]) -> _Message:
    """`message` with `names` as pydantic's set of explicitly set fields. The set is not copied, so that all
    messages of a kind share one."""
    slot = _own("FIELDS_SET")
    if slot is None:
        return cast(_Message, type(message).model_construct(names, **dict(message)))
    slot.__set__(message, names)
    return message


def share_private(twin: Any, model: BaseModel) -> None:
    """Makes the copy `twin` share pydantic's private attributes of `model`: a change in one is seen in the
    other."""
    slot = _own("PRIVATE")
    if slot is None:
        twin.__dict__[_SHARED] = model
        kind: type[BaseModel] = type(twin)
        twin.__class__ = _sharing(kind)
    else:
        slot.__set__(twin, slot.__get__(model))


_SHARED = "_signoff_shared"


class _Sharing:
    """Looks up private attributes on the original of this copy."""

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
