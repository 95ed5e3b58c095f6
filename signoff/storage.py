"""Where threads live: a checkpointer and a store in one database."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.sqlite import SqliteStore

from signoff.graph.errors import StorageError
from signoff.locks import is_locked, opening_lock, thread_lock
from signoff.savers import SaverInThreads, StoreInThreads, strict_serde

SCHEMA = 1
"""The version of the database, kept in SQLite's `user_version`."""

_BUSY_SECONDS = 30.0


class ThreadSaver(SaverInThreads, SqliteSaver):
    """LangGraph's SQLite checkpointer, usable from async runs too: each call runs in a worker thread.

    It knows its file, beside which the lock of each thread is kept.
    """

    def __init__(self, connection: sqlite3.Connection, file: Path, serde: SerializerProtocol) -> None:
        super().__init__(connection, serde=serde)
        self.file = file

    def runner(self, thread_id: str) -> AbstractContextManager[None]:
        """Holds the thread, so that no other runner of any process can. Raises ThreadBusy."""
        return thread_lock(self.file, thread_id)

    def is_running(self, thread_id: str) -> bool:
        """Whether some process runs the thread now."""
        return is_locked(self.file, thread_id)

    def threads(self) -> list[str]:
        """The ids of all threads, the one changed last first."""
        with self.cursor(transaction=False) as cursor:
            cursor.execute(
                "SELECT thread_id FROM checkpoints GROUP BY thread_id ORDER BY MAX(checkpoint_id) DESC"
            )
            return [row[0] for row in cursor.fetchall()]


class ThreadStore(StoreInThreads, SqliteStore):
    """LangGraph's SQLite store, usable from async runs too, and with an atomic `swap`."""

    def swap(
        self, namespace: tuple[str, ...], key: str, before: dict[str, Any] | None, after: dict[str, Any]
    ) -> bool:
        """Puts `after` if the value is still `before` (None: there is none). False when it is not.

        Atomic between threads and processes: of two that claim the same entry, one gets it.
        """
        with self._cursor(transaction=False) as cursor:
            # IMMEDIATE takes the write lock before the value is read.
            cursor.execute("BEGIN IMMEDIATE")
            try:
                cursor.execute(
                    "SELECT value FROM store WHERE prefix = ? AND key = ?", (".".join(namespace), key)
                )
                row = cursor.fetchone()
                same = (json.loads(row[0]) if row else None) == before
                if same:
                    cursor.execute(
                        "INSERT INTO store (prefix, key, value) VALUES (?, ?, ?) ON CONFLICT (prefix, key) "
                        "DO UPDATE SET value = excluded.value, updated_at = CURRENT_TIMESTAMP",
                        (".".join(namespace), key, json.dumps(after)),
                    )
            finally:
                cursor.execute("COMMIT")
        return same


@dataclass(frozen=True)
class SqliteStorage:
    """A checkpointer and a store in one SQLite file."""

    path: Path
    checkpointer: ThreadSaver
    store: ThreadStore

    def threads(self) -> list[str]:
        """The ids of all threads, the one changed last first."""
        return self.checkpointer.threads()


@contextmanager
def sqlite_storage(path: str | PathLike[str]) -> Iterator[SqliteStorage]:
    """Opens, or creates, the SQLite file at `path` for threads and outcomes.

    WAL with `synchronous=NORMAL`: safe when the process is killed, several times faster than FULL. Only
    known types are read back (strict msgpack, no pickle), so that a crafted file cannot run code.

    Raises StorageError when the file is no database of this kind, was written by a newer version, or
    cannot be opened.
    """
    file = Path(fspath(path)).expanduser()
    connections: list[sqlite3.Connection] = []
    try:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with opening_lock(file, _BUSY_SECONDS):
                # The checkpointer commits its own transactions, the store wants autocommit.
                connections += [_connect(file, "DEFERRED"), _connect(file, None)]
                storage = _opened(file, *connections)
        except (sqlite3.Error, OSError) as error:
            raise StorageError(
                f"The database {file} cannot be used ({error}); move it away or name another one."
            ) from error
        yield storage
    finally:
        for connection in connections:
            connection.close()


def _connect(file: Path, isolation: Literal["DEFERRED"] | None) -> sqlite3.Connection:
    connection = sqlite3.connect(
        file, timeout=_BUSY_SECONDS, check_same_thread=False, isolation_level=isolation
    )
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection


def _opened(file: Path, for_checkpoints: sqlite3.Connection, for_store: sqlite3.Connection) -> SqliteStorage:
    (version,) = for_checkpoints.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA:
        raise StorageError(
            f"The database {file} was written by a newer Signoff (version {version}; this one reads "
            f"{SCHEMA}): upgrade Signoff."
        )
    checkpointer = ThreadSaver(for_checkpoints, file, strict_serde())
    checkpointer.setup()
    store = ThreadStore(for_store)
    store.setup()
    for_checkpoints.execute(f"PRAGMA user_version={SCHEMA}")
    return SqliteStorage(file, checkpointer, store)
