"""All tools of a graph: the control tools, the working tools with their kinds, and their approvals.

Also resolves a tool name that a model misspelled, and suggests the nearest one.
"""

import inspect
import re
import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import lru_cache
from types import FunctionType
from typing import Any

from langchain_core.tools import BaseTool, tool
from pydantic import BaseModel, ValidationError

from signoff.graph.errors import SetupError
from signoff.graph.foreign import gets_past
from signoff.graph.kinds import Effect, Kind, kind_of
from signoff.tools.approvals import Approvals, Policy
from signoff.tools.control import ControlRegistry, ControlTool, schema_of
from signoff.tools.delegates import Delegate
from signoff.tools.undo import UndoTool, undos_of

_LONGEST = 200
# Keys and types of a tool that the model's caller runs, not the provider.
_DESCRIBES = {"function", "parameters", "input_schema"}
_CALLED = ("function", "custom")
_AROUND = re.compile(r"^(?:functions?|tools?|default_api)[.:/]|<\|.*|:\d+$", re.DOTALL)


def resolve_name(name: str, known: Collection[str]) -> str | None:
    """The tool in `known` that a call to `name` means; None if it is ambiguous or unknown.

    Ignores surrounding spaces, prefixes (`functions.`) and suffixes (`<|channel|>…`, `:0`) from models and
    servers, case, and the repetition of a name that a server sends with every chunk of a stream.
    """
    if name in known:
        return name
    if len(name) > _LONGEST:
        return None
    bare = _AROUND.sub("", name.strip()).strip()
    if bare in known:
        return bare
    alike = [tool for tool in known if tool and _is_repeated(tool.casefold(), bare.casefold())]
    return alike[0] if len(alike) == 1 else None


def nearest_name(name: str, known: Collection[str]) -> str | None:
    """The tool with the name most similar to `name`; None if none is similar."""
    by_look = {tool.casefold(): tool for tool in known}
    found = get_close_matches(_AROUND.sub("", name[:_LONGEST].strip()).casefold(), by_look, n=1)
    return by_look[found[0]] if found else None


def _is_repeated(word: str, text: str) -> bool:
    return bool(text) and len(text) % len(word) == 0 and text == word * (len(text) // len(word))


@dataclass(frozen=True)
class Toolbox:
    """What the machine knows about its tools.

    controls: the control tools by name. tools: the working tools by name. kinds: the kind of each.
    approvals: which calls a person must approve. driven: tools whose calls are handed over to the driver.
    dialogue: whether text without a call is put to the user, like a question.
    rounds: whether the model thinks after each batch of calls, before the next.
    schemas: the argument schemas of working tools, if arguments can be validated without running the tool.
    provided: tools that the model's provider runs, as they are sent to it, by name.
    delegates: the working tools whose calls other graphs answer, by name.
    undos: the undo tools, by the names of the tools that declare one.
    """

    controls: ControlRegistry
    tools: Mapping[str, BaseTool]
    kinds: Mapping[str, Kind]
    approvals: Approvals
    driven: frozenset[str]
    dialogue: bool = False
    rounds: bool = False
    schemas: Mapping[str, type[BaseModel]] = field(default_factory=dict)
    provided: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    delegates: Mapping[str, Delegate] = field(default_factory=dict)
    undos: Mapping[str, UndoTool] = field(default_factory=dict)

    @property
    def every(self) -> list[BaseTool | dict[str, Any]]:
        """All tools, as they are offered to the model."""
        controls = (control.tool for control in self.controls.values())
        return [*self.tools.values(), *self.provided.values(), *controls]

    def with_only(self, names: Collection[str]) -> "Toolbox":
        """The toolbox reduced to these working tools, in its own order, and all control tools."""
        tools = {name: found for name, found in self.tools.items() if name in names}
        provided = {name: found for name, found in self.provided.items() if name in names}
        return replace(self, tools=tools, provided=provided)

    def effect(self, name: str) -> Effect | None:
        """The effect of a control tool; None for a work call."""
        return self.controls.effect(name)

    def problem(self, name: str, args: Mapping[str, Any]) -> str | None:
        """Why `args` are invalid for the control tool `name`; None if they are valid."""
        return self.controls.problem(name, args)

    def misfit(self, name: str, args: Mapping[str, Any]) -> ValidationError | None:
        """Why `args` are invalid for the working tool `name`; None if they are valid, or only a call can
        tell."""
        schema = self.schemas.get(name)
        try:
            if schema is not None:
                schema.model_validate(dict(args))
        except ValidationError as error:
            return error
        except BaseException as error:
            # A user's validator may raise anything; the call itself will report it.
            if gets_past(error):
                raise
            return None
        return None

    def resolve(self, name: str) -> str | None:
        """The tool that a call to `name` means: by exact name, or by a misspelling; else None."""
        if name in self.tools or name in self.controls:
            return name
        found = resolve_name(name, {*self.tools, *self.controls, *self.controls.aliases})
        return self.controls.aliases.get(found, found) if found else None

    def needs_approval(self, name: str, args: Mapping[str, Any]) -> bool:
        """Whether a person must approve this call before it runs."""
        return name in self.tools and bool(self.approvals.allowed(name, args))

    def is_driven(self, name: str) -> bool:
        """Whether the driver runs this tool instead of the graph."""
        return name in self.driven

    def run_tool(self, name: str) -> BaseTool | None:
        """The executable tool with this name: a working tool, or a finishing tool with its own code."""
        if name in self.tools:
            return self.tools[name]
        control = self.controls.get(name)
        return control.tool if control is not None and control.is_run else None

    @property
    def run_tools(self) -> Mapping[str, BaseTool]:
        """All executable tools, by name."""
        return {**self.tools, **{name: found.tool for name, found in self.controls.items() if found.is_run}}

    def is_effect(self, name: str) -> bool:
        """Whether a call may change something, so that it must not run twice."""
        kind = self.kinds.get(name, Kind.READ)
        return self.delegates[name].effects if kind is Kind.DELEGATE else kind is not Kind.READ

    def is_journalled(self, name: str) -> bool:
        """Whether its calls are journalled: a delegate journals its own calls instead."""
        return self.is_effect(name) and name not in self.delegates

    def may_repeat(self, name: str) -> bool:
        """Whether the tool declares that running it twice is the same as once."""
        return bool(self._metadata(name).get("idempotent", False))

    def seconds(self, name: str, default: float | None) -> float | None:
        """How long a call of `name` may take: the tool's own `metadata["seconds"]`, else `default`."""
        seconds: float | None = self._metadata(name).get("seconds", default)
        return seconds

    def _metadata(self, name: str) -> Mapping[str, Any]:
        found = self.run_tool(name)
        return (found.metadata or {}) if found else {}


def make_toolbox(
    tools: Sequence[BaseTool | Callable[..., Any] | dict[str, Any]],
    controls: Sequence[ControlTool],
    approvals: Policy | None = None,
    hand_over: Collection[str] = (),
    *,
    has_context: bool = False,
) -> Toolbox:
    """The toolbox of these tools. has_context: whether runs have the user's own context.

    Raises SetupError for name clashes and unknown names.
    """
    registry = ControlRegistry(controls)
    by_name = _by_name([found for found in tools if not isinstance(found, Mapping)], registry)
    provided = _provided([found for found in tools if isinstance(found, Mapping)], {*by_name, *registry})
    kinds = {name: kind_of(found) for name, found in by_name.items()}
    unknown = set(hand_over) - set(by_name) - set(Kind)
    if unknown:
        raise SetupError(
            f"hand_over names {sorted(unknown)}, which is neither a tool of this graph nor a kind; "
            "name one of its tools, or a kind."
        )
    driven = {
        name
        for name, found in by_name.items()
        if name in hand_over or kinds[name] in hand_over or (found.metadata or {}).get("hand_over") is True
    }
    finishes = {name: kind_of(found.tool) for name, found in registry.items() if found.is_run}
    delegates = {name: found for name, found in by_name.items() if isinstance(found, Delegate)}
    if handed := sorted(driven & delegates.keys()):
        raise SetupError(
            f"hand_over names {handed}, which is a delegate: a graph runs it, and no driver can."
        )
    run = {**by_name, **{name: found.tool for name, found in registry.items() if found.is_run}}
    undos = undos_of(run, kinds | finishes, driven)
    # A policy may name a tool that is only used as an undo.
    judged = {found.tool.name: kind_of(found.tool) for found in undos.values() if found.names is not None}
    return Toolbox(
        registry,
        by_name,
        kinds | finishes,
        Approvals(
            approvals,
            judged | kinds,
            has_context=has_context,
            below=frozenset[str]().union(*(found.tools for found in delegates.values())),
            later=[name for name, found in delegates.items() if found.later],
        ),
        frozenset(driven),
        schemas={name: schema for name, found in by_name.items() if (schema := schema_of(found))},
        provided=provided,
        delegates=delegates,
        undos=undos,
    )


def provider_name(given: Mapping[str, Any]) -> str:
    """The name of a tool of the provider: Anthropic and OpenAI name it by `name` or `type`, Google by its
    only key."""
    return str(given.get("name") or given.get("type") or next(iter(given), ""))


def is_provided(one: Any) -> bool:
    """Whether this is a tool definition for the model's provider to run."""
    if not isinstance(one, Mapping) or one.get("type") in _CALLED or not _DESCRIBES.isdisjoint(one):
        return False
    # Google's own tools have the name as their only key.
    return "type" in one or (len(one) == 1 and "name" not in one)


def _provided(given: Sequence[Mapping[str, Any]], taken: Collection[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for one in given:
        name = provider_name(one)
        if not is_provided(one):
            raise SetupError(
                f"tools= holds {reprlib.repr(dict(one))}, which cannot be a tool: nothing runs it; pass a "
                "LangChain tool or a function, or a tool that the model's provider runs, such as "
                '{"type": "web_search"}.'
            )
        if name in taken or name in found:
            raise SetupError(f"Two tools are named {name!r}; rename one of them.")
        found[name] = dict(one)
    return found


def _from_function(given: Any) -> BaseTool:
    if inspect.isclass(given):
        raise SetupError(
            f"tools= holds the class {given.__name__}; pass an instance of a tool, or a function with a "
            "docstring."
        )
    if given is None or isinstance(given, str | list | tuple):
        raise SetupError(
            f"tools= holds {reprlib.repr(given)}, which cannot be a tool; pass LangChain tools, or functions "
            "with docstrings."
        )
    try:
        made: BaseTool = _of_module(given, given.__doc__).model_copy() if _stays(given) else tool(given)
    except (ValueError, TypeError, AttributeError) as error:
        raise SetupError(
            f"{getattr(given, '__name__', given)!r} cannot be a tool ({error}); pass a LangChain tool, or a "
            "function with a docstring."
        ) from error
    return made


def _stays(given: object) -> bool:
    """Whether it is a module-level function without a closure, which is safe to cache."""
    return isinstance(given, FunctionType) and given.__closure__ is None and "<" not in given.__qualname__


@lru_cache(maxsize=256)
def _of_module(given: Callable[..., Any], doc: str | None) -> BaseTool:
    """The cached tool of a function, of which copies are made: deriving its schema takes longer than building
    a graph."""
    made: BaseTool = tool(given)
    with suppress(Exception):  # reported when a graph needs it
        _ = made.tool_call_schema
    return made


def _by_name(
    tools: Sequence[BaseTool | Callable[..., Any]], controls: ControlRegistry
) -> dict[str, BaseTool]:
    found: dict[str, BaseTool] = {}
    for given in tools:
        work_tool = given if isinstance(given, BaseTool) else _from_function(given)
        if work_tool.name in controls or work_tool.name in controls.aliases:
            raise SetupError(f"The tool {work_tool.name!r} has the name of a control tool; rename it.")
        if work_tool.name in found:
            raise SetupError(f"Two tools are named {work_tool.name!r}; rename one of them.")
        if kind_of(work_tool) is Kind.DELEGATE and not isinstance(work_tool, Delegate):
            raise SetupError(
                f"The tool {work_tool.name!r} is of kind delegate; make it by delegate(name, graph, …)."
            )
        if kind_of(work_tool) is Kind.CONTROL:
            raise SetupError(f"The tool {work_tool.name!r} is of kind control; pass it in control_tools.")
        found[work_tool.name] = work_tool
    return found
