"""One runner a thread on PostgreSQL, whatever becomes of its process, its sessions and the server."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from signoff import StorageError, ThreadBusy, build_graph, postgres_storage
from signoff.graph.errors import ThreadLost
from signoff.models import ScriptedModel, call
from signoff.storage.postgres_address import Address
from signoff.workers.jobs import connector
from tests.support.postgres_runs import GO, LOCKS, SCRIPT, THREAD, Acts, cut_lock, invoked, results
from tests.support.rows import ids
from tests.support.servers.postgres import execute

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_run_whose_session_was_ended_fails_and_its_thread_goes_on(way: str, postgres_url: str) -> None:
    with postgres_storage(postgres_url) as storage:
        acts = Acts(storage, SCRIPT, lambda: cut_lock(postgres_url))
        with pytest.raises(StorageError, match="cannot be reached"):
            invoked(acts.graph, GO, way)
        assert execute(postgres_url, f"SELECT 1 {LOCKS}") == []
        assert invoked(acts.graph, None, way)["outcome"]["status"] == "success"
        assert results(acts.graph)[0].startswith("Outcome unknown")
        assert acts.done == ["one", "two"]


@pytest.mark.parametrize(("ended", "way"), [(True, "sync"), (False, "async")])
def test_a_runner_whose_thread_was_taken_over_gives_up(ended: bool, way: str, postgres_url: str) -> None:
    """The other runner has come to its end, or holds the thread still."""
    with postgres_storage(postgres_url) as storage, postgres_storage(postgres_url) as other:
        holding = other.checkpointer.runner("t")

        def taken_over() -> None:
            cut_lock(postgres_url)
            # Not in the context of the run that is losing it.
            Context().run(holding.__enter__)
            if ended:
                holding.__exit__(None, None, None)

        acts = Acts(storage, SCRIPT, taken_over)
        with pytest.raises(StorageError if ended else ThreadLost):
            invoked(acts.graph, GO, way)
        assert acts.done == ["one"]
        if not ended:
            holding.__exit__(None, None, None)
        graph = build_graph(ScriptedModel(SCRIPT[1:]), [Acts.act(acts)], storage=other)
        assert graph.invoke(None, THREAD)["outcome"]["status"] == "success"
        assert results(graph)[0].startswith("Outcome unknown")
        assert acts.done == ["one", "two"]


def test_every_write_of_a_lost_runner_is_refused(postgres_url: str) -> None:
    names = ("signoff", "journal", "t", "r")
    with postgres_storage(postgres_url) as storage, postgres_storage(postgres_url) as other:
        with storage.checkpointer.runner("t") as hold, hold.here():
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
                with pytest.raises(StorageError):
                    attempt()
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

    with postgres_storage(postgres_url) as storage, storage.checkpointer.database.connection() as pooled:
        address = storage.checkpointer.database.address
        assert pooled.execute(show.encode()).fetchone() == {"found": right}
        with address.connect() as one:
            assert one.execute(show.encode()).fetchone() == {"found": right}
        assert asyncio.run(of_the_queue(address)) == right
