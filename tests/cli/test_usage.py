"""How commands are called: the help, wrong usage, and databases and threads that cannot be used.

Wrong usage is one sentence on stderr that names what is wrong, exit code 2, and changes nothing.
"""

import json
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from signoff import sqlite_storage
from tests.support.benches.cli import Bench, one_sentence

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"


def shown(bench: Bench, *words: str) -> str:
    result = bench(*words, COLUMNS="100", TERMINAL_WIDTH="100")
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def test_every_command_stands_in_its_group_in_one_line_that_the_docs_have_too(bench: Bench) -> None:
    listed = shown(bench, "--help")
    rows = re.findall(r"^\| (.*?) \| `(\w+)` \| (.*) \|$", DOCS.read_text("utf-8"), re.M)
    panels = dict.fromkeys(panel for panel, _, _ in rows)
    wanted = [word for panel in panels for word in (panel, *(row[1] for row in rows if row[0] == panel))]
    found = [panel or name for panel, name in re.findall(r"╭─ (.*?) ─|^│ (\w+)  ", listed, re.M)]
    assert found == ["Options", *wanted]
    for _, name, text in rows:
        assert re.search(rf"^│ {name} +{re.escape(text)} +│$", listed, re.M), name
        assert re.findall(r"<\w+>", shown(bench, name, "--help")) == [], "a type beside a flag"


def test_force_color_gives_a_pipe_colours_and_nothing_else(bench: Bench) -> None:
    bench.run()
    plain, found = bench("threads").stdout, bench("threads", FORCE_COLOR="1").stdout
    assert ("\x1b[" in plain, "\x1b[" in found) == (False, True)
    assert re.sub(r"\x1b\[[\d;]*m", "", found) == plain
    assert bench("threads", FORCE_COLOR="1", NO_COLOR="1").stdout == plain
    assert "\x1b" not in bench("show", "t1", "--json", FORCE_COLOR="1").stdout


# A command line, and what its one sentence names.
WRONG: dict[str, tuple[Sequence[str], str]] = {
    "no such command": (["thraeds"], "'threads'"),
    "no argument": (["show"], "'THREAD'"),
    "an empty task": (["run", "  "], "task"),
    "seconds that are no number": (["run", "x", "--seconds", "nan"], "--seconds"),
    "no workspace": (["run", "x", "-w", "/no/such/folder"], "--workspace"),
    "the whole disk": (["run", "x", "-w", "/"], "/"),
    "no script": (["run", "x", "-m", "scripted:/no/such.py"], "/no/such.py"),
    "no key": (["run", "x", "-m", "gpt-x"], "OPENAI_API_KEY"),
    "turns without end": (["resume", "t", "--turns", "9" * 5000], "--turns"),
    "an answer and turns": (["resume", "t", "blue", "--turns", "3"], "--turns"),
    "no limit of a list": (["threads", "--limit=0"], "--limit"),
    "a rating of no thread": (["stats", "--rate", "4"], "--thread"),
    "figures of an unknown thread": (["stats", "--thread", "ghost"], "'ghost'"),
    "neither a thread nor an age": (["delete", "--yes"], "--older"),
    "a redaction without a test": (["replay", "t", "--redact", "a:b"], "--to-test"),
    "a graph and a model": (["run", "x", "--graph", "a:b", "--model", "m"], "--model"),
    "another kind of database": (["threads", "-d", "mysql://me:s3cret@h/db"], "postgresql://"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_is_one_sentence_that_names_it(bench: Bench, case: str) -> None:
    words, named = WRONG[case]
    result = bench(*words)
    one_sentence(result, named)
    assert "s3cret" not in result.stderr
    assert len(result.stderr) < 1000
    assert bench("show", "t").exit_code == 2


def test_with_json_a_document_says_it_too(bench: Bench) -> None:
    result = bench("run", "x", "--turns", "0", "--json")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["status"], document["exit_code"]) == (2, "error", 2)
    assert "--turns" in document["error"]
    assert result.stderr == f"{document['error']}\n"


ON_A_THREAD = ["resume", "pause", "undo", "fork", "show", "replay", "delete"]
NO_THREADS: dict[str, tuple[str, str]] = {
    "an escape": ("a\x1b[31m", "thread"),
    "half a character": ("a\ud800", "NUL"),
    "10,000 characters": ("x" * 10_000, "500"),
}


@pytest.mark.parametrize("case", NO_THREADS)
def test_a_thread_that_is_none(bench: Bench, case: str) -> None:
    thread, named = NO_THREADS[case]
    for has_database in (False, True):
        if has_database:
            bench.run()
        for command in ON_A_THREAD:
            result = bench(command, *["--yes"] * (command == "delete"), "--", thread)
            one_sentence(result, named)
            assert "\x1b" not in result.stderr
        assert bench.database.exists() == has_database
    assert bench.json("show", "t1")["status"] == "waiting"


COMMANDS_ON_A_DATABASE = [["run", "x"], ["threads"], ["threads", "--expire"], ["stats", "--thread", "t1"]]
COMMANDS_ON_A_DATABASE += [[name, "t1"] for name in ON_A_THREAD]


def _newer(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version=99")


UNUSABLE: dict[str, Callable[[Path], object]] = {
    "a text": lambda file: file.write_text("This is a text.\n" * 100),
    "newer": _newer,
    "a folder": Path.mkdir,
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_database_that_cannot_be_used_is_left_as_it_is(bench: Bench, case: str) -> None:
    if case == "newer":
        bench.run()
    UNUSABLE[case](bench.database)
    before = bench.database.read_bytes() if bench.database.is_file() else b""
    for command in COMMANDS_ON_A_DATABASE:
        one_sentence(bench(*command), str(bench.database))
    assert (bench.database.read_bytes() if bench.database.is_file() else b"") == before


def test_a_database_that_is_named_and_not_there(bench: Bench) -> None:
    missing, below = bench.folder / "misspelt.sqlite", bench.config / "threads.sqlite"
    for command in (*COMMANDS_ON_A_DATABASE, ["delete", "--older", "1d"], ["stats"]):
        one_sentence(bench(*command, "--database", str(below)), str(below))
        if command[0] != "run":
            one_sentence(bench(*command, "--database", str(missing)), str(missing))
    assert not missing.exists()


def test_the_own_database_that_is_not_there_is_empty(bench: Bench) -> None:
    for words in (["threads"], ["threads", "--expire"], ["stats"], ["delete", "--older", "1d", "--yes"]):
        result = bench(*words)
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout.count("\n") == 1
        json.loads(bench(*words, "--json").stdout)
    assert not bench.database.exists()


def test_a_damaged_thread_beside_a_whole_one(bench: Bench) -> None:
    bench.run()
    bench.run(thread="t2")
    with closing(sqlite3.connect(bench.database)) as connection, connection:
        connection.execute("UPDATE checkpoints SET checkpoint=x'c1' WHERE thread_id='t1'")
    for words in (["show", "t1"], ["resume", "t1"], ["fork", "t1", "--at", "1"], ["run", "-t", "t1", "x"]):
        one_sentence(bench(*words), "'t1'")
    found = {row["thread_id"]: row["status"] for row in json.loads(bench("threads", "--json").stdout)}
    assert found == {"t1": "damaged", "t2": "waiting"}
    assert bench("resume", "t2", "8080").exit_code == 0


def test_a_thread_that_somebody_else_runs_is_only_looked_at(bench: Bench) -> None:
    bench.run()
    # Another spelling of the database is the same one.
    (bench.folder / "link").symlink_to(bench.database)
    with sqlite_storage(bench.database) as storage, storage.runner("t1"):
        for words in (
            ["resume", "t1", "8080"],
            ["run", "x", "-t", "t1"],
            ["replay", "t1"],
            ["delete", "t1", "-y"],
        ):
            one_sentence(bench(*words), "'t1'")
        found = bench.json("show", "t1", "-d", str(bench.folder / "link"))
        assert (found["status"], found["question"], found["resume"]) == ("running", None, None)
        (row,) = json.loads(bench("threads", "--json").stdout)
        assert (row["status"], row["waits_for"], row["what"]) == ("running", None, None)
    assert bench("resume", "t1", "8080").exit_code == 0


def test_a_folder_that_is_gone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.run()
    moved = bench.workspace.rename(bench.folder / "moved")
    one_sentence(bench("resume", "t1", "8080"), str(bench.workspace))
    assert bench("resume", "t1", "8080", "-w", str(moved)).exit_code == 0
    (gone := bench.folder / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    one_sentence(bench("run", "x"), "folder")
