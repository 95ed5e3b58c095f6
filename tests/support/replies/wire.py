"""How providers write a streamed reply: the events of OpenAI's two protocols, Anthropic, Gemini, Bedrock,
Ollama and Mistral, as they were recorded (`recorded.jsonl` names the sources), with texts of our own.
"""

import json
import struct
from binascii import crc32
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

Event = dict[str, Any]


@dataclass(frozen=True)
class WireReply:
    """A reply as the model gives it: its text, its calls (name, and the arguments as text) and its last word.

    usage: in which events the tokens are counted. size: how many characters of the arguments one event holds.
    """

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    reason: str = ""
    usage: Literal["last", "each", "none"] = "last"
    size: int = 1

    def pieces(self, arguments: str) -> list[str]:
        return [arguments[at : at + self.size] for at in range(0, len(arguments), self.size)]


def sse(event: Event) -> bytes:
    return f"data: {json.dumps(event)}\n\n".encode()


def named_sse(event: Event) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def line(event: Event) -> bytes:
    return json.dumps(event).encode() + b"\n"


def _openai_usage(reply: WireReply, *, last: bool) -> Event:
    counts = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    return {"usage": counts} if reply.usage == "each" or (last and reply.usage == "last") else {}


def _openai_chunk(delta: Event, reason: str | None = None, **more: Any) -> Event:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
        **more,
    }


def openai_events(reply: WireReply) -> Iterator[Event]:
    """As recorded in openai/openai-python, `.inline-snapshot/external` (Apache-2.0), written anew."""
    each = _openai_usage(reply, last=False)
    yield _openai_chunk({"role": "assistant", "content": reply.text or None}, **each)
    for index, (name, arguments) in enumerate(reply.calls):
        begin = {"index": index, "id": f"call{index:05}", "type": "function"}
        yield _openai_chunk({"tool_calls": [{**begin, "function": {"name": name, "arguments": ""}}]}, **each)
        for piece in reply.pieces(arguments):
            yield _openai_chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}, **each)
    if reply.reason:
        yield _openai_chunk({}, reply.reason, **each)
    if last := _openai_usage(reply, last=True):
        yield {**_openai_chunk({}), "choices": [], **last}


def mistral_events(reply: WireReply) -> Iterator[Event]:
    """All calls come whole in the last chunk, with the reason and the usage."""
    each = _openai_usage(reply, last=False)
    yield _openai_chunk({"role": "assistant", "content": reply.text}, **each)
    calls = [
        {"id": f"call{index:05}", "index": index, "function": {"name": name, "arguments": arguments}}
        for index, (name, arguments) in enumerate(reply.calls)
    ]
    delta = {"content": "", **({"tool_calls": calls} if calls else {})}
    yield _openai_chunk(delta, reply.reason or None, **_openai_usage(reply, last=True))


def responses_events(reply: WireReply) -> Iterator[Event]:
    """As the examples of openai/openai-python, `api_reference/openapi.transformed.yml` (Apache-2.0), written
    anew. The reason is the status; that of an incomplete response has a detail (`incomplete:content_filter`).
    A refusal is a part of the content of a completed one (`completed:refusal`)."""
    status, _, detail = reply.reason.partition(":")

    def response(status: str, items: list[Event]) -> Event:
        counts = {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}
        details = {
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        counted = reply.usage == "each" or (reply.usage == "last" and status != "in_progress")
        usage = {**counts, **details} if counted else None
        why = {"reason": detail} if detail and status == "incomplete" else None
        base = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": items}
        rest = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "metadata": {}}
        return {**base, **rest, "status": status, "incomplete_details": why, "usage": usage}

    items: list[Event] = []
    yield {"type": "response.created", "response": response("in_progress", [])}
    if reply.text:
        place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        part = {"type": "output_text", "text": reply.text, "annotations": []}
        item: Event = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        items.append({**item, "content": [part]})
        yield {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}}
        yield {"type": "response.output_text.delta", "delta": reply.text, "logprobs": [], **place}
        yield {"type": "response.output_item.done", "output_index": 0, "item": items[-1]}
    for name, arguments in reply.calls:
        at = len(items)
        item = {"type": "function_call", "id": f"fc_{at}", "call_id": f"call_{at}", "name": name}
        items.append({**item, "arguments": arguments, "status": "completed"})
        place = {"item_id": f"fc_{at}", "output_index": at}
        begun = {**item, "arguments": "", "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": at, "item": begun}
        for piece in reply.pieces(arguments):
            yield {"type": "response.function_call_arguments.delta", "delta": piece, **place}
        yield {"type": "response.function_call_arguments.done", "arguments": arguments, "name": name, **place}
        yield {"type": "response.output_item.done", "output_index": at, "item": items[-1]}
    if detail == "refusal":
        place = {"item_id": "msg_2", "output_index": len(items), "content_index": 0}
        yield {"type": "response.refusal.done", "refusal": "I cannot pay anybody.", **place}
    if status:
        yield {"type": f"response.{status}", "response": response(status, items)}


def anthropic_events(reply: WireReply) -> Iterator[Event]:
    usage = {"input_tokens": 9, "output_tokens": 1}
    start = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "usage": usage,
    }
    yield {"type": "message_start", "message": {**start, "stop_reason": None, "stop_sequence": None}}
    if reply.text:
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        delta: Event = {"type": "text_delta", "text": reply.text}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
        yield {"type": "content_block_stop", "index": 0}
    for index, (name, arguments) in enumerate(reply.calls, start=bool(reply.text)):
        block = {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}}
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for piece in ["", *reply.pieces(arguments)]:
            delta = {"type": "input_json_delta", "partial_json": piece}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    if reply.reason:
        ended = {"stop_reason": reply.reason, "stop_sequence": None}
        yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 3}}
        yield {"type": "message_stop"}


def gemini_events(reply: WireReply) -> Iterator[Event]:
    """One part in an event; the last part has the reason beside it."""
    calls = [{"functionCall": {"name": name, "args": json.loads(raw or "{}")}} for name, raw in reply.calls]
    parts: list[Event] = [*([{"text": reply.text}] if reply.text else []), *calls]
    for at, part in enumerate(parts):
        last = at == len(parts) - 1
        candidate: Event = {"content": {"role": "model", "parts": [part]}, "index": 0}
        if last and reply.reason:
            candidate["finishReason"] = reply.reason
        counts = {"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12}
        counted = reply.usage == "each" or (last and reply.usage == "last")
        yield {
            "candidates": [candidate],
            "modelVersion": "m",
            **({"usageMetadata": counts} if counted else {}),
        }


def bedrock_events(reply: WireReply) -> Iterator[Event]:
    yield {"messageStart": {"role": "assistant"}}
    if reply.text:
        yield {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": reply.text}}}
        yield {"contentBlockStop": {"contentBlockIndex": 0}}
    for index, (name, arguments) in enumerate(reply.calls, start=bool(reply.text)):
        start = {"toolUse": {"name": name, "toolUseId": f"tooluse_{index}"}}
        yield {"contentBlockStart": {"contentBlockIndex": index, "start": start}}
        for piece in ["", *reply.pieces(arguments)]:
            delta = {"toolUse": {"input": piece}}
            yield {"contentBlockDelta": {"contentBlockIndex": index, "delta": delta}}
        yield {"contentBlockStop": {"contentBlockIndex": index}}
    if reply.reason:
        yield {"messageStop": {"stopReason": reply.reason}}
    if reply.usage != "none":
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
    if reply.text:
        yield {**head, "message": {"role": "assistant", "content": reply.text}, "done": False}
    for name, arguments in reply.calls:
        call = {"function": {"name": name, "arguments": json.loads(arguments or "{}")}}
        yield {**head, "message": {"role": "assistant", "content": "", "tool_calls": [call]}, "done": False}
    counts = {} if reply.usage == "none" else {"prompt_eval_count": 9, "eval_count": 3}
    reason = {"done_reason": reply.reason} if reply.reason else {}
    yield {**head, "message": {"role": "assistant", "content": ""}, "done": True, **reason, **counts}
