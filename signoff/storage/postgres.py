"""Storage for threads that several machines share: LangGraph's saver and store for PostgreSQL.

A runner has a session of its own, which holds an advisory lock for the thread and makes all writes to it.
When the session ends, however it ends, the server rolls back what it had not committed, and only then frees
the lock: whoever writes holds the thread, and there is no token to check. A session that has ended is not
replaced: the run fails, and its thread can be continued.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from signoff.graph.errors import SetupError
from signoff.graph.inside.installing import install_hint
from signoff.storage.threads import Storage

if TYPE_CHECKING:
    from signoff.storage.postgres_database import PostgresCheckpointer, PostgresEntryStore

__all__ = ["PostgresStorage", "postgres_storage"]


@dataclass(eq=False)
class PostgresStorage(Storage):
    """A checkpointer and a store in one PostgreSQL database."""

    checkpointer: "PostgresCheckpointer"
    store: "PostgresEntryStore"


def postgres_storage(url: str) -> PostgresStorage:
    """Opens the PostgreSQL database at `url` for threads and outcomes; creates missing tables.

    url: `postgresql://user:password@host:5432/database`, or libpq's `key=value` form. Do not use a pooler
    that shares sessions between transactions: a runner locks its thread with its session. Usable from sync
    and async graphs, by any number of processes at once. A runner that lost its session gets
    StorageError at its next write, or ThreadLost if another one has the thread by then. Only known types are
    read back (strict msgpack, no pickle), so that a crafted database cannot run code.

    Raises SetupError without the extra `signoff[postgres]`, StorageError when the database cannot be reached
    or used, or was written in another form. No message contains the password.
    """
    try:
        from signoff.storage.postgres_address import Address
        from signoff.storage.postgres_database import PostgresCheckpointer, PostgresEntryStore, opened
    except ImportError as error:
        raise SetupError(
            f"PostgreSQL needs packages that are missing ({error}): {install_hint('postgres')}"
        ) from error
    database = opened(Address(url))
    entries = PostgresEntryStore(database)
    return PostgresStorage(PostgresCheckpointer(database, entries), entries, _close=database.close)
