"""Wrong usage: one clear sentence on stderr, exit code 2, no traceback, and the thread stays usable."""

import json
import sqlite3
from pathlib import Path

import pytest

from signoff import sqlite_storage
from signoff.cli.standing import config_of, reading_graph
from signoff.locks import thread_lock
from tests.cli_bench import Bench, one_sentence, steps

DONE = 'call("finish_task", summary="All done.")'

COMMAND_LINES: dict[str, tuple[list[str], list[str]]] = {
    "no turns": (["run", "x", "--turns", "0"], ["--turns"]),
    "garbage turns": (["run", "x", "--turns", "many"], ["--turns"]),
    "no talk turns": (["run", "x", "--talk-turns", "0"], ["--talk-turns"]),
    "no task": (["run"], ["TASK"]),
    "empty task": (["run", "  "], ["The task is empty"]),
    "no such option": (["run", "x", "--frob"], ["--frob"]),
    "no such command": (["frob"], ["frob"]),
    "no workspace": (["run", "x", "-w", "/no/such/folder"], ["not an existing folder"]),
    "whole disk": (["run", "x", "-w", "/"], ["cannot be a workspace"]),
    "no prompt file": (["run", "x", "--system-prompt", "@/no/such/file"], ["system prompt"]),
    "no script": (["run", "x", "-m", "scripted:/no/such.py"], ["There is no file /no/such.py"]),
    "no key": (["run", "x", "-m", "gpt-x"], ["OPENAI_API_KEY"]),
    "no address": (["run", "x", "-m", "m", "--base-url", "localhost:80"], ["http://"]),
    "address alone": (["run", "x", "-m", "local", "--base-url", "http://h/v1"], ["--model"]),
    "empty thread": (["run", "x", "-t", ""], ["1 to 500 characters"]),
    "long thread": (["run", "x", "-t", "x" * 501], ["1 to 500 characters"]),
    "NUL in thread": (["resume", "a\0b"], ["without NUL"]),
    "unknown thread": (["resume", "nope"], ["no thread 'nope'", "signoff threads"]),
    "show unknown thread": (["show", "nope"], ["no thread 'nope'", "signoff threads"]),
    "thread, control characters": (["resume", "a\x1b[31m"], ["no thread", "signoff threads"]),
}

THREADS: dict[str, tuple[str, list[str], list[str], list[str]]] = {
    "resume a success": (steps(DONE), [], ["t1"], ["has ended (success, done)", "signoff run"]),
    "answer to a success": (steps(DONE), [], ["t1", "blue"], ["nothing waits", "signoff run"]),
    "extend a success": (steps(DONE), [], ["t1", "--turns", "5"], ["has ended (success, done)"]),
    "resume after a limit": ("['a'] * 9", ["--turns", "2"], ["t1"], ["(limit, turns)", "--turns 10"]),
    "retry after a limit": ("['a'] * 9", ["--turns", "2"], ["t1", "--retry"], ["(limit, turns)"]),
    "resume after an error": (steps("ValueError()"), [], ["t1"], ["(error, model_error)", "--retry"]),
    "extend a question": (
        steps('call("ask_user", question="?")'),
        [],
        ["t1", "--turns", "1"],
        ["has not ended", "at a limit"],
    ),
    "retry a question": (
        steps('call("ask_user", question="?")'),
        [],
        ["t1", "--retry"],
        ["has not ended", "an error"],
    ),
}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("case", COMMAND_LINES)
def test_command_line(bench: Bench, case: str) -> None:
    words, parts = COMMAND_LINES[case]
    result = bench(*words)
    one_sentence(result, *parts)
    assert "\x1b" not in result.stderr


def test_json_too_says_it_in_a_document(bench: Bench) -> None:
    result = bench("run", "x", "--turns", "0", "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["status"], found["exit_code"]) == (2, "error", 2)
    assert "--turns" in found["error"]


@pytest.mark.parametrize("case", THREADS)
def test_thread(bench: Bench, case: str) -> None:
    script, options, words, parts = THREADS[case]
    bench.model(script)
    bench.run("Do it", *options)
    before = bench.json("show", "t1")
    one_sentence(bench("resume", *words), *parts)
    assert bench.json("show", "t1") == before


def test_an_answer_to_a_thread_that_stopped(bench: Bench) -> None:
    with sqlite_storage(bench.database) as storage:
        values = {"messages": [("user", "the first")]}
        reading_graph(storage).update_state(config_of("t1"), values, as_node="__start__")
    one_sentence(bench("resume", "t1", "blue"), "nothing waits", "signoff resume")


def test_a_thread_that_another_process_runs(bench: Bench) -> None:
    bench.run()
    with thread_lock(bench.database, "t1"):
        one_sentence(bench("resume", "t1", "8080"), "'t1' is running elsewhere")
        assert bench.json("show", "t1")["status"] == "running"
        assert bench("show", "t1").stdout.endswith("It is running in another process.\n")
    assert bench("resume", "t1", "8080").exit_code == 0


@pytest.mark.parametrize("command", [["run", "x"], ["resume", "t1"], ["threads"], ["show", "t1"]])
def test_a_file_that_is_no_database(bench: Bench, command: list[str]) -> None:
    bench.database.write_text("This is a text.\n" * 100)
    one_sentence(bench(*command), str(bench.database), "cannot be used")
    assert bench.database.read_text().startswith("This is a text.")


@pytest.mark.parametrize("command", [["run", "x"], ["resume", "t1"], ["threads"], ["show", "t1"]])
def test_a_newer_database(bench: Bench, command: list[str]) -> None:
    bench.run()
    with sqlite3.connect(bench.database) as connection:
        connection.execute("PRAGMA user_version=99")
    connection.close()
    one_sentence(bench(*command), str(bench.database), "newer")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE checkpoints SET checkpoint=x'c1' WHERE thread_id='t1'",
        "UPDATE checkpoints SET checkpoint=x'00ff' WHERE thread_id='t1'",
        "UPDATE checkpoints SET checkpoint=x'80' WHERE thread_id='t1'",
        "UPDATE checkpoints SET metadata='x' WHERE thread_id='t1'",
        "UPDATE writes SET value=x'c1' WHERE thread_id='t1'",
    ],
)
def test_a_damaged_thread_beside_a_whole_one(bench: Bench, damage: str) -> None:
    bench.run()
    bench.run(thread="t2")
    with sqlite3.connect(bench.database) as connection:
        connection.execute(damage)
    connection.close()
    for command in (["show", "t1"], ["resume", "t1", "8080"], ["run", "x", "-t", "t1"]):
        one_sentence(bench(*command), "'t1' cannot be read", "begin another")
    found = {row["thread_id"]: row["status"] for row in json.loads(bench("threads", "--json").stdout)}
    assert found == {"t1": "damaged", "t2": "waiting"}
    assert "damaged" in bench("threads").stdout
    assert bench("resume", "t2", "8080").exit_code == 0


def test_a_database_that_is_a_folder(bench: Bench, tmp_path: Path) -> None:
    one_sentence(bench("run", "x", "--database", str(tmp_path)), str(tmp_path), "cannot be used")


def test_a_workspace_that_is_gone(bench: Bench) -> None:
    bench.run()
    bench.workspace.rename(bench.folder / "moved")
    one_sentence(bench("resume", "t1", "8080"), "not an existing folder")
    assert bench("resume", "t1", "8080", "-w", str(bench.folder / "moved")).exit_code == 0


def test_a_current_folder_that_is_gone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = bench.folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    one_sentence(bench("run", "x"), "does not exist any more")
