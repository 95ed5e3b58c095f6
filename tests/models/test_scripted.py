"""The scripted model: what a script may hold, and how it is played."""

import asyncio
import itertools
import time
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.tool import tool_call
from langchain_core.outputs import ChatGenerationChunk
from langchain_tests.unit_tests import ChatModelUnitTests
from pydantic import ValidationError

from signoff.models import ScriptedModel, call, reply
from signoff.models.scripted import Step
from tests.support.model_ways import Ask, ainvoke, astream, every_way, invoke, stream


class TestStandardSuite(ChatModelUnitTests):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ScriptedModel

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"script": ["Hello."]}


def _called(name: str, id: str | None, /, **args: Any) -> dict[str, Any]:
    return {**tool_call(name=name, args=args, id=id)}


# step, text, tool calls, names and texts of invalid calls, finish reason
STEPS: list[tuple[Any, Any, list[dict[str, Any]], list[tuple[str, str]], str]] = [
    ("I am done with all of it.", "I am done with all of it.", [], [], "stop"),
    (call("read", path="a.txt"), "", [_called("read", "call_1", path="a.txt")], [], "tool_calls"),
    (call("now"), "", [_called("now", "call_1")], [], "tool_calls"),
    (
        call("say", text='ä\n"π" 🙂' * 9),
        "",
        [_called("say", "call_1", text='ä\n"π" 🙂' * 9)],
        [],
        "tool_calls",
    ),
    (
        call("greet", name="Bo", args={"id": 3}),
        "",
        [_called("greet", "call_1", id=3, name="Bo")],
        [],
        "tool_calls",
    ),
    (call("pay", id="call_0"), "", [_called("pay", "call_0")], [], "tool_calls"),
    (call("pay", id=""), "", [_called("pay", "")], [], "tool_calls"),
    (
        [call("a"), call("b", id="call_2"), call("c")],
        "",
        [_called("a", "call_1"), _called("b", "call_2"), _called("c", "call_3")],
        [],
        "tool_calls",
    ),
    (
        ("First. ", call("a", x=1), "Second."),
        "First. Second.",
        [_called("a", "call_1", x=1)],
        [],
        "tool_calls",
    ),
    (call("save", raw="no JSON at all"), "", [], [("save", "no JSON at all")], "tool_calls"),
    (reply(call("save", raw='["a"]'), finish_reason="stop"), "", [], [("save", '["a"]')], "stop"),
    (
        reply(call("finish", raw='{"summary": "Fixed a'), finish_reason="length"),
        "",
        [_called("finish", "call_1", summary="Fixed a")],
        [],
        "length",
    ),
    (reply(), "", [], [], "stop"),
    (reply(finish_reason="content_filter"), "", [], [], "content_filter"),
    (lambda messages: f"You said {messages[-1].content}.", "You said go.", [], [], "stop"),
    (lambda messages: lambda messages: call("a"), "", [_called("a", "call_1")], [], "tool_calls"),
    (
        AIMessage("Hi.", tool_calls=[tool_call(name="a", args={"x": 1}, id="own")]),
        "Hi.",
        [_called("a", "own", x=1)],
        [],
        "tool_calls",
    ),
    (
        AIMessage("", tool_calls=[tool_call(name="a", args={}, id=None)]),
        "",
        [_called("a", None)],
        [],
        "tool_calls",
    ),
    (
        AIMessage(
            "", additional_kwargs={"tool_calls": [{"id": "z", "function": {"name": "a", "arguments": "{}"}}]}
        ),
        "",
        [_called("a", "z")],
        [],
        "tool_calls",
    ),
    (AIMessage("Cut", response_metadata={"finish_reason": "length"}), "Cut", [], [], "length"),
    (AIMessage([{"type": "text", "text": "Block."}]), [{"type": "text", "text": "Block."}], [], [], "stop"),
]


@every_way
@pytest.mark.parametrize(("step", "text", "calls", "invalid", "reason"), STEPS)
def test_a_step_becomes_the_same_reply_on_every_way(
    ask: Ask, step: Any, text: Any, calls: list[Any], invalid: list[Any], reason: str
) -> None:
    with ScriptedModel([step], chunk_size=3) as model:
        got = ask(model, "go")
    assert got.content == text
    assert got.tool_calls == calls
    assert [(each["name"], each["args"]) for each in got.invalid_tool_calls] == invalid
    assert got.response_metadata == {"finish_reason": reason, "model_name": "scripted"}


USAGE: list[tuple[Any, tuple[int, int] | None]] = [
    ("12345678", (1, 2)),
    (reply("123456789"), (1, 3)),
    (reply(), (1, 0)),
    (reply(refusal="12345678"), (1, 2)),
    (call("abcd", raw="{}  "), (1, 2)),
    (reply("hi", usage=(100, 7)), (100, 7)),
    (reply("hi", usage={"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}), (3, 4)),
    (reply("hi", usage=False), None),
    (AIMessage("hi", usage_metadata={"input_tokens": 5, "output_tokens": 6, "total_tokens": 11}), (5, 6)),
]


@every_way
@pytest.mark.parametrize(("step", "expected"), USAGE)
def test_usage_is_as_given_or_counted_from_the_text(
    ask: Ask, step: Any, expected: tuple[int, int] | None
) -> None:
    usage = ask(ScriptedModel([step]), "1234").usage_metadata
    assert (usage and (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"])) == (
        expected and (*expected, sum(expected))
    )


def test_input_tokens_count_the_calls_in_the_history() -> None:
    history = [HumanMessage("1234"), AIMessage("", tool_calls=[tool_call(name="abcd", args={}, id="1")])]
    usage = ScriptedModel(["."]).invoke(history).usage_metadata
    assert usage is not None
    assert usage["input_tokens"] == 3


@every_way
def test_a_refusal_is_where_openai_puts_it(ask: Ask) -> None:
    got = ask(ScriptedModel([reply(refusal="I cannot.")]), "go")
    assert got.additional_kwargs == {"refusal": "I cannot."}
    assert got.content == ""


@every_way
def test_every_reply_has_a_fresh_id_and_every_call_too(ask: Ask) -> None:
    message = AIMessage("Same", id="same")
    replies = [
        ask(model, "go") for model in [ScriptedModel(itertools.repeat([call("a"), "x"]))] for _ in range(3)
    ]
    copies = [ask(model, "go") for model in [ScriptedModel([message, message])] for _ in range(2)]
    assert len({each.id for each in (*replies, *copies, message)}) == 6
    assert [each.tool_calls[0]["id"] for each in replies] == ["call_1", "call_2", "call_3"]


def test_a_message_of_the_script_is_never_handed_out_itself() -> None:
    message = AIMessage([{"type": "image", "source": {"id": 1}}], additional_kwargs={"trace": {"id": 1}})
    got = ScriptedModel([message]).invoke("go")
    assert isinstance(got.content[0], dict)
    got.content[0]["source"]["id"] = got.additional_kwargs["trace"]["id"] = 2
    assert message.content == [{"type": "image", "source": {"id": 1}}]
    assert message.additional_kwargs == {"trace": {"id": 1}}


def test_a_step_cannot_change_what_was_recorded() -> None:
    def forget(messages: list[BaseMessage]) -> Step:
        messages.clear()
        return "Done."

    model = ScriptedModel([forget])
    model.invoke("go")
    assert [message.content for message in model.seen[0].messages] == ["go"]


def test_an_exception_that_is_raised_again_starts_afresh() -> None:
    model = ScriptedModel(itertools.repeat(TimeoutError()))
    depths: list[int] = []
    for _ in range(2):
        with pytest.raises(TimeoutError) as raised:
            model.invoke("go")
        depths.append(len(raised.traceback))
    assert depths[0] == depths[1]


def test_a_cache_of_the_application_never_answers_in_place_of_the_script() -> None:
    set_llm_cache(InMemoryCache())
    try:
        with ScriptedModel(["1", "2"]) as model:
            assert [model.invoke("go").text for _ in range(2)] == ["1", "2"]
    finally:
        set_llm_cache(None)


def test_arguments_are_sent_as_providers_write_them() -> None:
    assert call("say", text="Grüße", n=None).arguments == '{"text": "Grüße", "n": null}'


def test_a_stream_carries_small_pieces_and_says_how_it_ended_in_its_last_chunk() -> None:
    model = ScriptedModel([["Hello", call("read", id="r", path="a"), call("now", id="n")]], chunk_size=4)
    *chunks, last = model.stream("go")
    deltas = [
        (each["index"], each["id"], each["name"], each["args"]) for c in chunks for each in c.tool_call_chunks
    ]
    assert [chunk.text for chunk in chunks if chunk.text] == ["Hell", "o"]
    assert deltas == [
        (0, "r", "read", ""),
        (0, None, None, '{"pa'),
        (0, None, None, 'th":'),
        (0, None, None, ' "a"'),
        (0, None, None, "}"),
        (1, "n", "now", ""),
        (1, None, None, "{}"),
    ]
    assert all(not chunk.response_metadata and chunk.usage_metadata is None for chunk in chunks)
    assert last.response_metadata["finish_reason"] == "tool_calls"
    assert last.usage_metadata is not None
    assert {chunk.id for chunk in chunks} == {last.id}


def test_the_sum_of_a_stream_keeps_the_exact_argument_text() -> None:
    cut = '{"summary": "Fixed a'
    total = stream(ScriptedModel([call("finish", raw=cut)]), "go")
    assert isinstance(total, AIMessageChunk)
    assert [each["args"] for each in total.tool_call_chunks] == [cut]


class _Tokens(BaseCallbackHandler):
    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.ended = 0

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, **kwargs: Any) -> None:
        assert isinstance(chunk, ChatGenerationChunk)
        self.tokens.append(token)

    def on_llm_end(self, response: Any, **kwargs: Any) -> None:
        self.ended += 1


@pytest.mark.parametrize(
    ("ask", "streams"), [(invoke, False), (ainvoke, False), (stream, True), (astream, True)]
)
def test_callbacks_get_each_token_of_a_stream_once(ask: Ask, streams: bool) -> None:
    tokens = _Tokens()
    ask(ScriptedModel(["Hello"], chunk_size=2).with_config(callbacks=[tokens]), "go")
    assert [token for token in tokens.tokens if token] == (["He", "ll", "o"] if streams else [])
    assert tokens.ended == 1


# LangChain's events are beta: the warning is about its interface, not about the model.
beta_events = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")


@beta_events
def test_events_carry_the_whole_reply_and_its_tokens() -> None:
    tokens = _Tokens()
    model = ScriptedModel([["Hi.", call("a", x=1)]], chunk_size=2)
    got = model.stream_events("go", {"callbacks": [tokens]}, version="v3").output
    assert (got.text, [each["args"] for each in got.tool_calls]) == ("Hi.", [{"x": 1}])
    assert [token for token in tokens.tokens if token] == ["Hi", "."]


@beta_events
async def test_async_events_carry_the_whole_reply_and_its_tokens() -> None:
    tokens = _Tokens()
    model = ScriptedModel([["Hi.", call("a", x=1)]], chunk_size=2)
    got = await (await model.astream_events("go", {"callbacks": [tokens]}, version="v3")).output
    assert (got.text, [each["args"] for each in got.tool_calls]) == ("Hi.", [{"x": 1}])
    assert [token for token in tokens.tokens if token] == ["Hi", "."]


@pytest.mark.parametrize("wanted", [1, 3])
def test_a_closed_stream_stops_generation(wanted: int) -> None:
    model = ScriptedModel(["x" * 1000], chunk_size=1)
    stream = model.stream("go")
    for _ in range(wanted):
        next(stream)
    stream.close()  # type: ignore[attr-defined]  # a generator, declared as an iterator
    assert model.chunks_sent == wanted
    model.assert_done()


async def test_a_closed_async_stream_stops_generation() -> None:
    model = ScriptedModel(["x" * 1000], chunk_size=1)
    stream = model.astream("go")
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]  # a generator, declared as an iterator
    await asyncio.sleep(0)
    assert model.chunks_sent == 1


async def test_others_run_while_a_reply_streams() -> None:
    both = ScriptedModel(["x" * 100, "y" * 100], chunk_size=1)
    order: list[str] = []

    async def follow() -> None:
        async for chunk in both.astream("go"):
            order.append(chunk.text)

    await asyncio.gather(follow(), follow())
    assert "".join(order)[:100].count("y") > 10


@every_way
def test_delay_is_time_per_chunk(ask: Ask) -> None:
    start = time.perf_counter()
    ask(ScriptedModel(["abcd"], chunk_size=1, delay=0.02), "go")
    assert time.perf_counter() - start >= 5 * 0.02


@pytest.mark.parametrize("options", [{"delay": -1}, {"chunk_size": 0}])
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ScriptedModel([], **options)
