"""The kind of a tool decides how its calls run: what may run in parallel, what a crash means."""

from enum import StrEnum

from langchain_core.tools import BaseTool

from signoff.graph.errors import SetupError


class Kind(StrEnum):
    """`control` steers the machine, `read` changes nothing, `write` may, `terminal` runs commands."""

    CONTROL = "control"
    READ = "read"
    WRITE = "write"
    TERMINAL = "terminal"


def kind_of(tool: BaseTool) -> Kind:
    """The kind of `tool`: its `metadata["kind"]`, else MCP's `readOnlyHint`, else `write`.

    `write` is the careful guess: its calls run alone and in order.
    Raises SetupError for a kind that does not exist.
    """
    metadata = tool.metadata or {}
    declared = metadata.get("kind")
    if declared is not None:
        try:
            return Kind(declared)
        except ValueError:
            kinds = ", ".join(Kind)
            raise SetupError(
                f"Tool {tool.name!r} declares the kind {declared!r}; use one of: {kinds}."
            ) from None
    return Kind.READ if metadata.get("readOnlyHint") is True else Kind.WRITE
