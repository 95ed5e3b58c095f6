"""A database that takes no more is one sentence, and the thread goes on when there is room again."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from signoff import Session, StorageError, build_graph, sqlite_storage
from signoff.graph.build import Graph
from signoff.models import ScriptedModel, call
from signoff.storage import SqliteStorage
from tests.support.ends import is_finished

GO: Any = {"messages": [("user", "go")]}
BIG = [("user", "x" * 100_000)]
CONFIG: Any = {"configurable": {"thread_id": "t"}}
SENTENCE = r"The database failed \(.*\); what was saved before is kept, and the thread can continue when"


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


async def astream(graph: Graph) -> None:
    async for _ in graph.astream(GO, CONFIG):
        pass


WAYS: dict[str, Callable[[Graph], object]] = {
    "invoke": lambda graph: graph.invoke(GO, CONFIG),
    "stream": lambda graph: list(graph.stream(GO, CONFIG)),
    "batch": lambda graph: graph.batch([GO], CONFIG),
    "ainvoke": lambda graph: asyncio.run(graph.ainvoke(GO, CONFIG)),
    "astream": lambda graph: asyncio.run(astream(graph)),
    "abatch": lambda graph: asyncio.run(graph.abatch([GO], CONFIG)),
    "update_state": lambda graph: graph.update_state(
        CONFIG, {"messages": [("user", "x" * 100_000)]}, "nudge"
    ),
    "Session": lambda graph: Session(graph, "t").run("go"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_full_disk_is_a_sentence_and_the_thread_goes_on(way: str, tmp_path: Path) -> None:
    asked: list[int] = []

    def look(n: int) -> str:
        """Look."""
        asked.append(n)
        return "x" * 2_000

    def model() -> ScriptedModel:
        left = [call("look", n=n) for n in range(len(asked), 12)]
        return ScriptedModel([*left, call("finish_task", summary="x")])

    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        graph = build_graph(model(), [look], storage=storage)
        with full(storage), pytest.raises(StorageError, match=SENTENCE):
            WAYS[way](graph)
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        graph = build_graph(model(), [look], storage=storage)
        begun = graph.get_state(CONFIG).values.get("messages")
        found = Session(graph, "t").run(None if begun else "go")
        assert is_finished(found)
        assert found.outcome.succeeded


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a file system in memory")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "none", place], check=False)
    if mounted.returncode:
        pytest.skip("only root may mount a file system")

    def look(n: int) -> str:
        """Look."""
        return "x" * 5_000

    try:
        script = [call("look", n=n) for n in range(300)]
        with sqlite_storage(place / "t.sqlite") as storage, pytest.raises(StorageError, match=SENTENCE):
            build_graph(ScriptedModel(script), [look], storage=storage).invoke(GO, CONFIG)
    finally:
        subprocess.run(["umount", "-l", place], check=True)
