"""A client's input to a session: the parts of a prompt, and MCP servers."""

import asyncio
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from acp import RequestError
from acp.schema import (
    EmbeddedResourceContentBlock,
    McpServerStdio,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)
from langchain_core.tools import BaseTool

from signoff import SetupError
from signoff.text import quote_id
from signoff.tools.processes.held import OpenResources

MOST_CHARACTERS = 1_000_000
"""Most characters of one prompt."""
INVALID = -32602
OWN_TOOLS = frozenset(
    {
        *("list_files", "read_file", "search_files", "edit_file", "write_file", "run_shell", "run_python"),
        *("finish_task", "ask_user", "think"),
    }
)
"""The names of all tools that a session can have without the client's servers."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_MOST_NAME, _MOST_SERVER = 64, 30


def read_prompt(prompt: Sequence[Any]) -> str:
    """Returns the text of a prompt, with its embedded files. Raises RequestError for other parts."""
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
                raise RequestError(
                    INVALID, "The prompt contains an image or audio; send only text and files."
                )
    found = "\n\n".join(parts).strip()
    if len(found) > MOST_CHARACTERS:
        raise RequestError(
            INVALID,
            f"The prompt has {len(found):,} characters; at most {MOST_CHARACTERS:,} are taken. Name a file "
            "instead.",
        )
    return found


async def start_servers(servers: Sequence[Any]) -> list[BaseTool]:
    """Returns the tools of the client's MCP servers. If a tool has the name of one of ours, or of another
    server's tool, its server's name is put before it.

    Raises SetupError for a server that cannot be used, and for two servers with the same name.
    """
    if not servers:
        return []
    from signoff.tools import mcp_tools

    wanted: dict[str, dict[str, Any]] = {}
    for server in servers:
        if not isinstance(server, McpServerStdio):
            raise SetupError(f"The MCP server {quote_id(server.name)} does not use stdio; leave it out.")
        if server.name in wanted:
            raise SetupError(f"Two MCP servers are named {quote_id(server.name)}; give each its own name.")
        wanted[server.name] = {
            "transport": "stdio",
            "command": server.command,
            "args": server.args,
            "env": {variable.name: variable.value for variable in server.env},
        }
    starting = (mcp_tools({name: connection}) for name, connection in wanted.items())
    listed = await asyncio.gather(*starting, return_exceptions=True)
    offered = {
        name: tools
        for name, tools in zip(wanted, listed, strict=True)
        if not isinstance(tools, BaseException)
    }
    if failed := [error for error in listed if isinstance(error, BaseException)]:
        every = OpenResources(tool for tools in offered.values() for tool in tools)
        await asyncio.to_thread(every.end)
        raise failed[0]
    return _name_apart(offered)


def _name_apart(offered: Mapping[str, Sequence[BaseTool]]) -> list[BaseTool]:
    """Returns the tools by the names of their servers, each with a unique name."""
    found = [(server, tool) for server, tools in offered.items() for tool in tools]
    times = Counter(tool.name for _, tool in found)
    taken = {*OWN_TOOLS, *times}
    for server, tool in found:
        if times[tool.name] > 1 or tool.name in OWN_TOOLS:
            tool.name = _make_free_name(f"{server[:_MOST_SERVER]}_{tool.name}", taken)
            taken.add(tool.name)
    return [tool for _, tool in found]


def _make_free_name(wanted: str, taken: Collection[str]) -> str:
    """Returns a name that every provider accepts, as similar to this one as possible."""
    name = _NOT_IN_NAMES.sub("_", wanted)[:_MOST_NAME]
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name[: _MOST_NAME - 4]}_{number}"
    return found
