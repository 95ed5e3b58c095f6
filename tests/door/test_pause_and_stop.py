"""Pausing and stopping a run from another session, on connections of its own, and what the status says
meanwhile and afterwards. tests/cli/test_process.py does so from another process."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
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
from tests.support.ways import SESSION_WAYS, WAYS


class Work:
    """A graph that calls a tool until it is let go, and then goes on; and a session that looks on."""

    def __init__(self, storage: Any, other: Any) -> None:
        self.storage, self.other_storage = storage, other
        self.begun, self.released = Event(), Event()
        self.other = Session(self.graph(other), "t")

    def graph(self, storage: Any, last: Any = FINISH, calls: int = 3) -> Graph:
        def work(number: int) -> str:
            """Work."""
            self.begun.set()
            assert self.released.wait(60)
            return f"worked {number}"

        def step(messages: list[Any]) -> Any:
            done = sum(message.type == "tool" for message in messages)
            return call("work", number=done) if done < calls else last

        return build_graph(ScriptedModel(step), [work], storage=storage, limits={"turns": 2_000})

    def starts(self, run: Callable[[], Any]) -> Future[Any]:
        """The run in a thread, once the tool runs."""
        future = ThreadPoolExecutor(1).submit(run)
        assert self.begun.wait(60)
        return future


@pytest.fixture
def work(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Work]:
    is_postgres = getattr(request, "param", "sqlite") == "postgres"
    address = str(request.getfixturevalue("postgres_url") if is_postgres else tmp_path / "t.sqlite")
    with storage_at(address) as storage, storage_at(address) as other:
        yield Work(storage, other)


def conditions(work: Work) -> set[str]:
    """Where the thread stands, as its status and the rows of the storage say."""
    return {str(work.other.status().condition), *(str(row.condition) for row in work.other_storage.threads())}


RUNS = [
    ("sqlite", "Session.run", "pause"),
    ("sqlite", "stream", "stop"),
    ("sqlite", "ainvoke", "pause"),
    pytest.param("postgres", "Session.aevents", "stop", marks=pytest.mark.slow),
    pytest.param("postgres", "invoke", "pause", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("work", "way", "asked"), RUNS, indirect=["work"])
def test_another_session_pauses_or_stops_a_run(work: Work, way: str, asked: str) -> None:
    # One that no session drives asks the storage a few times a second, and would have work for longer.
    graph, given = work.graph(work.storage, calls=1_000), "Do it." if way in SESSION_WAYS else GO
    run = work.starts(lambda: WAYS[way](graph, given, THREAD))
    assert conditions(work) == {"running"}
    is_async = way in ("ainvoke", "Session.aevents")
    told = asyncio.run(getattr(work.other, f"a{asked}")()) if is_async else getattr(work.other, asked)()
    assert told is (True if asked == "pause" else None)
    work.released.set()
    outcome, status = run.result(60).get("outcome"), work.other.status()
    if asked == "pause":
        assert (outcome, status.outcome, status.waits, conditions(work)) == (None, None, (), {"paused"})
    else:
        assert (outcome["reason"], conditions(work)) == ("cancelled", {"ended"})
        assert status.outcome is not None
        assert status.outcome.reason == "cancelled"
        with pytest.raises(ThreadError):
            work.other.stop()
    ended = work.graph(work.storage, calls=0).invoke(go_on(), THREAD)
    assert (ended["outcome"]["status"], conditions(work)) == ("success", {"ended"})


GOES_ON: dict[str, Callable[[Graph], Any]] = {
    "go_on()": lambda graph: graph.invoke(go_on(), THREAD),
    "None": lambda graph: graph.invoke(None, THREAD),
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
    work.released.set()
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
    work.released.set()
    session = Session(work.graph(work.storage, ASK), "t")
    for event in session.events("Do it."):
        if isinstance(event, Said) and event.calls[0].name == "ask_user":
            getattr(work.other, asked)()
    decision = session.run()
    if asked == "stop":
        assert isinstance(decision, Ended)
        assert decision.outcome.reason == "cancelled"
    else:
        assert isinstance(decision, Question)
        assert conditions(work) == {"waiting"}


def test_a_pause_is_for_what_runs_and_not_for_the_next_run(work: Work) -> None:
    work.released.set()
    assert not work.other.pause()
    assert work.other.status().condition == "unknown"
    request_pause(work.storage.store, "t")
    assert work.graph(work.storage).invoke(GO, THREAD)["outcome"]["status"] == "success"
    assert not work.other.pause()
    assert conditions(work) == {"ended"}
