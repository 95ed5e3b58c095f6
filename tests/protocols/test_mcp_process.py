"""`signoff mcp` as other programs start it: a process of its own, whose stdout is the protocol's alone."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

from signoff.session.status import look, reading_graph
from tests.protocols.test_acp_process import EVERYTHING, NOISY, without_package
from tests.support.benches.acp import SECONDS, raw
from tests.support.benches.mcp import McpBench

ASKS = """[
    call("ask_user", question="Which port?", options=["8080", "9090"]),
    call("run_shell", command="echo it ran >> ran.txt; cat ran.txt"),
    call("finish_task", summary="The port is set."),
]"""
EDIT = {"decision": "edit", "arguments": '{"command": "echo edited >> ran.txt"}'}
LONG = """[call("list_files")] * 200"""
INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "x", "version": "1"},
}


@pytest.fixture
def bench(tmp_path: Path) -> McpBench:
    return McpBench(tmp_path)


def ran(bench: McpBench) -> str:
    file = bench.workspace / "ran.txt"
    return file.read_text() if file.exists() else ""


@pytest.mark.slow
async def test_a_task_over_two_processes_without_forms_and_with_them(bench: McpBench) -> None:
    options = ("--approve", "terminal")
    async with bench.started(bench.command(ASKS, *options)) as client:
        waits = await client.told("run_task", task="Set it")
        assert waits["question"]["options"] == ["8080", "9090"]
    async with bench.started(bench.command(ASKS, *options), {"answer": "9090"}, EDIT, forms=True) as client:
        found = await client.told("resume", thread=waits["thread"])
        assert found["outcome"]["summary"] == "The port is set."
    assert ran(bench) == "edited\n"


@pytest.mark.thorough
async def test_the_adapters_of_langchain(bench: McpBench, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    command = bench.command(EVERYTHING.replace("FLAG", str(flag)), "--approve", "terminal", "--turns", "2")
    stdio = {"transport": "stdio", "command": command[0], "args": command[1:], "cwd": bench.workspace}
    client = MultiServerMCPClient({"signoff": cast(Any, stdio)})

    @asynccontextmanager
    async def process() -> AsyncIterator[Callable[..., Awaitable[Any]]]:
        async with client.session("signoff") as session:
            tools = {tool.name: tool for tool in await load_mcp_tools(session)}
            assert set(tools) == {"run_task", "resume", "go_on"}

            async def told(name: str, **arguments: Any) -> Any:
                made = {"name": name, "args": arguments, "id": "1", "type": "tool_call"}
                result = await tools[name].ainvoke(made)
                return (result.artifact or {}).get("structured_content") or result

            yield told

    async with process() as told:
        waits = await told("run_task", task="Do all of it")
        answer = {"thread": waits["thread"], "waiting_id": waits["waiting_id"], "answer": "2"}
        waits = await told("resume", **answer)
        assert waits["waits_for"] == "approval"
    async with process() as told:
        edit = f"edit: {EDIT['arguments']}"
        found = await told("resume", thread=waits["thread"], waiting_id=waits["waiting_id"], answer=edit)
        assert (found["status"], ran(bench)) == ("limit", "edited\n")
        assert (await told("go_on", thread=waits["thread"], turns=5)).status == "error"
    flag.write_text("All of it.")
    async with process() as told:
        assert (await told("go_on", thread=waits["thread"]))["outcome"]["summary"] == "All of it."
    assert ran(bench) == "edited\n"


@pytest.mark.thorough
@pytest.mark.parametrize("forms", [True, False], ids=["with forms", "without"])
async def test_an_edited_approval_a_limit_and_an_error_over_stdio(
    bench: McpBench, tmp_path: Path, forms: bool
) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    command = bench.command(EVERYTHING.replace("FLAG", str(flag)), "--approve", "terminal", "--turns", "2")
    async with bench.started(command, {"answer": "9090"}, EDIT, forms=forms) as client:
        found = await client.told("run_task", task="Do all of it")
        for answer in () if forms else ("2", f"edit: {EDIT['arguments']}"):
            at = {"thread": found["thread"], "waiting_id": found["waiting_id"]}
            found = await client.told("resume", **at, answer=answer)
        assert (found["status"], ran(bench)) == ("limit", "edited\n")
    async with bench.started(command) as client:
        failed = await client.call("go_on", thread=found["thread"], turns=5)
        assert failed.isError
        flag.write_text("All of it.")
        assert (await client.told("go_on", thread=found["thread"]))["outcome"]["summary"] == "All of it."
    assert ran(bench) == "edited\n"


@pytest.mark.thorough
async def test_a_client_that_goes_away_in_the_middle_of_an_approval(bench: McpBench) -> None:
    command = bench.command(ASKS, "--approve", "terminal")
    async with raw(command, bench.workspace) as client:
        forms = {**INITIALIZE, "capabilities": {"elicitation": {}}}
        await client.send(id=0, method="initialize", params=forms)
        await client.answer(0)
        await client.send(method="notifications/initialized")
        call = {"name": "run_task", "arguments": {"task": "Set it", "thread": "t"}}
        await client.send(id=1, method="tools/call", params=call)
        asked = await client.asks("elicitation/create")
        await client.send(id=asked["id"], result={"action": "accept", "content": {"answer": "8080"}})
        await client.asks("elicitation/create")
        assert client.process.stdin
        client.process.stdin.close()
        async with asyncio.timeout(SECONDS):
            assert await client.process.wait() == 0
    async with bench.started(command, {"decision": "approve"}, forms=True) as opened:
        assert (await opened.told("resume", thread="t"))["status"] == "success"
    assert ran(bench) == "it ran\n"


BAD_ANSWERS: list[dict[str, Any]] = [
    {"error": "boom"},
    {"error": {"code": "x", "message": 5}},
    {"result": "yes"},
    {"result": None},
    {"result": {"action": "dance"}},
    {"result": {"action": "accept", "content": {"answer": {"deep": 1}}}},
    {},
]


@pytest.mark.slow
async def test_an_answer_that_is_none_leaves_the_thread_waiting_and_names_it(bench: McpBench) -> None:
    async with raw(bench.command(ASKS), bench.workspace) as client:
        await client.send(
            id=0, method="initialize", params={**INITIALIZE, "capabilities": {"elicitation": {}}}
        )
        await client.answer(0)
        await client.send(method="notifications/initialized")
        run = {"name": "run_task", "arguments": {"task": "Set it", "thread": "t"}}
        look = {"name": "resume", "arguments": {"thread": "t"}}
        for number, bad in enumerate(BAD_ANSWERS, start=1):
            await client.send(id=number, method="tools/call", params=run if number == 1 else look)
            asked = await client.asks("elicitation/create")
            await client.send(id=asked["id"], **bad)
            found = (await client.answer(number))["result"]["structuredContent"]
            assert (found["thread"], found["status"]) == ("t", "waiting"), bad
            assert found["waiting_id"]


@pytest.mark.slow
def test_without_its_package_it_names_the_command_that_installs_it(bench: McpBench) -> None:
    without_package("mcp", bench.workspace)


@pytest.mark.thorough
async def test_bad_lines_other_versions_and_answers_about_something_else(bench: McpBench) -> None:
    async with raw(bench.command(ASKS, "--approve", "terminal"), bench.workspace) as client:
        await client.send(id=9, method="tools/list")
        assert "error" in await client.answer(9), "before initialize"
        await client.send(id=0, method="initialize", params={**INITIALIZE, "protocolVersion": "1999-01-01"})
        assert (await client.answer(0))["result"]["protocolVersion"] >= "2025"
        await client.send(method="notifications/initialized")
        for line in (b"no JSON", b"[1]", b'{"jsonrpc": "2.0", "id": 3}'):
            await client.write(line)
        await client.send(id=5, method="tools/list", params=[1])
        assert (await client.answer(5))["error"]["message"] == "This is not a message of MCP."
        await client.send(id=77, result={"action": "accept", "content": {"decision": "approve"}})
        await client.send(id="big", method="tools/call", params={"name": "x" * 70_000_000})
        assert "too long" in (await client.answer("big"))["error"]["message"]
        await client.send(id=1, method="tools/list")
        assert len((await client.answer(1))["result"]["tools"]) == 3


@pytest.mark.thorough
async def test_a_client_that_never_reads(bench: McpBench) -> None:
    async with raw(bench.command(LONG, "--turns", "200"), bench.workspace) as client:
        await client.send(id=0, method="initialize", params=INITIALIZE)
        await client.answer(0)
        await client.send(method="notifications/initialized")
        call = {
            "name": "run_task",
            "arguments": {"task": "Look", "thread": "t"},
            "_meta": {"progressToken": 1},
        }
        await client.send(id=1, method="tools/call", params=call)
        for number in range(2_000):
            await client.send(id=100 + number, method="tools/list")
        assert client.process.stdin
        client.process.stdin.close()
        async with asyncio.timeout(SECONDS):
            assert await client.process.wait() == 0
    with bench.database.open() as storage:
        assert look(reading_graph(storage), "t").task.messages


@pytest.mark.slow
async def test_nothing_but_the_protocol_stands_on_stdout(bench: McpBench, tmp_path: Path) -> None:
    file = tmp_path / "noisy.py"
    file.write_text(NOISY)
    command = [sys.executable, "-m", "signoff.cli", "mcp", "--graph", f"{file}:graph", "--config", "none"]
    async with raw([*command, "--database", bench.database.where], bench.workspace) as client:
        await client.send(id=0, method="initialize", params=INITIALIZE)
        await client.answer(0)
        await client.send(method="notifications/initialized")
        call = {"name": "run_task", "arguments": {"task": "Add"}}
        await client.send(id=1, method="tools/call", params=call)
        # `answer` reads every line of it as JSON.
        found = (await client.answer(1))["result"]
        assert json.loads(json.dumps(found))["structuredContent"]["status"] == "success"
