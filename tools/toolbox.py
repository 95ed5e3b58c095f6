"""All tools of a graph: the control tools, the working tools with their kinds, and their approvals.

Also resolves a tool name that a model misspelled, and suggests the nearest one.
"""

import re
import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from langchain_core.tools import BaseTool
from pydantic import BaseModel, ValidationError

from signoff.graph.arguments import flag, positive
from signoff.graph.errors import SetupError
from signoff.graph.foreign import gets_past
from signoff.graph.kinds import Effect, Kind, kind_of
from signoff.tools.approvals import Approvals, Policy, handed_over
from signoff.tools.control import ControlRegistry, ControlTool, schema_of
from signoff.tools.delegates import Delegate
from signoff.tools.functions import as_tool, check_arguments, fields_of
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

    def unknown_arguments(self, name: str, args: Mapping[str, Any]) -> list[str]:
        """Those of `args` that the working tool `name` does not have, and would silently leave out."""
        taken = fields_of(self.schemas.get(name))
        return [] if taken is None else [argument for argument in args if argument not in taken]

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
    *,
    has_context: bool = False,
) -> Toolbox:
    """The toolbox of these tools. has_context: whether runs have the user's own context.

    Raises SetupError for name clashes and unknown names.
    """
    registry = ControlRegistry(controls)
    for control in registry.values():
        check_arguments(control.tool)
        _check_name(control.tool.name)
        _check_metadata(control.tool)
    by_name = _by_name([found for found in tools if not isinstance(found, Mapping)], registry)
    provided = _provided([found for found in tools if isinstance(found, Mapping)], {*by_name, *registry})
    kinds = {name: kind_of(found) for name, found in by_name.items()}
    says_so = {name for name, found in by_name.items() if (found.metadata or {}).get("hand_over")}
    driven = handed_over(approvals, kinds) | says_so
    finishes = {name: kind_of(found.tool) for name, found in registry.items() if found.is_run}
    delegates = {name: found for name, found in by_name.items() if isinstance(found, Delegate)}
    if handed := sorted(driven & delegates.keys()):
        raise SetupError(
            f"approvals hands over {handed}, which is a delegate: a graph runs it, and no driver can."
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
            driven=driven,
            finishes=[name for name, control in registry.items() if control.effect == "finish"],
        ),
        frozenset(driven),
        schemas={name: schema for name, found in by_name.items() if (schema := schema_of(found))},
        provided=provided,
        delegates=delegates,
        undos=undos,
    )


# A provider refuses a whole request if a tool in it has any other name.
_NAME = re.compile(r"[A-Za-z0-9_./:-]{1,128}")


def _check_name(name: str) -> None:
    """Raises SetupError for a name by which no model can call a tool."""
    if not _NAME.fullmatch(name):
        raise SetupError(
            f"The tool {name!r:.80} has a name that no provider takes; give it letters, digits, _ and -."
        )


def _check_metadata(found: BaseTool) -> None:
    """Raises SetupError for what a tool cannot say of itself."""
    metadata, where = found.metadata or {}, f"in the metadata of the tool {found.name!r}"
    flag(f"hand_over {where}", metadata.get("hand_over", False))
    flag(f"idempotent {where}", metadata.get("idempotent", False))
    positive(f"seconds {where}", metadata.get("seconds"))


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


def _by_name(
    tools: Sequence[BaseTool | Callable[..., Any]], controls: ControlRegistry
) -> dict[str, BaseTool]:
    found: dict[str, BaseTool] = {}
    for given in tools:
        work_tool = as_tool(given)
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
        _check_name(work_tool.name)
        _check_metadata(work_tool)
        found[work_tool.name] = work_tool
    return found
