"""The PostgreSQL database: how it is opened, what it refuses, what it keeps."""

import asyncio
import logging
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.types import Command

from signoff import Limits, SetupError, StorageError, build_graph, postgres_storage
from signoff.graph.build import Graph
from signoff.graph.errors import ThreadError
from signoff.graph.inside.installing import install_hint
from signoff.models import ScriptedModel, call, reply
from signoff.storage import PostgresStorage
from signoff.storage.schema import SCHEMA
from tests.support.adapted import adapted
from tests.support.rows import ids
from tests.support.servers.postgres import PASSWORD, Server, execute

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "go")]}
FINISH = call("finish_task", summary="x")


def note(text: str) -> str:
    """Note."""
    return f"noted {text}"


def graph_of(storage: PostgresStorage, script: Any, **options: Any) -> Graph:
    return build_graph(ScriptedModel(script), [note], storage=storage, **adapted(**options))


@pytest.mark.parametrize("thread_id", ["t", "a/b/../c", 'it\'s "quoted"; --', "ünï 🧵 %2E.x", "7", "x" * 512])
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
        entries = {item.namespace[1] for item in storage.store.search(("signoff",), limit=100)}
        assert entries == {"figures", "journal", "outcomes"}


def test_threads_are_listed_the_one_changed_last_first(postgres_url: str) -> None:
    with postgres_storage(postgres_url) as storage:
        for thread_id in ["one", "two", "three", "one"]:
            config: Any = {"configurable": {"thread_id": thread_id}}
            graph_of(storage, [FINISH]).invoke({"messages": [HumanMessage("go")]}, config)
        assert ids(storage) == ["one", "three", "two"]
        storage.checkpointer.delete_thread("three")
        assert ids(storage) == ["one", "two"]


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
    ("   ", "not the address of a PostgreSQL"),
    ("threads.sqlite", "not the address of a PostgreSQL"),
    ("mysql://u:s3cret@host/db", "not the address of a PostgreSQL"),
    ("postgresql+psycopg://u:s3cret@host/db", "not the address of a PostgreSQL"),
    ("postgresql://u:s3cret@host/db?passwrd=s3cret", "not the address of a PostgreSQL"),
    ("host=127.0.0.1 password=s3cret word", "not the address of a PostgreSQL"),
    ("postgresql://u:s3cret@127.0.0.1:1/db", r"127.0.0.1:1/db cannot be reached \(.*refused"),
    ("postgresql://u:s3cret@nowhere.invalid/db", r"nowhere.invalid/db cannot be reached"),
    ("postgresql://u:pa@s3cret@127.0.0.1/db", "percent-encoded"),
    ("postgresql://u:s3cret/word@127.0.0.1/db", "percent-encoded"),
    ("postgresql://u:12/s3cret@127.0.0.1/db", "percent-encoded"),
    (f"postgresql://{HERE}s3cret/postgres", "not the address of a PostgreSQL|cannot be reached"),
    ("postgresql://signoff:wrong-s3cret@127.0.0.1:{port}/postgres", "password authentication failed"),
    (f"postgresql://{HERE}/nosuchdatabase", 'database "nosuchdatabase" does not exist'),
    (f"postgresql://{HERE}/postgres?connect_timeout=soon", "connect_timeout: 'soon'"),
    ("postgresql://u:s3cret@127.0.0.1:{silent}/db?connect_timeout=2", "timeout"),
    ("postgresql://u:s3cret@127.0.0.1/\0", "not the address of a PostgreSQL"),
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


def test_an_open_storage_does_not_show_the_password(postgres_url: str) -> None:
    with postgres_storage(postgres_url) as storage:
        assert PASSWORD not in repr(storage) + repr(storage.checkpointer.database) + repr(storage.store)


def test_without_the_packages_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from signoff.storage.postgres import postgres_storage\n"
        "try: postgres_storage('postgresql://h/d').__enter__()\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("SetupError PostgreSQL needs packages")
    assert install_hint("postgres") in done.stdout


@pytest.mark.parametrize("thread_id", ["\0", "a\0b", "\ud800", "x" * 10_000, "ü" * 257])
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
            with pytest.raises((SetupError, ThreadError), match=r"The thread id .* PostgreSQL|not empty"):
                attempt()
        assert not storage.checkpointer.is_running(thread_id)
        assert ids(storage) == []
    assert execute(postgres_url, "SELECT * FROM signoff_runners") == []


def test_a_crafted_row_cannot_run_code(postgres_url: str, tmp_path: Path) -> None:
    """The default serializer would run a shell command from such a row."""
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    proof = tmp_path / "proof"

    class Bomb:
        def __reduce__(self) -> Any:
            import os

            return (os.system, (f"touch {proof}",))

    kind, blob = JsonPlusSerializer(pickle_fallback=True).dumps_typed(Bomb())
    assert kind == "pickle"
    with postgres_storage(postgres_url) as storage:
        graph_of(storage, [FINISH]).invoke(GO, THREAD)
        execute(postgres_url, "UPDATE checkpoint_blobs SET type = %s, blob = %s", kind, blob)
        with pytest.raises(NotImplementedError):
            graph_of(storage, []).get_state(THREAD)
    assert not proof.exists()


@pytest.mark.slow
@pytest.mark.thorough
def test_a_long_thread_takes_little_room_and_is_read_whole(
    postgres_url: str, figure: Callable[[str], None]
) -> None:
    work = reply(call("note", text="x" * 500), usage=(10, 10))
    with postgres_storage(postgres_url) as storage:
        begun = time.monotonic()
        graph = graph_of(storage, repeat(work), limits=Limits(turns=500, repeats=None))
        outcome = graph.invoke(GO, THREAD)["outcome"]
        seconds = time.monotonic() - begun
        assert (outcome["reason"], outcome["turns"]) == ("turns", 500)
        messages = graph.get_state(THREAD).values["messages"]
        amessages = asyncio.run(graph.aget_state(THREAD)).values["messages"]
        assert messages == amessages
        assert sum(message.type == "tool" for message in messages) == 500
        older = list(graph.get_state_history(THREAD, limit=5))[-1].values["messages"]
        assert older == messages[: len(older)]
        ((size,),) = execute(postgres_url, "SELECT pg_database_size(current_database())")
    figure(f"PostgreSQL: 500 turns, {len(messages):,} messages, {seconds:.0f} s, {size / 1e6:.0f} MB")
    assert size < 60e6
