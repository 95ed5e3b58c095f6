"""A persistent shell: exact exit codes and outputs, whatever a command does to its terminal."""

import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from langchain_core.tools import ToolException

from signoff.graph.errors import SetupError
from signoff.tools import Shell
from signoff.tools.pty.job import without_echo
from tests.support.terminals import GETPASS, PYTHON, found, long_sleep, plain, until


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with Shell(tmp_path) as opened:
        yield opened


def test_folder_variables_functions_and_options_persist(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "a folder").mkdir()
    shell.run("cd 'a folder'; export A=1; B=2; f() { echo \"f $1\"; }; set -u")
    assert plain(shell.run('pwd; f "$A$B"; (: $nothing)')) == (
        1,
        f"{tmp_path}/a folder\nf 12\nbash: nothing: unbound variable\n",
    )


@pytest.mark.parametrize(
    ("command", "code", "output"),
    [
        ("true", 0, ""),
        ("# nothing", 0, ""),
        ("return 7", 7, ""),
        ("nosuchcommand", 127, "bash: nosuchcommand: command not found\n"),
        ("false | true", 0, ""),
        ("IFS=1; (exit 212)", 212, ""),
        (": ${x?gone}; echo not reached", 1, "bash: x: gone\n"),
        ("PS1=; : ${x?gone}", 1, "bash: x: gone\n"),
        ("kill -INT $$; echo not reached", 130, "\n"),
        ("cat <<END\n$((1 + 1)) 'x\nEND", 0, "2 'x\n"),
        ("echo one\necho two\n(exit 3)", 3, "one\ntwo\n"),
        ("printf 'no newline'", 0, "no newline"),
        ("printf 'h\u00e9 \u6f22 \U0001f600\\n'", 0, "h\u00e9 \u6f22 \U0001f600\n"),
        ("printf '\\033]52;c;aGk=\\007\\033]0;t\\007\\033]133;D;9\\007ok\\n'", 0, "ok\n"),
        (f"printf '\\033]133;D;9;{'0' * 32}\\007ok\\n'; (exit 4)", 4, "ok\n"),
        ("exec 3>&1 >/dev/null 2>&1; echo hidden; exec >&3 2>&3", 0, ""),
        ("stty raw -echo; (exit 5)", 5, ""),
        ("alias .=false builtin=false printf=false; printf() { false; }", 0, ""),
        ("set -x; set +x", 0, "++ set +x\n"),
        ("yes | head -1", 0, "y\n"),
        ("head -c 300000 /dev/zero | tr '\\0' x | wc -c", 0, "300000\n"),
        (f'rm -f "${{BASH_SOURCE[0]}}"; echo "{PYTHON}" >/dev/tty', 0, f"{PYTHON}\n"),
    ],
)
def test_a_command_has_its_own_exit_code_and_output(
    shell: Shell, command: str, code: int, output: str
) -> None:
    assert plain(shell.run(command)) == (code, output)
    assert plain(shell.run("echo next; (exit 6)")) == (6, "next\n")


@pytest.mark.parametrize("seen", ["${PS1#*A;}", "${_#*C;}"], ids=["prompt", "beginning"])
def test_what_a_command_can_read_does_not_end_it(shell: Shell, seen: str) -> None:
    command = f"N={seen}; N=${{N:0:32}}; printf '\\033]133;D;0;%s\\a' $N >/dev/tty; echo ${{#N}}; (exit 5)"
    assert plain(shell.run(command)) == (5, "32\n")


@pytest.mark.parametrize(
    "function",
    [
        "builtin() { echo shadowed; }",
        "builtin() { return 3; }",
        'builtin() { if [ "$1" = . ]; then . "$2"; fi; }',
        'function builtin { command builtin "$@"; }',
        "builtin() { :; }; printf() { :; }; unset() { :; }",
        "set -o posix; builtin() { :; }",
        "alias declare=false; builtin() { :; }",
    ],
)
def test_a_function_named_like_what_the_shell_uses_does_not_cost_it(shell: Shell, function: str) -> None:
    shell.run("A=1; cd /")
    assert plain(shell.run(f"{function}\n(exit 4) || true")) == (0, "")
    assert plain(shell.run('echo "$A $PWD"; type -t builtin; (exit 5) || return 7')) == (7, "1 /\nfunction\n")
    assert plain(shell.run("(exit 6)")) == (6, "")


def test_what_background_jobs_write_comes_with_the_next_result(shell: Shell, tmp_path: Path) -> None:
    assert shell.run("(until [ -e go ]; do sleep .01; done; echo one; touch went) &").before == ""
    (tmp_path / "go").touch()
    assert until((tmp_path / "went").exists)
    second = shell.run("echo two")
    assert second.output.startswith("two\n")
    assert second.before.startswith("one\n")
    assert "one" not in shell.run("true").before.splitlines()


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


@pytest.mark.parametrize(
    "option", ["set -v", "set -x", "set -vx", "set -e", "set -u", "set -C", "PS4='$(date)'"]
)
def test_what_the_shell_types_is_no_output_of_a_background_job(shell: Shell, option: str) -> None:
    shell.run(option)
    assert [shell.run("true").before for _ in range(3)] == ["", "", ""]


LINE = b"PS1='' ab=$?; run /tmp/x\n"
ECHO = LINE.replace(b"\n", b"\r\n")


@pytest.mark.parametrize(
    ("data", "left"),
    [
        (ECHO, b""),
        (b"one\r\n" + ECHO + b"two\r\n", b"one\r\ntwo\r\n"),
        (ECHO + ECHO, b""),
        *((ECHO[:at] + b"1068\r\n" + ECHO[at:], b"1068\r\n") for at in range(len(ECHO))),
        *((b"=\r\n" + ECHO[:at] + b"ab=$\r\n" + ECHO[at:], b"=\r\nab=$\r\n") for at in range(len(ECHO))),
        (b"nothing of it", b""),
        (b"", b""),
    ],
)
def test_an_echo_is_taken_out_wherever_something_came_between(data: bytes, left: bytes) -> None:
    assert without_echo(data, b"\x15" + LINE) == left


def test_what_a_person_typed_between_two_commands_is_not_told(tmp_path: Path) -> None:
    with Shell(tmp_path, interactive=True, prompt="here> ") as shell:
        # Bash may show the prompt after a command before the next line is typed or after that.
        for pause in (0, 0.2):
            shell.run("true")
            time.sleep(pause)
            shell.write(b"echo se''cret; touch typed\n")
            assert until((tmp_path / "typed").exists)
            assert until(lambda: shell._bash.at_prompt(0))
            result = shell.run("echo mine; rm typed")
            assert (result.before, result.output) == ("", "mine\n")


@pytest.mark.slow
@pytest.mark.parametrize("interactive", [False, True], ids=["alone", "interactive"])
@pytest.mark.parametrize(
    "spoils",
    [
        *("readonly PS1", "readonly PS2", "declare -gr PS1=x"),
    ],
)
@pytest.mark.sample(2)
def test_a_command_that_bash_did_not_begin_runs_once_in_a_new_shell(
    tmp_path: Path, spoils: str, interactive: bool
) -> None:
    with Shell(tmp_path, interactive=interactive) as shell:
        first = shell.run(spoils, 2)
        result = shell.run("echo ran >>file; cat file; (exit 4)", 10)
        assert (result.exit_code, result.output) == (4, "ran\n")
        assert first.restarted or result.restarted
        assert (result.timed_out, result.waiting_for) == (False, None)
        assert plain(shell.run("cat file")) == (0, "ran\n")


def test_unbalanced_quotes_are_an_error_of_the_command(shell: Shell) -> None:
    code, output = plain(shell.run('echo "never closed'))
    assert code == 2
    assert "unexpected EOF while looking for matching" in output
    assert plain(shell.run("echo next")) == (0, "next\n")


def test_a_person_types_into_an_interactive_shell(tmp_path: Path) -> None:
    with Shell(tmp_path, interactive=True) as shell, ThreadPoolExecutor() as threads:
        shown: list[bytes] = []
        running = threads.submit(shell.run, GETPASS, 30, shown.append)
        assert until(lambda: b"Password: " in b"".join(shown))
        shell.write(b"secret\n")
        code, output = plain(running.result())
        assert (code, "6\n" in output, "secret" in output) == (0, True, False)
        running = threads.submit(shell.run, long_sleep(), 30)
        assert until(lambda: bool(found()))
        shell.interrupt()
        assert plain(running.result())[0] == 130
        shell.write(b"half a line")
        assert plain(shell.run("echo next"))[1] == "next\n"


def test_a_program_that_a_person_started_is_not_typed_into(tmp_path: Path) -> None:
    with Shell(tmp_path, interactive=True) as shell:
        shell.write(f"{long_sleep()}\n".encode())
        assert until(lambda: bool(found()))
        with pytest.raises(ToolException, match="still running"):
            shell.run("echo x")
        shell.interrupt()
        assert until(lambda: not found())
        assert shell.run("echo next").output == "next\n"


def test_what_the_terminal_shows_is_heard_also_between_commands(tmp_path: Path) -> None:
    heard = bytearray()
    with Shell(tmp_path, on_output=heard.extend) as shell:
        before = bytearray()
        shell.run("(sleep 0.3; echo background) & printf '\\033[1mnow\\n'", on_output=before.extend)
        assert b"\x1b[1mnow\r\n" in before
        assert until(lambda: b"background\r\n" in heard)
        assert b"\x1b[1mnow\r\n" in heard
        assert b"133" not in heard + before
        assert b"builtin" not in heard + before


def test_output_is_heard_while_the_command_runs(shell: Shell) -> None:
    times: list[float] = []
    shell.run("echo one; sleep 0.5; echo two", on_output=lambda _: times.append(time.monotonic()))
    assert times[-1] - times[0] > 0.3


def test_the_terminal_has_the_size_it_was_given(tmp_path: Path) -> None:
    with Shell(tmp_path, rows=30, cols=90) as shell:
        assert shell.run("stty size").output == "30 90\n"
        shell.resize(40, 100)
        assert shell.run("stty size").output == "40 100\n"
        shell.run("exit")
        assert shell.run("stty size").output == "40 100\n"


def test_the_environment_is_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("ANYTHING", "sk-secret")
    with Shell(tmp_path, env={"GIVEN": "1"}) as shell:
        names = {line.partition("=")[0] for line in shell.run("env").output.splitlines()}
        assert "sk-secret" not in shell.run("env; set; cat /proc/$$/environ").output
    assert {"PATH", "TERM", "GIVEN"} <= names
    assert names <= {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE", "TERM"),
        *("PAGER", "GIT_PAGER", "HISTFILE", "SIGNOFF_SHELL", "GIVEN", "PWD", "OLDPWD", "SHLVL", "_"),
    }


@pytest.mark.parametrize(
    ("command", "timeout", "said"),
    [
        ("", 1, "The command is empty"),
        (" \n", 1, "The command is empty"),
        ("echo \0", 1, "NUL"),
        ("echo \ud800", 1, "not valid text"),
        ("true", 0, "above 0"),
        ("true", -1, "above 0"),
        ("true", float("nan"), "above 0"),
        ("true", float("inf"), "above 0"),
    ],
)
def test_what_cannot_run_is_refused(shell: Shell, command: str, timeout: float, said: str) -> None:
    with pytest.raises(ToolException, match=said):
        shell.run(command, timeout)


def test_a_shell_needs_a_folder_and_bash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SetupError, match="nowhere"):
        Shell(tmp_path / "nowhere")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="bash was not found"):
        Shell(tmp_path)


def test_one_command_at_a_time(shell: Shell) -> None:
    with ThreadPoolExecutor() as threads:
        first = threads.submit(shell.run, "sleep 0.5; echo first")
        assert until(lambda: shell.busy)
        with pytest.raises(ToolException, match="still running another command"):
            shell.run("echo second", timeout=0.1)
        assert shell.run("echo third").output == "third\n"
        assert first.result().output == "first\n"


def test_a_very_long_command_and_a_very_long_line(shell: Shell) -> None:
    result = shell.run(f"x={'y' * 10_000_000}; echo ${{#x}}; echo $x", timeout=60)
    assert result.output.startswith("10000000\nyyyy")
    assert (result.exit_code, len(result.output) < 1_100_000, result.truncated > 8_000_000) == (0, True, True)


def test_300_of_300_exit_codes_are_exact(tmp_path: Path, figure: Callable[[str], None]) -> None:
    codes = [*range(256), *(128 + number for number in (1, 2, 3, 6, 9, 10, 12, 13, 14, 15, 24)), *range(33)]
    signals = range(256, 267)
    times: list[float] = []
    with Shell(tmp_path) as shell:
        for index, code in enumerate(codes):
            end = f"sh -c 'kill -{code - 128} $$'" if index in signals else f"(exit {code})"
            result = shell.run(end)
            assert result.exit_code == code
            times.append(result.seconds)
    assert len(codes) == 300
    milliseconds = statistics.median(times) * 1000
    figure(f"300 of 300 exit codes exact, median {milliseconds:.2f} ms a command")


@pytest.mark.slow
@pytest.mark.thorough
def test_16_shells_at_once(tmp_path: Path) -> None:
    def work(number: int) -> list[int | None]:
        with Shell(tmp_path) as shell:
            results = [shell.run(f"N={number}")]
            results += [shell.run(f"head -c 20000 /dev/zero; (exit $((N + {at})))") for at in range(20)]
            return [result.exit_code for result in results]

    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(work, range(16))) == [[0, *range(n, n + 20)] for n in range(16)]
