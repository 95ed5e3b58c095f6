"""Whatever is raised while a SQLite storage works, at any line: once that has been handled, it goes on, and
nobody is locked out."""

import random
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.store.base import PutOp

from signoff import StorageError, build_graph, go_on, sqlite_storage
from signoff.models import ScriptedModel, call
from signoff.storage import SqliteStorage
from tests.support.ends import saved_outcome
from tests.support.rows import ids

FILES = ("langgraph/store/sqlite", "langgraph/checkpoint/sqlite", "signoff/storage/")
AT: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "1"}}
PLACE = ("signoff", "journal", "t", "r")


class Raised(BaseException):
    """Anything."""


def _swap(storage: SqliteStorage) -> None:
    item = storage.store.get(PLACE, "k")
    storage.store.swap(PLACE, "k", item.value if item else None, {"n": item.value["n"] + 1 if item else 0})


OPERATIONS: dict[str, Callable[[SqliteStorage], Any]] = {
    "put": lambda storage: storage.store.put(PLACE, "a", {"x": 1}),
    "get": lambda storage: storage.store.get(PLACE, "a"),
    "search": lambda storage: storage.store.search(("signoff",)),
    "swap": _swap,
    "save writes": lambda storage: storage.checkpointer.put_writes(AT, [("a", 1), ("b", 2)], "task"),
    "save a checkpoint": lambda storage: storage.checkpointer.put(AT, empty_checkpoint(), {}, {}),
    "read a checkpoint": lambda storage: storage.checkpointer.get_tuple(AT),
    "list checkpoints": lambda storage: list(storage.checkpointer.list(AT)),
    "list threads": lambda storage: ids(storage),
    "delete a thread": lambda storage: storage.checkpointer.delete_thread("t"),
}


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


@contextmanager
def raising_at(line: int) -> Iterator[None]:
    """Raises at this line, counted from 1, of those that run in this thread in the files of the storage."""
    left = line

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal left
        if not any(name in frame.f_code.co_filename for name in FILES):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise Raised
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def nobody_is_locked_out(storage: SqliteStorage) -> None:
    other = sqlite3.connect(storage.path, timeout=5, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("COMMIT")
    other.close()


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_was_interrupted_at_any_line_leaves_nothing_behind(
    name: str, storage: SqliteStorage
) -> None:
    line, whole = 0, False
    while not whole:
        line += 1
        with suppress(Raised), raising_at(line):
            whole = False
            OPERATIONS[name](storage)
            whole = True
        nobody_is_locked_out(storage)
        for operation in OPERATIONS.values():
            operation(storage)
        assert not storage.store.conn.in_transaction
        assert not storage.checkpointer.conn.in_transaction
    assert line > 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_by_a_signal_at_any_moment(storage: SqliteStorage) -> None:
    """Every swap is done or not; none is done by halves, and none is in the way of the next."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    chance, interrupted = random.Random(7), 0
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(150):
            try:
                # Again and again: an interrupt within what the garbage collector calls is lost.
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 2e-3), 0.05)
                while True:
                    _swap(storage)
            except KeyboardInterrupt:
                interrupted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted == 150
    nobody_is_locked_out(storage)
    _swap(storage)


LINES = [*range(1, 90, 11), *(pytest.param(line, marks=pytest.mark.thorough) for line in range(1, 650))]


@pytest.mark.parametrize("line", LINES)
def test_a_run_that_was_interrupted_goes_on_in_the_same_process(line: int, storage: SqliteStorage) -> None:
    def reply(messages: Any) -> Any:
        worked = any(message.type == "tool" for message in messages)
        return call("finish_task", summary="x") if worked else call("pay")

    def pay() -> str:
        """Pay."""
        return "paid"

    config: Any = {"configurable": {"thread_id": "t"}}
    graph = build_graph(ScriptedModel(reply), [pay], storage=storage, policy={"tool_seconds": None})
    go: Any = {"messages": [("user", "go")]}
    try:
        with raising_at(line):
            graph.invoke(go, config)
    except Raised:
        nobody_is_locked_out(storage)
        state = graph.get_state(config)
        if not state.values:
            graph.invoke(go, config)
        elif saved_outcome(state.values) is None:
            graph.invoke(go_on(), config)
    outcome = saved_outcome(graph.get_state(config).values)
    assert outcome is not None
    assert outcome["status"] == "success"


def test_an_error_in_a_batch_keeps_none_of_it(storage: SqliteStorage) -> None:
    good = PutOp(PLACE, "good", {"x": 1})
    bad = PutOp(PLACE, "bad", {"x": object()})
    with pytest.raises(StorageError):
        storage.store.batch([good, bad])
    assert storage.store.get(PLACE, "good") is None
