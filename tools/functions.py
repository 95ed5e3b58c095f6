"""Makes tools of functions, and refuses, when the graph is built, a tool that no call could satisfy.

LangChain builds such a tool without a word, and each call of it fails, or is given something else: an
argument that nothing passes (`self` of a method without its object), a name that LangChain fills in itself, a
hint that cannot be resolved. Each is one sentence that names the tool and the argument.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any, get_args, get_origin, get_type_hints

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, tool
from pydantic import BaseModel, TypeAdapter, create_model

from signoff.graph.arguments import describe
from signoff.graph.errors import SetupError
from signoff.graph.foreign import words

_INJECTED = {"InjectedToolArg", "_DirectlyInjectedToolArg"}
# What LangChain passes by these names is of its own types.
_FILLED_IN = {"runtime", "callbacks", "run_manager"}
# Names of the model that LangChain makes of the arguments.
_OF_THE_SCHEMA = {"args", "kwargs", "model_config"}
_PREFIX = "v__"
_STRIPPED = 2


def as_tool(given: Any) -> BaseTool:
    """The tool of a function, or a checked tool. Arguments that a `functools.partial` has bound are neither
    shown to the model nor taken from it. Raises SetupError for anything that cannot be a tool."""
    if isinstance(given, BaseTool):
        made = _without_bound(given)
        check_arguments(made)
        return made
    if inspect.isclass(given):
        raise SetupError(
            f"tools= holds the class {given.__name__}; pass an instance of a tool, or a function with a "
            "docstring."
        )
    if given is None or isinstance(given, str | list | tuple):
        raise SetupError(
            f"tools= holds {describe(given)}, which cannot be a tool; pass LangChain tools, or functions "
            "with docstrings."
        )
    if _stays(given):
        return _of_module(given, given.__doc__).model_copy()
    return _of_function(_free(given) if isinstance(given, partial) else given)


def _stays(given: object) -> bool:
    """Whether it is a module-level function without a closure, which is safe to cache."""
    return isinstance(given, FunctionType) and given.__closure__ is None and "<" not in given.__qualname__


@lru_cache(maxsize=256)
def _of_module(given: Callable[..., Any], doc: str | None) -> BaseTool:
    """The cached tool of a function, of which copies are made: deriving its schema takes longer than building
    a graph."""
    made = _of_function(given)
    with suppress(Exception):  # reported when a graph needs it
        _ = made.tool_call_schema
    return made


def _of_function(given: Any) -> BaseTool:
    try:
        made: BaseTool = tool(given)
    except NameError:
        # What a function returns is not looked at, and its hint may be there for type checkers alone.
        made = _described(_without_return_hint(given))
    except Exception as error:
        raise _refused(given, error) from error
    if not made.description.strip():
        raise _refused(given, ValueError("its docstring is empty"))
    check_arguments(made)
    return made


def _described(given: Any) -> BaseTool:
    try:
        made: BaseTool = tool(given)
    except Exception as error:
        raise _refused(given, error) from error
    return made


def _refused(given: Any, error: Exception) -> SetupError:
    """The sentence for a function of which LangChain makes no tool."""
    name = getattr(given, "__name__", None)
    if name is None:
        return SetupError(
            f"{describe(given)} cannot be a tool ({words(error)}); pass a LangChain tool, or a function with "
            "a docstring."
        )
    for argument in _parameters(given):
        if argument in _OF_THE_SCHEMA or argument.startswith(_PREFIX):
            return _kept_name(name, argument)
        if (why := _unresolved(given, argument)) is not None:
            return SetupError(
                f"{name!r} cannot be a tool: the hint of its argument {argument!r} cannot be resolved "
                f"({why}); import or define the type where the function is defined, also at run time."
            )
    if given.__doc__ is None and sys.flags.optimize >= _STRIPPED:
        return SetupError(
            f"{name!r} cannot be a tool: Python runs with -OO, which strips docstrings, and the model reads "
            "in them what a tool does; leave -OO out, or pass StructuredTool.from_function(…, description=…)."
        )
    return SetupError(
        f"{name!r} cannot be a tool ({words(error).splitlines()[0]:.200}); pass a LangChain tool, or a "
        "function with a docstring."
    )


def _kept_name(tool_name: str, argument: str) -> SetupError:
    return SetupError(
        f"The tool {tool_name!r} has the argument {argument!r}, a name that LangChain keeps for itself; "
        "rename it."
    )


def check_arguments(found: BaseTool) -> None:
    """Raises SetupError for a function tool with an argument that no call passes, or that LangChain fills in
    with something else than the function says."""
    # Its description may come from a function of its own, as in the file tools.
    if not found.description and sys.flags.optimize >= _STRIPPED:
        raise SetupError(
            f"The tool {found.name!r} has no description: Python runs with -OO, which strips docstrings; "
            "leave -OO out, or give the tool a description."
        )
    if not isinstance(found, StructuredTool):
        return
    taken = fields_of(found.args_schema)
    for function in (found.func, found.coroutine):
        for parameter in () if function is None else _parameters(function).values():
            _check_argument(found, function, parameter, taken)


def _check_argument(found: StructuredTool, function: Any, parameter: inspect.Parameter, taken: Any) -> None:
    name = parameter.name
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise SetupError(
            f"The tool {found.name!r} takes the argument {name!r} by its place alone, and a call passes it "
            "by its name; write it without /."
        )
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        # With a schema that names the arguments, it only hands them on.
        if name in (taken or ()):
            raise SetupError(
                f"The tool {found.name!r} takes any arguments as {name!r}, and a model can be shown none of "
                "them; name each, without * and **."
            )
        return
    if name in ("args", "kwargs"):
        raise _kept_name(found.name, name)
    if _is_without_object(function, name):
        raise SetupError(
            f"The tool {found.name!r} needs the argument {name!r}, which no call passes: it is a method "
            "without its object. Make the tool of the method of an object, such as "
            f"shop.{_name_of(function)}, without a decorator in the class."
        )
    if name in _FILLED_IN and not _may_be_filled_in(name, _hint(function, name)):
        raise _kept_name(found.name, name)
    if parameter.default is not parameter.empty or taken is None or name in taken:
        return
    hint = _hint(function, name)
    if _is_injected(hint) or (name == "callbacks" and _is_callbacks(hint)):
        return
    raise SetupError(
        f"The tool {found.name!r} needs the argument {name!r}, which no call passes; give it a default, or a "
        "name that a schema can have (without an underscore in front)."
    )


def _is_without_object(function: Any, argument: str) -> bool:
    """Whether this is the first argument of a method that no object is bound to."""
    if argument not in ("self", "cls") or not isinstance(function, FunctionType):
        return False
    around, _, _ = function.__qualname__.rpartition(".")
    return argument == next(iter(_parameters(function)), "") and around != "" and not around.endswith(">")


def _name_of(function: Any) -> str:
    return str(getattr(_inner(function), "__name__", "method"))


def _parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}  # A function of C may say nothing of its arguments.


def fields_of(schema: Any) -> set[str] | None:
    """The names of the arguments that a call may have; None if nobody can tell."""
    if not inspect.isclass(schema):
        return None
    # The other ones are of pydantic's first version.
    fields = schema.model_fields if issubclass(schema, BaseModel) else getattr(schema, "__fields__", None)
    if fields is None or getattr(schema, "model_config", {}).get("extra") == "allow":
        return None
    names = [
        getattr(field, name, None) for field in fields.values() for name in ("alias", "validation_alias")
    ]
    aliases = [name for name in names if name is not None]
    return {*fields, *aliases} if all(isinstance(alias, str) for alias in aliases) else None


def _may_be_filled_in(name: str, hint: Any) -> bool:
    """Whether an argument of this name may be of the type that LangChain passes."""
    anything = hint in (inspect.Parameter.empty, Any, object) or Any in get_args(hint)
    return anything or (_is_injected(hint) if name == "runtime" else _is_callbacks(hint))


def _is_injected(hint: Any) -> bool:
    """Whether LangChain or LangGraph passes an argument with this hint: state, store, runtime, config."""
    return any(
        part is RunnableConfig or not _INJECTED.isdisjoint(_names_of_class(part)) for part in _parts(hint)
    )


def _is_callbacks(hint: Any) -> bool:
    return any("Callback" in name for part in _parts(hint) for name in _names_of_class(part))


def _names_of_class(part: Any) -> set[str]:
    kind = part if inspect.isclass(part) else type(part)
    return {one.__name__ for one in kind.__mro__}


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    if (origin := get_origin(hint)) is not None:
        yield origin
    for part in (*get_args(hint), *getattr(hint, "__metadata__", ())):
        yield from _parts(part)


def _hint(function: Any, argument: str) -> Any:
    """The hint of an argument; its text where it cannot be resolved."""
    hints = getattr(_inner(function), "__annotations__", {})
    if argument not in hints:
        return inspect.Parameter.empty
    try:
        return _resolved(function, argument)
    except Exception:  # noqa: BLE001  a hint may be any code
        return hints[argument]


def _resolved(function: Any, argument: str) -> Any:
    inner = _inner(function)
    alone = SimpleNamespace(__annotations__={argument: inner.__annotations__[argument]})
    names = getattr(inspect.unwrap(inner), "__globals__", {})
    return get_type_hints(alone, globalns=names, include_extras=True)[argument]


def _unresolved(function: Any, argument: str) -> str | None:
    """Why the hint of an argument cannot be resolved; None if it can."""
    if argument not in getattr(_inner(function), "__annotations__", {}):
        return None
    try:
        _resolved(function, argument)
    except Exception as error:  # noqa: BLE001  a hint may be any code
        return words(error)
    return None


def _inner(function: Any) -> Any:
    """The function that has the hints."""
    while isinstance(function, partial | MethodType):
        function = function.func if isinstance(function, partial) else function.__func__
    return function if hasattr(function, "__annotations__") else type(function).__call__


def _without_return_hint(function: Any) -> Any:
    """A copy of a function without the hint of what it returns; of anything else the thing itself."""
    if isinstance(function, MethodType):
        return MethodType(_without_return_hint(function.__func__), function.__self__)
    if not isinstance(function, FunctionType):
        return function
    copied = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    functools.update_wrapper(copied, function)
    del copied.__wrapped__  # type: ignore[attr-defined]  # it would lead back to the hint
    copied.__kwdefaults__ = function.__kwdefaults__
    copied.__annotations__ = {
        name: hint for name, hint in function.__annotations__.items() if name != "return"
    }
    return copied


def _free(given: "partial[Any]") -> Any:
    """A function of the arguments that a partial has left free."""
    inner = given.func
    try:
        # What it wraps, by `update_wrapper`, has the bound arguments still.
        parameters = inspect.signature(given, follow_wrapped=False).parameters
    except (TypeError, ValueError) as error:
        raise SetupError(
            f"{describe(inner)} cannot be a tool: nothing says what arguments it takes; pass a function that "
            "calls it."
        ) from error
    free = [one for one in parameters.values() if one.name not in given.keywords]
    is_async = inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(_inner(inner))

    def call(**arguments: Any) -> Any:
        return given(**arguments)

    async def acall(**arguments: Any) -> Any:
        return await given(**arguments)

    function: Any = acall if is_async else call
    function.__name__ = getattr(given, "__name__", None) or getattr(inner, "__name__", "partial")
    function.__qualname__ = getattr(_inner(inner), "__qualname__", function.__name__)
    # `functools.partial` has a docstring of its own, which says nothing of the function.
    function.__doc__ = inner.__doc__ if given.__doc__ == partial.__doc__ else given.__doc__
    function.__module__ = getattr(inner, "__module__", __name__)
    hints = {one.name: _hint(inner, one.name) for one in free}
    function.__annotations__ = {
        name: hint for name, hint in hints.items() if hint is not inspect.Parameter.empty
    }
    function.__signature__ = inspect.Signature([one.replace(annotation=hints[one.name]) for one in free])
    return function


def _without_bound(found: BaseTool) -> BaseTool:
    """A tool whose function is a partial, without the arguments that are bound: LangChain shows them to the
    model as arguments with a default."""
    if type(found) is not StructuredTool:
        return found
    functions = {"func": found.func, "coroutine": found.coroutine}
    bound = {name for part in functions.values() if isinstance(part, partial) for name in part.keywords}
    schema = found.args_schema
    if not bound or not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        return found
    if bound.isdisjoint(schema.model_fields):
        return found
    fields: dict[str, Any] = {
        name: (field.annotation, field) for name, field in schema.model_fields.items() if name not in bound
    }
    rest = create_model(schema.__name__, __doc__=schema.__doc__, **fields)
    free = {name: _free(part) if isinstance(part, partial) else part for name, part in functions.items()}
    return found.model_copy(update={**free, "args_schema": rest})


def check_shown(tools: Mapping[str, Any], error: Exception) -> None:
    """Raises SetupError for the first of these tools that cannot be shown to a model. error: what the attempt
    has raised."""
    for name, found in tools.items():
        schema = getattr(found, "tool_call_schema", None)
        for argument, field in getattr(schema, "model_fields", {}).items():
            try:
                TypeAdapter(field.annotation, config={"arbitrary_types_allowed": True}).json_schema()
            except Exception as cause:  # noqa: BLE001  a type may bring any code
                raise SetupError(
                    f"The tool {name!r} has the argument {argument!r} of a type that no model can be shown "
                    f"({words(cause).splitlines()[0]:.120}); give it a type that JSON has."
                ) from error
