"""A database that takes no more is an error, and the thread goes on when there is room again."""

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

HOW: dict[str, Callable[[Graph], object]] = {
    "invoke": lambda graph: graph.invoke(GO, THREAD),
    "astream": lambda graph: WAYS["astream"](graph, GO, THREAD),
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
