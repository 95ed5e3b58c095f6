"""A shell that persists: exact exit codes, outputs that do nothing to a terminal, and nothing left behind."""

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from langchain_core.tools import ToolException

from signoff.tools import Shell, ShellResult
from tests.support.terminals import PYTHON, found, long_sleep, until

GETPASS = f"{PYTHON} -c 'import getpass; print(len(getpass.getpass()))'"


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
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with Shell(tmp_path, env={"GIVEN": "1"}) as shell:
        names = {line.partition("=")[0] for line in shell.run("env").output.splitlines()}
        assert "sk-secret" not in shell.run("env; set; cat /proc/$$/environ").output
    assert {"PATH", "TERM", "GIVEN"} <= names
    assert names <= {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE", "TERM"),
        *("PAGER", "GIT_PAGER", "HISTFILE", "SIGNOFF_SHELL", "GIVEN", "PWD", "OLDPWD", "SHLVL", "_"),
    }


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
    f"{PYTHON} -c '{RAW}'": (LATE, "screen"),
    # It works in silence, and is left alone.
    "read line < <(sleep 2.2; echo)": (LATE, (0, False)),
    f"{PYTHON} -c 'import select; select.select([], [], [], 2.2)'": (LATE, (0, False)),
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
        results = dict(zip(ENDINGS, threads.map(run, ENDINGS), strict=True))
    for command, (seconds, ending) in ENDINGS.items():
        result = results[command]
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
