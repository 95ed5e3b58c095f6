"""The command line as a real process: killed, stopped, asked in a terminal, and two at once."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from signoff import sqlite_storage
from signoff.cli.standing import Condition, config_of, look, reading_graph
from signoff.locks import is_locked
from tests.cli_bench import Bench, steps, words_of

pytestmark = pytest.mark.slow

LOOK = 'call("read_file", path="config.py")'
DONE = 'call("finish_task", summary="All done.")'
SLOW = f"[{LOOK}] * 500"
SECONDS = 60.0


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


class Terminal:
    """A process with a terminal, and what it has printed so far."""

    def __init__(self, process: subprocess.Popen[str], screen: int) -> None:
        self.process = process
        self.screen = screen
        self.text = ""

    def until(self, words: str) -> str:
        """Reads until `words` were printed; all that was printed since the last time."""
        limit = time.monotonic() + SECONDS
        while words not in self.text:
            assert time.monotonic() < limit, self.text
            assert self._read(), self.text
        found, self.text = self.text, self.text.partition(words)[2]
        return found[: len(found) - len(self.text)]

    def type(self, text: str) -> None:
        os.write(self.screen, text.encode())

    def end(self) -> int:
        """Reads to the end; the exit code."""
        while self._read():
            pass
        return self.process.wait(SECONDS)

    def _read(self) -> bool:
        if not select.select([self.screen], [], [], 1)[0]:
            return self.process.poll() is None
        try:
            data = os.read(self.screen, 65536)
        except OSError:
            # Linux reports the end of a terminal's other side as an error.
            return False
        self.text += data.decode(errors="replace")
        return bool(data)


@contextmanager
def terminal(bench: Bench, *words: str) -> Iterator[Terminal]:
    screen, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    bench.env["TERM"] = "xterm-256color"
    process = bench.start(*words, stdin=inside, stdout=inside, stderr=inside)
    os.close(inside)
    try:
        yield Terminal(process, screen)
    finally:
        process.kill()
        process.wait()
        os.close(screen)


def run_words(bench: Bench, *words: str) -> tuple[str, ...]:
    return ("run", "Change the port", "--thread", "t1", "--workspace", str(bench.workspace), *words)


def wait_for(bench: Bench, turns: int) -> None:
    """Waits until the thread has had as many turns."""
    limit = time.monotonic() + SECONDS
    while time.monotonic() < limit:
        if bench.database.exists():
            with sqlite_storage(bench.database) as storage:
                if look(reading_graph(storage), "t1").task.turns >= turns:
                    return
        time.sleep(0.2)
    raise AssertionError(f"{turns} turns were never reached")


def test_a_question_in_a_terminal_is_asked_there(bench: Bench) -> None:
    with terminal(bench, *run_words(bench)) as shown:
        asked = shown.until("your own words > ")
        for part in ("Which port?", "1. 8080", "2. 9090", "turn 2 of 30"):
            assert part in asked
        shown.type("\n")
        shown.until("your own words > ")
        shown.type("2\n")
        ended = shown.until("thread t1")
        assert "Done" in ended
        assert shown.end() == 0
    assert bench.config.read_text() == "PORT = 9090\n"


@pytest.mark.parametrize("how", ["^C", "^D", "SIGTERM"])
def test_a_question_in_a_terminal_can_be_left_open(bench: Bench, how: str) -> None:
    with terminal(bench, *run_words(bench)) as shown:
        shown.until("your own words > ")
        if how == "^D":
            shown.type("\x04")
        else:
            shown.process.send_signal(signal.SIGINT if how == "^C" else signal.SIGTERM)
        shown.until("signoff resume ")
        assert shown.end() == 4
    code, _, _ = bench.process("resume", "t1", "8080")
    assert (code, bench.config.read_text()) == (0, "PORT = 8080\n")


def test_killed_while_it_asks_then_answered_in_another_process(bench: Bench) -> None:
    with terminal(bench, *run_words(bench)) as shown:
        shown.until("your own words > ")
        assert is_locked(bench.database, "t1")
        shown.process.kill()
        assert shown.end() == -signal.SIGKILL
    assert not is_locked(bench.database, "t1")
    code, out, err = bench.process("resume", "t1")
    assert (code, err) == (4, "")
    *rest, _ = words_of(out.splitlines()[-1].removeprefix("Answer: "))
    code, out, err = bench.process(*rest, "8080")
    assert (code, err, bench.config.read_text()) == (0, "", "PORT = 8080\n"), out


def test_killed_just_after_a_message_was_saved_on_an_ended_thread(bench: Bench) -> None:
    bench.model(steps(DONE, LOOK, 'call("finish_task", summary="The second task.")'))
    assert bench.run().exit_code == 0
    with sqlite_storage(bench.database) as storage:
        graph = reading_graph(storage)
        graph.update_state(config_of("t1"), {"messages": [("user", "the second")]}, as_node="__start__")
        assert graph.get_state(config_of("t1")).values["outcome"]["status"] == "success"
        assert look(graph, "t1").condition is Condition.STOPPED
    code, out, err = bench.process("resume", "t1", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["outcome"]["summary"] == "The second task."


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_run_which_then_goes_on(bench: Bench, number: signal.Signals) -> None:
    bench.model(SLOW, delay=0.1)
    with bench.start(*run_words(bench, "--turns", "500")) as process:
        wait_for(bench, 2)
        process.send_signal(number)
        out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (4, "")
    command = out.splitlines()[-1].removeprefix("Go on: ")
    turns = bench.json("show", "t1")["timeline"][-1]["turn"]
    code, out, _ = bench.process(
        *words_of(command), "--model", bench.model(f"[{LOOK}] * {turns + 1} + [{DONE}]")
    )
    assert code == 0, out


def test_a_signal_while_the_model_hangs_stops_at_once(bench: Bench) -> None:
    bench.model("[lambda messages: __import__('time').sleep(600)]")
    with bench.start(*run_words(bench, "--json")) as process:
        wait_for(bench, 0)
        limit = time.monotonic() + SECONDS
        while not is_locked(bench.database, "t1") and time.monotonic() < limit:
            time.sleep(0.1)
        time.sleep(1)
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS)
    assert time.monotonic() - begun < 10
    found = json.loads(out)
    assert (process.returncode, found["status"], found["exit_code"], err) == (4, "stopped", 4, "")
    assert words_of(found["resume"])[-1] == "t1"


def test_one_runner_a_thread(bench: Bench) -> None:
    bench.model(SLOW, delay=0.1)
    with bench.start(*run_words(bench, "--turns", "500")) as process:
        wait_for(bench, 1)
        for words in (("run", "x", "--thread", "t1"), ("resume", "t1")):
            code, out, err = bench.process(*words)
            assert (code, out) == (2, "")
            assert "'t1' is running in another process" in err
            assert err.count("\n") == 1
        assert json.loads(bench("threads", "--json").stdout)[0]["status"] == "running"
        process.kill()
    assert json.loads(bench("threads", "--json").stdout)[0]["status"] == "stopped"


def test_json_has_nothing_else_on_stdout(bench: Bench) -> None:
    code, out, err = bench.process(*run_words(bench, "--json"))
    assert (code, err) == (4, "")
    assert out.startswith("{")
    assert json.loads(out)["question"]["question"] == "Which port?"


def test_a_pipe_gets_no_control_codes_whatever_the_environment_asks_for(bench: Bench) -> None:
    bench.env["FORCE_COLOR"] = "1"
    code, out, _ = bench.process(*run_words(bench))
    assert code == 4
    assert "\x1b" not in out


def test_a_terminal_without_unicode_gets_escapes(bench: Bench) -> None:
    bench.env |= {"PYTHONIOENCODING": "ascii"}
    code, out, err = bench.process(*run_words(bench))
    assert (code, err) == (4, "")
    assert "read_file  config.py" in out


def test_a_reader_that_goes_away_is_no_traceback(bench: Bench) -> None:
    bench.run()
    with bench.start("show", "t1") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


COUNT = "for n in 1 2 3 4 5 6 7 8 9; do printf '\\033]0;x\\a<step %s>\\n' $n; sleep 0.5; done"
SHELL = f'call("run_shell", command={COUNT!r})'


def test_the_output_of_a_command_appears_while_it_runs(bench: Bench) -> None:
    bench.model(steps(SHELL, DONE))
    with terminal(bench, *run_words(bench)) as shown:
        shown.until("<step 2>")
        assert bench.json("show", "t1")["timeline"] == [
            {"kind": "user", "text": "Change the port", "answers": False}
        ]
        shown.process.send_signal(signal.SIGINT)
        shown.until("Stopping after this call")
        assert "\x1b]0;" not in shown.until("exit code 0")
        assert shown.end() == 4
    assert bench.json("show", "t1")["timeline"][-1]["result"].count("step 9") == 1


def test_a_second_ctrl_c_ends_a_running_command_at_once(bench: Bench) -> None:
    bench.model(
        steps(
            'call("run_shell", command="echo started; sleep 300 & wait")', 'call("finish_task", summary="x")'
        )
    )
    with terminal(bench, *run_words(bench)) as shown:
        shown.until("started")
        begun = time.monotonic()
        shown.process.send_signal(signal.SIGINT)
        shown.until("Stopping after this call")
        shown.process.send_signal(signal.SIGINT)
        shown.until("signoff resume ")
        assert shown.end() == 4
    assert time.monotonic() - begun < 10
    code, out, _ = bench.process("resume", "t1")
    assert (code, "unknown" in out) == (0, True)


def test_calls_are_decided_one_by_one_in_a_terminal(bench: Bench) -> None:
    edit = 'call("edit_file", path="config.py", old="3000", new="4000")'
    write = 'call("write_file", path="{}.md", content="# Hello")'
    bench.model(steps(f"[{edit}, {write.format('a')}, {write.format('b')}]", DONE))
    with terminal(bench, *run_words(bench, "--approve", "write")) as shown:
        asked = shown.until("approve / edit / reject / respond > ")
        for part in ("1 of 3", "config.py", "- 3000", "+ 4000"):
            assert part in asked
        shown.type("frob\n")
        shown.until("Type one of: approve")
        shown.type("approve\n")
        shown.until("respond > ")
        shown.type("edit\n")
        shown.until("as JSON > ")
        shown.type("{no JSON\n")
        shown.until("That does not fit")
        shown.type("edit\n")
        shown.until("as JSON > ")
        shown.type('{"path": "c.md", "content": "x"}\n')
        shown.until("respond > ")
        shown.type("reject not that one\n")
        shown.until("not that one")
        assert shown.end() == 0
    assert bench.config.read_text() == "PORT = 4000\n"
    assert sorted(path.name for path in bench.workspace.glob("*.md")) == ["c.md"]


def test_an_approval_in_a_terminal_can_be_left_open(bench: Bench) -> None:
    bench.model(steps('call("edit_file", path="config.py", old="3000", new="4000")', DONE))
    with terminal(bench, *run_words(bench, "--approve", "edit_file")) as shown:
        shown.until("respond > ")
        shown.process.send_signal(signal.SIGINT)
        shown.until("Approve: ")
        shown.until("Reject: ")
        assert shown.end() == 4
    code, _, _ = bench.process("resume", "t1", "approve")
    assert (code, bench.config.read_text()) == (0, "PORT = 4000\n")
