"""The open PostgreSQL database: connections for storage calls, and one runner for each thread.

A runner holds a lock with a session of its own, so that the server frees it when the process dies. But a
process that was only stopped, or lost its connection, does not know that the server has ended its session and
that another runner has taken over the thread. So taking a thread increments its fencing token, and every
write of a runner checks, in its own transaction, that the token is still the runner's.
"""

import hashlib
import logging
import re
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import lru_cache
from itertools import chain
from typing import Any

import psycopg
from psycopg import Capabilities, Connection, Cursor, Pipeline
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow, dict_row
from psycopg_pool import ConnectionPool

from signoff.graph.compiled.graph import GRACE_SECONDS, busy, lost
from signoff.graph.errors import StorageError, ThreadError, quote_id
from signoff.graph.foreign import checked_thread_id, label
from signoff.storage.postgres_address import CONNECTION, Address, configure
from signoff.storage.steps import Statement

LONGEST_ID = 512
"""The largest thread id in bytes, as UTF-8; PostgreSQL's indexes cannot hold much more."""


def usable(thread_id: str) -> str:
    """Returns the id. Raises SetupError if it is not an id, ThreadError if PostgreSQL cannot store it."""
    size = len(checked_thread_id(thread_id).encode())
    if size > LONGEST_ID:
        raise ThreadError(
            f"The thread id {quote_id(thread_id)} is {size:,} bytes long; PostgreSQL takes at "
            f"most {LONGEST_ID}."
        )
    return thread_id


_ASK_SECONDS = 0.02
_TAKE = (
    "INSERT INTO signoff_runners (thread_id, token) VALUES (%s, 1) ON CONFLICT (thread_id) "
    "DO UPDATE SET token = signoff_runners.token + 1 RETURNING token"
)
_TOKEN = "SELECT token FROM signoff_runners WHERE thread_id = %s"
# In a statement after the lock, because each statement sees the data of when it began. No other statement of
# ours divides.
_FENCE = "SELECT 1 / count(*) FROM signoff_runners WHERE thread_id = %s AND token = %s"
_LOST = psycopg.errors.DivisionByZero
_LOCKS = (
    "FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND classid = %s::bigint::oid "
    "AND objid = %s::bigint::oid "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class HeldThread:
    """A thread whose lock a runner of this process holds."""

    def __init__(self, address: Address, scope: int, thread_id: str, session: str = "") -> None:
        self.address = address
        self.thread_id = thread_id
        self.session = session
        self.run_key: int = _key("run", scope, thread_id)
        self.write_key: int = _key("write", scope, thread_id)
        self._lock = threading.Lock()
        self._connection: Connection[DictRow] | None = None
        self._token = 0
        self._lost = False

    def take(self) -> None:
        """Takes the thread. Raises ThreadBusy when another session holds it."""
        connection = self._connected()
        try:
            with self.address.errors():
                if not self._locked(connection):
                    raise busy(self.thread_id)
                self._token = self._increment_token(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def make_sure(self) -> None:
        """Takes the lock again if its session has ended without this process noticing.

        Raises ThreadLost when another runner has the lock, StorageError when it cannot be taken.
        """
        with self._lock:
            if self._lost:
                raise lost(self.thread_id)
            if self._connection is None or not _alive(self._connection):
                self._take_again()

    def fence(self, connection: Connection[DictRow]) -> None:
        """Makes the connection's transaction fail (`_LOST`) if another runner has taken the thread.

        No runner can take the thread before that transaction ends. Does not wait for a response.
        """
        # Not a lock on the row, which would add a disk write to each of our writes.
        connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", (self.write_key,))
        connection.execute(_FENCE, (self.thread_id, self._token))

    def check(self, connection: Connection[DictRow]) -> None:
        """Raises ThreadLost when another runner has taken the thread; this one then writes nothing more."""
        row = connection.execute(_TOKEN, (self.thread_id,)).fetchone()
        if row is None or row["token"] != self._token:
            with self._lock:
                self._lost = True
                self._close()
            raise lost(self.thread_id)

    def let_go(self) -> None:
        with self._lock:
            connection = self._connection
            # The server frees the lock of a session that has ended.
            with suppress(psycopg.Error):
                if connection is not None and not connection.closed:
                    connection.execute("SELECT pg_advisory_unlock(%s)", (self.run_key,))
            self._close()

    def _take_again(self) -> None:
        self._close()
        connection = self._connected()
        try:
            with self.address.errors():
                if self._locked(connection):
                    self._connection = connection
                    return
                row = connection.execute(_TOKEN, (self.thread_id,)).fetchone()
        finally:
            if self._connection is None:
                connection.close()
        if row is None or row["token"] != self._token:
            self._lost = True
            raise lost(self.thread_id)
        raise StorageError(
            f"The connection that held thread {quote_id(self.thread_id)} was lost, and the thread "
            "is not free again yet; nothing is lost, continue it in a minute."
        )

    def _connected(self) -> Connection[DictRow]:
        connection = self.address.connect()
        if self.session:
            with self.address.errors():
                connection.execute("SELECT set_config('application_name', %s, false)", (self.session,))
        return connection

    def _locked(self, connection: Connection[DictRow]) -> bool:
        until = time.monotonic() + GRACE_SECONDS
        while True:
            row = connection.execute("SELECT pg_try_advisory_lock(%s) AS got", (self.run_key,)).fetchone()
            if row is not None and row["got"]:
                return True
            if time.monotonic() > until:
                return False
            time.sleep(_ASK_SECONDS)

    def _increment_token(self, connection: Connection[DictRow]) -> int:
        """Increments the token when no write of the previous runner is in progress, and returns it."""
        for _ in range(2):
            try:
                with connection.transaction():
                    connection.execute("SELECT set_config('lock_timeout', '1s', true)")
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", (self.write_key,))
                    row = connection.execute(_TAKE, (self.thread_id,)).fetchone()
                    assert row is not None, "RETURNING gives the row that was written"
                    return int(row["token"])
            except psycopg.errors.LockNotAvailable:
                # A runner that lost its lock is stopped in the middle of a write, which must not complete.
                with suppress(psycopg.errors.InsufficientPrivilege):
                    connection.execute(
                        f"SELECT pg_terminate_backend(pid) {_LOCKS}".encode(), _parts(self.write_key)
                    )
        raise busy(self.thread_id)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class Holds:
    """The threads that runners of this process hold, by their label in the store.

    session: the `application_name` of the sessions that hold them; empty for the default name.
    """

    def __init__(self, address: Address, scope: int) -> None:
        self.session = ""
        self._address = address
        self._scope = scope
        self._lock = threading.Lock()
        self._held: dict[str, HeldThread] = {}

    @contextmanager
    def hold(self, thread_id: str) -> Iterator[None]:
        """Holds the thread's lock during the block.

        Raises ThreadBusy when another runner has it, ThreadError for an id that cannot be stored,
        StorageError when the database cannot be reached.
        """
        held = HeldThread(self._address, self._scope, usable(thread_id), self.session)
        self._enter(held)
        try:
            held.take()
            try:
                yield
            finally:
                held.let_go()
        finally:
            with self._lock:
                del self._held[label(thread_id)]

    def among(self, labels: Collection[str]) -> list[HeldThread]:
        """Returns the threads with these labels that this process holds."""
        with self._lock:
            return [self._held[name] for name in labels if name in self._held]

    def is_held(self, cursor: Cursor[DictRow], thread_id: str) -> bool:
        """Whether a runner in any process holds the thread."""
        key = _key("run", self._scope, thread_id)
        row = cursor.execute(f"SELECT count(*) AS holders {_LOCKS}".encode(), _parts(key)).fetchone()
        return row is not None and row["holders"] > 0

    def cut_off(self, cursor: Cursor[DictRow], thread_id: str, session: str) -> None:
        """Ends the session of this name that holds the thread, if any: its process is presumed dead.

        If the process comes back, it no longer holds the thread, or gets ThreadLost when another runner took
        it.
        """
        key = _key("run", self._scope, thread_id)
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s "
            f"AND pid IN (SELECT pid {_LOCKS})".encode(),
            (session, *_parts(key)),
        )

    def _enter(self, held: HeldThread) -> None:
        """Registers the thread's only runner in this process: one that lost its lock must not write."""
        until = time.monotonic() + GRACE_SECONDS
        while True:
            with self._lock:
                if self._held.setdefault(label(held.thread_id), held) is held:
                    return
            if time.monotonic() > until:
                raise busy(held.thread_id)
            time.sleep(_ASK_SECONDS)


def _alive(connection: Connection[DictRow]) -> bool:
    """Whether the session is open, as far as this machine knows; sends nothing to the server."""
    try:
        # Twice: the first call reads the server's last message, the second finds the end of the stream.
        connection.pgconn.consume_input()
        connection.pgconn.consume_input()
    except psycopg.Error:
        return False
    return True


def _check(connection: Connection[Any]) -> None:
    """Raises OperationalError for a connection that the server has ended; the pool then takes another one.

    Sends nothing to the server, which would cost a round trip for each storage call.
    """
    if not _alive(connection):
        raise psycopg.OperationalError("the connection was lost")


def _key(kind: str, scope: int, thread_id: str) -> int:
    """Returns the 64-bit key of an advisory lock for this thread in these tables."""
    name = f"signoff\0{kind}\0{scope}\0{thread_id}".encode(errors="surrogatepass")
    return int.from_bytes(hashlib.sha256(name).digest()[:8], signed=True)


def _parts(key: int) -> tuple[int, int]:
    """Returns the two halves of a key as `pg_locks` shows them."""
    return divmod(key % 2**64, 2**32)


_MOST_CONNECTIONS = 8
_WAIT_SECONDS = 8.0
# Shorter than the wait: a pool that has given up tries again at the next request.
_RECONNECT_SECONDS = 4.0

_threads: ContextVar[Collection[str]] = ContextVar("_threads", default=())


class SharedDatabase:
    """Provides cursors, and locks threads."""

    def __init__(self, address: Address, pool: ConnectionPool[Connection[DictRow]], scope: int) -> None:
        self.address = address
        self.pool = pool
        self.holds: Holds = Holds(address, scope)

    @contextmanager
    def cursor(self, *, together: bool = False) -> Iterator[Cursor[DictRow]]:
        """Yields a cursor.

        together: everything runs in one transaction, which checks that this process still holds each of its
        threads that is written to (see `writing`). Raises ThreadLost when another runner has taken over such
        a thread, StorageError when the database cannot be used.
        """
        with self.connection(together=together) as connection, _cursor(connection) as cursor:
            yield cursor

    @contextmanager
    def connection(self, *, together: bool = False) -> Iterator[Connection[DictRow]]:
        """Yields a connection; `together` and the errors are those of `cursor`."""
        if not together:
            with self.address.errors(), self.pool.connection() as connection:
                yield connection
            return
        with self._fenced() as (connection, pipeline):
            yield connection
            if pipeline is not None:
                # Errors of the statements sent so far are raised inside the transaction.
                pipeline.sync()

    def save(self, statements: Sequence[Statement]) -> DictRow | None:
        """Executes the statements in one transaction and one round trip, fenced like `together`.

        Returns the row of the first statement, if it has one.
        """
        with self._fenced() as (connection, _):
            cursor = _cursor(connection)
            for query, rows in statements:
                for each, values in batches(query, rows):
                    cursor.execute(each, values)
        with cursor:
            return cursor.fetchone() if cursor.description else None

    @contextmanager
    def _fenced(self) -> Iterator[tuple[Connection[DictRow], Pipeline | None]]:
        """Yields a connection in a transaction during which no runner can take the written threads."""
        held = self.holds.among(_threads.get())
        for one in held:
            one.make_sure()
        with self.address.errors(), self.pool.connection() as connection:
            try:
                with _pipeline(connection) as pipeline, connection.transaction():
                    for one in held:
                        one.fence(connection)
                    yield connection, pipeline
            except psycopg.Error as error:
                if connection.pgconn.transaction_status == TransactionStatus.INERROR:
                    # The end of the transaction was sent, but not executed: it comes after the error.
                    connection.rollback()
                if isinstance(error, _LOST):
                    for one in held:
                        one.check(connection)
                raise

    @contextmanager
    def transaction(self) -> Iterator[Connection[DictRow]]:
        """Yields a connection in a transaction without fencing, for data that no runner writes.

        Raises StorageError when the database cannot be used.
        """
        with self.address.errors(), self.pool.connection() as connection, connection.transaction():
            yield connection


class FencedPool(ConnectionPool[Connection[DictRow]]):
    """The database as a connection pool for LangGraph's saver and store.

    It is fenced, in case they ever use it directly instead of the private `_cursor` that our classes
    override.
    """

    def __init__(self, database: SharedDatabase) -> None:
        # It opens no connections of its own.
        self.database = database

    @contextmanager
    def connection(self, timeout: float | None = None) -> Iterator[Connection[DictRow]]:
        with self.database.connection(together=bool(_threads.get())) as connection:
            yield connection


@contextmanager
def writing(labels: Collection[str]) -> Iterator[None]:
    """Declares which threads the cursors opened in this block write to."""
    token = _threads.set(labels)
    try:
        yield
    finally:
        _threads.reset(token)


def new_pool(address: Address) -> ConnectionPool[Connection[DictRow]]:
    """A pool of connections to the database at `address`; `with` opens and closes it."""
    # The driver logs warnings of lost connections, which Python prints when logging is not configured. The
    # failing calls raise what matters.
    logging.getLogger("psycopg").addHandler(logging.NullHandler())
    return ConnectionPool(
        address.conninfo,
        kwargs=CONNECTION,
        min_size=1,
        max_size=_MOST_CONNECTIONS,
        open=False,
        configure=configure,
        check=_check,
        timeout=_WAIT_SECONDS,
        reconnect_timeout=_RECONNECT_SECONDS,
        name="signoff",
    )


_VALUES = re.compile(r"VALUES (\(%s(?:, %s)*\))")
_MOST_ROWS = 16


def batches(query: str, rows: Sequence[Any]) -> Iterator[tuple[bytes, Sequence[Any]]]:
    """Yields statements that execute `query` for all rows, several rows in one where that is equivalent."""
    size = _MOST_ROWS if len(rows) > 1 and _takes_rows(query) else 1
    for first in range(0, len(rows), size):
        some = rows[first : first + size]
        yield _for_rows(query, len(some)), some[0] if len(some) == 1 else [*chain(*some)]


def _takes_rows(query: str) -> bool:
    # A statement that updates may not affect the same row twice.
    return "DO NOTHING" in query and _VALUES.search(query) is not None


@lru_cache(maxsize=256)
def _for_rows(query: str, count: int) -> bytes:
    """Returns `query`, which inserts one row, changed to insert this many rows."""
    if count == 1:
        return query.encode()
    return _VALUES.sub(lambda found: "VALUES " + ", ".join([found[1]] * count), query, count=1).encode()


def _cursor(connection: Connection[DictRow]) -> Cursor[DictRow]:
    return connection.cursor(binary=True, row_factory=dict_row)


def _pipeline(connection: Connection[Any]) -> AbstractContextManager[Pipeline | None]:
    return connection.pipeline() if Capabilities().has_pipeline() else nullcontext()
