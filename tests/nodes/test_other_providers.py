"""Anthropic's and Google's packages against servers of their shapes: finishes, cut replies, errors."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from signoff import Limits, ModelRetries, build_graph
from signoff.graph.messages import is_reply, marks, nudge_kind
from tests.support.servers.fake_others import (
    READ,
    WROTE,
    AnthropicReply,
    GoogleReply,
    anthropic_error,
    google_error,
)
from tests.support.servers.fake_provider import FakeProvider, Fault, Reply, tool_call

# Of Google's own client in an event loop.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
]
SOON = ModelRetries(first_wait=0.01)


def anthropic(server: FakeProvider, **options: Any) -> BaseChatModel:
    return ChatAnthropic(model="fake", base_url=server.root, api_key=SecretStr("k"), **options)


def google(server: FakeProvider, **options: Any) -> BaseChatModel:
    return ChatGoogleGenerativeAI(model="fake", base_url=server.root, api_key=SecretStr("k"), **options)


@dataclass(frozen=True)
class Shape:
    """A provider: its model on a server, its replies and its errors."""

    model: Callable[..., BaseChatModel]
    reply: type[Reply]
    slow_down: Fault
    overloaded: Fault
    no_key: Fault
    variable: str


SHAPES = {
    "anthropic": Shape(
        anthropic,
        AnthropicReply,
        anthropic_error(429, "rate_limit_error", "Too fast.", retry_after="0.3"),
        anthropic_error(529, "overloaded_error", "Overloaded."),
        anthropic_error(401, "authentication_error", "invalid x-api-key"),
        "ANTHROPIC_API_KEY",
    ),
    "google": Shape(
        google,
        GoogleReply,
        google_error(429, "RESOURCE_EXHAUSTED", "Too fast.", delay="0.3s"),
        google_error(503, "UNAVAILABLE", "Overloaded."),
        google_error(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
        "GOOGLE_API_KEY",
    ),
}
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
both_modes = pytest.mark.parametrize("mode", ["sync", "async"])
FINISH = tool_call("finish_task", summary="All of it.", id="call_f")


def writes(*texts: str) -> list[dict[str, Any]]:
    return [tool_call("write", text=text, id=f"call_{at}") for at, text in enumerate(texts)]


async def job(
    model: BaseChatModel, mode: str, **settings: Any
) -> tuple[dict[str, Any], list[str], list[AIMessage]]:
    """The outcome of a run with one tool, the texts that were written, and the replies."""
    ran: list[str] = []

    def write(text: str) -> str:
        """Write a text down."""
        ran.append(text)
        return "written"

    graph = build_graph(model, [write], limits=Limits(turns=10), **{"model_retries": SOON, **settings})
    given: Any = {"messages": [("user", "do it")]}
    result = await graph.ainvoke(given) if mode == "async" else graph.invoke(given)
    assert [kind for m in result["messages"] if (kind := nudge_kind(m))] in ([], ["truncated"])
    return result["outcome"], ran, [m for m in result["messages"] if is_reply(m)]


@both_modes
@every_shape
async def test_work_then_a_finish(shape: Shape, mode: str) -> None:
    script = [shape.reply("I write.", calls=writes("x")), shape.reply(calls=[FINISH])]
    with FakeProvider(script) as server:
        outcome, ran, _ = await job(shape.model(server), mode)
        assert all(request.streamed for request in server.requests)
    assert (outcome["status"], outcome["summary"], outcome["turns"]) == ("success", "All of it.", 2)
    assert ran == ["x"]
    assert (outcome["usage"]["total_tokens"], outcome["usage"]["estimated"]) == (2 * (READ + WROTE), False)
    assert outcome["models"] == {"fake": 2}


@both_modes
@every_shape
async def test_parallel_calls(shape: Shape, mode: str) -> None:
    script = [shape.reply(calls=writes("a", "b", "c")), shape.reply(calls=[FINISH])]
    with FakeProvider(script) as server:
        outcome, ran, replies = await job(shape.model(server), mode)
    assert (outcome["status"], ran) == ("success", ["a", "b", "c"])
    assert len({call["id"] for call in replies[0].tool_calls}) == 3


@both_modes
@every_shape
async def test_what_follows_a_finish_is_cut_off_by_the_guard(shape: Shape, mode: str) -> None:
    long = shape.reply(calls=[FINISH, *writes(*("y" * 400 for _ in range(20)))], pause=0.01)
    with FakeProvider([long]) as server:
        outcome, ran, (reply,) = await job(shape.model(server), mode)
    assert (outcome["status"], ran) == ("success", [])
    assert [call["name"] for call in reply.tool_calls] == ["finish_task"]
    assert marks(reply)["cut"] == 1


@both_modes
async def test_a_finish_that_was_cut_is_none(mode: str) -> None:
    cut = {**FINISH, "function": {"name": "finish_task", "arguments": '{"summary": "All of'}}
    script = [AnthropicReply(calls=[cut], finish="length"), AnthropicReply(calls=[FINISH])]
    with FakeProvider(script) as server:
        outcome, _, _ = await job(anthropic(server), mode)
    assert (outcome["status"], outcome["turns"], outcome["summary"]) == ("success", 2, "All of it.")


@both_modes
@every_shape
async def test_work_of_a_cut_reply_does_not_run(shape: Shape, mode: str) -> None:
    script = [shape.reply("I wi", calls=writes("x"), finish="length"), shape.reply(calls=[FINISH])]
    with FakeProvider(script) as server:
        outcome, ran, _ = await job(shape.model(server), mode)
    assert (outcome["status"], outcome["nudges"], ran) == ("success", 1, [])


@both_modes
@every_shape
async def test_errors_that_pass_are_tried_again_by_the_graph_alone(shape: Shape, mode: str) -> None:
    dropped = shape.reply("I will now do it.", size=2, ends="cut", after=1)
    script: Sequence[Any] = [shape.slow_down, shape.overloaded, dropped, shape.reply(calls=[FINISH])]
    with FakeProvider(script) as server:
        outcome, _, _ = await job(shape.model(server, max_retries=6), mode)
        times = [request.at for request in server.requests]
    assert (outcome["status"], outcome["retries"]) == ("success", 3), outcome["error"]
    assert times[1] - times[0] >= 0.3, "the wait that it asked for"
    assert outcome["seconds_retrying"] >= 0.3
    assert len(times) == len(script)


@every_shape
async def test_a_package_that_has_been_used_tries_again_no_more(shape: Shape) -> None:
    script: Sequence[Any] = [shape.reply("Hello."), shape.overloaded, shape.overloaded]
    with FakeProvider(script) as server:
        model = shape.model(server, max_retries=6)
        assert model.invoke("Hi.").text == "Hello."
        outcome, _, _ = await job(model, "sync", model_retries=ModelRetries(tries=2, first_wait=0.01))
        assert len(server.requests) == len(script)
        assert outcome["reason"] == "model_error"
        assert getattr(model, "max_retries") == 6, "the caller's own is as it was"  # noqa: B009  no field of all


# One picture of a single pixel, and 300,000 characters of another one.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
LARGE = b64encode(b64decode(PIXEL) + bytes(225_000)).decode()
PER_IMAGE = 85


def openai(server: FakeProvider) -> BaseChatModel:
    return ChatOpenAI(model="fake", base_url=server.url, api_key=SecretStr("k"))


@pytest.mark.parametrize(
    ("made", "kind"), [(openai, Reply), (anthropic, AnthropicReply), (google, GoogleReply)]
)
def test_images_in_a_message_and_in_a_result_arrive_and_count_as_images(
    made: Callable[..., BaseChatModel], kind: type[Reply]
) -> None:
    def image(data: str) -> dict[str, Any]:
        return {"type": "image", "base64": data, "mime_type": "image/png"}

    def shoot() -> list[Any]:
        """Take a picture of the screen."""
        return [{"type": "text", "text": "Here it is."}, image(LARGE)]

    words = {"type": "text", "text": "What is this?"}
    script = [kind(calls=[tool_call("shoot")]), kind(calls=[FINISH])]
    with FakeProvider(script) as server:
        graph = build_graph(made(server), [shoot], prompt_tokens=4_000, model_retries=None)
        result = graph.invoke({"messages": [("user", [words, image(PIXEL)])]})
        sent = [json.dumps(request.body) for request in server.requests]
    # Google takes the alphabet for addresses.
    sent = [body.replace("-", "+").replace("_", "/") for body in sent]
    assert result["outcome"]["status"] == "success", result["outcome"]["error"]
    assert (PIXEL in sent[0], PIXEL in sent[1], LARGE in sent[1]) == (True, True, True)
    shown = [marks(m)["shown"] for m in result["messages"] if is_reply(m)]
    assert PER_IMAGE < shown[1] - shown[0] < PER_IMAGE + 100, "the picture, and the words around it"
    assert "digest" not in result, "nothing had to be folded"


@every_shape
async def test_a_wrong_key_names_the_variable_of_this_provider(shape: Shape) -> None:
    with FakeProvider([shape.no_key]) as server:
        outcome, _, _ = await job(shape.model(server), "sync")
        assert len(server.requests) == 1
    assert shape.variable in outcome["error"]
    assert "OPENAI" not in outcome["error"]
