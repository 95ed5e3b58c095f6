"""Deleting a thread: nothing of it is left, nothing of any other thread is touched, and not while it runs."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from signoff import Session, ThreadBusy, build_graph, postgres_storage, sqlite_storage
from signoff.front.settings import Given, remember, settle
from signoff.models import ScriptedModel, call
from signoff.records import rate
from signoff.session import request_pause
from signoff.tools import python_tool, workspace_tools
from signoff.workers import submit
from tests.support.databases import storage_at
from tests.support.plays import FINISH
from tests.support.rows import ids
from tests.support.servers.postgres import execute

THREAD = "gone-1"
# Ids that a sloppy pattern would take for the thread, or for something below it.
OTHERS = ("gone-1.x", "gone-1x", "gone-1/x", "gone-", "gone_1", "%", "GONE-1", "gone-1\\")
SORTS = {"rows", "figures", "inbox", "journal", "outcomes", "ratings", "requests", "threads"}


@pytest.fixture(params=["sqlite", "postgres"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    is_postgres = request.param == "postgres"
    address = request.getfixturevalue("postgres_url") if is_postgres else str(tmp_path / "t.sqlite")
    with storage_at(address) as opened:
        yield opened


on_sqlite = pytest.mark.parametrize("storage", ["sqlite"], indirect=True)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "work.txt").write_text("\n".join(f"line {at} of a file that is long" for at in range(4_000)))
    return folder


def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def dump() -> str:
    """Dump."""
    return "x" * 50_000


def work(storage: Any, thread_id: str, step: Any, tools: Any = (pay, dump)) -> None:
    graph = build_graph(ScriptedModel([step, FINISH]), list(tools), storage=storage)
    Session(graph, thread_id).run("go")


def begin(storage: Any, thread_id: str) -> None:
    """A thread of which there is something of each sort."""
    work(storage, thread_id, call("pay", amount=3))
    rate(storage.store, thread_id, 4)
    request_pause(storage.store, thread_id)
    remember(storage.store, thread_id, settle(Given(), None, {}))
    storage.store.put(("signoff", "inbox", thread_id.replace(".", "%2E")), "delivered x", {"id": "x"})


def rows(storage: Any) -> dict[str, list[str]]:
    """Every row of every table of the database, as text."""
    if hasattr(storage, "path"):
        with closing(sqlite3.connect(storage.path)) as connection:
            names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            found = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for (name,) in names}
    else:
        with storage.checkpointer.database.connection() as connection:
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
            found = {
                name: [row["row"] for row in connection.execute(f"SELECT t::text AS row FROM {name} t")]
                for name in [row["tablename"] for row in tables]
            }
    # How a thread stands is written whenever somebody has held it.
    return {
        name: sorted(text for text in map(repr, of_table) if "signoff.rows" not in text)
        for name, of_table in found.items()
    }


def test_nothing_of_it_is_left_and_nothing_of_others_is_touched(storage: Any) -> None:
    for name in OTHERS:
        begin(storage, name)
    # As when a reply has the id of another thread, and what a user has stored.
    storage.store.put(("signoff", "journal", "another", THREAD), "c1", {"status": "done"})
    storage.store.put(("signoff-of-mine", THREAD), "k", {"mine": True})
    before = rows(storage)
    begin(storage, THREAD)
    assert {found[1] for found in storage.store.list_namespaces(prefix=("signoff",), limit=1_000)} == SORTS
    assert rows(storage) != before
    storage.delete(THREAD)
    assert rows(storage) == before


@on_sqlite
def test_it_may_be_begun_again_and_is_new(storage: Any) -> None:
    storage.delete("never begun")
    for _ in range(2):
        # The same calls, by the same ids: no journal says that they were made.
        begin(storage, THREAD)
        assert ids(storage) == [THREAD]
        asyncio.run(storage.checkpointer.adelete_thread(THREAD))
        assert ids(storage) == []


def test_one_that_runs_is_refused_and_stays_whole(storage: Any) -> None:
    begin(storage, THREAD)
    before = rows(storage)
    with storage.runner(THREAD), pytest.raises(ThreadBusy, match=f"'{THREAD}'"):
        storage.delete(THREAD)
    assert rows(storage) == before


@on_sqlite
def test_long_results_and_the_files_of_python_go_from_the_cache_folder(storage: Any, tmp_path: Path) -> None:
    def files() -> int:
        return len(list((tmp_path / "cache").rglob("*.txt")))

    calls = [call("dump"), call("run_python", code="open('made.txt', 'w').close()")]
    for name in (THREAD, "other"):
        work(storage, name, calls, [dump, python_tool()])
    assert files() == 4
    with storage.runner(THREAD), pytest.raises(ThreadBusy):
        storage.delete(THREAD)
    assert files() == 4
    storage.delete(THREAD)
    assert files() == 2


def search(storage: Any, workspace: Path, thread_id: str, which: str) -> set[str]:
    """A thread with a long result in the workspace; the names of all that lie there."""
    remember(storage.store, thread_id, settle(Given(workspace=workspace), None, {}))
    found = call("search_files", pattern=f"{which} .* is long")
    work(storage, thread_id, found, workspace_tools(workspace))
    return {path.name for path in (workspace / ".signoff" / "outputs").iterdir()}


@on_sqlite
def test_long_results_go_from_the_workspace_but_not_those_of_others(storage: Any, workspace: Path) -> None:
    first = search(storage, workspace, THREAD, "line")
    (workspace / "work.txt").write_text((workspace / "work.txt").read_text().replace("line", "row"))
    outputs = workspace / ".signoff" / "outputs"
    (outputs / "of-mine.txt").write_text("mine")
    before = search(storage, workspace, "other", "row")
    storage.delete(THREAD)
    assert (len(before), len(first)) == (3, 1)
    assert {path.name for path in outputs.iterdir()} == before - first
    assert (workspace / "work.txt").exists(), "what the model worked on is the user's"


@on_sqlite
def test_a_link_in_the_workspace_is_not_followed(storage: Any, workspace: Path, tmp_path: Path) -> None:
    kept = search(storage, workspace, THREAD, "line")
    moved = (workspace / ".signoff").rename(tmp_path / "elsewhere")
    (workspace / ".signoff").symlink_to(moved)
    storage.delete(THREAD)
    assert {path.name for path in (moved / "outputs").iterdir()} == kept
    assert ids(storage) == []


def test_a_thread_that_cannot_be_read_can_be_deleted(tmp_path: Path, workspace: Path) -> None:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        search(storage, workspace, THREAD, "line")
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as connection, connection:
        connection.execute("UPDATE checkpoints SET checkpoint = x'c1'")
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        storage.delete(THREAD)
        assert ids(storage) == []


def test_its_place_in_the_queue_goes_too(postgres_url: str) -> None:
    with postgres_storage(postgres_url) as storage:
        for name in (THREAD, "other"):
            submit(storage, "A task.", name)
        storage.delete(THREAD)
        assert execute(postgres_url, "SELECT args->>'thread_id' FROM procrastinate_jobs") == [("other",)]
        assert execute(postgres_url, "SELECT count(*) FROM procrastinate_events") == [(1,)]
        entries = storage.store.search(("signoff", "inbox"), limit=100)
        assert {item.namespace[2] for item in entries} == {"other"}
