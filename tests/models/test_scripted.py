"""The scripted model: what a script may hold, how it is played, and how strict it is at both ends."""

import copy
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.tool import tool_call
from langchain_core.tools import tool
from langchain_tests.unit_tests import ChatModelUnitTests

from signoff.models import ScriptedModel, call, reply
from tests.support.model_ways import Ask, Model, every_way


class TestStandardSuite(ChatModelUnitTests):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ScriptedModel

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"script": ["Hello."]}


# What a step becomes.


def _called(name: str, id: str | None, /, **args: Any) -> dict[str, Any]:
    return {**tool_call(name=name, args=args, id=id)}


BLOCK: list[Any] = [{"type": "text", "text": "Block."}]
FUNCTION: Any = lambda messages: f"You said {messages[-1].content}."  # noqa: E731  a step, not a definition

OWN = AIMessage("Hi.", tool_calls=[tool_call(name="a", args={"x": 1}, id="own")])
CUT = AIMessage("Cut", response_metadata={"finish_reason": "length"})


class Step(NamedTuple):
    """A step, and the calls, the content and the finish reason of the reply."""

    step: Any
    calls: Sequence[dict[str, Any]] = ()
    content: Any = ""
    reason: str = "tool_calls"


def says(step: Any, content: Any, reason: str = "stop") -> Step:
    return Step(step, (), content, reason)


STEPS: dict[str, Step] = {
    "text": says("I am done.", "I am done."),
    "a call": Step(call("read", path="a.txt"), [_called("read", "call_1", path="a.txt")]),
    "a call without arguments": Step(call("now"), [_called("now", "call_1")]),
    "arguments named as those of `call`": Step(
        call("greet", name="Bo", args={"id": 3}), [_called("greet", "call_1", id=3, name="Bo")]
    ),
    "several calls": Step(
        [call("a"), call("b", id="call_2"), call("c")],
        [_called("a", "call_1"), _called("b", "call_2"), _called("c", "call_3")],
    ),
    "text and a call": Step(("One. ", call("a", x=1), "Two."), [_called("a", "call_1", x=1)], "One. Two."),
    "nothing": says(reply(), ""),
    "a finish reason": says(reply(finish_reason="content_filter"), "", "content_filter"),
    "a function": says(FUNCTION, "You said go."),
    "a message": Step(OWN, [_called("a", "own", x=1)], "Hi."),
    "a message with its reason": says(CUT, "Cut", "length"),
    "a message in blocks": says(AIMessage(BLOCK), BLOCK),
}


@every_way
@pytest.mark.parametrize("name", STEPS)
def test_a_step_becomes_the_same_reply_on_every_way(ask: Ask, name: str) -> None:
    step = STEPS[name]
    with ScriptedModel([step.step], chunk_size=3) as model:
        got = ask(model, "go")
    assert (got.content, got.tool_calls, got.invalid_tool_calls) == (step.content, [*step.calls], [])
    assert got.response_metadata == {"finish_reason": step.reason, "model_name": "scripted"}


@every_way
@pytest.mark.parametrize("text", ["no JSON at all", '["a"]', '{"summary": "Fixed a'])
def test_arguments_that_are_no_json_object_are_an_invalid_call(ask: Ask, text: str) -> None:
    got = ask(ScriptedModel([reply(call("save", raw=text), finish_reason="stop")]), "go")
    assert got.response_metadata["finish_reason"] == "stop"
    if isinstance(got, AIMessageChunk):
        assert [found["args"] for found in got.tool_call_chunks] == [text], "a stream keeps the exact text"
    else:
        assert (got.tool_calls, [found["args"] for found in got.invalid_tool_calls]) == ([], [text])


COUNTED: Any = {"input_tokens": 5, "output_tokens": 6, "total_tokens": 11}
USAGE: dict[str, tuple[Any, tuple[int, int] | None]] = {
    "text": ("12345678", (1, 2)),
    "a call": (call("abcd", raw="{}  "), (1, 2)),
    "as given": (reply("hi", usage=(100, 7)), (100, 7)),
    "none": (reply("hi", usage=False), None),
    "a message's": (AIMessage("hi", usage_metadata=COUNTED), (5, 6)),
}


@every_way
@pytest.mark.parametrize("name", USAGE)
def test_usage_is_as_given_or_counted_from_the_text(ask: Ask, name: str) -> None:
    step, expected = USAGE[name]
    usage = ask(ScriptedModel([step]), "1234").usage_metadata
    counted = usage and (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"])
    assert counted == (expected and (*expected, sum(expected)))


@every_way
def test_every_reply_has_a_fresh_id_and_every_call_too(ask: Ask) -> None:
    message = AIMessage("Same", id="same")
    calling, copying = ScriptedModel(itertools.repeat([call("a"), "x"])), ScriptedModel([message, message])
    replies = [ask(calling, "go") for _ in range(3)]
    copies = [ask(copying, "go") for _ in range(2)]
    assert len({got.id for got in (*replies, *copies, message)}) == 6
    assert [got.tool_calls[0]["id"] for got in replies] == ["call_1", "call_2", "call_3"]


def test_a_message_of_the_script_is_never_handed_out_itself() -> None:
    message = AIMessage([{"type": "image", "source": {"id": 1}}], additional_kwargs={"trace": {"id": 1}})
    got: Any = ScriptedModel([message]).invoke("go")
    got.content[0]["source"]["id"] = got.additional_kwargs["trace"]["id"] = 2
    assert message.content == [{"type": "image", "source": {"id": 1}}]
    assert message.additional_kwargs == {"trace": {"id": 1}}


@every_way
@pytest.mark.parametrize("step", [TimeoutError("slow"), TimeoutError, lambda _: TimeoutError("slow")])
def test_an_exception_is_raised_and_the_call_is_recorded(ask: Ask, step: Any) -> None:
    with ScriptedModel([step, "back again"]) as model:
        with pytest.raises(TimeoutError):
            ask(model, "go")
        assert ask(model, "go").content == "back again"
    assert len(model.seen) == 2


# How a reply is streamed.


def test_a_stream_carries_small_pieces_and_says_how_it_ended_in_its_last_chunk() -> None:
    model = ScriptedModel([["Hello", call("read", id="r", path="a"), call("now", id="n")]], chunk_size=4)
    *chunks, last = model.stream("go")
    parts = [part for chunk in chunks for part in chunk.tool_call_chunks]
    assert [chunk.text for chunk in chunks if chunk.text] == ["Hell", "o"]
    assert [(part["index"], part["id"], part["name"], part["args"]) for part in parts] == [
        (0, "r", "read", ""),
        (0, None, None, '{"pa'),
        (0, None, None, 'th":'),
        (0, None, None, ' "a"'),
        (0, None, None, "}"),
        (1, "n", "now", ""),
        (1, None, None, "{}"),
    ]
    assert all(not chunk.response_metadata and chunk.usage_metadata is None for chunk in chunks)
    assert (last.response_metadata["finish_reason"], last.usage_metadata is not None) == ("tool_calls", True)
    assert {chunk.id for chunk in chunks} == {last.id}


@pytest.mark.parametrize("wanted", [1, 3])
def test_a_closed_stream_stops_generation(wanted: int) -> None:
    model = ScriptedModel(["x" * 1000], chunk_size=1)
    chunks = model.stream("go")
    for _ in range(wanted):
        next(chunks)
    chunks.close()  # type: ignore[attr-defined]  # a generator, declared as an iterator
    assert model.chunks_sent == wanted
    model.assert_done()


# How strict it is.


@every_way
@pytest.mark.parametrize("script", [[], iter([])], ids=["a list", "an iterator"])
def test_a_call_beyond_the_script_shows_what_the_model_was_shown(ask: Ask, script: Any) -> None:
    model = ScriptedModel(script)
    asked = AIMessage("", tool_calls=[tool_call(name="read", args={}, id="1")])
    with pytest.raises(AssertionError, match=r"(?s)call 1 .*'Fix the port'.*read"):
        ask(model, [HumanMessage("Fix the port"), asked])
    assert len(model.seen) == 1


def test_a_failed_expectation_that_an_agent_swallowed_comes_back_at_the_end() -> None:
    model = ScriptedModel([])
    with pytest.raises(AssertionError) as first:
        model.invoke("go")
    with pytest.raises(AssertionError) as again:
        model.assert_done()
    assert str(again.value) == str(first.value)


def _endless() -> Iterator[str]:
    return (f"turn {number}" for number in itertools.count(1))


UNUSED: dict[str, tuple[Any, str]] = {
    "steps of a list": (["a", "b", call("c")], "b"),
    "an endless repetition": (itertools.repeat("a"), "a"),
    "an endless script": (_endless(), "turn 2"),
}


@pytest.mark.parametrize("name", UNUSED)
def test_steps_left_over_are_named_and_still_playable(name: str) -> None:
    script, following = UNUSED[name]
    model = ScriptedModel(script)
    model.invoke("go")
    with pytest.raises(AssertionError, match=f"'{following}'"):
        model.assert_done()
    assert model.invoke("go").text == following


def test_leaving_the_with_block_checks_the_script_but_hides_no_other_error() -> None:
    with pytest.raises(AssertionError), ScriptedModel(["a"]):
        pass
    with pytest.raises(ZeroDivisionError), ScriptedModel(["a"]):
        _ = 1 / 0


def test_a_script_that_is_one_function_decides_from_what_it_is_shown() -> None:
    def answer(messages: list[BaseMessage]) -> Any:
        shown = len(messages)
        messages.clear()
        return call("read") if shown == 1 else "Done."

    with ScriptedModel(answer) as model:
        assert [model.invoke([HumanMessage("x")] * n).text for n in (2, 2)] == ["Done.", "Done."]
        assert model.invoke("x").tool_calls
    assert [len(seen.messages) for seen in model.seen] == [2, 2, 1], "a step cannot change the record"


WRONG: dict[str, Any] = {
    "a text": lambda: ScriptedModel("text"),
    "a call": lambda: ScriptedModel(call("a")),  # type: ignore[arg-type]
    **{
        f"the step {step!r}": lambda step=step: ScriptedModel([step]).invoke("go")
        for step in (None, 3, HumanMessage("a"), {"text": "a"}, [3], [["a"]], ["a", None])
    },
    "raw text and arguments": lambda: call("a", raw="{}", x=1),
    "arguments that are a list": lambda: call("a", args=["-l"]),  # type: ignore[arg-type]
    "arguments that are no JSON": lambda: call("a", x=object()),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_script_no_step_and_no_call_is_refused(name: str) -> None:
    with pytest.raises(TypeError):
        WRONG[name]()


def test_a_cache_of_the_application_never_answers_in_place_of_the_script() -> None:
    set_llm_cache(InMemoryCache())
    try:
        with ScriptedModel(["1", "2"]) as model:
            assert [model.invoke("go").text for _ in range(2)] == ["1", "2"]
    finally:
        set_llm_cache(None)


# What copies share, and what is recorded.


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
    assert [seen.kwargs for seen in model.seen[1:3]] == [{"parallel_tool_calls": False}, {"temperature": 0}]
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
