"""Tools of real MCP servers over stdio."""

import gc
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool

from signoff import SetupError, build_graph, sqlite_storage, standard_controls
from signoff.graph.build import Graph
from signoff.graph.inside.installing import install_hint
from signoff.graph.kinds import Kind, kind_of
from signoff.models import ScriptedModel, call
from signoff.tools import mcp_tools
from signoff.tools.toolbox import make_toolbox
from tests.support.adapted import adapted
from tests.support.process_table import gone, runs

SERVERS = Path(__file__).parents[1] / "support" / "servers"
SERVER = SERVERS / "mcp_server.py"
ROUGH = SERVERS / "mcp_rough.py"


def servers(ledger: Path) -> dict[str, Any]:
    command = {"transport": "stdio", "command": sys.executable, "args": [str(SERVER), str(ledger)]}
    return {"ledger": command}


def rough(how: str, pids: Path) -> dict[str, Any]:
    return {"bad": {"transport": "stdio", "command": sys.executable, "args": [str(ROUGH), how, str(pids)]}}


def started(pids: Path) -> list[int]:
    return [int(line) for line in pids.read_text().split()] if pids.exists() else []


def ended(pids: Path) -> bool:
    """Whether all that were started have ended, at the latest soon."""
    return bool(found := started(pids)) and gone(*found)


def graph_calling(tools: list[BaseTool], *names: str, **given: Any) -> Graph:
    replies = [call(name, line="five to ada") if name == "put" else call(name) for name in names]
    return build_graph(ScriptedModel([*replies, call("finish_task", summary="x")]), tools, **adapted(**given))


async def told(graph: Graph, mode: str, **config: Any) -> list[tuple[str, str]]:
    given: Any = {"messages": [("user", "go")]}
    settings: Any = {"configurable": config}
    result = graph.invoke(given, settings) if mode == "sync" else await graph.ainvoke(given, settings)
    return [(str(m.text), str(m.status)) for m in result["messages"] if isinstance(m, ToolMessage)][:-1]


@pytest.mark.slow
async def test_one_server_serves_every_call_and_ends_with_its_graph(tmp_path: Path) -> None:
    tools = await mcp_tools(servers(tmp_path / "ledger"))
    graph = graph_calling(tools, "look", "put", "look", "fail")
    results = await told(graph, "sync")
    assert [text for text, _ in results[:3]] == ["empty", "wrote five to ada", "five to ada"]
    assert results[3][1] == "error"
    assert "no luck" in results[3][0]
    assert await told(graph_calling(tools, "look"), "async") == [("five to ada", "success")]
    pids = tmp_path / "ledger.pids"
    assert len(started(pids)) == 1
    assert runs(started(pids)[0])
    graph.close()
    gc.collect()
    assert ended(pids), "the other graph is no longer there, and this one was closed"


@pytest.mark.slow
async def test_a_server_is_ended_with_its_last_graph_and_started_anew_by_a_call(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    tools = await mcp_tools(rough("serves", pids))
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        first = graph_calling(tools, "look", storage=storage)
        second = graph_calling(tools, "look", "look")
        assert await told(first, "async", thread_id="t") == [(f"by {started(pids)[0]}", "success")]
    assert runs(started(pids)[0]), "another graph uses it"
    second.close()
    assert not any(runs(pid) for pid in started(pids))
    assert await told(second, "sync") == [(f"by {started(pids)[1]}", "success")] * 2
    assert len(started(pids)) == 2
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        third = graph_calling(tools, "look", storage=storage)
        del second
        gc.collect()
        assert await told(third, "async", thread_id="u")
    assert not any(runs(pid) for pid in started(pids)), "ended with the storage"


@pytest.mark.slow
async def test_a_server_ends_when_nothing_refers_to_its_tools(tmp_path: Path) -> None:
    await mcp_tools(rough("serves", tmp_path / "pids"))
    gc.collect()
    assert ended(tmp_path / "pids")


@pytest.mark.slow
def test_a_server_ends_with_the_program(tmp_path: Path) -> None:
    given = rough("leaves a child", tmp_path / "pids")
    program = (
        f"import asyncio\nfrom signoff.tools.mcp import mcp_tools\ntools = asyncio.run(mcp_tools({given!r}))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert len(started(tmp_path / "pids")) == 2
    assert not any(runs(pid) for pid in started(tmp_path / "pids"))


# Of those that never answer, the shortest time in which they have surely started.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "seconds", "why"),
    [
        ("hangs", 1.5, "had not listed its tools after 1.5 seconds"),
        ("no list", 1.5, "had not listed its tools after 1.5 seconds"),
        ("pages without end", 1.5, "had not listed its tools after 1.5 seconds"),
        ("mumbles", 3, "not an MCP message: 'listening on port 80'"),
        ("garbage", 20, "not an MCP message: 'garbage 0'"),
        ("many tools", 20, "more than 128 tools"),
        ("ends at once", 20, "it ended"),
    ],
)
async def test_a_server_that_cannot_be_used_is_one_error_and_is_ended(
    how: str, seconds: float, why: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    good = {"good": rough("serves", tmp_path / "good.pids")["bad"]}
    with pytest.raises(SetupError, match=f"The MCP server 'bad' cannot be used: .*{why}"):
        await mcp_tools({**rough(how, tmp_path / "bad.pids"), **good}, seconds=seconds)
    assert not any(runs(pid) for pid in started(tmp_path / "bad.pids"))
    assert not any(runs(pid) for pid in started(tmp_path / "good.pids"))
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(
    ("how", "why"),
    [("die", "it ended.* Whether the call took effect is not known"), ("hang", "did not come back")],
)
async def test_a_server_that_dies_or_hangs_in_a_call_serves_the_next_one(
    how: str, why: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signoff.tools.mcp_sessions._PING_SECONDS", 0.2)
    tools = await mcp_tools(rough("serves", tmp_path / "pids"))
    for tool in tools:
        tool.metadata = {"kind": "write", "seconds": 0.3 if tool.name == "hang" else 20}
    failed, after = await told(graph_calling(tools, how, "look"), mode)
    assert failed[1] == "error"
    assert re.search(why, failed[0])
    assert after == (f"by {started(tmp_path / 'pids')[1]}", "success")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trust", "expected"),
    [
        (False, {}),
        (
            True,
            {"look": (Kind.READ, False), "put": (Kind.WRITE, True), "claim": (Kind.READ, True)},
        ),
    ],
)
async def test_hints_count_only_when_they_are_trusted(
    trust: bool, expected: dict[str, tuple[Kind, bool]], tmp_path: Path
) -> None:
    tools = await mcp_tools(rough("serves", tmp_path / "pids"), trust_hints=trust)
    box = make_toolbox(tools, standard_controls())
    for tool in tools:
        said = (kind_of(tool), box.may_repeat(tool.name))
        assert said == expected.get(tool.name, (Kind.WRITE, False)), tool.name
        assert box.seconds(tool.name, 9) == 9
    assert not box.driven


def test_hints_on_a_tool_from_elsewhere_are_no_kind() -> None:
    def look() -> str:
        """Look."""
        return ""

    tool = StructuredTool.from_function(look, metadata={"readOnlyHint": True, "idempotentHint": True})
    box = make_toolbox([tool], standard_controls())
    assert box.kinds["look"] is Kind.WRITE
    assert not box.may_repeat("look")


@pytest.mark.parametrize("key", ["kind", "idempotent", "seconds", "hand_over"])
def test_metadata_that_a_server_wrote_says_nothing_of_ours(key: str) -> None:
    def look() -> str:
        """Look."""
        return ""

    tool = StructuredTool.from_function(look, metadata={"readOnlyHint": None, key: "read"})
    with pytest.raises(SetupError, match=f"hints of an MCP server, which can set {key} there"):
        build_graph(ScriptedModel([]), [tool])


async def test_without_the_extra_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_mcp_adapters.client", None)
    with pytest.raises(SetupError, match=re.escape(install_hint("mcp"))):
        await mcp_tools({})


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
async def test_a_time_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(SetupError, match="seconds is"):
        await mcp_tools({}, seconds=seconds)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["stdio", "carrier pigeon"])
async def test_a_server_that_cannot_be_started_is_told(transport: str, tmp_path: Path) -> None:
    missing = {"ledger": {"transport": transport, "command": str(tmp_path / "nothing"), "args": []}}
    with pytest.raises(SetupError, match=r"The MCP server 'ledger' cannot be used: .*Check its command"):
        await mcp_tools(missing)


@pytest.mark.parametrize("part", ["command", "args"])
async def test_what_a_connection_over_stdio_lacks_is_told(part: str) -> None:
    given = {"transport": "stdio", "command": "server", "args": []}
    with pytest.raises(SetupError, match=f"The MCP server 'ledger' cannot be used: .*needs '{part}'"):
        await mcp_tools({"ledger": {name: value for name, value in given.items() if name != part}})


@pytest.mark.slow
async def test_an_address_that_takes_connections_and_says_nothing_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
        for transport in ("streamable_http", "sse"):
            with pytest.raises(SetupError, match=r"had not listed its tools after 0\.5 seconds"):
                await mcp_tools({"far": {"transport": transport, "url": url}}, seconds=0.5)
