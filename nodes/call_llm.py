"""One model call on the view, streamed."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    InvalidToolCall,
    ToolCall,
    ToolCallChunk,
    message_chunk_to_message,
)
from langchain_core.messages.ai import add_ai_message_chunks
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.errors import GraphBubbleUp

from signoff.graph.machine import Event
from signoff.graph.marks import KEY, marks
from signoff.graph.replies import complete_json, storable
from signoff.graph.state import AgentState, Ending
from signoff.graph.view import build_view
from signoff.nodes.advice import advise
from signoff.nodes.kit import Run
from signoff.nodes.node import Report, Steps
from signoff.tools.output import valid_values

_SERDE = JsonPlusSerializer(pickle_fallback=False, allowed_msgpack_modules=None)


@dataclass(frozen=True)
class Stream:
    """A model call; gives all chunks of the reply."""

    view: list[BaseMessage]

    def do(self, run: Run) -> list[BaseMessage]:
        return list(run.kit.model.stream(self.view, run.config))

    async def ado(self, run: Run) -> list[BaseMessage]:
        return [chunk async for chunk in run.kit.model.astream(self.view, run.config)]


def call_llm(state: AgentState, run: Run) -> Steps:
    view = build_view(state, run.reader(state), run.system_prompt, run.kit.texts)
    begun = time.time()
    try:
        chunks = yield Stream(view)
        return _replied(state, chunks, begun)
    except GraphBubbleUp:
        raise
    except Exception as error:  # noqa: BLE001  whatever a provider raises or sends is an outcome
        return _failed(state, error)


def _failed(state: AgentState, error: Exception) -> Report:
    ending = Ending(task=state.get("task", ""), status="error", reason="model_error", error=advise(error))
    return Report(Event.FAILED, {"ending": ending})


def _replied(state: AgentState, chunks: Sequence[Any], begun: float) -> Report:
    if not chunks:
        raise ValueError("the model's stream ended without a reply")
    message = _savable(whole(chunks))
    ended = time.time()
    notes = {**marks(message), "at": ended, "seconds": ended - begun}
    message.response_metadata = {**message.response_metadata, KEY: notes}
    taken = {old.id for old in state["messages"]}
    if message.id in taken:
        message.id = f"{message.id}-{len(state['messages'])}"
    return Report(Event.REPLIED, {"messages": [message]})


def _savable(message: AIMessage) -> AIMessage:
    """The reply as a database takes it: without half characters, which a model can write as escapes, and
    without a provider's extras that are no plain values."""
    parts = ("content", "tool_calls", "invalid_tool_calls")
    message = message.model_copy(update={part: valid_values(getattr(message, part)) for part in parts})
    try:
        _SERDE.dumps_typed(message)
    except (TypeError, ValueError):
        reason = message.response_metadata.get("finish_reason")
        kept = {"finish_reason": reason if isinstance(reason, str) else "", KEY: dict(marks(message))}
        message = message.model_copy(update={"additional_kwargs": {}, "response_metadata": kept})
    return message


def whole(chunks: Sequence[BaseMessage]) -> AIMessage:
    """The reply that the chunks add up to, its calls read from their raw argument text by a strict parser.

    LangChain's own reading is lenient: it turns a cut `{"summary": "Fixed a` into a valid-looking call. What
    is not whole JSON becomes an `invalid_tool_call`; `order` keeps the positions of both sorts. Raises
    TypeError when a model gives something else than an assistant's message.
    """
    streamed = [chunk for chunk in chunks if isinstance(chunk, AIMessageChunk)]
    if not streamed:
        last = chunks[-1]
        if not isinstance(last, AIMessage):
            raise TypeError(f"the model answered with a {type(last).__name__}, not with an AIMessage")
        raw_calls = [_raw(call) for call in last.tool_calls]
        checked = all(storable(call["args"]) for call in last.tool_calls)
        return last.model_copy() if checked else _with_calls(last.model_copy(), raw_calls)
    merged = add_ai_message_chunks(streamed[0], *streamed[1:])
    message = message_chunk_to_message(merged)
    assert isinstance(message, AIMessage), "an AIMessageChunk makes an AIMessage"
    # Merging joins texts: a reason that stands in two chunks would read "lengthlength".
    reasons = [chunk.response_metadata.get("finish_reason") for chunk in streamed]
    if given := [reason for reason in reasons if reason]:
        message.response_metadata = {**message.response_metadata, "finish_reason": given[-1]}
    return _with_calls(message, merged.tool_call_chunks)


def _raw(call: ToolCall) -> ToolCallChunk:
    return ToolCallChunk(name=call["name"], id=call["id"], args=json.dumps(call["args"]), index=None)


def _with_calls(message: AIMessage, raw_calls: Sequence[ToolCallChunk]) -> AIMessage:
    good: list[ToolCall] = []
    bad: list[InvalidToolCall] = []
    places: list[tuple[bool, int]] = []
    for raw in raw_calls:
        text, name = raw["args"] or "", raw["name"] or ""
        if complete_json(text):
            places.append((True, len(good)))
            good.append(
                ToolCall(name=name, id=raw["id"], args=json.loads(text.strip() or "{}"), type="tool_call")
            )
        else:
            places.append((False, len(bad)))
            error = "not one whole JSON object"
            bad.append(
                InvalidToolCall(type="invalid_tool_call", name=name, id=raw["id"], args=text, error=error)
            )
    message.tool_calls, message.invalid_tool_calls = good, bad
    order = [len(bad) + at if is_good else at for is_good, at in places]
    message.response_metadata = {**message.response_metadata, KEY: {"checked": True, "order": order}}
    return message
