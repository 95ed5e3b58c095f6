"""Storage for threads that several machines share: a checkpointer and a store in PostgreSQL."""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from signoff.graph.errors import SetupError
from signoff.graph.inside.installing import install_hint
from signoff.storage.threads import Storage

if TYPE_CHECKING:
    from signoff.storage.postgres_tables import PostgresEntries, PostgresThreads

__all__ = [
    "PostgresStorage",
    "postgres_storage",
]


@dataclass(frozen=True)
class PostgresStorage(Storage):
    """A checkpointer and a store in one PostgreSQL database."""

    checkpointer: "PostgresThreads"
    store: "PostgresEntries"


def postgres_storage(url: str) -> PostgresStorage:
    """Opens the PostgreSQL database at `url` for threads and outcomes; creates missing tables.

    url: `postgresql://user:password@host:5432/database`, or libpq's `key=value` form. Do not use a pooler
    that shares sessions between transactions: a runner locks its thread with its session. Usable from sync
    and async graphs, by any number of processes at once. A runner that lost its connection and whose thread
    another runner took over gets ThreadLost at its next write. Only known types are read back (strict
    msgpack, no pickle), so that a crafted database cannot run code.

    Raises SetupError without the extra `signoff[postgres]`, StorageError when the database cannot be reached
    or used, or was written in another form. No message contains the password.
    """
    try:
        from signoff.storage.postgres_address import Address
        from signoff.storage.postgres_pool import SharedDatabase, new_pool
        from signoff.storage.postgres_tables import PostgresEntries, PostgresThreads, set_up
        from signoff.tools.processes.held import end_with
    except ImportError as error:
        raise SetupError(
            f"PostgreSQL needs packages that are missing ({error}): {install_hint('postgres')}"
        ) from error
    address = Address(url)
    scope = set_up(address)
    with ExitStack() as opened:
        database = SharedDatabase(address, opened.enter_context(new_pool(address)), scope)
        threads, entries = PostgresThreads(database), PostgresEntries(database)
        threads.entries = entries
        opened.callback(end_with, threads)
        return PostgresStorage(threads, entries, opened.pop_all())
