"""Reads the store of a SQLite file without LangGraph, which takes a second to import.

It is for commands that only count.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from signoff.storage.schema import BUSY_SECONDS, SCHEMA


@dataclass(frozen=True)
class StoredEntry:
    """An entry of the store, with the attributes of LangGraph's `SearchItem` that are used."""

    namespace: tuple[str, ...]
    key: str
    value: dict[str, Any]


class EntryReader:
    """Searches the store of an open database like LangGraph's `SqliteStore`, but writes nothing."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @property
    def store(self) -> "EntryReader":
        return self

    @property
    def checkpointer(self) -> "EntryReader":
        return self

    def threads(self) -> list[str]:
        """Returns the ids of all threads."""
        return [row[0] for row in self._connection.execute("SELECT DISTINCT thread_id FROM checkpoints")]

    def search(
        self, namespace_prefix: tuple[str, ...], /, *, limit: int = 10, offset: int = 0
    ) -> Sequence[StoredEntry]:
        """Returns the entries below a namespace, the most recently changed first."""
        path = ".".join(namespace_prefix)
        rows = self._connection.execute(
            # From "path." to before "path/", the next character: this uses the index, because the journal is
            # long.
            "SELECT prefix, key, value FROM store WHERE prefix = :path "
            "OR (prefix >= :path || '.' AND prefix < :path || '/') ORDER BY updated_at DESC "
            "LIMIT :limit OFFSET :offset",
            {"path": path, "limit": limit, "offset": offset},
        )
        return [StoredEntry(tuple(prefix.split(".")), key, json.loads(value)) for prefix, key, value in rows]


@contextmanager
def entry_reader(file: Path) -> Iterator[EntryReader | None]:
    """Opens a database that this version has set up; yields None for any other file.

    `sqlite_storage` sets up such a file, or reports what is wrong with it.
    """
    try:
        connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS)
    except (sqlite3.Error, ValueError):
        yield None
        return
    with closing(connection):
        yield EntryReader(connection) if _is_ours(connection) else None


def _is_ours(connection: sqlite3.Connection) -> bool:
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error:
        return False
    return bool(version == SCHEMA)
