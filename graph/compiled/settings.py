"""Validates the arguments of `build_graph`: every mistake raises one sentence that says what to write."""

import inspect
import os
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from math import inf
from os import PathLike
from typing import Any, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import SystemMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from signoff.graph.errors import SetupError
from signoff.graph.limits import Limits
from signoff.graph.texts import Texts
from signoff.graph.values import is_sound
from signoff.nodes.model.models import refuse_wrapped
from signoff.nodes.model.providers import model_by_name
from signoff.nodes.model.retries import ModelRetries

_Number = TypeVar("_Number", bound=float | None)
_Word = TypeVar("_Word", bound=str)


def describe(given: object) -> str:
    """A short description of a value: the name of a class or a function, else its repr."""
    if inspect.isclass(given):
        return f"the class {given.__name__}"
    if inspect.isroutine(given):
        return f"the function {given.__name__}"
    return reprlib.repr(given)


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


def checked_models(model: Any, fallbacks: Any) -> list[Any]:
    """The model and its fallbacks, created from their names where needed."""
    if isinstance(fallbacks, Runnable):
        raise SetupError(f"fallbacks= is {_kind(fallbacks)}, not a list; write fallbacks=[my_model].")
    given = [model, *listed("fallbacks", fallbacks, '["openai:gpt-…"]')]
    made = [model_by_name(one) if isinstance(one, str) else one for one in given]
    for each in made:
        check_model(each)
    return made


def checked_retries(given: Any) -> ModelRetries | None:
    """How often a model call is retried; None for never."""
    if given is not None and not isinstance(given, ModelRetries):
        raise SetupError(
            f"model_retries= is {describe(given)}; write model_retries=ModelRetries(tries=5), or None for no "
            "second try."
        )
    return given


def listed(name: str, given: Any, example: str) -> list[Any]:
    """The members of a list argument; None counts as empty. example: how to write it."""
    if given is None:
        return []
    single = isinstance(given, str | bytes | Mapping | BaseTool) or inspect.isclass(given)
    if single or not isinstance(given, Iterable):
        raise SetupError(f"{name}= is {describe(given)}, not a list; write {name}={example}.")
    return list(given)


def checked_limits(given: Any) -> Limits:
    """Limits, or a mapping of their names. None: the defaults."""
    if given is None:
        return Limits()
    if isinstance(given, Limits):
        return given
    if isinstance(given, Mapping) and all(isinstance(key, str) for key in given):
        return Limits(**given)
    raise SetupError(f"limits= is {describe(given)}; write limits=Limits(turns=30).")


# Providers reject a whole request if one message has any other name.
_NAME = re.compile(r"[^\s<|\\/>]{1,64}")


def checked_name(given: object) -> str | None:
    """The name of a graph, in a form that is valid on a message."""
    if given is None or (isinstance(given, str) and _NAME.fullmatch(given)):
        return given
    raise SetupError(f"name= is {describe(given)}; pass at most 64 characters, without spaces and < | / >.")


def checked_function(name: str, given: Any, arguments: str) -> Any:
    """A plain function of these arguments, or None."""
    if given is None:
        return None
    if not callable(given) or inspect.isclass(given) or inspect.iscoroutinefunction(given):
        raise SetupError(f"{name}= is {describe(given)}; pass a plain function of ({arguments}).")
    try:
        inspect.signature(given).bind(*arguments.split(", "))
    except TypeError:
        raise SetupError(f"{name}= must take ({arguments}).") from None
    except ValueError:
        # Some functions written in C have no signature.
        pass
    return given


PromptFunction = Callable[[Any, Any], Any]


def checked_prompt(given: Any) -> tuple[str | SystemMessage, PromptFunction | None]:
    """The system prompt, and the function that makes it for each call; either may be absent."""
    if given is None or isinstance(given, str):
        return given or "", None
    if isinstance(given, SystemMessage):
        _check_blocks(given.content)
        return given, None
    if inspect.isclass(given) or not callable(given):
        raise SetupError(
            f"system_prompt= is {describe(given)}; pass text, a SystemMessage or a function of "
            "(state, context)."
        )
    try:
        inspect.signature(given).bind(None, None)
    except ValueError:
        pass  # A function written in C may have no signature.
    except TypeError as error:
        raise SetupError(
            f"system_prompt= is {describe(given)}, which must accept (state, context) ({error})."
        ) from error
    return "", given


def _check_blocks(content: Any) -> None:
    for block in [] if isinstance(content, str) else content:
        if not isinstance(block, str | Mapping) or not is_sound(block):
            raise SetupError(
                f"system_prompt= has the block {describe(block)}; pass text or a mapping of plain values."
            )


def cache_way(given: Any, model: BaseChatModel) -> str | None:
    """The provider whose prompt caching is used. "auto": the model's own provider, if known."""
    if given is None:
        return None
    way = one_of("cache", given, ("auto", "anthropic", "openai"))
    if way != "auto":
        return way
    inner: Any = model
    while isinstance(found := getattr(inner, "model", None), BaseChatModel):
        inner = found
    kind = str(getattr(inner, "_llm_type", ""))
    if "anthropic" in kind:
        return "anthropic"
    # Another server with OpenAI's protocol may reject an unknown field.
    elsewhere = getattr(inner, "openai_api_base", None) or os.environ.get("OPENAI_BASE_URL")
    return "openai" if kind == "openai-chat" and not elsewhere else None


def checked_texts(given: object) -> Texts:
    """The texts of the loop."""
    if not isinstance(given, Texts):
        raise SetupError(f"texts= is {describe(given)}; pass Texts(…), which may replace any of them.")
    return given


def check_storage(storage: Any, checkpointer: Any, store: Any) -> None:
    """Rejects anything that is not a storage, a checkpointer or a store: a path, a class, or one that is not
    open."""
    if storage is not None and (checkpointer is not None or store is not None):
        raise SetupError("Give storage=, or checkpointer= and store=, not both.")
    if storage is not None:
        _check_storage(storage)
    # True and False are LangGraph's own values, for a subgraph.
    if checkpointer is not None and not isinstance(checkpointer, BaseCheckpointSaver | bool):
        raise SetupError(_no_part("checkpointer", checkpointer, BaseCheckpointSaver, "InMemorySaver()"))
    if store is not None and not isinstance(store, BaseStore):
        raise SetupError(_no_part("store", store, BaseStore, "InMemoryStore()"))


def _check_storage(storage: Any) -> None:
    if isinstance(storage, str | PathLike):
        opening = f"sqlite_storage({str(storage)!r})"
        if str(storage).startswith(("postgres://", "postgresql://")):
            # Not shown: it may contain a password.
            opening = "postgres_storage(url)"
        raise SetupError(
            "storage= is the address of a database that is not open; write "
            f"`with {opening} as storage:` and build and run the graph within it."
        )
    if isinstance(storage, BaseCheckpointSaver):
        raise SetupError(
            f"storage= is a saver ({_kind(storage)}); pass it as checkpointer=, together with a store=."
        )
    saver, store = getattr(storage, "checkpointer", None), getattr(storage, "store", None)
    if inspect.isclass(storage) or not isinstance(saver, BaseCheckpointSaver):
        raise SetupError(_no_storage(storage))
    if store is not None and not isinstance(store, BaseStore):
        raise SetupError(_no_storage(storage))


def _no_storage(storage: Any) -> str:
    wrong = "has not been opened" if _unopened(storage) else f"is {describe(storage)}, no storage"
    return f"storage= {wrong}; write `with sqlite_storage(path) as storage:` and pass `storage`."


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


def positive(name: str, value: _Number, *, whole: bool = False, none: bool = True) -> _Number:
    """A number above 0. whole: an integer. none: None is allowed, for no limit."""
    if value is None and none:
        return value
    number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not number or value is None or not 0 < value < inf:
        kind = "a whole number" if whole else "a number"
        raise SetupError(f"{name} is {describe(value)}; pass {kind} above 0{', or None' if none else ''}.")
    return value


def flag(name: str, value: object) -> bool:
    """True or False, and nothing else: a string such as "false" would count as true."""
    if not isinstance(value, bool):
        raise SetupError(f"{name} is {describe(value)}; pass True or False.")
    return value


def one_of(name: str, value: object, words: Sequence[_Word]) -> _Word:
    """One of the allowed words."""
    for word in words:
        if isinstance(value, str) and word == value:
            return word
    raise SetupError(f"{name} is {describe(value)}; use one of: {', '.join(words)}.")
