"""Handing work to the workers: kept durably with its job, checked first, and never lost between the two."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from signoff import (
    Answer,
    BadAnswer,
    SetupError,
    StorageError,
    ThreadError,
    ThreadUnknown,
    TooLate,
    build_graph,
    go_on,
    postgres_storage,
    sqlite_storage,
    undo,
)
from signoff.models import ScriptedModel, call
from signoff.workers import drive, pause, submit
from tests.support.benches.workers import ASK, DONE, Bench
from tests.support.programs import run_python
from tests.support.servers.postgres import execute

pytestmark = pytest.mark.slow

THINK = call("think", thought="hm")


def test_only_a_postgresql_database_is_taken(tmp_path: Path, postgres_url: str) -> None:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        ways: list[Any] = [storage, postgres_url, None]
        for given in ways:
            for hand_over in (lambda given: submit(given, "one"), lambda given: pause(given, "t")):
                with pytest.raises(SetupError, match="postgresql://"):
                    hand_over(given)
    with pytest.raises(SetupError, match="build_graph"):
        drive("graph", "t")  # type: ignore[arg-type]  # the mistake


def test_a_database_that_was_closed_says_so(postgres_url: str) -> None:
    with postgres_storage(postgres_url) as storage:
        graph = build_graph(ScriptedModel([]), storage=storage)
    ways: list[Callable[[], Any]] = [
        lambda: submit(storage, "go"),
        lambda: pause(storage, "t"),
        lambda: drive(graph, "t"),
    ]
    for way in ways:
        with pytest.raises(StorageError, match="closed"):
            way()


@pytest.mark.thorough
def test_packages_that_are_missing_are_named() -> None:
    code = "import sys; sys.modules['procrastinate'] = None; from signoff.cli import main; main()"
    done = run_python("-c", code, "worker", "--database", "postgresql://h/d")
    assert (done.returncode, "[workers]" in done.stderr) == (2, True)


def test_one_job_waits_for_a_thread_however_much_is_submitted(bench: Bench) -> None:
    for words in ("one", "two", "three"):
        assert bench.submit(words) == "t"
    names = ["t' OR 1=1 --", "x" * 500]
    for name in names:
        bench.submit("one", name)
    assert (bench.figures()["waiting"], bench.listed()["t"]) == (1 + len(names), "queued")
    bench.work()
    assert bench.said() == ["one", "two", "three"]
    assert [bench.said(name) for name in names] == [["one"]] * len(names)
    assert (bench.figures()["waiting"], set(bench.listed().values())) == (0, {"success"})
    assert submit(bench.storage, "one") != submit(bench.storage, "one")


REPEATED: dict[str, tuple[list[Any], Any]] = {
    "an answer": ([ASK, DONE], Answer("blue")),
    "more turns": ([THINK, THINK], go_on(1)),
}


@pytest.mark.parametrize("case", REPEATED)
def test_a_repeated_id_changes_nothing_wherever_the_thread_stands(bench: Bench, case: str) -> None:
    steps, request = REPEATED[case]
    bench.steps = steps
    bench.options = {"limits": {"turns": 1 if THINK in steps else 30}}
    bench.submit("one", id="order 1")
    bench.submit("one", id="order 1")
    bench.work()
    bench.submit(request, id="order 2")
    before = bench.kept()
    bench.submit(request, id="order 2")
    assert bench.kept() == before
    bench.work()
    pause(bench.storage, "t")
    before, status = bench.kept(), bench.status()
    for repeated in (request, "another task", Answer("approve"), go_on(3), None):
        bench.submit(repeated, id="order 2", queue="another")
    assert (bench.kept(), bench.status().changed) == (before, status.changed)


# --- what does not fit ---

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "the input of a graph": ({"request": {"messages": ["go"]}}, "messages"),
    "an empty task": ({"request": " "}, "task"),
    "a number for the id": ({"id": 3}, "id 3"),
    **{f"the queue {name!r}": ({"queue": name}, "queue") for name in ("", "ä" * 21)},
}


def test_a_wrong_argument_is_named_and_changes_nothing(bench: Bench) -> None:
    unknown(bench)
    before = bench.kept()
    for case, (given, named) in WRONG.items():
        with pytest.raises(SetupError) as refused:
            submit(bench.storage, **{"request": "go", **given})
        assert named in str(refused.value), case
    with pytest.raises(ThreadError):
        pause(bench.storage, "of nobody")
    assert bench.kept() == before


def pay(to: str) -> str:
    """Pay."""
    return "paid"


def worked(*steps: Any, then: Any = None) -> Callable[[Bench], None]:
    """A thread whose task was worked on; then: what is handed over after that."""

    def prepare(bench: Bench) -> None:
        bench.tools, bench.options, bench.steps = [pay], {"approvals": {"pay": True}}, steps
        bench.submit("one")
        bench.work()
        if then is not None:
            bench.submit(then)

    return prepare


def paused(bench: Bench) -> None:
    bench.submit("one")
    pause(bench.storage, "t")


def unknown(bench: Bench) -> None:
    bench.submit("one", "another")


waits, ended = worked(ASK, DONE), worked(DONE, DONE)
REFUSED: dict[str, tuple[Callable[[Bench], None], dict[str, Any], type[Exception]]] = {
    "nothing to go on with": (unknown, {"request": None}, ThreadUnknown),
    "an answer after the end": (ended, {"request": Answer("blue")}, ThreadError),
    "an undo": (ended, {"request": undo()}, ThreadError),
    "a task to what waits": (waits, {"request": "two"}, ThreadError),
    "an answer to something else": (waits, {"request": Answer("blue", "another")}, TooLate),
    "a second answer": (worked(ASK, DONE, then=Answer("blue")), {"request": Answer("red")}, ThreadError),
    "an answer that does not fit": (
        worked(call("pay", to="ada")),
        {"request": Answer("perhaps")},
        BadAnswer,
    ),
    "a task to what is paused": (paused, {"request": "two"}, ThreadError),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_and_changes_nothing(bench: Bench, case: str) -> None:
    prepare, given, error = REFUSED[case]
    prepare(bench)
    before, status = bench.kept(), bench.status()
    with pytest.raises(error):
        bench.submit(**given)
    assert (bench.kept(), bench.status().changed) == (before, status.changed)


def test_a_thread_stays_with_its_queue(bench: Bench) -> None:
    bench.submit("one", queue="other")
    bench.submit("two")
    bench.work()
    assert bench.said() == []
    bench.work("--queue", "other")
    assert bench.said() == ["one", "two"]


def test_tables_of_another_version_are_refused(bench: Bench) -> None:
    bench.submit("one")
    execute(bench.url, "DROP FUNCTION procrastinate_fetch_job_v2")
    with pytest.raises(StorageError, match="version"):
        bench.submit("two")
