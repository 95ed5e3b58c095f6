"""A shell that persists: exact exit codes, outputs that do nothing to a terminal, and nothing left behind."""

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from langchain_core.tools import ToolException

from signoff import SetupError
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
    "a comment": ("# nothing", 0, ""),
    "a return": ("return 7", 7, ""),
    "an unknown one": ("nosuchcommand", 127, "bash: nosuchcommand: command not found\n"),
    "a variable that the shell splits by": ("IFS=1; (exit 212)", 212, ""),
    "one that bash abandons": (": ${x?gone}; echo not reached", 1, "bash: x: gone\n"),
    "one that bash abandons without a prompt": ("PS1=; : ${x?gone}", 1, "bash: x: gone\n"),
    "one that interrupts itself": ("kill -INT $$; echo not reached", 130, "\n"),
    "a here-document": ("cat <<END\n$((1 + 1)) 'x\nEND", 0, "2 'x\n"),
    "several lines": ("echo one\necho two\n(exit 3)", 3, "one\ntwo\n"),
    "no newline": ("printf 'no newline'", 0, "no newline"),
    "any character": ("printf 'h\u00e9 \u6f22 \U0001f600\\n'", 0, "h\u00e9 \u6f22 \U0001f600\n"),
    "the mark of an end": (f"printf '\\033]133;D;9;{'0' * 32}\\007ok\\n'; (exit 4)", 4, "ok\n"),
    "a mark by what is in the prompt": (
        "N=${PS1#*A;}; N=${N:0:32}; printf '\\033]133;D;0;%s\\a' $N >/dev/tty; echo ${#N}; (exit 5)",
        5,
        "32\n",
    ),
    "a mark by what is in the command": (
        "N=${_#*C;}; N=${N:0:32}; printf '\\033]133;D;0;%s\\a' $N >/dev/tty; echo ${#N}; (exit 5)",
        5,
        "32\n",
    ),
    "outputs that are redirected": ("exec 3>&1 >/dev/null 2>&1; echo hidden; exec >&3 2>&3", 0, ""),
    "a terminal without lines or echo": ("stty raw -echo; (exit 5)", 5, ""),
    "aliases of what the shell uses": ("alias .=false builtin=false printf=false declare=false", 0, ""),
    "a function that says more": ("builtin() { echo shadowed; }\n(exit 4) || true", 0, ""),
    "a function that fails": ("builtin() { return 3; }; printf() { false; }\n(exit 4) || true", 0, ""),
    "functions that do nothing": ("builtin() { :; }; unset() { :; }; printf() { :; }", 0, ""),
    "a function in POSIX mode": ("set -o posix; builtin() { :; }", 0, ""),
    "a trace": ("set -x; set +x", 0, "++ set +x\n"),
    "one that stops reading": ("yes | head -1", 0, "y\n"),
    "its own file removed": (f'rm -f "${{BASH_SOURCE[0]}}"; echo "{PYTHON}" >/dev/tty', 0, f"{PYTHON}\n"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_its_own_exit_code_and_output_and_leaves_the_shell_whole(
    name: str, shell: Shell
) -> None:
    command, code, output = COMMANDS[name]
    shell.run("A=1; cd /")
    assert ended(shell.run(command)) == (code, output)
    assert ended(shell.run('echo "$A $PWD"; (exit 6)')) == (6, "1 /\n")


def test_every_kind_of_exit_code_is_exact(shell: Shell) -> None:
    codes = [*range(0, 256, 5), 1, 2, 126, 127, 128]
    signals = [1, 2, 3, 6, 9, 11, 13, 15]
    ends = {f"(exit {code})": code for code in codes}
    ends |= {f"sh -c 'kill -{number} $$'": 128 + number for number in signals}
    assert {command: shell.run(command).exit_code for command in ends} == ends


def test_unbalanced_quotes_are_an_error_of_the_command(shell: Shell) -> None:
    assert ended(shell.run('echo "never closed'))[0] == 2
    assert ended(shell.run("echo next")) == (0, "next\n")


RENDERED = {
    "line ends": (b"a\r\nb\r\r\n", "a\nb\n"),
    "a line that is written again": (b"10%\r50%\r100%\n", "100%\n"),
    "and is shorter then": (b"aaaa\rbb\n", "bbaa\n"),
    "and is erased before": (b"aaaa\r\x1b[Kbb\n", "bb\n"),
    "and is erased as a whole": (b"aaaa\x1b[2Kbb\n", "bb\n"),
    "backspaces": (b"h\bhe\bel\bl", "hel"),
    "backspaces at the beginning": (b"\b\b\bx", "x"),
    "colours": (b"\x1b[1;31mred\x1b[0m", "red"),
    "the clipboard": (b"\x1b]52;c;aGVsbG8=\x07paste", "paste"),
    "a title": (b"\x1b]0;title\x1b\\text", "text"),
    "a picture": (b"\x1bP1;2q#0\x1b\\sixel", "sixel"),
    "a sequence without an end": (b"\x1b]52;c;never ended\nnext", "]52;c;never ended\nnext"),
    "a sequence in a sequence": (b"\x1b\x1b[31m[31m\x1b", "[31m"),
    "other sequences": (b"\x1b(B\x1b=\x1b7\x1b[?1049hx", "x"),
    "control characters and no text": (b"a\x07\x00\x7f\xff\x1a", "a\ufffd\ufffd\ufffd\ufffd"),
    "the control characters beyond ASCII": ("\x9b31mC1 \u2028 \u00e9".encode(), "\ufffd31mC1 \ufffd \u00e9"),
    "a page feed": (b"page\x0cfeed", "page\nfeed"),
    "a megabyte of beginnings": (b"\x1b]" * 100_000 + b"\x1b[" * 100_000 + b"\nx", None),
    "a megabyte of moves": (b"a\r" * 100_000 + b"\b" * 100_000 + b"\x1b[K" * 100_000 + b"x", "x"),
}


@pytest.mark.parametrize("name", RENDERED)
def test_an_output_can_do_nothing_to_a_terminal(name: str, shell: Shell, tmp_path: Path) -> None:
    written, shown = RENDERED[name]
    (tmp_path / "written").write_bytes(written)
    code, output = ended(shell.run("stty -opost; cat written"))
    assert code == 0
    if shown is not None:
        assert output == shown
    assert all(character in "\t\n" or character >= " " for character in output)


def test_of_a_long_output_the_beginning_and_the_end_are_shown_and_all_of_it_is_kept(shell: Shell) -> None:
    result = shell.run("seq 1000000 1300000")
    assert (result.output[:8], result.output[-8:]) == ("1000000\n", "1300000\n")
    # The terminal makes two characters of each line end.
    assert result.truncated == 300_001 * 9 - 1_000_000
    assert f"{result.truncated:,}" in result.output
    assert len(result.output) < 1_001_000
    assert result.whole_output.split() == [str(number) for number in range(1_000_000, 1_300_001)]
    short = shell.run("seq 1000000 1111110")
    assert (short.truncated, len(short.output)) == (0, 111_111 * 8)


def test_a_flood_is_not_kept_and_not_called_whole(shell: Shell) -> None:
    result = shell.run("head -c 60000000 /dev/zero | tr '\\0' x; echo; echo last", timeout=120)
    assert (result.exit_code, result.truncated > 58_000_000) == (0, True)
    assert result.whole_output == result.output
    assert result.output.endswith("x\nlast\n")
    assert len(result.output) < 1_100_000


def test_a_very_long_command(shell: Shell) -> None:
    assert ended(shell.run(f"x={'y' * 5_000_000}; echo ${{#x}}", timeout=60)) == (0, "5000000\n")


@pytest.mark.parametrize("option", ["", "set -x"])
def test_nothing_is_lost_while_commands_follow_each_other(shell: Shell, option: str) -> None:
    # Numbers, each once and in order, wherever they came: between commands, in an echo, in an output.
    seen = shell.run(
        f"{option}\nfor i in {{1000..1200}}; do printf '%d\\n' $i; sleep .001; done 2>/dev/null & true"
    ).output
    end = time.monotonic() + 60
    while "1200" not in seen and time.monotonic() < end:
        result = shell.run("true")
        seen += result.before + result.output
    assert [int(line) for line in seen.split("\n") if line.isdecimal()] == list(range(1000, 1201))
    assert "133;" not in seen
    assert "__signoff" not in seen


@pytest.mark.parametrize("option", ["set -v", "set -vx", "set -eu", "set -C", "PS4='$(date)'"])
def test_what_the_shell_types_is_no_output_of_a_background_job(shell: Shell, option: str) -> None:
    shell.run(option)
    assert [shell.run("true").before for _ in range(3)] == ["", "", ""]


# A person who types.


def test_a_person_types_into_an_interactive_shell(tmp_path: Path) -> None:
    with Shell(tmp_path, interactive=True) as shell, ThreadPoolExecutor() as threads:
        shown: list[bytes] = []
        running = threads.submit(shell.run, GETPASS, 60, shown.append)
        assert until(lambda: b"Password: " in b"".join(shown))
        shell.write(b"secret\n")
        code, output = ended(running.result())
        assert (code, "6\n" in output, "secret" in output) == (0, True, False)
        running = threads.submit(shell.run, long_sleep(), 60)
        assert until(lambda: bool(found()))
        shell.interrupt()
        assert ended(running.result())[0] == 130
        shell.write(b"half a line")
        assert ended(shell.run("echo next"))[1] == "next\n"


def test_what_a_person_started_is_not_typed_into(tmp_path: Path) -> None:
    with Shell(tmp_path, interactive=True) as shell:
        shell.write(f"{long_sleep()}\n".encode())
        assert until(lambda: bool(found()))
        assert not shell.unused()
        with pytest.raises(ToolException):
            shell.run("echo x")
        shell.interrupt()
        assert until(shell.unused)
        assert shell.run("echo next").output == "next\n"


def test_what_a_person_typed_between_two_commands_is_not_told(tmp_path: Path) -> None:
    with Shell(tmp_path, interactive=True, prompt="here> ") as shell:
        # Bash may show the prompt after a command before the next line is typed or after that.
        for pause in (0, 0.2):
            shell.run("true")
            time.sleep(pause)
            shell.write(b"echo se''cret; touch typed\n")
            assert until((tmp_path / "typed").exists)
            assert until(shell.unused)
            result = shell.run("echo mine; rm typed")
            assert (result.before, result.output) == ("", "mine\n")


def test_typing_more_than_a_program_takes_does_not_keep_it_from_being_stopped(tmp_path: Path) -> None:
    with Shell(tmp_path, interactive=True) as shell, ThreadPoolExecutor() as threads:
        running = threads.submit(shell.run, f"trap '' INT QUIT; {long_sleep()}", 2)
        assert until(lambda: bool(found()))
        with pytest.raises(ToolException):
            shell.write(b"x\n" * 100_000)
        assert running.result().timed_out
        assert not found()


def test_what_the_terminal_shows_is_heard_also_between_commands(tmp_path: Path) -> None:
    heard, during = bytearray(), bytearray()
    with Shell(tmp_path, on_output=heard.extend) as shell:
        shell.run("(sleep 0.3; echo background) & printf '\\033[1mnow\\n'", on_output=during.extend)
        assert b"\x1b[1mnow\r\n" in during
        assert until(lambda: b"background\r\n" in heard)
        assert b"\x1b[1mnow\r\n" in heard
        for own in (b"133;", b"builtin"):
            assert own not in heard + during


def test_a_listener_that_raises_stops_the_command(shell: Shell) -> None:
    def broken(_: bytes) -> None:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011  it is its own
        shell.run(f"echo x; {long_sleep()}", on_output=broken)
    assert not found()
    assert shell.run("echo next").output == "next\n"


def test_the_terminal_has_the_size_it_was_given(tmp_path: Path) -> None:
    with Shell(tmp_path, rows=30, cols=90) as shell:
        assert shell.run("stty size").output == "30 90\n"
        shell.resize(40, 100)
        shell.run("exit")
        assert shell.run("stty size").output == "40 100\n"


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


REFUSED = {
    "nothing": ("", 1),
    "blanks": (" \n", 1),
    "a NUL": ("echo \0", 1),
    "half a character": ("echo \ud800", 1),
    "no time": ("true", 0),
    "less than none": ("true", -1),
    "no number": ("true", float("nan")),
    "for ever": ("true", float("inf")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_run_is_refused(name: str, shell: Shell) -> None:
    with pytest.raises(ToolException):
        shell.run(*REFUSED[name])
    assert shell.run("echo next").output == "next\n"


def test_a_shell_needs_a_folder_and_bash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SetupError, match="nowhere"):
        Shell(tmp_path / "nowhere")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="bash"):
        Shell(tmp_path)


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
    "exit": 0,
    "exit 3": 3,
    "exec true": 0,
    "set -e; false": 1,
    "kill -9 $$": 137,
    f"setsid -f {long_sleep()}; {long_sleep()} & exit 4": 4,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", ENDS, ids=["exit", "a code", "exec", "an option", "a kill", "what it left"]
)
def test_a_shell_that_ends_is_said_once_and_replaced(command: str, shell: Shell, tmp_path: Path) -> None:
    shell.run("cd /")
    result = shell.run(f"echo last; {command}")
    assert (result.exit_code, result.output.startswith("last\n"), result.restarted) == (
        ENDS[command],
        True,
        True,
    )
    assert not found()
    assert ended(shell.run("pwd")) == (0, f"{tmp_path}\n")


@pytest.mark.slow
def test_a_shell_that_ended_between_commands_is_said(shell: Shell, tmp_path: Path) -> None:
    shell.run("(until [ -e go ]; do sleep .01; done; kill -9 $$; touch went) &")
    (tmp_path / "go").touch()
    assert until((tmp_path / "went").exists)
    assert until(shell.unused)
    assert shell.run("echo again").restarted
    assert ended(shell.run("echo again")) == (0, "again\n")


@pytest.mark.slow
def test_a_command_that_bash_did_not_begin_runs_once_in_a_new_shell(shell: Shell) -> None:
    first = shell.run("readonly PS1", 2)
    result = shell.run("echo ran >>file; cat file; (exit 4)")
    assert (result.exit_code, result.output) == (4, "ran\n")
    assert first.restarted or result.restarted
    assert (result.timed_out, result.waiting_for) == (False, None)


def each(commands: list[str], folder: Path, timeout: float = 60) -> dict[str, ShellResult]:
    """The results of the commands, each in a shell of its own, all at once."""

    def run(command: str) -> ShellResult:
        with Shell(folder) as shell:
            result = shell.run(command, timeout)
            assert ended(shell.run("echo next")) == (0, "next\n")
            return result

    with ThreadPoolExecutor(len(commands)) as threads:
        return dict(zip(commands, threads.map(run, commands), strict=True))


@pytest.mark.slow
def test_the_time_out_stops_everything(tmp_path: Path) -> None:
    ends: dict[str, tuple[int | None, bool]] = {
        "sleep 100; echo not reached": (130, False),
        "stty raw -echo -isig; sleep 100": (130, False),
        "exec sleep 100": (130, True),
        "while :; do :; done": (130, False),
        "trap '' INT; sleep 100": (131, False),
        "trap '' INT QUIT; sleep 100": (137, False),
        "trap '' INT; while :; do :; done": (None, True),
        "kill -STOP $$": (None, True),
    }
    results = each([*ends], tmp_path, timeout=0.3)
    assert {command: (result.exit_code, result.restarted) for command, result in results.items()} == ends
    for result in results.values():
        assert (result.timed_out, result.waiting_for) == (True, None)
        assert "not reached" not in result.output
        assert "builtin" not in result.output


@pytest.mark.slow
def test_a_command_that_waits_for_input_is_stopped_early(tmp_path: Path) -> None:
    raw = "import select, sys, tty; tty.setraw(0); select.select([0], [], [])"
    kinds = {
        "read line": "line",
        "echo question; cat | cat": "line",
        f"{PYTHON} -c 'input()'": "line",
        GETPASS: "password",
        "read -s secret": "password",
        "stty raw; head -c 1": "screen",
        f"{PYTHON} -c '{raw}'": "screen",
    }
    results = each([*kinds], tmp_path, timeout=120)
    assert {command: result.waiting_for for command, result in results.items()} == kinds
    assert not any(result.timed_out or result.restarted for result in results.values())


@pytest.mark.slow
def test_a_command_that_works_in_silence_is_left_alone(tmp_path: Path) -> None:
    reads_and_works = (
        "import os, sys, threading, time\n"
        "threading.Thread(target=sys.stdin.read, daemon=True).start()\n"
        "for _ in range(20):\n"
        "    time.sleep(0.09)\n"
        "    end = time.process_time() + 0.02\n"
        "    while time.process_time() < end: pass\n"
        "os._exit(0)"
    )
    commands = [
        "sleep 2.2",
        "stty -echo; sleep 2.2",
        "stty raw; sleep 2.2",
        "read line < <(sleep 2.2; echo)",
        f"{PYTHON} -c 'import select; select.select([], [], [], 2.2)'",
        f"{PYTHON} -c '{reads_and_works}'",
    ]
    assert {ended(result)[0] for result in each(commands, tmp_path).values()} == {0}


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
def test_close_ends_what_forks_without_end(tmp_path: Path) -> None:
    # It ends by itself, too: killed itself, the test would leave it behind for as long as the machine runs.
    last = time.time() + 30
    (tmp_path / "runner.py").write_text(
        f"import os, time\nwhile time.time() < {last}:\n"
        "    if os.fork(): time.sleep(0.01); os._exit(0)\n    os.setsid()"
    )
    runner = f"{PYTHON} runner.py {os.getpid()}"
    shell = Shell(tmp_path)
    shell.run(f"{runner} & sleep 0.5")
    shell.close()
    # While it forks, one look may miss it.
    assert until(lambda: not any(found(runner) for _ in range(5)), 10)


@pytest.mark.slow
@pytest.mark.thorough
def test_what_keeps_becoming_another_program_ends_with_its_shell(shell: Shell, tmp_path: Path) -> None:
    """While a process becomes another program, nothing tells whose it is."""
    again = tmp_path / "again.sh"
    again.write_text('#!/bin/sh\nexec "$0"\n', encoding="utf-8")
    again.chmod(0o700)
    for _ in range(20):
        assert shell.run(f"setsid -f {again}; exit 2").exit_code == 2
        assert not found(f"/bin/sh {again}")


def terminals() -> int:
    """How many terminals this process holds open."""
    links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    return sum(os.path.exists(link) and "ptmx" in os.readlink(link) for link in links)


@pytest.mark.slow
def test_nothing_is_left_open(tmp_path: Path) -> None:
    before = terminals(), threading.active_count()
    for _ in range(3):
        with Shell(tmp_path) as shell:
            shell.run("exit 1")
            shell.run("sleep 60 &")
    assert (terminals(), threading.active_count()) == before
