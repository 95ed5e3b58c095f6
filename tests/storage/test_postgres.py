"""The PostgreSQL database: how it is opened, what it refuses, what it keeps."""

import asyncio
import logging
import re
import socket
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command

from signoff import SetupError, StorageError, build_graph, postgres_storage
from signoff.graph.build import Graph
from signoff.graph.inside.installing import install_hint
from signoff.models import ScriptedModel, call
from signoff.storage import PostgresStorage
from signoff.storage.base import SCHEMA
from tests.storage.test_sqlite import bomb
from tests.support.rows import ids
from tests.support.servers.postgres import PASSWORD, Server, execute

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "go")]}
FINISH = call("finish_task", summary="x")


def note(text: str) -> str:
    """Note."""
    return f"noted {text}"


def graph_of(storage: PostgresStorage, script: Any) -> Graph:
    return build_graph(ScriptedModel(script), [note], storage=storage)


@pytest.mark.parametrize("thread_id", ['it\'s "quoted"; --', "ünï 🧵 %2E.x/../c", "x" * 512])
async def test_a_thread_runs_pauses_and_goes_on_by_any_process(thread_id: str, postgres_url: str) -> None:
    config: Any = {"configurable": {"thread_id": thread_id}}
    asks = [call("note", text="one"), call("ask_user", question="Which?")]
    with postgres_storage(postgres_url) as storage:
        paused = await graph_of(storage, asks).ainvoke(GO, config)
        assert paused["outcome"] is None
    with postgres_storage(postgres_url) as storage:
        graph = graph_of(storage, [FINISH])
        (pending,) = graph.get_state(config).interrupts
        done = graph.invoke(Command(resume={pending.id: "blue"}), config)
        assert [m.text for m in done["messages"] if m.type == "tool"][:2] == ["noted one", "blue"]
        assert ids(storage) == [thread_id]
        assert PASSWORD not in repr(storage) + repr(storage.checkpointer.database) + repr(storage.store)
        entries = {item.namespace[1] for item in storage.store.search(("signoff",), limit=100)}
        assert entries == {"figures", "journal", "outcomes", "rows"}


def test_several_open_a_new_database_at_the_same_moment(postgres_url: str) -> None:
    def opened(_: int) -> list[str]:
        with postgres_storage(postgres_url) as storage:
            return ids(storage)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(opened, range(16))) == [[]] * 16
    assert execute(postgres_url, "SELECT version FROM signoff_schema") == [(SCHEMA,)]


def test_a_user_who_may_only_read_and_write_rows_can_use_it(
    postgres_url: str, postgres_server: Server
) -> None:
    with postgres_storage(postgres_url):
        pass
    execute(postgres_url, "CREATE ROLE worker LOGIN PASSWORD 'w0rker'")
    execute(postgres_url, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO worker")
    try:
        with postgres_storage(postgres_url.replace(f"signoff:{PASSWORD}", "worker:w0rker")) as storage:
            assert graph_of(storage, [FINISH]).invoke(GO, THREAD)["outcome"]["status"] == "success"
    finally:
        execute(postgres_url, "DROP OWNED BY worker")
        execute(postgres_url, "DROP ROLE worker")


@pytest.mark.parametrize(("version", "says"), [(99, "a newer .*upgrade"), (SCHEMA - 1, "an older .*another")])
def test_a_database_in_another_form_is_refused_and_left_alone(
    version: int, says: str, postgres_url: str
) -> None:
    execute(postgres_url, "CREATE TABLE signoff_schema (version integer NOT NULL)")
    execute(postgres_url, f"INSERT INTO signoff_schema VALUES ({version})")
    with pytest.raises(StorageError, match=says):
        postgres_storage(postgres_url).__enter__()
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    assert execute(postgres_url, tables) == [("signoff_schema",)]


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_cannot_hold_every_character_is_refused(
    encoding: str, postgres_server: Server
) -> None:
    """Nothing is written to it."""
    name = f"narrow_{encoding.lower()}"
    postgres_server.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0")
    url = postgres_server.url(name)
    with pytest.raises(StorageError, match=f"encoding {encoding}; create one with ENCODING 'UTF8'"):
        postgres_storage(url).__enter__()
    assert execute(url, "SELECT 1 FROM pg_tables WHERE schemaname = 'public'") == []


HERE = "signoff:{password}@127.0.0.1:{port}"
WRONG = [
    ("", "not the address of a PostgreSQL"),
    ("postgresql://u:s3cret@host/db?passwrd=s3cret", "not the address of a PostgreSQL"),
    ("postgresql://u:s3cret@127.0.0.1:1/db", r"127.0.0.1:1/db cannot be reached \(.*refused"),
    ("postgresql://u:s3cret@nowhere.invalid/db", r"nowhere.invalid/db cannot be reached"),
    ("postgresql://u:s3cret/word@127.0.0.1/db", "percent-encoded"),
    ("postgresql://signoff:wrong-s3cret@127.0.0.1:{port}/postgres", "password authentication failed"),
    (f"postgresql://{HERE}/nosuchdatabase", 'database "nosuchdatabase" does not exist'),
    ("postgresql://u:s3cret@127.0.0.1:{silent}/db?connect_timeout=2", "timeout"),
    ("postgresql://u:s3cret@127.0.0.1/\ud800", "not the address of a PostgreSQL"),
]


@pytest.mark.parametrize(("url", "message"), WRONG)
def test_what_cannot_be_opened_says_so_soon_without_the_password(
    url: str, message: str, postgres_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        places = {"port": postgres_server.port, "password": PASSWORD, "silent": silent.getsockname()[1]}
        for name, value in places.items():
            url = url.replace(f"{{{name}}}", str(value))
        with pytest.raises(StorageError, match=message) as raised:
            postgres_storage(url).__enter__()
    told = "".join(traceback.format_exception(raised.value)) + caplog.text
    assert "s3cret" not in told
    assert PASSWORD not in told
    assert str(raised.value).count("\n") == 0


@pytest.mark.parametrize("thread_id", ["a\0b", "\ud800", "ü" * 257])
def test_an_id_that_it_cannot_keep_is_refused_before_anything_is_written(
    thread_id: str, postgres_url: str
) -> None:
    config: Any = {"configurable": {"thread_id": thread_id}}
    with postgres_storage(postgres_url) as storage:
        graph = graph_of(storage, [FINISH])
        attempts: list[Callable[[], Any]] = [
            lambda: storage.checkpointer.runner(thread_id).__enter__(),
            lambda: graph.invoke(GO, config),
            lambda: graph.get_state(config),
            lambda: asyncio.run(graph.aget_state(config)),
        ]
        for attempt in attempts:
            with pytest.raises(SetupError, match="512 bytes"):
                attempt()
        assert not storage.checkpointer.is_running(thread_id)
        assert ids(storage) == []


def test_without_the_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("signoff.storage.postgres_")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SetupError, match=re.escape(install_hint("postgres"))):
        postgres_storage("postgresql://h/d").__enter__()


def test_a_crafted_row_cannot_run_code(postgres_url: str, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    with postgres_storage(postgres_url) as storage:
        graph_of(storage, [FINISH]).invoke(GO, THREAD)
        execute(postgres_url, "UPDATE checkpoint_blobs SET type = %s, blob = %s", *bomb(proof))
        with pytest.raises(NotImplementedError):
            graph_of(storage, []).get_state(THREAD)
    assert not proof.exists()


# The store.

VALUES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"a": "x\0y"}, {"a": "x\ufffdy"}),
    ({"a": ["\ud800", "\\u0000"]}, {"a": ["\ufffd", "\\u0000"]}),
    ({"a": [10**30, None, {"b": True}]}, {"a": [10**30, None, {"b": True}]}),
]


def test_the_store_keeps_any_text_and_refuses_what_is_no_json(postgres_url: str) -> None:
    names = ("signoff", "journal", "t")
    with postgres_storage(postgres_url) as storage:
        with pytest.raises(StorageError):
            storage.store.put(names, "nan", {"n": float("nan")})
        for given, kept in VALUES:
            storage.store.put(names, "put\0", given)
            storage.store.delete(names, "swapped\0")
            assert storage.store.swap(names, "swapped\0", None, given)
            assert storage.store.swap(names, "swapped\0", given, {"next": given})
            found = {item.key: item.value for item in storage.store.search(names)}
            assert sorted(map(str, found.values())) == sorted(map(str, (kept, {"next": kept})))
