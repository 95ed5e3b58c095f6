"""Replies of `FakeProvider` in the shapes of other providers' APIs: Anthropic's messages, Google's content.

with FakeProvider([AnthropicReply("Hello.")]) as server:
    model = ChatAnthropic(model="m", base_url=server.root, api_key="…")
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.servers.fake_provider import Body, Fault, Reply

READ, WROTE = 100, 20


@dataclass(frozen=True)
class AnthropicReply(Reply):
    """A message as Anthropic's API writes it. The finish reason is `tool_use`, `end_turn` or `max_tokens`."""

    @property
    def reason(self) -> str | None:
        return {"tool_calls": "tool_use", "length": "max_tokens"}.get(super().reason or "", "end_turn")

    def blocks(self) -> list[Body]:
        calls = [
            {
                "type": "tool_use",
                "id": call["id"],
                "name": call["function"]["name"],
                "input": {} if self.finish == "length" else json.loads(call["function"]["arguments"]),
            }
            for call in self.calls
        ]
        return [*([{"type": "text", "text": self.text}] if self.text else []), *calls]

    def events(self) -> Iterator[str]:
        for sent, (name, body) in enumerate(self._events()):
            if self.ends != "well" and sent == self.after:
                return
            yield f"event: {name}\ndata: {json.dumps({'type': name, **body})}\n\n"

    def _events(self) -> Iterator[tuple[str, Body]]:
        usage = {"input_tokens": READ, "output_tokens": 1}
        yield "message_start", {"message": {**_HEAD, "content": [], "stop_reason": None, "usage": usage}}
        texts = [self.text] if self.text else []
        raw = [*texts, *(call["function"]["arguments"] for call in self.calls)]
        for index, (block, text) in enumerate(zip(self.blocks(), raw, strict=True)):
            is_text = block["type"] == "text"
            empty = {**block, "text": ""} if is_text else {**block, "input": {}}
            yield "content_block_start", {"index": index, "content_block": empty}
            for at in range(0, len(text), self.size):
                piece = text[at : at + self.size]
                delta = (
                    {"type": "text_delta", "text": piece}
                    if is_text
                    else {"type": "input_json_delta", "partial_json": piece}
                )
                yield "content_block_delta", {"index": index, "delta": delta}
            yield "content_block_stop", {"index": index}
        ended = {"stop_reason": self.reason, "stop_sequence": None}
        yield "message_delta", {"delta": ended, "usage": {**usage, "output_tokens": WROTE}}
        yield "message_stop", {}

    def whole(self) -> str:
        usage = {"input_tokens": READ, "output_tokens": WROTE}
        return json.dumps({**_HEAD, "content": self.blocks(), "stop_reason": self.reason, "usage": usage})


@dataclass(frozen=True)
class ResponsesReply(Reply):
    """A reply as OpenAI's Responses write it; whole, never streamed."""

    def whole(self) -> str:
        output = [
            {
                "type": "function_call",
                "id": f"fc_{call['id']}",
                "call_id": call["id"],
                "status": "completed",
                **call["function"],
            }
            for call in self.calls
        ]
        details = {
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        usage = {"input_tokens": READ, "output_tokens": WROTE, "total_tokens": READ + WROTE, **details}
        head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "fake", "status": "completed"}
        rest = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "error": None}
        return json.dumps({**head, **rest, "output": output, "usage": usage})


@dataclass(frozen=True)
class GoogleReply(Reply):
    """A reply as Google's API writes it. Its calls come whole, and have no ids."""

    def parts(self) -> Iterator[Body]:
        if self.text:
            yield {"text": self.text}
        for call in self.calls:
            function = call["function"]
            yield {"functionCall": {"name": function["name"], "args": json.loads(function["arguments"])}}

    def events(self) -> Iterator[str]:
        for sent, part in enumerate([*self.parts(), None]):
            if self.ends != "well" and sent == self.after:
                return
            yield f"data: {json.dumps(self._body([part] if part else [], last=part is None))}\r\n\r\n"

    def whole(self) -> str:
        return json.dumps(self._body(list(self.parts()), last=True))

    def _body(self, parts: list[Body], *, last: bool) -> Body:
        candidate: Body = {"index": 0, "content": {"role": "model", "parts": parts}}
        if not last:
            return {"candidates": [candidate], "modelVersion": "fake"}
        counts = {"promptTokenCount": READ, "candidatesTokenCount": WROTE, "totalTokenCount": READ + WROTE}
        reason = "MAX_TOKENS" if self.finish == "length" else "STOP"
        return {
            "candidates": [{**candidate, "finishReason": reason}],
            "usageMetadata": counts,
            "modelVersion": "fake",
        }


def anthropic_error(status: int, kind: str, message: str, **headers: str) -> Fault:
    """An error as Anthropic's API writes it."""
    body = {"type": "error", "error": {"type": kind, "message": message}}
    return Fault(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


def google_error(status: int, kind: str, message: str, delay: str | None = None) -> Fault:
    """An error as Google's API writes it; `delay` is how long it asks to wait."""
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}] if delay else []
    return Fault(status, {"error": {"code": status, "message": message, "status": kind, "details": details}})


_HEAD: Body = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "fake",
    "stop_sequence": None,
}
