"""A stream that ends early: the provider sees it, and a user's stop leaves nothing behind."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from signoff import Decision, Failed, Finished, Paused, Question, Session, build_graph, sqlite_storage
from signoff.graph.history.received import received as whole
from signoff.graph.kinds import Effect
from signoff.graph.machine import State
from signoff.graph.messages import is_answer, is_reply
from signoff.models import ScriptedModel, call
from signoff.models.local import LocalChatModel, local_model
from signoff.models.local.install import server_version
from signoff.models.local.weights import missing_packages
from signoff.nodes.model.guard import guarded
from signoff.session.path import steps
from signoff.storage.sqlite import SqliteStorage
from signoff.tools.control import ControlTool
from signoff.tools.toolbox import make_toolbox
from tests.support.servers.slow_server import SlowServer, call_deltas, finishes

ONE = len(finishes(1))
QUESTION = list(call_deltas(0, "ask_user", '{"question": "Which of the two ports should it be?"}'))


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def of(server: SlowServer) -> ChatOpenAI:
    return ChatOpenAI(model="slow", base_url=server.url, api_key=SecretStr("none"), max_retries=0)


async def ask(graph: Any, mode: str) -> dict[str, Any]:
    given = {"messages": ["go"]}
    result: dict[str, Any] = await graph.ainvoke(given) if mode == "async" else graph.invoke(given)
    return result


# A server that streams.


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_the_server_sees_the_connection_close_after_the_first_of_ten_finishes(mode: str) -> None:
    with SlowServer(finishes(10)) as server:
        result = await ask(build_graph(of(server)), mode)
        served = await asyncio.to_thread(server.served.get, timeout=5)
    outcome = result["outcome"]
    assert (outcome["status"], outcome["turns"], outcome["usage"]["estimated"]) == ("success", 1, True)
    assert [len(m.tool_calls) for m in result["messages"] if is_reply(m)] == [1]
    assert served.left
    # The pauses of the server are short, and a busy machine may read late.
    assert ONE < served.chunks < 3 * ONE


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_so_it_does_after_a_question(mode: str, storage: SqliteStorage) -> None:
    with SlowServer([*QUESTION, *[{"content": "word "}] * 200]) as server:
        session = Session(build_graph(of(server), storage=storage), "t")
        asked = await session.arun("go") if mode == "async" else session.run("go")
        served = await asyncio.to_thread(server.served.get, timeout=5)
    assert isinstance(asked, Question)
    assert served.left
    assert len(QUESTION) < served.chunks < 3 * len(QUESTION)


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_a_reply_that_ends_by_itself_is_read_to_its_end(mode: str) -> None:
    thought, finish = ("think", '{"thought": "hm"}'), ("finish_task", '{"summary": "All of it."}')
    with SlowServer([*call_deltas(0, *thought), *call_deltas(1, *finish)]) as server:
        result = await ask(build_graph(of(server)), mode)
        served = await asyncio.to_thread(server.served.get, timeout=5)
    assert result["outcome"]["usage"]["estimated"] is False
    assert (served.left, served.chunks) == (False, len(server.deltas))


# A user's stop. `Session` drains the run with the reason; a pause lets the reply come to its end.

LONG = "word " * 400


def late(event: Callable[[], Any], model: ScriptedModel) -> threading.Thread:
    """Does something when three chunks have come."""

    def wait() -> None:
        while model.chunks_sent < 3:
            time.sleep(0.005)
        event()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def during(session: Session, event: Callable[[], Any], model: ScriptedModel, mode: str) -> Decision:
    """What a run comes to in whose reply something happens."""
    thread = late(event, model)
    decision = asyncio.run(session.arun("go")) if mode == "async" else session.run("go")
    thread.join()
    return decision


def said(session: Session) -> list[str]:
    messages = session.status().values["messages"]
    return [message.type for message in messages if not is_answer(message)]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_stop_ends_the_reply_within_a_chunk_and_nothing_of_it_stays(
    mode: str, storage: SqliteStorage
) -> None:
    model = ScriptedModel([LONG, call("finish_task", summary="All of it.")], delay=0.02)
    session = Session(build_graph(model, storage=storage), "t")
    at = list[int]()

    def stop() -> None:
        at.append(model.chunks_sent)
        assert session.stop() is None

    failed = during(session, stop, model, mode)
    assert isinstance(failed, Failed)
    assert (failed.outcome.reason, failed.outcome.turns) == ("cancelled", 0)
    assert model.chunks_sent <= at[0] + 2
    assert said(session) == ["human"]
    events = [(step.state, step.event) for step in steps(storage.checkpointer, "t")]
    assert (State.CALL_LLM, "stopped") in events
    done = session.retry()
    assert isinstance(done, Finished)
    assert (done.outcome.status, done.outcome.turns) == ("success", 1)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(("by", "kept"), [("signal", ["human"]), ("pause", ["human", "ai"])])
def test_a_signal_ends_the_reply_and_a_pause_lets_it_end(
    by: str, kept: list[str], mode: str, storage: SqliteStorage
) -> None:
    model = ScriptedModel(["word " * 100, call("finish_task", summary="All of it.")], delay=0.02)
    session = Session(build_graph(model, storage=storage), "t")
    assert during(session, lambda: session.pause(by), model, mode) == Paused(by)
    assert said(session) == kept
    assert (model.chunks_sent < 8) == (by == "signal")
    done = session.run()
    assert isinstance(done, Finished)
    assert len(model.seen) == 2


def test_a_stop_cuts_the_connection(storage: SqliteStorage) -> None:
    with SlowServer([{"content": "word "}] * 200) as server:
        session = Session(build_graph(of(server), storage=storage), "t")
        stopper = threading.Timer(0.5, session.stop)
        stopper.start()
        failed, served = session.run("go"), server.served.get(timeout=5)
        stopper.join()
    assert isinstance(failed, Failed)
    assert (failed.outcome.reason, said(session), served.left) == ("cancelled", ["human"], True)
    assert served.chunks < 60


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="the system has no such signal")
def test_a_signal_in_the_middle_of_a_read_pauses_at_the_next_chunk(storage: SqliteStorage) -> None:
    with SlowServer([{"content": "word "}] * 200) as server:
        session = Session(build_graph(of(server), storage=storage), "t")
        before = signal.signal(signal.SIGUSR1, lambda *_: session.pause("signal"))
        sender = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGUSR1))
        try:
            sender.start()
            paused, served = session.run("go"), server.served.get(timeout=5)
            sender.join()
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert (paused, said(session), served.left) == (Paused("signal"), ["human"], True)
        server.deltas = finishes(1)
        done = session.run()
    assert isinstance(done, Finished)
    assert served.chunks < 60


def test_a_reply_that_is_whole_when_the_stop_comes_is_kept(storage: SqliteStorage) -> None:
    class Last(ScriptedModel):
        """Is told to stop just before its last chunk, which says how the reply ended."""

        def _stream(self, *args: Any, **kwargs: Any) -> Any:
            chunks = list(super()._stream(*args, **kwargs))
            yield from chunks[:-1]
            session.pause("signal")
            yield chunks[-1]

    session = Session(
        build_graph(Last(script=[call("finish_task", summary="All of it.")]), storage=storage), "t"
    )
    assert session.run("go") == Paused("signal")
    assert said(session) == ["human", "ai"]
    assert isinstance(session.run(), Finished)


# The embedded model.


@tool
def read_file(path: str) -> str:
    """Read a text file."""
    return path


def figures(model: LocalChatModel) -> dict[str, float]:
    """What the server has generated, and what it works on."""
    endpoint = model.start()
    text = httpx.get(f"{endpoint.url}/metrics", headers=endpoint.headers, trust_env=False).text
    rows = [row.split() for row in text.splitlines() if not row.startswith("#")]
    counts = {name.removeprefix("llamacpp:"): float(value) for name, value in rows}
    return {
        name: counts[name] for name in ("n_decode_total", "tokens_predicted_total", "requests_processing")
    }


def read(*paths: str) -> AIMessage:
    return AIMessage(
        "", tool_calls=[{"name": "read_file", "args": {"path": path}, "id": path} for path in paths]
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(
    server_version() is None or bool(missing_packages()), reason="the extra signoff[local] is not installed"
)
@pytest.mark.thorough
def test_the_embedded_model_stops_generating_when_its_reply_is_cut(figure: Callable[[str], None]) -> None:
    # The model makes many calls of this tool in one reply; here the first of them ends the run.
    controls = make_toolbox([], [ControlTool(read_file, Effect.FINISH)])
    history = [
        SystemMessage("You may make several calls in one reply."),
        HumanMessage("Read c.txt and d.txt"),
        read("c.txt", "d.txt"),
        ToolMessage("one", tool_call_id="c.txt"),
        ToolMessage("two", tool_call_id="d.txt"),
        HumanMessage("Read a.txt, b.txt, e.txt, f.txt, g.txt, h.txt, i.txt and j.txt"),
    ]
    with local_model(max_tokens=400) as model:
        model.start()
        # Other tests of this process may have used the same server.
        before = figures(model)["tokens_predicted_total"]
        message = whole(list(guarded(model, controls).bind_tools([read_file]).stream(history)))
        time.sleep(1)
        first = figures(model)
        time.sleep(3)
        assert figures(model) == first
        assert first["requests_processing"] == 0
        bare = model.bind_tools([read_file]).invoke(history)
        second = figures(model)["tokens_predicted_total"] - first["tokens_predicted_total"]
    assert [found["args"] for found in message.tool_calls] == [{"path": "a.txt"}]
    assert len(bare.tool_calls) == 8
    cut = first["tokens_predicted_total"] - before
    figure(f"embedded model: {cut:g} tokens with a cut, {second:g} without")
    assert cut < second / 3
