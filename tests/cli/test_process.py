"""The command line as a process: signals, kills, terminals, what its streams get, and what it imports."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from signoff import sqlite_storage
from tests.support.benches.cli import Bench, bare, first_offered, offered, one_sentence, steps, words_of
from tests.support.benches.cli_terminal import SECONDS, Terminal, at_terminal, run_words, terminal, wait_until

LOOK = 'call("read_file", path="config.py")'
DONE = 'call("finish_task", summary="All done.")'
ASK = 'call("ask_user", question="Which?")'
NUMBERS = (signal.SIGINT, signal.SIGTERM)
CONFIRM = 'call("finish_task", summary="x", requires_user_confirmation=True)'
COMMAND = "printf '\\033]0;x\\a<step 1>\\n'; until [ -e seen ]; do sleep 0.05; done"
WRITE = 'call("write_file", path="{}.md", content="# Hello")'


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def begun(bench: Bench) -> Path:
    """The file that a step makes when it has begun."""
    return bench.folder / "begun"


def sleeping(bench: Bench, seconds: float, then: str) -> str:
    """A step of the model that takes its time, the first time."""
    first = f"(f := __import__('pathlib').Path({str(begun(bench))!r})).exists()"
    return f"lambda m: ({first} or (f.touch(), __import__('time').sleep({seconds})), {then})[-1]"


class TestSignals:
    """The first stops the run after its step, the second at once; both can be gone on from.

    A reply that is still coming in is closed, a tool that runs is waited for.
    """

    @pytest.fixture(autouse=True)
    def late(self) -> Iterator[None]:
        """A signal that comes when the run has ended is not for the tests."""

        def ignored(*_: object) -> None: ...

        before = {number: signal.signal(number, ignored) for number in NUMBERS}
        yield
        assert [signal.getsignal(number) for number in NUMBERS] == [ignored, ignored]
        for number, handler in before.items():
            signal.signal(number, handler)

    def stopped(self, bench: Bench, *words: str, numbers: Any = (signal.SIGINT,), gap: float = 0.1) -> Any:
        """The result of a run that got these signals when its step had begun."""

        def send() -> None:
            wait_until(begun(bench).exists)
            for number in numbers:
                os.kill(os.getpid(), number)
                # The main thread must get to each before the next one comes.
                time.sleep(gap)

        sender = threading.Thread(target=send)
        sender.start()
        result = bench.run("Do it", *words)
        sender.join()
        assert (result.exit_code, result.stderr) == (4, "")
        return result

    @pytest.mark.parametrize("number", NUMBERS)
    @pytest.mark.parametrize("words", [[], ["--json"], ["--quiet"]])
    def test_in_a_model_call_nothing_of_the_reply_is_kept(
        self, bench: Bench, number: signal.Signals, words: list[str]
    ) -> None:
        bench.model(steps(LOOK, sleeping(bench, 5, DONE), DONE))
        result = self.stopped(bench, *words, numbers=[number])
        assert (bench.json("show", "t1")["status"], bench.turns()) == ("stopped", 1)
        found = json.loads(result.stdout)["resume"] if "--json" in words else None
        assert (bare(words_of(found)) if found else first_offered(result.stdout)) == ["resume", "t1"]
        assert bench.json("resume", "t1")["outcome"]["turns"] == 2

    @pytest.mark.parametrize("numbers", [NUMBERS, [signal.SIGINT] * 2])
    def test_a_second_one_ends_a_call_that_hangs(
        self, bench: Bench, numbers: Sequence[signal.Signals]
    ) -> None:
        bench.model(steps(LOOK, sleeping(bench, 600, DONE)))
        on = first_offered(self.stopped(bench, numbers=numbers, gap=0.02).stdout)
        assert on is not None
        assert bench.turns() == 1
        assert bench(*on).exit_code == 0

    def test_a_streamed_reply_is_closed(self, bench: Bench) -> None:
        bench.model(steps(sleeping(bench, 0, "'word ' * 2000"), DONE), delay=0.1)
        result = self.stopped(bench)
        assert ("word" in result.stdout, bench.turns()) == (False, 0)

    def test_a_tool_that_runs_is_waited_for(self, bench: Bench) -> None:
        command = f"touch {begun(bench)}; sleep 1; echo ran >> log"
        bench.model(steps(f'call("run_shell", command="{command}")', DONE))
        self.stopped(bench)
        assert [event["ok"] for event in bench.told() if event["kind"] == "call"] == [True]
        assert bench("resume", "t1").exit_code == 0
        assert (bench.workspace / "log").read_text() == "ran\n"

    def test_a_second_one_leaves_the_fate_of_a_tool_unknown(self, bench: Bench) -> None:
        command = f"touch {begun(bench)}; sleep 300 & wait"
        # The first finish is questioned, since the outcome of the command is unknown.
        bench.model(steps(f'call("run_shell", command="{command}")', DONE, DONE))
        self.stopped(bench, numbers=[signal.SIGINT] * 2)
        assert "unknown" in bench("resume", "t1").stdout

    def test_one_that_the_parent_ignores_stays_ignored(self, bench: Bench) -> None:
        bench.model(f"[lambda m: (__import__('signal').raise_signal(2), {DONE})[1]]")
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            assert bench.run().exit_code == 0
        finally:
            signal.signal(signal.SIGINT, before)

    def test_while_the_model_loads_nothing_has_begun(self, bench: Bench) -> None:
        (bench.folder / "loads.py").write_text("import signal; signal.raise_signal(15); model = 0")
        loads = ["--model", f"scripted:{bench.folder / 'loads.py'}"]
        result = bench.run("x", *loads, thread="new")
        assert (result.exit_code, result.stderr, offered(result.stdout)) == (4, "", {})
        assert bench("show", "new").exit_code == 2
        bench.run()
        before = bench.json("show", "t1")
        result = bench("resume", "t1", "8080", *loads)
        assert (result.exit_code, first_offered(result.stdout)) == (4, ["resume", "t1", "your answer"])
        assert bench.json("show", "t1") == before

    @pytest.mark.slow
    def test_a_process_ends_with_the_command_that_goes_on(self, bench: Bench) -> None:
        bench.model(steps(sleeping(bench, 600, DONE)))
        with bench.start(*run_words(bench)) as process:
            wait_until(begun(bench).exists)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=SECONDS)
        assert (process.returncode, err, bench.turns()) == (4, "", 0)
        assert bench(*offered(out)["Go on"]).exit_code == 0

    INTERRUPTED = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            print("pressed", flush=True)
            os.kill(os.getpid(), signal.SIGINT)

from signoff.cli import main
sys.meta_path.insert(0, Interrupts())
sys.argv = ["signoff", *{words!r}]
main()
"""

    @pytest.mark.slow
    @pytest.mark.parametrize("module", ["typer", "langgraph.pregel"])
    def test_while_it_imports_it_ends_without_a_traceback(self, bench: Bench, module: str) -> None:
        words = ["run", "x", "-d", str(bench.database)]
        code = self.INTERRUPTED.format(module=module, words=words)
        env = {**os.environ, "SIGNOFF_MODEL": str(bench.env["SIGNOFF_MODEL"])}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
        assert (done.stdout[:7], "Traceback" in done.stderr) == ("pressed", False)
        assert done.returncode in (-2, 4, 130)


class TestTerminal:
    """A person sits before it, and is asked there."""

    def test_a_question_is_asked_until_it_is_answered_and_holds_nothing_meanwhile(self, bench: Bench) -> None:
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

        assert at_terminal(bench, person, *run_words(bench))[0] == 0
        assert bench.config.read_text() == "PORT = 9090\n"

    def test_calls_are_decided_one_by_one(self, bench: Bench) -> None:
        edit = 'call("edit_file", path="config.py", old="3000", new="4000")'
        bench.model(steps(f"[{edit}, {WRITE.format('a')}, {WRITE.format('b')}]", DONE))

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

        assert at_terminal(bench, person, *run_words(bench, "--approve", "write"))[0] == 0
        assert bench.config.read_text() == "PORT = 4000\n"
        assert sorted(path.name for path in bench.workspace.glob("*.md")) == ["c.md"]

    # Script, the prompt, the last words of the commands that are left.
    DIALOGUES: Mapping[str, tuple[str, str, list[str]]] = {
        "a question": (steps(ASK, DONE), "your answer > ", ["your answer"]),
        "an approval": (steps(WRITE.format("a"), DONE), "respond > ", ["approve", "reject: your reason"]),
        "a confirmation": (steps(CONFIRM, DONE), "reject > ", ["yes", "what is wrong"]),
    }

    @pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, None])
    @pytest.mark.parametrize("case", DIALOGUES)
    def test_whoever_leaves_leaves_the_question_open(self, bench: Bench, case: str, how: int | None) -> None:
        script, prompt, answers = self.DIALOGUES[case]
        bench.model(script)

        def person(shown: Terminal) -> None:
            shown.until(prompt)
            shown.type("\x04") if how is None else os.kill(os.getpid(), how)
            shown.until("signoff resume ")

        assert at_terminal(bench, person, *run_words(bench, "--approve", "write"))[0] == 4
        found = offered(bench("resume", "t1").stdout)
        assert [bare(words)[-1] for words in found.values()] == answers
        assert bench(*next(iter(found.values()))).exit_code == 0

    LIVE: Mapping[str, tuple[str, Sequence[str]]] = {
        # a step, and what is shown one after the other before it is at its end
        "a reply": ('"I look first, " + "word " * 20', ["▸ I look", "▸ I look first, word"]),
        "the end of a long one": ('"abcdefgh" * 20', ["▸ abcdefgh", "▸ …", "abcdefg"]),
        "a call": ('call("read_file", path="a" * 40)', ["▸ read_file", '"aaaa']),
        "what could steer it": ('"a\\x1b[2Jb " * 10', ["▸ a␛[2Jb"]),
        "a command": (f'call("run_shell", command={COMMAND!r})', ["<step 1>"]),
    }

    @pytest.mark.parametrize("case", LIVE)
    def test_what_comes_is_shown_while_it_comes(self, bench: Bench, case: str) -> None:
        step, parts = self.LIVE[case]
        bench.model(steps(step, DONE, DONE), delay=0.1)

        def person(shown: Terminal) -> None:
            said = [shown.until(part) for part in parts]
            assert [event["kind"] for event in bench.told()] == ["user"], "nothing of it is saved yet"
            (bench.workspace / "seen").touch()
            shown.drain()
            assert "\x1b]0;" not in "".join([*said, shown.text])

        assert at_terminal(bench, person, *run_words(bench))[0] == 0

    @pytest.mark.slow
    def test_ctrl_c_reaches_the_run_and_says_what_it_does(self, bench: Bench) -> None:
        bench.model(steps(f'call("run_shell", command="touch {begun(bench)}; sleep 2")', DONE))
        with terminal(bench, *run_words(bench)) as shown:
            wait_until(begun(bench).exists)
            shown.type("\x03")
            shown.until("Ctrl-C again")
            shown.until("Go on: ")
            assert shown.end() == 4
        assert bench(*words_of(bench.json("show", "t1")["resume"])).exit_code == 0

    @pytest.mark.slow
    def test_one_that_is_killed_while_it_asks_is_answered_elsewhere(self, bench: Bench) -> None:
        with terminal(bench, *run_words(bench)) as shown:
            shown.until("your own words > ")
            shown.process.kill()
            assert shown.end() == -signal.SIGKILL
        *rest, _ = offered(bench("resume", "t1").stdout)["Answer"]
        assert bench(*rest, "8080").exit_code == 0
        assert bench.config.read_text() == "PORT = 8080\n"


@pytest.mark.slow
class TestElsewhere:
    """Another process runs the thread."""

    def test_it_is_asked_to_pause_and_is_gone_on_with(self, bench: Bench) -> None:
        another = 'call("read_file", path=str(len(m)))'
        bench.model(f"[{sleeping(bench, 0, another)}] * 500", delay=0.1)
        with bench.start(*run_words(bench, "--turns", "500")) as process:
            wait_until(begun(bench).exists)
            asked = bench("pause", "t1")
            out, err = process.communicate(timeout=SECONDS)
        assert (asked.exit_code, process.returncode, err) == (0, 4, "")
        promised = words_of("signoff " + asked.stdout.partition(": signoff ")[2])
        assert promised == offered(out)["Go on"]
        assert bench.json("show", "t1")["status"] == "paused"
        assert bench(*promised, "--model", bench.model(f"[{DONE}] * 500")).exit_code == 0

    def test_one_that_hangs_is_looked_at_asked_killed_and_gone_on_with(self, bench: Bench) -> None:
        bench.model(steps(LOOK, sleeping(bench, 600, DONE)))
        with bench.start(*run_words(bench)) as process:
            wait_until(begun(bench).exists)
            for words in (["run", "x", "--thread", "t1"], ["resume", "t1"], ["undo", "t1"]):
                one_sentence(bench(*words), "'t1'")
            assert bench.json("show", "t1")["status"] == "running"
            for _ in range(2):
                assert bench("pause", "t1").exit_code == 0
            process.send_signal(signal.SIGKILL)
        assert bench.json("show", "t1")["status"] == "stopped"
        result = bench("resume", "t1")
        assert (result.exit_code, bench.turns()) == (0, 2), "the request died with its run"


@pytest.mark.slow
class TestStreams:
    def test_json_has_nothing_else_on_stdout(self, bench: Bench) -> None:
        code, out, err = bench.process(*run_words(bench, "--json"))
        assert (code, err, json.loads(out)["status"]) == (4, "", "waiting")

    def test_one_without_unicode_gets_escapes_and_a_pipe_no_control_codes_but_colours(
        self, bench: Bench
    ) -> None:
        bench.env |= {"PYTHONIOENCODING": "ascii", "FORCE_COLOR": "1"}
        code, out, err = bench.process(*run_words(bench))
        assert (code, err) == (4, "")
        text = re.sub(r"\x1b\[[\d;]*m", "", out)
        assert ("\x1b" in text, "read_file  config.py" in text, text.isascii()) == (False, True, True)

    def test_a_reader_that_goes_away_is_no_traceback(self, bench: Bench) -> None:
        bench.run()
        with bench.start("show", "t1") as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            assert "Traceback" not in process.stderr.read()


AGENTS = frozenset({"langgraph", "langchain_core", "langchain", "langsmith"})
PROVIDERS = frozenset({"langchain", "langchain_openai", "openai", "psycopg"})
MAIN = (
    "import atexit, sys; from signoff.cli import main; sys.argv[1:] = {words!r}; "
    "atexit.register(lambda: sys.stderr.write(' '.join(sys.modules))); main()"
)
COMPLETE = (
    "import sys; from signoff.cli.app import app; sys.argv[0] = 'signoff'\n"
    "try: app(prog_name='signoff')\n"
    "finally: sys.stderr.write(' '.join(sys.modules))"
)
COMPLETING = {"_SIGNOFF_COMPLETE": "complete_bash", "COMP_WORDS": "signoff th", "COMP_CWORD": "1"}
# A program, what it prints, and what it must not import: a command starts as fast as what it needs.
STARTS: dict[str, tuple[str, str, frozenset[str]]] = {
    "the version": (MAIN.format(words=["--version"]), "signoff ", AGENTS | {"pydantic", "rich"}),
    "figures": (MAIN.format(words=["stats"]), "1 on 1", AGENTS),
    "the list of threads": (MAIN.format(words=["threads"]), "t1", PROVIDERS),
    "the names of commands in a shell": (COMPLETE, "threads", AGENTS),
    "build_graph by its name": (
        "import sys, langgraph.graph; before = set(sys.modules); import signoff; signoff.build_graph; "
        "print('made'); sys.stderr.write(' '.join(set(sys.modules) - before))",
        "made",
        frozenset({"rich", "platformdirs", "typer", "langchain", "signoff.session", "signoff.storage"}),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", STARTS)
def test_a_program_imports_no_more_than_it_needs(bench: Bench, case: str) -> None:
    program, prints, needless = STARTS[case]
    bench.model(steps(LOOK, DONE))
    bench.run()
    own = {name: value for name, value in bench.env.items() if value is not None}
    env = {**os.environ, **own, **(COMPLETING if program == COMPLETE else {})}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env)
    assert prints in done.stdout, done.stderr
    assert needless.isdisjoint(done.stderr.split())
