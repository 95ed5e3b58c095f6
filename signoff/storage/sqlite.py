"""Storage for threads on one machine: LangGraph's saver and store for SQLite, and a lock file a thread.

The lock is the operating system's, which frees it when the process dies.
"""

import errno
import hashlib
import json
import os
import re
import sqlite3
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal, TypeVar

from filelock import FileLock, Timeout
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.sqlite import SqliteStore

from signoff.graph.compiled.graph import GRACE_SECONDS
from signoff.graph.compiled.holds import Hold, busy
from signoff.graph.errors import SetupError, StorageError
from signoff.graph.foreign import label, strict_serde
from signoff.storage.base import Database, EntryStore, ThreadSaver, never_freed
from signoff.storage.schema import SCHEMA, check_schema
from signoff.storage.threads import Storage

__all__ = ["SqliteEntries", "SqliteStorage", "SqliteThreads", "sqlite_storage"]

_BUSY_SECONDS = 30.0
"""Seconds to wait for a file that another process writes to, or opens."""
_POLL_SECONDS = 0.02
_T = TypeVar("_T")


class WholeTransactions(sqlite3.Connection):
    """A connection whose transactions begin as writers, and write nothing where an error ends them.

    LangGraph's begin as readers, which SQLite refuses at once if somebody writes in between, and commit what
    precedes an error. All work runs in a thread in which no error is in flight but that of the work.
    """

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql == "BEGIN":
            sql = "BEGIN IMMEDIATE"
        elif sql == "COMMIT" and sys.exc_info()[0] is not None:
            sql = "ROLLBACK"
        return super().execute(sql, *parameters)

    def commit(self) -> None:
        if sys.exc_info()[0] is None:
            super().commit()
        else:
            self.rollback()


class SqliteDatabase(Database):
    """The connections to a file, the one thread that uses them, and the lock files of the file's threads.

    No signal can leave that thread within a transaction. It is fed by queues that are written in C: a Ctrl-C
    that comes while a lock written in Python is taken, an executor's or FileLock's own, would leave it locked
    for ever.
    """

    parameter = "?"

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.address = file
        self.connections: list[sqlite3.Connection] = []
        self.check()

    def begin(self) -> None:
        # It only waits for that thread.
        self.executor = ThreadPoolExecutor(1, "signoff-sqlite-async")
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._busy = threading.Lock()
        self._thread = threading.Thread(
            target=_serve, args=(self._work, self._busy), name="signoff-sqlite", daemon=True
        )
        self._thread.start()
        # Where the process ends, the thread is needed until whoever has it open has closed it.
        weakref.finalize(self, self._work.put, None).atexit = False
        for user in self.users:
            user.conn = self.connect(user.isolation)

    @contextmanager
    def resting(self) -> Iterator[None]:
        with nullcontext() if threading.current_thread() is self._thread else self._busy:
            yield

    def leave(self) -> None:
        super().leave()
        for connection in self.connections:
            never_freed(connection)
        self.connections = []

    def connect(self, isolation: Literal["DEFERRED"] | None) -> sqlite3.Connection:
        """Opens a connection. Raises StorageError for a file in another stored form, which stays as it is."""
        return self._in_thread(partial(self._connected, isolation))

    def _connected(self, isolation: Literal["DEFERRED"] | None) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.address,
            _BUSY_SECONDS,
            isolation_level=isolation,
            check_same_thread=False,
            factory=WholeTransactions,
        )
        self.connections.append(connection)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        # A file of LangGraph's own saver has no number.
        if version:
            check_schema(version, self.address)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        return connection

    def do(self, work: Callable[[], _T], hold: Hold | None = None) -> _T:
        self.check()
        return self._in_thread(work if hold is None else partial(hold.write, work))

    def _in_thread(self, work: Callable[[], _T]) -> _T:
        # Work of that thread may have work for it.
        if threading.current_thread() is self._thread:
            return work()
        answer: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._work.put((work, answer))
        value, error = answer.get()
        try:
            if error is not None:
                raise error
            return value  # type: ignore[no-any-return]
        finally:
            # Its traceback holds this frame, and with it what the caller has open.
            del error

    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        # The first one is that of the store, which ends each statement by itself.
        return self.do(lambda: self.connections[0].execute(sql, values).fetchall())

    def end(self) -> None:
        self.executor.shutdown()
        for connection in self.connections:
            self._in_thread(connection.close)

    @contextmanager
    def hold(self, thread_id: str) -> Iterator[Hold]:
        self.check()
        hold = Hold(thread_id, self.name)
        with locked(self._lock_of(hold.label), GRACE_SECONDS, busy(thread_id), self._in_thread):
            try:
                yield hold
            finally:
                hold.end()

    def is_held(self, thread_id: str) -> bool:
        file = self._lock_of(label(thread_id))
        if sys.platform == "win32":
            with suppress(Timeout), FileLock(file).acquire(timeout=0):
                return False
            return True
        # It cannot be imported on Windows.
        import fcntl

        # By a shared lock, so that two who ask at once do not take each other for a holder.
        with suppress(FileNotFoundError), file.open("rb") as asked:
            try:
                fcntl.flock(asked, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def _lock_of(self, name: str) -> Path:
        number = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:32]
        return lock_folder(self.address) / f"{number}.lock"


_Work = tuple[Callable[[], Any], SimpleQueue[tuple[Any, BaseException | None]]]


def _serve(queue: "SimpleQueue[_Work | None]", busy: threading.Lock) -> None:
    while (item := queue.get()) is not None:
        work, answer = item
        with busy:
            try:
                answer.put((work(), None))
            except BaseException as error:  # noqa: BLE001  raised where it was asked for
                answer.put((None, error))
        del item, work, answer


def lock_folder(file: Path) -> Path:
    """The folder of the lock files of a database."""
    return file.with_name(f"{file.name}.locks")


@contextmanager
def locked(
    file: Path, seconds: float, otherwise: Exception, do: Callable[[Callable[[], Any]], Any]
) -> Iterator[None]:
    """Keeps a file locked for the block. Raises `otherwise` when somebody else has it for so many seconds,
    StorageError when the folder cannot hold it. do: does what must not be interrupted."""
    # One thread of a pool may take it, and another let it go.
    lock = do(partial(FileLock, file, thread_local=False))
    until, process = time.monotonic() + seconds, os.getpid()
    try:
        while not do(partial(_is_taken, lock, file.parent)):
            if time.monotonic() > until:
                raise otherwise
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        # A child that was forked within the block has neither the lock nor the thread.
        if os.getpid() == process:
            do(lock.release)


def _is_taken(lock: FileLock, folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        return False
    except (OSError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise StorageError(
                "Too many files are open: each running thread keeps its lock file open. Allow more open "
                "files (ulimit -n), or run fewer threads at once."
            ) from error
        raise StorageError(
            f"The folder {folder} cannot hold lock files ({error}); use a database on another disk."
        ) from error
    return True


class SqliteEntries(EntryStore, SqliteStore):
    """LangGraph's store for SQLite, for sync and async runs, with an atomic `swap`."""

    isolation = None

    def __init__(self, database: Any) -> None:
        super().__init__(database.connect(self.isolation))
        self.database = database
        # One thread uses the connection; and a child that is forked while it does would find this locked.
        self.lock: Any = nullcontext()
        database.users.append(self)

    def setup(self) -> None:
        self.database.do(super().setup)

    def swap_now(self, prefix: str, key: str, before: Any, after: Any) -> bool:
        with self.conn:
            self.conn.execute("BEGIN")
            query = "SELECT value FROM store WHERE prefix = ? AND key = ?"
            row = self.conn.execute(query, (prefix, key)).fetchone()
            if (row and json.loads(row[0])) != before:
                return False
            self.conn.execute(
                "INSERT INTO store (prefix, key, value) VALUES (?, ?, ?) ON CONFLICT (prefix, key) DO UPDATE "
                "SET value = excluded.value, updated_at = CURRENT_TIMESTAMP",
                (prefix, key, json.dumps(after)),
            )
            return True


class SqliteThreads(ThreadSaver, SqliteSaver):
    """LangGraph's checkpointer for SQLite, for sync and async runs; a runner holds its thread."""

    isolation: Literal["DEFERRED"] = "DEFERRED"

    def __init__(self, database: Any, entries: Any) -> None:
        super().__init__(database.connect(self.isolation), serde=strict_serde())
        self.database = database
        self.entries = entries
        self.lock: Any = nullcontext()
        database.users.append(self)

    def setup(self) -> None:
        self.database.do(super().setup)

    def get_next_version(self, current: Any, channel: None) -> Any:
        # LangGraph's is a text of 50 characters, about twenty of them in each checkpoint; nothing is looked
        # up by a version here.
        return int(str(current or 0).partition(".")[0]) + 1


@dataclass(eq=False)
class SqliteStorage(Storage):
    """A checkpointer and a store in one SQLite file."""

    checkpointer: SqliteThreads
    store: SqliteEntries

    @property
    def path(self) -> Path:
        """The file."""
        file: Path = self.checkpointer.database.address
        return file


def sqlite_storage(path: str | PathLike[str]) -> SqliteStorage:
    """Opens or creates the SQLite file at `path` for threads and outcomes.

    It uses WAL with `synchronous=NORMAL`: safe when the process is killed, several times faster than FULL.
    Only known types are read back (strict msgpack, no pickle), so that a crafted file cannot run code.

    Raises StorageError when the file is not a database of this kind, was written in another form, or
    cannot be opened.
    """
    # Most users of this package open no database.
    from signoff.tools.processes.held import end_with

    file = _checked(path)
    try:
        with _opening(file), ExitStack() as stack:
            if not file.exists():
                _create(file)
            checkpointer, store = _opened(file, stack)
            stack.callback(end_with, checkpointer)
            return SqliteStorage(checkpointer, store, _opened=stack.pop_all())
    except (sqlite3.Error, OSError) as error:
        raise StorageError(
            f"The database {file} cannot be used ({error}); move it away or use another one."
        ) from error


def _checked(path: Any) -> Path:
    """The file that a path names, once for all: later links and folders change nothing."""
    if not isinstance(path, str | PathLike) or not str(path).strip() or "\0" in str(path):
        raise SetupError(f"sqlite_storage takes the path of a file, not {path!r:.80}.")
    if address := re.match(r":memory:|file:|\w+://", str(path)):
        raise SetupError(
            f"sqlite_storage takes the path of a file, not {address[0]}…: for PostgreSQL use "
            "postgres_storage(url); to save nothing pass checkpointer=InMemorySaver() and "
            "store=InMemoryStore() of LangGraph."
        )
    file = Path(fspath(path)).expanduser().resolve()
    if file.is_dir():
        raise StorageError(f"The database {file} cannot be used (it is a folder); pass the path of a file.")
    return file


def _opening(file: Path) -> AbstractContextManager[None]:
    """Has one process at a time open and set up the file: SQLite answers others "database is locked" without
    waiting, and LangGraph's migrations add a column twice."""
    return locked(
        lock_folder(file) / "opening.lock",
        _BUSY_SECONDS,
        StorageError(
            f"Another process has been opening the database {file} for {_BUSY_SECONDS:g} s; end that "
            "process, or try again."
        ),
        lambda work: work(),
    )


def _create(file: Path) -> None:
    """Makes the file beside its place: whoever is killed half-way leaves no half of one."""
    new = file.with_name(f"{file.name}.new")
    for left in (new, new.with_name(f"{new.name}-wal"), new.with_name(f"{new.name}-shm")):
        left.unlink(missing_ok=True)
    with ExitStack() as stack:
        _opened(new, stack)
    new.replace(file)


def _opened(file: Path, stack: ExitStack) -> tuple[SqliteThreads, SqliteEntries]:
    """The checkpointer and the store of a file, which the stack closes."""
    database = SqliteDatabase(file)
    stack.callback(database.close)
    store = SqliteEntries(database)
    checkpointer = SqliteThreads(database, store)
    checkpointer.setup()
    store.setup()
    database.query(f"PRAGMA user_version={SCHEMA}")
    return checkpointer, store
