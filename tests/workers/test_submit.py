"""Handing work to the workers: kept durably with its job, checked first, and never lost between the two."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from signoff import (
    Answer,
    Limits,
    Session,
    SetupError,
    StorageError,
    ThreadError,
    build_graph,
    go_on,
    postgres_storage,
    sqlite_storage,
    undo,
)
from signoff.graph.inside.installing import install_hint
from signoff.models import ScriptedModel, call
from signoff.workers import drive, pause, submit
from signoff.workers.inbox import read_inbox
from signoff.workers.jobs import JobQueries
from signoff.workers.tables import prepare, wake
from tests.support.benches.session import DONE
from tests.support.benches.workers import Bench
from tests.support.rows import ids
from tests.support.servers.postgres import execute

ASK = call("ask_user", question="Which?")


@pytest.fixture
def bench(postgres_url: str) -> Iterator[Bench]:
    with postgres_storage(postgres_url) as storage:
        yield Bench(storage, postgres_url)


def test_a_sqlite_database_is_refused(tmp_path: Path) -> None:
    with (
        sqlite_storage(tmp_path / "t.sqlite") as storage,
        pytest.raises(SetupError, match=r"PostgreSQL database.*postgresql://user@host:5432/database"),
    ):
        submit(storage, "one")  # type: ignore[arg-type]  # as somebody who does not check types


# What is handed over, to which queue, and what the sentence says.
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "a number": ({"request": 3}, "Workers take the text of a task, .*not 3"),
    "the input of a graph": (
        {"request": {"messages": ["go"]}},
        "Workers take the text of a task, .*messages",
    ),
    "a list of texts": ({"request": ["go"]}, r"Workers take the text of a task, .*not \['go'\]"),
    "a class": ({"request": Answer}, "Workers take the text of a task, .*not the class Answer"),
    "an empty task": ({"request": " "}, "The task is empty"),
    "a number for a thread": ({"thread_id": 7}, "A thread id must be valid text.*not 7"),
    "a configuration for a thread": ({"thread_id": {"configurable": {}}}, "A thread id must be valid text"),
    "a number for a queue": ({"queue": 3}, "The queue 3 cannot be used; use a name"),
    "a number for the id": ({"id": 3}, "The id 3 cannot be used; pass text"),
}


def test_a_mistake_is_told_and_changes_nothing(bench: Bench) -> None:
    for given, says in MISTAKES.values():
        with pytest.raises(SetupError, match=says):
            submit(bench.storage, **{"request": "go", **given})
    assert ids(bench.storage) == []


def test_a_database_that_nobody_has_opened_is_told(postgres_url: str) -> None:
    ways: list[Any] = [
        lambda storage: submit(storage, "go"),
        lambda storage: pause(storage, "t"),
    ]
    for way, storage in product(ways, [postgres_url, None]):
        with pytest.raises(SetupError, match="Workers need a PostgreSQL database"):
            way(storage)
    with pytest.raises(SetupError, match="was not made by build_graph"):
        drive("graph", "t")  # type: ignore[arg-type]  # the mistake


def test_a_database_that_was_closed_says_so(postgres_url: str) -> None:
    with postgres_storage(postgres_url) as storage:
        graph = build_graph(ScriptedModel([]), storage=storage)
    thread: Any = {"configurable": {"thread_id": "t"}}
    ways: list[Any] = [
        lambda: graph.invoke({"messages": ["go"]}, thread),
        lambda: asyncio.run(graph.ainvoke({"messages": ["go"]}, thread)),
        lambda: graph.get_state(thread),
        lambda: [*graph.get_state_history(thread)],
        lambda: Session(graph, "t").run("go"),
        lambda: submit(storage, "go"),
        lambda: pause(storage, "t"),
        lambda: drive(graph, "t"),
    ]
    for way in ways:
        with pytest.raises(StorageError, match="The storage of this graph is closed: its `with` block"):
            way()


def test_packages_that_are_missing_are_named() -> None:
    code = (
        "import sys; sys.modules['procrastinate'] = None\n"
        "from signoff.workers.inbox import packages\n"
        "from signoff.workers import drive, submit\n"
        "try:\n"
        "    with packages(): import signoff.workers.tables\n"
        "except Exception as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert install_hint("workers") in done.stdout


@pytest.mark.slow
def test_one_job_waits_for_a_thread_however_much_is_submitted(bench: Bench) -> None:
    for words in ("one", "two", "three"):
        assert bench.submit(words) == "t"
    bench.submit("other", "u")
    assert bench.jobs("todo") == [("t", 0), ("u", 0)]
    bench.work()
    assert (bench.said(), bench.said("u")) == (["one", "two", "three"], ["other"])
    assert bench.jobs("todo", "doing") == []


@pytest.mark.slow
def test_what_is_submitted_twice_under_one_id_is_done_once(bench: Bench) -> None:
    bench.submit("one", id="order 1")
    bench.submit("one", id="order 1")
    bench.work()
    bench.submit("one", id="order 1")
    bench.work()
    assert bench.said() == ["one"]


@pytest.mark.slow
def test_an_answer_that_is_submitted_again_decides_on_nothing_else(bench: Bench) -> None:
    ran: list[str] = []

    def wipe(what: str) -> str:
        """Wipe."""
        ran.append(what)
        return "wiped"

    bench.tools, bench.options = [wipe], {"approvals": {"wipe": True}}
    bench.steps = (call("wipe", what="cache"), call("wipe", what="production"), DONE)
    bench.submit("one")
    bench.work()
    bench.submit(Answer("approve"), id="click-1")
    before = (read_inbox(bench.storage.store, "t"), bench.jobs("todo"))
    bench.submit(Answer("approve"), id="click-1")
    assert (read_inbox(bench.storage.store, "t"), bench.jobs("todo")) == before
    bench.work()
    before = (read_inbox(bench.storage.store, "t"), bench.jobs("todo"))
    for repeated in (Answer("approve"), Answer("reject"), "another task", go_on(3), None):
        bench.submit(repeated, id="click-1", queue="another")
    assert (read_inbox(bench.storage.store, "t"), bench.jobs("todo")) == before
    bench.work()
    assert ran == ["cache"]
    bench.submit(Answer("approve"), id="click-2")
    bench.work()
    assert ran == ["cache", "production"]


REPEATED: dict[str, tuple[tuple[Any, ...], Any]] = {
    "a task": ((DONE, DONE), "two"),
    "more turns": ((call("think", thought="a"), call("think", thought="b"), DONE), go_on(1)),
    "another try": ((RuntimeError("no"), RuntimeError("no"), DONE), go_on()),
    "going on": ((DONE, DONE), None),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", REPEATED)
def test_a_repeated_id_changes_nothing_wherever_the_thread_stands(case: str, bench: Bench) -> None:
    steps, request = REPEATED[case]
    bench.steps = (*steps, DONE, DONE)
    bench.options = {"limits": Limits(turns=1 if case == "more turns" else 30)}
    bench.submit("one")
    bench.work()
    bench.submit(request, id="order 2")
    bench.work()
    pause(bench.storage, "t")
    before = (read_inbox(bench.storage.store, "t"), bench.jobs("todo"), bench.status().changed)
    bench.submit(request, id="order 2")
    assert (read_inbox(bench.storage.store, "t"), bench.jobs("todo"), bench.status().changed) == before
    assert before[0] is not None
    assert before[0].paused


@pytest.mark.slow
def test_new_threads_have_ids_of_their_own(bench: Bench) -> None:
    first, second = submit(bench.storage, "one"), submit(bench.storage, "one")
    assert first != second


def waits(bench: Bench) -> None:
    bench.steps = (ASK, *bench.steps)
    bench.submit("one")
    bench.work()


def waits_for_approval(bench: Bench) -> None:
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    bench.tools, bench.options = [pay], {"approvals": {"pay": True}}
    bench.steps = (call("pay", amount=1), *bench.steps)
    bench.submit("one")
    bench.work()


def answered(bench: Bench) -> None:
    waits(bench)
    bench.submit(Answer("blue"))


def ended(bench: Bench) -> None:
    bench.submit("one")
    bench.work()


def paused(bench: Bench) -> None:
    bench.submit("one")
    pause(bench.storage, "t")


def nothing(bench: Bench) -> None:
    prepare(bench.storage.checkpointer.database)


REFUSED: list[tuple[Any, Any, str]] = [
    (nothing, None, "There is no thread 't'"),
    (nothing, Answer("blue"), "There is no thread 't'"),
    (nothing, " ", "The task is empty"),
    (nothing, ["one"], r"Workers take the text of a task, .* not \['one'\]"),
    (nothing, 3, "Workers take the text of a task, .* not 3"),
    (ended, Answer("blue"), "has ended and does not wait for an answer"),
    (ended, undo(), r"Workers do not undo what thread 't' has done: call Session\(graph, thread_id\)"),
    (waits, "two", "waits for answer; answer that first"),
    (waits, Answer("blue", "another"), "no longer waits for this answer"),
    (answered, Answer("red"), "has already been told how to go on"),
    (waits_for_approval, Answer("perhaps"), "perhaps"),
    (paused, "two", "is paused; continue it first"),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case[0].__name__}-{case[1]}")
def test_what_does_not_fit_is_refused_and_changes_nothing(case: tuple[Any, Any, str], bench: Bench) -> None:
    prepared, request, why = case
    prepared(bench)
    before = (read_inbox(bench.storage.store, "t"), bench.jobs("todo"), bench.status().changed)
    with pytest.raises((ThreadError, SetupError), match=why):
        bench.submit(request)
    assert (read_inbox(bench.storage.store, "t"), bench.jobs("todo"), bench.status().changed) == before


@pytest.mark.slow
def test_an_answer_an_extension_and_another_try_are_carried_out_by_a_worker(bench: Bench) -> None:
    bench.steps = (ASK, ASK, RuntimeError("no"))
    bench.submit("one")
    for _ in range(2):
        bench.work()
        bench.submit(Answer("blue"))
    bench.work()
    assert bench.status().outcome.reason == "model_error"  # type: ignore[union-attr]  # it has ended
    bench.steps = (ASK, ASK, DONE)
    bench.submit(go_on())
    bench.work()
    assert bench.status().outcome.status == "success"  # type: ignore[union-attr]  # it has ended


@pytest.mark.slow
def test_a_thread_stays_with_its_queue(bench: Bench) -> None:
    bench.submit("one", queue="other")
    with pytest.raises(ThreadError, match="belongs to the queue 'other', not to 'signoff'"):
        bench.submit("two", queue="signoff")
    bench.submit("two")
    bench.work()
    assert bench.said() == []
    bad: tuple[Any, ...] = ("", " ", "x" * 41, "ä" * 21, "\0", "\ud800", 3, ["one"])
    for name in bad:
        with pytest.raises(SetupError, match=r"The queue .* cannot be used"):
            bench.submit("one", "u", queue=name)


@pytest.mark.slow
def test_a_paused_thread_goes_on_when_it_is_told_to(bench: Bench) -> None:
    paused(bench)
    bench.work()
    assert bench.said() == []
    bench.submit(None)
    bench.work()
    assert bench.said() == ["one"]
    with pytest.raises(ThreadError, match="does not belong to workers"):
        pause(bench.storage, "u")


@pytest.mark.slow
def test_a_thread_that_was_begun_elsewhere_can_be_handed_over(bench: Bench) -> None:
    bench.steps = (ASK, DONE, DONE)
    Session(bench.graph(), "t").run("one")
    bench.submit(Answer("blue"))
    bench.work()
    assert (bench.said(), bench.status().outcome.status) == (["one"], "success")  # type: ignore[union-attr]  # as above


@pytest.mark.slow
async def test_a_job_that_stands_for_new_work_is_not_taken_before_that_is_there(bench: Bench) -> None:
    """Who took it earlier would find nothing to do, and nobody would look again."""
    bench.submit("one")
    database = bench.storage.checkpointer.database
    worker = bench.worker()
    jobs: JobQueries = worker._jobs
    async with worker._app.open_async():
        number = await jobs.register_worker()
        with database.transaction() as connection:
            wake(connection, database.address, "t", "signoff")
            assert await jobs.fetch_job(["signoff"], number) is None
        assert await jobs.fetch_job(["signoff"], number) is not None
        with database.transaction() as connection:
            wake(connection, database.address, "t", "signoff")
    assert (bench.jobs("doing"), bench.jobs("todo")) == ([("t", 0)], [("t", 0)])


@pytest.mark.slow
def test_tables_of_another_version_are_refused(bench: Bench) -> None:
    nothing(bench)
    execute(bench.url, "DROP FUNCTION procrastinate_fetch_job_v2")
    with pytest.raises(StorageError, match="another version of procrastinate"):
        bench.submit("one")


@pytest.mark.slow
def test_a_thread_id_of_any_kind(bench: Bench) -> None:
    names = ["a.b", "a\nb) (c", "ü", "50 %", "t' OR 1=1 --", "x" * 500]
    for name in names:
        bench.submit("one", name)
    bench.work()
    assert [bench.said(name) for name in names] == [["one"]] * len(names)
