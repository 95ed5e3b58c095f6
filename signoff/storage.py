"""Where threads live: a checkpointer and a store in one database."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from signoff.graph.errors import SetupError, StorageError

if TYPE_CHECKING:
    from signoff.sqlite_saver import ThreadSaver
    from signoff.sqlite_store import ThreadStore

SCHEMA = 1
"""The version of the database, kept in SQLite's `user_version`."""

_BUSY_SECONDS = 30.0


@dataclass(frozen=True)
class SqliteStorage:
    """A checkpointer and a store in one SQLite file."""

    path: Path
    checkpointer: "ThreadSaver"
    store: "ThreadStore"

    def threads(self) -> list[str]:
        """The ids of all threads, the one changed last first."""
        return self.checkpointer.threads()


@contextmanager
def sqlite_storage(path: str | PathLike[str]) -> Iterator[SqliteStorage]:
    """Opens, or creates, the SQLite file at `path` for threads and outcomes.

    WAL with `synchronous=NORMAL`: safe when the process is killed, several times faster than FULL. Only
    known types are read back (strict msgpack, no pickle), so that a crafted file cannot run code.

    Closing it ends the shells, interpreters and MCP servers of the graphs that were built with it.

    Raises StorageError when the file is no database of this kind, was written by a newer version, or
    cannot be opened.
    """
    # Most who import this package open no database.
    from signoff.locks import opening_lock
    from signoff.tools.processes.held import end_with

    if not isinstance(path, str | PathLike):
        raise SetupError(f"sqlite_storage takes the path of a file, not {path!r:.80}.")
    if str(path).startswith(("postgres://", "postgresql://")):
        raise SetupError("This is the address of a PostgreSQL database; open it by postgres_storage(url).")
    file = Path(fspath(path)).expanduser()
    if file.is_dir():
        raise StorageError(f"The database {file} cannot be used (it is a folder); name a file.")
    connections: list[sqlite3.Connection] = []
    storage = None
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
        if storage is not None:
            end_with(storage.checkpointer)
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
    # LangGraph's store for SQLite brings numpy along, which takes longer to import than all of Signoff.
    from signoff.savers import strict_serde
    from signoff.sqlite_saver import ThreadSaver
    from signoff.sqlite_store import ThreadStore

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
