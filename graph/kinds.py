"""Kinds of tools, effects of control tools, and the fingerprint that binds a decision to one call.

The kind of a tool decides how its calls run: what may run in parallel, what a crash means.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from signoff.graph.errors import SetupError

if TYPE_CHECKING:
    # Commands that run no tool ask for kinds, too, and LangChain takes half a second to import.
    from langchain_core.tools import BaseTool


class Kind(StrEnum):
    """`control` steers the machine; `read` changes nothing; `write` may change something; `terminal` runs
    commands; `delegate` gives a task to another graph (`signoff.delegate` makes such a tool)."""

    CONTROL = "control"
    READ = "read"
    WRITE = "write"
    TERMINAL = "terminal"
    DELEGATE = "delegate"


class Effect(StrEnum):
    """What a control call does: claim that the task has ended, wait for a person, note a thought, or ask for
    more turns than the limit allows."""

    FINISH = "finish"
    ASK = "ask"
    CONTINUE = "continue"
    MORE_TURNS = "more turns"


SENT_BACK = "sent_back"
"""The kind of a refused finish that a person sent back."""

# What langchain-mcp-adapters takes over from a server, and what metadata means here.
_HINTS = frozenset({"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"})
_OURS = frozenset({"kind", "idempotent", "seconds", "hand_over", "undo"})
_MOST_GUARDED = (Kind.WRITE, Kind.TERMINAL)


def kind_of(tool: "BaseTool") -> Kind:
    """The kind of `tool`: its `metadata["kind"]`, else `write`.

    `write` is the careful guess: its calls run alone and in order. What an MCP server says of its tools is
    no kind: `mcp_tools(…, trust_hints=True)` makes it one. Raises SetupError for a kind that does not exist,
    and for a tool whose metadata an MCP server wrote, with more than hints, so that it would guard less.
    """
    metadata = tool.metadata or {}
    if own := sorted(_less_guarded(metadata)):
        raise SetupError(
            f"The metadata of tool {tool.name!r} holds hints of an MCP server, which can write "
            f"{', '.join(own)} there, too. Take the tools from signoff.tools.mcp.mcp_tools, or set "
            "metadata of your own, without the hints."
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
    """The keys beside a server's hints that would loosen how its tool is guarded."""
    if _HINTS.isdisjoint(metadata):
        return set()
    return {key for key in _OURS & metadata.keys() if key != "kind" or metadata[key] not in _MOST_GUARDED}
