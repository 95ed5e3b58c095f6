"""Wrong usage: one clear sentence on stderr, exit code 2, no traceback, and the thread stays usable."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from signoff.storage.sqlite import thread_lock
from tests.support.benches.cli import Bench, bare, offered, one_sentence

LOOK = 'call("read_file", path="config.py")'

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
    "empty thread": (["run", "x", "-t", ""], ["not empty and without NUL"]),
    "long thread": (["run", "x", "-t", "x" * 501], ["at most 500 characters"]),
    "NUL in thread": (["resume", "a\0b"], ["without NUL"]),
    "unknown thread": (["resume", "nope"], ["no thread 'nope'", "signoff threads"]),
    "show unknown thread": (["show", "nope"], ["no thread 'nope'", "signoff threads"]),
    "thread, control characters": (["resume", "a\x1b[31m"], ["no thread", "signoff threads"]),
    "no turns more": (["extend", "t", "0"], ["TURNS"]),
    "negative turns": (["extend", "t", "--", "-3"], ["TURNS"]),
    "garbage turns more": (["extend", "t", "many"], ["TURNS"]),
    "a fraction of turns": (["extend", "t", "1.5"], ["TURNS"]),
    "turns without end": (["extend", "t", "9" * 5000], ["TURNS"]),
    "turns as an option": (["extend", "t", "--turns", "3"], ["--turns"]),
    "the old way to extend": (["resume", "t", "--turns", "3"], ["--turns"]),
    "the old way to retry": (["resume", "t", "--retry"], ["--retry"]),
    "retry with turns": (["retry", "t", "3"], ["unexpected extra argument"]),
    "pause with a model": (["pause", "t", "--model", "m"], ["--model"]),
    "pause of nothing": (["pause"], ["THREAD"]),
    "fork without a name": (["fork", "t", "--to"], ["--to"]),
    "expire with a date": (["threads", "--expire", "tomorrow"], ["unexpected extra argument"]),
    "empty database": (["threads", "-d", ""], ["--database is empty"]),
    "another kind of database": (["threads", "-d", "mysql://me:s3cret@h/db"], ["postgresql://user@host/"]),
    "an address of a file": (["threads", "-d", "sqlite:///tmp/x"], ["pass a file"]),
}

ON_A_THREAD = ["resume", "extend", "retry", "pause", "fork", "show"]
IDS: dict[str, tuple[str, str]] = {
    "slashes": ("../../etc/passwd", "no thread '../../etc/passwd'"),
    "quotes": ('it\'s "quoted"; DROP TABLE checkpoints; --', "no thread"),
    "wildcards": ("%", "no thread '%'"),
    "an option": ("-x", "no thread '-x'"),
    "half a character": ("a\ud800", "without NUL"),
    "NUL": ("t1\0", "without NUL"),
    "empty": ("", "not empty and without NUL"),
    "10,000 characters": ("x" * 10_000, "at most 500 characters here; this one has 10000"),
    "500 characters": ("x" * 500, "no thread 'xxx"),
    "unknown": ("nope", "no thread 'nope'"),
}

COMMANDS = [["run", "x"], ["threads"], ["threads", "--expire"], *([name, "t1"] for name in ON_A_THREAD)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("case", COMMAND_LINES)
def test_command_line(bench: Bench, case: str) -> None:
    words, parts = COMMAND_LINES[case]
    result = bench(*words)
    one_sentence(result, *parts)
    assert "\x1b" not in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("database", [True, False], ids=["a database", "no database yet"])
@pytest.mark.parametrize("case", IDS)
@pytest.mark.parametrize("command", ON_A_THREAD)
@pytest.mark.sample(12)
def test_a_thread_that_is_none(bench: Bench, command: str, case: str, database: bool) -> None:
    thread, told = IDS[case]
    if database:
        bench.run()
    result = bench(command, "--", thread)
    one_sentence(result, told)
    assert len(result.stderr) < 1000
    assert bench.database.exists() == database
    assert not database or bench.json("show", "t1")["status"] == "waiting"


def test_json_too_says_it_in_a_document(bench: Bench) -> None:
    result = bench("run", "x", "--turns", "0", "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["status"], found["exit_code"]) == (2, "error", 2)
    assert "--turns" in found["error"]


def test_a_thread_that_another_process_runs(bench: Bench) -> None:
    bench.run()
    with thread_lock(bench.database, "t1"):
        one_sentence(bench("resume", "t1", "8080"), "'t1' is running elsewhere")
        assert bench.json("show", "t1")["status"] == "running"
        assert bench("show", "t1").stdout.endswith("It is running in another process.\n")
    assert bench("resume", "t1", "8080").exit_code == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_is_no_database(bench: Bench, command: list[str]) -> None:
    bench.database.write_text("This is a text.\n" * 100)
    one_sentence(bench(*command), str(bench.database), "cannot be used")
    assert bench.database.read_text().startswith("This is a text.")


@pytest.mark.parametrize("command", COMMANDS)
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
    for command in (
        ["show", "t1"],
        ["resume", "t1", "8080"],
        ["run", "x", "-t", "t1"],
        ["extend", "t1"],
        ["retry", "t1"],
        ["fork", "t1", "--to", "copy"],
        ["fork", "t1", "--at", "1"],
    ):
        one_sentence(bench(*command), "'t1' cannot be read", "begin another")
    found = {row["thread_id"]: row["status"] for row in json.loads(bench("threads", "--json").stdout)}
    assert found == {"t1": "damaged", "t2": "waiting"}
    assert "damaged" in bench("threads").stdout
    assert bench("resume", "t2", "8080").exit_code == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_a_database_that_is_a_folder(bench: Bench, command: list[str], tmp_path: Path) -> None:
    one_sentence(bench(*command, "--database", str(tmp_path)), str(tmp_path), "cannot be used")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_database_below_a_file(bench: Bench, command: list[str]) -> None:
    below = str(bench.config / "db")
    result = bench(*command, "--database", below)
    if command[0] != "threads":
        one_sentence(result, below)


@pytest.mark.slow
@pytest.mark.thorough
def test_a_database_that_another_program_holds(bench: Bench) -> None:
    bench.run()
    with closing(sqlite3.connect(bench.database)) as other:
        other.execute("BEGIN EXCLUSIVE")
        started = [bench.start(*command) for command in COMMANDS]
        for process in started:
            with process:
                out, err = process.communicate(timeout=100)
            assert (process.returncode, out, err.count("\n")) == (2, "", 1), err
            # One of them finds it locked, while the others wait for their turn to open it.
            assert "locked" in err or "opening the database" in err
    assert bench.json("show", "t1")["status"] == "waiting"


def test_a_database_that_fails_in_the_middle_of_a_run(bench: Bench) -> None:
    broken = f"(c := __import__('sqlite3').connect({str(bench.database)!r})).execute('DROP TABLE writes')"
    bench.model(f"[lambda m: ({broken}, c.close(), {LOOK})[-1]]")
    result = bench.run()
    assert (result.exit_code, result.stderr) == (1, "")
    assert "The database failed (no such table: writes)" in result.stdout
    assert bare(offered(result.stdout)["Try again"]) == ["resume", "t1"]


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
    one_sentence(bench("run", "x"), "no longer exists")
