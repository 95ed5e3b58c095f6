"""Tools of MCP servers, through langchain-mcp-adapters. Their hints say of which kind they are."""

from collections.abc import Mapping
from typing import Any

from langchain_core.tools import BaseTool

from signoff.graph.errors import SetupError


async def mcp_tools(servers: Mapping[str, Mapping[str, Any]]) -> list[BaseTool]:
    """The tools of `servers`, as `MultiServerMCPClient` takes them.

    `{"files": {"transport": "stdio", "command": "python", "args": ["server.py"]}}`. A tool with MCP's
    `readOnlyHint` is of kind `read`, every other of kind `write`; one with `idempotentHint` may run again
    after a crash. The tools are asynchronous, and run in sync graphs too.

    Raises SetupError when the extra is not installed or a server cannot be reached.
    """
    try:
        from langchain_mcp_adapters.client import MultiServerMCPClient
    except ImportError:
        raise SetupError('MCP servers need an extra: pip install "signoff[mcp]"') from None
    connections: Any = {name: dict(server) for name, server in servers.items()}
    try:
        return list(await MultiServerMCPClient(connections).get_tools())
    except (OSError, ExceptionGroup, ValueError) as error:
        raise SetupError(
            f"The MCP servers {', '.join(servers)} cannot be used: {_first(error)}. Check the command or the "
            "address."
        ) from error


def _first(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
