"""Jobs belong to one worker at a time: those of a dead one are taken over, those of a live one are not."""

import asyncio
from collections.abc import Iterator

import pytest
from procrastinate.jobs import Status

from signoff import postgres_storage
from tests.support.benches.workers import Bench, opened, silence, taken
from tests.support.servers.postgres import execute

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(postgres_url: str) -> Iterator[Bench]:
    with postgres_storage(postgres_url) as storage:
        yield Bench(storage, postgres_url)


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
