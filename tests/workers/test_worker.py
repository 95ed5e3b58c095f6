"""A worker: drained, cut off from its database, with threads that fail or run elsewhere; and its figures."""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from signoff import postgres_storage
from signoff.models import call
from signoff.workers.figures import backlog, job_states
from signoff.workers.inbox import read_inbox
from signoff.workers.jobs import JobQueries
from signoff.workers.worker import Worker
from tests.support.benches.session import DONE
from tests.support.benches.workers import Bench, opened, silence, taken, until
from tests.support.servers.postgres import Server

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(postgres_url: str) -> Iterator[Bench]:
    with postgres_storage(postgres_url) as storage:
        yield Bench(storage, postgres_url)


@pytest.fixture
def own_bench(own_postgres_url: str) -> Iterator[Bench]:
    """A bench on a server that may be stopped."""
    with postgres_storage(own_postgres_url) as storage:
        yield Bench(storage, own_postgres_url)


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
    assert 0 < bench.status().task.turns < 4
    assert bench.jobs("todo") == [("t", 1)]
    bench.work()
    assert (bench.status().task.turns, bench.status().condition) == (5, "ended")


@pytest.mark.thorough
def test_a_worker_outlives_a_restart_of_the_server(
    own_bench: Bench, own_postgres_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    bench = own_bench
    caplog.set_level(logging.INFO, "signoff.workers")

    def work(step: int) -> str:
        """Work."""
        time.sleep(0.3)
        return "worked"

    bench.tools, bench.steps = [work], (*(call("work", step=step) for step in range(6)), DONE)
    bench.submit("one")
    with Running(bench.worker()):
        until(lambda: bench.status().task.turns > 1)
        own_postgres_server.stop()
        time.sleep(1.5)
        own_postgres_server.start()
        bench.submit("two", "u")
        until(lambda: bench.status().outcome and bench.status("u").outcome)
    told = [record.getMessage() for record in caplog.records]
    assert sum("cannot be reached; waiting for it" in line for line in told) == 1
    assert sum(line.endswith("is back") for line in told) == 1
    assert bench.status().task.turns == 7


def test_a_thread_that_fails_again_and_again_is_given_up_and_says_why(bench: Bench) -> None:
    def broken(thread_id: str) -> Any:
        raise RuntimeError("no such folder")

    bench.submit("one")
    worker = Worker(bench.storage, broken, failure_wait=0)
    asyncio.run(worker.run(until_idle=True))
    inbox = read_inbox(bench.storage.store, "t")
    assert inbox is not None
    assert (inbox.failures, inbox.problem) == (5, "RuntimeError: no such folder")
    found = bench.figures()
    assert (found.waiting, found.failed, job_states(bench.storage)) == (0, 1, {"t": "failed"})
    bench.submit(None)
    bench.work()
    inbox = read_inbox(bench.storage.store, "t")
    assert inbox is not None
    assert (bench.said(), inbox.failures, inbox.problem) == (["one"], 0, "")
    found = bench.figures()
    assert (found.failed, found.ended, job_states(bench.storage)) == (0, 1, {"t": "done"})


class Panic(BaseException):
    """What an extension in Rust raises when it panics."""


@pytest.mark.parametrize("kind", [Panic, KeyboardInterrupt, SystemExit, StopIteration, GeneratorExit])
def test_whatever_is_raised_is_tried_again_and_told(kind: type[BaseException], bench: Bench) -> None:
    def broken(thread_id: str) -> Any:
        raise kind("no")

    bench.submit("one")
    asyncio.run(Worker(bench.storage, broken, failure_wait=0).run(until_idle=True))
    inbox = read_inbox(bench.storage.store, "t")
    assert inbox is not None
    assert (inbox.failures, inbox.problem) == (5, f"{kind.__name__}: no")
    assert job_states(bench.storage) == {"t": "failed"}


def test_whatever_a_tool_raises_in_a_worker_is_a_result(bench: Bench) -> None:
    def act() -> str:
        """Act."""
        raise Panic("no")

    bench.tools, bench.steps = [act], (call("act"), DONE)
    bench.submit("one")
    bench.work()
    assert job_states(bench.storage) == {"t": "done"}
    assert any("Panic: no" in message.text for message in bench.status().values["messages"])


def test_a_thread_that_runs_elsewhere_is_looked_at_again(bench: Bench) -> None:
    bench.submit("one")
    with bench.storage.checkpointer.runner("t"):
        bench.work()
    assert bench.jobs("todo") == [("t", 1)]

    def ended() -> bool:
        bench.work()
        return bench.status().outcome is not None

    until(ended)


class LosesCancellation(JobQueries):
    """What Python 3.11 does with a cancellation that comes just as a query is answered."""

    async def delete_old_jobs(self, *_: Any, **__: Any) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)


def test_a_lost_cancellation_does_not_keep_a_worker_from_its_end(bench: Bench) -> None:
    bench.submit("one")
    worker = bench.worker()
    worker._jobs.__class__ = LosesCancellation
    running = threading.Thread(target=asyncio.run, args=[worker.run(until_idle=True)], daemon=True)
    running.start()
    running.join(30)
    assert not running.is_alive()
    assert bench.figures().ended == 1


def test_a_worker_that_runs_until_it_is_idle_takes_over_what_dead_ones_have_left(bench: Bench) -> None:
    """Also where it has nothing else to do, and so ends at once."""
    bench.submit("one")

    async def one_taken() -> None:
        async with opened(bench) as jobs:
            await taken(jobs)

    asyncio.run(one_taken())
    silence(bench)
    bench.work()
    found = bench.figures()
    assert (found.waiting, found.running, found.stalled, found.ended) == (0, 0, 0, 1)


def test_the_figures_of_a_queue(bench: Bench) -> None:
    assert backlog(bench.storage) is None
    bench.submit("one")
    bench.submit("one", "u")
    found = bench.figures()
    assert (found.workers, found.waiting, found.running, found.stalled, found.ended) == (0, 2, 0, 0, 0)

    async def one_taken() -> None:
        async with opened(bench) as jobs:
            await taken(jobs)

    asyncio.run(one_taken())
    found = bench.figures()
    assert (found.workers, found.waiting, found.running, found.stalled) == (1, 1, 1, 0)
    silence(bench)
    found = bench.figures()
    assert (found.workers, found.waiting, found.running, found.stalled) == (0, 1, 0, 1)
    assert job_states(bench.storage) == {"t": "stalled", "u": "queued"}
    bench.work()
    found = bench.figures()
    assert (found.waiting, found.running, found.stalled, found.ended) == (0, 0, 0, 2)
    assert found.per_minute == 2
