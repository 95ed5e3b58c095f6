"""A tree on workers: the job of the thread carries its delegates, wherever a worker dies, and a thread that
waits for people holds none."""

import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from signoff import Answer, Session, StorageError, delegate
from signoff.models import ScriptedModel, call
from signoff.session.status import look, reading_graph
from signoff.storage.postgres import postgres_storage
from signoff.workers import Order, drive, post
from tests.random_kills import storage_at
from tests.support.benches.session import DONE
from tests.support.benches.workers import Bench
from tests.support.sweeps.effect import Moments
from tests.support.sweeps.nested import EFFECTS, QUESTIONS, graph_of, storage_of, unknown

pytestmark = pytest.mark.slow


DONE_OR_DUE, UNREACHED, FAILED = 0, 75, 1


def killed_at(folder: Path, database: str, moment: int) -> bool:
    """Drives the thread in a process of its own, which dies at this moment; whether it came to its end."""
    child = os.fork()
    if child == 0:
        code = FAILED
        try:
            with storage_of(folder, database) as storage:
                Moments.left = moment
                drive(graph_of(storage, folder / "ledger"), "t")
                code = DONE_OR_DUE
        except BaseException as error:
            traceback.print_exc()
            # A machine that stands still for seconds may keep the server from answering in time. The worker
            # gives up then, and the thread is driven on by the next one.
            code = UNREACHED if isinstance(error, StorageError) and "be reached" in str(error) else FAILED
            raise
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) in (DONE_OR_DUE, UNREACHED), "drive failed"
    return os.WIFEXITED(status) and os.WEXITSTATUS(status) == DONE_OR_DUE


def check(folder: Path, database: str, figure: Callable[[str], None]) -> None:
    kills, asked, at = 0, set[tuple[str, ...]](), database or str(folder / "threads.sqlite")
    with storage_at(at) as storage:
        post(storage.store, "t", Order("go", "go"))
    for number in range(60):
        kills += not killed_at(folder, database, 25 + 43 * (number % 4) if number % 5 else 0)
        with storage_at(at) as storage:
            status = look(reading_graph(storage, "t"), "t")
            asked |= {wait.path for wait in status.waits}
            if status.outcome:
                break
            # The last is answered first; an order that was delivered is known again.
            for wait in reversed(status.waits):
                order = Order(f"answer {wait.interrupt_id}", Answer("yes", wait.interrupt_id))
                post(storage.store, "t", order)
    assert status.outcome is not None
    assert (status.outcome["status"], asked) == ("success", QUESTIONS)
    happened = Counter((folder / "ledger").read_text().splitlines())
    assert max(happened.values()) == 1
    missing = [effect for effect in EFFECTS if not happened[effect]]
    assert len(missing) <= unknown(status.values["messages"])
    figure(f"a tree of five machines on workers: {kills} workers were lost, no effect twice, no wait lost")
    assert kills >= 3


def test_a_worker_that_dies_loses_nothing_on_sqlite(tmp_path: Path, figure: Callable[[str], None]) -> None:
    check(tmp_path, "", figure)


def test_a_worker_that_dies_loses_nothing_on_postgresql(
    postgres_url: str, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    check(tmp_path, postgres_url, figure)


@pytest.fixture
def bench(postgres_url: str) -> Iterator[Bench]:
    with postgres_storage(postgres_url) as storage:
        yield Bench(storage, postgres_url)


def test_a_thread_whose_delegates_wait_holds_no_slot(bench: Bench) -> None:
    from signoff import build_graph

    child = build_graph(
        ScriptedModel([call("ask_user", question="Which?"), call("ask_user", question="Which?"), DONE, DONE])
    )
    team: list[Any] = [delegate(name, child, description="Works.") for name in ("a", "b")]
    bench.tools = team
    bench.steps = ([call("a", task="Go."), call("b", task="Go.")], DONE)
    bench.submit("go")
    bench.work()
    first, second = bench.status().waits
    assert bench.jobs("todo", "doing") == []
    bench.submit(Answer("this", second.interrupt_id))
    bench.work()
    (left,) = bench.status().waits
    assert (left.interrupt_id, bench.jobs("todo", "doing")) == (first.interrupt_id, [])
    bench.submit(Answer("that", first.interrupt_id))
    bench.work()
    assert Session(bench.graph(), "t").status().outcome is not None
