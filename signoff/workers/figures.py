"""The figures of a queue: its jobs, and the speed of its workers. Does not need the workers' packages."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from signoff.storage import PostgresStorage
from signoff.storage.deleting import lock_of
from signoff.workers.inbox import DEAD_AFTER, HEARTBEAT_SECONDS, TASK, THREAD

if TYPE_CHECKING:
    # An extra.
    from psycopg import Connection
    from psycopg.rows import DictRow

# The workers' heartbeat is not known here, so the default is assumed.
_DEAD_SECONDS = HEARTBEAT_SECONDS * DEAD_AFTER
_SPAN_SECONDS = 3600

_DOING = (
    "SELECT job.*, job.status = 'doing' AND (worker.id IS NULL OR worker.last_heartbeat < now() - "
    f"interval '{_DEAD_SECONDS} seconds') AS stalled FROM procrastinate_jobs job "
    "LEFT JOIN procrastinate_workers worker ON worker.id = job.worker_id "
    f"WHERE task_name = '{TASK}'"
)
# A failure counts until the thread is given to the workers again.
_JOBS = (
    f"WITH jobs AS ({_DOING}), latest AS (SELECT DISTINCT ON (coalesce(lock, id::text)) * "
    "FROM jobs ORDER BY coalesce(lock, id::text), id DESC) "
    "SELECT (SELECT count(*) FROM jobs WHERE status = 'todo') AS waiting, "
    "(SELECT count(*) FROM jobs WHERE status = 'doing' AND NOT stalled) AS running, "
    "(SELECT count(*) FROM jobs WHERE stalled) AS stalled, "
    "(SELECT count(*) FROM latest WHERE status = 'failed') AS failed, "
    "(SELECT extract(epoch FROM now() - min(coalesce(scheduled_at, deferred.at))) FROM jobs "
    "JOIN procrastinate_events deferred ON deferred.job_id = jobs.id AND deferred.type = 'deferred' "
    "WHERE status = 'todo' AND isfinite(coalesce(scheduled_at, deferred.at))) AS oldest, "
    "(SELECT count(*) FROM procrastinate_workers WHERE last_heartbeat > now() - "
    f"interval '{_DEAD_SECONDS} seconds') AS workers"
)
_ENDED = (
    "SELECT count(*) FILTER (WHERE event.type = 'succeeded') AS ended, "
    "extract(epoch FROM now() - min(event.at)) AS seconds FROM procrastinate_events event "
    f"JOIN procrastinate_jobs job ON job.id = event.job_id WHERE job.task_name = '{TASK}' "
    f"AND event.type IN ('started', 'succeeded') AND event.at > now() - interval '{_SPAN_SECONDS} seconds'"
)
_STATES = (
    f"WITH jobs AS ({_DOING}) SELECT DISTINCT ON (lock, thread_id) lock, {THREAD} AS thread_id, "
    "status::text, stalled FROM jobs ORDER BY lock, thread_id, status = 'doing' DESC, id DESC"
)


@dataclass(frozen=True)
class QueueFigures:
    """The jobs of a queue: one for each thread that workers should look at.

    oldest: seconds for which the oldest has been waiting. ended: how many in the last hour; a job ends when
    its thread has ended, waits for a person or is paused. per_minute: of these, since the first one began.
    workers: how many are alive.
    """

    workers: int
    waiting: int
    running: int
    stalled: int
    failed: int
    oldest: float
    ended: int
    per_minute: float


def backlog(storage: Any) -> QueueFigures | None:
    """Returns the figures of the workers of this database; None when it has none."""
    with _queue(storage) as connection:
        if connection is None:
            return None
        jobs = connection.execute(_JOBS.encode()).fetchone()
        ended = connection.execute(_ENDED.encode()).fetchone()
    assert jobs is not None, "a query of counts has one row"
    assert ended is not None, "a query of counts has one row"
    minutes = max(60.0, float(ended["seconds"] or 0)) / 60
    return QueueFigures(
        workers=jobs["workers"],
        waiting=jobs["waiting"],
        running=jobs["running"],
        stalled=jobs["stalled"],
        failed=jobs["failed"],
        oldest=max(0.0, round(float(jobs["oldest"] or 0), 1)),
        ended=ended["ended"],
        per_minute=round(ended["ended"] / minutes, 1),
    )


def job_states(storage: Any) -> dict[str, str]:
    """Returns the states of threads in the queue, by id: `queued`, `running`, `stalled`, `failed`, `done`."""
    with _queue(storage) as connection:
        if connection is None:
            return {}
        rows = connection.execute(_STATES.encode()).fetchall()
    words = {"todo": "queued", "doing": "running", "failed": "failed"}
    return {
        row["thread_id"]: "stalled" if row["stalled"] else words.get(row["status"], "done")
        for row in rows
        # Others are not rows of a thread, whatever they name.
        if row["thread_id"] and row["lock"] == lock_of(row["thread_id"])
    }


@contextmanager
def _queue(storage: Any) -> "Iterator[Connection[DictRow] | None]":
    """Yields a connection for the tables of the queue; None when the database has none."""
    if not isinstance(storage, PostgresStorage):
        yield None
        return
    with storage.checkpointer.database.connection() as connection:
        found = connection.execute("SELECT to_regclass('procrastinate_jobs') IS NOT NULL AS found").fetchone()
        yield connection if found is not None and found["found"] else None
