"""OpenAI's API in plain dicts: the same requests, replies, errors and callbacks as the package's own."""

import asyncio
import functools
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import UUID

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableConfig
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from openai.types.chat import ChatCompletionChunk
from pydantic import BaseModel, SecretStr

import signoff.nodes.model.openai_client
import signoff.nodes.model.retries
from signoff import ModelRetries, build_graph
from signoff.nodes.model.guard import guarded, without_streaming
from signoff.nodes.model.openai_client import dumped, past_conversion
from signoff.nodes.model.retries import without_own_retries
from signoff.nodes.model.stream import WATCH, CallBounds
from tests.support.histories import CONTROLS
from tests.support.servers.fake_provider import FakeProvider, Reply, error, tool_call
from tests.support.servers.hostile_server import HEADERS, HostileServer, Sent
from tests.support.servers.slow_server import SlowServer, finishes

both = pytest.mark.parametrize("mode", ["sync", "async"])
RUN = UUID(int=7)


def model_of(url: str, kind: type[ChatOpenAI] = ChatOpenAI, **options: Any) -> ChatOpenAI:
    chosen = {"timeout": 10, "max_retries": 0, "stream_usage": True, **options}
    return kind(model="m", base_url=url, api_key=SecretStr("none"), **chosen)


# What the server sends, byte for byte.

HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "m-1"}
USAGE = {
    "prompt_tokens": 10,
    "completion_tokens": 5,
    "total_tokens": 15,
    "prompt_tokens_details": {"cached_tokens": 3},
}
DONE = b"data: [DONE]\n\n"


def chunk(**given: Any) -> dict[str, Any]:
    return {**HEAD, **given}


def choice(finish: str | None = None, /, **delta: Any) -> dict[str, Any]:
    return chunk(choices=[{"index": 0, "delta": delta, "finish_reason": finish}])


def call_part(index: int | None, arguments: str, name: str | None = None, **more: Any) -> dict[str, Any]:
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    return {"index": index, "function": function, **more}


def beginning(index: int, name: str) -> dict[str, Any]:
    return choice(tool_calls=[call_part(index, "", name, id=f"call_{index}", type="function")])


def piece(index: int, arguments: str) -> dict[str, Any]:
    return choice(tool_calls=[call_part(index, arguments)])


WORDS = [choice(role="assistant", content=""), choice(content="Hello, "), choice(content="wörld.")]
STOP = choice("stop")
LOGPROBS = {"content": [{"token": "Hi", "logprob": -1, "bytes": [72, 105], "top_logprobs": []}]}
CHUNKS: dict[str, list[Any]] = {
    "text": [*WORDS, STOP],
    "text with what it cost": [*WORDS, STOP, chunk(choices=[], usage=USAGE)],
    "the cost in each chunk": [{**one, "usage": USAGE} for one in (*WORDS, STOP)],
    "a service tier and a fingerprint": [
        {**one, "service_tier": "flex", "system_fingerprint": "fp"} for one in (*WORDS, STOP)
    ],
    "several calls, their pieces mixed": [
        beginning(0, "write"),
        beginning(1, "look"),
        piece(0, '{"te'),
        piece(1, '{"pa'),
        piece(0, 'xt": "x"}'),
        piece(1, 'th": "."}'),
        choice("tool_calls"),
    ],
    "two pieces in one chunk": [
        beginning(0, "write"),
        beginning(1, "look"),
        choice(tool_calls=[call_part(0, "{}"), call_part(1, "{}")]),
        choice("tool_calls"),
    ],
    "pieces without a place": [choice(tool_calls=[call_part(None, "{}", "write", id="c")]), STOP],
    "a piece without a function": [choice(tool_calls=[{"index": 0, "id": "c"}]), STOP],
    "a function that is null": [choice(tool_calls=[{"index": 0, "id": "c", "function": None}]), STOP],
    "the first protocol's function_call": [
        choice(function_call={"name": "write", "arguments": ""}),
        choice(function_call={"arguments": "{}"}),
        choice("function_call"),
    ],
    "a refusal": [choice(role="assistant", refusal="I "), choice(refusal="cannot."), STOP],
    "log probabilities": [
        chunk(choices=[{"index": 0, "delta": {"content": "Hi"}, "logprobs": LOGPROBS}]),
        STOP,
    ],
    "thoughts beside the words": [choice(reasoning_content="hm"), *WORDS, STOP],
    "what nobody knows": [{**choice(content="x", odd={"a": [1]}), "more": [{}]}, STOP],
    "no choices at all": [chunk(), chunk(choices=None), chunk(choices=[]), *WORDS, STOP],
    "a delta that is null, or missing": [
        chunk(choices=[{"index": 0, "delta": None}]),
        chunk(choices=[{"index": 0}]),
        *WORDS,
        STOP,
    ],
    "an empty object": [{}, *WORDS, STOP],
    "a finish reason of its own": [*WORDS, choice("eos")],
    "no finish reason": [*WORDS],
    "two choices": [chunk(choices=[{"index": at, "delta": {"content": str(at)}} for at in (0, 1)]), STOP],
    "another role": [choice(role="user", content="x"), STOP],
    "separators of lines within a text": [choice(content="a\u2028b\x85c\x0bd"), STOP],
    "a list of contents": [choice(content=[{"type": "text", "text": "x"}]), STOP],
    "an error": [*WORDS, {"error": {"message": "overloaded", "type": "server_error", "code": 1}}, STOP],
    "an error without words": [*WORDS, {"error": {"code": 1}}],
    "an error that is a text": [*WORDS, {"error": "overloaded"}],
    "an error that is too long a prompt": [
        {"error": {"message": "Your input exceeds the context window of this model."}}
    ],
    "a list": [*WORDS, [1]],
    "null": [*WORDS, None],
    "choices that are an object": [chunk(choices={"0": {}})],
    "choices that are a number": [chunk(choices=1)],
    "calls that are an object": [choice(tool_calls={"0": {}}), choice(tool_calls=1)],
    "arguments that are an object": [choice(tool_calls=[{"index": 0, "function": {"arguments": {}}}])] * 2,
    "a choice that is a text": [chunk(choices=["x"])],
}


def sse(given: Any, *, ascii_only: bool = False) -> bytes:
    return f"data: {json.dumps(given, ensure_ascii=ascii_only)}\n\n".encode()


TEXT = b"".join(map(sse, [*WORDS, STOP]))
HALF = TEXT.index(b"\xc3") + 1
CUT = HEADERS.replace(b"Connection: close", b"Transfer-Encoding: chunked")
BYTES: dict[str, list[bytes | float]] = {
    "CRLF": [TEXT.replace(b"\n", b"\r\n"), DONE],
    "CR": [TEXT.replace(b"\n", b"\r"), DONE],
    "comments, and other fields": [b": alive\n\nid: 7\nretry: 3\nevent: message\n", TEXT, b":\n\n", DONE],
    "no space behind the colon": [TEXT.replace(b"data: ", b"data:"), DONE],
    "data in several lines": [TEXT.replace(b'"id"', b'\ndata: "id"'), DONE],
    "a character in two packets": [TEXT[:HALF], 0.05, TEXT[HALF:], DONE],
    "byte for byte": [*(TEXT[at : at + 1] for at in range(len(TEXT))), DONE],
    "a byte order mark": [b"\xef\xbb\xbf", TEXT, DONE],
    "no end": [TEXT],
    "an end without its blank line": [TEXT, b"data: [DONE]"],
    "more behind the end": [TEXT, DONE, sse(choice(content="more"))],
    "a malformed line": [sse(WORDS[1]), b"data: {nonsense\n\n", DONE],
    "bytes that are no text": [sse(WORDS[1]), b"data: \xff\xfe\n\n", DONE],
    "an error event": [sse(WORDS[1]), b"event: error\n", sse({"error": {"message": "overloaded"}})],
    "a thread event": [b"event: thread.created\n", sse({"id": "x"})],
    "nothing": [DONE],
    "nothing at all": [],
}  # fmt: skip
SENT: dict[str, list[bytes | float]] = {
    **{name: [HEADERS, *map(sse, found), DONE] for name, found in CHUNKS.items()},
    **{name: [HEADERS, *found] for name, found in BYTES.items()},
    "a dropped connection": [CUT + b"%x\r\n%s\r\n" % (len(TEXT), TEXT)],
    "a dropped connection in a piece": [CUT + b"fff\r\n" + TEXT],
    "not found": [b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"],
    "a page in place of a stream": [HEADERS.replace(b"event-stream", b"html"), b"<html>busy</html>"],
}


class Notes(BaseCallbackHandler):
    """What callbacks are told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, **kwargs: Any) -> None:
        self.told.append((token, chunk and chunk.model_dump(), kwargs.get("logprobs")))

    def on_llm_end(self, response: Any, **kwargs: Any) -> None:
        self.told.append(response.model_dump())

    def on_llm_error(self, error: BaseException, **kwargs: Any) -> None:
        self.told.append(_error(error))


def _error(error: BaseException | None) -> Any:
    """The classes, the words and the provider's body, also of what it was made of."""
    if error is None:
        return None
    body = getattr(error, "body", None), getattr(error, "status_code", None)
    said = re.sub("0x[0-9a-f]+", "", str(error))
    return type(error).__mro__, said, body, _error(error.__cause__)


def seen(model: BaseChatModel, mode: str, *, unseen: bool = False) -> dict[str, Any]:
    """All that comes of a stream. unseen: nobody is shown its pieces."""
    token = WATCH.set(CallBounds(unseen=unseen))
    try:
        return _seen(model, mode)
    finally:
        WATCH.reset(token)


def _seen(model: BaseChatModel, mode: str) -> dict[str, Any]:
    notes, found, failed = Notes(), list[Any](), None
    config: RunnableConfig = {"callbacks": [notes], "run_id": RUN}

    async def chunks() -> None:
        async for one in model.astream("go", config):
            found.append(one)

    try:
        if mode == "async":
            asyncio.run(chunks())
        else:
            found.extend(model.stream("go", config))
    except Exception as error:  # noqa: BLE001  it is compared
        failed = _error(error)
    merged = add_ai_message_chunks(*found).model_dump() if found and _all_replies(found) else None
    dumps = [one.model_dump() for one in found]
    return {"chunks": dumps, "merged": merged, "error": failed, "told": notes.told}


def _all_replies(found: list[Any]) -> bool:
    return all(isinstance(one, AIMessageChunk) for one in found)


def twin_of(model: ChatOpenAI) -> BaseChatModel:
    twin = guarded(model, CONTROLS)
    assert uses_plain_dicts(twin)
    return twin


def uses_plain_dicts(twin: Any) -> bool:
    own = [type(client).__module__ == "signoff.nodes.model.openai_client" for client in clients(twin)]
    assert own[0] is own[1]
    return own[0]


def clients(model: Any) -> list[Any]:
    return [model.client, model.async_client]


@pytest.fixture(scope="module")
def server() -> Iterator[HostileServer]:
    with HostileServer(lambda: iter([])) as opened:
        yield opened


@pytest.fixture(scope="module")
def model(server: HostileServer) -> ChatOpenAI:
    return model_of(server.url)


@both
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("sent", SENT.values(), ids=SENT)
def test_both_ways_give_the_same(
    sent: list[bytes | float], mode: str, server: HostileServer, model: ChatOpenAI
) -> None:
    server.ways = [lambda: iter(sent)]
    own, twin = seen(model, mode), twin_of(model)
    assert seen(twin, mode) == own
    joined = seen(twin, mode, unseen=True)
    assert (joined["merged"], joined["error"]) == (own["merged"], own["error"])


LONG = "".join(map(chr, range(97, 117)))
# What the server sends, and the texts of the chunks that come of it: by their words, or by `call: arguments`.
JOINED: dict[str, tuple[list[Any], list[str]]] = {
    "words": ([choice(content=one) for one in LONG], ["a", LONG[1:]]),
    "words with a role each": ([choice(role="assistant", content=one) for one in LONG], ["a", LONG[1:]]),
    "arguments": (
        [beginning(0, "write"), *(piece(0, one) for one in LONG)],
        ["0: ", f"0: {LONG}"],
    ),
    "the arguments of two calls, mixed": (
        [beginning(0, "a"), piece(0, "x"), piece(0, "y"), piece(1, "z"), piece(1, "w"), piece(0, "v")],
        ["0: ", "0: xy", "1: zw", "0: v"],
    ),
    "words of many characters": (
        [choice(content="x" * 80)] * 6,
        ["x" * 80, "x" * 240, "x" * 160],
    ),
    "words, then arguments": (
        [choice(content="a"), choice(content="b"), beginning(0, "write"), piece(0, "{"), piece(0, "}")],
        ["a", "b", "0: ", "0: {}"],
    ),
    "thoughts between them": (
        [choice(content="a"), choice(content="b"), choice(reasoning_content="hm"), choice(content="c")],
        ["a", "b", "", "c"],
    ),
    "log probabilities": (
        [chunk(choices=[{"index": 0, "delta": {"content": "Hi"}, "logprobs": LOGPROBS}])] * 3,
        ["Hi", "Hi", "Hi"],
    ),
    "another choice": (
        [chunk(choices=[{"index": 1, "delta": {"content": one}}]) for one in "abc"],
        ["a", "b", "c"],
    ),
    "something beside them": ([{**choice(content=one), "more": 1} for one in "abc"], ["a", "b", "c"]),
    "an end": ([choice(content="a"), choice(content="b"), choice("stop", content="c")], ["a", "b", "c"]),
    "an error": ([choice(content="a"), choice(content="b"), {"error": "no"}], ["a", "b"]),
}


@both
@pytest.mark.parametrize(("sent", "wanted"), JOINED.values(), ids=JOINED)
def test_pieces_that_nobody_is_shown_are_joined(
    sent: list[Any], wanted: list[str], mode: str, server: HostileServer, model: ChatOpenAI
) -> None:
    server.ways = [lambda: iter([HEADERS, *map(sse, sent), DONE])]
    found = seen(twin_of(model), mode, unseen=True)["chunks"]
    calls = [one["tool_call_chunks"] for one in found]
    texts = [
        f"{parts[0]['index']}: {parts[0]['args']}" if parts else one["content"]
        for one, parts in zip(found, calls, strict=True)
    ]
    assert texts[: len(wanted)] == wanted
    assert not any(texts[len(wanted) :])


@both
def test_pieces_that_come_slowly_are_handed_on_at_once(
    mode: str, server: HostileServer, model: ChatOpenAI
) -> None:
    pieces = [piece for one in "abc" for piece in (sse(choice(content=one)), 0.1)]
    server.ways = [lambda: iter([HEADERS, *pieces, DONE])]
    found = seen(twin_of(model), mode, unseen=True)["chunks"]
    assert [one["content"] for one in found if one["content"]] == ["a", "b", "c"]


def test_the_cases_above_are_replies_and_errors(server: HostileServer, model: ChatOpenAI) -> None:
    def of(name: str) -> dict[str, Any]:
        server.ways = [lambda: iter(SENT[name])]
        return seen(twin_of(model), "sync")

    found = of("text")
    assert "".join(one["content"] for one in found["chunks"]) == "Hello, wörld."
    assert len(found["told"]) == 6, "the four chunks, the end of the last one, the whole"
    assert of("an error")["error"][0][0] is openai.APIError
    assert of("a dropped connection")["error"] is not None


# A chunk as a dict is, key by key, what the SDK's object of it gives.

NAMES = {
    *("id", "choices", "created", "model", "object", "usage", "service_tier", "system_fingerprint"),
    *("index", "delta", "finish_reason", "logprobs", "content", "function_call", "refusal", "role"),
    *("tool_calls", "function", "type", "arguments", "name", "audio", "moderation", "odd"),
}
KEYS = st.sampled_from(sorted(NAMES))
WORD = st.sampled_from(["", "x", "1", "stop"])
VALUES = st.recursive(
    st.none() | WORD | st.sampled_from([True, 0, 1, 0.5]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=5,
)


def _objects(**inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    others = st.dictionaries(st.sampled_from(sorted(NAMES - inner.keys())), VALUES, max_size=2)
    known = st.fixed_dictionaries({}, optional=inner)
    return st.builds(lambda one, other: {**other, **one}, known, others)


def _mostly(likely: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(likely, likely, VALUES)


_CALLS = st.lists(_mostly(_objects(function=_mostly(_objects(name=WORD)))), max_size=2)
_DELTA = _objects(content=_mostly(WORD), tool_calls=_mostly(_CALLS))
_CHOICES = st.lists(_mostly(_objects(delta=_mostly(_DELTA), index=st.integers(0, 2))), max_size=2)
DRAWN = _objects(choices=_mostly(_CHOICES), usage=st.none() | VALUES)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@given(DRAWN)
def test_a_dict_has_the_fields_that_the_sdks_object_would_have(drawn: dict[str, Any]) -> None:
    try:
        wanted: Any = ChatCompletionChunk.construct(**drawn).model_dump()
    except Exception as error:  # noqa: BLE001  a value that the SDK itself cannot read
        with pytest.raises(type(error)):
            dumped(drawn)
        return
    assert dumped(drawn) == wanted


# What is not known stays on the package's own way.


class WithOwnStream(ChatOpenAI):
    """Looks at what the stream gives."""

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        yield from super()._stream(*args, **kwargs)

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        async for one in super()._astream(*args, **kwargs):
            yield one


class Named(ChatOpenAI):
    """Has the stream of its parent."""

    @property
    def _llm_type(self) -> str:
        return "named"


class Traced(openai.resources.chat.Completions):
    """As a tracing package puts in place of the client's own."""


def _azure() -> Any:
    return AzureChatOpenAI(
        azure_endpoint="http://127.0.0.1:9", api_version="1", model="m", api_key=SecretStr("none")
    )


def _own_client() -> Any:
    model = model_of("http://127.0.0.1:9")
    model.client, model.async_client = Traced(model.root_client), object()
    return model


def _patched() -> Any:
    model = model_of("http://127.0.0.1:9")
    for client in clients(model):
        client.create = client.create
    return model


@pytest.mark.parametrize(
    ("made", "plainly"),
    [
        (lambda: model_of("http://127.0.0.1:9"), True),
        (lambda: model_of("http://127.0.0.1:9", Named), True),
        (_azure, True),
        (lambda: model_of("http://127.0.0.1:9", WithOwnStream), False),
        (_own_client, False),
        (_patched, False),
    ],
)
def test_only_what_is_known_is_replaced(made: Callable[[], Any], plainly: bool) -> None:
    model = made()
    before = clients(model)
    twin = guarded(model, CONTROLS)
    assert uses_plain_dicts(twin) is plainly
    assert all(one is other for one, other in zip(clients(model), before, strict=True))
    assert plainly or all(one is other for one, other in zip(clients(twin), before, strict=True))


@both
@pytest.mark.parametrize("way", ["stream", "whole", "headers"])
def test_other_ways_through_the_same_client_are_the_packages_own(way: str, mode: str) -> None:
    with FakeProvider([Reply("Hello."), Reply("Hello.")]) as server:
        model = model_of(server.url, include_response_headers=way == "headers")
        found = []
        for one in (model, twin_of(model)):
            if way == "whole":
                message = asyncio.run(one.ainvoke("go")) if mode == "async" else one.invoke("go")
                found.append(message.model_dump(exclude={"id"}))
            else:
                told = seen(one, mode)
                for each in told["chunks"]:
                    each["response_metadata"].get("headers", {}).pop("date", None)
                found.append(told["chunks"])
        assert found[0] == found[1]
        sent = [{**request.body} for request in server.requests]
        assert sent[0] == sent[1]


@both
def test_responses_are_as_they_are(mode: str) -> None:
    with FakeProvider([error(400, "no"), error(400, "no")]) as server:
        model = model_of(server.url, use_responses_api=True)
        own = seen(model, mode)
        assert seen(twin_of(model), mode)["error"] == own["error"]
        assert {request.path for request in server.requests} == {"/v1/responses"}


@both
def test_the_package_tries_again_as_often_as_it_is_told(mode: str) -> None:
    with FakeProvider([error(500, "no", retry_after_ms="1"), Reply("Hello.")]) as server:
        found = seen(twin_of(model_of(server.url, max_retries=2)), mode)
        assert found["error"] is None
        assert len(server.requests) == 2
        assert {request.headers["authorization"] for request in server.requests} == {"Bearer none"}


# The body of a request is the same, whatever stands in it.


class Place(BaseModel):
    """What the SDK converts, since it is no JSON yet."""

    kind: str = "place"


ASKED = {"role": "user", "content": "go"}
CALLED = AIMessage("", tool_calls=[{"name": "look", "args": {"at": ["ä", 1, None]}, "id": "c1"}])
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
HISTORIES: dict[str, list[Any]] = {
    "words": [SystemMessage("Be brief."), HumanMessage("gö\u2028 on")],
    "calls and results": [HumanMessage("go"), CALLED, ToolMessage("seen", tool_call_id="c1")],
    "an image": [HumanMessage([{"type": "text", "text": "What is this?"}, IMAGE])],
    "what nobody knows": [HumanMessage([{"type": "text", "text": "x", "odd": {"a": [1.5, True]}}])],
    "what is no JSON yet": [HumanMessage([{"type": "text", "text": "x", "odd": Place()}])],
    "what never is JSON": [HumanMessage([{"type": "text", "text": "x", "odd": object()}])],
}
SCHEMA = {"type": "object", "properties": {"at": {"type": "string", "enum": ["a", "b"]}}}
TOOL = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": SCHEMA}}
OPTIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "tools": {"tools": [TOOL, {**TOOL, "strict": True}], "tool_choice": "required"},
    "tools that are no list": {"tools": (TOOL,)},
    "a body of the user's": {"tools": [TOOL], "extra_body": {"top_k": 3, "tools": []}},
    "no body of the user's": {"tools": [TOOL], "extra_body": None},
    "headers of the user's": {"tools": [TOOL], "extra_headers": {"x-team": "a"}},
}


def _sent(model: BaseChatModel, history: list[Any], mode: str, streams: bool, **options: Any) -> Any:
    """How the call came out."""

    async def astreamed() -> None:
        async for _ in model.astream(history, **options):
            pass

    try:
        if mode == "async":
            asyncio.run(astreamed() if streams else model.ainvoke(history, **options))
        elif streams:
            list(model.stream(history, **options))
        else:
            model.invoke(history, **options)
    except Exception as error:  # noqa: BLE001  it is compared
        return _error(error)
    return None


@both
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_both_ways_send_the_same(
    history: list[Any], options: dict[str, Any], streams: bool, mode: str
) -> None:
    with FakeProvider([Reply("Hello.")] * 2) as server:
        model = model_of(server.url)
        copy = twin_of(model) if streams else without_streaming(model)
        assert uses_plain_dicts(copy)
        own, twin = (_sent(one, history, mode, streams, **options) for one in (model, copy))
        assert twin == own
        sent = [(request.body, request.headers.get("x-team")) for request in server.requests]
    if own is None:
        assert sent[0] == sent[1]
    else:
        assert sent == []


def test_what_is_json_is_not_converted_and_all_else_is() -> None:
    tuples = (TOOL,)
    assert past_conversion({"model": "m", "messages": [ASKED], "tools": [TOOL]}) == {
        "model": "m",
        "messages": (),
        "extra_body": {"messages": [ASKED], "tools": [TOOL]},
    }
    given = {"messages": [{**ASKED, "odd": Place()}], "tools": tuples}
    assert past_conversion(given) is given
    assert past_conversion({**given, "messages": [ASKED]})["tools"] is tuples


def test_a_user_s_own_body_comes_in_place_of_ours() -> None:
    with FakeProvider([Reply("Hello.")]) as server:
        twin_of(model_of(server.url)).invoke("go", **OPTIONS["a body of the user's"])
        (request,) = server.requests
    assert (request.body["messages"], request.body["tools"], request.body["top_k"]) == ([ASKED], [], 3)


# Who watches what goes through the SDK, as tracing packages do, sees what the package alone would have sent.


def _wrapped(create: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(create)
    def wrapper(*args: Any, **given: Any) -> Any:
        return create(*args, **given)

    return wrapper


@pytest.mark.parametrize("kind", ["Completions", "AsyncCompletions"])
def test_who_wraps_the_sdks_class_sees_every_argument(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = getattr(openai.resources.chat, kind)
    monkeypatch.setattr(own, "create", _wrapped(own.create))
    model = model_of("http://127.0.0.1:9")
    found = clients(guarded(model, CONTROLS))
    replaced = [type(one).__module__ == "signoff.nodes.model.openai_client" for one in found]
    assert replaced == [kind != "Completions", kind != "AsyncCompletions"]


@both
@pytest.mark.parametrize(
    ("name", "value"),
    [("SDK_CLIENT", "_none"), ("SDK_POST", "_none"), ("SDK_STEPS", ("request", "_none"))],
)
def test_a_version_of_the_sdk_without_a_private_name_sends_the_call_itself(
    name: str, value: Any, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (signoff.nodes.model.openai_client, signoff.nodes.model.retries):
        if hasattr(module, name):
            monkeypatch.setattr(module, name, value)
    with FakeProvider([Reply("Hello.")]) as server:
        model = model_of(server.url)
        twin = guarded(without_own_retries(model), CONTROLS)
        assert [type(one) for one in clients(twin)] == [type(one) for one in clients(model)]
        assert _sent(twin, [HumanMessage("go")], mode, True) is None
    assert [request.body["messages"] for request in server.requests] == [[ASKED]]


class Watcher:
    """Wraps a method of the SDK, and keeps the messages and the chunks that come through it."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.chunks: list[Any] = []

    def of_request(self, request: Callable[..., Any]) -> Callable[..., Any]:
        """Replaces the stream of a reply, as Logfire does."""

        @functools.wraps(request)
        def wrapper(*args: Any, stream_cls: Any = None, **given: Any) -> Any:
            options = next(one for one in (*args, given.get("options")) if hasattr(one, "json_data"))
            self.messages.append(options.json_data["messages"])
            return request(*args, **given, stream_cls=stream_cls and self._seen(stream_cls))

        return wrapper

    def of_create(self, create: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(create)
        def wrapper(*args: Any, **given: Any) -> Any:
            self.messages.append(given["messages"])
            return create(*args, **given)

        return wrapper

    def _seen(self, kind: Any) -> Any:
        watcher = self

        class Seen(kind):  # type: ignore[misc]  # the class is of the call
            def __stream__(self) -> Any:
                return watcher.kept(super().__stream__())

        class AsyncSeen(kind):  # type: ignore[misc]  # as above
            async def __stream__(self) -> Any:
                async for one in super().__stream__():
                    watcher.chunks.append(one)
                    yield one

        return AsyncSeen if "Async" in str(kind) else Seen

    def kept(self, chunks: Iterator[Any]) -> Iterator[Any]:
        for one in chunks:
            self.chunks.append(one)
            yield one


class OpenAIOfTheUsers(openai.OpenAI):
    """A client that looks at each request."""

    watcher = Watcher()

    def request(self, *args: Any, **given: Any) -> Any:
        return self.watcher.of_request(super().request)(*args, **given)


class AsyncOpenAIOfTheUsers(openai.AsyncOpenAI):
    async def request(self, *args: Any, **given: Any) -> Any:
        return await OpenAIOfTheUsers.watcher.of_request(super().request)(*args, **given)


def _on_the_classes(model: ChatOpenAI, watcher: Watcher, patch: pytest.MonkeyPatch) -> None:
    for kind in (openai.OpenAI, openai.AsyncOpenAI):
        patch.setattr(kind, "request", watcher.of_request(kind.request))


def _on_the_clients(model: ChatOpenAI, watcher: Watcher, patch: pytest.MonkeyPatch) -> None:
    for client in (model.root_client, model.root_async_client):
        client.request = watcher.of_request(client.request)


def _on_create(model: ChatOpenAI, watcher: Watcher, patch: pytest.MonkeyPatch) -> None:
    for kind in (openai.resources.chat.Completions, openai.resources.chat.AsyncCompletions):
        patch.setattr(kind, "create", watcher.of_create(kind.create))


@both
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("first", [True, False], ids=["before the graph", "after the graph"])
@pytest.mark.parametrize("watch", [_on_the_classes, _on_the_clients, _on_create])
def test_who_watches_the_sdk_sees_the_messages_and_the_reply(
    watch: Callable[..., None], first: bool, streams: bool, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = Watcher()
    with FakeProvider([Reply("Hello.")]) as server:
        model = model_of(server.url)
        if first:
            watch(model, watcher, monkeypatch)
        twin = guarded(model, CONTROLS) if streams else without_streaming(model)
        if not first:
            watch(model, watcher, monkeypatch)
        assert _sent(twin, [HumanMessage("go")], mode, streams) is None
    assert watcher.messages == [[ASKED]]
    if streams and watch is not _on_create:
        said = [one.choices[0].delta.content for one in watcher.chunks if one.choices]
        assert "".join(filter(None, said)) == "Hello."


@both
def test_a_client_of_a_class_of_the_users_gets_what_it_would_get(mode: str) -> None:
    watcher = OpenAIOfTheUsers.watcher = Watcher()
    with FakeProvider([Reply("Hello.")]) as server:
        given: dict[str, Any] = {"base_url": server.url, "api_key": "none", "max_retries": 0}
        root, aroot = OpenAIOfTheUsers(**given), AsyncOpenAIOfTheUsers(**given)
        own: dict[str, Any] = {"client": root.chat.completions, "async_client": aroot.chat.completions}
        model = model_of(server.url, root_client=root, root_async_client=aroot, **own)
        twin = guarded(model, CONTROLS)
        assert not uses_plain_dicts(twin)
        assert _sent(twin, [HumanMessage("go")], mode, streams=True) is None
    assert watcher.messages == [[ASKED]]
    assert watcher.chunks


# In a graph.


def _with_another_address(model: ChatOpenAI, watcher: Watcher, patch: pytest.MonkeyPatch) -> None:
    url = str(model.root_client.base_url)
    for name in ("root_client", "root_async_client"):
        root = getattr(model, name)
        setattr(model, name, root.with_options(base_url="http://127.0.0.1:9/v1"))
        setattr(model, name.removeprefix("root_"), root.with_options(base_url=url).chat.completions)
    _on_the_classes(model, watcher, patch)


def _on_this_create(model: ChatOpenAI, watcher: Watcher, patch: pytest.MonkeyPatch) -> None:
    for client in clients(model):
        client.create = watcher.of_create(client.create)


@both
@pytest.mark.parametrize("change", [_with_another_address, _on_the_clients, _on_this_create, _on_the_classes])
def test_a_graph_uses_the_client_that_the_model_was_given(
    change: Callable[..., None], mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = Watcher()
    with FakeProvider([Reply(calls=[tool_call("finish_task", summary="Done.")])]) as server:
        model = model_of(server.url)
        change(model, watcher, monkeypatch)
        graph, task = build_graph(model, model_retries=ModelRetries(tries=1)), {"messages": ["go"]}
        result = asyncio.run(graph.ainvoke(task)) if mode == "async" else graph.invoke(task)
    assert result["outcome"]["status"] == "success"
    assert [[one["role"] for one in seen] for seen in watcher.messages] == [["system", "user"]]


@both
def test_a_cut_closes_the_connection(mode: str) -> None:
    deltas = finishes(40)
    with SlowServer(deltas, pause=0.01) as server:
        graph, task = build_graph(model_of(server.url)), {"messages": ["go"]}
        result = asyncio.run(graph.ainvoke(task)) if mode == "async" else graph.invoke(task)
        served = server.served.get(timeout=5)
    assert result["outcome"]["status"] == "success"
    assert served.left
    assert served.chunks < len(deltas) / 2


@both
def test_a_silent_stream_ends_by_time(mode: str) -> None:
    def way() -> Sent:
        yield HEADERS + TEXT[: TEXT.index(b"\xc3")]
        yield 600.0

    with HostileServer(way) as server:
        graph = build_graph(model_of(server.url), model_seconds=0.3, model_retries=None)
        task = {"messages": ["go"]}
        result = asyncio.run(graph.ainvoke(task)) if mode == "async" else graph.invoke(task)
    assert result["outcome"]["reason"] == "model_error"
    assert "model_seconds" in result["outcome"]["error"]


def test_a_graph_uses_plain_dicts(monkeypatch: pytest.MonkeyPatch) -> None:
    with SlowServer(finishes(1), pause=0) as server:
        graph = build_graph(model_of(server.url))
        made, given = ChatCompletionChunk.construct, list[dict[str, Any]]()

        def construct(**fields: Any) -> ChatCompletionChunk:
            given.append(fields)
            return made(**fields)

        monkeypatch.setattr(ChatCompletionChunk, "construct", construct)
        assert graph.invoke({"messages": ["go"]})["outcome"]["status"] == "success"
    assert all(fields.get("usage") for fields in given), "only what it cost is read by the SDK"
