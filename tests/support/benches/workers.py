"""Workers on a bench: a PostgreSQL database, a graph with a dictated script, and workers in this process."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from procrastinate.jobs import Job

from signoff import Session, build_graph
from signoff.graph.build import Graph
from signoff.models import ScriptedModel
from signoff.session.status import ThreadStatus
from signoff.storage import PostgresStorage
from signoff.workers import submit
from signoff.workers.figures import QueueFigures, backlog
from signoff.workers.jobs import JobQueries, session_of
from signoff.workers.worker import Worker
from tests.support.adapted import adapted
from tests.support.benches.session import DONE, play
from tests.support.servers.postgres import execute


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
        return build_graph(model, self.tools, storage=storage or self.storage, **adapted(**self.options))

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

    def status(self, thread_id: str = "t") -> ThreadStatus:
        return Session(self.graph(), thread_id).status()

    def said(self, thread_id: str = "t") -> list[str]:
        messages = self.status(thread_id).values.get("messages", ())
        return [message.text for message in messages if message.type == "human"]

    def jobs(self, *statuses: str) -> list[tuple[Any, ...]]:
        """The threads and attempts of the jobs with these statuses, the oldest first."""
        return execute(
            self.url,
            "SELECT args->>'thread_id', attempts FROM procrastinate_jobs WHERE status::text = ANY(%s) "
            "ORDER BY id",
            list(statuses),
        )

    def figures(self) -> QueueFigures:
        found = backlog(self.storage)
        assert found is not None, "the database has no queue"
        return found


@asynccontextmanager
async def opened(bench: Bench, **options: Any) -> AsyncIterator[JobQueries]:
    """The queue as one more worker has it."""
    worker = bench.worker(**options)
    async with worker._app.open_async():
        yield worker._jobs


async def taken(jobs: JobQueries) -> Job:
    """A job that a worker has taken which is not the one that looks for dead ones later."""
    worker = await super(JobQueries, jobs).register_worker()
    jobs._database.holds.session = session_of(worker)
    job = await jobs.fetch_job(["signoff"], worker)
    assert job is not None
    return job


def silence(bench: Bench) -> None:
    """All workers have been silent for a minute."""
    execute(bench.url, "UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 minute'")


def until(holds: Callable[[], Any]) -> None:
    """Waits until it holds; fails after a minute."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)
