"""Sessions of `signoff acp`: the list of them, one that runs elsewhere, and what an editor gives to them."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError
from acp.schema import McpServerStdio

from signoff import build_graph
from signoff.acp.given import OWN_TOOLS
from signoff.front.settings import Given, settle
from signoff.front.working import working_tools
from signoff.models import ScriptedModel, call
from signoff.session.status import config_of, deps_of
from tests.support.benches.acp import AcpBench, Inside

DONE = """[call("finish_task", summary="Done."), call("finish_task", summary="Done again.")]"""
ASKS = """[
    call("ask_user", question="Which port?", options=["8080", "9090"]),
    call("finish_task", summary="The port is set."),
]"""
BOOKS = """[call("book", forms=["day"]), call("finish_task", summary="Booked.")]"""
NAMED = """
import os, sys
from pathlib import Path
from mcp.server.fastmcp import FastMCP

own, *names = sys.argv[1:]
Path(f"{own}.pid").write_text(str(os.getpid()))
server = FastMCP(own, log_level="ERROR")
for name in names:
    server.add_tool(lambda name=name: f"{own} did {name}", name=name, description="Does it.")
server.run()
"""


@pytest.fixture
def bench(tmp_path: Path) -> AcpBench:
    return AcpBench(tmp_path)


async def listed(opened: Inside, cwd: str | None) -> list[list[str]]:
    """The ids of the sessions, page by page."""
    pages, cursor = list[list[str]](), None
    while True:
        found = await opened.client.list_sessions(cwd=cwd, cursor=cursor)
        pages.append([one.session_id for one in found.sessions])
        cursor = found.next_cursor
        if cursor is None:
            return pages


async def test_the_list_comes_in_pages_of_fifty(bench: AcpBench) -> None:
    async with bench.inside(DONE) as opened:
        with bench.database.open() as storage:
            for number in range(103):
                model = ScriptedModel([call("finish_task", summary="Done.")])
                build_graph(model, checkpointer=storage.checkpointer, store=storage.store).invoke(
                    {"messages": [("user", f"Task {number}")]}, config_of(f"t{number}")
                )
        pages = await listed(opened, None)
        assert [len(page) for page in pages] == [50, 50, 3]
        assert [one for page in pages for one in page] == [f"t{number}" for number in reversed(range(103))]
        for cursor in ("x", "-1", "1" * 10):
            with pytest.raises(RequestError, match="not from this list"):
                await opened.client.list_sessions(cursor=cursor)


@pytest.mark.parametrize("begun", ["{0}", "{0}/", "{1}", "{0}/../project"])
async def test_a_folder_is_the_same_however_it_is_spelled(bench: AcpBench, begun: str) -> None:
    link = bench.folder / "link"
    link.symlink_to(bench.workspace)
    spelled = [one.format(bench.workspace, link) for one in ("{0}", "{0}/", "{1}", "{1}/")]
    async with bench.inside(DONE) as opened:
        cwd = begun.format(bench.workspace, link)
        session = (await opened.client.new_session(cwd=cwd, mcp_servers=[])).session_id
        assert await opened.prompt(session, "Go") == "end_turn"
        for one in spelled:
            assert await listed(opened, one) == [[session]], one
        assert await listed(opened, str(bench.folder)) == [[]]


async def test_a_thread_that_another_process_runs_is_not_called_stopped(bench: AcpBench) -> None:
    async with bench.inside(ASKS) as opened:
        session = await opened.new()
        await opened.prompt(session, "Set it")
    async with bench.inside(ASKS) as opened:
        resume = {"cwd": str(bench.workspace), "session_id": session, "mcp_servers": []}
        with bench.database.open() as storage, storage.checkpointer.runner(session):
            await opened.load(session)
            await opened.client.resume_session(**resume)
            assert opened.editor.said().count("Another process runs it") == 2
            assert "Your next message is the answer" not in opened.editor.said()
            for words in ("1", "", "/stop"):
                with pytest.raises(RequestError, match="running elsewhere"):
                    await opened.prompt(session, words)
        await opened.load(session)
        assert "Your next message is the answer" in opened.editor.said()
        assert await opened.prompt(session, "1") == "end_turn"


async def test_an_answer_while_another_process_runs_the_thread_is_too_late(bench: AcpBench) -> None:
    async with bench.inside(ASKS) as opened:
        session = await opened.new()
        await opened.prompt(session, "Set it")
        with (
            bench.database.open() as storage,
            storage.checkpointer.runner(session),
            pytest.raises(RequestError, match="too late"),
        ):
            await opened.prompt(session, "1")


# --- servers of the editor ---


def server(bench: AcpBench, own: str, *names: str) -> McpServerStdio:
    """A server with tools of these names."""
    program = bench.folder / "named.py"
    program.write_text(NAMED)
    args = [str(program), str(bench.folder / own.replace("/", "_")), *names]
    return McpServerStdio(name=own, command=sys.executable, args=args, env=[])


def test_the_names_that_are_ours_are_known(bench: AcpBench) -> None:
    given = Given(workspace=bench.workspace, tools="files,shell", model=bench.model(DONE))
    with working_tools(settle(given, None, {}), lambda _: None) as tools:
        graph = build_graph(ScriptedModel([]), tools)
        toolbox = deps_of(graph).toolbox
        assert {*toolbox.tools, *toolbox.controls, *toolbox.controls.aliases} < OWN_TOOLS


@pytest.mark.slow
@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("servers", "calls"),
    [
        ({"fs": ["read_file", "look"]}, {"fs_read_file": "fs did read_file", "look": "fs did look"}),
        ({"my files/2": ["think"]}, {"my_files_2_think": "did think"}),
        ({"a": ["look"], "b": ["look"]}, {"a_look": "a did look", "b_look": "b did look"}),
        ({"a": ["b_read_file"], "a_b": ["read_file"]}, {"a_b_read_file": "a_b did read_file"}),
        (
            {"a": ["write_file", "a_write_file"]},
            {"a_write_file_2": "did write_file", "a_write_file": "did a_write_file"},
        ),
        ({"x" * 80: ["run_shell"]}, {f"{'x' * 30}_run_shell": "did run_shell"}),
    ],
    ids=["ours", "a control tool", "two servers", "not taken", "taken, too", "a long name"],
)
async def test_a_tool_whose_name_is_taken_has_that_of_its_server_before_it(
    bench: AcpBench, servers: dict[str, list[str]], calls: dict[str, str]
) -> None:
    steps = [f"call({name!r}, name={told.split()[-1]!r})" for name, told in calls.items()]
    script = f"""[{", ".join(steps)}, call("finish_task", summary="Done.")]"""
    given = [server(bench, own, *names) for own, names in servers.items()]
    async with bench.inside(script) as opened:
        session = (await opened.client.new_session(cwd=str(bench.workspace), mcp_servers=given)).session_id
        assert await opened.prompt(session, "Go") == "end_turn"
        updates = opened.editor.of("tool_call_update")
        results = [one.raw_output for one in updates if one.status == "completed"]
        assert len(results) == len(calls)
        for found, told in zip(results, calls.values(), strict=True):
            assert told in found


async def test_two_servers_of_one_name_are_refused(bench: AcpBench) -> None:
    given = [server(bench, "fs", "look"), server(bench, "fs", "find")]
    async with bench.inside(DONE) as opened:
        with pytest.raises(RequestError, match=r"Two MCP servers are named 'fs'; give each its own name"):
            await opened.client.new_session(cwd=str(bench.workspace), mcp_servers=given)


@pytest.mark.slow
async def test_a_server_that_cannot_start_ends_the_others(bench: AcpBench) -> None:
    broken = McpServerStdio(name="broken", command=sys.executable, args=["-c", "1 / 0"], env=[])
    async with bench.inside(DONE) as opened:
        with pytest.raises(RequestError, match="'broken' cannot be used"):
            await opened.client.new_session(
                cwd=str(bench.workspace), mcp_servers=[server(bench, "fs", "look"), broken]
            )
        with pytest.raises(ProcessLookupError):
            os.kill(int((bench.folder / "fs.pid").read_text()), 0)


@pytest.mark.slow
async def test_a_server_of_the_editor_asks_a_person(bench: AcpBench, tmp_path: Path) -> None:
    program = Path(__file__).parents[1] / "support" / "servers" / "mcp_asks.py"
    given: Any = McpServerStdio(
        name="table", command=sys.executable, args=[str(program), str(tmp_path / "ledger")], env=[]
    )
    async with bench.inside(BOOKS, "approve", approve="book") as opened:
        found = await opened.client.new_session(cwd=str(bench.workspace), mcp_servers=[given])
        assert await opened.prompt(found.session_id, "Book") == "end_turn"
        assert "'table' asks: Tell me: day" in opened.editor.said()
        assert await opened.prompt(found.session_id, "Monday") == "end_turn"
    assert (tmp_path / "ledger").read_text().splitlines()[1:] == ["""booked ["accept {'day': 'Monday'}"]"""]
