"""Pausing and stopping a run from wherever: another session, another thread, another process; and what the
status of the thread says meanwhile and afterwards."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import StructuredTool

from signoff import (
    Decision,
    Ended,
    Graph,
    Paused,
    Question,
    Session,
    Storage,
    ThreadError,
    build_graph,
    delegate,
    go_on,
    postgres_storage,
    sqlite_storage,
)
from signoff.models import ScriptedModel, call
from signoff.session import request_pause
from tests.support.interrupting import interrupt_process

TASK: Any = {"messages": [("user", "Do it.")]}
CONFIG: Any = {"configurable": {"thread_id": "t"}}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return str(tmp_path / "t.sqlite")


def storage_at(where: str) -> Storage:
    return postgres_storage(where) if where.startswith("postgres") else sqlite_storage(where)


class Work:
    """A tool that runs until it is let go, and a graph that calls it and then goes on for long."""

    def __init__(self, folder: Path) -> None:
        self.begun, self.released = folder / "begun", folder / "released"

    def graph(self, storage: Storage | None, last: Any = None) -> Graph:
        begun, released = self.begun, self.released

        def work(number: int) -> str:
            """Work."""
            begun.touch()
            end = time.monotonic() + 30
            while not released.exists():
                assert time.monotonic() < end, "nobody has let it go"
                time.sleep(0.01)
            return f"worked {number}"

        def step(messages: list[Any]) -> Any:
            done = sum(message.type == "tool" for message in messages)
            if done < 3:
                return call("work", number=done)
            return last or call("finish_task", summary="Done.")

        return build_graph(ScriptedModel(step), [work], storage=storage)

    def wait(self) -> None:
        end = time.monotonic() + 30
        while not self.begun.exists():
            assert time.monotonic() < end, "nothing runs"
            time.sleep(0.01)

    def release(self) -> None:
        self.released.touch()


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


class Running:
    """A run, and the decision that it has come to."""

    def __init__(self, run: Callable[[], Decision]) -> None:
        self._found: list[Decision] = []
        self._thread = threading.Thread(target=lambda: self._found.append(run()))
        self._thread.start()

    def decision(self) -> Decision:
        self._thread.join(30)
        (found,) = self._found
        return found


_PROGRAM = """
import sys
from pathlib import Path
from signoff import Session
from tests.door.test_pause_and_stop import Work, storage_at

with storage_at(sys.argv[1]) as storage:
    decision = Session(Work(Path(sys.argv[2])).graph(storage), "t").run("Do it.")
outcome = getattr(decision, "outcome", None)
print(type(decision).__name__, getattr(decision, "by", ""), outcome.reason if outcome else "")
"""


class InProcess(Running):
    def __init__(self, where: str, folder: Path) -> None:
        command = [sys.executable, "-c", _PROGRAM, where, str(folder)]
        root = Path(__file__).parents[2]
        self.process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)

    def said(self) -> str:
        said, _ = self.process.communicate(timeout=60)
        return said.strip()


def test_another_session_pauses_a_run(where: str, work: Work) -> None:
    with storage_at(where) as storage, storage_at(where) as other:
        run = Running(lambda: Session(work.graph(storage), "t").run("Do it."))
        work.wait()
        session = Session(work.graph(other), "t")
        assert session.status().condition == "running"
        assert [row.condition for row in other.threads("running")] == ["running"]
        assert session.pause()
        work.release()
        assert run.decision() == Paused("request")

        assert (session.status().condition, session.status().waits, session.status().outcome) == (
            "paused",
            (),
            None,
        )
        assert [row.thread_id for row in other.threads("paused")] == ["t"]
        assert other.threads("stopped") == other.threads("running") == []
        decision = session.run()
        assert isinstance(decision, Ended)
        assert (decision.outcome.status, session.status().condition) == ("success", "ended")


def test_another_session_stops_a_run(where: str, work: Work) -> None:
    with storage_at(where) as storage, storage_at(where) as other:
        run = Running(lambda: Session(work.graph(storage), "t").run("Do it."))
        work.wait()
        session = Session(work.graph(other), "t")
        assert session.stop() is None
        work.release()
        ended = run.decision()
        assert isinstance(ended, Ended)
        assert (ended.outcome.status, ended.outcome.reason) == ("error", "cancelled")
        assert session.status().outcome == ended.outcome
        with pytest.raises(ThreadError, match="has ended"):
            session.stop()


def test_an_event_loop_pauses_and_stops_a_run(where: str, work: Work) -> None:
    async def program() -> tuple[bool, Decision, Decision]:
        with storage_at(where) as storage, storage_at(where) as other:
            one, two = (Session(work.graph(each), "t") for each in (storage, other))
            run = asyncio.create_task(one.arun("Do it."))
            await asyncio.to_thread(work.wait)
            asked = await two.apause()
            work.release()
            paused = await run
            assert (await two.astatus()).condition == "paused"
            work.begun.unlink()
            work.released.unlink()
            run = asyncio.create_task(one.ago_on())
            await asyncio.to_thread(work.wait)
            assert (await two.astatus()).condition == "running"
            assert await two.astop() is None
            work.release()
            return asked, paused, await run

    asked, paused, ended = asyncio.run(program())
    assert (asked, paused) == (True, Paused("request"))
    assert isinstance(ended, Ended)
    assert ended.outcome.reason == "cancelled"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["pause", "stop"])
def test_a_run_in_another_process(where: str, work: Work, tmp_path: Path, way: str) -> None:
    run = InProcess(where, tmp_path)
    work.wait()
    with storage_at(where) as storage:
        session = Session(work.graph(storage), "t")
        assert session.status().condition == "running"
        assert (session.pause() if way == "pause" else session.stop()) == (True if way == "pause" else None)
        work.release()
        assert run.said() == ("Paused request" if way == "pause" else "Ended  cancelled")
        assert session.status().condition == ("paused" if way == "pause" else "ended")
        decision = session.run(go_on())
        assert isinstance(decision, Ended)
        assert decision.outcome.status == "success"


@pytest.mark.slow
def test_a_run_that_was_killed_is_stopped(where: str, work: Work, tmp_path: Path) -> None:
    run = InProcess(where, tmp_path)
    work.wait()
    run.process.kill()
    run.process.communicate()
    work.release()
    with storage_at(where) as storage:
        session = Session(work.graph(storage), "t")
        end = time.monotonic() + 20
        while session.status().condition == "running":
            assert time.monotonic() < end, "the lock of a dead process"
            time.sleep(0.05)
        assert session.status().condition == "stopped"
        assert [row.thread_id for row in storage.threads("stopped")] == ["t"]
        assert not session.pause()


def team(member: Graph, storage: Storage) -> Graph:
    lead = [call("member", task="work"), call("finish_task", summary="Both.")]
    tool = delegate("member", member, description="Works.")
    return build_graph(ScriptedModel(lead), [tool], storage=storage)


WAYS: dict[str, Callable[[Graph], Any]] = {
    "Session.run": lambda graph: Session(graph, "t").run(),
    "Session.go_on": lambda graph: Session(graph, "t").go_on(),
    "invoke(go_on())": lambda graph: graph.invoke(go_on(), CONFIG),
    "invoke(None)": lambda graph: graph.invoke(None, CONFIG),
    "invoke(a message)": lambda graph: graph.invoke(TASK, CONFIG),
    "ainvoke(go_on())": lambda graph: asyncio.run(graph.ainvoke(go_on(), CONFIG)),
}


@pytest.mark.parametrize("way", WAYS)
def test_whoever_goes_on_takes_the_pause_away(where: str, work: Work, way: str) -> None:
    """Also where nothing new of the thread itself is saved before it is interrupted: its delegate works."""

    def interrupted(number: int) -> str:
        """Work."""
        interrupt_process()
        return ""

    with storage_at(where) as storage:
        session = Session(team(work.graph(None), storage), "t")
        run = Running(lambda: session.run("Do it."))
        work.wait()
        assert session.pause()
        work.release()
        assert run.decision() == Paused("pause")
        assert session.status().condition == "paused"

        tools = [StructuredTool.from_function(interrupted, name="work")]
        member = build_graph(ScriptedModel(lambda _: call("work", number=2)), tools)
        with pytest.raises(KeyboardInterrupt):
            WAYS[way](team(member, storage))
        assert session.status().condition == "stopped"


def test_a_stop_in_the_last_step_before_a_question_ends_the_task(where: str, work: Work) -> None:
    with storage_at(where) as storage, storage_at(where) as other:
        graph = work.graph(storage, call("ask_user", question="Which?"))
        other_session = Session(work.graph(other), "t")
        events = Session(graph, "t").events("Do it.")
        work.release()
        for event in events:
            if type(event).__name__ == "Said" and event.calls[0].name == "ask_user":  # type: ignore[union-attr]
                assert other_session.stop() is None
        decided: Any = event
        assert isinstance(decided.decision, Ended)
        assert decided.decision.outcome.reason == "cancelled"


def test_a_pause_in_the_last_step_before_a_question_leaves_the_question(where: str, work: Work) -> None:
    with storage_at(where) as storage, storage_at(where) as other:
        graph = work.graph(storage, call("ask_user", question="Which?"))
        other_session = Session(work.graph(other), "t")
        work.release()
        for event in Session(graph, "t").events("Do it."):
            if type(event).__name__ == "Said" and event.calls[0].name == "ask_user":  # type: ignore[union-attr]
                assert other_session.pause()
        decision = Session(graph, "t").run()
        assert isinstance(decision, Question)
        assert other_session.status().condition == "waiting"


def test_a_run_of_delegates_is_paused_and_stopped(where: str, work: Work) -> None:
    with storage_at(where) as storage, storage_at(where) as other:
        run = Running(lambda: Session(team(work.graph(None), storage), "t").run("Do it."))
        work.wait()
        session = Session(team(work.graph(None), other), "t")
        assert session.pause()
        work.release()
        assert run.decision() == Paused("request")
        assert session.status().condition == "paused"
        ended = session.stop()
        assert isinstance(ended, Ended)
        assert ended.outcome.reason == "cancelled"


def test_nothing_runs_to_be_paused(where: str, work: Work) -> None:
    work.release()
    with storage_at(where) as storage:
        session = Session(work.graph(storage), "t")
        assert not session.pause()
        assert session.status().condition == "unknown"
        session.run("Do it.")
        assert not session.pause()
        assert session.status().condition == "ended"


async def _last(items: Any) -> Any:
    return [item async for item in items][-1]


PLAIN: dict[str, Callable[[Graph], Any]] = {
    "invoke": lambda graph: graph.invoke(TASK, CONFIG),
    "stream": lambda graph: [*graph.stream(TASK, CONFIG, stream_mode="values")][-1],
    "ainvoke": lambda graph: asyncio.run(graph.ainvoke(TASK, CONFIG)),
    "astream": lambda graph: asyncio.run(_last(graph.astream(TASK, CONFIG, stream_mode="values"))),
}


@pytest.mark.parametrize("how", PLAIN)
@pytest.mark.parametrize("asked", ["pause", "stop"])
def test_a_run_that_no_session_drives_is_reached(how: str, asked: str, where: str, work: Work) -> None:
    with storage_at(where) as storage:
        graph = work.graph(storage)
        run = Running(lambda: PLAIN[how](graph))
        work.wait()
        other = Session(work.graph(storage), "t")
        assert other.pause() if asked == "pause" else other.stop() is None
        # The storage is read a few times a second.
        time.sleep(0.3)
        work.release()
        result: Any = run.decision()
        status = other.status()
        if asked == "stop":
            assert result["outcome"]["reason"] == status.outcome.reason == "cancelled"  # type: ignore[union-attr]
            return
        assert (result.get("outcome"), status.condition) == (None, "paused")
        assert graph.invoke(go_on(), CONFIG)["outcome"]["status"] == "success"


def test_what_was_asked_of_an_earlier_run_is_not_meant_for_the_next(where: str, work: Work) -> None:
    work.release()
    with storage_at(where) as storage:
        request_pause(storage.store, "t")
        assert work.graph(storage).invoke(TASK, CONFIG)["outcome"]["status"] == "success"
