"""The scripted model: what a script may hold, how it is played, and how strict it is."""

import asyncio
import copy
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.messages.tool import tool_call
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import Runnable
from langchain_core.tools import tool
from langchain_tests.unit_tests import ChatModelUnitTests
from pydantic import ValidationError

from signoff.models import ScriptedModel, call, reply
from signoff.models.scripted import Step, UnexpectedCall, UnusedSteps

Model = Runnable[LanguageModelInput, AIMessage]
Ask = Callable[[Model, LanguageModelInput], AIMessage]


class TestStandardSuite(ChatModelUnitTests):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ScriptedModel

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"script": ["Hello."]}


def _sum(chunks: Sequence[AIMessage]) -> AIMessage:
    parts = [chunk for chunk in chunks if isinstance(chunk, AIMessageChunk)]
    assert len(parts) == len(chunks)
    return add_ai_message_chunks(*parts)


def _invoke(model: Model, shown: LanguageModelInput) -> AIMessage:
    return model.invoke(shown)


def _ainvoke(model: Model, shown: LanguageModelInput) -> AIMessage:
    return asyncio.run(model.ainvoke(shown))


def _stream(model: Model, shown: LanguageModelInput) -> AIMessage:
    return _sum(list(model.stream(shown)))


def _astream(model: Model, shown: LanguageModelInput) -> AIMessage:
    async def collect() -> list[AIMessage]:
        return [chunk async for chunk in model.astream(shown)]

    return _sum(asyncio.run(collect()))


WAYS: list[Ask] = [_invoke, _ainvoke, _stream, _astream]
every_way = pytest.mark.parametrize("ask", WAYS)


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
    total = _stream(ScriptedModel([call("finish", raw=cut)]), "go")
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
    ("ask", "streams"), [(_invoke, False), (_ainvoke, False), (_stream, True), (_astream, True)]
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


@every_way
@pytest.mark.parametrize("script", [[], iter([]), (text for text in [""] if text)])
def test_a_call_beyond_the_script_shows_what_the_model_was_shown(ask: Ask, script: Any) -> None:
    model = ScriptedModel(script)
    asked = AIMessage("", tool_calls=[tool_call(name="read", args={}, id="1")])
    with pytest.raises(UnexpectedCall, match=r"(?s)call 1 .*human: 'Fix the port'.*ai: '' calls read"):
        ask(model, [HumanMessage("Fix the port"), asked])
    assert len(model.seen) == 1


def _failing(messages: list[BaseMessage]) -> Step:
    raise AssertionError("the tool result is missing")


@pytest.mark.parametrize(("script", "message"), [([], "call 1"), ([_failing], "result is missing")])
def test_a_failed_expectation_that_an_agent_swallowed_comes_back_at_the_end(
    script: Any, message: str
) -> None:
    model = ScriptedModel(script)
    with pytest.raises(AssertionError, match=message):
        model.invoke("go")
    with pytest.raises(AssertionError, match=message):
        model.assert_done()


def _endless() -> Iterator[str]:
    for number in itertools.count(1):
        yield f"turn {number}"


UNUSED: list[tuple[Any, str]] = [
    (["a", "b", call("c")], r"At least 2 .*'b'"),
    (itertools.repeat("a"), r"At least 1 .*'a'"),
    (_endless(), r"At least 1 .*'turn 2'"),
]


@pytest.mark.parametrize(("script", "message"), UNUSED)
def test_steps_left_over_are_named_and_still_playable(script: Any, message: str) -> None:
    model = ScriptedModel(script)
    model.invoke("go")
    with pytest.raises(UnusedSteps, match=message):
        model.assert_done()
    assert model.invoke("go").text in {"a", "b", "turn 2"}


def test_leaving_the_with_block_checks_the_script_but_hides_no_other_error() -> None:
    with pytest.raises(UnusedSteps), ScriptedModel(["a"]):
        pass
    with pytest.raises(ZeroDivisionError), ScriptedModel(["a"]):
        _ = 1 / 0


def test_a_script_is_taken_step_by_step_and_may_be_endless() -> None:
    taken: list[str] = []

    def script() -> Iterator[Step]:
        for text in _endless():
            taken.append(text)
            yield text

    model = ScriptedModel(script())
    assert taken == []
    assert [model.invoke("go").text for _ in range(2)] == taken == ["turn 1", "turn 2"]


def test_a_script_that_is_one_function_decides_from_what_it_is_shown() -> None:
    def answer(messages: list[BaseMessage]) -> Step:
        return call("read") if len(messages) == 1 else "Done."

    with ScriptedModel(answer) as model:
        assert [model.invoke([HumanMessage("x")] * n).text for n in (2, 2)] == ["Done.", "Done."]
        assert model.invoke("x").tool_calls


@every_way
@pytest.mark.parametrize("step", [TimeoutError("slow"), TimeoutError, lambda messages: TimeoutError("slow")])
def test_an_exception_is_raised_and_the_call_is_recorded(ask: Ask, step: Any) -> None:
    with ScriptedModel([step, "back again"]) as model:
        with pytest.raises(TimeoutError, match=r"^(slow)?$"):
            ask(model, "go")
        assert ask(model, "go").content == "back again"
    assert len(model.seen) == 2


BAD_SCRIPTS: list[Any] = ["text", call("a"), reply("a"), AIMessage("a"), TimeoutError(), TimeoutError]


@pytest.mark.parametrize("script", BAD_SCRIPTS)
def test_a_single_step_is_no_script(script: Any) -> None:
    with pytest.raises(TypeError, match="list"):
        ScriptedModel(script)


@pytest.mark.parametrize("step", [None, 3, HumanMessage("a"), {"text": "a"}, [3], [["a"]], ["a", None]])
def test_what_is_no_step_is_refused(step: Any) -> None:
    with pytest.raises(TypeError, match=r"call\(\.\.\.\)"):
        ScriptedModel([step]).invoke("go")


BAD_CALLS: list[dict[str, Any]] = [{"raw": "{}", "x": 1}, {"args": ["-l"]}, {"x": object()}]


@pytest.mark.parametrize("arguments", BAD_CALLS)
def test_a_call_that_no_provider_could_send_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        call("a", **arguments)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@every_way
def test_bound_copies_share_the_script_and_the_record(ask: Ask) -> None:
    model = ScriptedModel(["1", "2", "3", "4", "5"])
    bound = model.bind_tools([add], tool_choice="required", parallel_tool_calls=False)
    copies: list[Model] = [model, bound, model.bind(temperature=0), model.model_copy(), copy.deepcopy(model)]
    assert [ask(each, "go").text for each in copies] == ["1", "2", "3", "4", "5"]
    assert [seen.tool_names for seen in model.seen] == [[], ["add"], [], [], []]
    assert [seen.tool_choice for seen in model.seen] == [None, "required", None, None, None]
    assert model.seen[1].kwargs == {"parallel_tool_calls": False}
    assert model.seen[2].kwargs == {"temperature": 0}
    model.assert_done()


def test_the_record_keeps_what_was_shown_then() -> None:
    model = ScriptedModel(["1", "2"])
    history: list[BaseMessage] = [HumanMessage("go")]
    history.append(model.invoke(history))
    model.invoke(history, stop=["END"], tools=[add])
    first, second = model.seen
    assert [message.content for message in first.messages] == ["go"]
    assert [message.content for message in second.messages] == ["go", "1"]
    assert second.kwargs == {"stop": ["END"]}
    assert second.tools[0]["function"]["parameters"]["required"] == ["a", "b"]


@every_way
def test_the_model_name_is_the_one_asked_for(ask: Ask) -> None:
    model = ScriptedModel(["1", "2"], model_name="tiny")
    replies = [ask(each, "go") for each in (model, model.bind(model="big"))]
    assert [each.response_metadata["model_name"] for each in replies] == ["tiny", "big"]


def test_threads_share_a_script_without_losing_or_repeating_a_step() -> None:
    def numbers() -> Iterator[Step]:
        for number in range(200):
            time.sleep(0.0005)  # lets another thread in while the script is at work
            yield call("n", n=number)

    model = ScriptedModel(numbers())
    got: list[AIMessage] = []
    threads = [
        threading.Thread(target=lambda: got.extend(model.invoke("go") for _ in range(50))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.tool_calls[0]["args"]["n"] for each in got) == list(range(200))
    assert len({each.tool_calls[0]["id"] for each in got}) == len(model.seen) == 200
    assert model.chunks_sent == sum(3 for _ in got)


def test_the_script_is_in_no_printout_of_the_model() -> None:
    assert "secret" not in repr(ScriptedModel(["secret"])) + str(ScriptedModel(["secret"]).to_json())
