"""The threads of a storage, as rows: what a program lists, and what else a storage offers."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from signoff import (
    Approval,
    Ended,
    Graph,
    Question,
    Session,
    SetupError,
    Storage,
    StorageError,
    ThreadBusy,
    build_graph,
    postgres_storage,
    sqlite_storage,
)
from signoff.models import ScriptedModel, call

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

    return build_graph(
        ScriptedModel(step), [pay], approvals={"pay": True}, storage=storage, limits={"turns": 3}
    )


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "postgres":
        opened: Storage = postgres_storage(request.getfixturevalue("postgres_url"))
    else:
        opened = sqlite_storage(tmp_path / "t.sqlite")
    with opened:
        yield opened


def begin(storage: Storage, *tasks: str) -> None:
    for task in tasks:
        Session(graph_on(storage), task.split()[0]).run(task)


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


def test_the_waits_are_those_of_the_status(storage: Storage) -> None:
    begin(storage, "asks", "pays")
    for row in storage.threads("waiting"):
        status = Session(graph_on(storage), row.thread_id).status()
        assert (row.waits, row.condition, row.changed) == (status.waits, status.condition, status.changed)
        (wait,) = row.waits
        match wait:
            case Question(text=text):
                assert (text, wait.read(2)) == ("Which?", "green")
            case Approval(calls=(pending,)):
                assert (pending.name, dict(pending.args)) == ("pay", {"amount": 3})
        assert wait.document()["interrupt_id"] == wait.interrupt_id
        decision = Session(graph_on(storage), row.thread_id).resume("approve", wait.interrupt_id)
        assert isinstance(decision, Ended)
    assert storage.threads("waiting") == []
    assert len(storage.threads("ended")) == 2


def test_pages(storage: Storage) -> None:
    begin(storage, "asks", "pays", "ends", "talks")
    everything = storage.threads()
    first = storage.threads(limit=3)
    rest = storage.threads(before=first[-1].cursor)
    assert ([*first, *rest], len(rest)) == (everything, 1)
    assert storage.threads(before=rest[-1].cursor) == []
    (one,) = storage.threads("waiting", limit=1)
    (two,) = storage.threads("waiting", limit=1, before=one.cursor)
    assert [one.thread_id, two.thread_id] == ["pays", "asks"]
    # A thread that changes meanwhile is at the top; a page does not show it twice.
    Session(graph_on(storage), "asks").resume("red")
    assert [row.thread_id for row in storage.threads()] == ["asks", "talks", "ends", "pays"]
    assert [row.thread_id for row in storage.threads(before=first[-1].cursor)] == []


@pytest.mark.parametrize("condition", ["unknown", "running", "waiting", "paused", "stopped", "ended"])
def test_every_condition_can_be_asked_for(storage: Storage, condition: str) -> None:
    begin(storage, "asks", "ends")
    expected = {"waiting": ["asks"], "ended": ["ends"]}.get(condition, [])
    assert [row.thread_id for row in storage.threads(condition)] == expected
    assert [row.thread_id for row in asyncio.run(storage.athreads(condition, limit=5))] == expected


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a status": ({"condition": "success"}, "condition"),
    "no word": ({"condition": 3}, "condition"),
    "a list": ({"condition": ["waiting"]}, "condition"),
    "none": ({"limit": 0}, "limit"),
    "less than none": ({"limit": -1}, "limit"),
    "a truth": ({"limit": True}, "limit"),
    "text": ({"limit": "10"}, "limit"),
    "no cursor": ({"before": "yesterday"}, "before"),
    "an empty cursor": ({"before": ""}, "before"),
    "a row": ({"before": 3}, "before"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_named(storage: Storage, case: str) -> None:
    options, name = WRONG[case]
    with pytest.raises(SetupError, match=rf"threads\({name}=\)"):
        storage.threads(**options)


def test_a_thread_is_held_and_deleted(storage: Storage) -> None:
    begin(storage, "asks", "ends")
    with storage.runner("asks"):
        assert [row.thread_id for row in storage.threads("running")] == ["asks"]
        (row,) = storage.threads("running")
        assert (row.waits, row.outcome, row.task) == ((), None, "asks")
        assert Session(graph_on(storage), "asks").status().condition == "running"
        with pytest.raises(ThreadBusy):
            Session(graph_on(storage), "asks").resume("red")
        with pytest.raises(ThreadBusy):
            storage.delete("asks")
    storage.delete("asks")
    storage.delete("no such thread")
    assert [row.thread_id for row in storage.threads()] == ["ends"]
    for act in (storage.runner, storage.delete):
        with pytest.raises(SetupError):
            act("")


def test_many_who_look_at_once_do_not_take_each_other_for_a_runner(storage: Storage) -> None:
    begin(storage, "asks")
    session = Session(graph_on(storage), "asks")

    async def look() -> set[str]:
        return {
            str(found.condition) for found in await asyncio.gather(*(session.astatus() for _ in range(60)))
        }

    assert asyncio.run(look()) == {"waiting"}


def test_swap_compares_and_sets(storage: Storage) -> None:
    place = (("mine",), "seats")
    assert storage.swap(*place, None, {"free": 2})
    assert not storage.swap(*place, None, {"free": 9})
    assert storage.swap(*place, {"free": 2}, {"free": 1})
    assert not storage.swap(*place, {"free": 2}, {"free": 0})
    item = storage.store.get(*place)
    assert item is not None
    assert item.value == {"free": 1}


def test_a_storage_is_open_when_it_is_made_and_closes_once(storage: Storage) -> None:
    begin(storage, "asks")
    graph = graph_on(storage)
    storage.close()
    storage.close()
    for act in (
        storage.threads,
        lambda: storage.swap(("mine",), "seats", None, {}),
        Session(graph, "asks").status,
    ):
        with pytest.raises(StorageError):
            act()


def test_one_that_cannot_be_read_is_a_row_too(tmp_path: Path) -> None:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        begin(storage, "asks", "ends")
        with storage.checkpointer.cursor() as cursor:
            cursor.execute("UPDATE checkpoints SET checkpoint = x'00' WHERE thread_id = 'asks'")
        assert [(row.thread_id, row.condition) for row in storage.threads()] == [
            ("ends", "ended"),
            ("asks", "unknown"),
        ]
