"""How providers write a streamed reply: the events of OpenAI's two protocols, Anthropic, Gemini, Bedrock,
Ollama and Mistral, as they are documented and were recorded, with texts of our own.
"""

import json
import struct
from base64 import b64encode
from binascii import crc32
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Event = dict[str, Any]


@dataclass(frozen=True)
class WireReply:
    """A reply as the model gives it: its text, its calls (name, and the arguments as text) and its last word.

    usage: in which events the tokens are counted. size: how many characters of the arguments one event
    holds; OpenAI's, also of the text.
    ids: of the calls, in place of the same ones in every reply. serial: of the reply, for the ids of its
    parts. thoughts: what it thought first, which providers that sign it want back as it was. veiled: how
    Anthropic hides them.
    """

    text: str = ""
    calls: Sequence[tuple[str, str]] = ()
    reason: str = ""
    usage: Literal["last", "each"] = "last"
    size: int = 1
    ids: tuple[str, ...] = ()
    serial: int = 1
    thoughts: str = ""
    veiled: Literal["", "omitted", "redacted"] = ""

    def id(self, index: int, otherwise: str) -> str:
        return self.ids[index] if self.ids else otherwise

    def pieces(self, text: str) -> list[str]:
        return [text[at : at + self.size] for at in range(0, len(text), self.size)]


def sse(event: Event) -> bytes:
    return f"data: {json.dumps(event)}\n\n".encode()


def named_sse(event: Event) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def line(event: Event) -> bytes:
    return json.dumps(event).encode() + b"\n"


def _openai_usage(reply: WireReply, *, last: bool) -> Event:
    """Where it comes with each event, it counts up."""
    written = 3 if last else 1
    counts = {"prompt_tokens": 9, "completion_tokens": written, "total_tokens": 9 + written}
    return {"usage": counts} if last or reply.usage == "each" else {}


_CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def _openai_chunk(delta: Event, reason: str | None = None, **more: Any) -> Event:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return {**_CHUNK, "choices": [choice], **more}


def openai_events(reply: WireReply) -> Iterator[Event]:
    """As recorded in openai/openai-python, `.inline-snapshot/external` (Apache-2.0), written anew."""
    each = _openai_usage(reply, last=False)
    if reply.thoughts:
        yield _openai_chunk({"role": "assistant", "reasoning_content": reply.thoughts}, **each)
    for words in reply.pieces(reply.text) or (None,):
        yield _openai_chunk({"role": "assistant", "content": words}, **each)
    for index, (name, arguments) in enumerate(reply.calls):
        begin = {"index": index, "id": reply.id(index, f"call{index:05}"), "type": "function"}
        yield _openai_chunk({"tool_calls": [{**begin, "function": {"name": name, "arguments": ""}}]}, **each)
        for piece in reply.pieces(arguments):
            yield _openai_chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}, **each)
    if reply.reason:
        yield _openai_chunk({}, reply.reason, **each)
    yield {**_openai_chunk({}), "choices": [], **_openai_usage(reply, last=True)}


def openai_calls(reply: WireReply) -> list[Event]:
    """The calls, whole."""
    named = [{"name": name, "arguments": arguments} for name, arguments in reply.calls]
    ids = [reply.id(index, f"call{index:05}") for index in range(len(named))]
    return [{"id": id_, "type": "function", "function": made} for id_, made in zip(ids, named, strict=True)]


def mistral_events(reply: WireReply) -> Iterator[Event]:
    """All calls come whole in the last chunk, with the reason and the usage."""
    each = _openai_usage(reply, last=False)
    yield _openai_chunk({"role": "assistant", "content": reply.text}, **each)
    calls = [{**call, "index": index} for index, call in enumerate(openai_calls(reply))]
    delta = {"content": "", **({"tool_calls": calls} if calls else {})}
    yield _openai_chunk(delta, reply.reason or None, **_openai_usage(reply, last=True))


def _response(reply: WireReply, status: str, items: list[Event]) -> Event:
    counts = {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {**counts, **details} if reply.usage == "each" or status != "in_progress" else None
    detail = reply.reason.partition(":")[2]
    why = {"reason": detail} if detail and status == "incomplete" else None
    base = {"id": f"resp_{reply.serial}", "object": "response", "created_at": 1, "model": "m"}
    rest = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "metadata": {}}
    return {**base, **rest, "output": items, "status": status, "incomplete_details": why, "usage": usage}


def _reasoning(reply: WireReply) -> Event:
    id_ = f"rs_{reply.serial}"
    return {"type": "reasoning", "id": id_, "summary": [], "encrypted_content": reply.thoughts}


def responses_events(reply: WireReply) -> Iterator[Event]:
    """As the examples of openai/openai-python, `api_reference/openapi.transformed.yml` (Apache-2.0), written
    anew. The reason is the status; that of an incomplete response has a detail (`incomplete:content_filter`).
    A refusal is a part of the content of a completed one (`completed:refusal`)."""
    status, _, detail = reply.reason.partition(":")
    items: list[Event] = []
    yield {"type": "response.created", "response": _response(reply, "in_progress", [])}
    if reply.thoughts:
        items.append(_reasoning(reply))
        yield {"type": "response.output_item.added", "output_index": 0, "item": items[0]}
        yield {"type": "response.output_item.done", "output_index": 0, "item": items[0]}
    if reply.text:
        id_ = f"msg_{reply.serial}"
        place = {"item_id": id_, "output_index": len(items), "content_index": 0}
        part = {"type": "output_text", "text": reply.text, "annotations": []}
        item: Event = {"type": "message", "id": id_, "role": "assistant", "status": "completed"}
        items.append({**item, "content": [part]})
        begun = {**item, "content": []}
        yield {"type": "response.output_item.added", "output_index": len(items) - 1, "item": begun}
        yield {"type": "response.output_text.delta", "delta": reply.text, "logprobs": [], **place}
        yield {"type": "response.output_item.done", "output_index": len(items) - 1, "item": items[-1]}
    for index, (name, arguments) in enumerate(reply.calls):
        at = len(items)
        call_id = reply.id(index, f"call_{at}")
        item = {"type": "function_call", "id": f"fc_{reply.serial}_{at}", "call_id": call_id, "name": name}
        items.append({**item, "arguments": arguments, "status": "completed"})
        place = {"item_id": f"fc_{reply.serial}_{at}", "output_index": at}
        begun = {**item, "arguments": "", "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": at, "item": begun}
        for piece in reply.pieces(arguments):
            yield {"type": "response.function_call_arguments.delta", "delta": piece, **place}
        yield {"type": "response.function_call_arguments.done", "arguments": arguments, "name": name, **place}
        yield {"type": "response.output_item.done", "output_index": at, "item": items[-1]}
    if detail == "refusal":
        place = {"item_id": f"msg_{reply.serial}_1", "output_index": len(items), "content_index": 0}
        yield {"type": "response.refusal.done", "refusal": "I cannot pay anybody.", **place}
    if status:
        yield {"type": f"response.{status}", "response": _response(reply, status, items)}


def anthropic_blocks(reply: WireReply) -> list[Event]:
    """The content of a message; the input of a call is still its text."""
    blocks: list[Event] = []
    if reply.thoughts and reply.veiled == "redacted":
        blocks.append({"type": "redacted_thinking", "data": reply.thoughts})
    elif reply.thoughts:
        thoughts = "" if reply.veiled == "omitted" else reply.thoughts
        blocks.append({"type": "thinking", "thinking": thoughts, "signature": f"sig:{thoughts}"})
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    for index, (name, arguments) in enumerate(reply.calls):
        use = {"type": "tool_use", "id": reply.id(index, f"toolu_{index}"), "name": name}
        blocks.append({**use, "input": arguments})
    return blocks


def _anthropic_pieces(reply: WireReply, block: Event) -> tuple[Event, list[Event]]:
    """How a block is streamed: what it begins with, and its deltas."""
    match block:
        case {"type": "text", "text": text}:
            return {**block, "text": ""}, [{"type": "text_delta", "text": text}]
        case {"type": "thinking", "thinking": text, "signature": signature}:
            deltas = [{"type": "thinking_delta", "thinking": text}] if text else []
            signed = {"type": "signature_delta", "signature": signature}
            return {**block, "thinking": "", "signature": ""}, [*deltas, signed]
        case {"type": "tool_use", "input": text}:
            pieces = ["", *reply.pieces(text)]
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": p} for p in pieces]
        case _:
            return block, []


def anthropic_events(reply: WireReply) -> Iterator[Event]:
    usage = {"input_tokens": 9, "output_tokens": 1}
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    yield {"type": "message_start", "message": {**start, "usage": usage, "stop_reason": None}}
    for index, block in enumerate(anthropic_blocks(reply)):
        begun, deltas = _anthropic_pieces(reply, block)
        yield {"type": "content_block_start", "index": index, "content_block": begun}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    if reply.reason:
        ended = {"stop_reason": reply.reason, "stop_sequence": None}
        yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 3}}
        yield {"type": "message_stop"}


def gemini_parts(reply: WireReply) -> list[Event]:
    """Of the calls of a reply with thoughts, the first is signed."""
    parts: list[Event] = [{"text": reply.thoughts, "thought": True}] if reply.thoughts else []
    if reply.text:
        parts.append({"text": reply.text})
    for index, (name, arguments) in enumerate(reply.calls):
        call: Event = {"functionCall": {"name": name, "args": json.loads(arguments or "{}")}}
        if reply.ids:
            call["functionCall"]["id"] = reply.ids[index]
        if reply.thoughts and not index:
            call["thoughtSignature"] = b64encode(f"{name} {arguments}".encode()).decode()
        parts.append(call)
    return parts or [{"text": ""}]


def gemini_events(reply: WireReply) -> Iterator[Event]:
    """One part in an event; the last part has the reason beside it."""
    parts = gemini_parts(reply)
    for at, part in enumerate(parts):
        last = at == len(parts) - 1
        candidate: Event = {"content": {"role": "model", "parts": [part]}, "index": 0}
        if last and reply.reason:
            candidate["finishReason"] = reply.reason
        counts = {"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12}
        usage = {"usageMetadata": counts} if last or reply.usage == "each" else {}
        yield {"candidates": [candidate], "modelVersion": "m", **usage}


def bedrock_events(reply: WireReply) -> Iterator[Event]:
    yield {"messageStart": {"role": "assistant"}}
    if reply.thoughts:
        for thought in ({"text": reply.thoughts}, {"signature": f"sig:{reply.thoughts}"}):
            yield {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": thought}}}
        yield {"contentBlockStop": {"contentBlockIndex": 0}}
    at = int(bool(reply.thoughts))
    if reply.text:
        yield {"contentBlockDelta": {"contentBlockIndex": at, "delta": {"text": reply.text}}}
        yield {"contentBlockStop": {"contentBlockIndex": at}}
        at += 1
    for index, (name, arguments) in enumerate(reply.calls, start=at):
        start = {"toolUse": {"name": name, "toolUseId": reply.id(index - at, f"tooluse_{index - at}")}}
        yield {"contentBlockStart": {"contentBlockIndex": index, "start": start}}
        for piece in ["", *reply.pieces(arguments)]:
            delta = {"toolUse": {"input": piece}}
            yield {"contentBlockDelta": {"contentBlockIndex": index, "delta": delta}}
        yield {"contentBlockStop": {"contentBlockIndex": index}}
    if reply.reason:
        yield {"messageStop": {"stopReason": reply.reason}}
    counts = {"inputTokens": 9, "outputTokens": 3, "totalTokens": 12}
    yield {"metadata": {"usage": counts, "metrics": {"latencyMs": 1}}}


def frame(event: Event) -> bytes:
    """An event in Amazon's binary form: lengths, headers, payload, two checksums."""
    (name, payload), headers = *event.items(), b""
    named = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    for header, value in named.items():
        headers += (
            bytes([len(header)]) + header.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        )
    body = json.dumps(payload).encode()
    message = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    message += struct.pack(">I", crc32(message)) + headers + body
    return message + struct.pack(">I", crc32(message))


def ollama_events(reply: WireReply) -> Iterator[Event]:
    """Every call is an object; a reply that has broken off says `done` without a reason."""
    head = {"model": "m", "created_at": "2026-01-01T00:00:00Z"}
    if reply.thoughts:
        thought = {"role": "assistant", "content": "", "thinking": reply.thoughts}
        yield {**head, "message": thought, "done": False}
    if reply.text:
        yield {**head, "message": {"role": "assistant", "content": reply.text}, "done": False}
    for name, arguments in reply.calls:
        call = {"function": {"name": name, "arguments": json.loads(arguments or "{}")}}
        yield {**head, "message": {"role": "assistant", "content": "", "tool_calls": [call]}, "done": False}
    counts = {"prompt_eval_count": 9, "eval_count": 3}
    reason = {"done_reason": reply.reason} if reply.reason else {}
    yield {**head, "message": {"role": "assistant", "content": ""}, "done": True, **reason, **counts}
