"""A row of the queue that cannot be run is put aside and says so; the worker goes on with all others."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from signoff import ThreadError, postgres_storage
from signoff.front.database import database
from signoff.front.threads import find_threads
from signoff.models import call
from signoff.session.commands import Answer
from signoff.workers.figures import job_states
from signoff.workers.inbox import DEFAULT_QUEUE, TASK, read_inbox
from tests.support.benches.session import DONE
from tests.support.benches.workers import Bench
from tests.support.servers.postgres import execute

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(postgres_url: str) -> Iterator[Bench]:
    with postgres_storage(postgres_url) as storage:
        yield Bench(storage, postgres_url)


OF_NOBODY = {"args": '{"thread_id": "nobody"}', "lock": "signoff:nobody", "queueing_lock": "signoff:nobody"}
ROWS: dict[str, dict[str, Any]] = {
    "no arguments": {"args": "null"},
    "a list": {"args": "[1, 2]"},
    "a text": {"args": '"good"'},
    "a number": {"args": "7"},
    "no thread": {"args": "{}"},
    "an empty thread id": {"args": '{"thread_id": ""}'},
    "a number as thread id": {"args": '{"thread_id": 5}'},
    "an object as thread id": {"args": '{"thread_id": {"thread_id": "good"}}'},
    "a thread that nobody submitted": {**OF_NOBODY},
    "a good thread without its lock": {"args": '{"thread_id": "good"}'},
    "no lock": {**OF_NOBODY, "lock": None, "queueing_lock": None},
    "the lock of another thread": {**OF_NOBODY, "lock": "signoff:after"},
    "the place of another thread in the queue": {**OF_NOBODY, "queueing_lock": "signoff:after"},
    "a thread id that no index takes": {"args": json.dumps({"thread_id": "long " * 200_000})},
    "the lock of nobody": {"args": "{}", "lock": "signoff:-", "queueing_lock": "signoff:-"},
    "an unknown task": {"task_name": "another", "args": '{"thread_id": "good"}'},
    "a task with a long name": {"task_name": "x" * 100, "args": "null"},
    "megabytes": {"args": json.dumps(["x" * 20_000_000])},
    "nested deeper than Python reads": {"args": "[" * 5000 + "]" * 5000},
    "a number longer than Python reads": {"args": f'{{"thread_id": {"9" * 9000}}}'},
    "a date before Christ": {"args": "null", "scheduled_at": "-infinity"},
    "as many attempts as a number can be": {"args": "{}", "attempts": 2**31 - 1},
    "no arguments, and the lock of a good thread": {"args": "null", "lock": "signoff:good"},
    "no arguments, and the place of another thread": {"args": "null", "queueing_lock": "signoff:after"},
}


def insert(bench: Bench, row: dict[str, Any], **more: Any) -> int:
    """Puts a row into the queue, before all others; returns its number."""
    columns = {"queue_name": DEFAULT_QUEUE, "task_name": TASK, "priority": 9, "status": "todo", **row, **more}
    places = ", ".join(["%s"] * len(columns))
    query = f"INSERT INTO procrastinate_jobs ({', '.join(columns)}) VALUES ({places}) RETURNING id"
    ((number,),) = execute(bench.url, query, *columns.values())
    return int(number)


def dead_worker(bench: Bench) -> int:
    query = (
        "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - interval '1 minute') RETURNING id"
    )
    ((number,),) = execute(bench.url, query)
    return int(number)


def states(bench: Bench) -> dict[int, str]:
    return dict(execute(bench.url, "SELECT id, status::text FROM procrastinate_jobs"))


def listed(bench: Bench) -> dict[str, str]:
    """How `signoff threads` lists the threads."""
    return {row.thread_id: row.status for row in find_threads(database(bench.url, {}, None), 20).rows}


def outcomes(bench: Bench, *threads: str) -> list[str]:
    ends = [bench.status(thread).outcome for thread in threads]
    return [str(outcome and outcome.status) for outcome in ends]


@pytest.mark.parametrize("held", [False, True], ids=["waiting", "held by a dead worker"])
@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
@pytest.mark.sample(2)
def test_a_bad_row_is_put_aside(
    bench: Bench, row: dict[str, Any], held: bool, caplog: pytest.LogCaptureFixture
) -> None:
    bench.submit("one", "good")
    of_worker = {"status": "doing", "worker_id": dead_worker(bench)} if held else {}
    bad = insert(bench, row, **of_worker)
    assert listed(bench)["good"] == "queued"
    bench.work()
    bench.submit("two", "after")
    bench.work()
    assert outcomes(bench, "good", "after") == ["success", "success"]
    assert states(bench)[bad] == "failed"
    lines = [record.getMessage() for record in caplog.records if record.name == "signoff.workers"]
    assert [len(line) < 400 for line in lines if line.startswith(f"job {bad}, ")] == [True]
    assert listed(bench).items() >= {"good": "success", "after": "success"}.items()


def test_many_bad_rows_first_in_the_queue_hold_nothing_up(bench: Bench) -> None:
    bench.submit("one", "good")
    rows = [insert(bench, row) for row in ROWS.values() for _ in range(3) if not row.get("queueing_lock")]
    free = [row for row in ROWS.values() if not row.get("lock")]
    held = [insert(bench, row, status="doing", worker_id=dead_worker(bench)) for row in free]
    bench.work()
    assert outcomes(bench, "good") == ["success"]
    assert {states(bench)[number] for number in [*rows, *held]} == {"failed"}
    assert bench.figures().failed >= len(rows)


def test_a_damaged_row_becomes_whole_when_its_thread_is_submitted_again(bench: Bench) -> None:
    bench.submit("one", "good")
    execute(
        bench.url,
        "UPDATE procrastinate_jobs SET args = 'null', task_name = 'x', queue_name = 'y', lock = 'z'",
    )
    bench.submit("two", "good")
    bench.work()
    assert bench.said("good") == ["one", "two"]


def test_a_thread_whose_row_was_put_aside_is_resumed_with_all_it_was_given(bench: Bench) -> None:
    bench.submit("one", "good")
    execute(bench.url, "UPDATE procrastinate_jobs SET args = '[]'")
    bench.work()
    assert (bench.jobs("failed"), bench.figures().failed) == ([(None, 1)], 1)
    bench.submit(None, "good")
    bench.work()
    assert (bench.said("good"), outcomes(bench, "good")) == (["one"], ["success"])
    assert bench.figures().failed == 0


def test_a_good_thread_with_a_row_that_has_too_many_attempts_runs(bench: Bench) -> None:
    bench.submit("one", "good")
    execute(bench.url, "UPDATE procrastinate_jobs SET attempts = 2147483647")
    bench.work()
    assert (outcomes(bench, "good"), bench.jobs("doing")) == (["success"], [])


INBOXES: dict[str, str] = {
    "nothing": "'null'",
    "a list": "'[]'",
    "a field missing": "value - 'orders'",
    "a field more": """value || '{"newer": 1}'""",
    "a count that is none": """value || '{"deaths": "x"}'""",
    "a count below zero": """value || '{"deaths": -1000000000000}'""",
    "a count that no number column takes": """value || '{"failures": 1000000000000}'""",
    "orders that are none": """value || '{"orders": 3}'""",
    "an order without its kind": """jsonb_set(value, '{orders}', '[{"id": "a"}]')""",
}


@pytest.mark.parametrize("held", [False, True], ids=["waiting", "held by a dead worker"])
@pytest.mark.parametrize("value", INBOXES.values(), ids=list(INBOXES))
@pytest.mark.sample(2)
def test_a_thread_whose_inbox_cannot_be_read_is_put_aside(bench: Bench, value: str, held: bool) -> None:
    bench.submit("one", "bad")
    bench.submit("one", "good")
    execute(
        bench.url, f"UPDATE store SET value = {value} WHERE prefix = 'signoff.inbox.bad' AND key = 'inbox'"
    )
    if held:
        query = "UPDATE procrastinate_jobs SET status = 'doing', worker_id = %s"
        execute(bench.url, query, dead_worker(bench))
    bench.work()
    assert outcomes(bench, "good") == ["success"]
    assert bench.jobs("failed") == [("bad", 1)]
    assert listed(bench) == {"bad": "damaged", "good": "success"}
    with pytest.raises(ThreadError, match="'bad' cannot be read"):
        bench.submit("two", "bad")
    bench.storage.checkpointer.delete_thread("bad")
    assert bench.jobs("failed") == []


THREADS: dict[str, str] = {
    "bytes that mean nothing": "UPDATE checkpoint_blobs SET blob = '\\xc1' WHERE thread_id = 'bad'",
    "an unknown form of bytes": "UPDATE checkpoint_blobs SET type = 'newer' WHERE thread_id = 'bad'",
    "no checkpoint": "UPDATE checkpoints SET checkpoint = 'null' WHERE thread_id = 'bad'",
    "a checkpoint that the database cannot take apart": (
        "UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint, '{channel_versions}', '[]') "
        "WHERE thread_id = 'bad'"
    ),
}


@pytest.mark.parametrize("damage", THREADS.values(), ids=list(THREADS))
@pytest.mark.sample(2)
def test_a_thread_that_cannot_be_read_is_given_up(bench: Bench, damage: str) -> None:
    bench.steps = (call("ask_user", question="Which?"), DONE)
    for thread in ("bad", "good"):
        bench.submit("one", thread)
    bench.work()
    for thread in ("bad", "good"):
        bench.submit(Answer("this"), thread)
    execute(bench.url, damage)
    asyncio.run(bench.worker(failure_wait=0).run(until_idle=True))
    assert outcomes(bench, "good") == ["success"]
    inbox = read_inbox(bench.storage.store, "bad")
    assert inbox is not None
    assert (inbox.failures, inbox.problem.partition(":")[0]) == (5, "Unreadable")
    assert job_states(bench.storage) == {"bad": "failed", "good": "done"}
    assert listed(bench) == {"bad": "damaged", "good": "success"}
