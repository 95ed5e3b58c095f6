"""Workers: jobs that belong to one of them at a time, drained, taken over, and through an outage."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from procrastinate.jobs import Job, Status

from signoff.models import call
from signoff.postgres import postgres_storage
from signoff.workers.figures import backlog, job_states
from signoff.workers.inbox import read_inbox
from signoff.workers.jobs import Jobs
from signoff.workers.worker import Worker
from tests.postgres import Server, execute
from tests.session_bench import DONE
from tests.workers_bench import Bench

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(postgres_url: str) -> Iterator[Bench]:
    with postgres_storage(postgres_url) as storage:
        yield Bench(storage, postgres_url)


@asynccontextmanager
async def opened(bench: Bench, **options: Any) -> AsyncIterator[Jobs]:
    """The queue as one more worker has it."""
    worker = bench.worker(**options)
    async with worker._app.open_async():
        yield worker._jobs


async def taken(jobs: Jobs) -> Job:
    """A job that this worker has taken."""
    job = await jobs.fetch_job(["signoff"], await jobs.register_worker())
    assert job is not None
    return job


def silence(bench: Bench) -> None:
    """All workers have been silent for a minute."""
    execute(bench.url, "UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 minute'")


async def test_a_worker_whose_job_was_taken_over_can_do_nothing_to_it(bench: Bench) -> None:
    bench.submit("one")
    async with opened(bench) as one, opened(bench) as two:
        job = await taken(one)
        silence(bench)
        assert [found.id for found in await two.rescue()] == [job.id]
        await one.finish_job(job, Status.SUCCEEDED, delete_job=False)
        await one.retry_job(job)
        assert bench.jobs("todo") == [("t", 1)]
        again = await taken(two)
        assert again.id == job.id
        await one.finish_job(job, Status.SUCCEEDED, delete_job=True)
        await one.retry_job(job)
        assert bench.jobs("doing") == [("t", 1)]
        await two.finish_job(again, Status.SUCCEEDED, delete_job=False)
        assert bench.jobs("succeeded") == [("t", 2)]


async def test_a_job_that_was_put_back_beside_one_that_waits_is_one_job(bench: Bench) -> None:
    bench.submit("one")
    async with opened(bench) as jobs:
        first = await taken(jobs)
        await asyncio.to_thread(bench.submit, "two")
        assert (bench.jobs("doing"), bench.jobs("todo")) == ([("t", 0)], [("t", 0)])
        await jobs.retry_job(first)
        assert (bench.jobs("doing"), bench.jobs("todo")) == ([], [("t", 0)])
    await asyncio.to_thread(bench.work)
    assert bench.said() == ["one", "two"]


async def test_only_the_jobs_of_silent_workers_are_taken_over(bench: Bench) -> None:
    bench.submit("one")
    async with opened(bench) as one, opened(bench) as two:
        job = await taken(one)
        assert await two.rescue() == []
        await one.update_heartbeat(job.worker_id or 0)
        assert await two.prune_stalled_workers(30) == []
        silence(bench)
        assert await two.prune_stalled_workers(30) == [job.worker_id]
        assert bench.jobs("todo") == [("t", 1)]


async def test_nobody_is_judged_dead_when_the_server_has_not_been_up_for_long_enough(bench: Bench) -> None:
    """No worker could give a sign of life before."""
    bench.submit("one")
    async with opened(bench) as one, opened(bench, heartbeat=24 * 3600) as two:
        job = await taken(one)
        execute(bench.url, "UPDATE procrastinate_workers SET last_heartbeat = now() - interval '9 days'")
        assert (await two.rescue(), await two.prune_stalled_workers(1)) == ([], [])
        assert [found.id for found in await one.rescue()] == [job.id]


async def test_a_worker_that_was_taken_for_dead_takes_jobs_again(bench: Bench) -> None:
    bench.submit("one")
    async with opened(bench) as one, opened(bench) as two:
        number = await one.register_worker()
        silence(bench)
        await two.prune_stalled_workers(30)
        assert await one.fetch_job(["signoff"], number) is None
        assert await one.fetch_job(["signoff"], number) is not None


async def test_the_thread_of_a_dead_worker_is_taken_from_it(bench: Bench, postgres_url: str) -> None:
    """Its sessions may live on, as when it is only stopped."""
    bench.submit("one")
    with postgres_storage(postgres_url) as storage:
        async with opened(bench) as one, opened(Bench(storage, postgres_url)) as two:
            job = await taken(one)
            with bench.storage.checkpointer.runner("t"):
                assert storage.checkpointer.is_running("t")
                silence(bench)
                await two.rescue()
                assert job.worker_id is not None
                while storage.checkpointer.is_running("t"):
                    await asyncio.sleep(0.01)
                with storage.checkpointer.runner("t"):
                    assert storage.checkpointer.is_running("t")


async def test_a_thread_that_somebody_else_runs_is_not_taken_from_them(
    bench: Bench, postgres_url: str
) -> None:
    bench.submit("one")
    with postgres_storage(postgres_url) as storage, storage.checkpointer.runner("t"):
        async with opened(bench) as one:
            await taken(one)
            silence(bench)
            assert len(await one.rescue()) == 1
            assert storage.checkpointer.is_running("t")


class Running:
    """A worker in an event loop of its own."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Running":
        self.thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.loop.call_soon_threadsafe(self.worker.drain)
        self.thread.join(30)
        assert not self.thread.is_alive()

    def _run(self) -> None:
        self.loop.run_until_complete(self.worker.run())
        self.loop.close()


def until(holds: Callable[[], Any], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)


def test_a_drained_worker_hands_its_threads_to_another_one(bench: Bench) -> None:
    entered = threading.Event()

    def work(step: int) -> str:
        """Work."""
        entered.set()
        time.sleep(0.2)
        return "worked"

    bench.tools = [work]
    bench.steps = (*(call("work", step=step) for step in range(4)), DONE)
    bench.submit("one")
    with Running(bench.worker()):
        assert entered.wait(20)
    assert 0 < bench.standing().task.turns < 4
    assert bench.jobs("todo") == [("t", 1)]
    bench.work()
    assert (bench.standing().task.turns, bench.standing().condition) == (5, "ended")


def test_a_worker_outlives_a_restart_of_the_server(
    bench: Bench, postgres_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "signoff.workers")

    def work() -> str:
        """Work."""
        time.sleep(0.3)
        return "worked"

    bench.tools, bench.steps = [work], (*[call("work")] * 6, DONE)
    bench.submit("one")
    with Running(bench.worker()):
        until(lambda: bench.standing().task.turns > 1)
        postgres_server.stop()
        time.sleep(1.5)
        postgres_server.start()
        bench.submit("two", "u")
        until(lambda: bench.standing().outcome and bench.standing("u").outcome, 40)
    told = [record.getMessage() for record in caplog.records]
    assert sum("cannot be reached; waiting for it" in line for line in told) == 1
    assert sum(line.endswith("is back") for line in told) == 1
    assert bench.standing().task.turns == 7


def test_a_thread_that_fails_again_and_again_is_given_up_and_says_why(bench: Bench) -> None:
    def broken(thread_id: str) -> Any:
        raise RuntimeError("no such folder")

    bench.submit("one")
    worker = Worker(bench.storage, broken, failure_wait=0)
    asyncio.run(worker.run(until_idle=True))
    inbox = read_inbox(bench.storage.store, "t")
    assert inbox is not None
    assert (inbox.failures, inbox.problem) == (5, "RuntimeError: no such folder")
    found = backlog(bench.storage)
    assert found is not None
    assert (found.waiting, found.failed, job_states(bench.storage)) == (0, 1, {"t": "failed"})
    bench.submit(None)
    bench.work()
    inbox = read_inbox(bench.storage.store, "t")
    assert inbox is not None
    assert (bench.said(), inbox.failures, inbox.problem) == (["one"], 0, "")
    found = backlog(bench.storage)
    assert found is not None
    assert (found.failed, found.ended, job_states(bench.storage)) == (0, 1, {"t": "done"})


def test_a_thread_that_runs_elsewhere_is_looked_at_again(bench: Bench) -> None:
    bench.submit("one")
    with bench.storage.checkpointer.runner("t"):
        bench.work()
    assert bench.jobs("todo") == [("t", 1)]

    def ended() -> bool:
        bench.work()
        return bench.standing().outcome is not None

    until(ended)


def test_the_figures_of_a_queue(bench: Bench) -> None:
    assert backlog(bench.storage) is None
    bench.submit("one")
    bench.submit("one", "u")
    found = backlog(bench.storage)
    assert found is not None
    assert (found.workers, found.waiting, found.running, found.stalled, found.ended) == (0, 2, 0, 0, 0)

    async def one_taken() -> None:
        async with opened(bench) as jobs:
            await taken(jobs)

    asyncio.run(one_taken())
    found = backlog(bench.storage)
    assert found is not None
    assert (found.workers, found.waiting, found.running, found.stalled) == (1, 1, 1, 0)
    silence(bench)
    found = backlog(bench.storage)
    assert found is not None
    assert (found.workers, found.waiting, found.running, found.stalled) == (0, 1, 0, 1)
    assert job_states(bench.storage) == {"t": "stalled", "u": "queued"}
    bench.work()
    found = backlog(bench.storage)
    assert found is not None
    assert (found.waiting, found.running, found.stalled, found.ended) == (0, 0, 0, 2)
    assert found.per_minute == 2
