"""The queue of the workers: bad rows, threads that fail, workers that die, stall or lose their database."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain.agents.middleware import before_model

from signoff import Answer, ThreadError, postgres_storage
from signoff.models import call
from tests.support.benches.workers import ASK, DONE, SILENT, Bench
from tests.support.servers.postgres import Server, execute
from tests.support.waiting import SECONDS, wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
GRAPH = ROOT / "tests/support/servers/worker_graph.py"


def row(
    arguments: str = "{}", lock: str | None = None, place: str | None = None, **more: Any
) -> dict[str, Any]:
    """A row of the queue's table. lock, place: the threads that its locks name."""
    locks = {"lock": lock and f"signoff:{lock}", "queueing_lock": place and f"signoff:{place}"}
    return {"args": arguments, "queue_name": "signoff", "task_name": "signoff.drive", **locks, **more}


def thread(value: Any) -> str:
    return json.dumps({"thread_id": value})


ROWS = {
    "no arguments": row("null"),
    "a thread that nobody submitted": row(thread("nobody"), "nobody", "nobody"),
    "the lock of another thread": row(thread("nobody"), "after", "place"),
    "a thread id that no index takes": row(thread("long " * 200_000)),
    "megabytes": row(json.dumps(["x" * 5_000_000])),
    "nested deeper than Python reads": row("[" * 5000 + "]" * 5000),
    "as many attempts as a number can be": row(attempts=2**31 - 1),
    "no arguments, and the lock of a good thread": row("null", "good"),
}


def insert(bench: Bench, columns: dict[str, Any]) -> int:
    """Puts a row before all others; returns its number."""
    every = {"priority": 9, "status": "todo", **columns}
    places = ", ".join(["%s"] * len(every))
    query = f"INSERT INTO procrastinate_jobs ({', '.join(every)}) VALUES ({places}) RETURNING id"
    return int(execute(bench.url, query, *every.values())[0][0])


def test_bad_rows_are_put_aside_and_hold_nothing_up(bench: Bench) -> None:
    bench.submit("one", "good")
    ((worker,),) = execute(bench.url, f"{SILENT} RETURNING id")
    # Some wait, some are held by a worker that has died.
    numbers = {case: insert(bench, columns) for case, columns in ROWS.items()}
    held = {"status": "doing", "worker_id": worker, "queueing_lock": None}
    numbers |= {f"{case}, held": insert(bench, {**columns, **held}) for case, columns in ROWS.items()}
    assert bench.listed()["good"] == "queued"
    log = bench.work()
    bench.submit("two", "after")
    log += bench.work()
    assert bench.listed().items() >= {"good": "success", "after": "success"}.items()
    states = dict(execute(bench.url, "SELECT id, status::text FROM procrastinate_jobs"))
    assert {case for case, number in numbers.items() if states[number] != "failed"} == set()
    for number in numbers.values():
        (line,) = [line for line in log.splitlines() if f"job {number}, " in line]
        assert len(line) < 500


def test_a_thread_whose_row_was_put_aside_is_resumed_with_all_it_was_given(bench: Bench) -> None:
    bench.submit("one")
    execute(bench.url, "UPDATE procrastinate_jobs SET args = '[]'")
    bench.work()
    assert bench.figures()["failed"] == 1
    bench.submit(None)
    execute(bench.url, "UPDATE procrastinate_jobs SET attempts = 2147483647 WHERE status = 'todo'")
    bench.work()
    assert (bench.said(), bench.listed(), bench.figures()["failed"]) == (["one"], {"t": "success"}, 0)


INBOXES = {
    "nothing": "'null'",
    "a field missing": "value - 'orders'",
    "a count that is none": """value || '{"deaths": "x"}'""",
    "an order without its kind": """jsonb_set(value, '{orders}', '[{"id": "a"}]')""",
}


def test_threads_whose_orders_cannot_be_read_are_put_aside(bench: Bench) -> None:
    names = [f"bad{number}" for number in range(2 * len(INBOXES))]
    for name, value in zip(names, [*INBOXES.values()] * 2, strict=True):
        bench.submit("one", name)
        query = f"UPDATE store SET value = {value} WHERE prefix = 'signoff.inbox.{name}' AND key = 'inbox'"
        execute(bench.url, query)
    bench.die(*names[len(INBOXES) :])
    bench.submit("one", "good")
    bench.work()
    assert bench.listed() == {**dict.fromkeys(names, "damaged"), "good": "success"}
    assert sorted(name for name, _ in bench.jobs("failed")) == sorted(names)
    for name in names:
        with pytest.raises(ThreadError, match=name):
            bench.submit("two", name)
        bench.storage.delete(name)
    assert bench.jobs("failed") == []


DAMAGES = {
    "bytes that mean nothing": "UPDATE checkpoint_blobs SET blob = '\\xc1'",
    "a checkpoint that the database cannot take apart": (
        "UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint, '{channel_versions}', '[]')"
    ),
}


def test_threads_that_cannot_be_read_are_given_up(bench: Bench) -> None:
    bench.steps = (ASK, DONE)
    names = [f"bad{number}" for number in range(len(DAMAGES))]
    for name in [*names, "good"]:
        bench.submit("one", name)
    bench.work()
    for name in [*names, "good"]:
        bench.submit(Answer("this"), name)
    for name, damage in zip(names, DAMAGES.values(), strict=True):
        execute(bench.url, f"{damage} WHERE thread_id = '{name}'")
    for _ in range(5):
        bench.work()
        bench.make_due()
    assert bench.listed() == {**dict.fromkeys(names, "damaged"), "good": "success"}
    assert {name for name, _ in bench.jobs("failed")} == set(names)


# --- threads that fail, and workers that die ---


@before_model
def breaks(_: Any, __: Any) -> None:
    """Raises what is no error of a middleware."""
    raise GeneratorExit("no")


def test_a_thread_that_fails_again_and_again_is_given_up_and_says_why(bench: Bench) -> None:
    bench.options = {"middleware": [breaks]}
    bench.submit("one")
    for _ in range(5):
        assert bench.listed() == {"t": "queued"}
        bench.work()
        bench.make_due()
    assert (bench.listed(), "GeneratorExit" in bench.why("t")) == ({"t": "failed"}, True)
    assert (bench.figures()["waiting"], bench.figures()["failed"]) == (0, 1)
    bench.options = {}
    bench.submit(None)
    bench.work()
    assert (bench.said(), bench.listed(), bench.figures()["failed"]) == (["one"], {"t": "success"}, 0)


def test_a_thread_is_given_up_when_five_workers_have_died_with_it(bench: Bench) -> None:
    bench.submit("one")
    bench.submit("one", "beside")
    with bench.storage.runner("t"), bench.storage.runner("beside"):
        for deaths in range(1, 6):
            assert bench.listed()["t"] != "failed"
            # Only the one that died most before is blamed from then on.
            bench.die("t", *(["beside"] if deaths > 1 else []))
            bench.submit("two", id="two")
            bench.work()
            bench.make_due()
    assert (bench.listed()["t"], "WorkerDied" in bench.why("t")) == ("failed", True)
    bench.work()
    assert bench.listed() == {"t": "failed", "beside": "success"}
    # Whoever has looked what it was lets it go on.
    bench.submit(None)
    bench.work()
    assert (bench.said(), bench.listed()["t"]) == (["one", "two"], "success")


def test_only_what_silent_workers_hold_is_taken_over_and_counted_as_stalled(bench: Bench) -> None:
    bench.submit("one")
    bench.submit("one", "u")
    bench.die("t")
    execute(bench.url, "UPDATE procrastinate_workers SET last_heartbeat = now() + interval '1 minute'")
    counts = ("workers", "waiting", "running", "stalled", "ended")
    assert [bench.figures()[name] for name in counts] == [1, 1, 1, 0, 0]
    bench.work()
    assert [bench.figures()[name] for name in counts] == [1, 0, 1, 0, 1]
    execute(bench.url, "UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 minute'")
    assert [bench.figures()[name] for name in counts] == [0, 0, 0, 1, 1]
    assert bench.listed() == {"t": "queued", "u": "success"}
    # A worker that runs until it is idle has nothing else to do here.
    bench.work()
    assert [bench.figures()[name] for name in counts] == [0, 0, 0, 0, 2]
    assert bench.listed() == {"t": "success", "u": "success"}


# --- workers that are processes ---


@contextmanager
def process(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker; it is asked to end, and must do so."""
    words = ["worker", f"{GRAPH}:graph", "--database", url, "--queue", "signoff", "--heartbeat", "0.5"]
    with subprocess.Popen([sys.executable, "-m", "signoff.cli", *words], cwd=ROOT) as started:
        yield started
        started.send_signal(signal.SIGTERM)
        assert started.wait(SECONDS) == 0


@pytest.mark.parametrize("is_deleted", [False, True], ids=["its row is old", "its row is deleted"])
def test_a_worker_that_stood_still_does_nothing_to_what_was_taken_over(
    is_deleted: bool, bench: Bench, tmp_path: Path
) -> None:
    file = tmp_path / "lines"

    def taken_over() -> bool:
        bench.work()
        bench.make_due()
        return bench.listed() == {"t": "success"}

    bench.submit(str(file))
    with process(bench.url) as stalled:
        wait_until(file.exists)
        stalled.send_signal(signal.SIGSTOP)
        if is_deleted:
            execute(bench.url, "DELETE FROM procrastinate_workers")
        bench.steps = lambda messages: call("finish_task", summary="Taken over.", outcome="partial")
        # Until three of its signs of life are missing.
        wait_until(taken_over)
        ended = bench.status()
        bench.submit("another")
        stalled.send_signal(signal.SIGCONT)
        Path(f"{file}.go").touch()
        wait_until(lambda: bench.figures()["waiting"] + bench.figures()["running"] == 0)
    assert (file.read_text(), ended.outcome and ended.outcome.summary) == ("begun\n", "Taken over.")
    assert bench.said()[-1] == "another"


@pytest.mark.thorough
def test_a_worker_outlives_a_restart_of_the_server(
    own_postgres_url: str, own_postgres_server: Server, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    with postgres_storage(own_postgres_url) as storage:
        bench = Bench(storage, own_postgres_url)
        bench.submit(str(file))
        with process(bench.url):
            wait_until(file.exists)
            own_postgres_server.restart()
            Path(f"{file}.go").touch()
            bench.submit(str(file), "u")
            wait_until(lambda: set(bench.listed().values()) == {"success"})
    assert file.read_text() == "begun\nbegun\n"
