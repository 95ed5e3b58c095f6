"""What becomes of the threads of a worker that has died: they go back into the queue, or are given up.

One of them may have killed it: a tool may end its process, by a fault or by its memory, and would end the
next one, too. Which one it was nobody can know. So each is blamed, or only those that were blamed most
before, and the innocent are freed from it when they come to their end. Whoever has killed nobody goes first.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from procrastinate.jobs import Job
from psycopg import Cursor
from psycopg.rows import DictRow

from signoff.graph.foreign import counted
from signoff.nodes.node import Swap
from signoff.postgres import PostgresStorage
from signoff.postgres_store import swap_in
from signoff.workers.agreed import MOST_DEATHS
from signoff.workers.inbox import Inbox, edit_inbox, read_inbox

_log = logging.getLogger("signoff.workers")

_MINE = (
    "SELECT id FROM procrastinate_jobs WHERE id = %(job_id)s AND status = 'doing' "
    "AND worker_id IS NOT DISTINCT FROM %(worker_id)s FOR UPDATE"
)
# One that waits already stands for both.
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
    """Takes the jobs of one dead worker from it; gives those that nobody else has taken meanwhile.

    wait: seconds until a thread is due that was blamed twice; twice as many for each time more.
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
            f"WorkerDied: {counted(deaths, 'worker')} died while running this thread, the last was worker "
            f"{job.worker_id}: killed, crashed, or out of memory. Look at what its last call does."
        )
        return replace(inbox, deaths=deaths, problem=problem)

    def write(change: Swap) -> bool:
        nonlocal taken
        with database.transaction() as connection, connection.cursor(binary=True) as cursor:
            cursor.execute(_MINE.encode(), {"job_id": job.id, "worker_id": job.worker_id})
            if cursor.fetchone() is None:
                return True
            if not swap_in(cursor, change.namespace, change.key, change.before, change.after):
                return False
            _put_back(cursor, job, change.after["deaths"], wait)
            taken = True
            return True

    inbox = edit_inbox(storage.store, thread_id, edit, make=True, swap=write)
    if taken and _deaths(inbox) >= MOST_DEATHS and inbox is not None:
        _log.error("%s: given up: %s", thread_id, inbox.problem)
    return taken


def _put_back(cursor: Cursor[DictRow], job: Job, deaths: int, wait: float) -> None:
    values: Mapping[str, Any] = {
        "job_id": job.id,
        "lock": job.lock,
        # The first time it may well be innocent.
        "wait": wait * 2 ** (deaths - 2) if deaths > 1 else 0,
        "priority": -deaths,
    }
    if deaths >= MOST_DEATHS:
        cursor.execute(_DROP_OTHER.encode(), values)
        cursor.execute(_FAIL.encode(), values)
    elif cursor.execute(_DELAY_OTHER.encode(), values).fetchone() is None:
        cursor.execute(_PUT_BACK.encode(), values)
    else:
        cursor.execute(_DROP.encode(), values)


def _deaths(inbox: Inbox | None) -> int:
    return inbox.deaths if inbox else 0


def _thread(job: Job) -> str:
    return str(job.task_kwargs["thread_id"])
