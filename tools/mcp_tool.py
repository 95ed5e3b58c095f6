"""One tool of an MCP server: its arguments reach the server as the model gave them, and each part of its
result reaches the model."""

from collections.abc import Awaitable, Callable
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool, ToolException

from signoff.graph.blocks import NOTHING, as_json, block_text, media_of, text_block

Call = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""Calls the tool of this name with these arguments; returns the result as the server sent it."""


class McpTool(StructuredTool):
    """A tool whose arguments travel in one argument: LangChain keeps names such as `config` for itself."""

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        is_call = input.get("type") == "tool_call"
        packed = {"arguments": input["args"] if is_call else input}
        return await super().ainvoke({**input, "args": packed} if is_call else packed, config, **kwargs)


def make_mcp_tool(listed: Any, call: Call) -> StructuredTool:
    """The tool that a server lists, for LangChain."""

    async def run(arguments: Any) -> tuple[list[dict[str, Any]], Any]:
        result = (await call(listed.name, dict(arguments))).model_extra
        structured = result.get("structuredContent")
        parts = result.get("content") or [NOTHING if structured is None else as_json(structured)]
        content = [_block(part) for part in parts]
        if result.get("isError"):
            raise ToolException("\n".join(map(block_text, parts)))
        return content, None if structured is None else {"structured_content": structured}

    return McpTool(
        name=listed.name,
        description=listed.description or "",
        args_schema=listed.inputSchema,
        coroutine=run,
        response_format="content_and_artifact",
    )


def _block(part: Any) -> dict[str, Any]:
    """A part of a result. Pictures and PDFs stay, as some models can be shown them; all others are text."""
    media = media_of(part)
    is_shown = media is not None and media.sort in ("image", "pdf")
    return media.standard() if media is not None and is_shown else text_block(block_text(part))
