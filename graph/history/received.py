"""What has come of a model call: the one place where a provider's reply is read.

A streamed reply is read from the raw text of its chunks: LangChain's own parser is lenient, and turns a
truncated `{"summary": "Fixed a` into a valid-looking call. A reply that came whole is as the provider's
package gives it. Whether its calls may run follows from the message alone (`read_reply`).
"""

from collections.abc import Iterable, Sequence, Set
from operator import itemgetter
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ToolCallChunk,
)
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.utils.json import parse_partial_json

from signoff.graph.history.reasons import StopReason, last_reason, reason_in, stop_of, without_reason
from signoff.graph.history.replies import RawCall, calls_of, normal, read_arguments, with_calls
from signoff.graph.messages import KEY, marks
from signoff.graph.values import arguments_text, sound_reply

_Pieces = list[tuple[ToolCallChunk, RawCall | None]]
"""The calls of a stream as LangChain joins their chunks, each with the call that begins there."""


def received(chunks: Sequence[BaseMessage]) -> AIMessage:
    """The reply that the chunks of one model call add up to; its only message, if it was not streamed.

    The mark `dropped` says that the stream of a provider's package ended without a finish reason. Raises
    TypeError if a model returns anything but an assistant message.
    """
    streamed = [chunk for chunk in chunks if isinstance(chunk, AIMessageChunk)]
    if not streamed:
        return normal(sound_reply(chunks[-1]))
    message, pieces = _joined(streamed)
    return _ended(message, [call for _, call in pieces if call], pieces)


def as_received(reply: AIMessage, streams: Iterable[Sequence[AIMessageChunk]]) -> AIMessage:
    """A reply that went through other code, which may have taken it from one of these streams.

    A call that is still as the provider's package made it of a stream is read from the raw text, and so is a
    changed one whose raw text is not whole; then the end of that stream is the end of the reply. All else
    counts as it is written.
    """
    reply = sound_reply(reply)
    joined = [_joined(chunks) for chunks in streams]
    for by_id in (True, False):
        for message, pieces in joined:
            if (read := _of_stream(reply, message, pieces, by_id=by_id)) is not None:
                return read
    return normal(reply)


def _joined(chunks: Sequence[AIMessageChunk]) -> tuple[AIMessage, _Pieces]:
    """The message of a stream, with the provider's own reason, and its calls."""
    merged = add_ai_message_chunks(chunks[0], *chunks[1:])
    reason = last_reason([chunk.response_metadata for chunk in chunks])
    merged.response_metadata = {**without_reason(merged.response_metadata), **reason}
    message = sound_reply(merged)
    pieces: _Pieces = []
    rest, keep = "", marks(message).get("cut", len(merged.tool_call_chunks))
    for at, piece in reversed([*enumerate(merged.tool_call_chunks)]):
        name, call_id, text = piece["name"] or "", piece["id"] or "", (piece["args"] or "") + rest
        # Some servers do not number the chunks, so that merging leaves them separate.
        continues = at > 0 and piece["index"] is None and not (name or call_id)
        rest = text if continues and at < keep else ""
        pieces.append((piece, None if continues or at >= keep else RawCall(name, call_id, text)))
    return message, pieces[::-1]


def _ended(message: AIMessage, calls: Sequence[RawCall], pieces: _Pieces) -> AIMessage:
    """The message with these calls. It gets the mark `dropped` if its stream has not come to an end.

    A server that just closes the connection looks like one that is done. Every provider's package reports how
    a reply ended; the inner guard's cut is an end, too.
    """
    metadata, noted, update = message.response_metadata, marks(message), dict[str, Any]()
    # A blocked prompt has no reason.
    ended = reason_in(metadata) or stop_of(message) is StopReason.FILTERED
    if metadata.get("model_provider") and not (ended or "cut" in noted or "stopped" in noted):
        update["response_metadata"] = {**metadata, KEY: {**noted, "dropped": True}}
    if cut := {piece["id"] or "" for piece, _ in pieces[noted.get("cut", len(pieces)) :]}:
        update |= _without_calls(message, cut)
    message = message.model_copy(update=update)
    return with_calls(message, calls) if pieces else normal(message)


def _without_calls(message: AIMessage, ids: Set[str]) -> dict[str, Any]:
    """The content and the provider's extras without these calls."""
    content = message.content
    if isinstance(content, list):
        content = [p for p in content if isinstance(p, str) or (p.get("call_id") or p.get("id")) not in ids]
    extras = {key: value for key, value in message.additional_kwargs.items() if key != "tool_calls"}
    return {"content": content, "additional_kwargs": extras}


def _of_stream(reply: AIMessage, message: AIMessage, pieces: _Pieces, *, by_id: bool) -> AIMessage | None:
    """The reply with what it still has of this stream; None if it has nothing of it. by_id: it is known by
    its id or those of its calls; else by calls that look like those of the stream, under new ids."""
    written, left = calls_of(reply), dict(enumerate(pieces))
    places = {piece["id"]: at for at, (piece, _) in left.items() if piece["id"]}
    is_its = reply.id == message.id or any(call.id in places for call in written)
    calls: list[tuple[int, RawCall | None]] = []
    for call in written:
        at = places.get(call.id)
        if at not in left:
            at = next((at for at, (piece, _) in left.items() if _looks_like(call, piece)), None)
        if at is None:
            calls.append((len(pieces), call))
            continue
        piece, raw = left.pop(at)
        changed = raw is not None and not _looks_like(call, piece) and _is_whole(raw)
        calls.append((at, call if changed else raw and raw._replace(id=call.id)))
    if not is_its and (by_id or len(left) == len(pieces)):
        return None
    own, its = reply.response_metadata, message.response_metadata
    # Not the reason as LangChain joins it of two chunks, unless it says that the reply is not whole.
    keeps = stop_of(reply) is not StopReason.NORMAL or not reason_in(its)
    metadata = {**its, **(own if keeps else without_reason(own)), KEY: {**marks(reply), **marks(message)}}
    reply = reply.model_copy(update={"response_metadata": metadata})
    return _ended(reply, [call for _, call in sorted(calls, key=itemgetter(0)) if call], pieces)


def _is_whole(raw: RawCall) -> bool:
    try:
        read_arguments(arguments_text(raw.args))
    except ValueError:
        return False
    return True


def _looks_like(call: RawCall, piece: ToolCallChunk) -> bool:
    """Whether this call is what LangChain's lenient parser makes of the piece, whatever its id."""
    if (call.name or "") != (piece["name"] or ""):
        return False
    text = piece["args"] or ""
    if call.error:
        return (call.args or "") == text
    try:
        return arguments_text(call.args) == arguments_text(parse_partial_json(text) if text else {})
    except (ValueError, RecursionError):
        return False
