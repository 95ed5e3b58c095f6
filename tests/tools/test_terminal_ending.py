"""A command or a shell that does not end by itself, or ends in another way, leaves nothing behind."""

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from langchain_core.tools import ToolException

from signoff.tools import Shell, ShellResult
from tests.support.terminals import GETPASS, PYTHON, found, long_sleep, plain, terminals, until

pytestmark = pytest.mark.slow


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with Shell(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("exit", 0),
        ("exit 3", 3),
        ("exec true", 0),
        ("set -e; false", 1),
        ("kill -9 $$", 137),
        ("sleep 60 & exit 4", 4),
    ],
)
@pytest.mark.sample(2)
def test_a_shell_that_ends_is_said_once_and_replaced(
    shell: Shell, tmp_path: Path, command: str, code: int
) -> None:
    shell.run("cd /")
    result = shell.run(f"echo last; {command}")
    assert (result.exit_code, result.output.startswith("last\n"), result.restarted) == (code, True, True)
    assert plain(shell.run("pwd")) == (0, f"{tmp_path}\n")


def test_what_a_shell_leaves_behind_ends_with_it(shell: Shell) -> None:
    assert shell.run(f"setsid -f {long_sleep()}; {long_sleep()} & exit 2").exit_code == 2
    assert not found()


@pytest.mark.thorough
def test_a_program_that_keeps_becoming_another_one_ends_with_its_shell(shell: Shell, tmp_path: Path) -> None:
    """While it does, its environment reads as empty, and nothing else tells whose it is."""
    again = tmp_path / "again.sh"
    again.write_text('#!/bin/sh\nexec "$0"\n', encoding="utf-8")
    again.chmod(0o700)
    for _ in range(100):
        assert shell.run(f"setsid -f {again}; exit 2").exit_code == 2
        assert not found(f"/bin/sh {again}")


def test_a_shell_that_ended_between_commands_is_said(shell: Shell) -> None:
    shell.run("(sleep 0.1; kill -9 $$) &")
    time.sleep(0.5)
    assert shell.run("echo again").restarted
    assert plain(shell.run("echo again")) == (0, "again\n")


@pytest.mark.thorough
def test_many_stubborn_children_are_ended_at_the_time_out(shell: Shell) -> None:
    script = "import os, signal, time\nsignal.signal(2, 1), signal.signal(3, 1)\n"
    script += f"for _ in range(50):\n    if not os.fork(): os.execvp('sleep', '{long_sleep()}'.split())\n"
    script += "time.sleep(100)"
    result = shell.run(f'{PYTHON} -c "{script}"', timeout=1)
    assert (result.exit_code, result.timed_out) == (137, True)
    assert until(lambda: not found())


def each(commands: list[str], folder: Path, timeout: float = 30) -> list[ShellResult]:
    """The results of the commands, each in a shell of its own, all at once."""

    def run(command: str) -> ShellResult:
        with Shell(folder) as shell:
            result = shell.run(command, timeout)
            assert plain(shell.run("echo next")) == (0, "next\n")
            return result

    with ThreadPoolExecutor(len(commands)) as threads:
        return list(threads.map(run, commands))


@pytest.mark.thorough
def test_the_time_out_stops_everything(tmp_path: Path) -> None:
    ends: dict[str, tuple[int | None, bool]] = {
        "sleep 100; echo not reached": (130, False),
        "stty raw -echo -isig; sleep 100": (130, False),
        "exec sleep 100": (130, True),
        "while :; do :; done": (130, False),
        "yes": (130, False),
        "trap '' INT; sleep 100": (131, False),
        "trap '' INT QUIT; sleep 100": (137, False),
        "trap '' INT; while :; do :; done": (None, True),
        "kill -STOP $$": (None, True),
    }
    results = each(list(ends), tmp_path, timeout=0.3)
    assert {
        command: (result.exit_code, result.restarted) for command, result in zip(ends, results, strict=True)
    } == ends
    for result in results:
        assert (result.timed_out, result.waiting_for) == (True, None)
        assert "not reached" not in result.output
        assert "builtin" not in result.output


@pytest.mark.timed
def test_a_command_that_waits_for_input_is_stopped_early(tmp_path: Path) -> None:
    raw = "import select, sys, tty; tty.setraw(0); select.select([0], [], [])"
    kinds = {
        "read line": "line",
        "cat": "line",
        "echo question; cat | cat": "line",
        f"{PYTHON} -c 'input()'": "line",
        GETPASS: "password",
        "read -s secret": "password",
        "stty raw; head -c 1": "screen",
        f"{PYTHON} -c '{raw}'": "screen",
    }
    results = dict(zip(kinds, each(list(kinds), tmp_path), strict=True))
    assert {command: result.waiting_for for command, result in results.items()} == kinds
    for result in results.values():
        assert (result.timed_out, result.restarted, result.seconds < 15) == (False, False, True)


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
    assert [plain(result)[0] for result in each(commands, tmp_path)] == [0] * len(commands)


def test_typing_more_than_a_program_takes_does_not_keep_it_from_being_stopped(tmp_path: Path) -> None:
    with Shell(tmp_path, interactive=True) as shell, ThreadPoolExecutor() as threads:
        running = threads.submit(shell.run, f"trap '' INT QUIT; {long_sleep()}", 1)
        assert until(lambda: bool(found()))
        with pytest.raises(ToolException, match="does not read"):
            shell.write(b"x\n" * 100_000)
        result = running.result()
        assert result.timed_out
        assert not found()


def test_a_listener_that_raises_stops_the_command(shell: Shell) -> None:
    def broken(_: bytes) -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        shell.run(f"echo x; {long_sleep()}", on_output=broken)
    assert not found()
    assert shell.run("echo next").output == "next\n"


def test_close_ends_a_running_command_and_everything_else(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    sleep = long_sleep()
    shell.run(f"{sleep} & nohup {sleep} & setsid {sleep} & trap '' HUP; (trap '' HUP; {sleep}) &")
    shell.run(f"setsid -f env -i {sleep}; (env -i setsid {sleep} &)")
    assert until(lambda: len(found()) == 6)
    with ThreadPoolExecutor() as threads:
        running = threads.submit(shell.run, long_sleep())
        assert until(lambda: len(found()) == 7)
        shell.close()
        with pytest.raises(ToolException, match="closed"):
            running.result()
    assert not found()
    with pytest.raises(ToolException, match="closed"):
        shell.run("true")
    shell.close()


def test_nothing_is_left_open(tmp_path: Path) -> None:
    before = terminals(), threading.active_count()
    for _ in range(5):
        with Shell(tmp_path) as shell:
            shell.run("exit 1")
            shell.run("sleep 60 &")
    assert (terminals(), threading.active_count()) == before


@pytest.mark.slow
@pytest.mark.thorough
def test_200_megabytes_do_not_grow_memory(shell: Shell) -> None:
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    heard = 0

    def listen(data: bytes) -> None:
        nonlocal heard
        heard += len(data)

    result = shell.run("head -c 200000000 /dev/urandom", timeout=100, on_output=listen)
    assert (result.exit_code, result.truncated > 199_000_000, heard > 0) == (0, True, True)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


@pytest.mark.slow
def test_close_ends_what_forks_without_end(tmp_path: Path) -> None:
    # It ends by itself, too: killed itself, the test would leave it behind for as long as the machine runs.
    until = time.time() + 30
    script = (
        f"import os, time\nwhile time.time() < {until}:\n"
        "    if os.fork(): time.sleep(0.01); os._exit(0)\n    os.setsid()"
    )
    shell = Shell(tmp_path)
    shell.run(f"cat > runner.py <<'END'\n{script}\nEND\n{PYTHON} runner.py {os.getpid()} & sleep 0.5")
    shell.close()
    time.sleep(0.5)
    assert not found(f"{PYTHON} runner.py {os.getpid()}")
