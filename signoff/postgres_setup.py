"""The tables in PostgreSQL, made once however many processes open the database at the same moment."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.store.postgres import PostgresStore
from psycopg import Connection
from psycopg.rows import DictRow

from signoff.graph.errors import StorageError
from signoff.postgres_address import Address

SCHEMA = 1
"""The version of the database, kept in the table `signoff_schema`."""

# Any number that no other program uses.
_LOCK = 0x5167_6E0F_F5E7_0001
_WAIT_SECONDS = 30.0

_TABLES = (
    "CREATE TABLE IF NOT EXISTS signoff_schema (version integer NOT NULL)",
    # One row for each thread that was ever run: how often a runner has taken it.
    "CREATE TABLE IF NOT EXISTS signoff_runners (thread_id text PRIMARY KEY, token bigint NOT NULL)",
)


def set_up(address: Address) -> int:
    """Makes the tables that are missing; gives a number that stands for these tables in this database.

    Raises StorageError when the database cannot be used or was written by a newer version.
    """
    with address.connect() as connection, address.errors():
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StorageError(
                f"The database {address} has the encoding {encoding}; make one with ENCODING 'UTF8'."
            )
        if _version(connection, address) < SCHEMA or not _is_current(connection):
            with alone(connection, address):
                _migrate(connection, address)
        row = connection.execute("SELECT 'signoff_runners'::regclass::oid::bigint AS scope").fetchone()
        assert row is not None, "a SELECT without FROM has one row"
        return int(row["scope"])


def _version(connection: Connection[DictRow], address: Address) -> int:
    version = _highest(connection, "signoff_schema", "version")
    if version > SCHEMA:
        raise StorageError(
            f"The database {address} was written by a newer Signoff (version {version}; this one reads "
            f"{SCHEMA}): upgrade Signoff."
        )
    return version


def _is_current(connection: Connection[DictRow]) -> bool:
    """Whether LangGraph has nothing to do: making its tables needs rights that a runner may not have."""
    migrations = {
        "checkpoint_migrations": PostgresSaver.MIGRATIONS,
        "store_migrations": PostgresStore.MIGRATIONS,
    }
    return all(_highest(connection, table, "v") >= len(all_) - 1 for table, all_ in migrations.items())


def _highest(connection: Connection[DictRow], table: str, column: str) -> int:
    """The highest number in a table; -1 when there is no table, or nothing in it."""
    found = connection.execute("SELECT to_regclass(%s) AS found", (table,)).fetchone()
    if found is None or found["found"] is None:
        return -1
    row = connection.execute(f"SELECT max({column}) AS v FROM {table}".encode()).fetchone()
    return -1 if row is None or row["v"] is None else int(row["v"])


def _migrate(connection: Connection[DictRow], address: Address) -> None:
    version = _version(connection, address)
    PostgresSaver(connection).setup()
    PostgresStore(connection).setup()
    for statement in _TABLES:
        connection.execute(statement.encode())
    if version < SCHEMA:
        with connection.transaction():
            connection.execute("DELETE FROM signoff_schema")
            connection.execute("INSERT INTO signoff_schema (version) VALUES (%s)", (SCHEMA,))


@contextmanager
def alone(connection: Connection[DictRow], address: Address) -> Iterator[None]:
    """One process at a time. Asks again and again, because LangGraph makes an index CONCURRENTLY, which waits
    for every statement that was running before: one that waits for this lock, too."""
    until = time.monotonic() + _WAIT_SECONDS
    while not _locked(connection):
        if time.monotonic() > until:
            raise StorageError(
                f"The database {address} is being set up by another process; try again when that has ended."
            )
        time.sleep(0.05)
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))


def _locked(connection: Connection[DictRow]) -> bool:
    row = connection.execute("SELECT pg_try_advisory_lock(%s) AS got", (_LOCK,)).fetchone()
    return row is not None and bool(row["got"])
