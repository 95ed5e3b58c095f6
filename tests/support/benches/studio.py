"""A folder that a `langgraph dev`, the commands and the tests themselves work in, on one database."""

import json
from pathlib import Path
from typing import Any

from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient
from typer.testing import CliRunner

from signoff import Ended, Graph, Session, Storage, build_graph, sqlite_storage
from signoff.cli.app import app
from signoff.storage import SqliteStorage
from signoff.tools import workspace_tools
from tests.support.benches.cli import CLEAN
from tests.support.servers import studio_model
from tests.support.servers.dev_server import Server, quiet_environment
from tests.support.waiting import wait_until

ALL_LINES = [f"line {turn}" for turn in range(2, studio_model.TURNS)]


class Shared:
    """A folder with a workspace and a database, which a server and this process share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace = folder / "workspace"
        self.workspace.mkdir()

    def settings(self) -> dict[str, str]:
        return {
            "SIGNOFF_MODEL": f"scripted:{studio_model.__file__}",
            "SIGNOFF_WORKSPACE": str(self.workspace),
            "SIGNOFF_DATABASE": str(self.database),
        }

    def env(self, delay: float = 0.0) -> dict[str, str]:
        return quiet_environment(XDG_CACHE_HOME=str(self.folder), DELAY=str(delay), **self.settings())

    @property
    def database(self) -> Path:
        return self.folder / "threads.sqlite"

    def storage(self) -> SqliteStorage:
        return sqlite_storage(self.database)

    def graph(self, storage: Storage) -> Graph:
        return build_graph(studio_model.model, workspace_tools(self.workspace), storage=storage)

    def go_on(self, thread: str, given: Any = None) -> Any:
        """Takes the thread up in this process; returns the outcome of its task."""
        with self.storage() as storage:
            decision = Session(self.graph(storage), thread).run(given)
        assert isinstance(decision, Ended)
        return decision.outcome

    def signoff(self, *words: str) -> dict[str, Any]:
        """Runs a command and gives its JSON."""
        env = {**CLEAN, **self.settings()}
        return dict(json.loads(CliRunner().invoke(app, [*words, "--json"], env=env).stdout))

    def lines(self, file: str = "log.txt") -> list[str]:
        """What the edits have left."""
        log = self.workspace / file
        return log.read_text().split("\n")[:-1] if log.exists() else []


def client_of(server: Server) -> SyncLangGraphClient:
    return get_sync_client(url=server.url, api_key=None, timeout=120)


def message(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def wait(client: SyncLangGraphClient, thread: str, graph: str = "signoff", **given: Any) -> Any:
    """Runs the thread in the server until the run ends or pauses. Returns the state."""
    return client.runs.wait(thread, graph, **given)


def new(client: SyncLangGraphClient) -> str:
    return client.threads.create()["thread_id"]


def values_of(client: SyncLangGraphClient, thread: str) -> Any:
    return client.threads.get_state(thread)["values"]


def begun(client: SyncLangGraphClient, shared: Shared, file: str = "log.txt") -> str:
    """The id of a thread that works in the server now, a few edits in."""
    thread = new(client)
    client.runs.create(thread, "signoff", input=message(f"work {file}"))
    wait_until(lambda: len(shared.lines(file)) >= 3)
    return thread
