"""The processes that tools start (shells, interpreters, servers) end with the graphs that use them, and are
never those of a workspace."""

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool

from signoff import Graph, SetupError, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call
from signoff.tools import Workspace, mcp_tools, python_tool, terminal_tool
from tests.support.plays import FINISH, GO, THREAD, saved
from tests.support.process_table import children, found, gone, long_sleep, runs

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

ROUGH = Path(__file__).parents[1] / "support" / "servers" / "mcp_rough.py"


def server_tools(folder: Path) -> list[BaseTool]:
    words = [str(ROUGH), "leaves a child", str(folder / "pids")]
    connection = {"transport": "stdio", "command": sys.executable, "args": words}
    return asyncio.run(mcp_tools({"rough": connection}))


SHELL = call("run_shell", command=f"{long_sleep()} & setsid {long_sleep()} & echo here")
# Tools that hold something open, and a call that opens it.
RESOURCES: dict[str, tuple[Callable[[Path], list[BaseTool]], Any]] = {
    "a shell": (lambda folder: [terminal_tool(folder)], SHELL),
    "an interpreter": (lambda folder: [python_tool(None, folder)], call("run_python", code="print(6 * 7)")),
    "a server": (server_tools, call("look")),
}


def graph_of(name: str, tools: list[BaseTool], **storage: Any) -> Graph:
    return build_graph(ScriptedModel([RESOURCES[name][1], FINISH] * 2), tools, **(storage or saved()))


@pytest.mark.parametrize("name", RESOURCES)
def test_it_ends_with_the_last_graph_that_uses_it_and_is_started_anew(name: str, tmp_path: Path) -> None:
    before = set(children(os.getpid()))

    def started() -> set[int]:
        """The processes that this one has started since, and that were not ended, or not collected."""
        return set(children(os.getpid())) - before

    tools = RESOURCES[name][0](tmp_path)
    with sqlite_storage(tmp_path / "threads.sqlite") as storage:
        graph, other = graph_of(name, tools, storage=storage), graph_of(name, tools)
        graph.invoke(GO, THREAD)
        first = started()
        graph.with_config(tags=["a copy"]).close()
        assert started() == first != set(), "another graph uses it"
        other.close()
        assert not started()
        assert graph.invoke(GO, THREAD)["outcome"]["status"] == "success"
        assert started()
    assert not started(), "the storage is closed"
    assert not found()


def test_it_ends_when_the_graph_is_gone(tmp_path: Path) -> None:
    graph_of("a server", server_tools(tmp_path)).invoke(GO, THREAD)
    gc.collect()
    assert gone(*map(int, (tmp_path / "pids").read_text().split()))


PROGRAM = """
import sys
from pathlib import Path
from signoff.tools import python_tool, terminal_tool
from tests.tools.test_held_open import server_tools

folder = Path(sys.argv[1])
thread = {"configurable": {"thread_id": "t"}}
server_tools(folder)
terminal_tool(folder).invoke({"command": sys.argv[2]}, thread)
python_tool(None, folder).invoke({"code": "1"}, thread)
"""


@pytest.mark.thorough
def test_it_ends_with_the_program(tmp_path: Path) -> None:
    command = f"echo $$ >> pids; setsid {long_sleep()} & nohup {long_sleep()} & {long_sleep()} &"
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path), command], check=True, cwd=root)
    pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 3
    assert not any(map(runs, pids))
    assert gone(*found(), seconds=0)


# They are never started from a file in a workspace, nor with its modules.

MODULES = ("json.py", "ast.py", "sitecustomize.py", "usercustomize.py", "signoff.py")


def test_nothing_of_the_workspace_or_the_environment_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in MODULES:
        (tmp_path / name).write_text(f"open({str(tmp_path / 'loaded')!r}, 'w')\nPLANTED = 1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    tool = python_tool(None, tmp_path, writable=True)
    told = tool.invoke({"code": "import json, sys\nprint(hasattr(json, 'PLANTED'), sys.flags.isolated)"})
    assert told.startswith("False 1")
    assert not (tmp_path / "loaded").exists()


def test_a_python_in_the_workspace_is_refused_unless_it_is_accepted() -> None:
    python = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    with pytest.raises(SetupError, match=f"'!{python.parent.name}'"):
        python_tool(None, python.parents[1])
    accepted = Workspace(python.parents[1], protect=[f"!{python.parent.name}"])
    assert python_tool(None, accepted).invoke({"code": "print('ran')"}) == "ran"
