"""The SQLite file: how it is opened, and what it refuses."""

import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import ormsgpack
import pytest

from signoff import StorageError, build_graph, sqlite_storage
from signoff.models import ScriptedModel, call
from signoff.storage.base import SCHEMA
from tests.support.programs import run_python
from tests.support.rows import ids

THREAD: Any = {"configurable": {"thread_id": "t"}}


def filled(file: Path) -> Path:
    with sqlite_storage(file) as storage:
        graph = build_graph(ScriptedModel([call("finish_task", summary="x")]), storage=storage)
        graph.invoke({"messages": ["go"]}, THREAD)
    return file


def test_wal_and_normal(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "new" / "folder" / "t.sqlite") as storage:
        read = storage.checkpointer.conn.execute
        assert read("PRAGMA journal_mode").fetchone() == ("wal",)
        assert read("PRAGMA synchronous").fetchone() == (1,)


_OPENS = """
import sys, time
from signoff import sqlite_storage
for line in sys.stdin:
    file, at = line.split()
    time.sleep(max(float(at) - time.time(), 0))
    try:
        with sqlite_storage(file):
            print("opened", flush=True)
    except Exception as error:
        print(error, flush=True)
"""


@pytest.mark.slow
@pytest.mark.thorough
def test_processes_that_open_a_new_file_at_once_all_get_it(tmp_path: Path) -> None:
    """SQLite answers some of them "database is locked", or they add the same column twice."""
    children = [
        subprocess.Popen(
            [sys.executable, "-c", _OPENS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for number in range(25):
        at = time.time() + (0.05 if number else 1)
        for child in children:
            assert child.stdin is not None
            child.stdin.write(f"{tmp_path / str(number)}.sqlite {at}\n")
            child.stdin.flush()
        answers = [child.stdout.readline().strip() for child in children if child.stdout]
        assert answers == ["opened"] * 4
    for child in children:
        child.communicate()


_MANY = """
import resource, sys
from contextlib import ExitStack
from signoff import sqlite_storage
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    with ExitStack() as stack:
        storage = stack.enter_context(sqlite_storage(sys.argv[1]))
        for number in range(100):
            stack.enter_context(storage.runner(str(number)))
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.thorough
def test_more_runs_at_once_than_files_may_be_open_says_what_to_do(tmp_path: Path) -> None:
    told = run_python("-c", _MANY, tmp_path / "t.sqlite").stdout
    assert told.startswith("StorageError Too many files are open")
    assert "ulimit -n" in told


_STAYS = """
import os, sys
from signoff import sqlite_storage
storage = sqlite_storage(sys.argv[1])
storage.store.put(("mine",), "key", {"of": "mine"})
held = storage.runner("t")
held.__enter__()
if sys.argv[2] == "killed":
    os._exit(0)
"""


def test_a_process_ends_that_holds_a_thread(tmp_path: Path) -> None:
    assert run_python("-c", _STAYS, tmp_path / "t.sqlite", "ends").returncode == 0


def test_a_deleted_file_does_not_come_back(tmp_path: Path) -> None:
    file = tmp_path / "t.sqlite"
    assert run_python("-c", _STAYS, file, "killed").returncode == 0
    assert file.with_name("t.sqlite-wal").exists()
    file.unlink()
    with sqlite_storage(file) as storage:
        assert storage.store.get(("mine",), "key") is None


def test_threads_and_outcomes_are_in_one_file(tmp_path: Path) -> None:
    with sqlite_storage(filled(tmp_path / "t.sqlite")) as storage:
        assert ids(storage) == ["t"]
        (item,) = storage.store.search(("signoff", "outcomes", "t"))
    assert item.value["summary"] == "x"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.sqlite", "t.sqlite.locks"]


@pytest.mark.parametrize(("version", "says"), [(99, "a newer .*upgrade"), (SCHEMA - 1, "an older .*another")])
def test_a_database_in_another_form_is_refused_and_left_alone(
    version: int, says: str, tmp_path: Path
) -> None:
    file = filled(tmp_path / "t.sqlite")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"PRAGMA user_version={version}")
        connection.execute("PRAGMA journal_mode=DELETE")
    before = file.read_bytes()
    with pytest.raises(StorageError, match=says), sqlite_storage(file):
        pass
    assert file.read_bytes() == before


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "t.sqlite"
    file.write_text("not a database, just words " * 100)
    with pytest.raises(StorageError, match="move it away or use another one"), sqlite_storage(file):
        pass
    assert file.read_text().startswith("not a database")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be used"), sqlite_storage(tmp_path):
        pass


def bomb(proof: Path) -> tuple[str, bytes]:
    """The kind and the bytes of a value that writes this file when pickle reads it."""
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    class Bomb:
        def __reduce__(self) -> Any:
            import os

            return (os.system, (f"touch {proof}",))

    kind, blob = JsonPlusSerializer(pickle_fallback=True).dumps_typed(Bomb())
    assert kind == "pickle"
    return kind, blob


def called(proof: Path) -> tuple[str, bytes]:
    """The same for the default serializer, which calls what a value names."""
    call_of_one = ormsgpack.Ext(0, ormsgpack.packb(("os", "system", f"touch {proof}")))
    return "msgpack", ormsgpack.packb(call_of_one)


@pytest.mark.parametrize("made", [bomb, called])
def test_a_crafted_row_cannot_run_code(made: Callable[[Path], tuple[str, bytes]], tmp_path: Path) -> None:
    file, proof = filled(tmp_path / "t.sqlite"), tmp_path / "proof"
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE checkpoints SET type=?, checkpoint=?", made(proof))
    with sqlite_storage(file) as storage, pytest.raises((NotImplementedError, TypeError)):
        build_graph(ScriptedModel([]), storage=storage).get_state(THREAD)
    assert not proof.exists()


def test_the_state_holds_known_types_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Strict msgpack gives an unknown type back as something else, without an error."""
    with sqlite_storage(filled(tmp_path / "t.sqlite")) as storage:
        values = build_graph(ScriptedModel([]), storage=storage).get_state(THREAD).values
    assert type(values["event"]) is str
    assert type(values["decision"]["event"]) is str
    assert type(values["outcome"]) is dict
    assert caplog.records == []
