"""What a provider refuses or breaks is an outcome: its own words, what to do, nothing kept, and a way on."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from signoff import Decision, Failed, Finished, Graph, ModelRetries, Session, build_graph, sqlite_storage
from signoff.graph.messages import is_reply
from signoff.storage.sqlite import SqliteStorage
from tests.support.servers.fake_provider import FakeProvider, Fault, Reply, error, sse, tool_call

MODES = [(way, mode) for way in ("streamed", "whole") for mode in ("sync", "async")]
DIAGONAL = [("streamed", "sync"), ("whole", "async")]
KEY = "sk-live-0123456789abcdef"
DONE = Reply(calls=[tool_call("finish_task", summary="All of it.")])
WORDS = Reply("I will now do all of it.", size=4)


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


def model_at(url: str, way: str = "streamed", **options: Any) -> ChatOpenAI:
    given = {"api_key": SecretStr(KEY), "max_retries": 0, "timeout": 10, **options}
    return ChatOpenAI(model="m", base_url=url, disable_streaming=way == "whole", **given)


def graph_at(url: str, storage: SqliteStorage, way: str = "streamed", **options: Any) -> Graph:
    return build_graph(model_at(url, way, **options), storage=storage, model_retries=None)


async def run(session: Session, mode: str, *, again: bool = False) -> Decision:
    if mode == "async":
        return await (session.aretry() if again else session.arun("do it"))
    return session.retry() if again else session.run("do it")


def messages_of(session: Session) -> list[BaseMessage]:
    found: list[BaseMessage] = session.graph.get_state(
        {"configurable": {"thread_id": session.thread_id}}
    ).values["messages"]
    return found


@dataclass(frozen=True)
class Case:
    """What the server answers; words of it that the error repeats; words of the advice.

    times: how often it is answered so. only: the way to which the case belongs.
    """

    answer: Reply | Fault
    said: str
    advice: str
    times: int = 1
    only: str = ""


def page(status: int, title: str) -> Fault:
    text = (
        f"<!DOCTYPE html><html><head><style>b {{}}</style><title>{title}</title></head><body></body></html>"
    )
    return Fault(status, text, content_type="text/html")


CONTEXT = "This model's maximum context length is 8192 tokens. However, your messages are longer."
REFUSED: dict[str, Case] = {
    "401": Case(error(401, "Incorrect API key.", "invalid_api_key"), "Incorrect API key", "OPENAI_API_KEY"),
    "402": Case(error(402, "Insufficient Balance"), "Insufficient Balance", "waiting does not help"),
    "403": Case(error(403, "Project may not use m."), "Project may not use m", "key's rights"),
    "404": Case(error(404, "The model `m` does not exist."), "`m` does not exist", "--model and --base-url"),
    "404 of an address": Case(page(404, "404 Not Found"), "404 Not Found", "--base-url"),
    "400 too long": Case(error(400, CONTEXT, "context_length_exceeded"), "8192", "larger context", times=2),
    "400 no tools": Case(error(400, "m does not support tools"), "not support tools", "tool calling: use"),
    "400 no tools, in short": Case(Fault(400, {"error": "m does not support tools"}), "m does", "tool call"),
    "400 a filter": Case(error(400, "It was filtered.", "content_filter"), "was filtered", "other words"),
    "400 other": Case(error(400, "temperature must be 1"), "temperature must be 1", "setting that it names"),
    "413": Case(page(413, "413 Entity Too Large"), "413 Entity Too Large", "larger context", times=2),
    "422": Case(Fault(422, {"detail": [{"loc": ["body", "n"], "msg": "no"}]}), "body.n: no", "it names"),
    "429": Case(error(429, "Rate limit", "rate_limit_exceeded"), "Rate limit", "wait a while"),
    "429 of a quota": Case(
        error(429, "You exceeded your current quota.", "insufficient_quota"),
        "exceeded your current quota",
        "waiting does not help",
    ),
    "500": Case(error(500, "The server had an error."), "The server had an error", "wait a while"),
    "502": Case(page(502, "502 Bad Gateway"), "502 Bad Gateway", "wait a while"),
    "503": Case(error(503, "Overloaded"), "Overloaded", "wait a while"),
    "504": Case(page(504, "504 Gateway Time-out"), "504 Gateway Time-out", "did not answer in time"),
}  # fmt: skip

BROKEN: dict[str, Case] = {
    "a dropped stream": Case(Reply(WORDS.text, size=4, ends="cut"), "peer closed connection", "broke off"),
    "a dropped stream that looks like a regular end": Case(
        Reply(WORDS.text, size=4, ends="silent"), "no finish_reason", "broke off", only="streamed"
    ),
    "a dropped call": Case(
        Reply(calls=[tool_call("write", text="x" * 90)], ends="cut", after=9), "peer closed", "broke off"
    ),
    "a call that seems to be all": Case(
        Reply(calls=[tool_call("write", text="x")], ends="silent", after=4),
        "no finish_reason",
        "broke off",
        only="streamed",
    ),
    "an end by the server": Case(Reply("I w", finish="error"), "finish_reason 'error'", "broke off"),
    "no answer in time": Case(Reply("x", wait=30), "timed out", "did not answer in time"),
    "a stream that stalls": Case(Reply(WORDS.text, pause=30), "timed out", "in time", only="streamed"),
    "no body": Case(Fault(200, ""), "", "base URL"),
    "garbage": Case(Fault(200, "\0\1garbage"), "", "base URL"),
    "a page": Case(page(200, "Welcome"), "", "base URL"),
    "an object of something else": Case(Fault(200, {"status": "ok"}), "", "base URL"),
    "an error with status 200": Case(
        Fault(200, {"error": {"message": "Upstream died", "code": 502}}),
        "Upstream died",
        "wait a while",
        only="whole",
    ),
    "a malformed event": Case(
        sse('data: {"choices": [', "data: [DONE]"), "Expecting value", "base URL", only="streamed"
    ),
    "an empty stream": Case(sse("data: [DONE]"), "", "base URL"),
    "an error in the stream": Case(
        sse('data: {"error": {"message": "Overloaded", "code": 503}}'),
        "Overloaded",
        "wait a while",
        only="streamed",
    ),
    "too long, in the stream": Case(
        sse('data: {"error": {"message": "exceeds the available context size", "code": 400}}'),
        "exceeds the available context size",
        "larger context",
        times=2,
        only="streamed",
    ),
}  # fmt: skip


ALL = {**REFUSED, **BROKEN}
# A refusal comes before there is anything to stream.
CELLS = [
    (name, way, mode)
    for name, case in ALL.items()
    for way, mode in (DIAGONAL if name in REFUSED else MODES)
    if case.only in ("", way)
]


@pytest.mark.parametrize(("name", "way", "mode"), CELLS)
@pytest.mark.slow
@pytest.mark.sample(12)
async def test_an_error_says_what_was_said_and_what_to_do_and_the_thread_goes_on(
    name: str, way: str, mode: str, storage: SqliteStorage
) -> None:
    case = ALL[name]
    with FakeProvider([case.answer] * case.times + [DONE]) as server:
        session = Session(graph_at(server.url, storage, way, timeout=0.4), "t")
        failed = await run(session, mode)
        assert isinstance(failed, Failed)
        assert failed.outcome.reason == "model_error"
        assert (case.said in failed.error, case.advice in failed.error) == (True, True), failed.error
        assert "<" not in failed.error, "no markup of a page"
        assert not any(map(is_reply, messages_of(session))), "nothing partial is kept"
        assert len(server.requests) == case.times
        assert isinstance(await run(session, mode, again=True), Finished)


TRIES = 3
RETRIED = {"429": 3, "500": 3, "503": 3, "429 of a quota": 1, "400 other": 1, "401": 1, "403": 1, "404": 1}


@pytest.mark.parametrize("way", ["streamed", "whole"])
@pytest.mark.parametrize("name", RETRIED)
def test_what_may_pass_is_tried_again_and_nothing_else_and_the_client_never_does(
    name: str, way: str, storage: SqliteStorage
) -> None:
    answer = REFUSED[name].answer
    assert isinstance(answer, Fault)
    hasty = Fault(answer.status, answer.body, {"Retry-After-Ms": "5"})
    with FakeProvider([hasty] * 9) as server:
        model = model_at(server.url, way, max_retries=9)
        session = Session(build_graph(model, storage=storage, model_retries=ModelRetries(tries=TRIES)), "t")
        assert isinstance(session.run("do it"), Failed)
    assert len(server.requests) == RETRIED[name]


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(
    ("url", "said", "advice"),
    [
        ("http://127.0.0.1:{closed}/v1", "Errno 111", "cannot be reached"),
        ("http://no-such-host.invalid/v1", "Errno -", "no host with that name"),
        ("https://127.0.0.1:{open}/v1", "SSL", "http or https"),
    ],
    ids=["refused", "unknown host", "no TLS"],
)
async def test_a_server_that_cannot_be_reached(
    url: str, said: str, advice: str, mode: str, storage: SqliteStorage
) -> None:
    with FakeProvider([DONE]) as server:
        address = url.format(closed=closed_port(), open=server.server_port)
        failed = await run(Session(graph_at(address, storage), "t"), mode)
        assert isinstance(failed, Failed)
        assert advice in failed.error
        assert said in failed.error
        session = Session(graph_at(server.url, storage), "t")
        assert isinstance(await run(session, mode, again=True), Finished)


# A server may send back what it was sent, the key among it.

ECHOES: dict[str, Fault] = {
    "in a message": Fault(401, '{"error": {"message": "Bad header: {authorization}"}}'),
    "in a page": Fault(500, "<html><b>Authorization: {authorization}</b></html>", content_type="text/html"),
    "in a text": Fault(400, "got headers authorization={authorization}", content_type="text/plain"),
    "in a body of no use": Fault(200, "{authorization}"),
    "in a stream": sse('data: {"error": {"message": "no {authorization}"}}'),
    "far behind": Fault(400, '{"error": {"message": "' + "x" * 480 + ' {authorization}"}}'),
}  # fmt: skip


@pytest.mark.parametrize("way", ["streamed", "whole"])
@pytest.mark.parametrize("key", [KEY, "a plain password", "0123456789"])
@pytest.mark.parametrize("name", ECHOES)
@pytest.mark.slow
@pytest.mark.sample(6)
def test_no_error_tells_the_key(
    name: str, key: str, way: str, storage: SqliteStorage, tmp_path: Path
) -> None:
    with FakeProvider([ECHOES[name]]) as server:
        model = ChatOpenAI(
            model="m",
            base_url=server.url,
            api_key=SecretStr(key),
            max_retries=0,
            disable_streaming=way == "whole",
        )
        failed = Session(build_graph(model, storage=storage, model_retries=None), "t").run("do it")
    assert isinstance(failed, Failed)
    assert key in server.requests[0].headers["authorization"]
    for word in key.split():
        assert word not in failed.error or len(word) < 6
    kept = b"".join(file.read_bytes() for file in tmp_path.glob("threads.sqlite*") if file.is_file())
    assert key.encode() not in kept
