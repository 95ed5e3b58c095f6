"""Pausing and stopping a run from wherever: another session, another thread, another process; and what the
status of the thread says meanwhile and afterwards."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import StructuredTool

from signoff import Ended, Graph, Paused, Question, Session, ThreadError, build_graph, delegate, go_on
from signoff.events import Said
from signoff.models import ScriptedModel, call
from signoff.session import request_pause
from tests.support.databases import storage_at
from tests.support.interrupting import interrupt_process
from tests.support.plays import ASK, FINISH, GO, THREAD
from tests.support.ways import WAYS

ROOT = Path(__file__).parents[2]


def until(condition: Callable[[], Any], failing: str) -> None:
    for _ in range(6_000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError(failing)


class Work:
    """A graph that calls a tool until it is let go, and then goes on; a session that runs it, and one with
    connections of its own that looks on."""

    def __init__(self, storage: Any, other: Any, folder: Path) -> None:
        self.storage, self.other_storage = storage, other
        self.begun, self.released = folder / "begun", folder / "released"
        self.session, self.other = (Session(self.graph(each), "t") for each in (storage, other))

    def graph(self, storage: Any, last: Any = FINISH, calls: int = 3) -> Graph:
        def work(number: int) -> str:
            """Work."""
            self.begun.touch()
            until(self.released.exists, "nobody has let it go")
            return f"worked {number}"

        def step(messages: list[Any]) -> Any:
            done = sum(message.type == "tool" for message in messages)
            return call("work", number=done) if done < calls else last

        return build_graph(ScriptedModel(step), [work], storage=storage, limits={"turns": 2_000})

    def starts(self, run: Callable[[], Any]) -> Future[Any]:
        """The run in a thread, once the tool runs."""
        future = ThreadPoolExecutor(1).submit(run)
        self.is_at_work()
        return future

    def is_at_work(self) -> None:
        until(self.begun.exists, "nothing runs")

    def release(self) -> None:
        self.released.touch()


@contextmanager
def working(address: str, folder: Path) -> Iterator[Work]:
    with storage_at(address) as storage, storage_at(address) as other:
        yield Work(storage, other, folder)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    is_postgres = request.param == "postgres"
    return str(request.getfixturevalue("postgres_url") if is_postgres else tmp_path / "t.sqlite")


@pytest.fixture
def work(address: str, tmp_path: Path) -> Iterator[Work]:
    with working(address, tmp_path) as opened:
        yield opened


def reason(decision: Any) -> str:
    assert isinstance(decision, Ended)
    return decision.outcome.reason


def conditions(work: Work) -> set[str]:
    """Where the thread stands, as its status and the rows of the storage say."""
    return {str(work.other.status().condition), *(str(row.condition) for row in work.other_storage.threads())}


def test_another_session_pauses_a_run(work: Work) -> None:
    run = work.starts(lambda: work.session.run("Do it."))
    assert conditions(work) == {"running"}
    assert work.other.pause()
    work.release()
    assert run.result(60) == Paused("request")
    status = work.other.status()
    assert (conditions(work), status.waits, status.outcome) == ({"paused"}, (), None)
    assert (reason(work.other.run()), conditions(work)) == ("finish_task", {"ended"})


def test_another_session_stops_a_run(work: Work) -> None:
    run = work.starts(lambda: work.session.run("Do it."))
    assert work.other.stop() is None
    work.release()
    ended = run.result(60)
    assert (reason(ended), work.other.status().outcome) == ("cancelled", ended.outcome)
    with pytest.raises(ThreadError):
        work.other.stop()


def test_an_event_loop_pauses_and_stops_a_run(work: Work) -> None:
    async def program() -> None:
        run = asyncio.create_task(work.session.arun("Do it."))
        await asyncio.to_thread(work.is_at_work)
        assert await work.other.apause()
        work.release()
        assert await run == Paused("request")
        assert (await work.other.astatus()).condition == "paused"
        work.begun.unlink()
        work.released.unlink()
        run = asyncio.create_task(work.session.ago_on())
        await asyncio.to_thread(work.is_at_work)
        assert await work.other.astop() is None
        work.release()
        assert reason(await run) == "cancelled"

    asyncio.run(program())


PROGRAM = """
import sys
from pathlib import Path
from tests.door.test_pause_and_stop import working

with working(sys.argv[1], Path(sys.argv[2])) as work:
    decision = work.session.run("Do it.")
print(getattr(decision, "by", "") or decision.outcome.reason)
"""


@contextmanager
def in_process(work: Work, address: str, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", PROGRAM, address, str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            work.is_at_work()
            yield process
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(("way", "told"), [("pause", "request"), ("stop", "cancelled")])
def test_a_run_in_another_process(work: Work, address: str, tmp_path: Path, way: str, told: str) -> None:
    with in_process(work, address, tmp_path) as process:
        assert conditions(work) == {"running"}
        assert getattr(work.other, way)() is (True if way == "pause" else None)
        work.release()
        assert process.communicate(timeout=60)[0].strip() == told
    assert conditions(work) == {"paused" if way == "pause" else "ended"}
    assert reason(work.other.run(go_on())) == "finish_task"


@pytest.mark.slow
def test_a_run_that_was_killed_is_stopped(work: Work, address: str, tmp_path: Path) -> None:
    with in_process(work, address, tmp_path):
        pass
    until(lambda: work.other.status().condition != "running", "the lock of a dead process")
    assert conditions(work) == {"stopped"}
    assert not work.other.pause()


GOES_ON: dict[str, Callable[[Graph], Any]] = {
    "Session.run": lambda graph: Session(graph, "t").run(),
    "go_on()": lambda graph: graph.invoke(go_on(), THREAD),
    "None": lambda graph: graph.invoke(None, THREAD),
    "a message": lambda graph: graph.invoke(GO, THREAD),
}


@pytest.mark.parametrize("name", GOES_ON)
def test_whoever_goes_on_takes_the_pause_away(work: Work, name: str) -> None:
    """Also where nothing new of the thread itself is saved before it is interrupted: its delegate works."""

    def team(member: Graph) -> Graph:
        script = [call("member", task="work"), FINISH]
        tool = delegate("member", member, description="Works.")
        return build_graph(ScriptedModel(script), [tool], storage=work.storage)

    def interrupted(number: int) -> str:
        """Work."""
        interrupt_process()
        return ""

    session = Session(team(work.graph(None)), "t")
    run = work.starts(lambda: session.run("Do it."))
    assert session.pause()
    work.release()
    assert isinstance(run.result(60), Paused)
    assert conditions(work) == {"paused"}
    tools = [StructuredTool.from_function(interrupted, name="work")]
    with pytest.raises(KeyboardInterrupt):
        GOES_ON[name](team(build_graph(ScriptedModel(lambda _: call("work", number=2)), tools)))
    assert conditions(work) == {"stopped"}


@pytest.mark.parametrize("asked", ["pause", "stop"])
def test_in_the_last_step_before_a_question_a_stop_ends_the_task_and_a_pause_leaves_it(
    work: Work, asked: str
) -> None:
    work.release()
    session = Session(work.graph(work.storage, ASK), "t")
    for event in session.events("Do it."):
        if isinstance(event, Said) and event.calls[0].name == "ask_user":
            getattr(work.other, asked)()
    decision = session.run()
    if asked == "stop":
        assert reason(decision) == "cancelled"
    else:
        assert isinstance(decision, Question)
        assert conditions(work) == {"waiting"}


def test_nothing_runs_to_be_paused(work: Work) -> None:
    work.release()
    assert not work.session.pause()
    assert work.session.status().condition == "unknown"
    work.session.run("Do it.")
    assert not work.session.pause()
    assert conditions(work) == {"ended"}


@pytest.mark.parametrize(
    ("way", "asked"), [("invoke", "pause"), ("stream", "stop"), ("ainvoke", "stop"), ("astream", "pause")]
)
def test_a_run_that_no_session_drives_is_reached(work: Work, way: str, asked: str) -> None:
    # It asks the storage a few times a second, and would have work for longer.
    graph = work.graph(work.storage, calls=1_000)
    run = work.starts(lambda: WAYS[way](graph, GO, THREAD))
    getattr(work.other, asked)()
    work.release()
    outcome = run.result(60).get("outcome")
    if asked == "stop":
        assert outcome["reason"] == "cancelled"
        return
    assert (outcome, conditions(work)) == (None, {"paused"})
    assert work.graph(work.storage, calls=0).invoke(go_on(), THREAD)["outcome"]["status"] == "success"


def test_what_was_asked_of_an_earlier_run_is_not_meant_for_the_next(work: Work) -> None:
    work.release()
    request_pause(work.storage.store, "t")
    assert work.graph(work.storage).invoke(GO, THREAD)["outcome"]["status"] == "success"
