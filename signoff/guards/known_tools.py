"""The tools that an agent with `Guards` works with, as far as a hook is told of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool, StructuredTool

from signoff.graph.errors import SetupError
from signoff.graph.kinds import Kind, kind_of
from signoff.tools.toolbox import Toolbox

PROVIDED = "provided"
"""The kind of a tool that the model's provider runs."""


def name_of(tool: Any) -> str | None:
    """The name of a tool: of LangChain's, or in the form of a provider."""
    if isinstance(tool, BaseTool):
        return tool.name
    if isinstance(tool, Mapping):
        function = tool.get("function")
        name = (function if isinstance(function, Mapping) else tool).get("name")
    else:
        name = getattr(tool, "name", None)
    return name if isinstance(name, str) else None


def kinds_in(box: Toolbox) -> dict[str, str]:
    kinds = {name: str(kind) for name, kind in box.kinds.items() if name in box.tools}
    return kinds | dict.fromkeys(box.provided, PROVIDED)


def tool_of_kind(tool: BaseTool | None, kind: str) -> BaseTool | None:
    """The tool, where it is of the kind that the thread has been told of: another agent with the same guards
    may have another one of its name."""
    return tool if tool is not None and (not kind or str(kind_of(tool)) == kind) else None


def check_kind(tool: BaseTool) -> None:
    """Raises SetupError for a tool that an agent with `Guards` cannot run."""
    kind = kind_of(tool)
    if kind is Kind.CONTROL:
        raise SetupError(
            f"The tool {tool.name!r} is of kind control; pass it in control_tools= of Guards, or leave the "
            "second Guards out."
        )
    if kind is Kind.DELEGATE:
        raise SetupError(
            f"The tool {tool.name!r} is a delegate, which only a graph of build_graph can run; pass it there "
            "in tools=."
        )


def make_unseen(name: str, kind: str) -> BaseTool | dict[str, Any]:
    """A tool that this process has not been told of yet: it is known by its name, and its kind."""
    if kind == PROVIDED:
        return {"type": PROVIDED, "name": name}
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    metadata = {"kind": kind} if kind else {}
    return StructuredTool(name=name, description=name, args_schema=schema, metadata=metadata)


def called_kinds(messages: Sequence[BaseMessage], controls: Mapping[str, Any]) -> dict[str, str]:
    """The names of what the last reply calls."""
    last = next((one for one in reversed(messages) if isinstance(one, AIMessage)), None)
    calls = last.tool_calls if last is not None else ()
    return {call["name"]: "" for call in calls if call["name"] and call["name"] not in controls}
