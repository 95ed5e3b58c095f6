"""The database of a command: a SQLite file, or a PostgreSQL address."""

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from platformdirs import user_data_dir

from signoff import SetupError, ThreadError
from signoff.front.settings import Source, environment, flag, read_options, user_file
from signoff.graph.foreign import users_folder
from signoff.text import quote_id

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

_SCHEMES = ("postgresql://", "postgres://")
_ADDRESS = re.compile(r"(?P<scheme>[\w.+-]+://)(?P<place>[^/?#]*)(?P<rest>.*)", re.S)
_SECRET = re.compile(r"(?<=[?&])(?:ssl)?password=[^&]*&?")


class OpenStorage(Protocol):
    """An open database."""

    @property
    def checkpointer(self) -> Any: ...

    @property
    def store(self) -> "BaseStore": ...


@dataclass(frozen=True)
class Database:
    """A database. where: a path or an address; printed without a password.

    named: whether the commands that continue have to name it again. config: the value of `--config`, which
    they then have to repeat. by_option: whether `--database` named it in this command. graph: the value of
    `--graph`, which the commands that go on have to repeat, too.
    """

    where: str
    named: bool
    config: str | None = None
    by_option: bool = False
    graph: str | None = None

    def __str__(self) -> str:
        found = _ADDRESS.match(self.where) if self.is_postgres else None
        if found is None:
            return self.where
        user, at, host = found["place"].rpartition("@")
        rest = _SECRET.sub("", found["rest"]).rstrip("?&")
        return f"{found['scheme']}{user.partition(':')[0]}{at}{host}{rest}"

    @property
    def is_postgres(self) -> bool:
        return self.where.startswith(_SCHEMES)

    def exists(self) -> bool:
        """Returns False only for a file that does not exist."""
        return self.is_postgres or Path(self.where).exists()

    def check_named(self) -> None:
        """Raises SetupError if `--database` names a file that does not exist.

        For commands that only read: an empty answer for a misspelt name would mislead.
        """
        if self.by_option and not self.exists():
            raise SetupError(
                f"There is no database {self}; name another one with --database, or omit the option for "
                "your own."
            )

    def open(self) -> AbstractContextManager[OpenStorage]:
        """Opens the database. Raises StorageError, or SetupError when a package is missing."""
        if self.is_postgres:
            # Its driver is an extra.
            from signoff import postgres_storage

            return postgres_storage(self.where)
        # LangGraph takes a second to import; naming a database does not need it.
        from signoff import sqlite_storage

        return sqlite_storage(self.where)

    @property
    def options(self) -> list[str]:
        """Returns the options that name it on a command line. A password stays in the environment."""
        config = ["--config", self.config] if self.config else []
        graph = ["--graph", self.graph] if self.graph else []
        return [*config, *(["--database", str(self)] if self.named else []), *graph]


def database(given: str | None, env: Mapping[str, str], config: Path | None = None) -> Database:
    """Returns the named database, or the default.

    The default is SIGNOFF_DATABASE, else the database of the user's file, `config`, else the file in the
    user's data folder.
    """
    if given == "":
        raise SetupError("--database is empty; pass a file, or postgresql://user@host/database.")
    named = Source({"database": given} if given else {}, flag)
    where = read_options((named, environment(env), user_file(config))).database
    if not where:
        if (folder := users_folder(user_data_dir)) is None:
            raise SetupError("This user has no home for a database; name a file by --database.")
        return Database(str(folder / "threads.sqlite"), named=False)
    if where.startswith(_SCHEMES):
        # An address from the environment or a file, with its password, is available to the next command too.
        return Database(where, named=bool(given), by_option=bool(given))
    if _ADDRESS.match(where):
        raise SetupError(
            "The address of the database is of an unknown kind; pass a file, or "
            "postgresql://user@host/database."
        )
    path = str(Path(where).expanduser().absolute())
    folder = users_folder(user_data_dir)
    is_own = folder is not None and path == str(folder / "threads.sqlite")
    return Database(path, named=not is_own, by_option=bool(given))


def unknown(thread_id: str, database: Database) -> ThreadError:
    """Returns the error for a thread that does not exist."""
    return ThreadError(
        f"There is no thread {quote_id(thread_id)} in {database}; `signoff threads` lists them."
    )
