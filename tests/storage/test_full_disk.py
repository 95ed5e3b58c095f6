"""A database that takes no more is an error, and the thread goes on when there is room again."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from signoff import Graph, Session, StorageError, build_graph, outcome_of, sqlite_storage
from signoff.models import ScriptedModel, call
from signoff.storage import SqliteStorage
from tests.support.plays import FINISH, GO, THREAD
from tests.support.ways import WAYS

BIG = {"messages": [("user", "x" * 100_000)]}
HOW: dict[str, Callable[[Graph], object]] = {
    "invoke": lambda graph: graph.invoke(GO, THREAD),
    "astream": lambda graph: WAYS["astream"](graph, GO, THREAD),
    "batch": lambda graph: graph.batch([GO], THREAD),
    "update_state": lambda graph: graph.update_state(THREAD, BIG, "nudge"),
    "a session": lambda graph: Session(graph, "t").run("go"),
}


@contextmanager
def full(storage: SqliteStorage) -> Iterator[None]:
    """The database may not grow."""
    connections = (storage.checkpointer.conn, storage.store.conn)
    for connection in connections:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 4}")
    try:
        yield
    finally:
        for connection in connections:
            connection.execute("PRAGMA max_page_count = 1000000")


def look(n: int) -> str:
    """Look."""
    return "x" * 5_000


def looks(messages: list[Any]) -> Any:
    looked = sum(message.type == "tool" for message in messages)
    return call("look", n=looked) if looked < 12 else FINISH


@pytest.mark.parametrize("name", HOW)
def test_a_full_disk_is_an_error_and_the_thread_goes_on(name: str, tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        graph = build_graph(ScriptedModel(looks), [look], storage=storage)
        with full(storage), pytest.raises(StorageError, match="full"):
            HOW[name](graph)
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        graph = build_graph(ScriptedModel(looks), [look], storage=storage)
        begun = graph.get_state(THREAD).values.get("messages")
        Session(graph, "t").run(None if begun else "go")
        assert outcome_of(graph.get_state(THREAD)).status == "success"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a file system in memory")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "none", place], check=False)
    if mounted.returncode:
        pytest.skip("only root may mount a file system")
    try:
        script = [call("look", n=n) for n in range(300)]
        with sqlite_storage(place / "t.sqlite") as storage, pytest.raises(StorageError, match="full"):
            build_graph(ScriptedModel(script), [look], storage=storage).invoke(GO, THREAD)
    finally:
        subprocess.run(["umount", "-l", place], check=True)
