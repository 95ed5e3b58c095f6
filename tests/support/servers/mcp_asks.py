"""A real MCP server over stdio that asks a person, and that has resources and prompts.

Run as a program: `python tests/support/servers/mcp_asks.py LEDGER`. Each step of a call is a line of LEDGER.
"""

import sys
from pathlib import Path
from typing import Any

from mcp.server.fastmcp import Context, FastMCP
from mcp.types import ToolAnnotations

server = FastMCP("table", log_level="ERROR")
LEDGER = Path(sys.argv[1])
FORMS: dict[str, dict[str, Any]] = {
    "day": {"day": {"type": "string", "enum": ["Monday", "Tuesday"]}},
    "sure": {"sure": {"type": "boolean", "title": "Are you sure?"}},
    "guests": {"guests": {"type": "integer"}},
    "both": {"guests": {"type": "integer"}, "name": {"type": "string"}},
}


def note(line: str) -> None:
    with LEDGER.open("a") as file:
        file.write(f"{line}\n")


async def asked(ctx: Context[Any, Any, Any], form: str) -> str:
    schema = {"type": "object", "properties": FORMS[form], "required": list(FORMS[form])}
    found = await ctx.session.elicit_form(f"Tell me: {form}", schema, related_request_id=ctx.request_id)
    return f"{found.action} {found.content or ''}".strip()


@server.tool()
async def book(forms: list[str], ctx: Context[Any, Any, Any]) -> str:
    """Book a table, and ask for what is missing."""
    note("began")
    told = [await asked(ctx, form) for form in forms]
    note(f"booked {told}")
    return f"booked: {told}"


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
async def search(ctx: Context[Any, Any, Any]) -> str:
    """Search for tables, on a day that is asked for."""
    note("searched")
    return f"free: {await asked(ctx, 'day')}"


@server.tool()
def walk() -> str:
    """Walk in, without a question."""
    note("walked")
    return "walked"


@server.resource("menu://today")
def menu() -> str:
    """The menu of today."""
    return "soup"


@server.resource("menu://{day}/dish")
def dish(day: str) -> str:
    """The dish of a day."""
    return f"fish on {day}"


@server.prompt()
def greet(name: str) -> str:
    """Greet a guest."""
    return f"Say hello to {name}."


if __name__ == "__main__":
    server.run("stdio")
