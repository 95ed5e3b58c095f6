"""Undoing the effect of a tool call: `metadata={"undo": …}` of the tool.

It is a function of the call's arguments and its result, or another tool, which gets the arguments that it has
in common, and the result if it has a parameter `result`.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field, TypeAdapter

from signoff.graph.errors import SetupError
from signoff.graph.kinds import Kind, kind_of

UNDO = "undo"
"""The key of the metadata."""


class UndoArguments(BaseModel):
    """The arguments of an undo function."""

    args: dict[str, Any] = Field(description="The arguments that the call ran with.")
    result: str = Field(description="Its result, as the model was shown it.")
    artifact: Any = Field(default=None, description="The artifact of its result.")


@dataclass(frozen=True)
class UndoTool:
    """The undo of one tool. tool: the tool that runs. judged_as: the tool whose approval rule applies; for a
    function, the tool itself. names: the arguments of another tool."""

    tool: BaseTool
    judged_as: str
    names: frozenset[str] | None = None

    def arguments(self, args: Mapping[str, Any], result: ToolMessage) -> dict[str, Any]:
        """The arguments for undoing a call with these arguments and this result."""
        if self.names is None:
            return UndoArguments(args=dict(args), result=result.text, artifact=result.artifact).model_dump()
        given = {name: value for name, value in args.items() if name in self.names}
        return {"result": result.text, **given} if "result" in self.names else given

    def judged(self, args: Mapping[str, Any], arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments to which the approval rule is applied."""
        return args if self.names is None else arguments


def undos_of(
    tools: Mapping[str, BaseTool], kinds: Mapping[str, Kind], driven: frozenset[str] | set[str]
) -> dict[str, UndoTool]:
    """The undo of each tool that declares one. Raises SetupError for an invalid undo."""
    found = dict[str, UndoTool]()
    for name, tool in tools.items():
        given = (tool.metadata or {}).get(UNDO)
        if given is None:
            continue
        if kinds[name] is Kind.READ:
            raise SetupError(
                f"The tool {name!r} is of the kind read and declares an undo; a tool that changes nothing "
                "has nothing to undo: leave one of the two out."
            )
        found[name] = _undo(tool, given, tools, kinds, driven)
    return found


def _undo(
    tool: BaseTool,
    given: Any,
    tools: Mapping[str, BaseTool],
    kinds: Mapping[str, Kind],
    driven: frozenset[str] | set[str],
) -> UndoTool:
    if isinstance(given, str):
        if given not in tools:
            raise SetupError(
                f"The undo of the tool {tool.name!r} is {given!r}, which is no tool of this graph; name "
                "one, or pass a tool, or a function of arguments and result."
            )
        given = tools[given]
    if isinstance(given, BaseTool):
        if kinds.get(given.name, kind_of(given)) is Kind.DELEGATE or given.name in driven:
            raise SetupError(
                f"The undo of the tool {tool.name!r} is {given.name!r}, which is a delegate or is handed "
                "over; an undo must run here: pass another tool, or a function of arguments and result."
            )
        known, needed = _arguments(given)
        if missing := sorted(needed - _arguments(tool)[0] - {"result"}):
            raise SetupError(
                f"The undo of the tool {tool.name!r} is {given.name!r}, which needs {', '.join(missing)}, "
                f"and a call of {tool.name} has none; pass a function of arguments and result that calls it."
            )
        return UndoTool(given, given.name, frozenset(known))
    if not callable(given) or inspect.isclass(given):
        raise SetupError(
            f"The undo of the tool {tool.name!r} is {given!r:.80}; pass a function of arguments and result, "
            "or another tool."
        )
    return UndoTool(_from_function(tool, given), tool.name)


def _arguments(tool: BaseTool) -> tuple[set[str], set[str]]:
    """The arguments that a model may pass, and those that it must pass."""
    schema = tool.tool_call_schema
    found = schema if isinstance(schema, dict) else TypeAdapter(schema).json_schema()
    return set(found.get("properties", ())), set(found.get("required", ()))


def _from_function(tool: BaseTool, given: Callable[..., Any]) -> BaseTool:
    """The function as a tool, so that it runs like one: within its time limit, in a thread where needed."""
    takes_artifact = _takes_artifact(tool, given)

    def more(artifact: Any) -> dict[str, Any]:
        return {"artifact": artifact} if takes_artifact else {}

    def undo(args: dict[str, Any], result: str, artifact: Any = None) -> Any:
        return given(args, result, **more(artifact))

    own = tool.metadata or {}
    return StructuredTool(
        name=f"undo_{tool.name}",
        description=f"Undoes a call of {tool.name}.",
        args_schema=UndoArguments,
        func=undo,
        metadata={"seconds": own["seconds"]} if "seconds" in own else {},
    )


def _takes_artifact(tool: BaseTool, given: Callable[..., Any]) -> bool:
    """Whether the function also has a parameter `artifact`. Raises SetupError for one that does not accept
    two arguments."""
    try:
        found = inspect.signature(given)
    except ValueError:
        return False  # A function of C may say nothing of its arguments.
    asks = "artifact" in found.parameters
    try:
        found.bind(None, None, **({"artifact": None} if asks else {}))
    except TypeError as error:
        raise SetupError(
            f"The undo of the tool {tool.name!r} must accept the arguments of a call and its result "
            f"({error}); it may "
            "ask for `artifact`, too."
        ) from error
    return asks
