"""Providers that are silent, or never come to an end: what ends a call, and what is kept of it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.outputs import LLMResult
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from signoff import Decision, Failed, Finished, Limits, Paused, Session, build_graph, sqlite_storage
from signoff.graph.errors import SetupError
from signoff.graph.limits import Prices
from signoff.models import ScriptedModel, call
from signoff.session.session import pause_on_signals
from signoff.storage.sqlite import SqliteStorage
from tests.support.cases.guard import Wire
from tests.support.servers import hostile_server as hostile
from tests.support.servers.hostile_server import HostileServer, Sent

pytestmark = pytest.mark.slow

Way = Callable[[], Sent]
both = pytest.mark.parametrize("mode", ["sync", "async"])


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


@tool
def write(text: str) -> str:
    """Write a text."""
    raise AssertionError("nothing of a reply that was cut off is run")


def of(server: HostileServer, **options: Any) -> ChatOpenAI:
    # With the retries that the package makes by itself.
    return ChatOpenAI(model="m", base_url=server.url, api_key=SecretStr("none"), **options)


def ask(graph: Any, mode: str) -> dict[str, Any]:
    given = {"messages": ["go"]}
    result: dict[str, Any] = asyncio.run(graph.ainvoke(given)) if mode == "async" else graph.invoke(given)
    return result


def at_once(ways: Sequence[Way], work: Callable[[Way], Any]) -> dict[str, Any]:
    """What comes of `work` for each way, all at the same time: most of it is waiting."""
    with ThreadPoolExecutor(len(ways)) as pool:
        return dict(zip([way.__name__ for way in ways], pool.map(work, ways), strict=True))


def memory() -> int:
    """Kilobytes that this process takes now."""
    rows = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("VmRSS"))


# Whatever a provider does, the call is ended, and nothing of the reply is run. The server sees it where
# something still comes, and in a loop; a call that waits in a thread is abandoned there.

WAYS = [
    hostile.silent,
    hostile.silent_after_headers,
    hostile.silent_after_a_chunk,
    hostile.keep_alive,
    hostile.drip,
    hostile.flood,
    hostile.arguments,
    hostile.no_json,
    hostile.line,
    hostile.drip_behind_a_call,
]
MUTE = [
    hostile.silent,
    hostile.silent_after_headers,
    hostile.silent_after_a_chunk,
    hostile.keep_alive,
    hostile.line,
]


def is_left(server: HostileServer, way: Way, mode: str) -> bool:
    """Whether the client has left the server, where it can."""
    return server.gone.wait(5) or (mode == "sync" and way in MUTE)


@pytest.mark.timed
@both
def test_the_limit_of_seconds_ends_a_reply_that_is_coming_in(mode: str) -> None:
    def ended(way: Way) -> tuple[Any, ...]:
        with HostileServer(way) as server:
            graph, begun = build_graph(of(server), [write], limits=Limits(seconds=0.8)), time.monotonic()
            outcome = ask(graph, mode)["outcome"]
            soon = time.monotonic() - begun < 4
            told = outcome["status"], outcome["reason"], outcome["error"], outcome["seconds_active"] >= 0.8
            return *told, soon, is_left(server, way, mode), len(server.requests)

    before = memory()
    found = at_once(WAYS, ended)
    assert found == dict.fromkeys(found, ("limit", "seconds", None, True, True, True, 1))
    assert memory() - before < 100_000


@pytest.mark.timed
@both
def test_a_silent_call_ends_as_model_error(mode: str) -> None:
    def ended(way: Way) -> tuple[Any, ...]:
        with HostileServer(way) as server:
            graph, begun = build_graph(of(server), model_seconds=1.2), time.monotonic()
            outcome = ask(graph, mode)["outcome"]
            told = outcome["status"], outcome["reason"], "model_seconds" in outcome["error"]
            return *told, time.monotonic() - begun < 6, is_left(server, way, mode), len(server.requests)

    # Without a word it is tried once more, by us and not by the package; after a word it is not.
    expected = {way.__name__: ("error", "model_error", True, True, True, 2) for way in MUTE}
    expected["silent_after_a_chunk"] = ("error", "model_error", True, True, True, 1)
    assert at_once(MUTE, ended) == expected


@both
def test_a_dead_connection_is_tried_again(mode: str) -> None:
    with HostileServer(hostile.silent, hostile.whole) as server:
        outcome = ask(build_graph(of(server), model_seconds=0.4), mode)["outcome"]
    assert (outcome["status"], outcome["turns"], len(server.requests)) == ("success", 1, 2)


ENDLESS = [hostile.flood, hostile.arguments, hostile.no_json]


@both
@pytest.mark.parametrize(
    ("limits", "reason"),
    [(Limits(tokens=300), "tokens"), (Limits(cost=0.0003, prices=Prices(input=0, output=1)), "cost")],
    ids=["tokens", "cost"],
)
def test_tokens_and_cost_end_a_reply_by_what_it_has_written(limits: Limits, reason: str, mode: str) -> None:
    def ended(way: Way) -> tuple[Any, ...]:
        with HostileServer(way) as server:
            outcome = ask(build_graph(of(server), [write], limits=limits), mode)["outcome"]
            written = 300 <= outcome["usage"]["output_tokens"] < 400
            told = outcome["status"], outcome["reason"], written, outcome["usage"]["estimated"]
            return *told, server.gone.wait(5)

    found = at_once(ENDLESS, ended)
    assert found == dict.fromkeys(found, ("limit", reason, True, True, True))


LARGE = [hostile.large_text, hostile.large_arguments, hostile.large_no_json]


@both
def test_a_reply_that_is_too_large_is_an_error(mode: str) -> None:
    def ended(way: Way) -> tuple[Any, ...]:
        with HostileServer(way) as server:
            outcome = ask(build_graph(of(server), [write]), mode)["outcome"]
            said = "2,000,000 characters" in outcome["error"]
            small = outcome["usage"]["output_tokens"] < 600_000
            return outcome["status"], outcome["reason"], said, small, server.gone.wait(5)

    found = at_once(LARGE, ended)
    assert found == dict.fromkeys(found, ("error", "model_error", True, True, True))


@pytest.mark.timed
@both
@pytest.mark.parametrize(
    ("way", "limits"),
    [
        (hostile.drip_behind_a_call, Limits(seconds=0.5)),
        (hostile.drip_behind_a_call, Limits(tokens=8)),
        (hostile.large_behind_a_call, Limits()),
    ],
    ids=["seconds", "tokens", "size"],
)
def test_what_was_complete_is_kept_and_answered(way: Way, limits: Limits, mode: str) -> None:
    with HostileServer(way) as server:
        result = ask(build_graph(of(server), [write], limits=limits), mode)
    reply = next(message for message in result["messages"] if isinstance(message, AIMessage))
    assert [(made["name"], made["args"]) for made in reply.tool_calls] == [("write", {"text": "a"})]
    assert (reply.invalid_tool_calls, result["messages"][-2].type) == ([], "tool")
    assert result["outcome"]["open_work"] == ["write({'text': 'a'})"]


@both
@pytest.mark.parametrize(
    ("way", "bound"),
    [
        (hostile.silent_behind_a_finish, {"limits": Limits(seconds=0.7)}),
        (hostile.silent_behind_a_finish, {"model_seconds": 0.5}),
        (hostile.drip_behind_the_end, {"limits": Limits(seconds=0.7)}),
    ],
    ids=["silent, a limit", "silent", "a drip"],
)
def test_a_whole_finish_counts(bound: dict[str, Any], way: Way, mode: str) -> None:
    with HostileServer(way) as server:
        result = ask(build_graph(of(server), **bound), mode)
    assert (result["outcome"]["status"], result["outcome"]["turns"]) == ("success", 1)


@both
def test_a_model_that_does_not_stream_is_bounded_too(mode: str) -> None:
    with HostileServer(hostile.silent) as server:
        model = of(server, disable_streaming=True)
        limited = ask(build_graph(model, limits=Limits(seconds=0.5)), mode)["outcome"]
        silent = ask(build_graph(model, model_seconds=0.3), mode)["outcome"]
    assert (limited["reason"], silent["reason"], len(server.requests)) == ("seconds", "model_error", 3)


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), "2", True])
def test_a_bound_is_a_number_above_0(value: Any) -> None:
    with pytest.raises(SetupError, match="model_seconds"):
        build_graph(ScriptedModel([]), model_seconds=value)


def test_the_context_sets_the_seconds_of_one_run() -> None:
    with HostileServer(hostile.silent) as server:
        graph = build_graph(of(server))
        outcome = graph.invoke({"messages": ["go"]}, context={"model_seconds": 0.3})["outcome"]
    assert outcome["reason"] == "model_error"


# A pause, a stop and a signal end it within two seconds, and save.


def during(
    session: Session, mode: str, event: Callable[[], Any], server: HostileServer
) -> tuple[Decision, float]:
    """What a run comes to during whose first call something happens; and how long after that it took."""
    at = list[float]()

    def wait() -> None:
        assert server.asked.wait(10)
        time.sleep(0.2)
        at.append(time.monotonic())
        event()

    thread = threading.Thread(target=wait)
    thread.start()
    decision = asyncio.run(session.arun("go")) if mode == "async" else session.run("go")
    took = time.monotonic() - at[0]
    thread.join()
    return decision, took


ASKED: dict[str, Callable[[Session], Any]] = {
    "pause": lambda session: session.pause(),
    "signal": lambda session: session.pause("signal"),
    "stop": lambda session: session.stop(),
}


@pytest.mark.timed
@both
@pytest.mark.parametrize("how", ASKED)
@pytest.mark.sample(3)
def test_a_pending_or_silent_call_is_ended_within_two_seconds(how: str, mode: str, tmp_path: Path) -> None:
    def ended(way: Way) -> tuple[Any, ...]:
        with (
            HostileServer(way, hostile.whole) as server,
            sqlite_storage(tmp_path / f"{way.__name__}.sqlite") as storage,
        ):
            session = Session(build_graph(of(server), storage=storage), "t")
            decision, took = during(session, mode, lambda: ASKED[how](session), server)
            gone = is_left(server, way, mode)
            reason = decision.outcome.reason if isinstance(decision, Failed) else decision
            done = session.retry() if how == "stop" else session.run()
            success = isinstance(done, Finished) and done.outcome.status
            return reason, took < 2, gone, success, len(server.requests)

    found = at_once(MUTE, ended)
    reason = "cancelled" if how == "stop" else Paused(how)
    assert found == dict.fromkeys(found, (reason, True, True, "success", 2))


@pytest.mark.timed
def test_a_signal_ends_a_silent_call_in_the_main_thread(storage: SqliteStorage) -> None:
    with HostileServer(hostile.silent) as server:
        session = Session(build_graph(of(server), storage=storage), "t")
        with pause_on_signals(session):
            decision, took = during(session, "sync", lambda: os.kill(os.getpid(), signal.SIGTERM), server)
    assert (decision, len(server.requests)) == (Paused("signal"), 1)
    assert took < 2


def test_ctrl_c_without_a_session_ends_the_call() -> None:
    with HostileServer(hostile.silent) as server:
        graph, begun = build_graph(of(server)), list[float]()

        def interrupt() -> None:
            assert server.asked.wait(10)
            begun.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            graph.invoke({"messages": ["go"]})
        assert time.monotonic() - begun[0] < 2
        thread.join()
    assert len(server.requests) == 1


@pytest.mark.timed
@both
def test_a_summary_is_not_waited_for_either(mode: str, storage: SqliteStorage) -> None:
    turns = [call("note", text="x" * 400) for _ in range(12)]

    @tool
    def note(text: str) -> str:
        """Note a text."""
        return text

    with HostileServer(hostile.silent) as server:
        graph = build_graph(
            ScriptedModel(turns),
            [note],
            compaction=of(server),
            prompt_tokens=2_000,
            limits=Limits(repeats=None),
            storage=storage,
        )
        session = Session(graph, "t")
        decision, took = during(session, mode, session.pause, server)
    assert decision == Paused("pause")
    assert took < 2


# A call that is abandoned in its thread disturbs nothing: neither those after it, nor the end of the process.


def _late(streamed: bool) -> Way:
    """Answers only when nobody waits any more."""
    text = "This came too late."
    whole = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    body = json.dumps({"id": "late", "object": "chat.completion", "model": "m", "choices": [whole]})
    stream = hostile.HEADERS + hostile.event({"content": text}) + hostile.event({}, "stop")
    plain = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{body}"

    def late() -> Sent:
        yield 0.9
        yield stream if streamed else plain.encode()

    return late


def _slow() -> Sent:
    """A whole reply that takes longer than the late one."""
    yield hostile.HEADERS
    for _ in range(12):
        yield hostile.WORD
        yield 0.1
    yield hostile.opened("finish_task", '{"summary": "All of it."}') + hostile.event({}, "tool_calls")


class Told(BaseCallbackHandler):
    """Notes how each model call has ended, as tracing does."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.failed: list[str] = []

    def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:
        self.ended.append(response.generations[0][0].text)

    def on_llm_error(self, error: BaseException, **kwargs: Any) -> None:
        self.failed.append(type(error).__name__)


@pytest.mark.timed
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
def test_a_late_reply_is_dropped(streamed: bool) -> None:
    told, shown = Told(), list[str]()
    with HostileServer(_late(streamed)) as silent, HostileServer(_slow) as second:
        graph = build_graph(
            of(silent, disable_streaming=not streamed),
            fallbacks=[of(second)],
            model_seconds=0.4,
            model_retries=None,
        )
        silent.ways.append(hostile.silent)
        given: Any = {"messages": ["go"]}
        for part, _ in graph.stream(given, {"callbacks": [told]}, stream_mode="messages"):
            shown.append(part.text)
    assert "word" in "".join(shown)
    assert "late" not in "".join(shown)
    assert [text.strip() for text in told.ended] == [" ".join(["word"] * 12)]
    # The first one was asked twice.
    assert "Abandoned" in told.failed


_PROGRAM = """
from langchain_openai import ChatOpenAI
from signoff import Limits, build_graph

model = ChatOpenAI(model="m", base_url="{url}", api_key="none")
outcome = build_graph(model, limits=Limits(seconds=0.3)).invoke({{"messages": ["go"]}})["outcome"]
print(outcome["reason"])
"""


@pytest.mark.timed
def test_it_does_not_keep_a_process_from_ending() -> None:
    with HostileServer(hostile.silent) as server:
        command = [sys.executable, "-c", _PROGRAM.format(url=server.url)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("seconds\n", "", 0)


@pytest.mark.timed
def test_many_of_them_hold_up_no_other_call() -> None:
    with HostileServer(hostile.silent) as server:
        graph, task = build_graph(of(server), model_seconds=0.2), {"messages": ["go"]}
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda _: graph.invoke(task), range(32)))
        assert {result["outcome"]["reason"] for result in results} == {"model_error"}
        server.ways = [hostile.whole]
        assert graph.invoke(task)["outcome"]["status"] == "success"


# One helper thread serves a run.


def test_one_thread_serves_all_calls_of_a_run() -> None:
    seen = set[int]()

    class Noted(ScriptedModel):
        def _stream(self, *args: Any, **kwargs: Any) -> Any:
            seen.add(threading.get_ident())
            yield from super()._stream(*args, **kwargs)

    script = [*[call("think", thought=f"{at}") for at in range(8)], call("finish_task", summary="Done.")]
    outcome = build_graph(Noted(script=script)).invoke({"messages": ["go"]})["outcome"]
    assert (outcome["status"], outcome["turns"], len(seen)) == ("success", 9, 1)
    assert threading.get_ident() not in seen


@pytest.mark.timed
def test_a_model_without_an_async_way_cannot_keep_a_loop_from_ending() -> None:
    held = threading.Event()

    class Stuck(Wire):
        """Streams in sync only."""

        def _stream(self, *args: Any, **kwargs: Any) -> Any:
            held.wait(60)
            yield from super()._stream(*args, **kwargs)

        def bind_tools(self, *args: Any, **kwargs: Any) -> Any:
            return self

    begun = time.monotonic()
    try:
        outcome = ask(build_graph(Stuck(chunks=[]), limits=Limits(seconds=0.3)), "async")["outcome"]
        assert (outcome["reason"], time.monotonic() - begun < 20) == ("seconds", True)
    finally:
        held.set()
