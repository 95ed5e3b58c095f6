"""The inner guard: what of a reply is cut off, what never is, and what the run makes of it."""

import asyncio
import json
import time
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.runnables import RunnableConfig

from signoff import build_graph, sqlite_storage
from signoff.graph.history.received import received as whole
from signoff.graph.messages import is_reply, marks
from signoff.models import ScriptedModel, reply
from signoff.nodes.model.guard import guarded, is_guarded
from tests.support.cases.guard import CUT, FINISH, STREAMS, UNCUT, AsyncWire, Wire, finish, part
from tests.support.histories import CONTROLS

Way = Callable[[BaseChatModel], AIMessage]


def sync(model: BaseChatModel) -> AIMessage:
    return whole(list(model.stream("go")))


def in_a_loop(model: BaseChatModel) -> AIMessage:
    async def chunks() -> list[Any]:
        return [chunk async for chunk in model.astream("go")]

    return whole(asyncio.run(chunks()))


both_ways = pytest.mark.parametrize("way", [sync, in_a_loop])


def names(message: AIMessage) -> list[str]:
    return [found["name"] or "" for found in [*message.tool_calls, *message.invalid_tool_calls]]


@both_ways
@pytest.mark.parametrize(("parts", "kept"), CUT.values(), ids=CUT)
def test_what_follows_a_finish_or_a_question_is_cut_off(parts: list[Any], kept: list[str], way: Way) -> None:
    bare = way(ScriptedModel([reply(*parts)]))
    message = way(guarded(ScriptedModel([reply(*parts)]), CONTROLS))
    assert names(message) == kept
    assert message.tool_calls == [
        {**found, "id": message.tool_calls[at]["id"]} for at, found in enumerate(bare.tool_calls[: len(kept)])
    ]
    assert message.text == ("Now." if "Now." in parts else "")
    assert (marks(message)["cut"], marks(message)["estimated"]) == (len(kept), True)
    assert message.response_metadata["finish_reason"] == "tool_calls"
    assert message.usage_metadata is not None


@both_ways
@pytest.mark.parametrize("parts", UNCUT.values(), ids=UNCUT)
def test_everything_else_comes_whole(parts: list[Any], way: Way) -> None:
    bare = way(ScriptedModel([reply(*parts)]))
    message = way(guarded(ScriptedModel([reply(*parts)]), CONTROLS))
    ids = {"id": message.id}
    assert message == bare.model_copy(update=ids)


def test_ten_finishes_cost_one() -> None:
    def chunks_of(count: int, model: ScriptedModel) -> int:
        sync(guarded(model, CONTROLS) if count else model)
        return model.chunks_sent

    one = chunks_of(1, ScriptedModel([[FINISH]]))
    assert chunks_of(10, ScriptedModel([[FINISH] * 10])) == one
    assert chunks_of(0, ScriptedModel([[FINISH] * 10])) > 9 * (one - 1)


# Streams that the scripted model does not make.


@both_ways
@pytest.mark.parametrize("kind", [Wire, AsyncWire])
@pytest.mark.parametrize(("chunks", "kept", "taken"), STREAMS.values(), ids=STREAMS)
def test_streams(
    kind: type[Wire], chunks: list[AIMessageChunk], kept: list[str], taken: int, way: Way
) -> None:
    model = kind(chunks=chunks)
    message = way(guarded(model, CONTROLS))
    assert names(message) == kept
    assert (model._taken, model._closed) == (taken, True)


def test_usage_that_came_before_the_cut_is_not_counted_again() -> None:
    early = AIMessageChunk(
        content="", usage_metadata={"input_tokens": 700, "output_tokens": 1, "total_tokens": 701}
    )
    message = sync(guarded(Wire(chunks=[early, *[finish(i) for i in range(3)]]), CONTROLS))
    assert message.usage_metadata is not None
    assert message.usage_metadata["input_tokens"] == 700
    assert 5 < message.usage_metadata["output_tokens"] < 20


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 16])
@pytest.mark.thorough
def test_the_cost_per_chunk_does_not_grow_with_the_reply(size: int) -> None:
    def seconds(pieces: int) -> float:
        text = json.dumps({"summary": "}" * size * pieces})
        cut = [text[at : at + size] for at in range(0, len(text), size)]
        begin = [part(0, "", "finish_task"), part(1, "", "write")]
        beside = [chunk for piece in cut for chunk in (part(0, piece), part(1, " "))]
        model, begun = guarded(Wire(chunks=[*begin, *beside]), CONTROLS), time.process_time()
        # Small chunks are joined on the way; all that they bring is there, but for what follows the finish.
        calls = [call for chunk in model._stream([]) for call in chunk.message.tool_call_chunks]  # type: ignore[attr-defined]  # of an AIMessageChunk
        assert sum(len(call["args"] or "") for call in calls) == len(text) + len(cut) - 1
        return time.process_time() - begun

    seconds(100)
    # Four times the work; sixteen times would be the square of it.
    assert seconds(8_000) < 12 * seconds(2_000)


# What a model is, with the guard in it.


def test_the_model_itself_is_not_changed_and_shares_what_it_notes() -> None:
    model = Wire(chunks=[finish(i) for i in range(3)])
    twin = guarded(model, CONTROLS)
    assert (type(model), type(twin).__name__, isinstance(twin, Wire)) == (Wire, "Wire", True)
    assert type(twin) is type(guarded(Wire(chunks=[]), CONTROLS))
    assert names(sync(twin)) == ["finish_task"]
    assert model._taken == 2
    assert names(sync(model)) == ["finish_task"] * 3
    assert names(sync(twin.model_copy())) == ["finish_task"], "some models copy themselves to bind tools"
    assert names(sync(type(twin)(chunks=model.chunks))) == ["finish_task"] * 3, "or make another one"


class Plain(FakeListChatModel):
    """Has no stream of its own."""

    _stream = BaseChatModel._stream
    _astream = BaseChatModel._astream


@pytest.mark.parametrize(
    "model", [Plain(responses=["hi"]), repeat(1), "no model"], ids=["no stream of its own", "repeat", "text"]
)
def test_what_has_no_stream_is_left_as_it_is(model: Any) -> None:
    assert guarded(model, CONTROLS) is model


@pytest.mark.parametrize("disabled", [True, "tool_calling"])
def test_what_does_not_stream_is_not_cut(disabled: Any) -> None:
    model = ScriptedModel([], disable_streaming=disabled)
    twin = guarded(model, CONTROLS)
    assert not is_guarded(twin)
    assert (type(twin)._stream, type(twin)._astream) == (type(model)._stream, type(model)._astream)


class Log(BaseCallbackHandler):
    """The callbacks of model calls, in order."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.ended: list[Any] = []

    def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        self.seen.append("start")

    def on_llm_end(self, response: Any, **kwargs: Any) -> None:
        self.seen.append("end")
        self.ended.append(response.generations[0][0].message)

    def on_llm_error(self, *args: Any, **kwargs: Any) -> None:
        self.seen.append("error")


# The whole run.


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_callbacks_see_a_reply_that_ended_and_the_outcome_says_estimated(mode: str) -> None:
    log, given = Log(), {"messages": ["go"]}
    with ScriptedModel([["Done.", *[FINISH] * 10]]) as model:
        graph = build_graph(model)
        options: RunnableConfig = {"callbacks": [log]}
        result = await graph.ainvoke(given, options) if mode == "async" else graph.invoke(given, options)
    assert log.seen == ["start", "end"]
    assert names(log.ended[0]) == ["finish_task"]
    outcome, replies = result["outcome"], [m for m in result["messages"] if is_reply(m)]
    assert (outcome["status"], outcome["turns"], names(replies[0])) == ("success", 1, ["finish_task"])
    assert replies[0].id == log.ended[0].id
    assert outcome["usage"]["estimated"] is True
    assert outcome["usage"]["input_tokens"] > 200, "the system prompt and the tools count"
    assert 5 < outcome["usage"]["output_tokens"] < 30


def test_the_usage_of_a_whole_reply_is_the_providers() -> None:
    with ScriptedModel([reply(FINISH, usage=(70, 7))]) as model:
        usage = build_graph(model).invoke({"messages": ["go"]})["outcome"]["usage"]
    assert usage == {"input_tokens": 70, "output_tokens": 7, "total_tokens": 77, "estimated": False}


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_tokens_flow_to_the_messages_stream_up_to_the_cut(mode: str) -> None:
    graph = build_graph(ScriptedModel([["All is done, I finish.", FINISH, "Anything else?"]], chunk_size=4))
    given: Any = {"messages": ["go"]}
    if mode == "async":
        found = [item async for item in graph.astream(given, stream_mode="messages")]
    else:
        found = list(graph.stream(given, stream_mode="messages"))
    chunks = [chunk for chunk, _ in found if isinstance(chunk, AIMessageChunk)]
    assert "".join(chunk.text for chunk in chunks) == "All is done, I finish."
    assert len({chunk.id for chunk in chunks}) == 1
    assert len(chunks) > 10
    assert names(whole(chunks)) == ["finish_task"]


@pytest.mark.parametrize("streamed", [True, False])
def test_without_a_stream_the_outer_guard_alone_ends_the_run(streamed: bool, tmp_path: Path) -> None:
    with (
        ScriptedModel([[FINISH] * 10], disable_streaming=not streamed) as model,
        sqlite_storage(tmp_path / "threads.sqlite") as storage,
    ):
        graph = build_graph(model, storage=storage)
        result = graph.invoke({"messages": ["go"]}, {"configurable": {"thread_id": "t"}})
    assert (result["outcome"]["status"], result["outcome"]["turns"]) == ("success", 1)
    not_run = [m for m in result["messages"] if m.text.startswith("Not run: a call after finish_task")]
    assert len(not_run) == (0 if streamed else 9)
