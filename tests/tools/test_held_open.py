"""What tools hold open beyond a call ends with the graph that uses them, and leaves nothing behind."""

import gc
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from signoff import Session, build_graph, sqlite_storage
from signoff.graph.build import Graph
from signoff.models import ScriptedModel, call
from signoff.tools import ShellPool, terminal_tool
from signoff.tools.sandbox import choose_sandbox, python_tool
from tests.support.adapted import adapted
from tests.support.ends import is_finished
from tests.support.prepared import run_python
from tests.support.process_table import runs

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


def children() -> dict[int, str]:
    """The state letters of the processes that this one has started, by their ids."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            row = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(row[1]) == os.getpid():
            found[int(name)] = row[0]
    return found


def shell(folder: Path) -> BaseTool:
    return terminal_tool(folder)


def python(folder: Path) -> BaseTool:
    return python_tool(None, folder)


Make = Callable[[Path], BaseTool]
CALLS: dict[Make, Any] = {
    shell: call("run_shell", command="sleep 1000 & echo here; echo $! > pid"),
    python: call("run_python", code="import os; print(os.getpid())"),
}
tools_that_hold = pytest.mark.parametrize("make", CALLS, ids=lambda make: make.__name__)


def graph_of(tool: BaseTool, make: Make, times: int = 1, **given: Any) -> Graph:
    return build_graph(
        ScriptedModel([CALLS[make], call("finish_task", summary="x")] * times), [tool], **adapted(**given)
    )


def started(run: Callable[[], object]) -> set[int]:
    """The processes that are there after `run`, and were not before."""
    before = set(children())
    run()
    return {pid for pid in children() if pid not in before}


def left(pids: set[int]) -> set[int]:
    """Those that were not ended, or not collected."""
    return {pid for pid in pids if pid in children()}


@tools_that_hold
def test_it_ends_with_the_storage(make: Make, tmp_path: Path) -> None:
    tool = make(tmp_path)
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        graph = graph_of(tool, make, storage=storage)
        pids = started(lambda: Session(graph, "t").run("go"))
        assert pids
        assert left(pids) == pids
    assert not left(pids)
    background = tmp_path / "pid"
    assert not background.exists() or not runs(int(background.read_text()))


@tools_that_hold
def test_it_ends_by_close_and_is_started_anew(make: Make, tmp_path: Path) -> None:
    tool = make(tmp_path)
    graph = graph_of(tool, make, 2, checkpointer=InMemorySaver(), store=InMemoryStore())
    pids = started(lambda: Session(graph, "t").run("go"))
    other = graph_of(tool, make)
    graph.with_config(tags=["a copy"]).close()
    assert left(pids) == pids, "another graph uses it"
    other.close()
    assert not left(pids)
    assert started(lambda: Session(graph, "t").run("again"))
    graph.close()


def test_it_ends_when_the_graph_is_gone(tmp_path: Path) -> None:
    def run() -> None:
        graph = graph_of(shell(tmp_path), shell, checkpointer=InMemorySaver(), store=InMemoryStore())
        assert is_finished(Session(graph, "t").run("go"))

    pids, until = started(run), time.monotonic() + 10
    gc.collect()
    while left(pids) and time.monotonic() < until:
        time.sleep(0.02)
    assert not left(pids)


@pytest.mark.parametrize("given", ["pool", "sandbox"])
def test_what_was_given_ends_too(given: str, tmp_path: Path) -> None:
    make = shell if given == "pool" else python
    pool, sandbox = ShellPool(), choose_sandbox(workspace=tmp_path)
    tool = terminal_tool(tmp_path, pool) if given == "pool" else python_tool(sandbox)
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        graph = graph_of(tool, make, storage=storage)
        pids = started(lambda: Session(graph, "t").run("go"))
        assert left(pids)
    assert not left(pids)


@pytest.mark.thorough
def test_many_threads_with_a_shell_each_leave_no_zombies(tmp_path: Path) -> None:
    tool, before = terminal_tool(tmp_path, ShellPool(limit=4)), set(children())
    for number in range(40):
        config: Any = {"configurable": {"thread_id": f"t{number}"}}
        tool.invoke({"command": "exit 3" if number % 3 == 0 else "true"}, config)
    build_graph(ScriptedModel([]), [tool]).close()
    assert not set(children()) - before


def test_it_ends_with_the_program(tmp_path: Path) -> None:
    program = (
        "from signoff.tools.terminal import terminal_tool\n"
        f"tool = terminal_tool({str(tmp_path)!r})\n"
        "tool.invoke({'command': 'echo $$ > pid'}, {'configurable': {'thread_id': 't'}})\n"
    )
    assert run_python("-c", program).returncode == 0
    assert not runs(int((tmp_path / "pid").read_text()))
