"""The checkpointer and the store in PostgreSQL, and the creation of their tables."""

import builtins
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, DeltaChannelHistory
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.store.base import GetOp, Op, PutOp, Result
from langgraph.store.postgres import PostgresStore
from psycopg import Connection, Cursor
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from signoff.graph.errors import StorageError
from signoff.graph.foreign import label, strict_serde, valid_text, valid_values
from signoff.storage.base import StoreInThreads
from signoff.storage.deleting import POSTGRES, delete_rows, delete_thread, lock_of, workspace_of
from signoff.storage.postgres_address import Address
from signoff.storage.postgres_pool import FencedPool, SharedDatabase, usable, writing
from signoff.storage.schema import SCHEMA, check_schema
from signoff.storage.steps import EntryName, Statement, StepSaver, recorded, recorder

__all__ = [
    "PostgresEntries",
    "PostgresThreads",
]


class PostgresThreads(StepSaver, PostgresSaver):
    """LangGraph's PostgreSQL checkpointer, usable from sync and async runs alike, by several machines.

    Writes to a thread that this process holds succeed only while it still holds the thread: see `runner`.
    """

    def __init__(self, database: SharedDatabase) -> None:
        super().__init__(FencedPool(database), serde=strict_serde())
        self.database = database

    def runner(self, thread_id: str) -> AbstractContextManager[None]:
        """Holds the thread's lock, so that no other runner in any process can. Raises ThreadBusy."""
        return self.database.holds.hold(thread_id)

    def is_running(self, thread_id: str) -> bool:
        """Whether a process runs the thread now."""
        with self.database.cursor() as cursor:
            return self.database.holds.is_held(cursor, thread_id)

    def threads(self) -> builtins.list[str]:
        """Returns the ids of all threads, the most recently changed first."""
        return [thread_id for _, thread_id in self.newest_first()]

    def newest_first(self) -> builtins.list[tuple[str, str]]:
        """Returns the newest checkpoint of every thread, and the thread, newest first."""
        with self.database.cursor() as cursor:
            # By characters, as Python compares them.
            cursor.execute(
                'SELECT max(checkpoint_id COLLATE "C") AS newest, thread_id FROM checkpoints '
                'GROUP BY thread_id ORDER BY newest DESC, thread_id COLLATE "C" DESC'
            )
            return [(row["newest"], row["thread_id"]) for row in cursor.fetchall()]

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        usable(config["configurable"]["thread_id"])
        self.save_all_held(config)
        return super().get_tuple(config)

    def list(self, config: RunnableConfig | None, **options: Any) -> Iterator[CheckpointTuple]:
        self.save_all_held(config)
        return super().list(config, **options)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        self.save_all_held(config)
        return super().get_delta_channel_history(config=config, channels=channels)

    def delete_thread(self, thread_id: str) -> None:
        """Deletes the thread and all that is stored of it. Raises ThreadBusy while it runs."""
        delete_thread(self, thread_id)

    def delete_rows(self, thread_id: str) -> None:
        """Deletes the rows of a thread in one transaction; `delete_thread` also deletes the rest."""
        with writing((label(thread_id),)), self.database.cursor(together=True) as cursor:
            execute = partial(_first, cursor)
            delete_rows(execute, POSTGRES, thread_id)
            if execute("SELECT to_regclass('procrastinate_jobs') IS NOT NULL", ()):
                # This also deletes the events of the jobs.
                execute("DELETE FROM procrastinate_jobs WHERE lock = %s", (lock_of(thread_id),))

    def workspace_of(self, thread_id: str) -> str | None:
        """Returns the workspace of this thread in the command line; None when it is unknown."""
        with self.database.cursor() as cursor:
            return workspace_of(partial(_first, cursor), POSTGRES, thread_id)

    def save(self, thread_id: str, statements: Sequence[Statement]) -> None:
        with writing((label(thread_id),)):
            self.database.save(statements)

    def entry_saved(self, name: EntryName, value: Mapping[str, Any]) -> Statement:
        namespace, key = name
        values = (".".join(namespace), valid_text(key), Jsonb(valid_values(value)))
        return _UPSERT, [values]

    def record(self, thread_id: str, write: Callable[[], Any]) -> builtins.list[Statement]:
        # A saver that does not use our cursor writes immediately.
        with writing((label(thread_id),)):
            return super().record(thread_id, write)

    @contextmanager
    def _cursor(self, *, pipeline: bool = False) -> Iterator[Cursor[DictRow]]:
        """Yields the cursor of all operations of LangGraph's saver; `pipeline` asks for one transaction.

        The method is private in LangGraph: a saver without it uses its connection pool.
        """
        if (kept := recorder()) is not None:
            yield cast(Cursor[DictRow], kept)
            return
        with self.database.cursor(together=pipeline) as cursor:
            yield cursor


def _first(cursor: Cursor[DictRow], statement: str, values: tuple[str, ...]) -> Any:
    cursor.execute(statement.encode(), values)
    # In a pipeline a cursor knows only afterwards whether its statement returns rows.
    row = cursor.fetchone() if statement.startswith("SELECT") else None
    return row and next(iter(row.values()))


_UPSERT = (
    "INSERT INTO store (prefix, key, value) VALUES (%s, %s, %s) ON CONFLICT (prefix, key) "
    "DO UPDATE SET value = EXCLUDED.value, updated_at = CURRENT_TIMESTAMP"
)


class PostgresEntries(StoreInThreads, PostgresStore):
    """LangGraph's PostgreSQL store, usable from sync and async runs alike, and with an atomic `swap`.

    Writes for a thread that this process holds succeed only while it still holds the thread
    (`PostgresThreads.runner`). NUL and lone surrogates, which PostgreSQL refuses, become U+FFFD.
    """

    def __init__(self, database: SharedDatabase) -> None:
        super().__init__(FencedPool(database))
        self.database = database

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        ops = [_savable(op) for op in ops]
        with writing({_thread_of(op.namespace) for op in ops if isinstance(op, PutOp)}):
            if any(not isinstance(op, PutOp) for op in ops):
                return super().batch(ops)
            self.database.save(recorded(lambda: super(PostgresEntries, self).batch(ops)))
            return [None] * len(ops)

    def swap(
        self, namespace: tuple[str, ...], key: str, before: dict[str, Any] | None, after: dict[str, Any]
    ) -> bool:
        """Replaces the value by `after` if it is still `before` (None: no entry); otherwise returns False.

        Atomic across threads and processes: if two claim the same entry, one gets it.
        """
        with writing((_thread_of(namespace),)):
            return self.database.save([_swapped(namespace, key, before, after)]) is not None

    @contextmanager
    def _cursor(self, *, pipeline: bool = False) -> Iterator[Cursor[DictRow]]:
        """Yields the cursor of all operations of LangGraph's store, private like the saver's.

        `pipeline` asks for one transaction.
        """
        if (kept := recorder()) is not None:
            yield cast(Cursor[DictRow], kept)
            return
        with self.database.cursor(together=pipeline) as cursor:
            yield cursor


def swap_in(
    cursor: Cursor[DictRow],
    namespace: tuple[str, ...],
    key: str,
    before: dict[str, Any] | None,
    after: dict[str, Any],
) -> bool:
    """Does what `PostgresEntries.swap` does, as a part of the cursor's transaction."""
    query, (values,) = _swapped(namespace, key, before, after)
    cursor.execute(query.encode(), values)
    return cursor.fetchone() is not None


def _swapped(
    namespace: tuple[str, ...], key: str, before: dict[str, Any] | None, after: dict[str, Any]
) -> Statement:
    """Returns the statement of a swap; it returns a row if the swap was done."""
    entry = (".".join(namespace), valid_text(key))
    value = Jsonb(valid_values(after))
    if before is None:
        insert = (
            "INSERT INTO store (prefix, key, value) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING RETURNING key"
        )
        return insert, [(*entry, value)]
    update = (
        "UPDATE store SET value = %s, updated_at = CURRENT_TIMESTAMP "
        "WHERE prefix = %s AND key = %s AND value = %s RETURNING key"
    )
    return update, [(value, *entry, Jsonb(valid_values(before)))]


def _thread_of(namespace: tuple[str, ...]) -> str:
    """Returns the label of the thread that an entry of ours belongs to: ("signoff", "journal", label, …)."""
    return namespace[2] if namespace[:1] == ("signoff",) and len(namespace) > 2 else ""


def _savable(op: Op) -> Op:
    if isinstance(op, GetOp):
        return op._replace(key=valid_text(op.key))
    if isinstance(op, PutOp):
        value = None if op.value is None else valid_values(op.value)
        return op._replace(key=valid_text(op.key), value=value)
    return op


# An arbitrary number that no other program uses.
_LOCK = 0x5167_6E0F_F5E7_0001

_WAIT_SECONDS = 30.0

_MISSING = -1

_TABLES = (
    "CREATE TABLE IF NOT EXISTS signoff_schema (version integer NOT NULL)",
    # One row for each thread that was ever run: how often runners have taken it.
    "CREATE TABLE IF NOT EXISTS signoff_runners (thread_id text PRIMARY KEY, token bigint NOT NULL)",
)


def set_up(address: Address) -> int:
    """Creates missing tables; returns a number that identifies these tables in this database.

    Raises StorageError when the database cannot be used or was written in another form.
    """
    with address.connect() as connection, address.errors():
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StorageError(
                f"The database {address} has the encoding {encoding}; create one with ENCODING 'UTF8'."
            )
        if _version(connection, address) == _MISSING or not _is_current(connection):
            with alone(connection, address):
                _migrate(connection, address)
        row = connection.execute("SELECT 'signoff_runners'::regclass::oid::bigint AS scope").fetchone()
        assert row is not None, "a SELECT without FROM has one row"
        return int(row["scope"])


def _version(connection: Connection[DictRow], address: Address) -> int:
    version = _highest(connection, "signoff_schema", "version")
    if version != _MISSING:
        check_schema(version, address)
    return version


def _is_current(connection: Connection[DictRow]) -> bool:
    """Whether LangGraph's tables are up to date: creating them needs rights that a runner may not have."""
    migrations = {
        "checkpoint_migrations": PostgresSaver.MIGRATIONS,
        "store_migrations": PostgresStore.MIGRATIONS,
    }
    return all(_highest(connection, table, "v") >= len(all_) - 1 for table, all_ in migrations.items())


def _highest(connection: Connection[DictRow], table: str, column: str) -> int:
    """Returns the highest number in a table; `_MISSING` when the table is missing or empty."""
    found = connection.execute("SELECT to_regclass(%s) AS found", (table,)).fetchone()
    if found is None or found["found"] is None:
        return _MISSING
    row = connection.execute(f"SELECT max({column}) AS v FROM {table}".encode()).fetchone()
    return _MISSING if row is None or row["v"] is None else int(row["v"])


def _migrate(connection: Connection[DictRow], address: Address) -> None:
    is_new = _version(connection, address) == _MISSING
    PostgresSaver(connection).setup()
    PostgresStore(connection).setup()
    for statement in _TABLES:
        connection.execute(statement.encode())
    if is_new:
        connection.execute("INSERT INTO signoff_schema (version) VALUES (%s)", (SCHEMA,))


@contextmanager
def alone(connection: Connection[DictRow], address: Address) -> Iterator[None]:
    """Lets one process at a time set up the database.

    Polls for the lock, because LangGraph creates an index CONCURRENTLY, which waits for every statement that
    was running before: also one that waits for this lock.
    """
    until = time.monotonic() + _WAIT_SECONDS
    while not _locked(connection):
        if time.monotonic() > until:
            raise StorageError(
                f"The database {address} is being set up by another process; try again when it has finished."
            )
        time.sleep(0.05)
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))


def _locked(connection: Connection[DictRow]) -> bool:
    row = connection.execute("SELECT pg_try_advisory_lock(%s) AS got", (_LOCK,)).fetchone()
    return row is not None and bool(row["got"])
