"""The threads of a storage, as rows: what a program lists."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from signoff import (
    Approval,
    Ended,
    Graph,
    Question,
    Session,
    SetupError,
    Storage,
    ThreadBusy,
    build_graph,
    sqlite_storage,
)
from signoff.models import ScriptedModel, call
from tests.support.databases import storage_at

ENDS: dict[str, Any] = {
    "asks": call("ask_user", question="Which?", options=["red", "green"]),
    "pays": call("pay", amount=3),
    "ends": call("finish_task", summary="Done."),
    "talks": "hm",
}


def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def graph_on(storage: Storage) -> Graph:
    """It does what the first word of its task says."""

    def step(messages: list[Any]) -> Any:
        first = next(message for message in messages if message.type == "human")
        done = any(message.type == "tool" for message in messages)
        return ENDS["ends"] if done else ENDS[first.text.split()[0]]

    model, approvals = ScriptedModel(step), {"pay": True}
    return build_graph(model, [pay], approvals=approvals, storage=storage, limits={"turns": 3})


def session_on(storage: Storage, thread: str) -> Session[Any]:
    return Session(graph_on(storage), thread)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    is_postgres = request.param == "postgres"
    address = request.getfixturevalue("postgres_url") if is_postgres else str(tmp_path / "t.sqlite")
    with storage_at(address) as opened:
        yield opened


def begin(storage: Storage, *tasks: str) -> None:
    for task in tasks:
        session_on(storage, task.split()[0]).run(task)


def ids(rows: Any) -> list[str]:
    return [row.thread_id for row in rows]


def test_the_rows_say_where_each_thread_stands(storage: Storage) -> None:
    begin(storage, "asks for a colour\nand waits", "pays the bill", "ends", "talks on")
    rows = storage.threads()
    assert [(row.thread_id, row.condition, row.task) for row in rows] == [
        ("talks", "ended", "talks on"),
        ("ends", "ended", "ends"),
        ("pays", "waiting", "pays the bill"),
        ("asks", "waiting", "asks for a colour"),
    ]
    ends = [row.outcome and (row.outcome.status, row.outcome.reason) for row in rows]
    assert ends == [("limit", "turns"), ("success", "finish_task"), None, None]
    assert [row.changed for row in rows] == sorted((row.changed for row in rows), reverse=True)
    for condition in ("unknown", "running", "waiting", "paused", "stopped", "ended"):
        expected = {"waiting": ["pays", "asks"], "ended": ["talks", "ends"]}.get(condition, [])
        assert ids(storage.threads(condition)) == expected
        assert ids(asyncio.run(storage.athreads(condition, limit=5))) == expected


def test_the_waits_are_those_of_the_status(storage: Storage) -> None:
    begin(storage, "asks", "pays")
    for row in storage.threads("waiting"):
        session = session_on(storage, row.thread_id)
        status = session.status()
        assert (row.waits, row.condition, row.changed) == (status.waits, status.condition, status.changed)
        (wait,) = row.waits
        match wait:
            case Question(text=text):
                assert (text, wait.read(2)) == ("Which?", "green")
            case Approval(calls=(pending,)):
                assert (pending.name, dict(pending.args)) == ("pay", {"amount": 3})
        assert wait.document()["interrupt_id"] == wait.interrupt_id
        assert isinstance(session.resume("approve", wait.interrupt_id), Ended)
    assert (storage.threads("waiting"), len(storage.threads("ended"))) == ([], 2)


def test_pages(storage: Storage) -> None:
    begin(storage, "asks", "pays", "ends", "talks")
    first = storage.threads(limit=3)
    rest = storage.threads(before=first[-1].cursor)
    assert ([*first, *rest], len(rest)) == (storage.threads(), 1)
    assert storage.threads(before=rest[-1].cursor) == []
    (newest,) = storage.threads("waiting", limit=1)
    assert ids([newest, *storage.threads("waiting", limit=1, before=newest.cursor)]) == ["pays", "asks"]
    # A thread that changes meanwhile is at the top; a page does not show it twice.
    session_on(storage, "asks").resume("red")
    assert ids(storage.threads()) == ["asks", "talks", "ends", "pays"]
    assert storage.threads(before=first[-1].cursor) == []
    # What a fork that was killed has left: something below the thread, and no checkpoint of its own.
    below: Any = {"configurable": {"thread_id": "half", "checkpoint_ns": "below"}}
    storage.checkpointer.put(below, empty_checkpoint(), {}, {})
    (half,) = storage.threads("unknown")
    assert storage.threads(before=half.cursor) == []


WRONG: list[tuple[str, Any]] = [
    ("condition", "success"),
    ("limit", 0),
    ("limit", True),
    ("before", "yesterday"),
    ("before", 3),
]


def test_a_wrong_argument_is_named(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        for argument, value in WRONG:
            with pytest.raises(SetupError, match=rf"threads\({argument}=\)"):
                storage.threads(**{argument: value})


def test_one_that_is_held_is_a_running_one(storage: Storage) -> None:
    begin(storage, "asks", "ends")
    session = session_on(storage, "asks")
    with storage.runner("asks"):
        (row,) = storage.threads("running")
        assert (row.thread_id, row.waits, row.outcome, row.task) == ("asks", (), None, "asks")
        assert session.status().condition == "running"
        with pytest.raises(ThreadBusy):
            session.resume("red")
    storage.delete("asks")
    assert ids(storage.threads()) == ["ends"]
    with pytest.raises(SetupError):
        storage.runner("")


def test_many_who_look_at_once_do_not_take_each_other_for_a_runner(storage: Storage) -> None:
    begin(storage, "asks")
    session = session_on(storage, "asks")

    async def look() -> set[str]:
        found = await asyncio.gather(*(session.astatus() for _ in range(60)))
        return {str(status.condition) for status in found}

    assert asyncio.run(look()) == {"waiting"}


def test_one_that_cannot_be_read_is_a_row_too(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        begin(storage, "asks", "ends")
        with storage.checkpointer.cursor() as cursor:
            cursor.execute("UPDATE checkpoints SET checkpoint = x'00' WHERE thread_id = 'asks'")
        # A list need not read a thread whose row is of its newest checkpoint.
        storage.store.delete(("signoff", "rows", "asks"), "row")
        rows = [(row.thread_id, row.condition) for row in storage.threads()]
        assert rows == [("ends", "ended"), ("asks", "unknown")]
        # It may be closed twice.
        storage.close()
