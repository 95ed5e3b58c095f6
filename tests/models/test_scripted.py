"""The scripted model: what a script may hold, how it is played, and how strict it is at both ends."""

import copy
import itertools
from typing import Any

import pytest
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


BLOCK: list[Any] = [{"type": "text", "text": "Block."}]
OWN = AIMessage("Hi.", tool_calls=[tool_call(name="a", args={"x": 1}, id="own")])


def a_call(name: str, id: str, **args: Any) -> Any:
    return tool_call(name=name, args=args, id=id)


# A step, and the calls, the content and the finish reason of the reply.
STEPS: dict[str, tuple[Any, list[Any], Any, str]] = {
    "text": ("I am done.", [], "I am done.", "stop"),
    "a call": (call("read", path="a.txt"), [a_call("read", "call_1", path="a.txt")], "", "tool_calls"),
    "arguments named as those of `call`": (
        call("greet", name="Bo", args={"id": 3}),
        [tool_call(name="greet", args={"id": 3, "name": "Bo"}, id="call_1")],
        "",
        "tool_calls",
    ),
    "text and a call": (
        ("One. ", call("a", x=1), "Two."),
        [a_call("a", "call_1", x=1)],
        "One. Two.",
        "tool_calls",
    ),
    "a finish reason": (reply(finish_reason="content_filter"), [], "", "content_filter"),
    "a function": (lambda messages: f"You said {messages[-1].content}.", [], "You said go.", "stop"),
    "a message": (OWN, [a_call("a", "own", x=1)], "Hi.", "tool_calls"),
    "a message in blocks": (AIMessage(BLOCK), [], BLOCK, "stop"),
}


@every_way
@pytest.mark.parametrize("name", STEPS)
def test_a_step_becomes_the_same_reply_on_every_way(ask: Ask, name: str) -> None:
    step, calls, content, reason = STEPS[name]
    with ScriptedModel([step], chunk_size=3) as model:
        got = ask(model, "go")
    assert (got.content, got.tool_calls, got.invalid_tool_calls) == (content, calls, [])
    assert got.response_metadata == {"finish_reason": reason, "model_name": "scripted"}


@every_way
@pytest.mark.parametrize("text", ['["a"]', '{"summary": "Fixed a'])
def test_arguments_that_are_no_json_object_are_an_invalid_call(ask: Ask, text: str) -> None:
    got = ask(ScriptedModel([reply(call("save", raw=text), finish_reason="stop")]), "go")
    assert got.response_metadata["finish_reason"] == "stop"
    if isinstance(got, AIMessageChunk):
        assert [found["args"] for found in got.tool_call_chunks] == [text], "a stream keeps the exact text"
    else:
        assert (got.tool_calls, [found["args"] for found in got.invalid_tool_calls]) == ([], [text])


def test_usage_is_as_given_or_counted_from_the_text() -> None:
    model = ScriptedModel(["12345678", call("abcd", raw="{}  "), reply("hi", usage=(100, 7))])
    counted = [model.invoke("1234").usage_metadata for _ in range(3)]
    assert [(count["input_tokens"], count["output_tokens"]) for count in counted if count] == [
        (1, 2),
        (1, 2),
        (100, 7),
    ]


@every_way
def test_every_reply_has_a_fresh_id_and_every_call_too(ask: Ask) -> None:
    message = AIMessage("Same", id="same")
    calling, copying = ScriptedModel(itertools.repeat([call("a"), "x"])), ScriptedModel([message, message])
    replies = [ask(calling, "go") for _ in range(3)]
    copies = [ask(copying, "go") for _ in range(2)]
    assert len({got.id for got in (*replies, *copies, message)}) == 6
    assert [got.tool_calls[0]["id"] for got in replies] == ["call_1", "call_2", "call_3"]


@every_way
@pytest.mark.parametrize("step", [TimeoutError, lambda _: TimeoutError("slow")])
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
    assert [part["args"] for part in parts if part["index"] == 0] == ["", '{"pa', 'th":', ' "a"', "}"]
    assert [(part["id"], part["name"]) for part in parts if part["name"]] == [("r", "read"), ("n", "now")]
    assert all(not chunk.response_metadata and chunk.usage_metadata is None for chunk in chunks)
    assert (last.response_metadata["finish_reason"], last.usage_metadata is not None) == ("tool_calls", True)
    assert {chunk.id for chunk in chunks} == {last.id}


# How strict it is.


@every_way
def test_a_call_beyond_the_script_shows_what_the_model_was_shown(ask: Ask) -> None:
    model = ScriptedModel([])
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


def test_steps_left_over_are_named_and_still_playable() -> None:
    model = ScriptedModel(f"turn {number}" for number in itertools.count(1))
    model.invoke("go")
    with pytest.raises(AssertionError, match="'turn 2'"):
        model.assert_done()
    assert model.invoke("go").text == "turn 2"


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
    **{
        f"the step {step!r}": lambda step=step: ScriptedModel([step]).invoke("go")
        for step in (None, HumanMessage("a"), {"text": "a"}, [["a"]])
    },
    "raw text and arguments": lambda: call("a", raw="{}", x=1),
    "arguments that are no JSON": lambda: call("a", x=object()),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_script_no_step_and_no_call_is_refused(name: str) -> None:
    with pytest.raises(TypeError):
        WRONG[name]()


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
