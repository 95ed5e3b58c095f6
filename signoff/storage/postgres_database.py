"""The PostgreSQL database of `postgres_storage`: its sessions, its checkpointer and its store."""

import asyncio
import hashlib
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.store.postgres import PostgresStore
from psycopg.types.json import Jsonb
from psycopg_pool import ConnectionPool

from signoff.graph.compiled.holds import Hold, lost
from signoff.graph.errors import StorageError
from signoff.graph.foreign import label
from signoff.storage.base import (
    SCHEMA,
    Database,
    EntryStore,
    LockedHold,
    ThreadSaver,
    check_schema,
    comes_true,
)
from signoff.storage.deleting import lock_of
from signoff.storage.forking import ending
from signoff.storage.postgres_address import Address, Session

__all__ = ["PostgresCheckpointer", "PostgresEntryStore"]

_ENDING_SECONDS, _SETUP_SECONDS = 8.0, 30.0
_MOST_CONNECTIONS, _WAIT_SECONDS = 8, 8.0
# Shorter than the wait: a pool that has given up tries again at the next request.
_RECONNECT_SECONDS = 4.0
_SETTING_UP = 0x5167_6E0F_F5E7_0001
"""The key of the lock for setting up a database, which no other program uses."""
_T = TypeVar("_T")
_MIGRATIONS = len(PostgresSaver.MIGRATIONS) + len(PostgresStore.MIGRATIONS)
_LOCKS = (
    "FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 "
    "AND (classid::bigint << 32 | objid::bigint) = %s "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_writes_by: ContextVar[Session | None] = ContextVar("_writes_by", default=None)
"""The session of the write that is being made; None for whoever reads."""


def value_of(connection: Session, sql: str, *values: object) -> Any:
    """The one value that a statement gives; None without a row."""
    row = connection.execute(sql.encode(), values).fetchone()
    return None if row is None else next(iter(row.values()))


class SessionHold(LockedHold):
    """A hold, and the session that has its lock and makes its writes."""

    def __init__(self, thread_id: str, database: "PostgresDatabase") -> None:
        super().__init__(thread_id, database.name)
        self._key, self._errors = database.key(self.label), database.address.errors
        self.session = database.address.connect(application_name=database.session)
        self.pid = self.session.info.backend_pid

    def lock(self) -> bool:
        # Polled for, because LangGraph creates an index CONCURRENTLY, which waits for every statement that
        # was running before: also one that waits for a lock.
        with self._errors():
            return bool(value_of(self.session, "SELECT pg_try_advisory_lock(%s)", self._key))

    def unlock(self) -> None:
        # Where the session has ended, so has its lock.
        with suppress(psycopg.Error):
            self.session.execute("SELECT pg_advisory_unlock(%s)", (self._key,))
        self.session.close()

    def write(self, work: Callable[[], _T]) -> _T:
        token = _writes_by.set(self.session)
        try:
            return super().write(work)
        finally:
            _writes_by.reset(token)


class Sessions(ConnectionPool[Session]):
    """A pool that gives a write the session of its hold."""

    @contextmanager
    def connection(self, timeout: float | None = None) -> Iterator[Session]:
        if (session := _writes_by.get()) is not None:
            yield session
        else:
            with super().connection(timeout) as connection:
                yield connection


class PostgresDatabase(Database):
    """The open database.

    schema: where its tables are. session: the `application_name` of the sessions that hold threads, if not
    the default one.
    """

    conn: Sessions

    def __init__(self, address: Address, schema: str) -> None:
        self.address, self.schema = address, schema
        self.session: str | None = None
        super().__init__((address.conninfo, schema), f"{address} {schema}")

    def connect(self) -> Sessions:
        pool = Sessions(
            self.address.conninfo,
            connection_class=Session,
            min_size=1,
            max_size=_MOST_CONNECTIONS,
            open=True,
            check=ConnectionPool.check_connection,
            timeout=_WAIT_SECONDS,
            reconnect_timeout=_RECONNECT_SECONDS,
        )
        self._executor = ThreadPoolExecutor(_MOST_CONNECTIONS, f"{pool.name}-async")
        return pool

    def disconnect(self) -> None:
        with ending:
            prefix = f"{self.conn.name}-"
            threads = [
                Path(f"/proc/self/task/{thread.native_id}")
                for thread in threading.enumerate()
                if thread.name.startswith(prefix)
            ]
            self._executor.shutdown()
            self.conn.close()
            # Python has joined a thread before the system ends it; OpenSSL tidies up in between, and locks.
            comes_true(lambda: not any(thread.exists() for thread in threads), _ENDING_SECONDS)

    def do(self, work: Callable[[], _T], hold: Hold | None = None) -> _T:
        self.check()
        try:
            with self.address.errors():
                return work() if hold is None else hold.write(work)
        except StorageError:
            if isinstance(hold, SessionHold) and hold.session.closed and self._is_taken_over(hold):
                raise lost(hold.thread_id) from None
            raise

    async def ado(self, work: Callable[[], _T]) -> _T:
        self.check()
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with self.connection() as connection:
            rows = connection.execute(sql.encode(), values)
            return [tuple(row.values()) for row in rows] if rows.description else []

    def unlocked_hold(self, thread_id: str) -> LockedHold:
        return SessionHold(thread_id, self)

    def is_held(self, thread_id: str) -> bool:
        with self.connection() as connection:
            return bool(self._holders(connection, thread_id))

    def _is_taken_over(self, hold: SessionHold) -> bool:
        with suppress(StorageError), self.address.connect() as connection:
            # The server may not have noticed yet that the session of this hold has ended.
            return bool(self._holders(connection, hold.thread_id) - {hold.pid})
        return False

    def _holders(self, connection: Session, thread_id: str) -> set[int]:
        """The sessions that have the lock of a thread: one, or none."""
        rows = connection.execute(f"SELECT pid {_LOCKS}".encode(), (self.key(label(thread_id)),))
        return {row["pid"] for row in rows}

    def cut_off(self, thread_id: str, session: str) -> None:
        """Ends the session that holds the thread if its name is like this: its process is presumed dead."""
        query = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE %s "
            f"AND pid IN (SELECT pid {_LOCKS})"
        )
        self.query(query, session, self.key(label(thread_id)))

    @contextmanager
    def connection(self) -> Iterator[Session]:
        """A pooled connection, for what no runner writes. Raises StorageError."""
        self.check()
        with self.address.errors(), self.conn.connection() as connection:
            yield connection

    def key(self, name: str) -> int:
        """The key of the lock of the thread with this label in this schema."""
        text = f"signoff\0{self.schema}\0{name}".encode(errors="surrogatepass")
        return int.from_bytes(hashlib.sha256(text).digest()[:8], signed=True)


class PostgresEntryStore(EntryStore, PostgresStore):
    """LangGraph's store for PostgreSQL, for sync and async runs, with an atomic `swap`."""

    database: PostgresDatabase

    def swap_now(self, prefix: str, key: str, before: Any, after: Any) -> bool:
        with self.database.conn.connection() as connection:
            return swap_in(connection, prefix, key, before, after)


def swap_in(connection: Session, prefix: str, key: str, before: Any, after: Any) -> bool:
    """What `swap` does, as a part of the connection's transaction."""
    if before is None:
        query = "INSERT INTO store (prefix, key, value) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
        return connection.execute(query, (prefix, key, Jsonb(after))).rowcount == 1
    query = "UPDATE store SET value = %s, updated_at = now() WHERE prefix = %s AND key = %s AND value = %s"
    return connection.execute(query, (Jsonb(after), prefix, key, Jsonb(before))).rowcount == 1


class PostgresCheckpointer(ThreadSaver, PostgresSaver):
    """LangGraph's checkpointer for PostgreSQL, for sync and async runs; a runner holds its thread."""

    database: PostgresDatabase

    def _delete_queued(self, thread_id: str) -> None:
        if self.database.query("SELECT to_regclass('procrastinate_jobs')") != [(None,)]:
            # This also deletes the events of the jobs.
            self.database.query("DELETE FROM procrastinate_jobs WHERE lock = %s", lock_of(thread_id))


def opened(address: Address) -> PostgresDatabase:
    """The database at an address, with all its tables."""
    # The driver logs warnings of lost connections, which Python prints when logging is not configured. The
    # failing calls raise what matters.
    logging.getLogger("psycopg").addHandler(logging.NullHandler())
    return PostgresDatabase(address, _set_up(address))


def _set_up(address: Address) -> str:
    """Creates missing tables; returns the schema that they are in.

    Raises StorageError when the database cannot be used or was written in another form.
    """
    with address.connect() as connection, address.errors():
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StorageError(
                f"The database {address} has the encoding {encoding}; create one with ENCODING 'UTF8'."
            )
        _check_sessions(connection, address)
        # A user who may not create tables can use those that are there.
        if _migrations(connection, address) < _MIGRATIONS:
            wait_to_set_up(connection, address)
            # Another process may have done so by now.
            if _migrations(connection, address) < _MIGRATIONS:
                _migrate(connection)
        return str(value_of(connection, "SELECT current_schema()"))


def _check_sessions(connection: Session, address: Address) -> None:
    """Raises StorageError behind a pooler that lends one session to several clients."""
    with address.connect() as other:
        first, second, again = (
            value_of(session, "SELECT pg_backend_pid()") for session in (connection, other, connection)
        )
    if first == second or first != again:
        raise StorageError(
            f"The database {address} is behind a pooler that shares sessions between transactions; use its "
            "session mode, or the server's own address: a runner locks its thread with its session."
        )


def _migrations(connection: Session, address: Address) -> int:
    """How many of LangGraph's migrations the database has had. Raises StorageError for another form."""
    if value_of(connection, "SELECT to_regclass('signoff_schema')") is None:
        return 0
    for row in connection.execute("SELECT * FROM signoff_schema"):
        check_schema(row["version"], address)
        return int(row["migrations"])
    return 0


def _migrate(connection: Session) -> None:
    PostgresSaver(connection).setup()
    PostgresStore(connection).setup()
    with connection.transaction():
        columns = "version integer NOT NULL, migrations integer NOT NULL"
        connection.execute(f"CREATE TABLE IF NOT EXISTS signoff_schema ({columns})".encode())
        connection.execute("DELETE FROM signoff_schema")
        connection.execute("INSERT INTO signoff_schema VALUES (%s, %s)", (SCHEMA, _MIGRATIONS))


def wait_to_set_up(connection: Session, address: Address) -> None:
    """Lets one process at a time set up the database: until the end of this connection it is this one."""
    # Polled for, as the lock of a thread.
    is_first = partial(value_of, connection, "SELECT pg_try_advisory_lock(%s)", _SETTING_UP)
    if not comes_true(is_first, _SETUP_SECONDS):
        raise StorageError(
            f"The database {address} is being set up by another process; try again when it has finished."
        )
