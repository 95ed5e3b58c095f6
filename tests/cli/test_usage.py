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
from signoff.cli.app import COMMANDS, PANELS, SUMMARIES, Loaded
from tests.support.benches.cli import Bench, first_offered, one_sentence

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"


def shown(bench: Bench, *words: str) -> str:
    result = bench(*words, COLUMNS="100", TERMINAL_WIDTH="100")
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def test_every_command_stands_in_its_group_in_one_line_that_the_docs_have_too(bench: Bench) -> None:
    listed = shown(bench, "--help")
    found = [panel or name for panel, name in re.findall(r"╭─ (.*?) ─|^│ (\w+)  ", listed, re.M)]
    assert found == ["Options", *(word for panel, names in PANELS.items() for word in (panel, *names))]
    assert sorted(name for names in PANELS.values() for name in names) == sorted(COMMANDS)
    assert not [line for line in listed.partition("Run a task")[2].splitlines() if line[:4] == "│   "]
    told = {name: " ".join((Loaded()[name].help or "").split("\n\n")[0].split()) for name in COMMANDS}
    assert told == SUMMARIES
    rows = [f"| {panel} | `{name}` | {told[name]} |" for panel in PANELS for name in PANELS[panel]]
    assert [line for line in DOCS.read_text("utf-8").splitlines() if re.match(r"\| .*`", line)] == rows
    for name in COMMANDS:
        assert re.findall(r"<\w+>", shown(bench, name, "--help")) == [], "a type beside a flag"


def test_the_version(bench: Bench) -> None:
    assert shown(bench, "--version").split()[0] == "signoff"


@pytest.mark.parametrize("forbidden", [False, True])
def test_force_color_gives_a_pipe_colours_and_nothing_else(bench: Bench, forbidden: bool) -> None:
    env = {"FORCE_COLOR": "1", "NO_COLOR": "1" if forbidden else None}
    bench.run()
    plain, found = bench("threads").stdout, bench("threads", **env).stdout
    assert ("\x1b[" in plain, "\x1b[" in found) == (False, not forbidden)
    assert re.sub(r"\x1b\[[\d;]*m", "", found) == plain
    assert "\x1b" not in bench("show", "t1", "--json", **env).stdout


# A command line, and what its one sentence names.
WRONG: dict[str, tuple[Sequence[str], str]] = {
    "no such command": (["thraeds"], "'threads'"),
    "no argument": (["show"], "'THREAD'"),
    "an empty task": (["run", "  "], "task"),
    "no turns": (["run", "x", "--turns", "0"], "--turns"),
    "seconds that are no number": (["run", "x", "--seconds", "nan"], "--seconds"),
    "no workspace": (["run", "x", "-w", "/no/such/folder"], "--workspace"),
    "the whole disk": (["run", "x", "-w", "/"], "/"),
    "unknown tools": (["run", "x", "--tools", "files,frob"], "--tools"),
    "no script": (["run", "x", "-m", "scripted:/no/such.py"], "/no/such.py"),
    "no key": (["run", "x", "-m", "gpt-x"], "OPENAI_API_KEY"),
    "an address of another kind": (["run", "x", "-m", "m", "--base-url", "ftp://h/v1"], "http://"),
    "a queue without workers": (["run", "x", "--queue", "q"], "--queue"),
    "turns without end": (["resume", "t", "--turns", "9" * 5000], "--turns"),
    "which one, but no answer": (["resume", "t", "--to", "a"], "--to"),
    "an answer and turns": (["resume", "t", "blue", "--turns", "3"], "--turns"),
    "no limit of a list": (["threads", "--limit=0"], "--limit"),
    "an unknown condition": (["threads", "--condition", "lost"], "--condition"),
    "a rating of no thread": (["stats", "--rate", "4"], "--thread"),
    "since a time that is none": (["stats", "--since", "yesterday"], "--since"),
    "figures of an unknown thread": (["stats", "--thread", "ghost"], "'ghost'"),
    "older than a time that is none": (["delete", "--older", "30x"], "--older"),
    "neither a thread nor an age": (["delete", "--yes"], "--older"),
    "a thread and an age": (["delete", "t", "--older", "30d", "--yes"], "--older"),
    "nobody to ask before deleting": (["delete", "--older", "2099-01-01"], "--yes"),
    "a redaction without a test": (["replay", "t", "--redact", "a:b"], "--to-test"),
    "a graph and a model": (["run", "x", "--graph", "a:b", "--model", "m"], "--model"),
    "a graph that is not there": (["run", "x", "--graph", "no/file.py:graph"], "no/file.py"),
    "a graph for the workers": (["run", "x", "--submit", "--graph", "a:b"], "--graph"),
    "no database": (["threads", "-d", ""], "--database"),
    "another kind of database": (["threads", "-d", "mysql://me:s3cret@h/db"], "postgresql://"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_is_one_sentence_that_names_it(bench: Bench, case: str) -> None:
    words, named = WRONG[case]
    if words[0] == "delete" and "--older" in words:
        bench.run()
        bench("resume", "t1", "8080")
    result = bench(*words)
    one_sentence(result, named)
    assert "s3cret" not in result.stderr
    assert len(result.stderr) < 1000
    assert bench("show", "t").exit_code == 2


def test_with_json_a_document_says_it_too(bench: Bench) -> None:
    for words, named in ((["run", "x", "--turns", "0"], "--turns"), (["show", "t", "--html", "-"], "--html")):
        result = bench(*words, "--json")
        document = json.loads(result.stdout)
        assert (result.exit_code, document["status"], document["exit_code"]) == (2, "error", 2)
        assert named in document["error"]
        assert result.stderr == f"{document['error']}\n"


ON_A_THREAD = ["resume", "pause", "undo", "fork", "show", "replay", "delete"]
NO_THREADS: dict[str, tuple[str, str]] = {
    "slashes": ("../../etc/passwd", "'../../etc/passwd'"),
    "an escape": ("a\x1b[31m", "thread"),
    "half a character": ("a\ud800", "NUL"),
    "NUL": ("t1\0", "NUL"),
    "empty": ("", "NUL"),
    "10,000 characters": ("x" * 10_000, "500"),
}


@pytest.mark.parametrize("command", ON_A_THREAD)
def test_a_thread_that_is_none(bench: Bench, command: str) -> None:
    yes = ["--yes"] if command == "delete" else []
    for has_database in (False, True):
        if has_database:
            bench.run()
        for thread, named in NO_THREADS.values():
            result = bench(command, *yes, "--", thread)
            one_sentence(result, named)
            assert "\x1b" not in result.stderr
        assert bench.database.exists() == has_database
    assert bench.json("show", "t1")["status"] == "waiting"


COMMANDS_ON_A_DATABASE = [["run", "x"], ["threads"], ["threads", "--expire"], ["stats", "--thread", "t1"]]
COMMANDS_ON_A_DATABASE += [[name, "t1"] for name in ON_A_THREAD]


def _text(file: Path) -> None:
    file.write_text("This is a text.\n" * 100)


def _newer(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version=99")


UNUSABLE: dict[str, Callable[[Path], object]] = {
    "a text": _text,
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


@pytest.mark.parametrize("command", [*COMMANDS_ON_A_DATABASE, ["delete", "--older", "1d"], ["stats"]])
def test_a_database_that_is_named_and_not_there(bench: Bench, command: list[str]) -> None:
    missing = bench.folder / "misspelt.sqlite"
    if command[0] != "run":
        one_sentence(bench(*command, "--database", str(missing)), str(missing))
        assert not missing.exists()
    below = bench.config / "threads.sqlite"
    one_sentence(bench(*command, "--database", str(below)), str(below))


def test_the_own_database_that_is_not_there_is_empty(bench: Bench) -> None:
    for words in (["threads"], ["threads", "--expire"], ["stats"], ["delete", "--older", "1d", "--yes"]):
        result = bench(*words)
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout.count("\n") == 1
        json.loads(bench(*words, "--json").stdout)
    assert not bench.database.exists()


DAMAGE = [
    "UPDATE checkpoints SET checkpoint=x'c1' WHERE thread_id='t1'",
    "UPDATE writes SET value=x'c1' WHERE thread_id='t1'",
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_thread_beside_a_whole_one(bench: Bench, damage: str) -> None:
    bench.run()
    bench.run(thread="t2")
    with closing(sqlite3.connect(bench.database)) as connection, connection:
        connection.execute(damage)
    for command in (["show"], ["resume"], ["fork"], ["fork", "--at", "1"], ["run", "-t"]):
        words = [*command, "t1", "8080"] if command[0] == "run" else [command[0], "t1", *command[1:]]
        one_sentence(bench(*words), "'t1'")
    found = {row["thread_id"]: row["status"] for row in json.loads(bench("threads", "--json").stdout)}
    assert found == {"t1": "damaged", "t2": "waiting"}
    assert bench("resume", "t2", "8080").exit_code == 0


def test_a_database_that_fails_in_the_middle_of_a_run(bench: Bench) -> None:
    broken = f"(c := __import__('sqlite3').connect({str(bench.database)!r})).execute('DROP TABLE writes')"
    bench.model(f"[lambda m: ({broken}, c.close(), call('read_file', path='config.py'))[-1]]")
    result = bench.run()
    assert (result.exit_code, result.stderr, first_offered(result.stdout)) == (1, "", ["resume", "t1"])


def test_a_thread_that_somebody_else_runs_is_only_looked_at(bench: Bench) -> None:
    bench.run()
    with sqlite_storage(bench.database) as storage, storage.runner("t1"):
        for words in (
            ["resume", "t1", "8080"],
            ["run", "x", "-t", "t1"],
            ["replay", "t1"],
            ["delete", "t1", "-y"],
        ):
            one_sentence(bench(*words), "'t1'")
        # Another spelling of the database is the same one.
        (bench.folder / "link").symlink_to(bench.database)
        found, shown = bench.json("show", "t1", "-d", str(bench.folder / "link")), bench("show", "t1").stdout
        assert (found["status"], found["question"], found["resume"]) == ("running", None, None)
        assert shown.startswith("t1 · running · ")
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
