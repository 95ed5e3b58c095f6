"""One model call on the view, streamed; its end may come early (see `nodes/guard.py`)."""

import json
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    InvalidToolCall,
    ToolCallChunk,
    message_chunk_to_message,
)
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.runnables import Runnable
from langgraph.errors import GraphBubbleUp
from pydantic import ValidationError

from signoff.graph.machine import Event
from signoff.graph.marks import KEY, marks, slim
from signoff.graph.rules import OPTIONAL, Offer, offer
from signoff.graph.shapes import broken_off, normal, reason_of, with_calls
from signoff.graph.state import AgentState, Ending, TooLong
from signoff.nodes.advice import advise, is_too_long, secrets_of
from signoff.nodes.kit import Run
from signoff.nodes.node import Part, Report, Steps
from signoff.nodes.prompt import prompt, streams
from signoff.nodes.shown import Shown, show
from signoff.nodes.sound import sound


@dataclass(frozen=True, slots=True)
class Stream:
    """A model call; gives all chunks of the reply."""

    model: Runnable[Any, Any]
    view: list[BaseMessage]

    def do(self, run: Run) -> list[BaseMessage]:
        if not streams(self.model):
            return [self.model.invoke(prompt(self.model, self.view), run.config)]
        return list(self.model.stream(prompt(self.model, self.view), run.config))

    async def ado(self, run: Run) -> list[BaseMessage]:
        if not streams(self.model):
            return [await self.model.ainvoke(prompt(self.model, self.view), run.config)]
        return [chunk async for chunk in self.model.astream(prompt(self.model, self.view), run.config)]


def call_llm(state: AgentState, run: Run) -> Steps:
    # Raises for a name that cannot be used: the caller's mistake is no outcome of the task.
    models = run.models
    shown = yield from show(state, run)
    offered, begun = offer(run.task(state), run.kit.required), time.time()
    # What is known of the task is of no use after the reply; it need not be kept while the model is awaited.
    run.reader(state).task = None
    try:
        chunks = yield from _streamed(models, shown.view, offered)
        return _replied(state, run, shown, chunks, begun)
    except GraphBubbleUp:
        raise
    except Exception as error:  # noqa: BLE001  whatever a provider raises or sends is an outcome
        if reply := _refused(error):
            return _replied(state, run, shown, [reply], begun)
        return _failed(state, run, shown, error)


def _streamed(
    models: Mapping[Offer, Runnable[Any, Any]], view: list[BaseMessage], offered: Offer
) -> Part[list[BaseMessage]]:
    """The reply; without a required call where the provider refuses to require one."""
    try:
        chunks: list[BaseMessage] = yield Stream(models[offered], view)
    except Exception as error:
        optional = OPTIONAL.get(offered)
        if optional is None or "tool_choice" not in str(error).replace(" ", "_").lower():
            raise
        chunks = yield Stream(models[optional], view)
    return chunks


def _refused(error: Exception) -> AIMessage | None:
    """A reply that the provider's package could not build, since arguments of a call are no object; of it
    only these arguments are known."""
    if not isinstance(error, ValidationError) or error.title not in ("AIMessage", "AIMessageChunk"):
        return None
    found = [part["input"] for part in error.errors() if part["loc"][-1:] == ("args",)]
    calls = [
        InvalidToolCall(type="invalid_tool_call", name="", id="", args=json.dumps(args), error=None)
        for args in found
    ]
    return AIMessage("", invalid_tool_calls=calls) if calls else None


def _failed(state: AgentState, run: Run, shown: Shown, error: Exception) -> Report:
    if is_too_long(error) and (squeezed := _squeezed(state, shown)):
        return Report(Event.TOO_LONG, {"too_long": squeezed})
    said = advise(error, secrets_of(*run.models.values()))
    ending = Ending(task=state.get("task", ""), status="error", reason="model_error", error=said)
    return Report(Event.FAILED, {"ending": ending})


def _squeezed(state: AgentState, shown: Shown) -> TooLong | None:
    """Half of the view as the budget from now on. None when the very same history was too long already."""
    task, after, before = state.get("task", ""), state["messages"][-1].id or "", state.get("too_long")
    if before and (before["task"], before["after"]) == (task, after):
        return None
    return TooLong(task=task, after=after, budget=(shown.size + shown.beyond) // 2)


def _replied(state: AgentState, run: Run, shown: Shown, chunks: Sequence[Any], begun: float) -> Report:
    if not chunks:
        raise ValueError("the model's stream ended without a reply")
    if run.draining and isinstance(chunks[-1], AIMessage) and marks(chunks[-1]).get("stopped"):
        return Report(Event.STOPPED)
    message = sound(whole(chunks))
    if broken_off(message):
        raise ConnectionAbortedError(
            f"the provider broke the reply off (finish_reason {reason_of(message)!r})"
        )
    ended = time.time()
    notes = {**marks(message), "at": ended, "seconds": ended - begun, "shown": shown.size}
    message.response_metadata = {**message.response_metadata, KEY: notes}
    taken = run.reader(state).noted.places
    if message.id is None or message.id in taken:
        message.id = f"{message.id or 'reply'}-{len(state['messages'])}"
    return Report(Event.REPLIED, {"messages": [slim(message)]})


def whole(chunks: Sequence[BaseMessage]) -> AIMessage:
    """The reply that the chunks add up to, its calls read from their raw argument text by a strict parser.

    LangChain's own reading is lenient: it turns a cut `{"summary": "Fixed a` into a valid-looking call.
    Raises TypeError when a model gives something else than an assistant's message, ConnectionAbortedError for
    a stream that was dropped.
    """
    streamed = [chunk for chunk in chunks if isinstance(chunk, AIMessageChunk)]
    if not streamed:
        last = chunks[-1]
        if not isinstance(last, AIMessage):
            raise TypeError(f"the model answered with a {type(last).__name__}, not with an AIMessage")
        return normal(last)
    merged = add_ai_message_chunks(streamed[0], *streamed[1:])
    message = message_chunk_to_message(merged)
    assert isinstance(message, AIMessage), "an AIMessageChunk makes an AIMessage"
    # Merging joins texts: a reason that stands in two chunks would read "lengthlength".
    reasons = [chunk.response_metadata.get("finish_reason") for chunk in streamed]
    if given := [reason for reason in reasons if reason]:
        message.response_metadata = {**message.response_metadata, "finish_reason": given[-1]}
    if _dropped(message):
        raise ConnectionAbortedError(
            "the stream ended in the middle of the reply (it has no finish_reason; for a server that never "
            "sends one turn streaming off)"
        )
    raw_calls = merged.tool_call_chunks
    if not raw_calls:
        return normal(message)
    keep = marks(message).get("cut", len(raw_calls))
    if keep < len(raw_calls):
        message = _without_calls(message, {raw["id"] or "" for raw in raw_calls[keep:]})
    message.response_metadata = {**message.response_metadata, KEY: {**marks(message), "checked": True}}
    return with_calls(message, _joined(raw_calls[:keep]))


def _joined(raw_calls: Sequence[ToolCallChunk]) -> list[tuple[str, str, str]]:
    """Name, id and text of each call. A piece without a name and an id goes on with the call before it: some
    servers do not number the pieces, so that merging leaves them apart."""
    calls: list[tuple[str, str, str]] = []
    for raw in raw_calls:
        name, call_id, text = raw["name"] or "", raw["id"] or "", raw["args"] or ""
        if calls and raw["index"] is None and not (name or call_id):
            name, call_id, text = *calls[-1][:2], calls.pop()[2] + text
        calls.append((name, call_id, text))
    return calls


def _dropped(message: AIMessage) -> bool:
    """Whether a stream ended without the word that ends a reply. A server that just closes the connection
    looks like one that is done; every provider's package says how a reply ended, or at least what it cost."""
    ended = reason_of(message) or message.usage_metadata
    return bool(message.response_metadata.get("model_provider")) and not ended


def _without_calls(message: AIMessage, ids: Set[str]) -> AIMessage:
    """The reply without what its content, and a provider's extras, say of these calls."""
    content = message.content
    if isinstance(content, list):
        content = [p for p in content if isinstance(p, str) or (p.get("call_id") or p.get("id")) not in ids]
    extras = {key: value for key, value in message.additional_kwargs.items() if key != "tool_calls"}
    return message.model_copy(update={"content": content, "additional_kwargs": extras})
