"""What a client gives to a session: the parts of a prompt, and servers of MCP."""

from collections.abc import Sequence
from typing import Any

from acp import RequestError
from acp.schema import (
    EmbeddedResourceContentBlock,
    McpServerStdio,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from signoff.graph.errors import SetupError

MOST_CHARACTERS = 1_000_000
"""Of one prompt."""
INVALID = -32602


def read_prompt(prompt: Sequence[Any]) -> str:
    """The text of a prompt, with the files that were put into it. Raises RequestError for other parts."""
    parts = []
    for block in prompt:
        match block:
            case TextContentBlock(text=text):
                parts.append(text)
            case ResourceContentBlock(uri=uri, name=name):
                parts.append(f"{name}: {uri}")
            case EmbeddedResourceContentBlock(resource=TextResourceContents(uri=uri, text=text)):
                parts.append(f"{uri}:\n{text}")
            case _:
                raise RequestError(INVALID, "The prompt has an image or a sound; send text and files.")
    found = "\n\n".join(parts).strip()
    if len(found) > MOST_CHARACTERS:
        raise RequestError(
            INVALID,
            f"The prompt has {len(found):,} characters; at most {MOST_CHARACTERS:,} are taken. Name a file "
            "instead.",
        )
    return found


async def start_servers(servers: Sequence[Any]) -> list[Any]:
    """The tools of the client's MCP servers."""
    if not servers:
        return []
    from signoff.tools.mcp import mcp_tools

    wanted: dict[str, dict[str, Any]] = {}
    for server in servers:
        if not isinstance(server, McpServerStdio):
            raise SetupError(f"The MCP server {server.name!r} is not one over stdio; leave it out.")
        wanted[server.name] = {
            "transport": "stdio",
            "command": server.command,
            "args": server.args,
            "env": {variable.name: variable.value for variable in server.env},
        }
    return await mcp_tools(wanted)
