"""The address of a PostgreSQL database: connecting to it, and reporting its errors."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import psycopg
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row
from psycopg_pool import PoolClosed

from signoff.graph.compiled.holds import closed
from signoff.graph.errors import StorageError, Unreadable
from signoff.storage.forking import lock_against_forks, sessions

# The loss of a machine, on either side, is noticed within half a minute.
_DEFAULTS: dict[str, str | int | None] = {
    "application_name": "signoff",
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
# The settings that sessions rely on, whatever the server, the database, the user or the address sets.
_SESSION = {
    "default_transaction_isolation": "read committed",
    "client_encoding": "UTF8",
    # The session that locks a thread is idle while a tool runs.
    "idle_session_timeout": "0",
    # A stopped process must not block the one that takes over its thread.
    "lock_timeout": "8s",
    "idle_in_transaction_session_timeout": "8s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
# PostgreSQL's classes of errors: a value that does not fit, a limit of the program.
_BY_DATA = ("22", "54")
# The driver gives an error of connecting no number.
_FULL = re.compile("too many (clients|connections)|remaining connection slots")
_FORM = (
    "write postgresql://user:password@host:5432/database, with the special characters of the user and the "
    "password percent-encoded."
)


class Session(Connection[DictRow]):
    """A connection with the options that LangGraph's classes require, and the settings that sessions rely on.

    It is not made while the process forks: a login takes locks of OpenSSL's, which would stay locked in the
    child for ever.
    """

    @classmethod
    def connect(cls, *arguments: Any, **options: Any) -> Self:
        options |= {"autocommit": True, "row_factory": dict_row, "prepare_threshold": 0}
        with lock_against_forks():
            session = super().connect(*arguments, **options)
            sessions.add(session)
            try:
                session.execute(settings())
            except BaseException:
                session.close()
                raise
            return session


class Address:
    """The address of a database, shown without its password. Raises StorageError for an invalid one."""

    def __init__(self, url: str) -> None:
        try:
            # libpq stops reading at a NUL.
            given = conninfo_to_dict(url) if url.strip() and "\0" not in url else None
        except (psycopg.Error, ValueError, TypeError, AttributeError):
            given = None
        if not given:
            # libpq's message may quote the password.
            raise StorageError(f"This is not the address of a PostgreSQL database; {_FORM}")
        self.conninfo: str = make_conninfo(
            url, **{key: _DEFAULTS[key] for key in _DEFAULTS if key not in given}
        )
        self._secrets = [str(given[key]) for key in ("password", "sslpassword") if given.get(key)]
        host, port, name = (str(given.get(key) or "") for key in ("host", "port", "dbname"))
        # A password that is not percent-encoded ends up in the host, port or database name.
        self._odd = "@" in host + name or bool(port.strip("0123456789,"))
        self._shown = f"{host or 'localhost'}{port and ':' + port}/{name}".rstrip("/")

    def __str__(self) -> str:
        return "that this address names" if self._odd else self._shown

    def connect(self, application_name: str | None = None) -> Session:
        """Opens a connection outside the pool. Raises StorageError."""
        with self.errors("check its address, and that it runs"):
            return Session.connect(self.conninfo, application_name=application_name)

    @contextmanager
    def errors(
        self, advice: str = "nothing that was saved is lost; continue the thread when the database is back"
    ) -> Iterator[None]:
        """Turns the driver's errors into StorageError; Unreadable where the data are their cause."""
        try:
            yield
        except PoolClosed:
            raise closed() from None
        except psycopg.Error as error:
            cut_off = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and (
                error.sqlstate is None or error.sqlstate[:2] in ("08", "57")
            )
            if _FULL.search(str(error)):
                advice = (
                    "each running thread has a connection: raise the server's max_connections, or run fewer "
                    "threads at once"
                )
            elif not cut_off:
                advice = "nothing that was saved is lost"
            what = "cannot be reached" if cut_off else "refused a request"
            # Not chained: the driver's message may quote the address.
            kind = Unreadable if (error.sqlstate or "")[:2] in _BY_DATA else StorageError
            raise kind(f"The database {self} {what}{self._reason(error)}; {advice}.") from None

    def _reason(self, error: psycopg.Error) -> str:
        first = (error.diag.message_primary or str(error)).strip().partition("\n")[0]
        reason = first.rpartition("failed: ")[2].removeprefix("FATAL:").strip()
        if self._odd:
            return f" (if its user or password contains special characters, {_FORM.rstrip('.')})"
        return "" if not reason or any(secret in reason for secret in self._secrets) else f" ({reason})"


def settings() -> bytes:
    """One statement for the settings that every session relies on.

    An older server does not know all of them. The record that an effect has started must survive a crash of
    the server, so `synchronous_commit` may be anything but off.
    """
    values = ", ".join(f"('{key}', '{value}')" for key, value in _SESSION.items())
    return (
        f"WITH wanted (name, value) AS (VALUES {values} "
        "UNION ALL SELECT 'synchronous_commit', 'on' WHERE current_setting('synchronous_commit') = 'off') "
        "SELECT set_config(name, value, false) FROM wanted WHERE current_setting(name, true) IS NOT NULL"
    ).encode()
