"""The database that a command works on: a SQLite file, or PostgreSQL by its address."""

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from platformdirs import user_data_path

from signoff.front.settings import Source, environment, flag, read_options, user_file
from signoff.graph.errors import SetupError, ThreadError, shown
from signoff.storage.entries import entry_reader

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

_SCHEMES = ("postgresql://", "postgres://")
_ADDRESS = re.compile(r"(?P<scheme>[\w.+-]+://)(?P<place>[^/?#]*)(?P<rest>.*)", re.S)
_SECRET = re.compile(r"(?<=[?&])(?:ssl)?password=[^&]*&?")


class Readable(Protocol):
    """A database whose entries can be read."""

    @property
    def store(self) -> Any: ...

    def threads(self) -> list[str]: ...


class OpenStorage(Protocol):
    """An open database."""

    @property
    def checkpointer(self) -> Any: ...

    @property
    def store(self) -> "BaseStore": ...

    def threads(self) -> list[str]: ...


@dataclass(frozen=True)
class Database:
    """`where` is a path or an address; printed without a password.

    named: whether it has to be named again in the commands that go on. config: what `--config` was given,
    which then has to be given again. by_option: whether `--database` named it in this command.
    """

    where: str
    named: bool
    config: str | None = None
    by_option: bool = False

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
        """False only for a file that is not there."""
        return self.is_postgres or Path(self.where).exists()

    def check_named(self) -> None:
        """Raises SetupError for a file that this command was given and that is not there.

        For commands that only look: one that has nothing to show for a misspelt name would mislead."""
        if self.by_option and not self.exists():
            raise SetupError(
                f"There is no database {self}; name another one with --database, or leave that out for your "
                "own."
            )

    def open(self) -> AbstractContextManager[OpenStorage]:
        """Raises StorageError, or SetupError when a package is missing."""
        if self.is_postgres:
            # Its driver is an extra.
            from signoff.storage.postgres import postgres_storage

            return postgres_storage(self.where)
        # LangGraph takes a second to import; whoever only names a database needs none of it.
        from signoff.storage.sqlite import sqlite_storage

        return sqlite_storage(self.where)

    @contextmanager
    def entries(self) -> Iterator[Readable]:
        """Opens it to read what is recorded of the tasks: a SQLite file without LangGraph.

        Raises what `open` raises.
        """
        with ExitStack() as opened:
            found: Readable | None = None
            if not self.is_postgres:
                found = opened.enter_context(entry_reader(Path(self.where)))
            yield found or opened.enter_context(self.open())

    @property
    def options(self) -> list[str]:
        """The words that name it on a command line. A password stays in the environment."""
        config = ["--config", self.config] if self.config else []
        return [*config, *(["--database", str(self)] if self.named else [])]


def database(given: str | None, env: Mapping[str, str], config: Path | None = None) -> Database:
    """The one that was named, else that of SIGNOFF_DATABASE, else that of the user's file, `config`, else the
    file in the user's data folder."""
    if given == "":
        raise SetupError("--database is empty; give a file, or postgresql://user@host/database.")
    named = Source({"database": given} if given else {}, flag)
    where = read_options((named, environment(env), user_file(config))).database
    if not where:
        return Database(str(user_data_path("signoff") / "threads.sqlite"), named=False)
    if where.startswith(_SCHEMES):
        # An address from the environment or a file is there for the next command, too, with its password.
        return Database(where, named=bool(given), by_option=bool(given))
    if _ADDRESS.match(where):
        raise SetupError(
            "The database is named by an address of a kind that is not known; give a file, or "
            "postgresql://user@host/database."
        )
    path = str(Path(where).expanduser().absolute())
    own = str(user_data_path("signoff") / "threads.sqlite")
    return Database(path, named=path != own, by_option=bool(given))


def unknown(thread_id: str, database: Database) -> ThreadError:
    """The error for a thread that is not there."""
    return ThreadError(f"There is no thread {shown(thread_id)} in {database}; `signoff threads` lists them.")
