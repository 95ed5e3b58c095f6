"""A thread whose tool ends its worker's process: it takes a few workers with it, and no other thread."""

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import StructuredTool

from signoff import build_graph, postgres_storage
from signoff.cli.workers import OneGraph
from signoff.graph.build import Graph
from signoff.models import ScriptedModel, call
from signoff.storage import PostgresStorage
from signoff.workers.figures import job_states
from signoff.workers.inbox import MOST_DEATHS, read_inbox
from signoff.workers.worker import Worker
from tests.support.benches.workers import Bench, opened, silence, taken
from tests.support.prepared import PreparedPython
from tests.support.servers.postgres import execute

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
OTHERS = [f"other {number}" for number in range(6)]


def graph_on(storage: PostgresStorage, kind: str) -> Graph:
    """Threads whose task is "die" call a tool that ends the process, again and again if it is a write; the
    others take longer than that."""

    def die() -> str:
        os._exit(9)

    def work() -> str:
        time.sleep(0.3)
        return "worked"

    def reply(messages: Any) -> Any:
        first = next(message.text for message in messages if message.type == "human")
        results = [message for message in messages if message.type == "tool"]
        if first == "die" and (kind == "write" or not results):
            return call("die")
        return call("work") if len(results) < 3 and first != "die" else call("finish_task", summary="x")

    tools = [
        StructuredTool.from_function(function, description="x", metadata={"kind": kind})
        for function in (die, work)
    ]
    return build_graph(ScriptedModel(reply), tools, storage=storage)


def serve(url: str, kind: str) -> None:
    """One worker, in this process."""
    with postgres_storage(url) as storage:
        worker = Worker(storage, OneGraph(graph_on(storage, kind)), heartbeat=0.3, failure_wait=0.2)
        asyncio.run(worker.run())


@pytest.fixture
def bench(postgres_url: str) -> Iterator[Bench]:
    with postgres_storage(postgres_url) as storage:
        yield Bench(storage, postgres_url)


def served(bench: Bench, kind: str) -> tuple[int, dict[str, str]]:
    """How many workers died, each followed by a new one, until nothing was left to do; and the threads."""
    code = f"from tests.workers.test_deadly_calls import serve; serve({bench.url!r}, {kind!r})"
    dead, until = 0, time.monotonic() + 90

    def start() -> PreparedPython:
        return PreparedPython(["-c", code], text=True, cwd=ROOT, stderr=subprocess.DEVNULL)

    workers = [start(), start()]
    try:
        while set(job_states(bench.storage).values()) & {"queued", "running", "stalled"}:
            assert time.monotonic() < until, (dead, job_states(bench.storage))
            for place, worker in enumerate(workers):
                if worker.poll() is not None:
                    dead += 1
                    workers[place] = start()
            time.sleep(0.1)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return dead, job_states(bench.storage)


@pytest.mark.thorough
def test_a_thread_that_kills_every_worker_is_given_up_and_the_others_end(bench: Bench) -> None:
    for thread, task in [("deadly", "die"), *((other, "work") for other in OTHERS)]:
        bench.submit(task, thread)
    dead, states = served(bench, "write")
    assert states == {"deadly": "failed", **dict.fromkeys(OTHERS, "done")}
    assert dead <= MOST_DEATHS
    inbox = read_inbox(bench.storage.store, "deadly")
    assert inbox is not None
    assert inbox.problem.startswith(f"WorkerDied: {MOST_DEATHS} workers died while running this thread")
    found = (read_inbox(bench.storage.store, other) for other in OTHERS)
    assert all(inbox is not None and inbox.deaths == 0 for inbox in found)
    # Whoever has looked what it was lets it go on.
    bench.submit(None, "deadly")
    inbox = read_inbox(bench.storage.store, "deadly")
    assert inbox is not None
    assert (inbox.deaths, inbox.problem, job_states(bench.storage)["deadly"]) == (0, "", "queued")


@pytest.mark.thorough
def test_a_read_that_kills_every_worker_is_told_as_unknown_and_its_thread_ends(bench: Bench) -> None:
    bench.submit("die", "deadly")
    dead, states = served(bench, "read")
    assert (dead, states) == (2, {"deadly": "done"})
    messages = bench.status("deadly").values["messages"]
    assert any(message.text.startswith("Outcome unknown: die") for message in messages)


def due(bench: Bench) -> list[tuple[Any, ...]]:
    """The jobs that wait: their thread, priority, and seconds until they are due, rounded up."""
    return execute(
        bench.url,
        "SELECT args->>'thread_id', priority, "
        "greatest(0, ceil(extract(epoch FROM scheduled_at - now())))::int "
        "FROM procrastinate_jobs WHERE status = 'todo' ORDER BY id",
    )


async def test_the_more_workers_died_with_it_the_later_a_thread_is_tried_again(bench: Bench) -> None:
    bench.submit("die")
    async with opened(bench, failure_wait=10) as one, opened(bench, failure_wait=10) as two:
        for expected in ([("t", -1, 0)], [("t", -2, 10)], [("t", -3, 20)], [("t", -4, 40)], []):
            execute(bench.url, "UPDATE procrastinate_jobs SET scheduled_at = NULL")
            await taken(one)
            silence(bench)
            # Both look at the same moment; the death counts once.
            await asyncio.gather(one.rescue(), two.rescue())
            assert due(bench) == expected
    assert job_states(bench.storage) == {"t": "failed"}


async def test_a_thread_that_has_killed_nobody_goes_first_and_is_not_blamed_beside_one_that_has(
    bench: Bench,
) -> None:
    bench.submit("die", "suspect")
    async with opened(bench) as one, opened(bench) as two:
        await taken(one)
        silence(bench)
        await two.rescue()
        await asyncio.to_thread(bench.submit, "work", "fresh")
        worker_id = await one.register_worker()
        jobs = [await one.fetch_job(["signoff"], worker_id) for _ in range(2)]
        assert [job.task_kwargs["thread_id"] for job in jobs if job] == ["fresh", "suspect"]
        silence(bench)
        await two.rescue()
    assert [(thread, priority) for thread, priority, _ in due(bench)] == [("suspect", -2), ("fresh", 0)]


async def test_a_task_that_was_submitted_meanwhile_waits_as_long_and_is_not_lost(bench: Bench) -> None:
    bench.submit("die")
    async with opened(bench, failure_wait=10) as one, opened(bench, failure_wait=10) as two:
        for expected in ([("t", -1, 0)], [("t", -2, 10)]):
            execute(bench.url, "UPDATE procrastinate_jobs SET scheduled_at = NULL")
            await taken(one)
            await asyncio.to_thread(bench.submit, "next", id="next")
            silence(bench)
            await two.rescue()
            assert due(bench) == expected
    inbox = read_inbox(bench.storage.store, "t")
    assert inbox is not None
    assert [order.request for order in inbox.orders] == ["die", "next"]
