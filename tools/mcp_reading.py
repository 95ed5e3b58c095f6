"""The resources and prompts of an MCP server, as two read tools."""

import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.tools import BaseTool, StructuredTool, ToolException
from pydantic import BaseModel, Field

from signoff.graph.blocks import block_text
from signoff.graph.foreign import valid_text
from signoff.graph.kinds import Kind

if TYPE_CHECKING:
    from mcp import ClientSession
    from mcp.types import GetPromptResult, Prompt, ReadResourceResult, Resource, ResourceTemplate

_MOST_NAMED = 40
_MOST_LINE = 200
_MOST_NAME = 40

Ask = Callable[[Callable[["ClientSession"], Awaitable[Any]]], Awaitable[Any]]
"""Sends a request to the server, in the loop of its session."""


@dataclass(frozen=True)
class OfferedToRead:
    """The resources and prompts of a server."""

    resources: "tuple[Resource, ...]" = ()
    templates: "tuple[ResourceTemplate, ...]" = ()
    prompts: "tuple[Prompt, ...]" = ()


class ReadResource(BaseModel):
    """Arguments of the tool that reads a resource."""

    uri: str = Field(
        description="The address of the resource; the parts of a template in braces are filled in."
    )


class GetPrompt(BaseModel):
    """Arguments of the tool that reads a prompt."""

    name: str = Field(description="The name of the prompt.")
    arguments: dict[str, str] = Field(default_factory=dict, description="Its arguments, by their names.")


async def list_readable(session: "ClientSession") -> OfferedToRead:
    """The server's resources and prompts, as far as it declares and lists them."""
    from mcp.shared.exceptions import McpError

    can = session.get_server_capabilities()
    resources: list[Resource] = []
    templates: list[ResourceTemplate] = []
    prompts: list[Prompt] = []
    if can is not None and can.resources is not None:
        with suppress(McpError):
            resources = (await session.list_resources()).resources
        with suppress(McpError):
            templates = (await session.list_resource_templates()).resourceTemplates
    if can is not None and can.prompts is not None:
        with suppress(McpError):
            prompts = (await session.list_prompts()).prompts
    return OfferedToRead(tuple(resources), tuple(templates), tuple(prompts))


def make_reading_tools(server: str, found: OfferedToRead, ask: Ask) -> list[BaseTool]:
    """The tools for these: none, one or two."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", server)[:_MOST_NAME]
    made: list[BaseTool] = []
    if found.resources or found.templates:
        listed = [
            *(f"{one.uri} ({_describe(one)})" for one in found.resources),
            *(f"{one.uriTemplate} ({_describe(one)})" for one in found.templates),
        ]

        async def read_resource(uri: str) -> str:
            from pydantic import AnyUrl, ValidationError

            try:
                address = AnyUrl(uri)
            except ValidationError as error:
                raise ToolException(f"{uri[:_MOST_LINE]!r} is not an address of a resource.") from error
            return _resource_text(await ask(lambda session: session.read_resource(address)))

        made.append(
            _make_tool(
                f"{name}_read_resource",
                f"Read a resource of the server {server}.{_join_lines(listed)}",
                read_resource,
                ReadResource,
            )
        )
    if found.prompts:
        listed = [_describe_prompt(one) for one in found.prompts]

        async def get_prompt(name: str, arguments: dict[str, str]) -> str:
            return _prompt_text(await ask(lambda session: session.get_prompt(name, arguments)))

        made.append(
            _make_tool(
                f"{name}_get_prompt",
                f"Read a prompt of the server {server}.{_join_lines(listed)}",
                get_prompt,
                GetPrompt,
            )
        )
    return made


def _make_tool(name: str, description: str, run: Any, schema: type[BaseModel]) -> BaseTool:
    return StructuredTool(
        name=name,
        description=valid_text(description),
        coroutine=run,
        args_schema=schema,
        metadata={"kind": str(Kind.READ)},
    )


def _join_lines(lines: Iterable[str]) -> str:
    every = [valid_text(line)[:_MOST_LINE] for line in lines]
    more = f"\n… and {len(every) - _MOST_NAMED} more" if len(every) > _MOST_NAMED else ""
    return " There are:\n" + "\n".join(every[:_MOST_NAMED]) + more


def _describe(one: "Resource | ResourceTemplate | Prompt") -> str:
    return " ".join(f"{one.title or one.name}: {one.description or ''}".split()).rstrip(":")


def _describe_prompt(prompt: "Prompt") -> str:
    names = [one.name if one.required else f"{one.name}?" for one in prompt.arguments or ()]
    return f"{prompt.name}({', '.join(names)}) ({_describe(prompt)})"


def _resource_text(found: "ReadResourceResult") -> str:
    return "\n\n".join(_content_text(one) for one in found.contents)


def _prompt_text(found: "GetPromptResult") -> str:
    return "\n\n".join(f"{message.role}: {_content_text(message.content)}" for message in found.messages)


def _content_text(found: Any) -> str:
    """Text as it is; anything else in words."""
    resource = getattr(found, "resource", found)
    text = getattr(resource, "text", None)
    return block_text(text or {"type": "resource", **resource.model_dump(mode="json")})
