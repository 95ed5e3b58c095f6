"""The queue in PostgreSQL: its tables, and the job that makes workers look at a thread."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from procrastinate import SyncPsycopgConnector
from procrastinate.exceptions import AlreadyEnqueued, ConnectorException
from procrastinate.jobs import Job
from procrastinate.manager import JobManager
from procrastinate.schema import SchemaManager
from psycopg import Connection
from psycopg.rows import DictRow

from signoff import SetupError, StorageError
from signoff.storage.deleting import lock_of
from signoff.storage.postgres_address import Address
from signoff.storage.postgres_database import PostgresDatabase, wait_to_set_up
from signoff.text import valid_text
from signoff.workers.inbox import TASK

# A channel of PostgreSQL has at most 63 bytes, of which procrastinate uses some.
_LONGEST_QUEUE = 40


def usable_queue(name: str) -> str:
    """Returns the name. Raises SetupError when it cannot name a queue."""
    usable = isinstance(name, str) and name.strip() and valid_text(name) == name
    if not usable or len(name.encode()) > _LONGEST_QUEUE:
        raise SetupError(f"The queue {name!r:.80} cannot be used; use a name of 1 to {_LONGEST_QUEUE} bytes.")
    return name


def prepare(database: PostgresDatabase) -> None:
    """Creates missing tables of the queue; safe when several processes do so at the same time.

    Raises StorageError when the tables are of another version of procrastinate.
    """
    address = database.address
    with database.connection() as connection:
        if _is_there(connection):
            _check(connection, address)
            return
    with address.errors(), address.connect() as connection:
        wait_to_set_up(connection, address)
        if not _is_there(connection):
            with connection.transaction():
                connection.execute(SchemaManager.get_schema().encode(), prepare=False)


def _check(connection: Connection[DictRow], address: Address) -> None:
    if not all(_has(connection, "to_regprocedure", name) for name in _NEEDED):
        raise StorageError(
            f"The tables of the queue in the database {address} are of another version of procrastinate; "
            'bring them up to date as its documentation says, under "migrations".'
        )


def _is_there(connection: Connection[DictRow]) -> bool:
    return _has(connection, "to_regclass", "procrastinate_jobs")


def _has(connection: Connection[DictRow], function: str, name: str) -> bool:
    row = connection.execute(f"SELECT {function}(%s) IS NOT NULL AS found".encode(), (name,)).fetchone()
    return row is not None and bool(row["found"])


def wake(connection: Connection[DictRow], address: Address, thread_id: str, queue: str) -> None:
    """Makes sure that a worker of `queue` looks at the thread after the connection's transaction has ended.

    There is one waiting job per thread: an existing one is enough, once its row is as it should be, but it
    must not be taken before this transaction has ended, because its worker could not see the writes yet.
    """
    jobs = JobManager(SyncPsycopgConnector())
    mark = lock_of(thread_id)
    job = Job(
        queue=queue, lock=mark, queueing_lock=mark, task_name=TASK, task_kwargs={"thread_id": thread_id}
    )
    while True:
        found = connection.execute(
            "UPDATE procrastinate_jobs SET scheduled_at = NULL, queue_name = %(queue)s, lock = %(mark)s, "
            "task_name = %(task)s, args = jsonb_build_object('thread_id', %(thread)s::text) "
            "WHERE queueing_lock = %(mark)s AND status = 'todo' RETURNING id",
            {"queue": queue, "task": TASK, "mark": mark, "thread": thread_id},
        )
        if found.fetchone():
            return
        # A job that was running may be put back at this moment.
        with suppress(AlreadyEnqueued), queue_errors(address), connection.transaction():
            jobs.defer_job(job, connection)
            return


@contextmanager
def queue_errors(address: Address) -> Iterator[None]:
    """Turns errors of the queue's connection into StorageError."""
    try:
        yield
    except ConnectorException as error:
        cause: Any = error.__cause__
        with address.errors():
            raise cause or error from None


# What this code calls; tables that lack one of these belong to another version.
_NEEDED = (
    "procrastinate_fetch_job_v2(character varying[], bigint)",
    "procrastinate_retry_job_v2(bigint, timestamptz, integer, character varying, character varying)",
    "procrastinate_finish_job_v1(bigint, procrastinate_job_status, boolean)",
)
