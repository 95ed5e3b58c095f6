"""Workers on a bench: a PostgreSQL database, a graph with a dictated script, and workers in this process."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from signoff import Session, build_graph
from signoff.graph.build import Graph
from signoff.models import ScriptedModel
from signoff.postgres import PostgresStorage
from signoff.session.standing import Standing
from signoff.workers import submit
from signoff.workers.worker import Worker
from tests.postgres import execute
from tests.session_bench import DONE, play


class Bench:
    """Threads of one script, and workers that play it."""

    def __init__(self, storage: PostgresStorage, url: str) -> None:
        self.storage = storage
        self.url = url
        self.steps: tuple[Any, ...] = (DONE,) * 9
        self.tools: list[Callable[..., str]] = []
        self.options: dict[str, Any] = {}

    def graph(self, storage: PostgresStorage | None = None) -> Graph:
        model = ScriptedModel(play(*self.steps))
        return build_graph(model, self.tools, storage=storage or self.storage, **self.options)

    @contextmanager
    def graphs(self, thread_id: str) -> Iterator[Graph]:
        yield self.graph()

    def worker(self, **options: Any) -> Worker:
        return Worker(self.storage, self.graphs, **{"heartbeat": 0.1, **options})

    def work(self) -> None:
        """Lets a worker run until nothing is left to begin."""
        asyncio.run(self.worker().run(until_idle=True))

    def submit(self, request: Any, thread_id: str = "t", **options: Any) -> str:
        return submit(self.storage, request, thread_id, **options)

    def standing(self, thread_id: str = "t") -> Standing:
        return Session(self.graph(), thread_id).standing()

    def said(self, thread_id: str = "t") -> list[str]:
        messages = self.standing(thread_id).values.get("messages", ())
        return [message.text for message in messages if message.type == "human"]

    def jobs(self, *statuses: str) -> list[tuple[Any, ...]]:
        """The threads and attempts of the jobs with these statuses, the oldest first."""
        return execute(
            self.url,
            "SELECT args->>'thread_id', attempts FROM procrastinate_jobs WHERE status::text = ANY(%s) "
            "ORDER BY id",
            list(statuses),
        )
