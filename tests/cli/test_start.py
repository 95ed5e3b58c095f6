"""How fast a command, and a program that uses the library, start: by what they import, which is the same
everywhere, and by a bound of CPU."""

import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from signoff.cli.app import COMMANDS, SUMMARIES, _command
from signoff.stats.records import RecordedItem
from signoff.storage.entries import entry_reader
from signoff.storage.sqlite import sqlite_storage
from tests.support.benches.cli import Bench

AGENTS = frozenset({"langgraph", "langchain_core", "langchain", "langsmith"})
PROVIDERS = frozenset({"langchain", "langchain_openai", "openai", "psycopg"})
PROGRAM = (
    "import atexit, sys; from signoff.cli import main; sys.argv[1:] = {words!r}; "
    "atexit.register(lambda: sys.stderr.write(' '.join(sys.modules))); main()"
)
LANGGRAPH = "import langgraph.graph"
# A machine is never quiet: what holds in one of so many pairs of measurements holds.
PAIRS = 6


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    made.model('[call("read_file", path="config.py"), call("finish_task", summary="Read.")]')
    assert made.run().exit_code == 0
    return made


def started(bench: Bench, *words: str) -> tuple[str, set[str], float]:
    """What a command prints in a process of its own, the packages that it imports, and its seconds of CPU."""
    env = {**os.environ, **{name: value for name, value in bench.env.items() if value is not None}}
    done, seconds = ran(PROGRAM.format(words=list(words)), env)
    return done.stdout, {name.partition(".")[0] for name in done.stderr.split()}, seconds


def ran(program: str, env: Mapping[str, str] | None = None) -> tuple[subprocess.CompletedProcess[str], float]:
    """A process that has run this program, and its seconds of CPU, its end included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# The bounds are generous, for busy machines: what a module too many costs shows in the packages first.
@pytest.mark.timed
@pytest.mark.parametrize(
    ("words", "needless", "most_seconds"),
    [
        ("--version", AGENTS | {"pydantic", "rich"}, 1.0),
        ("--help", AGENTS | {"pydantic"}, 1.5),
        ("stats", AGENTS, 2.0),
        ("stats --thread t1 --json", AGENTS, 2.0),
        ("threads", PROVIDERS, 4.0),
        ("show t1 --json", PROVIDERS, 4.0),
        ("run --help", frozenset({"psycopg"}), 8.0),
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


@pytest.mark.timed
@pytest.mark.parametrize("words", ["threads", "show t1"])
def test_a_command_that_reads_threads_takes_little_more_than_langgraph_does_to_import(
    bench: Bench, words: str
) -> None:
    pairs = ((started(bench, *words.split())[2], ran(LANGGRAPH)[1]) for _ in range(PAIRS))
    assert any(seconds < 1.25 * langgraph for seconds, langgraph in pairs)


# Each is for few who have the name: some build no graph yet, some graphs have no tools, or no wrapped model.
@pytest.mark.parametrize(
    "late",
    [
        "ctypes",
        "langchain_core.runnables.configurable",
        "langchain_core.runnables.fallbacks",
        "langchain_core.runnables.retry",
        "langgraph.prebuilt",
        "platformdirs",
        "rich",
        "signoff.nodes.call_llm",
        "signoff.nodes.journal",
        "signoff.session",
        "signoff.storage",
    ],
)
def test_the_name_of_build_graph_imports_no_more_than_it_needs(imports: set[str], late: str) -> None:
    assert "signoff.graph.build" in imports
    assert late not in imports


@pytest.fixture(scope="module")
def imports() -> set[str]:
    """What is imported for the name of `build_graph` beside LangGraph."""
    done, _ = ran(
        f"{LANGGRAPH}, sys; before = set(sys.modules); import signoff; signoff.build_graph; "
        "print(*(set(sys.modules) - before))"
    )
    return set(done.stdout.split())


def test_the_name_of_build_graph_takes_a_small_part_of_what_langgraph_takes() -> None:
    program = (
        "from time import process_time as now; begun = now(); import langgraph.graph; there = now(); "
        "import signoff; signoff.build_graph; print((now() - there) / (there - begun))"
    )
    assert any(float(ran(program)[0].stdout) < 0.19 for _ in range(PAIRS))


def test_what_a_command_imports_is_not_collected_when_its_process_ends(bench: Bench) -> None:
    """That alone would take a third of its time. The collector itself runs as ever."""
    env = {**os.environ, **{name: value for name, value in bench.env.items() if value is not None}}
    done, _ = ran(
        "import atexit, gc, sys; from signoff.cli import main; sys.argv[1:] = ['threads']\n"
        "atexit.register(lambda: print(gc.isenabled(), gc.get_freeze_count() > 50_000))\n"
        "main()",
        env,
    )
    assert done.stdout.splitlines()[-1] == "True True"


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
    return repr((item.namespace, item.key, item.value))


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
