"""Storage for threads on one machine: a checkpointer and a store in one SQLite file.

One runner holds a thread, with a lock file in a folder next to the database. It is a lock of the operating
system that the process holds, so a killed process frees it.
"""

import builtins
import errno
import hashlib
import json
import os
import sqlite3
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Generic, Literal, TypeVar, cast

from filelock import FileLock, Timeout
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.base import Op, Result
from langgraph.store.sqlite import SqliteStore
from pydantic_core import to_json

from signoff.graph.compiled.graph import GRACE_SECONDS, busy
from signoff.graph.errors import SetupError, StorageError
from signoff.storage.base import StoreInThreads
from signoff.storage.schema import BUSY_SECONDS, SCHEMA, check_schema
from signoff.storage.steps import EntryName, Statement, StepSaver, recorder
from signoff.storage.threads import Storage

__all__ = [
    "SqliteStorage",
    "ThreadSaver",
    "ThreadStore",
    "sqlite_storage",
]


def lock_folder(database: Path) -> Path:
    """Returns the folder of the lock files of `database`."""
    real = database.expanduser().resolve()
    return real.with_name(f"{real.name}.locks")


@contextmanager
def thread_lock(database: Path, thread_id: str) -> Iterator[None]:
    """Holds the lock of a thread, exclusively among all processes and calls.

    Raises ThreadBusy at once when the lock is taken, StorageError when no lock file can be created.
    """
    lock = _lock(database, thread_id)
    try:
        try:
            _acquire(lock, database, thread_id)
            yield
        finally:
            # Even when Ctrl-C comes right after locking; does nothing when the lock is not held.
            lock.release()
    finally:
        # In case a signal interrupted the line above.
        lock.release()


def _acquire(lock: FileLock, database: Path, thread_id: str) -> None:
    try:
        lock_folder(database).mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=GRACE_SECONDS, poll_interval=0.02)
    except Timeout:
        raise busy(thread_id) from None
    except (OSError, NotImplementedError) as error:
        raise _no_lock_files(database, error) from error


@contextmanager
def opening_lock(database: Path, seconds: float) -> Iterator[None]:
    """Holds the lock for opening and setting up `database`; waits up to `seconds` for it.

    Without it, of two connections that create the same file at once SQLite would answer one "database is
    locked" without waiting, because both have begun to read. Raises StorageError when another process holds
    the lock all that time, or no lock file can be created.
    """
    lock = FileLock(lock_folder(database) / "opening.lock")
    try:
        lock_folder(database).mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=seconds, poll_interval=0.01)
    except Timeout:
        raise StorageError(
            f"Another process has been opening the database {database} for {seconds:g} s; end that process "
            "or try again."
        ) from None
    except (OSError, NotImplementedError) as error:
        raise _no_lock_files(database, error) from error
    try:
        yield
    finally:
        lock.release()


def is_locked(database: Path, thread_id: str) -> bool:
    """Whether a process runs the thread now. Creates no files."""
    lock = _lock(database, thread_id)
    if not Path(lock.lock_file).exists():
        return False
    if sys.platform != "win32":
        return _is_held(lock.lock_file)
    try:
        with lock.acquire(timeout=0):
            return False
    except Timeout:
        return True


if sys.platform != "win32":
    import fcntl

    def _is_held(file: str) -> bool:
        """Whether somebody holds this lock file. Two who ask at once do not take each other for a holder."""
        with suppress(FileNotFoundError), open(file, "rb") as asked:
            try:
                fcntl.flock(asked, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


def _no_lock_files(database: Path, error: Exception) -> StorageError:
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return StorageError(
            "Too many files are open: each running thread keeps its lock file open. Allow more open files "
            "(ulimit -n), or run fewer threads at once."
        )
    return StorageError(
        f"The folder {lock_folder(database)} cannot hold lock files ({error}); use a database on another "
        "disk."
    )


def _lock(database: Path, thread_id: str) -> FileLock:
    name = hashlib.sha256(thread_id.encode(errors="surrogatepass")).hexdigest()[:32]
    # One thread of a pool may take the lock for an async run, and another release it.
    return FileLock(lock_folder(database) / f"{name}.lock", thread_local=False)


_T = TypeVar("_T")


class _Work(Generic[_T]):
    """Work whose result the main thread waits for."""

    def __init__(self, work: Callable[[], _T]) -> None:
        self._work = work
        self._result: list[_T] = []
        self._error: BaseException | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def run(self) -> None:
        try:
            self._result.append(self._work())
        except BaseException as error:  # noqa: BLE001  it is raised by `result`
            self._error = error
        finally:
            self._done.release()

    def result(self) -> _T:
        self._done.acquire()
        if self._error is None:
            return self._result[0]
        try:
            raise self._error
        finally:
            # Otherwise the error would reference this frame, and the frame the error.
            self._error = None


class SerialAccess:
    """Runs work on a connection one piece at a time, in a thread of its own where the main thread asks.

    That thread ends when this object is garbage-collected.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._queue: SimpleQueue[_Work[Any] | None] | None = None

    def do(self, work: Callable[[], _T]) -> _T:
        """Returns or raises what `work` does. `work` may call `do` itself."""
        if self._process != os.getpid():
            # A forked child has no other threads, and nothing would release the lock.
            self._begin()
        # While Python shuts down, other threads no longer run.
        if threading.current_thread() is not threading.main_thread() or sys.is_finalizing():
            return self._do(work)
        if self._queue is None:
            self._queue = _served(self)
        one = _Work(lambda: self._do(work))
        self._queue.put(one)
        return one.result()

    def _do(self, work: Callable[[], _T]) -> _T:
        with self._lock:
            return work()


def _served(access: SerialAccess) -> "SimpleQueue[_Work[Any] | None]":
    """Returns a queue whose work a new thread runs."""
    queue: SimpleQueue[_Work[Any] | None] = SimpleQueue()
    threading.Thread(target=_serve, args=(queue,), name="signoff-sqlite", daemon=True).start()
    weakref.finalize(access, queue.put, None).atexit = False
    return queue


def _serve(queue: "SimpleQueue[_Work[Any] | None]") -> None:
    while (one := queue.get()) is not None:
        one.run()
        # Otherwise it would keep its result, and its caller, alive until the next one comes.
        del one


@contextmanager
def in_transaction(connection: sqlite3.Connection, begin: str | None) -> Iterator[sqlite3.Cursor]:
    """Yields a cursor whose changes are committed together or not at all.

    begin: the statement that begins the transaction; None where the connection begins one by itself. Use it
    inside `SerialAccess.do`.
    """
    # A transaction that another user of the connection left open.
    _roll_back(connection)
    cursor = connection.cursor()
    try:
        if begin is not None:
            cursor.execute(begin)
        yield cursor
        connection.commit()
    finally:
        _roll_back(connection)
        cursor.close()


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.rollback()


_PAGE = 100


class ThreadSaver(StepSaver, SqliteSaver):
    """LangGraph's SQLite checkpointer, usable from async runs too: each call runs in a worker thread.

    It knows its file, next to which the lock files of threads are. No signal leaves its connection in a
    transaction (`SerialAccess`).
    """

    def __init__(self, connection: sqlite3.Connection, file: Path, serde: SerializerProtocol) -> None:
        super().__init__(connection, serde=serde)
        self.file = file
        self._access = SerialAccess()

    def runner(self, thread_id: str) -> AbstractContextManager[None]:
        """Holds the thread, so that no other runner of any process can. Raises ThreadBusy."""
        return thread_lock(self.file, thread_id)

    def is_running(self, thread_id: str) -> bool:
        """Whether some process runs the thread now."""
        return is_locked(self.file, thread_id)

    def threads(self) -> builtins.list[str]:
        """The ids of all threads, the one changed last first."""
        return [thread_id for _, thread_id in self.newest_first()]

    def newest_first(self) -> builtins.list[tuple[str, str]]:
        """The newest checkpoint of every thread, and the thread, newest first."""
        return self._access.do(self._newest_first)

    def setup(self) -> None:
        self._access.do(super().setup)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        self.save_all_held(config)
        return self._access.do(partial(super().get_tuple, config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        # Not one by one: LangGraph's method keeps its lock and a read transaction until it ends. Not all at
        # once: the caller may need only the first.
        self.save_all_held(config)
        read = super().list
        if config is None:
            # Forks have the checkpoint ids of their originals, so a page over all threads has no unique end.
            everything = read(None, filter=filter, before=before, limit=limit)
            yield from self._access.do(partial(tuple, everything))
            return
        while limit is None or limit > 0:
            asked = _PAGE if limit is None else min(limit, _PAGE)
            page = read(config, filter=filter, before=before, limit=asked)
            found = self._access.do(partial(tuple, page))
            yield from found
            if len(found) < asked:
                return
            before = found[-1].config
            limit = None if limit is None else limit - asked

    def save(self, thread_id: str, statements: Sequence[Statement]) -> None:
        with self.cursor() as cursor:
            for query, rows in statements:
                cursor.executemany(query, rows)

    def entry_saved(self, name: EntryName, value: Mapping[str, Any]) -> Statement:
        namespace, key = name
        # Faster than `json.dumps`, and this is saved in each turn.
        text = to_json(value, inf_nan_mode="constants").decode()
        return _UPSERT, [(".".join(namespace), key, text)]

    def in_turn(self, work: Callable[[], Any]) -> Any:
        return self._access.do(work)

    def delete_thread(self, thread_id: str) -> None:
        """Deletes the thread and everything stored for it. Raises ThreadBusy while it runs."""
        # Its further imports are needed only for deleting.
        from signoff.storage.deleting import delete_thread

        delete_thread(self, thread_id)

    def delete_rows(self, thread_id: str) -> None:
        """Deletes the rows of a thread, in one transaction; `delete_thread` does the rest, too."""
        from signoff.storage.deleting import SQLITE, delete_rows

        self._access.do(partial(self._in_one, lambda execute: delete_rows(execute, SQLITE, thread_id)))

    def workspace_of(self, thread_id: str) -> str | None:
        """Returns the workspace of this thread in the command line; None if it is unknown."""
        from signoff.storage.deleting import SQLITE, workspace_of

        return self._access.do(
            partial(self._in_one, lambda execute: workspace_of(execute, SQLITE, thread_id))
        )

    def _in_one(self, work: Callable[[Callable[[str, tuple[str, ...]], Any]], _T]) -> _T:
        """Runs `work` with all its statements in one transaction; returns its result."""
        with in_transaction(self.conn, None) as cursor:

            def execute(statement: str, values: tuple[str, ...]) -> Any:
                row = cursor.execute(statement, values).fetchone()
                return row and row[0]

            return work(execute)

    def fork_mark(self) -> str:
        """Returns no mark: a checkpoint contains its values, and nothing is looked up by a version."""
        return ""

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        self.save_all_held(config)
        return self._access.do(partial(super().get_delta_channel_history, config=config, channels=channels))

    def _newest_first(self) -> "builtins.list[tuple[str, str]]":
        with self.cursor(transaction=False) as cursor:
            cursor.execute(
                "SELECT MAX(checkpoint_id) AS newest, thread_id FROM checkpoints GROUP BY thread_id "
                "ORDER BY newest DESC, thread_id DESC"
            )
            return cursor.fetchall()

    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[sqlite3.Cursor]:
        """Yields the cursor of all operations of LangGraph's saver.

        The original commits what precedes an error.
        """
        if (kept := recorder()) is not None:
            yield cast(sqlite3.Cursor, kept)
            return
        if not transaction:
            with super().cursor(transaction=False) as cursor:
                yield cursor
            return
        with in_transaction(self.conn, None) as cursor:
            yield cursor


_INSERT = "INSERT INTO store (prefix, key, value) VALUES (?, ?, ?) ON CONFLICT (prefix, key) DO NOTHING"
_UPDATE = (
    "UPDATE store SET value = ?, updated_at = CURRENT_TIMESTAMP WHERE prefix = ? AND key = ? AND value = ?"
)
_UPSERT = (
    "INSERT INTO store (prefix, key, value) VALUES (?, ?, ?) ON CONFLICT (prefix, key) "
    "DO UPDATE SET value = excluded.value, updated_at = CURRENT_TIMESTAMP"
)


class ThreadStore(StoreInThreads, SqliteStore):
    """LangGraph's SQLite store, usable from async runs too, and with an atomic `swap`.

    No signal leaves its connection in a transaction (`SerialAccess`).
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._access = SerialAccess()

    def setup(self) -> None:
        self._access.do(super().setup)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        return self._access.do(partial(super().batch, list(ops)))

    def sweep_ttl(self) -> int:
        return self._access.do(super().sweep_ttl)

    def swap(
        self, namespace: tuple[str, ...], key: str, before: dict[str, Any] | None, after: dict[str, Any]
    ) -> bool:
        """Replaces the value by `after` if it is still `before` (None: no entry); otherwise returns False.

        Atomic across threads and processes: if two claim the same entry, one gets it.
        """
        return self._access.do(partial(self._swap, ".".join(namespace), key, before, after))

    def _swap(self, prefix: str, key: str, before: dict[str, Any] | None, after: dict[str, Any]) -> bool:
        value = json.dumps(after)
        # Each statement that writes names what it replaces, so that it is atomic by itself.
        with in_transaction(self.conn, None) as cursor:
            if before is None:
                cursor.execute(_INSERT, (prefix, key, value))
                return cursor.rowcount == 1
            # Nearly always, the value is the text that this method wrote: then one statement does it.
            cursor.execute(_UPDATE, (value, prefix, key, json.dumps(before)))
            if cursor.rowcount == 1:
                return True
            cursor.execute("SELECT value FROM store WHERE prefix = ? AND key = ?", (prefix, key))
            row = cursor.fetchone()
            if row is None or json.loads(row[0]) != before:
                return False
            cursor.execute(_UPDATE, (value, prefix, key, row[0]))
            return cursor.rowcount == 1

    @contextmanager
    def _cursor(self, *, transaction: bool = True) -> Iterator[sqlite3.Cursor]:
        """Yields the cursor of all operations of LangGraph's store.

        The original begins outside its `try`, and commits what precedes an error.
        """
        with in_transaction(self.conn, "BEGIN" if transaction else None) as cursor:
            yield cursor


@dataclass(frozen=True)
class SqliteStorage(Storage):
    """A checkpointer and a store in one SQLite file."""

    checkpointer: "ThreadSaver"
    store: "ThreadStore"

    @property
    def path(self) -> Path:
        """The file."""
        return self.checkpointer.file


def sqlite_storage(path: str | PathLike[str]) -> SqliteStorage:
    """Opens or creates the SQLite file at `path` for threads and outcomes.

    It uses WAL with `synchronous=NORMAL`: safe when the process is killed, several times faster than FULL.
    Only known types are read back (strict msgpack, no pickle), so that a crafted file cannot run code.

    Raises StorageError when the file is not a database of this kind, was written in another form, or
    cannot be opened.
    """
    # Most users of this package open no database.
    from signoff.tools.processes.held import end_with

    if not isinstance(path, str | PathLike) or not str(path).strip() or "\0" in str(path):
        raise SetupError(f"sqlite_storage takes the path of a file, not {path!r:.80}.")
    if str(path).startswith(("postgres://", "postgresql://")):
        raise SetupError("This is the address of a PostgreSQL database; use postgres_storage(url).")
    if str(path) == ":memory:":
        raise SetupError(
            "sqlite_storage takes a file, not ':memory:'; for a run that is not saved pass "
            "checkpointer=InMemorySaver() and store=InMemoryStore() of LangGraph."
        )
    if "://" in str(path) or str(path).startswith("file:"):
        raise SetupError(
            f"sqlite_storage takes the path of a file, not the address {str(path).split(':')[0]}:…."
        )
    file = Path(fspath(path)).expanduser()
    if file.is_dir():
        raise StorageError(f"The database {file} cannot be used (it is a folder); pass the path of a file.")
    with ExitStack() as opened:
        try:
            _check_form(file)
            file.parent.mkdir(parents=True, exist_ok=True)
            with opening_lock(file, BUSY_SECONDS):
                # The checkpointer commits its own transactions; the store needs autocommit.
                for_checkpoints = opened.enter_context(closing(_connect(file, "DEFERRED")))
                for_store = opened.enter_context(closing(_connect(file, None)))
                checkpointer, store = _opened(file, for_checkpoints, for_store)
        except (sqlite3.Error, OSError) as error:
            raise StorageError(
                f"The database {file} cannot be used ({error}); move it away or use another one."
            ) from error
        opened.callback(end_with, checkpointer)
        return SqliteStorage(checkpointer, store, opened.pop_all())


def _check_form(file: Path) -> None:
    """Raises StorageError for a file in another stored form, which stays as it is."""
    if not file.exists():
        return
    address = f"{file.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)) as reader:
        (version,) = reader.execute("PRAGMA user_version").fetchone()
    # A new file, and one of LangGraph's own saver, has no number.
    if version:
        check_schema(version, file)


def _connect(file: Path, isolation: Literal["DEFERRED"] | None) -> sqlite3.Connection:
    connection = sqlite3.connect(
        file, timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=isolation
    )
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection


def _opened(
    file: Path, for_checkpoints: sqlite3.Connection, for_store: sqlite3.Connection
) -> tuple[ThreadSaver, ThreadStore]:
    # LangGraph's store for SQLite imports numpy, which takes longer than importing all of Signoff.
    from signoff.graph.foreign import strict_serde

    checkpointer = ThreadSaver(for_checkpoints, file, strict_serde())
    checkpointer.setup()
    store = ThreadStore(for_store)
    store.setup()
    checkpointer.entries = store
    for_checkpoints.execute(f"PRAGMA user_version={SCHEMA}")
    return checkpointer, store
