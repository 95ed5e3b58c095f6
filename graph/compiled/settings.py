"""Validates the arguments of `build_graph`: every mistake raises one sentence that says what to write."""

import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from os import PathLike
from typing import Any

from langchain_core.messages import SystemMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from signoff.graph.arguments import describe
from signoff.graph.compiled.holds import closed
from signoff.graph.errors import SetupError
from signoff.graph.foreign import valid_text
from signoff.graph.limits import Limits
from signoff.graph.policy import LoopPolicy
from signoff.graph.values import is_sound
from signoff.nodes.model.models import refuse_wrapped
from signoff.nodes.model.providers import model_by_name


def check_model(model: object) -> None:
    """Rejects anything that is not a chat model: a class, another runnable, an object without
    `bind_tools`."""
    if inspect.isclass(model):
        raise SetupError(
            f"model= is the class {model.__name__}; pass an instance of it: {model.__name__}(…)."
        )
    refuse_wrapped(model)
    if not hasattr(model, "bind_tools"):
        raise SetupError(
            f"{describe(model)} is not a chat model; pass a LangChain chat model, such as ChatOpenAI(…), or "
            "a name such as 'openai:gpt-…'."
        )


def checked_model(model: Any) -> Any:
    """The model, created from its name if it is one."""
    made = model_by_name(model) if isinstance(model, str) else model
    check_model(made)
    return made


def checked_limits(given: Any) -> Limits:
    """Limits, or a mapping of their names. None: the defaults."""
    if given is None:
        return Limits()
    if isinstance(given, Limits):
        return given
    if isinstance(given, Mapping) and all(isinstance(key, str) for key in given):
        return Limits(**given)
    raise SetupError(f"limits= is {describe(given)}; write limits=Limits(turns=30).")


def checked_policy(given: Any) -> LoopPolicy:
    """A policy, or a mapping of its names. None: the defaults."""
    if given is None:
        return LoopPolicy()
    if isinstance(given, LoopPolicy):
        return given
    if isinstance(given, Mapping) and all(isinstance(key, str) for key in given):
        return LoopPolicy(**given)
    raise SetupError(f'policy= is {describe(given)}; write policy=LoopPolicy(talk="strict"), or a mapping.')


_STRATEGIES = ("ToolStrategy", "ProviderStrategy", "AutoStrategy")
# A JSON schema with none of these takes anything.
_SAY_WHAT = frozenset(
    ["type", "properties", "items", "enum", "const", "anyOf", "oneOf", "allOf", "not", "if", "$ref"]
)


def checked_format(given: Any) -> Any:
    """The response format; of a strategy of LangChain's the type or schema in it: how it is asked for is not
    the caller's matter here."""
    kind = type(given)
    if kind.__name__ in _STRATEGIES and kind.__module__.startswith("langchain."):
        given = given.schema
    if isinstance(given, Mapping) and _SAY_WHAT.isdisjoint(given):
        raise SetupError(
            f"response_format is {describe(given)}, a JSON schema that says nothing of the result; write "
            "{'type': 'object', 'properties': {…}}, or pass a pydantic model."
        )
    return given


# Providers reject a whole request if one message has any other name.
_NAME = re.compile(r"[^\s<|\\/>]{1,64}")


def checked_name(given: object) -> str | None:
    """The name of a graph, in a form that is valid on a message."""
    if given is None or (isinstance(given, str) and _NAME.fullmatch(given) and valid_text(given) == given):
        return given
    raise SetupError(f"name= is {describe(given)}; pass at most 64 characters, without spaces and < | / >.")


def checked_prompt(given: Any) -> str | SystemMessage:
    """The system prompt."""
    if given is None or isinstance(given, str):
        return valid_text(given or "")
    if isinstance(given, SystemMessage):
        _check_blocks(given.content)
        return given
    if callable(given) and not inspect.isclass(given):
        raise SetupError(
            f"system_prompt= is {describe(given)}; a prompt that depends on the run is a middleware: write "
            "middleware=[my_prompt], and @dynamic_prompt of LangChain above def my_prompt(request)."
        )
    raise SetupError(f"system_prompt= is {describe(given)}; pass text or a SystemMessage.")


def _check_blocks(content: Any) -> None:
    for block in [] if isinstance(content, str) else content:
        if not isinstance(block, str | Mapping) or not is_sound(block):
            raise SetupError(
                f"system_prompt= has the block {describe(block)}; pass text or a mapping of plain values."
            )


def check_storage(storage: Any, checkpointer: Any, store: Any) -> None:
    """Rejects anything that is not a storage (or the address of one), a checkpointer or a store: a class, or
    one that is not open."""
    if storage is not None and (checkpointer is not None or store is not None):
        raise SetupError("Give storage=, or checkpointer= and store=, not both.")
    if storage is not None:
        _check_storage(storage)
    # True and False are LangGraph's own values, for a subgraph.
    if checkpointer is not None and not isinstance(checkpointer, BaseCheckpointSaver | bool):
        raise SetupError(_no_part("checkpointer", checkpointer, BaseCheckpointSaver, "InMemorySaver()"))
    if store is not None and not isinstance(store, BaseStore):
        raise SetupError(_no_part("store", store, BaseStore, "InMemoryStore()"))


def is_address(storage: Any) -> bool:
    """Whether it says where a database is, which the graph then opens itself."""
    return isinstance(storage, str | PathLike)


@contextmanager
def opened(address: str | PathLike[str]) -> Iterator[Any]:
    """The storage at this path, or at this address of a PostgreSQL database."""
    # Imported here: it stands above the graph, and most graphs are given a storage that is open.
    from signoff.storage.postgres import postgres_storage
    from signoff.storage.sqlite import sqlite_storage

    at_server = isinstance(address, str) and address.startswith(("postgres://", "postgresql://"))
    with postgres_storage(str(address)) if at_server else sqlite_storage(address) as storage:
        yield storage


def _check_storage(storage: Any) -> None:
    if is_address(storage):
        path = str(storage)
        if not path.strip() or valid_text(path) != path:
            raise SetupError(f"storage= is {describe(path)}; pass the path of its file, or its address.")
        return
    if isinstance(storage, BaseCheckpointSaver):
        raise SetupError(
            f"storage= is a saver ({_kind(storage)}); pass it as checkpointer=, together with a store=."
        )
    if getattr(storage, "is_open", True) is False:
        raise closed()
    saver, store = getattr(storage, "checkpointer", None), getattr(storage, "store", None)
    if inspect.isclass(storage) or not isinstance(saver, BaseCheckpointSaver):
        raise SetupError(_no_storage(storage))
    if store is not None and not isinstance(store, BaseStore):
        raise SetupError(_no_storage(storage))


def _no_storage(storage: Any) -> str:
    wrong = "has not been opened" if _unopened(storage) else f"is {describe(storage)}, no storage"
    return (
        f"storage= {wrong}; pass the path of its file, or write "
        "`with sqlite_storage(path) as storage:` and pass `storage`."
    )


def _no_part(name: str, given: Any, wanted: type, example: str) -> str:
    if _unopened(given):
        return f"{name}= has not been opened; enter it with `with` (or `async with`) and pass the result."
    if inspect.isclass(given) and issubclass(given, wanted):
        return f"{name}= is the class {given.__name__}; pass an instance of it, such as {example}."
    if getattr(given, "checkpointer", None) is not None:
        return f"{name}= is {_kind(given)}, which is a whole storage; pass it as storage=."
    return (
        f"{name}= is {describe(given)}; pass an instance of LangGraph's {wanted.__name__}, such as {example}."
    )


def _unopened(given: object) -> bool:
    """Whether it is a context manager that was not entered, as a bare `sqlite_storage(path)` is."""
    return isinstance(given, AbstractContextManager | AbstractAsyncContextManager) and not isinstance(
        given, BaseCheckpointSaver | BaseStore
    )


def _kind(given: object) -> str:
    return type(given).__name__
