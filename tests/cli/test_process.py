"""The command line as a process: signals, kills, terminals, what its streams get, and what it imports."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from typer.testing import Result

from signoff import sqlite_storage
from tests.support.benches.cli import Bench, bare, first_offered, offered, steps, words_of
from tests.support.benches.cli_steps import CONFIRM, DONE, EDIT, LOOK, WRITE
from tests.support.benches.cli_terminal import Terminal, at_terminal, in_a_process, run_words
from tests.support.waiting import wait_until

NUMBERS = (signal.SIGINT, signal.SIGTERM)
COMMAND = "printf '\\033]0;x\\a<step 1>\\n'; until [ -e seen ]; do sleep 0.05; done"


def begun(bench: Bench) -> Path:
    """The file that a step makes when it has begun."""
    return bench.folder / "begun"


def sleeping(bench: Bench, seconds: float) -> str:
    """A step of the model that takes its time, the first time."""
    first = f"(f := __import__('pathlib').Path({str(begun(bench))!r})).exists()"
    return f"lambda m: ({first} or (f.touch(), __import__('time').sleep({seconds})), {DONE})[-1]"


# The first signal stops the run after its step, the second at once; both can be gone on from. A reply that is
# still coming in is closed, a tool that runs is waited for.


@pytest.fixture
def late() -> Iterator[None]:
    """A signal that comes when the run has ended is not for the tests."""

    def ignored(*_: object) -> None: ...

    before = {number: signal.signal(number, ignored) for number in NUMBERS}
    yield
    assert [signal.getsignal(number) for number in NUMBERS] == [ignored, ignored]
    for number, handler in before.items():
        signal.signal(number, handler)


def stopped(bench: Bench, *numbers: int) -> Result:
    """The result of a run that got these signals when its step had begun."""

    def send() -> None:
        wait_until(begun(bench).exists)
        for number in numbers:
            os.kill(os.getpid(), number)
            # The main thread must get to each before the next one comes.
            time.sleep(0.05)

    sender = threading.Thread(target=send)
    sender.start()
    result = bench.run("Do it")
    sender.join()
    assert (result.exit_code, result.stderr) == (4, "")
    return result


INT, TERM = NUMBERS
# The signals, and how long the model would take.
IN_A_REPLY: dict[str, tuple[list[int], int]] = {
    "SIGTERM": ([TERM], 5),
    "a second ^C ends a call that hangs": ([INT, INT], 600),
}


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("case", IN_A_REPLY)
def test_a_signal_in_a_model_call_keeps_nothing_of_the_reply(bench: Bench, case: str) -> None:
    numbers, seconds = IN_A_REPLY[case]
    bench.model(steps(LOOK, sleeping(bench, seconds), DONE))
    result = stopped(bench, *numbers)
    assert (bench.json("show", "t1")["status"], bench.turns()) == ("stopped", 1)
    assert first_offered(result.stdout) == ["resume", "t1"]
    assert bench.json("resume", "t1")["outcome"]["turns"] == 2


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("times", [1, 2])
def test_a_tool_that_runs_is_waited_for_and_after_a_second_one_its_fate_is_unknown(
    bench: Bench, times: int
) -> None:
    command = f"touch {begun(bench)}; sleep {'1; echo ran' if times == 1 else '300 & wait'}"
    # The first finish is questioned where the outcome of the command is unknown.
    bench.model(steps(f'call("run_shell", command="{command}")', DONE, DONE))
    stopped(bench, *[INT] * times)
    assert ("unknown" in bench("resume", "t1").stdout) == (times == 2)
    (ran, *_) = (event["ok"] for event in bench.told() if event["kind"] == "call")
    assert ran == (times == 1)


# A person sits before it, and is asked there.


def test_a_question_is_asked_until_it_is_answered_and_holds_nothing_meanwhile(bench: Bench) -> None:
    def person(shown: Terminal) -> None:
        asked = shown.until("your own words > ")
        for part in ("Which port?", "1. 8080", "2. 9090", "turn 2 of 30"):
            assert part in asked
        shown.type("\n")
        shown.until("your own words > ")
        with sqlite_storage(bench.database) as storage, storage.runner("t1"):
            pass
        shown.type("2\n")
        shown.until("thread t1")

    assert at_terminal(bench, person, *run_words(bench)) == 0
    assert bench.config.read_text() == "PORT = 9090\n"


def test_calls_are_decided_one_by_one(bench: Bench) -> None:
    bench.model(steps(f"[{EDIT}, {WRITE}, {WRITE.replace('new', 'other')}]", DONE))

    def person(shown: Terminal) -> None:
        asked = shown.until("respond > ")
        for part in ("1 of 3", "config.py", "- 3000", "+ 4000"):
            assert part in asked
        for typed, told in (
            ("frob", "approve"),
            ("approve but not the second", "Nothing was"),
            ("approve", "2 of 3"),
            ("edit", "as JSON > "),
            ("{no JSON", "does not fit"),
            ("edit", "as JSON > "),
            ('{"path": "c.md", "content": "x"}', "3 of 3"),
            ("reject not that one", "not that one"),
        ):
            shown.type(f"{typed}\n")
            shown.until(told)

    assert at_terminal(bench, person, *run_words(bench, "--approve", "write")) == 0
    assert bench.config.read_text() == "PORT = 4000\n"
    assert sorted(path.name for path in bench.workspace.glob("*.md")) == ["c.md"]


def test_whoever_leaves_leaves_the_question_open(bench: Bench) -> None:
    bench.model(steps(CONFIRM, DONE))

    def person(shown: Terminal) -> None:
        shown.until("reject > ")
        shown.type("\x04")
        shown.until("signoff resume ")

    assert at_terminal(bench, person, *run_words(bench)) == 4
    commands = offered(bench("resume", "t1").stdout)
    assert [bare(words)[-1] for words in commands.values()] == ["yes", "what is wrong"]
    assert bench(*next(iter(commands.values()))).exit_code == 0


LIVE: Mapping[str, tuple[str, Sequence[str]]] = {
    "the end of a long one": ('"abcdefgh" * 20', ["▸ abcdefgh", "▸ …", "abcdefg"]),
    "what could steer it": ('"a\\x1b[2Jb " * 10', ["▸ a␛[2Jb"]),
    "a command": (f'call("run_shell", command={COMMAND!r})', ["<step 1>"]),
}


@pytest.mark.parametrize("case", LIVE)
def test_what_comes_is_shown_while_it_comes(bench: Bench, case: str) -> None:
    step, parts = LIVE[case]
    bench.model(steps(step, DONE, DONE), delay=0.1)

    def person(shown: Terminal) -> None:
        said = [shown.until(part) for part in parts]
        assert [event["kind"] for event in bench.told()] == ["user"], "nothing of it is saved yet"
        (bench.workspace / "seen").touch()
        shown.drain()
        assert "\x1b]0;" not in "".join([*said, shown.text])

    assert at_terminal(bench, person, *run_words(bench)) == 0


# Real processes.


@pytest.mark.slow
def test_ctrl_c_reaches_the_run_and_says_what_it_does(bench: Bench) -> None:
    bench.model(steps(f'call("run_shell", command="touch {begun(bench)}; sleep 2")', DONE))

    def person(shown: Terminal) -> None:
        wait_until(begun(bench).exists)
        shown.type("\x03")
        shown.until("Ctrl-C again")
        shown.until("Go on: ")

    assert at_terminal(bench, person, *run_words(bench), command=in_a_process) == 4
    assert bench(*words_of(bench.json("show", "t1")["resume"])).exit_code == 0


@pytest.mark.slow
@pytest.mark.thorough
def test_a_stream_without_unicode_gets_escapes_and_a_pipe_no_control_codes_but_colours(bench: Bench) -> None:
    bench.env |= {"PYTHONIOENCODING": "ascii", "FORCE_COLOR": "1"}
    code, out, err = bench.process(*run_words(bench))
    assert (code, err) == (4, "")
    text = re.sub(r"\x1b\[[\d;]*m", "", out)
    assert ("\x1b" in text, "read_file  config.py" in text, text.isascii()) == (False, True, True)
    with bench.start("show", "t1") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert "Traceback" not in process.stderr.read(), "the reader has gone away"


MAIN = (
    "import atexit, sys; from signoff.cli import main; "
    "atexit.register(lambda: sys.stderr.write(' '.join(sys.modules))); main()"
)


@pytest.mark.slow
def test_a_command_imports_no_more_than_it_needs() -> None:
    done = subprocess.run([sys.executable, "-c", MAIN, "--version"], capture_output=True, text=True)
    assert done.stdout.startswith("signoff ")
    needless = {"langgraph", "langchain_core", "langchain", "pydantic", "rich"}
    assert needless.isdisjoint(done.stderr.split())
