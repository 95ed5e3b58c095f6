"""Two processes answer the same wait at the same moment: one answer counts, and the other process is told."""

import multiprocessing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage

from signoff import Ended, Session, StorageError, ThreadError, build_graph
from signoff.models import ScriptedModel, call
from tests.support.databases import storage_at

ROUNDS = 5
SCRIPT = call("ask_user", question="Which?"), call("finish_task", summary="Done.")
FORKS: Any = multiprocessing.get_context("fork")


def session_on(storage: Any, thread: str) -> Session[Any]:
    def step(messages: Sequence[BaseMessage]) -> Any:
        return SCRIPT[sum(isinstance(message, AIMessage) for message in messages)]

    return Session(build_graph(ScriptedModel(step), storage=storage), thread)


def answer(database: str, thread: str, text: str, barrier: Any, came: Any) -> None:
    """In a process of its own: tells what came of its answer."""
    with storage_at(database) as storage:
        session = session_on(storage, thread)
        barrier.wait(60)
        try:
            came.put("won" if isinstance(session.resume(text), Ended) else "waits")
        except ThreadError:
            came.put("refused")
        except StorageError:
            # The database did not answer in time: an error, and nothing may be lost.
            came.put("cut off")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.thorough)])
def test_one_of_two_processes_wins(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    database = request.getfixturevalue("postgres_url") if kind == "postgresql" else str(tmp_path / "t.sqlite")
    for number in range(ROUNDS):
        thread, barrier, came = f"race {number}", FORKS.Barrier(2), FORKS.Queue()
        with storage_at(database) as storage:
            session_on(storage, thread).run("do it")
        given = [(database, thread, text, barrier, came) for text in ("red", "blue")]
        racers = [FORKS.Process(target=answer, args=args, daemon=True) for args in given]
        for racer in racers:
            racer.start()
        ends = sorted(came.get(timeout=60) for _ in racers)
        for racer in racers:
            racer.join(60)
        with storage_at(database) as storage:
            if ends == ["cut off", "refused"]:
                session_on(storage, thread).resume("red")
                ends = ["refused", "won"]
            messages = session_on(storage, thread).status().values["messages"]
        assert ends in (["refused", "won"], ["cut off", "won"])
        assert [m.text in ("red", "blue") for m in messages if m.name == "ask_user"] == [True]
