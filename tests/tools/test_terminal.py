"""run_shell: what the model reads, what streams live, and one shell per thread."""

import asyncio
import contextvars
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, ToolException
from langgraph.graph import END, START, MessagesState, StateGraph

from signoff.graph.errors import SetupError
from signoff.graph.foreign import LIMIT
from signoff.graph.kinds import Kind, kind_of
from signoff.tools import ShellPool, terminal_tool
from signoff.tools.pty import output as pty_output


@pytest.fixture
def pool() -> Iterator[ShellPool]:
    shells = ShellPool(limit=3)
    yield shells
    shells.close()


@pytest.fixture
def tool(tmp_path: Path, pool: ShellPool) -> BaseTool:
    return terminal_tool(tmp_path, pool)


def said(tool: BaseTool, command: str, thread: str = "one", **arguments: Any) -> str:
    text = tool.invoke({"command": command, **arguments}, {"configurable": {"thread_id": thread}})
    assert isinstance(text, str)
    text.encode()
    return text


def test_the_tool_is_of_kind_terminal_and_asks_for_a_command_and_a_time_out(tool: BaseTool) -> None:
    assert (tool.name, kind_of(tool)) == ("run_shell", Kind.TERMINAL)
    assert set(tool.args) == {"command", "timeout"}
    assert tool.args["timeout"]["default"] == 60


@pytest.mark.parametrize(
    ("command", "output", "notes"),
    [
        ("echo hi", "hi", ["exit code 0;"]),
        ("true", "(no output)", ["exit code 0;"]),
        ("echo no >&2; (exit 9)", "no", ["exit code 9;"]),
        ("echo a; exit 3", "a", ["exit code 3;", "the shell ended and a new one starts in"]),
        ("echo a; sleep 50", "a\n^C", ["exit code 130;", "stopped at the time-out of 0.2 s"]),
    ],
)
def test_the_result_is_the_output_and_a_line_of_notes(
    tool: BaseTool, command: str, output: str, notes: list[str]
) -> None:
    text, _, last = said(tool, command, timeout=0.2 if "sleep" in command else 30).rpartition("\n")
    assert (text, last[0], last[-1]) == (output, "[", "]")
    for note in notes:
        assert note in last


def test_a_command_that_waits_is_explained(tool: BaseTool) -> None:
    text = said(tool, "read -p 'Go on? ' answer")
    assert text.startswith("Go on? ")
    assert "nobody can type: pass the input by a pipe or by options" in text


def test_a_long_output_is_cut_and_kept(tool: BaseTool, tmp_path: Path) -> None:
    text = said(tool, "seq 100000")
    assert len(text) <= LIMIT
    assert text.startswith("1\n2\n")
    assert "\n100000\n[exit code 0; " in text
    (kept,) = (tmp_path / ".signoff" / "outputs").iterdir()
    assert f".signoff/outputs/{kept.name}" in text
    assert kept.read_text() == "".join(f"{number}\n" for number in range(1, 100_001))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [({"command": ""}, "empty"), ({"command": "ls\0"}, "NUL"), ({"command": "ls", "timeout": 0}, "above 0")],
)
def test_a_call_that_cannot_run_is_refused(tool: BaseTool, arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ToolException, match=reason):
        tool.invoke(arguments)


def test_a_workspace_that_has_gone_is_refused(tmp_path: Path, pool: ShellPool) -> None:
    (tmp_path / "work").mkdir()
    tool = terminal_tool(tmp_path / "work", pool)
    (tmp_path / "work").rmdir()
    with pytest.raises(ToolException, match="cannot start in"):
        tool.invoke({"command": "ls"})
    with pytest.raises(SetupError, match="not an existing folder"):
        terminal_tool(tmp_path / "work")


def test_each_thread_has_its_shell(tool: BaseTool, pool: ShellPool, tmp_path: Path) -> None:
    said(tool, "cd /; X=1", "one")
    assert said(tool, "pwd; echo $X", "two").startswith(f"{tmp_path}\n[")
    assert said(tool, "pwd; echo $X", "one").startswith("/\n1\n[")
    assert len(pool) == 2


def test_calls_without_a_thread_share_nothing(tool: BaseTool, pool: ShellPool, tmp_path: Path) -> None:
    tool.invoke({"command": "cd /; X=1"})
    assert tool.invoke({"command": "pwd; echo $X."}).startswith(f"{tmp_path}\n.\n[")
    assert len(pool) == 0


def test_the_shell_unused_for_longest_makes_room(pool: ShellPool, tmp_path: Path) -> None:
    first, second, third = (pool.get(name, tmp_path) for name in "abc")
    assert pool.get("a", tmp_path) is first
    pool.get("d", tmp_path)
    assert [each.closed for each in (first, second, third)] == [False, True, False]
    assert len(pool) == 3
    pool.close("a")
    assert (first.closed, third.closed) == (True, False)
    assert pool.get("a", tmp_path) is not first


def test_running_shells_are_not_closed_for_room(pool: ShellPool, tmp_path: Path) -> None:
    busy = [pool.get(name, tmp_path) for name in "abc"]
    threads = [threading.Thread(target=shell.run, args=("sleep 1",)) for shell in busy]
    for thread in threads:
        thread.start()
    while not all(shell.busy for shell in busy):
        time.sleep(0.01)
    with pytest.raises(ToolException, match="3 shells are running commands"):
        pool.get("d", tmp_path)
    for thread in threads:
        thread.join()
    assert not any(shell.closed for shell in busy)


def in_a_graph(tool: BaseTool, command: str) -> Any:
    """A graph of one node that calls the tool in a thread with a copied context, as calls are run."""

    def node(state: MessagesState) -> dict[str, list[ToolMessage]]:
        call = {"name": "run_shell", "args": {"command": command}, "id": "call-7", "type": "tool_call"}
        answers: list[ToolMessage] = []
        context = contextvars.copy_context()
        thread = threading.Thread(target=lambda: answers.append(context.run(tool.invoke, call)))
        thread.start()
        thread.join()
        return {"messages": answers}

    builder = StateGraph(MessagesState)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile()


CONFIG: Any = {"configurable": {"thread_id": "graph"}}


def test_output_streams_live_from_a_graph(tool: BaseTool) -> None:
    graph = in_a_graph(tool, "printf '\\033[1mone\\033]52;c;aGk=\\007\\n'; sleep 0.4; echo two")
    events = list(graph.stream({"messages": []}, CONFIG, stream_mode=["custom", "values"]))
    chunks = [event for mode, event in events if mode == "custom"]
    assert [(chunk["type"], chunk["call_id"]) for chunk in chunks] == [("terminal", "call-7")] * len(chunks)
    assert len(chunks) >= 2
    assert "".join(chunk["data"] for chunk in chunks) == "one\ntwo\n"
    (answer,) = events[-1][1]["messages"]
    assert answer.content.startswith("one\ntwo\n[exit code 0; ")
    assert (answer.tool_call_id, answer.status) == ("call-7", "success")


def test_output_streams_live_from_an_async_graph(tool: BaseTool) -> None:
    async def collect() -> list[Any]:
        graph = in_a_graph(tool, "echo one")
        return [chunk async for chunk in graph.astream({"messages": []}, CONFIG, stream_mode="custom")]

    chunks = asyncio.run(collect())
    assert chunks == [{"type": "terminal", "call_id": "call-7", "data": "one\n"}]


def test_a_flood_is_streamed_in_small_portions(tool: BaseTool) -> None:
    graph = in_a_graph(tool, "head -c 20000000 /dev/zero | tr '\\0' x")
    chunks = list(graph.stream({"messages": []}, CONFIG, stream_mode="custom"))
    assert sum(len(chunk["data"]) for chunk in chunks) < 8_000 * (len(chunks) + 1)
    assert max(len(chunk["data"]) for chunk in chunks) <= 8_000


@pytest.mark.slow
def test_all_shells_are_closed_when_the_program_ends(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from signoff.tools.terminal import terminal_tool\n"
        "tool = terminal_tool(sys.argv[1])\n"
        "tool.invoke({'command': sys.argv[2]}, {'configurable': {'thread_id': 'one'}})\n"
    )
    sleep = f"sleep {7_000 + os.getpid() / 1e7:.7f}"
    command = f"setsid {sleep} & nohup {sleep} & {sleep} &"
    subprocess.run([sys.executable, "-c", program, str(tmp_path), command], check=True)
    listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert sleep not in listing


@pytest.mark.slow
def test_the_module_loads_where_there_is_no_unix_terminal(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "for name in ('termios', 'pty', 'fcntl', 'ptyprocess'): sys.modules[name] = None\n"
        "import signoff.tools.terminal as terminal\n"
        "from signoff.graph.errors import SetupError\n"
        "sys.platform = 'win32'\n"
        "try: terminal.terminal_tool(sys.argv[1])\n"
        "except SetupError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "The shell needs a Unix terminal; use Linux, macOS or WSL.\n"


@pytest.mark.parametrize("lines", [10_000, 120_000, 400_000])
def test_the_full_text_is_in_the_file_whatever_its_length(tool: BaseTool, tmp_path: Path, lines: int) -> None:
    told = said(tool, f"seq 1000001 {1_000_000 + lines}")
    assert len(told) <= LIMIT
    kept = told.split("the full text is in ")[1].split(" ...]")[0]
    assert (tmp_path / kept).read_text().split() == [str(1_000_000 + line) for line in range(1, lines + 1)]


def test_what_is_too_long_to_be_kept_is_not_called_the_full_text(
    tool: BaseTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pty_output, "SPOOLED", 1_500_000)
    told = said(tool, "seq 1000001 1400000")
    assert "full text" not in told
    kept = (tmp_path / told.split("what was kept of it is in ")[1].split(" ...]")[0]).read_text()
    assert "of output left out here" in kept
    assert (kept[:8], kept[-8:]) == ("1000001\n", "1400000\n")


def test_the_output_of_background_jobs_comes_with_the_next_result(tool: BaseTool, tmp_path: Path) -> None:
    said(tool, "(until [ -e go ]; do sleep .01; done; echo ready; touch went) &")
    (tmp_path / "go").touch()
    while not (tmp_path / "went").exists():
        time.sleep(0.01)
    told = said(tool, "echo two").splitlines()
    assert told[:2] == ["[Since the last command the terminal showed:]", "ready"]
    assert told[-3:-1] == ["[This command:]", "two"]
    assert "ready" not in said(tool, "echo three").splitlines()
