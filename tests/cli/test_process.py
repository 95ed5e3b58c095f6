"""The command line as a real process: asked in a terminal, killed, two at once, and what its streams get."""

import json
import re
import signal
from pathlib import Path

import pytest

from signoff import sqlite_storage
from signoff.session.status import Condition, config_of, look, reading_graph
from signoff.storage.sqlite import is_locked
from tests.support.benches.cli import Bench, offered, steps
from tests.support.benches.cli_terminal import run_words, terminal, wait_for

pytestmark = pytest.mark.slow

LOOK = 'call("read_file", path="config.py")'
DONE = 'call("finish_task", summary="All done.")'
SLOW = '[lambda m: call("read_file", path=f"{len(m)}.py")] * 500'


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_question_in_a_terminal_is_asked_there(bench: Bench) -> None:
    with terminal(bench, *run_words(bench)) as shown:
        asked = shown.until("your own words > ")
        for part in ("Which port?", "1. 8080", "2. 9090", "turn 2 of 30"):
            assert part in asked
        shown.type("\n")
        shown.until("your own words > ")
        shown.type("2\n")
        ended = shown.until("thread t1")
        assert "Asserted: done" in ended
        assert shown.end() == 0
    assert bench.config.read_text() == "PORT = 9090\n"


@pytest.mark.thorough
def test_a_question_in_a_terminal_does_not_hold_the_thread(bench: Bench) -> None:
    with terminal(bench, *run_words(bench)) as shown:
        shown.until("your own words > ")
        assert not is_locked(bench.database, "t1")
        code, _, err = bench.process("resume", "t1", "8080")
        assert (code, err, bench.config.read_text()) == (0, "", "PORT = 8080\n")
        before = bench.json("show", "t1")
        shown.type("9090\n")
        shown.until("does not wait for an answer; nothing was changed")
        assert shown.end() == 2
    assert (bench.json("show", "t1"), bench.config.read_text()) == (before, "PORT = 8080\n")


def test_killed_while_it_asks_then_answered_in_another_process(bench: Bench) -> None:
    with terminal(bench, *run_words(bench)) as shown:
        shown.until("your own words > ")
        shown.process.kill()
        assert shown.end() == -signal.SIGKILL
    code, out, err = bench.process("resume", "t1")
    assert (code, err) == (4, "")
    *rest, _ = offered(out)["Answer"]
    code, out, err = bench.process(*rest, "8080")
    assert (code, err, bench.config.read_text()) == (0, "", "PORT = 8080\n"), out


@pytest.mark.thorough
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


def test_json_has_nothing_else_on_stdout(bench: Bench) -> None:
    code, out, err = bench.process(*run_words(bench, "--json"), real=True)
    assert (code, err) == (4, "")
    assert out.startswith("{")
    assert json.loads(out)["question"]["question"] == "Which port?"


@pytest.mark.thorough
def test_a_pipe_gets_no_control_codes_but_the_colours_that_the_environment_asks_for(bench: Bench) -> None:
    bench.env["FORCE_COLOR"] = "1"
    code, out, _ = bench.process(*run_words(bench), real=True)
    assert code == 4
    assert "\x1b" not in re.sub(r"\x1b\[[\d;]*m", "", out)


@pytest.mark.thorough
def test_a_terminal_without_unicode_gets_escapes(bench: Bench) -> None:
    bench.env |= {"PYTHONIOENCODING": "ascii"}
    code, out, err = bench.process(*run_words(bench))
    assert (code, err) == (4, "")
    assert "read_file  config.py" in out


@pytest.mark.thorough
def test_a_reader_that_goes_away_is_no_traceback(bench: Bench) -> None:
    bench.run()
    with bench.start("show", "t1") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


COUNT = "for n in 1 2 3 4 5 6 7 8 9; do printf '\\033]0;x\\a<step %s>\\n' $n; sleep 0.5; done"
SHELL = f'call("run_shell", command={COUNT!r})'


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
        shown.type("approve but not the second\n")
        shown.until("Nothing was approved")
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


def test_one_runner_a_thread(bench: Bench) -> None:
    bench.model(SLOW, delay=0.1)
    with bench.start(*run_words(bench, "--turns", "500")) as process:
        wait_for(bench, 1)
        assert is_locked(bench.database, "t1")
        for words in (("run", "x", "--thread", "t1"), ("resume", "t1"), ("extend", "t1"), ("retry", "t1")):
            code, out, err = bench.process(*words)
            assert (code, out) == (2, "")
            assert "'t1' is running elsewhere" in err
            assert err.count("\n") == 1
        assert json.loads(bench("threads", "--json").stdout)[0]["status"] == "running"
        process.kill()
    assert not is_locked(bench.database, "t1")
    assert json.loads(bench("threads", "--json").stdout)[0]["status"] == "stopped"


def test_the_output_of_a_command_appears_while_it_runs(bench: Bench) -> None:
    bench.model(steps(SHELL, DONE))
    with terminal(bench, *run_words(bench)) as shown:
        shown.until("<step 2>")
        assert [event["kind"] for event in bench.told()] == ["user"]
        assert "\x1b]0;" not in shown.until("exit code 0")
        assert shown.end() == 0
    assert bench.told()[1]["result"].count("step 9") == 1
