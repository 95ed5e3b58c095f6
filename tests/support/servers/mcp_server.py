"""A real MCP server over stdio. Its process id goes to LEDGER.pids.

Run as a program: `python tests/support/servers/mcp_server.py LEDGER`.
"""

import os
import sys
from pathlib import Path

from mcp.server.fastmcp import FastMCP
from mcp.types import ToolAnnotations

server = FastMCP("ledger")
LEDGER = Path(sys.argv[1])


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def look() -> str:
    """Read the ledger."""
    return LEDGER.read_text() if LEDGER.exists() else "empty"


@server.tool(annotations=ToolAnnotations(destructiveHint=False, idempotentHint=True))
def put(line: str) -> str:
    """Write a line into the ledger."""
    LEDGER.write_text(line)
    return f"wrote {line}"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("no luck")


if __name__ == "__main__":
    with LEDGER.with_suffix(".pids").open("a") as file:
        file.write(f"{os.getpid()}\n")
    server.run("stdio")
