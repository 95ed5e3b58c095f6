"""How fast a command starts: by what it imports, which is the same everywhere, and by a bound of CPU."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from signoff.cli.app import COMMANDS, SUMMARIES, _command
from signoff.stats.records import RecordedItem
from signoff.storage.entries import entry_reader
from signoff.storage.sqlite import sqlite_storage
from tests.support.benches.cli import Bench

AGENTS = frozenset({"langgraph", "langchain_core", "langchain", "langsmith"})
PROGRAM = (
    "import atexit, sys; from signoff.cli import main; sys.argv[1:] = {words!r}; "
    "atexit.register(lambda: sys.stderr.write(' '.join(sys.modules))); main()"
)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    made.model('[call("read_file", path="config.py"), call("finish_task", summary="Read.")]')
    assert made.run().exit_code == 0
    return made


def started(bench: Bench, *words: str) -> tuple[str, set[str], float]:
    """What a command prints in a process of its own, the packages that it imports, and its seconds of CPU."""
    env = {**os.environ, **{name: value for name, value in bench.env.items() if value is not None}}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(words=list(words))],
        capture_output=True,
        text=True,
        check=True,
        env=env,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, {name.partition(".")[0] for name in done.stderr.split()}, seconds


# The bounds are generous, for busy machines: what a module too many costs shows in the packages first.
@pytest.mark.parametrize(
    ("words", "needless", "most_seconds"),
    [
        ("--version", AGENTS | {"pydantic", "rich"}, 1.0),
        ("--help", AGENTS | {"pydantic"}, 1.5),
        ("stats", AGENTS, 2.0),
        ("stats --thread t1 --json", AGENTS, 2.0),
        ("run --help", frozenset({"textual", "psycopg"}), 8.0),
    ],
)
def test_a_command_imports_no_more_than_it_needs(
    bench: Bench, words: str, needless: frozenset[str], most_seconds: float
) -> None:
    out, packages, seconds = started(bench, *words.split())
    assert out
    assert "typer" in packages
    assert packages & needless == set()
    assert seconds < most_seconds


def test_the_list_of_commands_says_what_each_says_of_itself() -> None:
    told = {name: " ".join((_command(name).help or "").split("\n\n")[0].split()) for name in COMMANDS}
    assert told == SUMMARIES


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_completes_the_names_of_commands_without_importing_them(bench: Bench, shell: str) -> None:
    bench.env |= {
        "_SIGNOFF_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": "signoff th",
        "COMP_WORDS": "signoff th",
        "COMP_CWORD": "1",
    }
    program = (
        "import sys; from signoff.cli.app import app; sys.argv[0] = 'signoff'\n"
        "try: app(prog_name='signoff')\n"
        "finally: sys.stderr.write(' '.join(sys.modules))"
    )
    env = {**os.environ, **{name: value for name, value in bench.env.items() if value is not None}}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env)
    assert "threads" in done.stdout
    assert "resume" not in done.stdout
    assert {name.partition(".")[0] for name in done.stderr.split()} & AGENTS == set()


def test_the_entries_are_those_of_the_store(bench: Bench) -> None:
    """Also below a name that another one begins with, page by page."""
    with sqlite_storage(bench.database) as storage:
        for number in range(5):
            storage.store.put(("signoff", "outcomes2"), str(number), {"number": number})
        names = [("signoff",), ("signoff", "outcomes"), ("signoff", "outcomes2"), ("signoff", "out"), ("no",)]
        with entry_reader(bench.database) as reader:
            assert reader is not None
            assert set(reader.threads()) == set(storage.threads())
            for name in names:
                for limit, offset in ((100, 0), (2, 0), (2, 2)):
                    found = reader.search(name, limit=limit, offset=offset)
                    wanted = storage.store.search(name, limit=limit, offset=offset)
                    assert len(found) == len(wanted)
                    if limit == 100:
                        assert sorted(map(repr_of, found)) == sorted(map(repr_of, wanted))


def repr_of(item: RecordedItem) -> str:
    # LangGraph's store leaves out that its times are in UTC.
    return repr((item.namespace, item.key, item.value, item.updated_at.replace(tzinfo=None)))


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + bytes(100)])
def test_what_is_no_database_of_ours_is_left_to_the_storage(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "other.sqlite"
    file.write_bytes(content)
    with entry_reader(file) as reader:
        assert reader is None
    assert file.read_bytes() == content
    with entry_reader(tmp_path / "none.sqlite") as reader:
        assert reader is None
    assert not (tmp_path / "none.sqlite").exists()
