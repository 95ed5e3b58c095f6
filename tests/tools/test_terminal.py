"""run_shell: what the model reads, what streams live, and one shell per thread."""

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, ToolException

from signoff import SetupError, build_graph
from signoff.models import ScriptedModel, call
from signoff.tools import ShellPool, terminal_tool
from tests.support.plays import FINISH, GO, THREAD, results, saved
from tests.support.terminals import until


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


RESULTS = {
    "an output": ("echo hi", "hi", ["exit code 0;"]),
    "no output": ("true", "(no output)", ["exit code 0;"]),
    "the end of the shell": ("echo a; exit 3", "a", ["exit code 3;", "shell ended"]),
    "a time-out": ("echo a; sleep 50", "a\n^C", ["exit code 130;", "0.2 s"]),
    "a question": ("read -p 'Go on? ' answer", "Go on? ^C", ["exit code 130;", "line of input", "pipe"]),
    "a password": ("echo a; read -s answer", "a\n^C", ["exit code 130;", "password"]),
}


@pytest.mark.parametrize("name", RESULTS)
def test_the_result_is_the_output_and_a_line_of_notes(name: str, tool: BaseTool) -> None:
    command, output, notes = RESULTS[name]
    text, _, last = said(tool, command, timeout=0.2 if "sleep" in command else 60).rpartition("\n")
    assert (text, last[0], last[-1]) == (output, "[", "]")
    for note in notes:
        assert note in last


def test_a_long_output_is_cut_and_kept_as_a_whole(tool: BaseTool, tmp_path: Path) -> None:
    text = said(tool, "seq 1000001 1200000")
    assert len(text) <= 20_000
    assert text.startswith("1000001\n1000002\n")
    assert "\n1200000\n[exit code 0; " in text
    (kept,) = (tmp_path / ".signoff" / "outputs").iterdir()
    assert f".signoff/outputs/{kept.name}" in text
    assert kept.read_text().split() == [str(number) for number in range(1_000_001, 1_200_001)]


def test_the_output_of_background_jobs_comes_with_the_next_result(tool: BaseTool, tmp_path: Path) -> None:
    said(tool, "(until [ -e go ]; do sleep .01; done; echo ready; touch went) &")
    (tmp_path / "go").touch()
    assert until((tmp_path / "went").exists)
    told = said(tool, "echo two").splitlines()
    assert (told[1], told[-2]) == ("ready", "two")
    assert told.index("two") > 2, "a line between says whose output follows"
    assert "ready" not in said(tool, "echo three").splitlines()


def test_a_bash_in_the_workspace_is_not_started(
    tmp_path: Path, pool: ShellPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [tmp_path / "work/bin", tmp_path / "link"]
    places[0].mkdir(parents=True)
    places[1].symlink_to(places[0])
    (places[0] / "bash").write_text("#!/bin/sh\ntouch started\n")
    (places[0] / "bash").chmod(0o755)
    for place in (*places, "bin", "", "."):
        monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path / "work")
    assert said(terminal_tool(tmp_path / "work", pool), "echo hi").startswith("hi\n")
    assert not (tmp_path / "work/started").exists()
    monkeypatch.setenv("PATH", f"{places[0]}:{places[1]}:bin")
    with pytest.raises(SetupError, match="bash"):
        terminal_tool(tmp_path / "work")


def test_each_thread_has_its_shell(tool: BaseTool, pool: ShellPool, tmp_path: Path) -> None:
    assert (tool.metadata or {})["kind"] == "terminal"
    said(tool, "cd /; X=1", "one")
    assert said(tool, "pwd; echo $X", "two").startswith(f"{tmp_path}\n[")
    assert said(tool, "pwd; echo $X", "one").startswith("/\n1\n[")
    # A call without a thread shares nothing.
    for _ in range(2):
        assert tool.invoke({"command": "pwd; echo $X.; cd /; X=1"}).startswith(f"{tmp_path}\n.\n[")
    assert len(pool) == 2


def test_the_shell_unused_for_longest_makes_room_but_none_that_runs(pool: ShellPool, tmp_path: Path) -> None:
    first, second, third = (pool.get(name, tmp_path) for name in "abc")
    assert pool.get("a", tmp_path) is first
    fourth = pool.get("d", tmp_path)
    assert [each.closed for each in (first, second, third)] == [False, True, False]
    pool.close("a")
    assert (first.closed, third.closed) == (True, False)
    busy = [third, fourth, pool.get("a", tmp_path)]
    with ThreadPoolExecutor() as threads:
        running = [threads.submit(shell.run, "until [ -e go ]; do sleep .01; done") for shell in busy]
        assert until(lambda: all(shell.busy for shell in busy))
        with pytest.raises(ToolException, match="3"):
            pool.get("e", tmp_path)
        (tmp_path / "go").touch()
        assert [each.result().exit_code for each in running] == [0, 0, 0]
    assert not any(shell.closed for shell in busy)


# What streams while a command runs, in a graph.


def chunks(tool: BaseTool, command: str) -> tuple[list[str], str]:
    """The pieces that streamed, and the result."""
    graph = build_graph(ScriptedModel([call("run_shell", command=command), FINISH]), [tool], **saved())
    events = list(graph.stream(GO, THREAD, stream_mode=["custom", "values"]))
    told = [event for mode, event in events if mode == "custom" and event["type"] == "terminal"]
    assert {chunk["call_id"] for chunk in told} == {"call_1"}
    return [chunk["data"] for chunk in told], results(events[-1][1], "run_shell")[0]


STREAMS = {
    "printf 'a\\033]52;c;aG'; sleep 0.4; printf 'k=\\007\\033[1'; echo mb": "ab\n",
    "printf '\\303'; sleep 0.4; printf '\\251\\n'": "\u00e9\n",
}


@pytest.mark.parametrize("command", STREAMS, ids=["a sequence in two pieces", "a character in two pieces"])
def test_output_streams_live_and_can_do_nothing_to_a_terminal(command: str, tool: BaseTool) -> None:
    pieces, result = chunks(tool, command)
    assert "".join(pieces) == STREAMS[command]
    assert re.search(r"\[exit code 0; [^\n]*\]$", result)


def test_a_flood_is_streamed_in_small_portions(tool: BaseTool) -> None:
    pieces, _ = chunks(tool, "echo now; sleep 0.4; head -c 1000000 /dev/zero | tr '\\0' x")
    assert pieces[0] == "now\n"
    assert 0 < sum(map(len, pieces)) < 8_000 * (len(pieces) + 1)
    assert max(map(len, pieces)) <= 8_000
