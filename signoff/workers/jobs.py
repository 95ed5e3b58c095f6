"""The queue as a worker uses it: it never touches another worker's job, and survives outages.

A row of the queue is read in one place. One that cannot be run is put aside: its job ends as failed and stays
in the queue's table, and the log says why.

The threads of a dead worker go back into the queue, or are given up. One of them may have killed it: a tool
may end its process, by a crash or by its memory, and would end the next one, too. Which one is not known. So
each is blamed, or only those that were blamed most before, and a thread that finishes is cleared. Threads
without blame run first.
"""

import asyncio
import datetime
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from procrastinate import PsycopgConnector
from procrastinate.exceptions import ConnectorException, UniqueViolation
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager, NotificationCallback
from psycopg import AsyncConnection, Connection, InterfaceError, OperationalError
from psycopg.errors import ForeignKeyViolation
from psycopg.rows import DictRow

from signoff import StorageError, ThreadError
from signoff.nodes.requests import Swap
from signoff.storage import PostgresStorage
from signoff.storage.deleting import lock_of
from signoff.storage.postgres_address import Address, settings
from signoff.storage.postgres_database import swap_in
from signoff.text import count_noun, quote_id
from signoff.workers.inbox import MOST_DEATHS, TASK, THREAD, Inbox, edit_inbox, read_inbox

_log = logging.getLogger("signoff.workers")

_TAKEN_FROM = (
    "SELECT id FROM procrastinate_jobs WHERE id = %(job_id)s AND status = 'doing' "
    "AND worker_id IS NOT DISTINCT FROM %(worker_id)s FOR UPDATE"
)
# A job that waits already represents both.
_DELAY_OTHER = (
    "UPDATE procrastinate_jobs SET scheduled_at = now() + make_interval(secs => %(wait)s), "
    "priority = %(priority)s WHERE lock = %(lock)s AND status = 'todo' RETURNING id"
)
_DROP = "SELECT procrastinate_finish_job_v1(%(job_id)s, 'aborted', true)"
_PUT_BACK = (
    "SELECT procrastinate_retry_job_v2(%(job_id)s, now() + make_interval(secs => %(wait)s), "
    "%(priority)s, NULL, NULL)"
)
_DROP_OTHER = "DELETE FROM procrastinate_jobs WHERE lock = %(lock)s AND status = 'todo'"
_FAIL = "SELECT procrastinate_finish_job_v1(%(job_id)s, 'failed', false)"


def take_over(storage: PostgresStorage, jobs: Sequence[Job], wait: float) -> list[Job]:
    """Takes the jobs of one dead worker; returns those that no other worker has taken meanwhile.

    wait: seconds until a thread that was blamed twice is due; doubled for each further time.
    """
    deaths = {thread: _deaths(read_inbox(storage.store, thread)) for thread in map(_thread, jobs)}
    most = max(deaths.values(), default=0)
    return [job for job in jobs if _take(storage, job, blamed=deaths[_thread(job)] == most, wait=wait)]


def _take(storage: PostgresStorage, job: Job, *, blamed: bool, wait: float) -> bool:
    thread_id, taken = _thread(job), False
    database = storage.checkpointer.database

    def edit(inbox: Inbox) -> Inbox:
        if not blamed:
            return inbox
        deaths = inbox.deaths + 1
        problem = (
            f"WorkerDied: {count_noun(deaths, 'worker')} died while running this thread, the last was worker "
            f"{job.worker_id}: killed, crashed, or out of memory. Check what its last call does."
        )
        return replace(inbox, deaths=deaths, problem=problem)

    def write(change: Swap) -> bool:
        nonlocal taken
        with database.connection() as connection, connection.transaction():
            found = connection.execute(_TAKEN_FROM.encode(), {"job_id": job.id, "worker_id": job.worker_id})
            if found.fetchone() is None:
                return True
            if not swap_in(connection, ".".join(change.namespace), change.key, change.before, change.after):
                return False
            _put_back(connection, job, change.after["deaths"], wait)
            taken = True
            return True

    inbox = edit_inbox(storage.store, thread_id, edit, make=True, swap=write)
    if taken and _deaths(inbox) >= MOST_DEATHS and inbox is not None:
        _log.error("%s: given up: %s", thread_id, inbox.problem)
    return taken


def _put_back(connection: Connection[DictRow], job: Job, deaths: int, wait: float) -> None:
    values: Mapping[str, Any] = {
        "job_id": job.id,
        "lock": job.lock,
        # The first time it may well not be the cause.
        "wait": wait * 2 ** (deaths - 2) if deaths > 1 else 0,
        "priority": -deaths,
    }
    if deaths >= MOST_DEATHS:
        connection.execute(_DROP_OTHER.encode(), values)
        connection.execute(_FAIL.encode(), values)
    elif connection.execute(_DELAY_OTHER.encode(), values).fetchone() is None:
        connection.execute(_PUT_BACK.encode(), values)
    else:
        connection.execute(_DROP.encode(), values)


def _deaths(inbox: Inbox | None) -> int:
    return inbox.deaths if inbox else 0


def _thread(job: Job) -> str:
    return str(job.task_kwargs["thread_id"])


_T = TypeVar("_T")

_AGAIN_SECONDS = 1.0
_GIVE_UP_SECONDS = 10.0
_MINE = (
    "WITH mine AS (SELECT id FROM procrastinate_jobs WHERE id = %(job_id)s AND status = 'doing' "
    "AND worker_id IS NOT DISTINCT FROM %(worker_id)s FOR UPDATE) "
)
# Without the arguments, which may be anything: PostgreSQL takes the thread out of them.
_ROW = (
    "id, queue_name AS queue, task_name, lock, queueing_lock, attempts, worker_id, "
    f"{THREAD} AS thread_id, left(args::text, 80) AS arguments"
)
_FETCH = f"SELECT {_ROW} FROM procrastinate_fetch_job_v2(%(queues)s::varchar[], %(worker_id)s)"
# A task that nobody knows is looked at only in this worker's queue; other queues may have other programs.
_STALLED = (
    f"SELECT {_ROW} FROM procrastinate_jobs WHERE status = 'doing' AND (task_name = %(task)s OR "
    "queue_name = %(queue)s) AND NOT EXISTS (SELECT 1 FROM procrastinate_workers worker "
    "WHERE worker.id = worker_id AND last_heartbeat >= now() - make_interval(secs => %(seconds)s))"
)
# The queue's functions add one, and could not for the largest number.
_MOST_ATTEMPTS = 1_000_000
_RESET = "UPDATE procrastinate_jobs SET attempts = 0 WHERE id = %(job_id)s"
_FINISH = _MINE + "SELECT procrastinate_finish_job_v1(id, %(status)s, %(delete_job)s) FROM mine"
_RETRY = _MINE + "SELECT procrastinate_retry_job_v2(id, %(retry_at)s, NULL, NULL, NULL) FROM mine"
_UP = "SELECT extract(epoch FROM now() - pg_postmaster_start_time()) AS seconds"
# A worker that was presumed dead and has come back is registered again under its number.
_HEARTBEAT = (
    "INSERT INTO procrastinate_workers (id) OVERRIDING SYSTEM VALUE VALUES (%(worker_id)s) "
    "ON CONFLICT (id) DO UPDATE SET last_heartbeat = now()"
)


def connector(address: Address) -> PsycopgConnector:
    """Returns procrastinate's connector. Its sessions have the same settings as all of ours."""

    async def configure(connection: AsyncConnection[Any]) -> None:
        await connection.execute(settings())
        await connection.commit()

    return PsycopgConnector(
        conninfo=address.conninfo,
        configure=configure,
        min_size=1,
        max_size=4,
        timeout=5.0,
        reconnect_timeout=4.0,
    )


def session_of(worker_id: int | None) -> str:
    """Returns the `application_name` of the sessions that hold this worker's threads; for None, the id of a
    worker whose row has been deleted, a LIKE pattern that matches every worker's."""
    return f"signoff worker {'%' if worker_id is None else worker_id}"


class JobQueries(JobManager):
    """Procrastinate's queries, for a worker that may have been stopped for a while, or disconnected.

    Its job may have been given to another worker meanwhile, so only the worker that has a job finishes it or
    puts it back. While the database cannot be reached, a worker waits for it.
    """

    def __init__(
        self,
        connector: PsycopgConnector,
        storage: PostgresStorage,
        queue: str,
        dead_seconds: float,
        wait: float,
    ) -> None:
        super().__init__(connector)
        self._queue = queue
        self.ending = False
        self._storage = storage
        self._database = storage.checkpointer.database
        self._wait = wait
        self._dead_seconds = dead_seconds
        self._own: int | None = None
        self._reachable = True
        self._reachable_since = -math.inf

    async def register_worker(self) -> int:
        self._own = worker_id = await super().register_worker()
        # The lock of a dead worker's thread is released by this name.
        self._database.session = session_of(worker_id)
        return worker_id

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Job | None:
        while (row := await self._fetch_row(queues, worker_id)) is not None:
            if (job := await self._read(row)) is not None:
                return job
        return None

    async def _fetch_row(self, queues: Iterable[str] | None, worker_id: int) -> Mapping[str, Any] | None:
        try:
            row = await self.connector.execute_query_one_async(_FETCH, queues=queues, worker_id=worker_id)
        except ConnectorException as error:
            if isinstance(error.__cause__, ForeignKeyViolation):
                # It was presumed dead; it first registers again.
                await self.update_heartbeat(worker_id)
            else:
                self._note(error)
            return None
        self._note(None)
        return None if row["id"] is None else row

    async def _read(self, row: Mapping[str, Any]) -> Job | None:
        """Returns the job of a row; None for one that cannot be run, which is put aside."""
        columns = dict(row)
        arguments, thread_id = columns.pop("arguments"), columns.pop("thread_id")
        if columns["attempts"] > _MOST_ATTEMPTS:
            await self.connector.execute_query_async(_RESET, job_id=columns["id"])
            columns["attempts"] = 0
        job = Job(**columns, task_kwargs={"thread_id": thread_id})
        problem = await asyncio.to_thread(self._problem_of, job, arguments)
        if problem is None:
            return job
        _log.error("job %d, lock %.80s: put aside: %s", job.id, job.lock, problem)
        await self.finish_job(job, Status.FAILED, delete_job=False)
        return None

    def _problem_of(self, job: Job, arguments: str) -> str | None:
        """Returns why workers cannot run a job; None if they can."""
        thread_id = job.task_kwargs["thread_id"]
        if job.task_name != TASK:
            return f"nothing here runs the task {job.task_name!r:.80}"
        if not isinstance(thread_id, str):
            return f"its arguments name no thread: {arguments}"
        if not job.lock == job.queueing_lock == lock_of(thread_id):
            return f"its lock is not that of thread {quote_id(thread_id)}"
        try:
            inbox = read_inbox(self._storage.store, thread_id)
        except ThreadError as error:
            return str(error)
        except StorageError:
            # An outage says nothing about the thread; the run will notice it.
            return None
        return None if inbox else f"thread {quote_id(thread_id)} was not given to workers"

    async def update_heartbeat(self, worker_id: int) -> None:
        try:
            await self._execute(_HEARTBEAT, worker_id=worker_id)
        except ConnectorException as error:
            self._note(error)

    async def unregister_worker(self, worker_id: int) -> None:
        try:
            await super().unregister_worker(worker_id)
        except ConnectorException as error:
            self._note(error)

    async def listen_for_jobs(
        self, *, on_notification: NotificationCallback, queues: Iterable[str] | None = None
    ) -> None:
        while True:
            try:
                await super().listen_for_jobs(on_notification=on_notification, queues=queues)
            except ConnectorException as error:
                self._note(error)
            await asyncio.sleep(_AGAIN_SECONDS)

    async def prune_stalled_workers(self, seconds_since_heartbeat: float) -> list[int]:
        if not await self._may_judge():
            return []
        # Afterwards it is no longer known whose jobs they were.
        await self.rescue()
        return await super().prune_stalled_workers(seconds_since_heartbeat)

    async def finish_job(self, job: Job, status: Status, delete_job: bool) -> None:
        await self._insist(
            lambda: self._execute(_FINISH, **_of(job), status=status.value, delete_job=delete_job)
        )

    async def retry_job(
        self,
        job: Job,
        retry_at: datetime.datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        lock: str | None = None,
    ) -> None:
        """Puts the job back into the queue, unless another one for the thread already waits there."""

        async def put_back() -> None:
            try:
                await self._execute(_RETRY, **_of(job), retry_at=retry_at)
            except UniqueViolation:
                await self._execute(_FINISH, **_of(job), status=Status.ABORTED.value, delete_job=True)

        await self._insist(put_back)

    async def rescue(self) -> list[Job]:
        """Puts the jobs of dead workers back into the queue and releases their threads.

        Not right after an outage, in which no worker could send a heartbeat.
        """
        if not await self._may_judge():
            return []
        stalled = await self.connector.execute_query_all_async(
            _STALLED, task=TASK, queue=self._queue, seconds=self._dead_seconds
        )
        workers: dict[int | None, list[Job]] = {}
        for row in stalled:
            if (job := await self._read(row)) is None:
                continue
            workers.setdefault(job.worker_id, []).append(job)
            await asyncio.to_thread(self._database.cut_off, _thread(job), session_of(job.worker_id))
        found = [
            await asyncio.to_thread(take_over, self._storage, jobs, self._wait) for jobs in workers.values()
        ]
        return [job for jobs in found for job in jobs]

    async def _may_judge(self) -> bool:
        """Whether every living worker has had time to send a heartbeat."""
        if time.monotonic() - self._reachable_since < self._dead_seconds:
            return False
        found = await self.connector.execute_query_one_async(_UP)
        if float(found["seconds"]) <= self._dead_seconds:
            return False
        if self._own is not None:
            # This worker is alive, even if it was too busy for a heartbeat: otherwise it would take its own
            # jobs.
            await self.update_heartbeat(self._own)
        return True

    async def _insist(self, query: Callable[[], Awaitable[_T]]) -> _T | None:
        """Waits for the database to come back.

        A worker that is about to end waits only a moment: the job is then taken over like that of a dead one.
        """
        waited = 0.0
        while True:
            try:
                return await query()
            except ConnectorException as error:
                if not isinstance(error.__cause__, OperationalError | InterfaceError):
                    raise
                self._note(error)
                if self.ending and waited >= _GIVE_UP_SECONDS:
                    return None
            await asyncio.sleep(_AGAIN_SECONDS)
            waited += _AGAIN_SECONDS

    async def _execute(self, query: Any, **values: Any) -> None:
        await self.connector.execute_query_async(query, **values)

    def _note(self, error: ConnectorException | None) -> None:
        """Logs once that the database cannot be reached, and once that it is back."""
        if (error is None) == self._reachable:
            return
        self._reachable = error is None
        if error is None:
            self._reachable_since = time.monotonic()
            _log.info("the database %s is back", self._database.address)
        else:
            _log.warning("the database %s cannot be reached; waiting for it", self._database.address)


def _of(job: Job) -> dict[str, Any]:
    return {"job_id": job.id, "worker_id": job.worker_id}
