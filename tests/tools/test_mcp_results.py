"""What reaches a real MCP server over stdio, and what of its results reaches the model."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool

from signoff import build_graph
from signoff.graph.blocks import NOTHING
from signoff.guards import Guards
from signoff.models import ScriptedModel, call
from signoff.tools import mcp_tools
from tests.support.servers.mcp_parts import NAMES

SERVER = Path(__file__).parents[1] / "support" / "servers" / "mcp_parts.py"
PARTS = {"parts": {"transport": "stdio", "command": sys.executable, "args": [str(SERVER)]}}
GO: Any = {"messages": [("user", "go")]}
FINISH = call("finish_task", summary="x")
TEXT = {"type": "text", "text": "made it"}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
PICTURE = {"type": "image", "base64": PIXEL, "mime_type": "image/png"}


async def answers(how: str, *calls: Any) -> list[ToolMessage]:
    """The results of these calls."""
    tools: list[BaseTool] = await mcp_tools(PARTS)
    model = ScriptedModel([*calls, FINISH])
    if how == "guards":
        agent: Any = create_agent(model, tools, middleware=[Guards()])
    else:
        agent = build_graph(model, tools)
    if how == "sync":
        result = await asyncio.to_thread(agent.invoke, GO)
    else:
        result = await agent.ainvoke(GO)
    assert result["outcome"]["status"] == "success"
    return [m for m in result["messages"] if isinstance(m, ToolMessage)][: len(calls)]


every_way = pytest.mark.parametrize("how", ["sync", "async", "guards"])


@pytest.mark.slow
@every_way
async def test_every_argument_reaches_the_server_whatever_its_name(how: str) -> None:
    each: list[dict[str, Any]] = [{name: {"deep": [name]}} for name in NAMES]
    together = {name: f"the model's {name}" for name in NAMES}
    results = await answers(how, *(call("echo", args=given) for given in (*each, together)))
    assert [json.loads(result.text) for result in results] == [*each, together]


def resource(**fields: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": "x:a", **fields}}


RESULTS: dict[str, tuple[dict[str, Any], str, Any]] = {
    "text": ({"content": [TEXT]}, "success", "made it"),
    "sound beside text": (
        {"content": [TEXT, {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]},
        "success",
        "made it\n[audio: audio/wav, 3 bytes] It cannot be shown here.",
    ),
    "a link beside text": (
        {
            "content": [
                TEXT,
                {
                    "type": "resource_link",
                    "uri": "file:///may.txt",
                    "name": "May",
                    "description": "The report.",
                    "mimeType": "text/plain",
                    "size": 1234,
                },
            ]
        },
        "success",
        "made it\n[resource: May, file:///may.txt, text/plain, 1,234 bytes]\nThe report.",
    ),
    "a link to a picture": (
        {"content": [{"type": "resource_link", "uri": "x:a.png", "mimeType": "image/png", "name": "a"}]},
        "success",
        "[resource: a, x:a.png, image/png]",
    ),
    "a picture": (
        {"content": [TEXT, {"type": "image", "data": PIXEL, "mimeType": "image/png"}]},
        "success",
        [TEXT, PICTURE],
    ),
    "a picture in a resource": (
        {
            "content": [
                {"type": "resource", "resource": {"uri": "x:a", "blob": PIXEL, "mimeType": "image/png"}}
            ]
        },
        "success",
        [PICTURE],
    ),
    "a text in a resource": (
        {"content": [resource(text="inside")]},
        "success",
        "[resource: x:a]\ninside",
    ),
    "a PDF": (
        {
            "content": [
                {
                    "type": "resource",
                    "resource": {"uri": "x://r/a.pdf", "blob": "JVBERi0x", "mimeType": "application/pdf"},
                }
            ]
        },
        "success",
        [{"type": "file", "base64": "JVBERi0x", "mime_type": "application/pdf", "filename": "document.pdf"}],
    ),
    "another file": (
        {
            "content": [
                {
                    "type": "resource",
                    "resource": {"uri": "x:a", "blob": "UEsDBA==", "mimeType": "application/zip"},
                }
            ]
        },
        "success",
        "[resource: x:a, application/zip, 4 bytes] It cannot be shown here.",
    ),
    "a part of a later version": (
        {"content": [TEXT, {"type": "hologram", "depth": 3}]},
        "success",
        'made it\n{"type": "hologram", "depth": 3}',
    ),
    "parts that are none": ({"content": ["loose", 7, None]}, "success", "loose\n7\nnull"),
    "nothing": ({"content": []}, "success", NOTHING),
    "no content at all": ({}, "success", NOTHING),
    "only a structure": ({"content": [], "structuredContent": {"result": []}}, "success", '{"result": []}'),
    "a failure with sound": (
        {"content": [TEXT, {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}], "isError": True},
        "error",
        "made it\n[audio: audio/wav, 3 bytes] It cannot be shown here.",
    ),
    "a failure without a word": ({"content": [], "isError": True}, "error", NOTHING),
}


@pytest.mark.slow
@every_way
async def test_every_part_of_a_result_reaches_the_model(how: str) -> None:
    calls = [call("give", result=result) for result, _, _ in RESULTS.values()]
    found = await answers(how, *calls)
    told = {name: (one.status, one.content) for name, one in zip(RESULTS, found, strict=True)}
    assert told == {name: (status, content) for name, (_, status, content) in RESULTS.items()}


@pytest.mark.slow
async def test_a_result_that_does_not_fit_its_schema_is_of_a_call_that_has_run() -> None:
    structured = {"content": [TEXT], "structuredContent": {"n": "seven"}}
    first, second = await answers(
        "async", call("checked", result=structured), call("checked", result={"content": [TEXT]})
    )
    assert [(one.status, one.content) for one in (first, second)] == [("success", "made it")] * 2
    assert first.artifact == {"structured_content": {"n": "seven"}}
