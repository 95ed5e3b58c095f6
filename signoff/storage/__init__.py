"""The storages, as types."""

from typing import TYPE_CHECKING

from signoff.public import lazily

if TYPE_CHECKING:
    from signoff.storage.postgres import PostgresStorage
    from signoff.storage.postgres_database import PostgresEntries, PostgresThreads
    from signoff.storage.sqlite import SqliteEntries, SqliteStorage, SqliteThreads
    from signoff.storage.threads import ThreadRow

__all__ = [
    "PostgresEntries",
    "PostgresStorage",
    "PostgresThreads",
    "SqliteEntries",
    "SqliteStorage",
    "SqliteThreads",
    "ThreadRow",
]

__getattr__ = lazily(
    __name__,
    {
        "signoff.storage.postgres": ("PostgresStorage",),
        "signoff.storage.postgres_database": ("PostgresEntries", "PostgresThreads"),
        "signoff.storage.sqlite": ("SqliteEntries", "SqliteStorage", "SqliteThreads"),
        "signoff.storage.threads": ("ThreadRow",),
    },
)
