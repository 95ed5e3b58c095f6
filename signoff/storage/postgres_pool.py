"""The open PostgreSQL database: connections for storage calls, and one runner for each thread.

A runner holds a lock by a session of its own, so that the server frees it when the process that holds it
dies. But a process that is only stopped, or cut off, does not know that the server has ended its session and
that another runner has taken the thread over. So each taking of a thread counts up its token, and every write
of a runner makes sure, in its own transaction, that the token is still the runner's.
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
from signoff.graph.errors import StorageError, ThreadError, shown
from signoff.graph.foreign import checked_thread_id, label
from signoff.storage.postgres_address import CONNECTION, Address, configure
from signoff.storage.steps import Statement

LONGEST_ID = 512
"""The bytes of a thread id, as UTF-8; its rows are found by indexes, which cannot hold much more."""


def usable(thread_id: str) -> str:
    """The id itself. Raises SetupError for anything that is not an id, ThreadError when PostgreSQL cannot
    hold it."""
    size = len(checked_thread_id(thread_id).encode())
    if size > LONGEST_ID:
        raise ThreadError(
            f"The thread id {shown(thread_id)} is {size:,} bytes long; PostgreSQL takes at most {LONGEST_ID}."
        )
    return thread_id


_ASK_SECONDS = 0.02
_TAKE = (
    "INSERT INTO signoff_runners (thread_id, token) VALUES (%s, 1) ON CONFLICT (thread_id) "
    "DO UPDATE SET token = signoff_runners.token + 1 RETURNING token"
)
_TOKEN = "SELECT token FROM signoff_runners WHERE thread_id = %s"
# In one statement after the lock, since each sees what was saved when it began. Nothing else of ours divides.
_FENCE = "SELECT 1 / count(*) FROM signoff_runners WHERE thread_id = %s AND token = %s"
_LOST = psycopg.errors.DivisionByZero
_LOCKS = (
    "FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND classid = %s::bigint::oid "
    "AND objid = %s::bigint::oid "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class HeldThread:
    """A thread that a runner of this process holds."""

    def __init__(self, address: Address, scope: int, thread_id: str, session: str = "") -> None:
        self.address = address
        self.thread_id = thread_id
        self.session = session
        self.run_key = _key("run", scope, thread_id)
        self.write_key = _key("write", scope, thread_id)
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
                self._token = self._counted(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def make_sure(self) -> None:
        """Takes the lock again when its session has ended without this process knowing.

        Raises ThreadLost when another runner has it, StorageError when it cannot be had.
        """
        with self._lock:
            if self._lost:
                raise lost(self.thread_id)
            if self._connection is None or not _alive(self._connection):
                self._take_again()

    def fence(self, connection: Connection[DictRow]) -> None:
        """Lets the connection's transaction fail (`_LOST`) when another runner has taken the thread, and
        lets none take it before that ends. Waits for no answer."""
        # Not a lock of the row, which would be a write on the disk for each of ours.
        connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", (self.write_key,))
        connection.execute(_FENCE, (self.thread_id, self._token))

    def check(self, connection: Connection[DictRow]) -> None:
        """Raises ThreadLost when another runner has taken the thread; nothing more is written then."""
        row = connection.execute(_TOKEN, (self.thread_id,)).fetchone()
        if row is None or row["token"] != self._token:
            with self._lock:
                self._lost = True
                self._close()
            raise lost(self.thread_id)

    def let_go(self) -> None:
        with self._lock:
            connection = self._connection
            # The server has freed the lock of a session that is gone.
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
            f"The connection that held thread {shown(self.thread_id)} was cut off, and the thread is not "
            "free again yet; nothing is lost, go on with it in a minute."
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

    def _counted(self, connection: Connection[DictRow]) -> int:
        """Counts the token up, when no write of the runner before is under way."""
        for _ in range(2):
            try:
                with connection.transaction():
                    connection.execute("SELECT set_config('lock_timeout', '1s', true)")
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", (self.write_key,))
                    row = connection.execute(_TAKE, (self.thread_id,)).fetchone()
                    assert row is not None, "RETURNING gives the row that was written"
                    return int(row["token"])
            except psycopg.errors.LockNotAvailable:
                # A runner without its lock stands still in the middle of a write. It must not be finished.
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
    """The threads that runners of this process hold, by the label that the store knows them by.

    session: what the server shows the sessions as that hold them (`application_name`); empty: as any other.
    """

    def __init__(self, address: Address, scope: int) -> None:
        self.session = ""
        self._address = address
        self._scope = scope
        self._lock = threading.Lock()
        self._held: dict[str, HeldThread] = {}

    @contextmanager
    def hold(self, thread_id: str) -> Iterator[None]:
        """Holds the thread. Raises ThreadBusy when another runner does, ThreadError for an id that cannot be
        kept, StorageError when the database cannot be reached."""
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
        """Those of `labels` that are held here."""
        with self._lock:
            return [self._held[name] for name in labels if name in self._held]

    def is_held(self, cursor: Cursor[DictRow], thread_id: str) -> bool:
        """Whether a runner of any process holds the thread."""
        key = _key("run", self._scope, thread_id)
        row = cursor.execute(f"SELECT count(*) AS holders {_LOCKS}".encode(), _parts(key)).fetchone()
        return row is not None and row["holders"] > 0

    def cut_off(self, cursor: Cursor[DictRow], thread_id: str, session: str) -> None:
        """Ends the session of this name that holds the thread, if one does: its process is taken for dead.

        Should it come back, it holds the thread no more, or gets ThreadLost when another runner took it.
        """
        key = _key("run", self._scope, thread_id)
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s "
            f"AND pid IN (SELECT pid {_LOCKS})".encode(),
            (session, *_parts(key)),
        )

    def _enter(self, held: HeldThread) -> None:
        """One runner in this process: one that has lost its lock must not write in the name of the next."""
        until = time.monotonic() + GRACE_SECONDS
        while True:
            with self._lock:
                if self._held.setdefault(label(held.thread_id), held) is held:
                    return
            if time.monotonic() > until:
                raise busy(held.thread_id)
            time.sleep(_ASK_SECONDS)


def _alive(connection: Connection[DictRow]) -> bool:
    """Whether the session is there, as far as this machine knows; asks nothing of the server."""
    try:
        # Twice: the first one reads the server's farewell, the second one finds the end of the stream.
        connection.pgconn.consume_input()
        connection.pgconn.consume_input()
    except psycopg.Error:
        return False
    return True


def _check(connection: Connection[Any]) -> None:
    """Raises OperationalError for a connection that the server has ended, so that the pool gives another one.
    It asks nothing of the server, which would be a round trip for each of ours."""
    if not _alive(connection):
        raise psycopg.OperationalError("the connection was lost")


def _key(kind: str, scope: int, thread_id: str) -> int:
    """A lock of the database: 64 bits, of these tables and this thread alone."""
    name = f"signoff\0{kind}\0{scope}\0{thread_id}".encode(errors="surrogatepass")
    return int.from_bytes(hashlib.sha256(name).digest()[:8], signed=True)


def _parts(key: int) -> tuple[int, int]:
    """A key as `pg_locks` shows it."""
    return divmod(key % 2**64, 2**32)


_MOST_CONNECTIONS = 8
_WAIT_SECONDS = 8.0
# Shorter than the wait: a pool that has given up tries again as soon as it is asked again.
_RECONNECT_SECONDS = 4.0

_threads: ContextVar[Collection[str]] = ContextVar("_threads", default=())


class SharedDatabase:
    """Gives out cursors, and holds threads."""

    def __init__(self, address: Address, pool: ConnectionPool[Connection[DictRow]], scope: int) -> None:
        self.address = address
        self.pool = pool
        self.holds = Holds(address, scope)

    @contextmanager
    def cursor(self, *, together: bool = False) -> Iterator[Cursor[DictRow]]:
        """A cursor. `together`: all that it does is one transaction, and in it every thread that is written
        to (see `writing`) and is held here is known to be held still.

        Raises ThreadLost when another runner has taken such a thread over, StorageError when the database
        cannot be used.
        """
        with self.connection(together=together) as connection, _cursor(connection) as cursor:
            yield cursor

    @contextmanager
    def connection(self, *, together: bool = False) -> Iterator[Connection[DictRow]]:
        """A connection; `together` and what is raised as for `cursor`."""
        if not together:
            with self.address.errors(), self.pool.connection() as connection:
                yield connection
            return
        with self._fenced() as (connection, pipeline):
            yield connection
            if pipeline is not None:
                # Errors of what was sent arrive inside of the transaction.
                pipeline.sync()

    def save(self, statements: Sequence[Statement]) -> DictRow | None:
        """Carries them out in one transaction, in one round trip, fenced as `together` is; gives the row that
        the first of them gives, if it does."""
        with self._fenced() as (connection, _):
            cursor = _cursor(connection)
            for query, rows in statements:
                for each, values in batches(query, rows):
                    cursor.execute(each, values)
        with cursor:
            return cursor.fetchone() if cursor.description else None

    @contextmanager
    def _fenced(self) -> Iterator[tuple[Connection[DictRow], Pipeline | None]]:
        """A connection in a transaction in which the threads that are written to stay with their runners."""
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
                    # The end of the transaction was sent, but not heard: it stands after the error.
                    connection.rollback()
                if isinstance(error, _LOST):
                    for one in held:
                        one.check(connection)
                raise

    @contextmanager
    def transaction(self) -> Iterator[Connection[DictRow]]:
        """A connection in a transaction that fences nothing: for what no runner writes.

        Raises StorageError when the database cannot be used.
        """
        with self.address.errors(), self.pool.connection() as connection, connection.transaction():
            yield connection


class FencedPool(ConnectionPool[Connection[DictRow]]):
    """The database in the form in which LangGraph's saver and store take one: fenced, should they ever use it
    by themselves, and not by the private `_cursor` that ours has in place of theirs."""

    def __init__(self, database: SharedDatabase) -> None:
        # It opens nothing of its own.
        self.database = database

    @contextmanager
    def connection(self, timeout: float | None = None) -> Iterator[Connection[DictRow]]:
        with self.database.connection(together=bool(_threads.get())) as connection:
            yield connection


@contextmanager
def writing(labels: Collection[str]) -> Iterator[None]:
    """Says which threads the cursors that are asked for meanwhile write to."""
    token = _threads.set(labels)
    try:
        yield
    finally:
        _threads.reset(token)


@contextmanager
def open_pool(address: Address, scope: int) -> Iterator[SharedDatabase]:
    """The database at `address`, whose tables are there; closed in the end."""
    # The driver logs warnings of lost connections, which Python prints when no log is set up. What matters
    # is raised by the calls that fail.
    logging.getLogger("psycopg").addHandler(logging.NullHandler())
    pool: ConnectionPool[Connection[DictRow]] = ConnectionPool(
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
    with pool:
        yield SharedDatabase(address, pool, scope)


_VALUES = re.compile(r"VALUES (\(%s(?:, %s)*\))")
_MOST_ROWS = 16


def batches(query: str, rows: Sequence[Any]) -> Iterator[tuple[bytes, Sequence[Any]]]:
    """The statements that carry out `query` for all rows: several rows in one, where that does the same."""
    size = _MOST_ROWS if len(rows) > 1 and _takes_rows(query) else 1
    for first in range(0, len(rows), size):
        some = rows[first : first + size]
        yield _for_rows(query, len(some)), some[0] if len(some) == 1 else [*chain(*some)]


def _takes_rows(query: str) -> bool:
    # One that updates may not meet the same row twice.
    return "DO NOTHING" in query and _VALUES.search(query) is not None


@lru_cache(maxsize=256)
def _for_rows(query: str, count: int) -> bytes:
    """`query`, which inserts one row, for so many."""
    if count == 1:
        return query.encode()
    return _VALUES.sub(lambda found: "VALUES " + ", ".join([found[1]] * count), query, count=1).encode()


def _cursor(connection: Connection[DictRow]) -> Cursor[DictRow]:
    return connection.cursor(binary=True, row_factory=dict_row)


def _pipeline(connection: Connection[Any]) -> AbstractContextManager[Pipeline | None]:
    return connection.pipeline() if Capabilities().has_pipeline() else nullcontext()
