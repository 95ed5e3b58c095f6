"""The address of a PostgreSQL database: how it is connected to, and how its errors are told."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row
from psycopg_pool import PoolClosed

from signoff.graph.compiled.graph import closed
from signoff.graph.errors import StorageError

CONNECTION: dict[str, Any] = {"autocommit": True, "row_factory": dict_row, "prepare_threshold": 0}
"""What LangGraph's classes want of a connection."""

# A machine that is gone, on either side, is noticed within half a minute.
_DEFAULTS: dict[str, str | int | None] = {
    "application_name": "signoff",
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
# What the sessions rely on, whatever is set for the server, the database, the user or in the address.
_SESSION = {
    # A write looks at the fencing token after it has waited for a lock. On another level it would see the
    # token as it was before it waited, and write although another runner has the thread.
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "bytea_output": "hex",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    # The session by which a thread is held says nothing while a tool runs.
    "idle_session_timeout": "0",
    # A stopped process must not hold up the one that takes its thread over.
    "lock_timeout": "8s",
    "idle_in_transaction_session_timeout": "8s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
_FORM = (
    "write postgresql://user:password@host:5432/database, with the special characters of the user and the "
    "password percent-encoded."
)


class Address:
    """Where a database is. Raises StorageError for text that is not an address. Never shows the password."""

    def __init__(self, url: str) -> None:
        try:
            # libpq would read no further than a NUL.
            given = conninfo_to_dict(url) if url.strip() and "\0" not in url else None
        except (psycopg.Error, ValueError, TypeError, AttributeError):
            given = None
        if not given:
            # What libpq says of it may quote the password.
            raise StorageError(f"This is not the address of a PostgreSQL database; {_FORM}")
        self.conninfo = make_conninfo(url, **{key: _DEFAULTS[key] for key in _DEFAULTS if key not in given})
        self._secrets = [str(given[key]) for key in ("password", "sslpassword") if given.get(key)]
        host, port, name = (str(given.get(key) or "") for key in ("host", "port", "dbname"))
        # A password that is not percent-encoded ends up in what is taken for host, port or name.
        self._odd = "@" in host + name or bool(port.strip("0123456789,"))
        self._shown = f"{host or 'localhost'}{port and ':' + port}/{name}".rstrip("/")

    def __str__(self) -> str:
        return "that this address names" if self._odd else self._shown

    def connect(self) -> Connection[DictRow]:
        """A connection of its own. Raises StorageError."""
        with self.errors("check its address, and that it runs"):
            connection = Connection.connect(self.conninfo, **CONNECTION)
            try:
                configure(connection)
            except BaseException:
                connection.close()
                raise
            return connection

    @contextmanager
    def errors(
        self, advice: str = "nothing that was saved is lost, go on with the thread when the database is back"
    ) -> Iterator[None]:
        """Turns errors of the driver into StorageError."""
        try:
            yield
        except PoolClosed:
            raise closed() from None
        except psycopg.Error as error:
            cut_off = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and (
                error.sqlstate is None or error.sqlstate[:2] in ("08", "57")
            )
            if not cut_off:
                advice = "nothing that was saved is lost"
            what = "cannot be reached" if cut_off else "refused a request"
            # Not chained: the driver's own text may quote the address.
            raise StorageError(f"The database {self} {what}{self._reason(error)}; {advice}.") from None

    def _reason(self, error: psycopg.Error) -> str:
        first = (error.diag.message_primary or str(error)).strip().partition("\n")[0]
        reason = first.rpartition("failed: ")[2].removeprefix("FATAL:").strip()
        if self._odd:
            return f" (if its user or password holds special characters, {_FORM.rstrip('.')})"
        return "" if not reason or any(secret in reason for secret in self._secrets) else f" ({reason})"


def configure(connection: Connection[Any]) -> None:
    """Sets what every session of ours relies on."""
    connection.execute(_settings())


async def aconfigure(connection: AsyncConnection[Any]) -> None:
    """As above, for a session that need not be in autocommit."""
    await connection.execute(_settings())
    await connection.commit()


def _settings() -> bytes:
    """One statement, without the settings that an older server does not know. That an effect has started must
    outlive a crash of the server, so `synchronous_commit` may be anything but off."""
    values = ", ".join(f"('{key}', '{value}')" for key, value in _SESSION.items())
    return (
        f"WITH wanted (name, value) AS (VALUES {values} "
        "UNION ALL SELECT 'synchronous_commit', 'on' WHERE current_setting('synchronous_commit') = 'off') "
        "SELECT set_config(name, value, false) FROM wanted WHERE current_setting(name, true) IS NOT NULL"
    ).encode()
