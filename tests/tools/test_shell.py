"""A shell that persists, and its tool `run_shell`: exact exit codes, outputs that do nothing to a terminal,
what the model reads, what streams live, one shell per thread, and nothing left behind."""

import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, ToolException

from signoff import SetupError, build_graph
from signoff.models import ScriptedModel, call
from signoff.tools import Shell, ShellPool, ShellResult, terminal_tool
from tests.support.plays import FINISH, GO, THREAD, results, saved
from tests.support.process_table import found, long_sleep
from tests.support.waiting import until

GETPASS = f"{sys.executable} -c 'import getpass; print(len(getpass.getpass()))'"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with Shell(tmp_path) as opened:
        yield opened


def ended(result: ShellResult) -> tuple[int | None, str]:
    """Exit code and output of a command that ended by itself, in the shell it was given to."""
    assert (result.timed_out, result.waiting_for, result.restarted) == (False, None, False)
    return result.exit_code, result.output


COMMANDS = {
    "nothing": ("true", 0, ""),
    "an unknown one": ("nosuchcommand", 127, "bash: nosuchcommand: command not found\n"),
    "one that bash abandons": (": ${x?gone}; echo not reached", 1, "bash: x: gone\n"),
    "one that interrupts itself": ("kill -INT $$; echo not reached", 130, "\n"),
    "a here-document": ("cat <<END\n$((1 + 1)) 'x\nEND", 0, "2 'x\n"),
    "no newline": ("printf 'no newline'", 0, "no newline"),
    "any character": ("printf 'h\u00e9 \u6f22 \U0001f600\\n'", 0, "h\u00e9 \u6f22 \U0001f600\n"),
    "the mark of an end": (f"printf '\\033]133;D;9;{'0' * 32}\\007ok\\n'; (exit 4)", 4, "ok\n"),
    "outputs that are redirected": ("exec 3>&1 >/dev/null 2>&1; echo hidden; exec >&3 2>&3", 0, ""),
    "a terminal without lines or echo": ("stty raw -echo; (exit 5)", 5, ""),
    "aliases of what the shell uses": ("alias .=false builtin=false printf=false declare=false", 0, ""),
}


def test_a_command_has_its_own_exit_code_and_output_and_leaves_the_shell_whole(shell: Shell) -> None:
    shell.run("A=1; cd /")
    for name, (command, code, output) in COMMANDS.items():
        assert ended(shell.run(command)) == (code, output), name
        assert ended(shell.run('echo "$A $PWD"; (exit 6)')) == (6, "1 /\n"), name


def test_exit_codes_are_exact(shell: Shell) -> None:
    ends = {"(exit 255)": 255, "sh -c 'kill -2 $$'": 130, "sh -c 'kill -9 $$'": 137, 'echo "never closed': 2}
    assert {command: shell.run(command).exit_code for command in ends} == ends


RENDERED = {
    "line ends": (b"a\r\nb\r\r\n", "a\nb\n"),
    "a line that is written again": (b"10%\r50%\r100%\n", "100%\n"),
    "the clipboard": (b"\x1b]52;c;aGVsbG8=\x07paste", "paste"),
    "a sequence without an end": (b"\x1b]52;c;never ended\nnext", "]52;c;never ended\nnext"),
    "control characters and no text": (b"a\x07\x00\x7f\xff\x1a", "a\ufffd\ufffd\ufffd\ufffd"),
    "the control characters beyond ASCII": ("\x9b31mC1 \u2028 \u00e9".encode(), "\ufffd31mC1 \ufffd \u00e9"),
    "a megabyte of beginnings": (b"\x1b]" * 100_000 + b"\x1b[" * 100_000 + b"\nx", None),
    "a megabyte of moves": (b"a\r" * 100_000 + b"\b" * 100_000 + b"\x1b[K" * 100_000 + b"x", "x"),
}


def test_an_output_can_do_nothing_to_a_terminal(shell: Shell, tmp_path: Path) -> None:
    for name, (written, shown) in RENDERED.items():
        (tmp_path / "written").write_bytes(written)
        code, output = ended(shell.run("stty -opost; cat written"))
        assert (code, shown in (None, output)) == (0, True), name
        assert all(character in "\t\n" or character >= " " for character in output), name


def test_a_very_long_command(shell: Shell) -> None:
    assert ended(shell.run(f"x={'y' * 1_000_000}; echo ${{#x}}")) == (0, "1000000\n")


def test_nothing_is_lost_while_commands_follow_each_other(shell: Shell) -> None:
    # Numbers, each once and in order, wherever they came: between commands, in an echo, in an output.
    seen = shell.run(
        "set -x\nfor i in {1000..1100}; do printf '%d\\n' $i; sleep .001; done 2>/dev/null & true"
    ).output
    end = time.monotonic() + 60
    while "1100" not in seen and time.monotonic() < end:
        result = shell.run("true")
        seen += result.before + result.output
    assert [int(line) for line in seen.split("\n") if line.isdecimal()] == list(range(1000, 1101))
    assert "133;" not in seen
    assert "__signoff" not in seen


def test_the_environment_is_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANY_NAME", "a secret")
    with Shell(tmp_path, env={"GIVEN": "1"}) as shell:
        assert "a secret" not in shell.run("env; set; cat /proc/$$/environ").output
        assert shell.run("echo $GIVEN ${PATH:+path}").output == "1 path\n"


def test_what_a_person_types_is_no_output_of_a_command(tmp_path: Path) -> None:
    shown = bytearray()
    with Shell(tmp_path, interactive=True, on_output=shown.extend) as shell:
        shell.run("true")
        shell.write(b"echo by$((1+1))\n")
        assert until(lambda: b"by2" in shown)
        result = shell.run("echo next")
    assert (result.before, result.output) == ("", "next\n")


def test_what_cannot_run_is_refused(shell: Shell) -> None:
    for command, seconds in (("echo \0", 1), ("echo \ud800", 1), ("true", 0), ("true", float("nan"))):
        with pytest.raises(ToolException):
            shell.run(command, seconds)
    assert shell.run("echo next").output == "next\n"


def test_one_command_at_a_time(shell: Shell, tmp_path: Path) -> None:
    with ThreadPoolExecutor() as threads:
        first = threads.submit(shell.run, "until [ -e go ]; do sleep .01; done; echo first")
        assert until(lambda: shell.busy)
        with pytest.raises(ToolException):
            shell.run("echo second", timeout=0.1)
        third = threads.submit(shell.run, "echo third")
        (tmp_path / "go").touch()
        assert (first.result().output, third.result().output) == ("first\n", "third\n")


# A command or a shell that does not end by itself, or ends in another way.

ENDS = {
    "exit 3": 3,
    "set -e; false": 1,
    "kill -9 $$": 137,
    f"setsid -f {long_sleep()}; {long_sleep()} & exit 4": 4,
}


@pytest.mark.slow
@pytest.mark.parametrize("command", ENDS, ids=["a code", "an option", "a kill", "what it left"])
def test_a_shell_that_ends_is_said_once_and_replaced(command: str, shell: Shell, tmp_path: Path) -> None:
    shell.run("cd /")
    result = shell.run(f"echo last; {command}")
    assert (result.exit_code, result.output[:5], result.restarted) == (ENDS[command], "last\n", True)
    assert not found()
    assert ended(shell.run("pwd")) == (0, f"{tmp_path}\n")


RAW = "import select, sys, tty; tty.setraw(0); select.select([0], [], [])"
SOON, LATE = 0.3, 120.0
# The time that it has, and what it waits for, or its exit code and whether it took the shell with it.
ENDINGS: dict[str, tuple[float, object]] = {
    # When its time is up, everything is stopped.
    "sleep 100; echo not reached": (SOON, (130, False)),
    "trap '' INT QUIT; sleep 100": (SOON, (137, False)),
    "trap '' INT; while :; do :; done": (SOON, (None, True)),
    "kill -STOP $$": (SOON, (None, True)),
    # It waits for input, and is stopped early.
    "read line": (LATE, "line"),
    "echo question; cat | cat": (LATE, "line"),
    GETPASS: (LATE, "password"),
    f"{sys.executable} -c '{RAW}'": (LATE, "screen"),
    # It works in silence, and is left alone.
    "read line < <(sleep 2.2; echo)": (LATE, (0, False)),
    f"{sys.executable} -c 'import select; select.select([], [], [], 2.2)'": (LATE, (0, False)),
}


@pytest.mark.slow
def test_when_a_command_is_stopped(tmp_path: Path) -> None:
    """Each in a shell of its own, all at once."""

    def run(command: str) -> ShellResult:
        with Shell(tmp_path) as shell:
            result = shell.run(command, ENDINGS[command][0])
            assert ended(shell.run("echo next")) == (0, "next\n")
            return result

    with ThreadPoolExecutor(len(ENDINGS)) as threads:
        ends = dict(zip(ENDINGS, threads.map(run, ENDINGS), strict=True))
    for command, (seconds, ending) in ENDINGS.items():
        result = ends[command]
        assert result.timed_out == (seconds == SOON), command
        assert (result.waiting_for or (result.exit_code, result.restarted)) == ending, command
        assert [word for word in ("not reached", "builtin") if word in result.output] == []


@pytest.mark.slow
def test_close_ends_a_running_command_and_everything_else(tmp_path: Path) -> None:
    shell, sleep = Shell(tmp_path), long_sleep()
    shell.run(f"{sleep} & nohup {sleep} & setsid {sleep} & trap '' HUP; (trap '' HUP; {sleep}) &")
    shell.run(f"setsid -f env -i {sleep}; (env -i setsid {sleep} &)")
    assert until(lambda: len(found()) == 6)
    with ThreadPoolExecutor() as threads:
        running = threads.submit(shell.run, sleep)
        assert until(lambda: len(found()) == 7)
        shell.close()
        with pytest.raises(ToolException):
            running.result()
    assert not found()
    with pytest.raises(ToolException):
        shell.run("true")
    shell.close()
    assert shell.closed


@pytest.mark.slow
def test_nothing_is_left_open(tmp_path: Path) -> None:
    def held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    before = held()
    for _ in range(3):
        with Shell(tmp_path) as shell:
            shell.run("exit 1")
            shell.run("sleep 60 &")
    assert held() == before


# The tool.


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
