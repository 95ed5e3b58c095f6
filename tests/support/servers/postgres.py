"""A real PostgreSQL server for tests, on loopback, run by a user that is not root.

`postgres_url` is a fixture: the URL of a fresh, empty database. The first process that needs the server
starts it, for all that run tests, and it ends with the last of them, whatever becomes of these. A test that
stops the server uses `own_postgres_server`.
"""

import fcntl
import glob
import json
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.support.servers.loopback import free_port
from tests.support.waiting import until

USER, PASSWORD = "signoff", "s3cret-w0rd"
MISSING = "no PostgreSQL server is installed (on Debian: apt-get install postgresql)"
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "32MB",
}
# The shell waits for the end of its input, so that no server is left behind when a test process is killed.
WITH_US = '"$@" & server=$!; read -r _; kill -INT $server; wait $server; rm -rf "$LEAVES"'


@dataclass
class Server:
    """A PostgreSQL server with its data below a temporary folder.

    shared: a named pipe, which every process that uses the server holds open: so it runs until the last of
    them has let go, or was killed, and takes its folder with it. None for a server of one's own.
    """

    binaries: Path
    folder: Path
    port: int
    shared: Path | None = None
    holds: int = -1

    @classmethod
    def begun(cls, binaries: Path, shared: Path | None = None) -> "Server":
        """A new server, which runs."""
        server = cls(binaries, _folder(_user()), free_port(), shared)
        secret = server.folder / "password"
        secret.write_text(PASSWORD)
        if user := _user():
            shutil.chown(secret, user)
        options = [f"--username={USER}", f"--pwfile={secret}", "--auth=scram-sha-256", "--encoding=UTF8"]
        command: list[Any] = [
            binaries / "initdb",
            "--no-sync",
            "--locale=C",
            *options,
            str(server.folder / "data"),
        ]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True, cwd=server.folder, **server._as_user)
        server.start()
        return server

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Starts the server and waits until it takes connections."""
        settings = [f"--{key}={value}" for key, value in SETTINGS.items()]
        place = ["-D", str(self.folder / "data"), f"--port={self.port}"]
        reads, self.holds = _pipe(self.shared) if self.shared else os.pipe()
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", WITH_US, "sh", self.binaries / "postgres", *place, *settings],
                stdin=reads,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, "LEAVES": str(self.folder) if self.shared else ""},
                **self._as_user,
            )
        os.close(reads)
        until(lambda: self.process.poll() is not None or self._ready())
        assert self._ready(), f"PostgreSQL did not start:\n{(self.folder / 'log').read_text()}"

    def stop(self) -> None:
        """Ends the server and all its sessions."""
        os.close(self.holds)
        self.process.wait(60)

    def restart(self) -> None:
        self.stop()
        self.start()

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Runs one statement as the superuser; gives its rows."""
        return execute(self.url(), statement, *values)

    def fresh(self) -> str:
        """The URL of a new, empty database."""
        name = f"test_{uuid4().hex}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def _ready(self) -> bool:
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    @property
    def _as_user(self) -> dict[str, Any]:
        if not (user := _user()):
            return {}
        return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def execute(url: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Runs one statement in the database of `url`; gives its rows."""
    with psycopg.connect(url, autocommit=True) as connection:
        # Tests give literal statements.
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def binaries() -> Path | None:
    """The folder with the programs of the newest PostgreSQL server here."""
    installed = glob.glob("/usr/lib/postgresql/*/bin") + glob.glob("/opt/homebrew/opt/postgresql*/bin")
    on_path = shutil.which("initdb")
    known = [os.path.dirname(os.path.realpath(on_path))] if on_path else []
    found = [Path(folder) for folder in known + sorted(installed, reverse=True)]
    return next((f for f in found if (f / "postgres").exists() and (f / "initdb").exists()), None)


def _user() -> str:
    """Who runs the server: PostgreSQL refuses to run as root. Empty for oneself."""
    if os.geteuid():
        return ""
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _folder(user: str) -> Path:
    """A folder that `user` can reach; pytest's own are for the user that runs the tests alone."""
    folder = Path(tempfile.mkdtemp(prefix="signoff-postgres-", dir="/tmp" if user else None))
    if user:
        shutil.chown(folder, user)
    return folder


@pytest.fixture(scope="session")
def postgres_server(shared_folder: Path) -> Iterator[Server]:
    """The server that all tests share, also those of other processes."""
    found = binaries()
    if found is None:
        pytest.skip(MISSING)
    with (shared_folder / "postgres.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        server = _joined(found, shared_folder) or _begun(found, shared_folder)
    yield server
    os.close(server.holds)


def _begun(binaries: Path, folder: Path) -> Server:
    """A server for all processes that run tests, named in their folder."""
    pipe = folder / "postgres.pipe"
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    server = Server.begun(binaries, pipe)
    # Nobody waits for its end, and a process that is forgotten while it runs would be a warning.
    server.process.returncode = 0
    (folder / "postgres.json").write_text(json.dumps([str(server.folder), server.port]))
    return server


def _joined(binaries: Path, folder: Path) -> Server | None:
    """The server that another process has begun; None if there is none, or no more."""
    pipe = folder / "postgres.pipe"
    try:
        holds = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None
    data, port = json.loads((folder / "postgres.json").read_text())
    return Server(binaries, Path(data), port, pipe, holds)


def _pipe(path: Path) -> tuple[int, int]:
    """Both ends of a named pipe."""
    reads = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    holds = os.open(path, os.O_WRONLY)
    os.set_blocking(reads, True)
    return reads, holds


@pytest.fixture(scope="module")
def own_postgres_server() -> Iterator[Server]:
    """A server that the tests of one file may stop and start."""
    found = binaries()
    if found is None:
        pytest.skip(MISSING)
    server = Server.begun(found)
    yield server
    server.remove()


@pytest.fixture
def postgres_url(postgres_server: Server) -> Iterator[str]:
    """The URL of a fresh, empty database."""
    yield from _database(postgres_server)


@pytest.fixture
def own_postgres_url(own_postgres_server: Server) -> Iterator[str]:
    """The URL of a fresh, empty database on a server that may be stopped."""
    yield from _database(own_postgres_server)


def _database(server: Server) -> Iterator[str]:
    url = server.fresh()
    yield url
    server.execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")
