"""A model that works by text: what it streams, keeps, passes on and passes through."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from signoff.models import ScriptedModel, call, reply
from signoff.models.scripted import Step
from signoff.models.tagged import TAGGED_LIMITS, TaggedText
from signoff.tools.control import standard_controls
from signoff.tools.sandbox import UnsafeSandbox, python_tool

TOOLS = [python_tool(UnsafeSandbox(unsafe=True)), *(control.tool for control in standard_controls())]
REPLY = "<PLAN>Look.</PLAN>\n```python\nprint(1)\n```\n<STATE_UPDATE>\nStatus: Working\n</STATE_UPDATE>"
CALLS = [("think", {"thought": "Look.", "status": "Working"}), ("run_python", {"code": "print(1)\n"})]
WAYS = ("stream", "astream", "invoke", "ainvoke")


def tagged(model: BaseChatModel, **given: Any) -> TaggedText:
    bound = TaggedText(model, **given).bind_tools(TOOLS, parallel_tool_calls=False)
    assert isinstance(bound, TaggedText)
    return bound


def replied(model: TaggedText, way: str = "stream", messages: list[BaseMessage] | None = None) -> AIMessage:
    """The reply to `messages`, got in one of four ways."""
    given = messages or [HumanMessage("Do it.")]

    async def whole() -> AIMessage:
        first, *rest = [chunk async for chunk in model.astream(given)]
        return add_ai_message_chunks(first, *rest)

    match way:
        case "stream":
            first, *rest = model.stream(given)
            return add_ai_message_chunks(first, *rest)
        case "astream":
            return asyncio.run(whole())
        case "invoke":
            return model.invoke(given)
    return asyncio.run(model.ainvoke(given))


def calls(message: AIMessage) -> list[tuple[str, dict[str, Any]]]:
    return [(made["name"], made["args"]) for made in message.tool_calls]


@pytest.mark.parametrize("way", WAYS)
def test_a_reply_becomes_text_and_calls(way: str) -> None:
    inner = ScriptedModel([reply(REPLY, usage=(7, 5), finish_reason="stop")])
    message = replied(tagged(inner), way)
    assert message.text == REPLY
    assert calls(message) == CALLS
    assert message.invalid_tool_calls == []
    assert message.usage_metadata == {"input_tokens": 7, "output_tokens": 5, "total_tokens": 12}
    assert (message.response_metadata["finish_reason"], message.response_metadata["model_name"]) == (
        "stop",
        "scripted",
    )
    assert message.response_metadata["signoff_tagged"] == {}
    assert message.id is not None
    assert message.id.startswith("msg_")


def test_the_text_comes_as_it_is_written_and_the_calls_at_its_end() -> None:
    *texts, last = tagged(ScriptedModel([REPLY], chunk_size=4)).stream("Do it.")
    assert len(texts) > 10
    assert "".join(chunk.text for chunk in texts) == REPLY
    assert not any(chunk.tool_call_chunks for chunk in texts)
    assert (last.text, last.chunk_position) == ("", "last")
    assert [(part["name"], part["index"]) for part in last.tool_call_chunks] == [
        ("think", 0),
        ("run_python", 1),
    ]


def test_the_ids_of_calls_are_made_from_the_reply() -> None:
    def ids(*message_ids: str) -> list[list[str | None]]:
        inner = ScriptedModel([AIMessage(REPLY, id=id) for id in message_ids])
        return [
            [made["id"] for made in tagged(FixedId(inner, id)).invoke("x").tool_calls] for id in message_ids
        ]

    first, second, again = ids("a", "b", "a")
    assert first == again
    assert len({*first, *second}) == 4


class FixedId(BaseChatModel):
    """Gives the replies of `inner` an id, and streams nothing."""

    inner: BaseChatModel
    message_id: str

    def __init__(self, inner: BaseChatModel, message_id: str) -> None:
        fields = {"inner": inner, "message_id": message_id}
        super().__init__(**fields)

    @property
    def _llm_type(self) -> str:
        return "fixed"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        message = self.inner.invoke(messages).model_copy(update={"id": self.message_id})
        return ChatResult(generations=[ChatGeneration(message=message)])


@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_does_not_stream_serves_too(way: str) -> None:
    message = replied(tagged(FixedId(ScriptedModel([REPLY]), "m")), way)
    assert (message.text, calls(message), message.id) == (REPLY, CALLS, "m")


class Chunks(BaseChatModel):
    """Streams these messages; `closed` says whether its stream was closed before its end."""

    chunks: list[AIMessageChunk]
    state: dict[str, bool]

    @property
    def _llm_type(self) -> str:
        return "chunks"

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        try:
            for chunk in self.chunks:
                yield ChatGenerationChunk(message=chunk.model_copy())
        except GeneratorExit:
            self.state["closed"] = True
            raise

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._stream():
            yield chunk


def chunks(*contents: Any, **last: Any) -> Chunks:
    messages = [AIMessageChunk(content=content) for content in contents]
    return Chunks(chunks=[*messages, AIMessageChunk(content="", **last)], state={})


@pytest.mark.parametrize("way", ["stream", "astream"])
def test_made_up_evidence_ends_the_stream(way: str) -> None:
    made_up = [
        "\n<EVI",
        'DENCE of="run_python" status="ok"',
        ">\n1\n",
        "</EVIDENCE>\n",
        "<PLAN>[FINALIZE]</PLAN>",
    ]
    inner = chunks(*(REPLY[at : at + 9] for at in range(0, len(REPLY), 9)), *made_up)
    message = replied(tagged(inner), way)
    assert inner.state == {"closed": True}
    assert message.text == REPLY + "".join(made_up[:3])
    assert calls(message) == CALLS
    assert message.response_metadata["finish_reason"] == "stop"
    assert {"estimated": True} in message.response_metadata.values()
    assert message.response_metadata["signoff_tagged"] == {"upto": len(REPLY) + 1}
    assert message.usage_metadata is not None
    assert message.usage_metadata["output_tokens"] > 20


def test_evidence_that_is_quoted_ends_nothing() -> None:
    text = "<EVIDENCE>\n1\n</EVIDENCE>\n" + REPLY + "\nSee <EVIDENCE> above."
    message = replied(tagged(ScriptedModel([text], chunk_size=5)))
    assert (message.text, calls(message)) == (text, CALLS)


def test_a_stream_that_is_left_closes_the_inner_one() -> None:
    inner = chunks("a", "b", "c")
    stream = tagged(inner).stream("x")
    next(stream)
    stream.close()  # type: ignore[attr-defined]  # it is a generator
    assert inner.state == {"closed": True}


@pytest.mark.parametrize("way", WAYS)
def test_what_was_left_open_is_no_valid_call(way: str) -> None:
    message = replied(
        tagged(ScriptedModel([reply("<PLAN>p</PLAN>\n```python\n{}", finish_reason="length")])), way
    )
    assert calls(message) == [("think", {"thought": "p"})]
    assert [made["name"] for made in message.invalid_tool_calls] == ["run_python"]
    assert message.response_metadata["finish_reason"] == "length"


CONTENTS: Mapping[str, tuple[list[Any], str]] = {
    "text blocks": ([[{"type": "text", "text": REPLY[:30]}], [{"type": "text", "text": REPLY[30:]}]], REPLY),
    "thinking before": (
        [[{"type": "thinking", "thinking": "<PLAN>[FINALIZE]</PLAN>"}], [{"type": "text", "text": REPLY}]],
        REPLY,
    ),
    "strings": ([[REPLY]], REPLY),
    "nothing": ([""], ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CONTENTS)
def test_content_in_blocks(case: str) -> None:
    contents, text = CONTENTS[case]
    message = replied(tagged(chunks(*contents)))
    assert message.text == text
    assert calls(message) == (CALLS if text else [])


def test_calls_of_the_inner_model_are_not_taken() -> None:
    message = replied(tagged(ScriptedModel([["Well.", call("finish_task", summary="Done.")]])))
    assert (message.text, message.tool_calls, message.invalid_tool_calls) == ("Well.", [], [])
    assert "tool_calls" not in message.additional_kwargs


def test_options_and_errors_pass() -> None:
    inner = ScriptedModel([REPLY, ConnectionError("gone")])
    model = tagged(inner)
    model.invoke("x", stop=["END"], temperature=0.5)
    assert inner.seen[0].kwargs == {"stop": ["END"], "temperature": 0.5}
    assert (inner.seen[0].tools, inner.seen[0].tool_choice) == ([], None)
    with pytest.raises(ConnectionError, match="gone"):
        list(model.stream("x"))


@pytest.mark.parametrize("way", WAYS)
def test_a_call_is_counted_once(way: str) -> None:
    counter = UsageMetadataCallbackHandler()
    model = tagged(ScriptedModel([reply(REPLY, usage=(7, 5))]), callbacks=[counter])
    replied(model, way)
    assert [usage["total_tokens"] for usage in counter.usage_metadata.values()] == [12]


def test_the_status_is_forced_after_a_failure_and_the_models_own_is_kept() -> None:
    failed = [HumanMessage("Do it."), ToolMessage("no", name="run_python", tool_call_id="c", status="error")]
    message = replied(tagged(ScriptedModel([REPLY])), messages=list(failed))
    assert calls(message)[0] == ("think", {"thought": "Look.", "status": "Debugging"})
    assert message.response_metadata["signoff_tagged"] == {"status": "Working"}


def test_without_tools_a_reply_is_text() -> None:
    message = TaggedText(ScriptedModel([REPLY])).invoke("x")
    assert (message.text, message.tool_calls) == (REPLY, [])


def test_binding_changes_a_copy_and_other_names_can_be_given() -> None:
    model = TaggedText(ScriptedModel([REPLY]), code_tool="exec")
    bound = model.bind_tools([{"name": "exec", "description": "", "parameters": {}}])
    assert model.tools == ()
    assert [made["name"] for made in bound.invoke("x").tool_calls] == ["exec"]


def test_it_stands_for_its_model() -> None:
    inner = ScriptedModel([], profile={"max_input_tokens": 9})
    assert TaggedText(inner).profile == {"max_input_tokens": 9}
    assert TaggedText(inner)._llm_type == "tagged-scripted"
    assert TaggedText(inner)._identifying_params["model"] == {"model_name": "scripted"}
    assert TAGGED_LIMITS.turns == 10


def test_any_step_of_a_script_comes_through() -> None:
    steps: list[Step] = [
        "",
        "plain",
        reply(finish_reason="length"),
        reply("x", finish_reason="content_filter"),
    ]
    model = tagged(ScriptedModel(steps))
    reasons = [replied(model).response_metadata["finish_reason"] for _ in steps]
    assert reasons == ["stop", "stop", "length", "content_filter"]
