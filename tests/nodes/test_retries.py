"""Errors that pass: how often a model is asked again, after which waits, and what ends the wait."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_openai import ChatOpenAI
from openai import OpenAIError
from pydantic import SecretStr

from signoff import (
    Decision,
    Failed,
    Finished,
    Limits,
    ModelRetries,
    Paused,
    Session,
    SetupError,
    build_graph,
    sqlite_storage,
)
from signoff.graph.messages import is_reply, marks
from signoff.nodes.model.advice import in_short, may_pass, retry_after
from signoff.nodes.model.retries import without_own_retries
from signoff.nodes.model.trying import RETRYING
from signoff.session.events import Retrying, Said, SessionEvent
from signoff.storage.sqlite import SqliteStorage
from tests.support.benches.cli import Bench
from tests.support.servers.fake_provider import FakeProvider, Fault, Reply, error, tool_call


def error_of(module: str, name: str) -> Any:
    """An error of a client. On the lowest versions, where it is not installed, another one stands for it."""
    try:
        return getattr(import_module(module), name)
    except ImportError:
        return RuntimeError


EventStreamError = error_of("botocore.exceptions", "EventStreamError")
ResponseError = error_of("ollama", "ResponseError")

DONE = Reply(calls=[tool_call("finish_task", summary="All of it.")])
SLOW_DOWN = error(429, "Too fast", Retry_After="0.4")
LONG = error(429, "Too fast", Retry_After="30")
BROKEN = error(500, "The server had an error.")
DROPPED = Reply("I will now do all of it.", size=4, ends="cut")
SOON = ModelRetries(first_wait=0.02)
THREAD: Any = {"configurable": {"thread_id": "t"}}
both_modes = pytest.mark.parametrize("mode", ["sync", "async"])


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def chat(server: FakeProvider, name: str = "m", **options: Any) -> ChatOpenAI:
    return ChatOpenAI(model=name, base_url=server.url, api_key=SecretStr("none"), **options)


def session(server: FakeProvider, storage: SqliteStorage, **settings: Any) -> Session:
    given = {"model_retries": SOON, **settings}
    return Session(build_graph(chat(server), storage=storage, **given), "t")


async def run(found: Session, mode: str) -> Decision:
    return await found.arun("do it") if mode == "async" else found.run("do it")


def outcome_of(decision: Decision) -> Any:
    assert isinstance(decision, Finished | Failed)
    return decision.outcome


@both_modes
async def test_a_task_gets_through_a_rate_limit_a_fault_and_a_dropped_stream(
    mode: str, storage: SqliteStorage
) -> None:
    script: Sequence[Any] = [SLOW_DOWN, BROKEN, DROPPED, DONE]
    with FakeProvider(script) as server:
        outcome = outcome_of(await run(session(server, storage), mode))
        at = [request.at for request in server.requests]
    assert (outcome.status, outcome.turns, outcome.retries) == ("success", 1, 3)
    assert len(at) == len(script), "the client did not try by itself"
    assert at[1] - at[0] >= 0.4, "what the provider asked for"
    assert outcome.seconds_retrying >= 0.4
    assert outcome.seconds_active >= outcome.seconds_retrying, "it is working time"
    assert outcome.models == {"fake": 1}


@both_modes
async def test_after_the_last_try_it_is_an_error_from_which_retry_goes_on(
    mode: str, storage: SqliteStorage
) -> None:
    with FakeProvider([BROKEN] * 3 + [DONE]) as server:
        retries = ModelRetries(tries=3, first_wait=0.02)
        found = session(server, storage, model_retries=retries)
        outcome = outcome_of(await run(found, mode))
        assert (outcome.status, outcome.reason, outcome.retries) == ("error", "model_error", 2)
        assert "The server had an error" in outcome.error
        assert "It was tried 3 times, with " in outcome.error
        again = await found.aretry() if mode == "async" else found.retry()
        assert isinstance(again, Finished)
        assert again.outcome.retries == 0, "this call was tried once"


TRIES: dict[str, tuple[ModelRetries, Fault | Reply, int]] = {
    "one try": (ModelRetries(tries=1), BROKEN, 1),
    "as often as said": (ModelRetries(tries=4, first_wait=0), BROKEN, 4),
    "not when it is asked to wait too long": (ModelRetries(longest_wait=20), LONG, 1),
    "not a wrong key": (SOON, error(401, "Incorrect API key."), 1),
    "not an empty account": (SOON, error(429, "You exceeded your current quota.", "insufficient_quota"), 1),
    "a reply that was broken off": (ModelRetries(tries=2, first_wait=0), Reply("I w", finish="error"), 2),
    "not what the server says is lasting": (SOON, error(503, "Gone.", X_Should_Retry="false"), 1),
    "what the server says may pass": (
        ModelRetries(tries=2, first_wait=0),
        error(403, "Wait.", X_Should_Retry="true"),
        2,
    ),
}


@pytest.mark.timed
@pytest.mark.parametrize(("policy", "answer", "times"), TRIES.values(), ids=TRIES)
def test_how_often_it_is_tried(
    policy: ModelRetries, answer: Fault | Reply, times: int, storage: SqliteStorage
) -> None:
    with FakeProvider([answer] * 9) as server:
        begun = time.monotonic()
        outcome = outcome_of(session(server, storage, model_retries=policy).run("do it"))
        assert len(server.requests) == times
    assert (outcome.reason, outcome.retries) == ("model_error", times - 1)
    assert time.monotonic() - begun < 5


def test_without_it_the_clients_own_retries_are_as_they_were(storage: SqliteStorage) -> None:
    with FakeProvider([error(500, "Oh no", Retry_After_Ms="5")] * 9) as server:
        graph = build_graph(chat(server, max_retries=2), storage=storage, model_retries=None)
        outcome = outcome_of(Session(graph, "t").run("do it"))
        assert (outcome.retries, len(server.requests)) == (0, 3)


@pytest.mark.timed
def test_no_try_begins_after_the_tasks_seconds(storage: SqliteStorage) -> None:
    with FakeProvider([LONG, DONE]) as server:
        found = session(server, storage, limits=Limits(seconds=5), model_retries=ModelRetries())
        begun = time.monotonic()
        outcome = outcome_of(found.run("do it"))
        assert (outcome.reason, len(server.requests)) == ("model_error", 1)
        assert time.monotonic() - begun < 3, "nor is it waited for that"
        assert isinstance(found.retry(), Finished)


def test_waits_grow_and_differ() -> None:
    policy = ModelRetries(tries=6, first_wait=1, longest_wait=6)
    *due, none = [policy.next_wait(tries, ConnectionResetError(), None) for tries in range(1, 7)]
    assert none is None
    assert all(found and low <= found <= low + 1 for found, low in zip(due, (1, 2, 4), strict=False))
    assert due[3:] == [6, 6]
    assert len(set(due[:3])) == 3


@pytest.mark.parametrize("given", [{"tries": 0}, {"first_wait": -1}, {"longest_wait": 0}, {"attempts": 3}])
def test_a_policy_that_cannot_be_is_told(given: dict[str, Any]) -> None:
    with pytest.raises(SetupError, match="ModelRetries: "):
        ModelRetries(**given)


# Who is told.


WAITS = [
    ("rate limit", 1, False),
    ("error 500", 2, False),
    ("the connection broke off", 3, True),
]


def told(events: list[SessionEvent]) -> list[tuple[str, int, bool]]:
    return [(event.why, event.tries, event.dropped) for event in events if isinstance(event, Retrying)]


@pytest.mark.parametrize("mode", ["async", "tokens"])
async def test_a_session_tells_of_a_wait_when_it_begins(mode: str, storage: SqliteStorage) -> None:
    with FakeProvider([SLOW_DOWN, BROKEN, DROPPED, DONE]) as server:
        found, at, events = session(server, storage), list[float](), list[SessionEvent]()
        if mode == "async":
            async for event in found.aevents("do it"):
                events.append(event)
                at += [time.monotonic()] if isinstance(event, Retrying) else []
        else:
            for event in found.events("do it", tokens=True):
                events.append(event)
                at += [time.monotonic()] if isinstance(event, Retrying) else []
        assert told(events) == WAITS
        assert at[0] < server.requests[1].at - 0.2, "before the next try, not after it"
    assert [event.retries for event in events if isinstance(event, Said)] == [3]


def test_a_sync_session_tells_afterwards_and_its_callbacks_at_once(storage: SqliteStorage) -> None:
    class Heard(BaseCallbackHandler):
        found: list[tuple[Any, float]] = []  # noqa: RUF012  one object

        def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
            assert name == RETRYING
            self.found.append((data["why"], time.monotonic()))

    heard = Heard()
    with FakeProvider([SLOW_DOWN, DONE]) as server:
        graph = build_graph(chat(server), storage=storage, model_retries=SOON)
        events = list(Session(graph, "t", config={"callbacks": [heard]}).events("do it", tokens=False))
        assert told(events) == []
        ((why, at),) = heard.found
        assert (why, at < server.requests[1].at - 0.2) == ("rate limit", True)
    assert [event.retries for event in events if isinstance(event, Said)] == [1]


@both_modes
async def test_a_stream_of_the_graph_tells_it_in_its_own_way(mode: str, storage: SqliteStorage) -> None:
    with FakeProvider([BROKEN, DONE]) as server:
        graph = build_graph(chat(server), storage=storage, model_retries=SOON)
        given: Any = {"messages": [("user", "do it")]}
        if mode == "async":
            parts = [part async for part in graph.astream(given, THREAD, stream_mode="custom")]
        else:
            parts = list(graph.stream(given, THREAD, stream_mode="custom"))
    (part,) = parts
    assert (part["type"], part["why"], part["tries"], part["most"]) == (RETRYING, "error 500", 1, 5)


def test_the_command_line_shows_the_wait_and_counts_it(bench: Bench) -> None:
    with FakeProvider([DROPPED, SLOW_DOWN, DONE]) as server:
        result = bench.run("Do it", "--model", "m", "--base-url", server.url)
    shown = " ".join(result.stdout.split())
    assert result.exit_code == 0, result.output
    assert "↻ waits 0.4 s: rate limit (try 2 of 5)" in shown
    assert "the connection broke off (try 1 of 5); the partial reply does not count" in shown
    assert "tried again 2 times (" in shown


def test_the_command_line_can_turn_it_off_and_the_thread_remembers(bench: Bench) -> None:
    with FakeProvider([BROKEN, BROKEN, BROKEN]) as server:
        result = bench.run("Do it", "--model", "m", "--base-url", server.url, "--model-tries", "1")
        assert (result.exit_code, len(server.requests)) == (1, 1)
        assert bench("retry", "t1").exit_code == 1
        assert len(server.requests) == 2


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    found = Bench(tmp_path)
    found.env["SIGNOFF_MODEL"] = None
    return found


# What ends a wait.


def soon(server: FakeProvider, do: Callable[[], Any]) -> threading.Thread:
    """Does something once the first request has been refused, and the run waits."""

    def work() -> None:
        while not server.requests:
            time.sleep(0.01)
        time.sleep(0.15)
        do()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


ENDED = {"pause": Paused, "signal": Paused, "stop": Failed}


@pytest.mark.timed
@both_modes
@pytest.mark.parametrize("by", ENDED)
async def test_a_pause_a_signal_and_a_stop_end_the_wait(by: str, mode: str, storage: SqliteStorage) -> None:
    with FakeProvider([LONG, DONE]) as server:
        found = session(server, storage, model_retries=ModelRetries())
        helper, begun = soon(server, lambda: found.pause(by)), time.monotonic()
        decision = await run(found, mode)
        helper.join()
        assert time.monotonic() - begun < 3
        assert isinstance(decision, ENDED[by])
        assert not any(map(is_reply, found.status().values["messages"]))
        if by == "stop":
            assert outcome_of(decision).reason == "cancelled"
        else:
            assert isinstance(found.run(), Finished)


async def test_a_wait_holds_up_nobody_else_in_its_loop(storage: SqliteStorage) -> None:
    with FakeProvider([error(429, "Too fast", Retry_After="2"), DONE]) as server:
        late, done = 0.0, asyncio.create_task(session(server, storage).arun("do it"))
        while not done.done():
            begun = time.monotonic()
            await asyncio.sleep(0.01)
            late = max(late, time.monotonic() - begun) if server.requests else 0.0
        assert isinstance(done.result(), Finished)
    assert late < 1


async def test_a_wait_is_cancelled_with_its_task(storage: SqliteStorage) -> None:
    with FakeProvider([LONG]) as server:
        found = session(server, storage, model_retries=ModelRetries())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(found.arun("do it"), 1.0)


# The next model.


@both_modes
async def test_the_next_model_is_asked_when_one_fails_and_both_are_told(
    mode: str, storage: SqliteStorage
) -> None:
    with (
        FakeProvider([error(401, "Incorrect API key.")] * 2) as first,
        FakeProvider([Reply(calls=[tool_call("think", thought="Hm.")]), DONE]) as second,
    ):
        graph = build_graph(chat(first, "a"), storage=storage, fallbacks=[chat(second, "b")])
        found, events = Session(graph, "t"), list[SessionEvent]()
        if mode == "async":
            events = [event async for event in found.aevents("do it")]
        else:
            events = list(found.events("do it", tokens=True))
        outcome = found.status().outcome
        replies = [m for m in found.status().values["messages"] if is_reply(m)]
    assert outcome is not None
    assert (outcome["status"], outcome["models"], outcome["retries"]) == ("success", {"b": 2}, 2)
    assert [marks(reply)["model"] for reply in replies] == ["b", "b"]
    switched = [event for event in events if isinstance(event, Retrying)]
    assert [(event.model, event.seconds) for event in switched] == [("b", 0.0)] * 2


@both_modes
async def test_each_model_has_its_tries_and_the_last_error_stands(mode: str, storage: SqliteStorage) -> None:
    with FakeProvider([BROKEN] * 2) as first, FakeProvider([error(503, "Overloaded")] * 2) as second:
        graph = build_graph(
            chat(first, "a"),
            storage=storage,
            fallbacks=[chat(second, "b")],
            model_retries=ModelRetries(tries=2, first_wait=0),
        )
        outcome = outcome_of(await run(Session(graph, "t"), mode))
        assert (len(first.requests), len(second.requests)) == (2, 2)
    assert (outcome.reason, outcome.retries) == ("model_error", 3)
    assert "Overloaded" in outcome.error


def test_a_prompt_that_is_too_long_is_squeezed_and_not_handed_on(storage: SqliteStorage) -> None:
    too_long = error(400, "This model's maximum context length is 8192 tokens.", "context_length_exceeded")
    with FakeProvider([too_long, DONE]) as first, FakeProvider([]) as second:
        graph = build_graph(chat(first), storage=storage, fallbacks=[chat(second)])
        assert isinstance(Session(graph, "t").run("do it"), Finished)
        assert second.requests == []


# How errors are read.


class Refused(OpenAIError):
    def __init__(self, status: int | None = None, **headers: str) -> None:
        super().__init__("no")
        self.status_code = status
        self.response = type("Response", (), {"headers": headers, "status_code": status})


def in_body(*, status_code: int | None = None, **body: Any) -> BaseException:
    found: Any = Refused(status_code)
    found.body = {"error": body}
    return found  # type: ignore[no-any-return]  # an error


def in_text(body: Any) -> BaseException:
    found: Any = Refused()
    found.body = json.dumps(body)
    return found  # type: ignore[no-any-return]  # an error


def in_event(name: str, message: str = "no") -> Any:
    return EventStreamError({"Error": {"Code": name, "Message": message}}, "ConverseStream")


def wrapped(cause: BaseException) -> BaseException:
    found = RuntimeError("It went wrong.")
    found.__cause__ = cause
    return found


READ: dict[str, tuple[BaseException, bool, str]] = {
    "408": (Refused(408), True, "no answer in time"),
    "409": (Refused(409), True, "error 409"),
    "429": (Refused(429), True, "rate limit"),
    "500": (Refused(500), True, "error 500"),
    "501": (Refused(501), False, "error 501"),
    "529": (Refused(529), True, "error 529"),
    "400": (Refused(400), False, "error 400"),
    "404": (Refused(404), False, "error 404"),
    "503 that was wrapped": (wrapped(Refused(503)), True, "error 503"),
    "a reset": (ConnectionResetError(104, "reset by peer"), True, "the connection broke off"),
    "refused": (ConnectionRefusedError(111, "refused"), True, "no connection"),
    "a timeout": (TimeoutError("timed out"), True, "no answer in time"),
    "no such host": (ConnectionError("Name or service not known"), False, "no connection"),
    "no name server": (ConnectionError("Temporary failure in name resolution"), True, "no connection"),
    "no certificate": (ConnectionError("certificate verify failed"), False, "no connection"),
    "no such file": (FileNotFoundError("weights.gguf"), False, "FileNotFoundError"),
    "a mistake": (KeyError("x"), False, "KeyError"),
    # In a stream, or in a body, with the status 200.
    "overloaded": (in_body(type="engine_overloaded_error"), True, "the provider is overloaded"),
    "Google's word": (in_body(status="UNAVAILABLE"), True, "the provider is overloaded"),
    "a code as a text": (in_body(code="1302"), True, "rate limit"),
    "no quota": (in_body(code="insufficient_quota", type="rate_limit_error"), False, "rate limit"),
    "Bedrock: throttled": (
        in_event("throttlingException", "Too many tokens, please wait"),
        True,
        "rate limit",
    ),
    "Bedrock: no time": (in_event("modelTimeoutException"), True, "no answer in time"),
    "Bedrock: broken": (in_event("modelStreamErrorException"), True, "a fault of the provider"),
    "Bedrock: broken, before it": (
        in_body(status_code=424, code="ModelStreamErrorException"),
        True,
        "error 424",
    ),
    "Bedrock: invalid": (in_event("validationException"), False, "EventStreamError"),
    "Responses: error": (ValueError("rate_limit_exceeded: Rate limit reached."), True, "rate limit"),
    "Responses: failed": (
        ValueError("ResponseError(code='server_error', message='no')"),
        True,
        "a fault of the provider",
    ),
    "Responses: invalid": (ValueError("invalid_prompt: no"), False, "ValueError"),
    "Responses: no quota": (ValueError("insufficient_quota: no"), False, "ValueError"),
    "nothing in a stream": (ValueError("No generation chunks were returned"), True, "an empty answer"),
    "nothing in a reply": (ValueError("No generations found in stream."), True, "an empty answer"),
    "OpenRouter: an event": (in_text({"data": {"error": {"code": 502}}}), True, "error 502"),
    "OpenRouter: a word": (
        in_text({"data": {"error": {"code": "server_error"}}}),
        True,
        "a fault of the provider",
    ),
    "OpenRouter: lasting": (in_text({"data": {"error": {"code": 400}}}), False, "error 400"),
    "OpenRouter: a body": (in_text({"error": {"code": 429}}), True, "rate limit"),
    "OpenRouter": (ValueError("OpenRouter API returned an error: no (code: 502)"), True, "error 502"),
    "Ollama: in the stream": (ResponseError("unexpected EOF"), True, "a fault of the provider"),
    "Ollama: no tools": (ResponseError("m does not support tools"), False, "a fault of the provider"),
    "a code with a permanent status": (in_body(status_code=400, type="api_error"), False, "error 400"),
}


@pytest.mark.parametrize(("found", "passes", "words"), READ.values(), ids=READ)
def test_which_errors_may_pass(found: BaseException, passes: bool, words: str) -> None:
    assert (may_pass(found), in_short(found)) == (passes, words)


ASKED: dict[str, tuple[dict[str, str], float | None]] = {
    "nothing": ({}, None),
    "seconds": ({"retry-after": "7"}, 7.0),
    "milliseconds go first": ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
    "a date that is past": ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
    "nonsense": ({"retry-after": "soon"}, None),
    "below nothing": ({"retry-after": "-3"}, 0.0),
}


@pytest.mark.parametrize(("headers", "seconds"), ASKED.values(), ids=ASKED)
def test_what_a_provider_asks_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(Refused(429, **headers)) == seconds


def test_the_users_own_model_is_as_it_was() -> None:
    model = ChatOpenAI(model="m", api_key=SecretStr("k"), base_url="http://127.0.0.1:9/v1", max_retries=4)
    twin: Any = without_own_retries(model)
    clients = (twin.root_client, twin.root_async_client)
    assert [client.max_retries for client in clients] == [0, 0]
    assert (model.max_retries, model.root_client.max_retries) == (4, 4)
    assert twin.client is twin.root_client.chat.completions


def _at_another_address(model: ChatOpenAI) -> list[str]:
    url = str(model.root_client.base_url)
    for name in ("root_client", "root_async_client"):
        root = getattr(model, name)
        setattr(model, name, root.with_options(base_url="http://127.0.0.1:9/v1"))
        setattr(model, name.removeprefix("root_"), root.with_options(base_url=url).chat.completions)
    return ["as it was"]


def _watched_at(
    parts: Callable[[ChatOpenAI], Sequence[Any]], method: str
) -> Callable[[ChatOpenAI], list[str]]:
    """Replaces a method of the clients, as tracing packages do; returns what it sees."""

    def watch(model: ChatOpenAI) -> list[str]:
        seen = list[str]()

        def watched(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
            seen.append("as it was")
            return call(*args, **options)

        for part in parts(model):
            setattr(part, method, partial(watched, getattr(part, method)))
        return seen

    return watch


@both_modes
@pytest.mark.parametrize(
    "change",
    [
        _at_another_address,
        _watched_at(lambda model: (model.root_client, model.root_async_client), "request"),
        _watched_at(lambda model: (model.client, model.async_client), "create"),
    ],
    ids=["another address", "a watched client", "a watched part of it"],
)
async def test_a_client_that_was_put_into_the_model_is_used_as_it_is(
    change: Callable[[ChatOpenAI], list[str]], mode: str
) -> None:
    with FakeProvider([DONE]) as server:
        model = chat(server)
        seen = change(model)
        graph, task = build_graph(model), {"messages": ["go"]}
        result = await graph.ainvoke(task) if mode == "async" else graph.invoke(task)
    assert result["outcome"]["status"] == "success"
    assert seen == ["as it was"]
