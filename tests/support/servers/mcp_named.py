"""An MCP server over stdio with tools of these names: `mcp_named.py FILE NAME…`. It writes its id to FILE."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from mcp.server.fastmcp import FastMCP


def tool_that_says(text: str) -> Callable[..., str]:
    def act(name: str = "") -> str:
        return text

    return act


if __name__ == "__main__":
    file, *names = sys.argv[1:]
    Path(file).write_text(str(os.getpid()))
    server = FastMCP("named", log_level="ERROR")
    for name in names:
        server.add_tool(tool_that_says(f"{Path(file).name} did {name}"), name=name, description="Acts.")
    server.run()
