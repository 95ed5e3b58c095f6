"""One job over real HTTP, whatever the server does with it: streamed or not, in sync and async graphs."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from signoff import Limits, build_graph
from signoff.graph.messages import is_reply, nudge_kind
from signoff.models.local import local_model
from signoff.models.local.install import server_version
from signoff.models.local.weights import missing_packages
from tests.support.servers.fake_provider import USAGE, FakeProvider, Fault, Reply, error, sse, tool_call

MODES = [(way, mode) for way in ("streamed", "whole") for mode in ("sync", "async")]
DIAGONAL = [("streamed", "sync"), ("whole", "async")]
WRITE = tool_call("write", text="x")
FINISH = tool_call("finish_task", summary="All of it.", id="call_f")
JOB = [Reply(calls=[WRITE]), Reply(calls=[FINISH])]
SOON = {"retry_after_ms": "5"}


def model_of(server: FakeProvider, way: str, **options: Any) -> ChatOpenAI:
    given = {"max_retries": 2, "timeout": 10, "disable_streaming": way == "whole", **options}
    return ChatOpenAI(model="m", base_url=server.url, api_key=SecretStr("none"), **given)


@dataclass
class Case:
    """What the server answers, one after another, and what comes of it.

    requests: how many the server gets; as many as it has answers, if not said. only: the way to which the
    case belongs. says: what the model is told in results. tokens: None when the server does not tell.
    """

    script: Sequence[Reply | Fault]
    ran: list[str] = field(default_factory=lambda: ["x"])
    turns: int = 2
    nudges: list[str] = field(default_factory=list)
    says: str = ""
    only: str = ""
    tokens: int | None = 2 * USAGE["total_tokens"]


def once(reply: Reply, **expected: Any) -> Case:
    """A case in which the model gives this reply, then finishes."""
    return Case([reply, JOB[1]], **expected)


def malformed(raw: str) -> Reply:
    return Reply(calls=[tool_call("write", raw=raw)])


def renamed(name: str | None) -> Reply:
    return Reply(calls=[tool_call(name, text="x")])


def several(*ids: str | None) -> Reply:
    return Reply(calls=[tool_call("write", text=str(at), id=id) for at, id in enumerate(ids)])


QUOTED = json.dumps('{"text": "x"}')
OLD = {"function_call": {"name": "write", "arguments": '{"text": "x"}'}}
SERVING: dict[str, Case] = {
    "the job": Case(JOB),
    "no usage is reported": Case(
        [Reply(calls=[WRITE], usage=False), Reply(calls=[FINISH], usage=False)], tokens=None
    ),
    "slow pieces": Case([Reply(calls=[WRITE], pause=0.02), Reply(calls=[FINISH], pause=0.02)]),
    "a late answer": Case([Reply(calls=[WRITE], wait=0.2), JOB[1]]),
    "one piece for each character": Case([Reply(calls=[WRITE], size=1), Reply(calls=[FINISH], size=1)]),
    "all in one piece": Case([Reply(calls=[WRITE], size=9999), Reply(calls=[FINISH], size=9999)]),
    "no content": Case([Reply(calls=[WRITE], text=None), JOB[1]]),
    "words beside the call": Case([Reply("I write.", calls=[WRITE]), JOB[1]]),
    "reasoning_content beside the call": once(Reply(calls=[WRITE], extra={"reasoning_content": "hm"})),
    "thoughts in tags beside the call": once(Reply("<think>hm</think>", calls=[WRITE])),
    "the first protocol's function_call": once(Reply(extra=OLD, finish="function_call")),
    "several calls": once(several("a", "b", "c"), ran=["0", "1", "2"]),
    "several calls of one id": once(several("a", "a"), ran=["0", "1"]),
    "calls without ids": once(several(None, None), ran=["0", "1"]),
    "calls with empty ids": once(several("", ""), ran=["0", "1"]),
    "work and the finish at once": Case([Reply(calls=[WRITE, FINISH])], turns=1, tokens=120),
    "a finish_reason stop beside a call": Case([Reply(calls=[WRITE], finish="stop"), JOB[1]]),
}  # fmt: skip

BROKEN_REPLIES: dict[str, Case] = {
    "words only": once(Reply("Done!"), ran=[], nudges=["talked"]),
    "nothing": once(Reply(""), ran=[], nudges=["empty"]),
    "no content at all": once(Reply(None), ran=[], nudges=["empty"]),
    "thoughts only": once(Reply("<think>hm</think>"), ran=[], nudges=["reasoning"]),
    "a refusal": once(Reply(extra={"refusal": "I cannot."}), ran=[], nudges=["filtered"], only="whole"),
    "a content filter": once(Reply("I c", finish="content_filter"), ran=[], nudges=["filtered"]),
    "a cut reply": once(Reply("I will", finish="length"), ran=[], nudges=["truncated"]),
    "a cut reply with a whole call": once(
        Reply(calls=[WRITE], finish="length"), ran=[], nudges=["truncated"], says="cut off"
    ),
    "cut arguments": once(malformed('{"text": "x'), ran=[], says="not valid JSON"),
    "arguments in a string": once(malformed(QUOTED), only="streamed"),
    # The client cannot build such a message, so that only the arguments are known.
    "arguments in a string, whole": once(
        malformed(QUOTED), ran=[], says="are not valid JSON", only="whole", tokens=None
    ),
    "a list of arguments": once(malformed("[1]"), ran=[], says="a list, not an object", tokens=None),
    "null as arguments": once(malformed("null"), ran=[], says="text: Field required"),
    "no arguments": once(malformed(""), ran=[], says="text: Field required"),
    "NaN": once(malformed('{"text": "x", "n": NaN}'), ran=[], says="not valid JSON"),
    "infinity": once(malformed('{"text": "x", "n": 1e999}'), ran=[], says="not valid JSON"),
    "a line end in a string": once(malformed('{"text": "a\nb"}'), ran=["a\nb"]),
    "an unknown tool": once(renamed("wrote"), ran=[], says="Did you mean 'write'?"),
    "a prefix before the name": once(renamed("functions.write")),
    "capitals in the name": once(renamed("Write")),
    "spaces around the name": once(renamed(" write ")),
    "no name": once(renamed(None), ran=[], says="There is no tool ''"),
}  # fmt: skip

# The graph tries again; that the provider's client would, too, changes nothing.
TRANSIENT: dict[str, Case] = {
    "429": Case([error(429, "Too fast", "rate_limit_exceeded", **SOON), *JOB]),
    "429 twice": Case([error(429, "Too fast", **SOON), error(429, "Too fast", **SOON), *JOB]),
    "500": Case([error(500, "Oh no", **SOON), *JOB]),
    "502 with a page": Case([Fault(502, "<html>Bad</html>", {"Retry-After-Ms": "5"}, "text/html"), *JOB]),
    "503 in the middle of the job": Case([JOB[0], error(503, "Overloaded", **SOON), JOB[1]]),
    "408": Case([error(408, "Timeout", **SOON), *JOB]),
    "409": Case([error(409, "Conflict", **SOON), *JOB]),
}  # fmt: skip

ALL = {**SERVING, **BROKEN_REPLIES, **{f"{name} is tried again": case for name, case in TRANSIENT.items()}}
# What a reply holds reads the same in both kinds of graphs.
CELLS = [
    (name, way, mode)
    for name, case in ALL.items()
    for way, mode in (DIAGONAL if name in BROKEN_REPLIES else MODES)
    if case.only in ("", way)
]


async def job(model: BaseChatModel, mode: str, task: str = "do it") -> tuple[dict[str, Any], list[str]]:
    """The result of a run with one tool, and the texts that were written."""
    ran: list[str] = []

    def write(text: str) -> str:
        """Write a text down."""
        ran.append(text)
        return "written"

    graph = build_graph(model, [write], limits=Limits(turns=10))
    given = {"messages": [("user", task)]}
    return (await graph.ainvoke(given) if mode == "async" else graph.invoke(given)), ran


@pytest.mark.parametrize(("name", "way", "mode"), CELLS)
@pytest.mark.slow
@pytest.mark.sample(24)
async def test_the_job_is_done(name: str, way: str, mode: str) -> None:
    case = ALL[name]
    with FakeProvider(case.script) as server:
        result, ran = await job(model_of(server, way), mode)
    outcome, messages = result["outcome"], result["messages"]
    assert (outcome["status"], outcome["turns"]) == ("success", case.turns), outcome["error"]
    assert ran == case.ran
    assert [kind for message in messages if (kind := nudge_kind(message))] == case.nudges
    assert case.says in "\n".join(m.text for m in messages if isinstance(m, ToolMessage))
    assert case.tokens in (None, outcome["usage"]["total_tokens"])
    assert len(server.requests) == len(case.script)
    assert {request.body.get("stream", False) for request in server.requests} == {way == "streamed"}
    assert all(sendable(request.body["messages"]) for request in server.requests)


def sendable(messages: list[dict[str, Any]]) -> bool:
    """Whether OpenAI takes these messages: a result directly after each call, ids, names, whole JSON."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if not waiting or message["tool_call_id"] != waiting.pop(0):
                return False
            continue
        calls = message.get("tool_calls") or []
        names = [call["function"]["name"] for call in calls]
        ids = [call["id"] for call in calls]
        if waiting or not all(ids) or not all(name.replace("_", "").isalnum() for name in names):
            return False
        waiting = list(ids)
    return not waiting


async def test_the_wait_that_a_server_asks_for_is_kept() -> None:
    with FakeProvider([error(429, "Too fast", Retry_After="1"), *JOB]) as server:
        result, _ = await job(model_of(server, "streamed"), "sync")
    assert result["outcome"]["status"] == "success"
    first, second, _ = [request.at for request in server.requests]
    assert second - first >= 1.0


async def test_a_finish_in_the_middle_of_a_long_stream_ends_it() -> None:
    long = Reply(calls=[FINISH, *[tool_call("write", text="x" * 400)] * 20], pause=0.01)
    with FakeProvider([long]) as server:
        result, ran = await job(model_of(server, "streamed"), "sync")
    assert (result["outcome"]["status"], ran) == ("success", [])
    (reply,) = [message for message in result["messages"] if is_reply(message)]
    assert [call["name"] for call in reply.tool_calls] == ["finish_task"]


# Some servers do not number the calls of a stream.


def unnumbered(size: int) -> Fault:
    reply, events = Reply(calls=[WRITE, {**WRITE, "id": "call_1"}], size=size), []
    for delta in reply.deltas():
        calls = [{key: call[key] for key in call if key != "index"} for call in delta.get("tool_calls", ())]
        choice = {"index": 0, "delta": {**delta, "tool_calls": calls}, "finish_reason": None}
        events.append(f"data: {json.dumps({'choices': [choice]})}")
    end = {"index": 0, "delta": {}, "finish_reason": "tool_calls"}
    return sse(*events, f"data: {json.dumps({'choices': [end]})}", "data: [DONE]")


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("size", [1, 8, 999])
async def test_streamed_calls_without_numbers_are_put_together(size: int, mode: str) -> None:
    with FakeProvider([unnumbered(size), JOB[1]]) as server:
        result, ran = await job(model_of(server, "streamed"), mode)
    assert (result["outcome"]["status"], ran) == ("success", ["x", "x"])


# The same job with the embedded model behind its own server.


@pytest.fixture(scope="module")
def embedded() -> Iterator[Any]:
    with local_model() as started:
        started.start()
        yield started


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(
    server_version() is None or bool(missing_packages()), reason="the extra signoff[local] is not installed"
)
@pytest.mark.parametrize(
    ("way", "mode"), [DIAGONAL[0], pytest.param(*DIAGONAL[1], marks=pytest.mark.embedded)]
)
@pytest.mark.thorough
async def test_the_embedded_model_does_the_job(embedded: Any, way: str, mode: str, tmp_path: Path) -> None:
    model = embedded.model_copy(update={"disable_streaming": way == "whole"})
    task = "Call the tool write with the text heron. Then call finish_task."
    result, ran = await job(model, mode, task)
    assert result["outcome"]["status"] == "success", result["outcome"]
    assert [text.strip().lower() for text in ran] == ["heron"]
    assert result["outcome"]["usage"]["total_tokens"] > 0
