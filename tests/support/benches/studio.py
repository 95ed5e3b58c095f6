"""A folder that a `langgraph dev`, the commands and the tests themselves work in, on one database."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient

from signoff import Graph, Storage, build_graph, sqlite_storage
from signoff.storage import SqliteStorage
from signoff.tools.files import workspace_tools
from tests.support.servers.dev_server import Server, quiet_environment

TURNS = 12
ASKS = "Which port?"

# Knows no position, so that it serves a thread in any process. Run twice, an edit would leave a line twice.
SCRIPT = f"""
import os
from signoff.graph.messages import is_reply
from signoff.models import ScriptedModel, call

def script(messages):
    task = next(m.text for m in messages if m.type == "human")
    turn = sum(map(is_reply, messages)) + 1
    if task == "ask":
        answers = [m.text for m in messages if m.type == "tool"]
        if answers:
            return call("finish_task", summary=f"The port is {{answers[-1]}}.")
        return call("ask_user", question={ASKS!r})
    if task == "prompt":
        return call("finish_task", summary=messages[0].text[:40])
    if turn == 1:
        return call("write_file", path="log.txt", content="end")
    if turn == {TURNS}:
        return call("finish_task", summary="Wrote all lines.")
    return call("edit_file", path="log.txt", old="end", new=f"line {{turn}}\\nend")

model = ScriptedModel(script, delay=float(os.environ.get("DELAY", "0")))
"""


class Shared:
    """A folder with a script, a workspace and a database, which a server and this process share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.script = folder / "script.py"
        self.script.write_text(SCRIPT, encoding="utf-8")

    def env(self, delay: float = 0.0) -> dict[str, str]:
        return quiet_environment(
            SIGNOFF_MODEL=f"scripted:{self.script}",
            SIGNOFF_WORKSPACE=str(self.workspace),
            SIGNOFF_DATABASE=str(self.database),
            DELAY=str(delay),
        )

    @property
    def database(self) -> Path:
        return self.folder / "threads.sqlite"

    def storage(self) -> AbstractContextManager[SqliteStorage]:
        return sqlite_storage(self.database)

    def graph(self, storage: Storage) -> Graph:
        names: dict[str, Any] = {}
        exec(SCRIPT, names)
        return build_graph(names["model"], workspace_tools(self.workspace), storage=storage)

    def signoff(self, *words: str) -> dict[str, Any]:
        """Runs a command and gives its JSON."""
        command = [sys.executable, "-m", "signoff.cli", *words, "--workspace", str(self.workspace)]
        done = subprocess.run(
            [*command, "--tools", "files", "--json"],
            env=self.env(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    @property
    def lines(self) -> list[str]:
        """What the edits have left."""
        log = self.workspace / "log.txt"
        return log.read_text().split("\n")[:-1] if log.exists() else []


ALL_LINES = [f"line {turn}" for turn in range(2, TURNS)]


def client_of(server: Server) -> SyncLangGraphClient:
    return get_sync_client(url=server.url, api_key=None, timeout=120)


def message(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def wait(client: SyncLangGraphClient, thread: str, **given: Any) -> dict[str, Any]:
    """Runs the thread in the server until the run ends or pauses. Returns the state."""
    done = client.runs.wait(thread, "signoff", **given)
    assert isinstance(done, dict)
    return done


def begun(client: SyncLangGraphClient, shared: Shared) -> str:
    """The id of a thread that works in the server now, a few edits in."""
    thread = client.threads.create()["thread_id"]
    client.runs.create(thread, "signoff", input=message("work"))
    until(lambda: len(shared.lines) >= 3, "the server does not run")
    return thread


def until(true: Callable[[], bool], what: str) -> None:
    """Waits; `what` is the complaint when it does not come true."""
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
