"""Workers on a bench: a PostgreSQL database, a graph with a dictated script, and `signoff worker`."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from typer.testing import CliRunner

from signoff import Graph, Session, Storage, ThreadStatus, build_graph
from signoff.cli.app import app
from signoff.models import ScriptedModel, call
from signoff.storage import PostgresStorage
from signoff.workers import submit
from tests.support.servers.postgres import execute

DONE = call("finish_task", summary="Done.")
ASK = call("ask_user", question="Which?")
DIE = """UPDATE procrastinate_jobs SET status = 'doing',
    worker_id = (SELECT max(id) FROM procrastinate_workers)
    WHERE status = 'todo' AND args->>'thread_id' = ANY(%s)"""
SILENT = "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - interval '1 minute')"
_open: list["Bench"] = []


def current(storage: PostgresStorage) -> Graph:
    """The graph of the bench that was made last, for a worker."""
    return _open[-1].graph(storage)


class Bench:
    """Threads of one script, and workers that play it. steps: replies, or a function of the messages."""

    def __init__(self, storage: Any, url: str) -> None:
        self.storage, self.url = storage, url
        self.steps: Sequence[Any] | Callable[[Any], Any] = (DONE,) * 9
        self.tools: list[Any] = []
        self.options: dict[str, Any] = {}
        _open[:] = [self]

    def graph(self, storage: Storage | None = None) -> Graph:
        model = ScriptedModel(self.step)
        return build_graph(model, self.tools, storage=storage or self.storage, **self.options)

    def step(self, messages: Sequence[BaseMessage]) -> Any:
        """The step after as many replies as the history holds."""
        if callable(self.steps):
            return self.steps(messages)
        return self.steps[sum(bool(getattr(message, "tool_calls", ())) for message in messages)]

    def work(self, *words: str) -> str:
        """Lets a worker run until nothing is left to begin; returns what it logs."""
        queue = () if "--queue" in words else ("--queue", "signoff")
        named = ["worker", f"{__name__}:current", "--database", self.url, *queue, *words]
        result = CliRunner().invoke(app, [*named, "--until-idle", "--heartbeat", "0.5"])
        assert (result.exit_code, result.stdout) == (0, ""), result.output
        return result.stderr

    def submit(self, request: Any, thread_id: str = "t", **options: Any) -> str:
        return submit(self.storage, request, thread_id, **options)

    def status(self, thread_id: str = "t") -> ThreadStatus:
        return Session(self.graph(), thread_id).status()

    def said(self, thread_id: str = "t") -> list[str]:
        messages = self.status(thread_id).values.get("messages", ())
        return [message.text for message in messages if message.type == "human"]

    def listed(self) -> dict[str, str]:
        """How `signoff threads` lists each thread."""
        return {row["thread_id"]: row["status"] for row in self._threads()["threads"]}

    def figures(self) -> dict[str, Any]:
        return dict(self._threads()["workers"])

    def why(self, thread_id: str) -> str:
        """What `signoff threads` says of what a thread needs."""
        return str(next(row["what"] for row in self._threads()["threads"] if row["thread_id"] == thread_id))

    def _threads(self) -> dict[str, Any]:
        result = CliRunner().invoke(app, ["threads", "--json", "--database", self.url])
        return dict(json.loads(result.stdout))

    def jobs(self, *statuses: str) -> list[tuple[Any, ...]]:
        """The threads and attempts of the jobs with these statuses, the oldest first."""
        return execute(
            self.url,
            "SELECT args->>'thread_id', attempts FROM procrastinate_jobs WHERE status::text = ANY(%s) "
            "ORDER BY id",
            list(statuses),
        )

    def kept(self) -> Any:
        """All that the database holds of the threads' orders and jobs."""
        items = [(item.namespace, item.key, item.value) for item in self.storage.store.search((), limit=100)]
        jobs = execute(
            self.url, "SELECT id, status::text, args, queue_name, attempts FROM procrastinate_jobs"
        )
        return sorted(items, key=str), sorted(jobs, key=str)

    def make_due(self) -> None:
        """Nobody waits until the next try."""
        execute(self.url, "UPDATE procrastinate_jobs SET scheduled_at = NULL")

    def die(self, *threads: str) -> None:
        """A worker has taken these threads and died."""
        execute(self.url, SILENT)
        execute(self.url, DIE, list(threads))
