"""The storages, as types."""

from typing import TYPE_CHECKING

from signoff.public import lazily

if TYPE_CHECKING:
    from signoff.storage.postgres import PostgresStorage
    from signoff.storage.postgres_database import PostgresCheckpointer, PostgresEntryStore
    from signoff.storage.sqlite import SqliteCheckpointer, SqliteEntryStore, SqliteStorage
    from signoff.storage.threads import ThreadRow

__all__ = [
    "PostgresCheckpointer",
    "PostgresEntryStore",
    "PostgresStorage",
    "SqliteCheckpointer",
    "SqliteEntryStore",
    "SqliteStorage",
    "ThreadRow",
]

__getattr__ = lazily(
    __name__,
    {
        "signoff.storage.postgres": ("PostgresStorage",),
        "signoff.storage.postgres_database": ("PostgresEntryStore", "PostgresCheckpointer"),
        "signoff.storage.sqlite": ("SqliteEntryStore", "SqliteStorage", "SqliteCheckpointer"),
        "signoff.storage.threads": ("ThreadRow",),
    },
)
