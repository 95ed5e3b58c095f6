"""Tools of a real MCP server over stdio."""

import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage

from signoff import SetupError, build_graph
from signoff.models import ScriptedModel, call
from signoff.tools.kinds import Kind, kind_of
from signoff.tools.mcp import mcp_tools

SERVER = Path(__file__).parent / "mcp_server.py"


def servers(ledger: Path) -> dict[str, Any]:
    command = {"transport": "stdio", "command": sys.executable, "args": [str(SERVER), str(ledger)]}
    return {"ledger": command}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_hints_are_kinds_and_calls_work(mode: str, tmp_path: Path) -> None:
    tools = await mcp_tools(servers(tmp_path / "ledger"))
    assert {tool.name: kind_of(tool) for tool in tools} == {
        "look": Kind.READ,
        "put": Kind.WRITE,
        "fail": Kind.WRITE,
    }
    script = [[call("look"), call("put", line="five to ada"), call("look"), call("fail")]]
    graph = build_graph(ScriptedModel([*script, call("finish_task", summary="x")]), tools)
    given: Any = {"messages": [("user", "go")]}
    result = graph.invoke(given) if mode == "sync" else await graph.ainvoke(given)
    told = [(m.text, m.status) for m in result["messages"] if isinstance(m, ToolMessage)][:-1]
    assert [text for text, _ in told][:3] == ["empty", "wrote five to ada", "five to ada"]
    assert told[3][1] == "error"
    assert "no luck" in told[3][0]


async def test_without_the_extra_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_mcp_adapters.client", None)
    with pytest.raises(SetupError, match=r'pip install "signoff\[mcp\]"'):
        await mcp_tools({})


@pytest.mark.slow
async def test_a_server_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    missing = {"ledger": {"transport": "stdio", "command": str(tmp_path / "nothing"), "args": []}}
    with pytest.raises(SetupError, match="The MCP servers ledger cannot be used"):
        await mcp_tools(missing)
