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
    message_chunk_to_message,
)
from langchain_core.messages.ai import add_ai_message_chunks
from langgraph.errors import GraphBubbleUp

from signoff.graph.machine import Event
from signoff.graph.marks import KEY
from signoff.graph.replies import complete_json
from signoff.graph.state import AgentState, Ending
from signoff.graph.view import build_view
from signoff.nodes.advice import advise
from signoff.nodes.kit import Run
from signoff.nodes.node import Report, Steps
from signoff.tools.output import valid_values


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
    except GraphBubbleUp:
        raise
    except Exception as error:  # noqa: BLE001  whatever the provider raises is an outcome, never an exception
        return _failed(state, error)
    return _replied(state, chunks, begun)


def _failed(state: AgentState, error: Exception) -> Report:
    ending = Ending(task=state.get("task", ""), status="error", reason="model_error", error=advise(error))
    return Report(Event.FAILED, {"ending": ending})


def _replied(state: AgentState, chunks: Sequence[Any], begun: float) -> Report:
    if not chunks:
        return _failed(state, ValueError("the model's stream ended without a reply"))
    message = _valid(whole(chunks))
    ended = time.time()
    notes = {**message.response_metadata.get(KEY, {}), "at": ended, "seconds": ended - begun}
    message.response_metadata = {**message.response_metadata, KEY: notes}
    taken = {old.id for old in state["messages"]}
    if message.id in taken:
        message.id = f"{message.id}-{len(state['messages'])}"
    return Report(Event.REPLIED, {"messages": [message]})


def _valid(message: AIMessage) -> AIMessage:
    """The reply without half characters, which a model can write as escapes and no database takes."""
    parts = ("content", "tool_calls", "invalid_tool_calls")
    return message.model_copy(update={part: valid_values(getattr(message, part)) for part in parts})


def whole(chunks: Sequence[BaseMessage]) -> AIMessage:
    """The reply that the chunks add up to, its calls read from their raw argument text by a strict parser.

    LangChain's own reading is lenient: it turns a cut `{"summary": "Fixed a` into a valid-looking call. What
    is not whole JSON becomes an `invalid_tool_call`; `order` keeps the positions of both sorts.
    """
    streamed = [chunk for chunk in chunks if isinstance(chunk, AIMessageChunk)]
    if not streamed:
        last = chunks[-1]
        assert isinstance(last, AIMessage)
        return last.model_copy()
    merged = add_ai_message_chunks(streamed[0], *streamed[1:])
    message = message_chunk_to_message(merged)
    assert isinstance(message, AIMessage)
    good: list[ToolCall] = []
    bad: list[InvalidToolCall] = []
    places: list[tuple[bool, int]] = []
    for raw in merged.tool_call_chunks:
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
