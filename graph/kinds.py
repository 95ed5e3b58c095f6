"""Tool kinds, the effects of control tools, and the fingerprint that binds a decision to one call.

The kind of a tool decides how its calls run: what may run in parallel, what a crash means.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, get_args

from signoff.graph.errors import SetupError

if TYPE_CHECKING:
    # Commands that run no tool import this module, too, and importing LangChain takes half a second.
    from langchain_core.tools import BaseTool


class Kind(StrEnum):
    """`control` steers the machine; `read` changes nothing; `write` may change something; `terminal` runs
    commands; `delegate` gives a task to another graph (`signoff.delegate` makes such a tool)."""

    CONTROL = "control"
    READ = "read"
    WRITE = "write"
    TERMINAL = "terminal"
    DELEGATE = "delegate"


Effect = Literal["finish", "ask", "continue"]
"""What a control call does: it claims that the task is finished, waits for a person, or records a thought."""
EFFECTS: tuple[Effect, ...] = get_args(Effect)


SENT_BACK = "sent_back"
"""The kind of refusal for a finish that a person sent back."""

# Keys that langchain-mcp-adapters copies from a server, and keys that Signoff reads.
_HINTS = frozenset({"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"})
_OURS = frozenset({"kind", "idempotent", "seconds", "hand_over", "undo"})
_MOST_GUARDED = (Kind.WRITE, Kind.TERMINAL)


def kind_of(tool: "BaseTool") -> Kind:
    """The kind of `tool`: its `metadata["kind"]`, else `write`.

    `write` is the safe default: its calls run alone and in order. An MCP server's hints do not set the kind,
    except with `mcp_tools(…, trust_hints=True)`. Raises SetupError for an unknown kind, and for a tool whose
    metadata comes from an MCP server and would, beyond hints, weaken the tool's protection.
    """
    metadata = tool.metadata or {}
    if own := sorted(_less_guarded(metadata)):
        raise SetupError(
            f"The metadata of tool {tool.name!r} has hints of an MCP server, which can set "
            f"{', '.join(own)} there, too. Get the tools from signoff.tools.mcp.mcp_tools, or set "
            "your own metadata, without the hints."
        )
    declared = metadata.get("kind")
    if declared is not None:
        try:
            return Kind(declared)
        except ValueError:
            kinds = ", ".join(Kind)
            raise SetupError(
                f"Tool {tool.name!r} declares the kind {declared!r}; use one of: {kinds}."
            ) from None
    return Kind.WRITE


def _less_guarded(metadata: Mapping[str, Any]) -> set[str]:
    """The keys beside a server's hints that would weaken the tool's protection."""
    if _HINTS.isdisjoint(metadata):
        return set()
    return {key for key in _OURS & metadata.keys() if key != "kind" or metadata[key] not in _MOST_GUARDED}
