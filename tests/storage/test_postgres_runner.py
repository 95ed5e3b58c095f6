"""One runner a thread on PostgreSQL, whatever becomes of its process, its sessions and the server."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from signoff import StorageError, ThreadBusy, build_graph, postgres_storage
from signoff.graph.errors import ThreadLost
from signoff.models import ScriptedModel, call
from signoff.storage import PostgresEntries, PostgresThreads
from signoff.storage.postgres_address import Address
from signoff.storage.postgres_pool import writing
from signoff.workers.jobs import connector
from tests.support.postgres_runs import GO, LOCKS, SCRIPT, THREAD, Acts, cut_lock, invoked, results
from tests.support.rows import ids
from tests.support.servers.postgres import execute

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
HOLDS = """
import sys
from signoff.graph.errors import ThreadBusy
from signoff.storage.postgres import postgres_storage
with postgres_storage(sys.argv[1]) as storage:
    try:
        with storage.checkpointer.runner("t"):
            print("held", flush=True)
            sys.stdin.read()
    except ThreadBusy:
        print("busy", flush=True)
"""


@pytest.fixture(params=["our cursors", "LangGraph's own"])
def cursors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """LangGraph's saver and store ask for a cursor by a private name; by another they make their own."""
    if request.param == "LangGraph's own":
        monkeypatch.delattr(PostgresThreads, "_cursor")
        monkeypatch.delattr(PostgresEntries, "_cursor")


@contextmanager
def other_process(url: str) -> Iterator["subprocess.Popen[str]"]:
    command, pipe = [sys.executable, "-c", HOLDS, url], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as process:
        yield process


def said(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_second_runner_of_any_storage_is_sent_away(postgres_url: str) -> None:
    with postgres_storage(postgres_url) as one, postgres_storage(postgres_url) as two:
        with one.checkpointer.runner("t"):
            for storage in (one, two):
                assert storage.checkpointer.is_running("t")
                assert not storage.checkpointer.is_running("u")
                with pytest.raises(ThreadBusy, match="'t' is running elsewhere"):
                    storage.checkpointer.runner("t").__enter__()
                with pytest.raises(ThreadBusy):
                    build_graph(ScriptedModel([]), storage=storage).invoke(GO, THREAD)
            with two.checkpointer.runner("u"):
                pass
        assert not two.checkpointer.is_running("t")
        with two.checkpointer.runner("t"), one.checkpointer.runner("u"):
            assert one.checkpointer.is_running("t")


def test_of_many_runners_at_the_same_moment_one_holds_the_thread(postgres_url: str) -> None:
    with postgres_storage(postgres_url) as one, postgres_storage(postgres_url) as two:

        def tried(nth: int) -> bool:
            try:
                with (one, two)[nth % 2].checkpointer.runner("t"):
                    time.sleep(0.6)
                    return True
            except ThreadBusy:
                return False

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(tried, range(8))) == 1


@pytest.mark.thorough
def test_another_process_is_sent_away_and_a_killed_one_frees_the_thread_at_once(postgres_url: str) -> None:
    with postgres_storage(postgres_url) as storage:
        with storage.checkpointer.runner("t"), other_process(postgres_url) as process:
            assert said(process) == "busy"
        with other_process(postgres_url) as process:
            assert said(process) == "held"
            assert storage.checkpointer.is_running("t")
            with pytest.raises(ThreadBusy):
                storage.checkpointer.runner("t").__enter__()
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            with storage.checkpointer.runner("t"):
                assert storage.checkpointer.is_running("t")


def test_a_thread_that_is_not_held_can_be_written_to(postgres_url: str) -> None:
    with postgres_storage(postgres_url) as storage, postgres_storage(postgres_url) as other:
        graph = build_graph(ScriptedModel(["Hm."]), storage=storage)
        with other.checkpointer.runner("t"):
            graph.update_state(THREAD, GO, as_node="compress")
        assert [m.text for m in graph.get_state(THREAD).values["messages"]] == ["go"]


@pytest.mark.usefixtures("cursors")
@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_lock_that_was_cut_is_taken_again(way: str, postgres_url: str) -> None:
    with postgres_storage(postgres_url) as storage:
        acts = Acts(storage, SCRIPT, lambda: cut_lock(postgres_url))
        assert invoked(acts.graph, GO, way)["outcome"]["status"] == "success"
        assert results(acts.graph)[:2] == ["did one", "did two"]
        assert execute(postgres_url, f"SELECT 1 {LOCKS}") == []


def test_a_runner_that_took_its_lock_again_holds_the_thread(postgres_url: str) -> None:
    with postgres_storage(postgres_url) as storage, storage.checkpointer.runner("t"):
        cut_lock(postgres_url)
        assert not storage.checkpointer.is_running("t")
        until = time.monotonic() + 60
        # It notices with one of its next writes that its session has ended.
        while not storage.checkpointer.is_running("t"):
            assert time.monotonic() < until
            storage.store.put(("signoff", "requests", "t"), "k", {})


@pytest.mark.parametrize(("ended", "way"), [(True, "sync"), (False, "async")])
def test_a_runner_whose_thread_was_taken_over_gives_up(ended: bool, way: str, postgres_url: str) -> None:
    """The other runner has come to its end, or holds the thread still."""
    with postgres_storage(postgres_url) as storage, postgres_storage(postgres_url) as other:
        holding = other.checkpointer.runner("t")

        def taken_over() -> None:
            cut_lock(postgres_url)
            holding.__enter__()
            if ended:
                holding.__exit__(None, None, None)

        acts = Acts(storage, SCRIPT, taken_over)
        with pytest.raises(ThreadLost, match="Another runner has taken thread 't' over"):
            invoked(acts.graph, GO, way)
        assert acts.done == ["one"]
        if not ended:
            holding.__exit__(None, None, None)
        graph = build_graph(ScriptedModel(SCRIPT[1:]), [Acts.act(acts)], storage=other)
        assert graph.invoke(None, THREAD)["outcome"]["status"] == "success"
        assert results(graph)[0].startswith("Outcome unknown")
        assert acts.done == ["one", "two"]


@pytest.mark.usefixtures("cursors")
def test_every_write_of_a_lost_runner_is_refused(postgres_url: str) -> None:
    names = ("signoff", "journal", "t", "r")
    with postgres_storage(postgres_url) as storage, postgres_storage(postgres_url) as other:
        with storage.checkpointer.runner("t"):
            cut_lock(postgres_url)
            with other.checkpointer.runner("t"):
                pass
            graph = build_graph(ScriptedModel([]), storage=storage)
            attempts: list[Callable[[], Any]] = [
                lambda: storage.store.swap(names, "k", None, {}),
                lambda: storage.store.put(names, "k", {}),
                lambda: asyncio.run(storage.store.aput(names, "k", {})),
                lambda: graph.update_state(THREAD, GO, as_node="compress"),
                lambda: storage.checkpointer.put_writes(
                    {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "1"}},
                    [("a", 1)],
                    "task",
                ),
            ]
            for attempt in attempts:
                with pytest.raises(ThreadLost):
                    attempt()
            storage.store.put(("signoff", "journal", "u", "r"), "k", {})
            holders: tuple[Callable[[], object], ...] = (
                lambda: storage.checkpointer.runner("t").__enter__(),
                lambda: storage.checkpointer.delete_thread("t"),
            )
            for holding in holders:
                with pytest.raises(ThreadBusy):
                    holding()
        with storage.checkpointer.runner("t"):
            storage.store.put(names, "k", {})
        assert len(storage.store.search(("signoff", "journal", "t"))) == 1


def by_database(url: str, name: str, value: str) -> str:
    execute(url, f"ALTER DATABASE {url.rpartition('/')[2]} SET {name} = '{value}'")
    return url


def by_user(url: str, name: str, value: str) -> str:
    execute(url, f"ALTER ROLE signoff IN DATABASE {url.rpartition('/')[2]} SET {name} = '{value}'")
    return url


def by_address(url: str, name: str, value: str) -> str:
    return make_conninfo(url, options=f"-c {name}={value.replace(' ', chr(92) + ' ')}")


LEVELS = ["read uncommitted", "read committed", "repeatable read", "serializable"]


@pytest.mark.parametrize("given", [by_database, by_user, by_address])
@pytest.mark.parametrize("level", LEVELS)
def test_a_write_that_has_waited_for_its_turn_sees_who_has_the_thread(
    level: str, given: Callable[[str, str, str], str], postgres_url: str
) -> None:
    """The runner is displaced while its write waits for the other one, which just takes the thread over."""
    url = given(postgres_url, "default_transaction_isolation", level)
    waits = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    names = ("signoff", "journal", "t", "r")
    with postgres_storage(url) as storage, storage.checkpointer.runner("t"), ThreadPoolExecutor(1) as pool:
        (held,) = storage.checkpointer.database.holds.among(["t"])
        with psycopg.connect(postgres_url) as other:
            other.execute("SELECT pg_advisory_xact_lock(%s)", (held.write_key,))
            writing_on = pool.submit(storage.store.put, names, "k", {})
            until = time.monotonic() + 10
            while not execute(postgres_url, waits):
                assert time.monotonic() < until, "the write did not wait"
            other.execute("UPDATE signoff_runners SET token = token + 1")
        with pytest.raises(ThreadLost):
            writing_on.result(10)
        assert storage.store.get(names, "k") is None


@pytest.mark.parametrize("level", LEVELS)
def test_a_displaced_runner_begins_nothing_on_any_level(level: str, postgres_url: str) -> None:
    by_database(postgres_url, "default_transaction_isolation", level)
    test_a_runner_whose_thread_was_taken_over_gives_up(True, "sync", postgres_url)


@pytest.mark.parametrize("given", [by_database, by_user, by_address])
def test_every_character_is_kept_whatever_encoding_the_sessions_have(
    given: Callable[[str, str, str], str], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    url = given(postgres_url, "client_encoding", "LATIN1")
    with postgres_storage(url) as storage:
        acts = Acts(storage, [call("act", what="✓ 港"), call("finish_task", summary="ü 🧵")], lambda: None)
        config: Any = {"configurable": {"thread_id": "线程"}}
        outcome = acts.graph.invoke(GO, config)["outcome"]
        storage.store.put(("a", "b"), "ключ", {"x": "港"})
        assert (outcome["summary"], acts.done, ids(storage)) == ("ü 🧵", ["✓ 港"], ["线程"])
        assert storage.store.search(("a",))[0].key == "ключ"


SETTINGS = {
    "synchronous_commit": ("off", "on"),
    "synchronous_commit ": ("remote_apply", "remote_apply"),
    "idle_session_timeout": ("5min", "0"),
    "idle_in_transaction_session_timeout": ("0", "8s"),
    "bytea_output": ("escape", "hex"),
    "DateStyle": ("SQL, DMY", "ISO, DMY"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_session_sets_what_it_relies_on(name: str, postgres_url: str) -> None:
    """Those of the queue, too."""
    wrong, right = SETTINGS[name]
    by_database(postgres_url, name.strip(), wrong)
    show = f"SELECT current_setting('{name.strip()}') AS found"

    async def of_the_queue(address: Address) -> Any:
        opened = connector(address)
        await opened.open_async()
        try:
            return (await opened.execute_query_one_async(show))["found"]
        finally:
            await opened.close_async()

    with postgres_storage(postgres_url) as storage, storage.checkpointer.database.cursor() as cursor:
        address = storage.checkpointer.database.address
        assert cursor.execute(show.encode()).fetchone() == {"found": right}
        with address.connect() as one:
            assert one.execute(show.encode()).fetchone() == {"found": right}
        assert asyncio.run(of_the_queue(address)) == right


def test_a_lock_that_is_not_free_again_stops_the_run(postgres_url: str) -> None:
    """The server may not know yet that the session is gone."""
    with postgres_storage(postgres_url) as storage:
        with storage.checkpointer.runner("t"):
            ((high, low),) = execute(postgres_url, f"SELECT classid::bigint, objid::bigint {LOCKS}")
            cut_lock(postgres_url)
            with psycopg.connect(postgres_url) as session:
                key = int.from_bytes((high << 32 | low).to_bytes(8), signed=True)
                session.execute("SELECT pg_advisory_lock(%s)", (key,))
                with pytest.raises(StorageError, match="was lost, and the thread is not free again yet"):
                    storage.store.put(("signoff", "journal", "t"), "k", {})
            storage.store.put(("signoff", "journal", "t"), "k", {})
        assert not storage.checkpointer.is_running("t")


def test_a_write_that_stands_still_does_not_hold_up_the_next_runner(postgres_url: str) -> None:
    with postgres_storage(postgres_url) as storage, postgres_storage(postgres_url) as other:

        def stands_still() -> None:
            with writing(["t"]), storage.checkpointer.database.cursor(together=True) as cursor:
                cut_lock(postgres_url)
                with other.checkpointer.runner("t"):
                    cursor.execute("INSERT INTO store (prefix, key, value) VALUES ('a', 'k', '{}')")
                    cursor.execute("SELECT 1").fetchone()

        with storage.checkpointer.runner("t"):
            with pytest.raises(StorageError, match="cannot be reached"):
                stands_still()
            with pytest.raises(ThreadLost):
                storage.store.put(("signoff", "journal", "t"), "k", {})
        assert storage.store.search(()) == []
