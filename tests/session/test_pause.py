"""The driver of a thread: pause, stop, and leaving its events."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool

from signoff import (
    Failed,
    Finished,
    Paused,
    Retry,
    Session,
    ThreadBusy,
    ThreadError,
    request_pause,
)
from signoff.models import call
from signoff.session.events import CallFinished, Said
from tests.random_kills import storage_at
from tests.support.benches.session import DONE, Bench, kinds, look


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    where = request.getfixturevalue("postgres_url") if request.param == "postgres" else tmp_path / "t.sqlite"
    with storage_at(str(where)) as storage:
        yield Bench(storage)


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    return thread, found


class TestPause:
    def slow(self, bench: Bench, entered: threading.Event, go: threading.Event, **options: Any) -> Session:
        @tool
        def wait() -> str:
            """Wait."""
            entered.set()
            assert go.wait(20)
            return "waited"

        return bench(call("wait"), call("look", where="x"), DONE, tools=[wait, look], **options)

    @pytest.mark.parametrize("by", ["pause", "request"])
    def test_a_run_stops_at_the_next_boundary_and_goes_on(self, bench: Bench, by: str) -> None:
        entered, go = threading.Event(), threading.Event()
        session = self.slow(bench, entered, go)
        thread, found = in_thread(lambda: session.run("do it"))
        assert entered.wait(20)
        if by == "pause":
            assert session.pause()
        else:
            request_pause(bench.storage.store, "t")
        go.set()
        thread.join(20)
        assert found == [Paused(by)]
        texts = [m.text for m in session.status().values["messages"] if m.type == "tool"]
        assert texts == ["waited"]
        assert isinstance(session.run(), Finished)

    def test_a_request_for_nobody_pauses_nothing(self, bench: Bench) -> None:
        session = bench(DONE)
        assert not session.pause()
        request_pause(bench.storage.store, "t")
        assert isinstance(session.run("do it"), Finished)

    def test_stop_ends_the_task(self, bench: Bench) -> None:
        entered, go = threading.Event(), threading.Event()
        session = self.slow(bench, entered, go)
        thread, found = in_thread(lambda: session.run("do it"))
        assert entered.wait(20)
        assert session.stop() is None
        go.set()
        thread.join(20)
        (failed,) = found
        assert isinstance(failed, Failed)
        assert (failed.outcome.reason, failed.outcome.turns) == ("cancelled", 1)
        assert isinstance(session.run(Retry()), Finished)

    @pytest.mark.parametrize("kind", ["ask_user", "pay", "run"])
    def test_stop_while_something_waits(self, bench: Bench, kind: str) -> None:
        arguments: dict[str, dict[str, Any]] = {
            "ask_user": {"question": "?"},
            "pay": {"amount": 3},
            "run": {"command": "x"},
        }
        session = bench(call(kind, args=arguments[kind]), DONE, approvals={"pay": True}, hand_over=["run"])
        session.run("do it")
        failed = session.stop()
        assert isinstance(failed, Failed)
        assert failed.outcome.reason == "cancelled"
        answered = {m.tool_call_id for m in session.status().values["messages"] if m.type == "tool"}
        assert len(answered) == 1

    def test_one_run_a_session_and_one_a_thread(self, bench: Bench) -> None:
        entered, go = threading.Event(), threading.Event()
        session = self.slow(bench, entered, go)
        thread, found = in_thread(lambda: session.run("do it"))
        assert entered.wait(20)
        with pytest.raises(ThreadError, match="running its thread already"):
            session.run()
        with pytest.raises(ThreadBusy, match="'t' is running elsewhere"):
            bench(DONE).run()
        with pytest.raises(ThreadBusy):
            asyncio.run(bench(DONE).arun("more"))
        go.set()
        thread.join(20)
        assert kinds(found) == ["Finished"]


def test_leaving_the_events_stops_the_run_and_frees_the_thread(bench: Bench) -> None:
    session = bench(call("look", where="x"), DONE)
    events = session.events("do it")
    for event in events:
        if isinstance(event, CallFinished):
            break
    events.close()  # type: ignore[attr-defined]  # a generator
    assert isinstance(session.run(), Finished)


async def test_leaving_the_async_events_frees_the_thread(bench: Bench) -> None:
    session = bench(call("look", where="x"), DONE)
    events = session.aevents("do it")
    async for event in events:
        if isinstance(event, Said):
            break
    await events.aclose()  # type: ignore[attr-defined]  # a generator
    assert isinstance(await session.arun(), Finished)
