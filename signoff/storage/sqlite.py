"""Storage for threads on one machine: LangGraph's saver and store for SQLite, and a lock file a thread.

The lock is the operating system's, which frees it when the process dies.
"""

import asyncio
import errno
import hashlib
import json
import re
import sqlite3
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from filelock import FileLock, Timeout
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.sqlite import SqliteStore

from signoff.graph.compiled.graph import storage_errors
from signoff.graph.compiled.holds import Hold
from signoff.graph.errors import SetupError, StorageError
from signoff.graph.foreign import label
from signoff.storage.base import SCHEMA, Database, EntryStore, LockedHold, ThreadSaver, check_schema
from signoff.storage.forking import lock_against_forks
from signoff.storage.threads import Storage

__all__ = ["SqliteCheckpointer", "SqliteEntryStore", "SqliteStorage", "sqlite_storage"]

_BUSY_SECONDS = 30.0
"""Seconds to wait for a file that another process writes to, or opens."""
_T = TypeVar("_T")
_Answer = Callable[[Any, BaseException | None], object]
_Queue = SimpleQueue[tuple[Callable[[], Any], _Answer] | None]


class WholeTransactions(sqlite3.Connection):
    """A connection whose transactions write nothing where an error ends them; LangGraph's commit what
    precedes the error. All work runs in a thread in which no error is in flight but that of the work."""

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql == "COMMIT" and sys.exc_info()[0] is not None:
            # An error of the disk has ended the transaction already.
            sql = "ROLLBACK" if self.in_transaction else "SELECT 1"
        return super().execute(sql, *parameters)

    def commit(self) -> None:
        if self.in_transaction:
            self.execute("COMMIT")


class _MustWait(Exception):
    """The work waits for other runners, which may need the thread that does it."""


class SqliteDatabase(Database):
    """The connection to a file, the one thread that uses it, and the lock files of the file's threads.

    No signal can leave that thread within a transaction. It is fed by queues that are written in C: a Ctrl-C
    that comes while a lock written in Python is taken, an executor's or FileLock's own, would leave it locked
    for ever.
    """

    conn: sqlite3.Connection

    def __init__(self, file: Path) -> None:
        self.file = file
        super().__init__(file, str(file))

    def connect(self) -> sqlite3.Connection:
        """Raises StorageError for a file in another stored form, which stays as it is."""
        self._work: _Queue = SimpleQueue()
        self._thread = threading.Thread(
            target=_serve, args=(self._work, lock_against_forks()), name="signoff-sqlite", daemon=True
        )
        # Where the process ends, the thread is needed until whoever has it open has closed it.
        weakref.finalize(self, self._work.put, None).atexit = False
        self._thread.start()
        return self.in_thread(partial(_connected, self.file))

    def disconnect(self) -> None:
        self.in_thread(self.conn.close)

    def do(self, work: Callable[[], _T], hold: Hold | None = None) -> _T:
        self.check()
        with storage_errors():
            return self.in_thread(work if hold is None else partial(hold.write, work))

    def in_thread(self, work: Callable[[], _T]) -> _T:
        """Does the work in the thread of the connection."""
        # Work of that thread may have work for it. At the very end of the process there are no other threads.
        if threading.current_thread() is self._thread or sys.is_finalizing():
            return work()
        answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._work.put((work, lambda *answer: answers.put(answer)))
        value, error = answers.get()
        try:
            if error is not None:
                raise error
            return value  # type: ignore[no-any-return]
        finally:
            # Its traceback holds this frame, and with it what the caller has open.
            del error

    async def ado(self, work: Callable[[], _T]) -> _T:
        self.check()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._work.put((work, lambda *answer: loop.call_soon_threadsafe(_answer, future, *answer)))
        try:
            return await future  # type: ignore[no-any-return]
        except _MustWait:
            executor = ThreadPoolExecutor(1, "signoff-waits")
            try:
                return await loop.run_in_executor(executor, work)
            finally:
                executor.shutdown(wait=False)

    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        def rows() -> list[tuple[Any, ...]]:
            with self.conn:
                return self.conn.execute(sql.replace("%s", "?"), values).fetchall()

        return self.do(rows)

    def unlocked_hold(self, thread_id: str) -> LockedHold:
        if threading.current_thread() is self._thread:
            raise _MustWait
        return FileHold(thread_id, self)

    def is_held(self, thread_id: str) -> bool:
        file = self.lock_file(label(thread_id))
        if sys.platform == "win32":
            with suppress(Timeout), FileLock(file).acquire(timeout=0):
                return False
            return True
        # It cannot be imported on Windows.
        import fcntl

        def is_locked() -> bool:
            # By a shared lock, so that two who ask at once do not take each other for a holder.
            with suppress(FileNotFoundError), file.open("rb") as asked:
                try:
                    fcntl.flock(asked, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return True
            return False

        # There no fork leaves this lock to a child.
        return self.in_thread(is_locked)

    def lock_file(self, name: str) -> Path:
        """The lock file of the thread with this label."""
        number = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:32]
        return lock_folder(self.file) / f"{number}.lock"


def _serve(queue: _Queue, busy: AbstractContextManager[object]) -> None:
    while (item := queue.get()) is not None:
        work, answer = item
        with busy:
            try:
                value, error = work(), None
            except BaseException as raised:  # noqa: BLE001  raised where it was asked for
                value, error = None, raised
            # The event loop that has asked may have been closed.
            with suppress(RuntimeError):
                answer(value, error)
        del item, work, answer, value, error


def _answer(future: "asyncio.Future[Any]", value: object, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


def _connected(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        file, timeout=_BUSY_SECONDS, check_same_thread=False, factory=WholeTransactions
    )
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    # A file of LangGraph's own saver has no number.
    if version:
        check_schema(version, file)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    # This gives the connection the functions that LangGraph's statements use.
    SqliteStore(connection)
    return connection


def lock_folder(file: Path) -> Path:
    """The folder of the lock files of a database."""
    return file.with_name(f"{file.name}.locks")


class FileHold(LockedHold):
    """A hold, and its lock file."""

    def __init__(self, thread_id: str, database: SqliteDatabase) -> None:
        super().__init__(thread_id, database.name)
        self._in_thread = database.in_thread
        # One thread of a pool may take it, and another let it go.
        file = database.lock_file(self.label)
        self._file = database.in_thread(partial(FileLock, file, thread_local=False))

    def lock(self) -> bool:
        return self._in_thread(self._is_taken)

    def unlock(self) -> None:
        self._in_thread(self._file.release)

    def _is_taken(self) -> bool:
        folder = Path(self._file.lock_file).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file.acquire(timeout=0)
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


class SqliteEntryStore(EntryStore, SqliteStore):
    """LangGraph's store for SQLite, for sync and async runs, with an atomic `swap`."""

    def swap_now(self, prefix: str, key: str, before: Any, after: Any) -> bool:
        with self.conn:
            self.conn.execute("BEGIN IMMEDIATE")
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


class SqliteCheckpointer(ThreadSaver, SqliteSaver):
    """LangGraph's checkpointer for SQLite, for sync and async runs; a runner holds its thread."""

    def get_next_version(self, current: Any, channel: None) -> Any:
        # LangGraph's is a text of 50 characters, about twenty of them in each checkpoint; nothing is looked
        # up by a version here.
        return int(str(current or 0).partition(".")[0]) + 1


@dataclass(eq=False)
class SqliteStorage(Storage):
    """A checkpointer and a store in one SQLite file."""

    checkpointer: SqliteCheckpointer
    store: SqliteEntryStore

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.checkpointer.database.place)


def sqlite_storage(path: str | PathLike[str]) -> SqliteStorage:
    """Opens or creates the SQLite file at `path` for threads and outcomes.

    It uses WAL with `synchronous=NORMAL`: safe when the process is killed, several times faster than FULL.
    Only known types are read back (strict msgpack, no pickle), so that a crafted file cannot run code.

    Raises StorageError when the file is not a database of this kind, was written in another form, or
    cannot be opened.
    """
    file = _checked(path)
    try:
        # One process at a time opens and sets up the file: SQLite answers others "database is locked" without
        # waiting, and LangGraph's migrations add a column twice.
        lock_folder(file).mkdir(parents=True, exist_ok=True)
        with FileLock(lock_folder(file) / "opening.lock", timeout=_BUSY_SECONDS):
            if not file.exists():
                _create(file)
            return _opened(file)
    except Timeout as error:
        raise StorageError(
            f"Another process has been opening the database {file} for {_BUSY_SECONDS:g} s; end that "
            "process, or try again."
        ) from error
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


def _create(file: Path) -> None:
    """Makes the file beside its place: whoever is killed half-way leaves no half of one."""
    new = file.with_name(f"{file.name}.new")
    # Also what a deleted file has left beside it: SQLite would write that into this one.
    logs = (each.with_name(each.name + end) for each in (file, new) for end in ("-wal", "-shm"))
    for left in (new, *logs):
        left.unlink(missing_ok=True)
    _opened(new).close()
    new.replace(file)


def _opened(file: Path) -> SqliteStorage:
    database = SqliteDatabase(file)
    store = SqliteEntryStore(database)
    checkpointer = SqliteCheckpointer(database, store)

    def set_up() -> None:
        store.setup()
        checkpointer.setup()
        database.conn.execute(f"PRAGMA user_version={SCHEMA}")

    database.in_thread(set_up)
    return SqliteStorage(checkpointer, store, _close=database.close)
