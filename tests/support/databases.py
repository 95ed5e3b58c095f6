"""A storage by the address of its database."""

from contextlib import AbstractContextManager
from typing import Any

from signoff import postgres_storage, sqlite_storage


def storage_at(database: str) -> AbstractContextManager[Any]:
    """database: a PostgreSQL URL, or the path of a SQLite file."""
    return postgres_storage(database) if "://" in database else sqlite_storage(database)
