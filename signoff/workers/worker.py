"""A worker: takes threads from the queue and drives them until it is asked to end."""

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Protocol

from procrastinate import App, JobContext
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job
from procrastinate.retry import BaseRetryStrategy, RetryDecision
from procrastinate.worker import Worker as QueueWorker

from signoff import Ended, Graph, SignoffError, StorageError, Waiting
from signoff.graph.errors import Unreadable
from signoff.graph.foreign import words
from signoff.storage import PostgresStorage
from signoff.text import count_noun
from signoff.workers.driving import Driven, Driving
from signoff.workers.inbox import DEAD_AFTER, DEFAULT_QUEUE, HEARTBEAT_SECONDS, TASK, edit_inbox, read_inbox
from signoff.workers.jobs import JobQueries, connector
from signoff.workers.tables import prepare, usable_queue

_log = logging.getLogger("signoff.workers")

_MOST_FAILURES = 5
_SUSPECT = 2
_LONGEST_WAIT = 60
_BUSY_SECONDS = 2
_POLL_SECONDS = 1.0
_KEEP_HOURS = 24
_CLEAN_SECONDS = 3600.0


class Graphs(Protocol):
    """Returns the graph of a thread to a worker. Called in threads, for several threads at once."""

    def __call__(self, thread_id: str) -> AbstractContextManager[Graph]: ...


class Back(Exception):
    """The job goes back to the queue, and is due after this many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class GivenUp(Exception):
    """The thread has failed too often; its job ends as failed."""


class _PutBack(BaseRetryStrategy):
    def get_retry_decision(self, *, exception: BaseException, job: Job) -> RetryDecision | None:
        if not isinstance(exception, Back):
            return None
        return RetryDecision(retry_in={"seconds": round(exception.seconds)})


class Worker:
    """Drives the threads of one queue, several at once, in threads of this process.

    storage: where the threads are stored. graphs: returns the graph of a thread. heartbeat: seconds between
    two heartbeats; a worker that misses three is considered dead, and its threads are taken over.
    failure_wait: seconds until a failed thread is tried again; doubled after each further failure, and given
    up after five. The same holds for a thread during which workers died, from the second time on.
    """

    def __init__(
        self,
        storage: PostgresStorage,
        graphs: Graphs,
        *,
        queue: str = DEFAULT_QUEUE,
        concurrency: int = 4,
        heartbeat: float = HEARTBEAT_SECONDS,
        failure_wait: float = 2.0,
    ) -> None:
        self._storage = storage
        self._graphs = graphs
        self._queue = usable_queue(queue)
        self._concurrency = concurrency
        self._heartbeat = heartbeat
        self._failure_wait = failure_wait
        self._driving: set[Driving] = set()
        self.draining = False
        self._suspected = threading.Lock()
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="signoff-worker")
        database = storage.checkpointer.database
        self._connector = connector(database.address)
        self._jobs = JobQueries(self._connector, storage, self._queue, heartbeat * DEAD_AFTER, failure_wait)
        self._app = App(connector=self._connector)
        self._app.job_manager = self._jobs
        self._app.task(name=TASK, pass_context=True, retry=_PutBack())(self._job)
        self._worker: QueueWorker | None = None

    async def run(self, *, until_idle: bool = False) -> None:
        """Works until `drain` is called; with `until_idle` at most until no job is due.

        Raises StorageError when the database cannot be used at the start; later the worker waits for it.
        """
        await asyncio.to_thread(prepare, self._storage.checkpointer.database)
        async with self._app.open_async():
            while not self.draining:
                self._worker = QueueWorker(
                    self._app,
                    [self._queue],
                    concurrency=self._concurrency,
                    wait=not until_idle,
                    fetch_job_polling_interval=_POLL_SECONDS,
                    install_signal_handlers=False,
                    update_heartbeat_interval=self._heartbeat,
                    stalled_worker_timeout=self._heartbeat * DEAD_AFTER,
                )
                # Before it looks whether there is something to do.
                await self._rescue()
                ended = asyncio.Event()
                caring = asyncio.create_task(self._care(ended))
                # Without it the jobs of dead workers would stay: it is better to end with an error.
                caring.add_done_callback(self._cared)
                try:
                    await self._worker.run()  # type: ignore[no-untyped-call]  # procrastinate leaves it untyped
                finally:
                    # Python 3.11 loses a cancellation that comes just as a query is answered.
                    ended.set()
                    caring.cancel()
                    with suppress(asyncio.CancelledError):
                        await caring
                if until_idle and not await self._due():
                    break
        self._pool.shutdown()

    def drain(self) -> None:
        """Stops every run at its next step boundary and puts its job back into the queue; then `run` ends.

        Call it in the event loop, for example in a signal handler.
        """
        self.draining = self._jobs.ending = True
        for driving in list(self._driving):
            driving.drain()
        if self._worker is not None:
            self._worker.stop()  # type: ignore[no-untyped-call]  # procrastinate leaves it untyped

    async def _job(self, context: JobContext, thread_id: str) -> str:
        """Drives the thread of a job; returns its state afterwards."""
        driven = await asyncio.get_running_loop().run_in_executor(self._pool, self._driven, thread_id)
        if isinstance(driven, StorageError) and not isinstance(driven, Unreadable):
            wait = min(2**context.job.attempts, _LONGEST_WAIT)
            _log.warning("%s: trying again in %d s: %s", thread_id, wait, driven)
            raise Back(wait)
        if isinstance(driven, BaseException):
            seconds = await asyncio.to_thread(self._failed, thread_id, driven)
            if seconds is None:
                raise GivenUp(thread_id) from driven
            raise Back(seconds)
        if driven.state in ("drained", "busy", "lost"):
            raise Back(0 if driven.state == "drained" else _BUSY_SECONDS)
        return driven.state

    def _driven(self, thread_id: str) -> Driven | BaseException:
        """Returns what `_drive` returns or raises.

        Errors are returned because a model, a check or the function of a graph may raise what would end the
        event loop (KeyboardInterrupt), or what a future cannot hold (StopIteration). Signals of this process
        do not come here: they go to its main thread.
        """
        try:
            return self._drive(thread_id)
        except BaseException as error:  # noqa: BLE001  as the docstring says
            return error

    def _drive(self, thread_id: str) -> Driven:
        inbox = read_inbox(self._storage.store, thread_id)
        if inbox is None or inbox.deaths < _SUSPECT:
            return self._drive_on(thread_id)
        # If two threads could kill this process, it would be unknown which one did.
        if not self._suspected.acquire(blocking=False):
            return Driven(thread_id, "busy")
        try:
            return self._drive_on(thread_id)
        finally:
            self._suspected.release()

    def _drive_on(self, thread_id: str) -> Driven:
        with self._graphs(thread_id) as graph:
            driving = Driving(graph, thread_id)
            self._driving.add(driving)
            try:
                if self.draining:
                    driving.drain()
                _log.info("%s: begun", thread_id)
                driven = driving.run()
            finally:
                self._driving.discard(driving)
        _log.info("%s: %s", thread_id, describe_end(driven))
        if driven.state not in ("busy", "lost"):
            survived = driven.state != "drained"
            edit_inbox(self._storage.store, thread_id, lambda inbox: inbox.done(survived=survived))
        return driven

    def _failed(self, thread_id: str, error: BaseException) -> float | None:
        """Records the failure; returns in how many seconds to try again, None after too many failures."""
        what, inbox = f"{type(error).__name__}: {words(error)}", None
        with suppress(SignoffError):
            inbox = edit_inbox(
                self._storage.store,
                thread_id,
                lambda found: replace(found, problem=what[:1000], failures=found.failures + 1),
            )
        failures = inbox.failures if inbox else 1
        if failures >= _MOST_FAILURES:
            _log.error("%s: failed %d times, given up: %s", thread_id, failures, what)
            return None
        seconds: float = self._failure_wait * 2 ** (failures - 1)
        _log.error("%s: failed, trying again in %d s: %s", thread_id, seconds, what)
        return seconds

    def _cared(self, caring: asyncio.Task[None]) -> None:
        if not caring.cancelled() and caring.exception() is not None:
            self.drain()

    async def _care(self, ended: asyncio.Event) -> None:
        """Takes over the jobs of dead workers, and deletes old finished jobs, until it is `ended`."""
        cleaned = -_CLEAN_SECONDS
        loop = asyncio.get_running_loop()
        while not ended.is_set():
            await self._rescue()
            if loop.time() - cleaned >= _CLEAN_SECONDS:
                with suppress(ConnectorException, StorageError):
                    await self._jobs.delete_old_jobs(_KEEP_HOURS, self._queue)
                    cleaned = loop.time()
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), self._heartbeat)

    async def _rescue(self) -> None:
        with suppress(ConnectorException, StorageError):
            for job in await self._jobs.rescue():
                thread_id = job.task_kwargs["thread_id"]
                _log.warning("%s: taken over from worker %s, which is dead", thread_id, job.worker_id)

    async def _due(self) -> bool:
        """Whether a job could start now."""
        found = await self._connector.execute_query_one_async(
            "SELECT count(*) AS due FROM procrastinate_jobs job WHERE status = 'todo' "
            "AND queue_name = %(queue)s AND (scheduled_at IS NULL OR scheduled_at <= now()) AND NOT EXISTS "
            "(SELECT 1 FROM procrastinate_jobs other WHERE other.lock = job.lock AND other.status = 'doing')",
            queue=self._queue,
        )
        return bool(found["due"])


def describe_end(driven: Driven) -> str:
    """Returns in words how a call of `drive` ended."""
    decision = driven.decision
    if isinstance(decision, Ended) and driven.state == "ended":
        outcome = decision.outcome
        how = outcome.claim if outcome.status == "success" else outcome.reason
        return f"{outcome.status} ({how}) after {count_noun(outcome.turns, 'turn')}"
    waits_for = decision.document()["waits_for"] if isinstance(decision, Waiting) else "a person"
    states = {
        "waiting": f"waits for {waits_for}",
        "drained": "goes back to the queue",
        "busy": "is run elsewhere",
        "lost": "was taken over by another worker",
        "unknown": "there is no such thread",
    }
    return states.get(driven.state, driven.state)
