"""Questions with a deadline: their default is taken when nobody answers in time, without a model."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from signoff import Finished, Question, Session, ThreadBusy, build_graph, expire, sqlite_storage
from signoff.models import ScriptedModel, call
from signoff.session.status import reading_graph
from signoff.storage.sqlite import SqliteStorage


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "t.sqlite") as storage:
        yield storage


def asking(storage: SqliteStorage, **arguments: Any) -> tuple[Session, Question]:
    script = [call("ask_user", question="Which?", **arguments), call("finish_task", summary="Done.")]
    session = Session(build_graph(ScriptedModel(script), storage=storage), "t")
    asked = session.run("do it")
    assert isinstance(asked, Question)
    return session, asked


DEADLINES: list[tuple[dict[str, Any], float, str | None]] = [
    ({"default_answer": "blue", "deadline_seconds": 60}, 61, "blue"),
    ({"default_answer": "blue", "deadline_seconds": 60}, 30, None),
    ({"default_answer": "blue"}, 1e9, None),
    ({"deadline_seconds": 60}, 61, "(nobody answered in time)"),
    ({}, 1e9, None),
]


@pytest.mark.parametrize("case", DEADLINES, ids=str)
def test_the_default_is_taken_after_the_deadline(storage: SqliteStorage, case: Any) -> None:
    arguments, later, answer = case
    session, asked = asking(storage, **arguments)
    found = expire(reading_graph(storage), "t", time.time() + later)
    assert (found and found.answer) == answer
    if answer is None:
        assert session.run() == asked
        return
    assert session.status().waiting is None
    end = session.run()
    assert isinstance(end, Finished)
    (told,) = [message.text for message in session.status().values["messages"] if message.name == "ask_user"]
    assert told == answer
    assert expire(session.graph, "t", 1e12) is None


def test_a_running_thread_is_left_alone(storage: SqliteStorage) -> None:
    asking(storage, deadline_seconds=1)
    with storage.checkpointer.runner("t"), pytest.raises(ThreadBusy):
        expire(reading_graph(storage), "t", 1e12)


def test_an_unknown_thread_has_no_question(storage: SqliteStorage) -> None:
    assert expire(reading_graph(storage), "nobody") is None
    assert storage.threads() == []
