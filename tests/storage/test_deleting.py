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
from signoff.server import ServerSaver
from signoff.session.commands import request_pause
from signoff.stats.records import rate
from signoff.tools.files import workspace_tools
from signoff.workers import submit
from tests.support.adapted import adapted
from tests.support.benches.session import DONE, pay, play
from tests.support.rows import ids
from tests.support.servers.postgres import execute

THREAD = "gone-1"
# Ids that a sloppy pattern would take for the thread, or for something below it.
OTHERS = ("gone-1.x", "gone-1x", "gone-1/x", "gone-", "gone_1", "%", "GONE-1", "gone-1\\")
NAMES = (
    "signoff.figures", "signoff.inbox", "signoff.journal", "signoff.outcomes", "signoff.ratings",
    "signoff.requests", "signoff.threads",
)  # fmt: skip


@pytest.fixture(params=["sqlite", "postgres"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if request.param == "sqlite":
        with sqlite_storage(tmp_path / "t.sqlite") as opened:
            yield opened
    else:
        with postgres_storage(request.getfixturevalue("postgres_url")) as opened:
            yield opened


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "work.txt").write_text("\n".join(f"line {at} of a file that is long" for at in range(4_000)))
    return folder


def work(storage: Any, thread_id: str, *steps: Any, tools: Any = (pay,), **options: Any) -> None:
    graph = build_graph(ScriptedModel(play(*steps)), list(tools), storage=storage, **adapted(**options))
    Session(graph, thread_id).run("go")


def begin(storage: Any, thread_id: str) -> None:
    """A thread of which there is something of each kind."""
    work(storage, thread_id, call("pay", amount=3), DONE)
    rate(storage.store, thread_id, 4)
    request_pause(storage.store, thread_id)
    remember(storage.store, thread_id, settle(Given(), None, {}))
    storage.store.put(("signoff", "inbox", thread_id.replace(".", "%2E")), "delivered x", {"id": "x"})
    # As when a reply has the id of another thread.
    storage.store.put(("signoff", "journal", "another", THREAD), "c1", {"status": "done"})
    storage.store.put(("signoff-of-mine", THREAD), "k", {"mine": True})


def rows(storage: Any) -> dict[str, list[str]]:
    """Every row of every table of the database, as text."""
    if hasattr(storage, "path"):
        with closing(sqlite3.connect(storage.path)) as connection:
            names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            return {
                name: [repr(row) for row in connection.execute(f"SELECT * FROM {name}")] for (name,) in names
            }
    with storage.checkpointer.database.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        names = [row["tablename"] for row in cursor.fetchall()]
        found = {}
        for name in names:
            cursor.execute(f"SELECT t::text AS row FROM {name} t")
            found[name] = [row["row"] for row in cursor.fetchall()]
        return found


def namespaces(storage: Any) -> set[str]:
    return {".".join(found[:2]) for found in storage.store.list_namespaces(prefix=("signoff",), limit=1_000)}


def test_nothing_of_it_is_left_in_any_table(storage: Any) -> None:
    work(storage, "other", call("pay", amount=3), DONE)
    before = rows(storage)
    begin(storage, THREAD)
    assert namespaces(storage) == set(NAMES)
    storage.store.delete(("signoff", "journal", "another", THREAD), "c1")
    storage.store.delete(("signoff-of-mine", THREAD), "k")
    assert rows(storage) != before
    storage.checkpointer.delete_thread(THREAD)
    after = rows(storage)
    # An id and how often it was taken: see signoff/storage/deleting.py.
    before.pop("signoff_runners", None)
    after.pop("signoff_runners", None)
    assert {name: sorted(found) for name, found in after.items()} == {
        name: sorted(found) for name, found in before.items()
    }


def test_nothing_of_other_threads_is_touched(storage: Any) -> None:
    for name in OTHERS:
        begin(storage, name)
    before = {name: sorted(found) for name, found in rows(storage).items()}
    storage.checkpointer.delete_thread(THREAD)
    after = {name: sorted(found) for name, found in rows(storage).items()}
    before.pop("signoff_runners", None)
    after.pop("signoff_runners", None)
    assert after == before


def test_it_may_be_begun_again_and_is_new(storage: Any) -> None:
    begin(storage, THREAD)
    asyncio.run(storage.checkpointer.adelete_thread(THREAD))
    assert THREAD not in ids(storage)
    # The same calls, by the same ids: no journal says that they were made.
    begin(storage, THREAD)
    assert ids(storage) == [THREAD]


def test_one_that_is_not_there_is_no_error(storage: Any) -> None:
    storage.checkpointer.delete_thread("never")
    assert ids(storage) == []


def test_one_that_runs_is_refused_and_stays_whole(storage: Any) -> None:
    begin(storage, THREAD)
    before = rows(storage)
    with (
        storage.checkpointer.runner(THREAD),
        pytest.raises(ThreadBusy, match="'gone-1' is running elsewhere; wait until it ends, or pause it"),
    ):
        storage.checkpointer.delete_thread(THREAD)
    before.pop("signoff_runners", None)
    assert {name: found for name, found in rows(storage).items() if name in before} == before


def test_a_tool_cannot_delete_the_thread_in_which_it_runs(storage: Any) -> None:
    def forget() -> str:
        """Forget."""
        storage.checkpointer.delete_thread(THREAD)
        return "forgotten"

    work(storage, THREAD, call("forget"), DONE, tools=[forget])
    assert ids(storage) == [THREAD]
    assert "is running elsewhere" in "".join(rows(storage)["store"])


def dump() -> str:
    """Dump."""
    return "x" * 50_000


@pytest.mark.parametrize("by", ["the saver", "the server"])
def test_long_results_go_from_the_cache_folder(storage: Any, tmp_path: Path, by: str) -> None:
    for name in (THREAD, "other"):
        work(storage, name, call("dump"), DONE, tools=[dump])
    assert len(list((tmp_path / "cache").rglob("*.txt"))) == 2
    saver = storage.checkpointer if by == "the saver" else ServerSaver(storage)
    saver.delete_thread(THREAD)
    assert len(list((tmp_path / "cache").rglob("*.txt"))) == 1


def with_long_results(storage: Any, workspace: Path, thread_id: str, which: str) -> None:
    remember(storage.store, thread_id, settle(Given(workspace=workspace), None, {}))
    search = call("search_files", pattern=f"{which} .* is long")
    work(storage, thread_id, search, DONE, tools=workspace_tools(workspace))


def test_long_results_go_from_the_workspace_but_not_those_of_others(storage: Any, workspace: Path) -> None:
    with_long_results(storage, workspace, THREAD, "line")
    (workspace / "work.txt").write_text((workspace / "work.txt").read_text().replace("line", "row"))
    with_long_results(storage, workspace, "other", "row")
    outputs = workspace / ".signoff" / "outputs"
    (outputs / "of-mine.txt").write_text("mine")
    before = {path.name for path in outputs.iterdir()}
    storage.checkpointer.delete_thread(THREAD)
    (gone,) = before - {path.name for path in outputs.iterdir()}
    assert gone.startswith("search_files-")
    assert len(before) == 3
    assert (workspace / "work.txt").exists(), "what the model worked on is the user's"


def test_a_link_in_the_workspace_is_not_followed(storage: Any, workspace: Path, tmp_path: Path) -> None:
    with_long_results(storage, workspace, THREAD, "line")
    moved = (workspace / ".signoff").rename(tmp_path / "elsewhere")
    (workspace / ".signoff").symlink_to(moved)
    storage.checkpointer.delete_thread(THREAD)
    assert len(list((moved / "outputs").iterdir())) == 1
    assert ids(storage) == []


def test_a_thread_that_cannot_be_read_can_be_deleted(tmp_path: Path, workspace: Path) -> None:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        with_long_results(storage, workspace, THREAD, "line")
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as connection, connection:
        connection.execute("UPDATE checkpoints SET checkpoint = x'c1'")
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        storage.checkpointer.delete_thread(THREAD)
        assert ids(storage) == []


def test_its_place_in_the_queue_goes_too(postgres_url: str) -> None:
    with postgres_storage(postgres_url) as storage:
        for name in (THREAD, "other"):
            submit(storage, "A task.", name)
        storage.checkpointer.delete_thread(THREAD)
        assert execute(postgres_url, "SELECT args->>'thread_id' FROM procrastinate_jobs") == [("other",)]
        assert execute(postgres_url, "SELECT count(*) FROM procrastinate_events") == [(1,)]
        entries = storage.store.search(("signoff", "inbox"), limit=100)
        assert {item.namespace[2] for item in entries} == {"other"}
