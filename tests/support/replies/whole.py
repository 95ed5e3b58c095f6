"""The answers that are not streamed: what each provider writes for the replies of `wire`, in one piece."""

import json
from typing import Any

from tests.support.replies import wire
from tests.support.replies.wire import Event, WireReply


def openai(reply: WireReply) -> Event:
    """Chat completions, of OpenAI and of all that speak as it does."""
    calls = wire.openai_calls(reply)
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if calls:
        message["tool_calls"] = calls
    if reply.thoughts:
        message["reasoning_content"] = reply.thoughts
    choice = {"index": 0, "message": message, "finish_reason": reply.reason}
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "system_fingerprint": "f"}
    return {**head, "choices": [choice], "usage": usage}


def responses(reply: WireReply) -> Event:
    """The last event of the stream has the whole of it."""
    response: Event = [*wire.responses_events(reply)][-1]["response"]
    return response


def anthropic(reply: WireReply) -> Event:
    blocks = [
        {**block, "input": json.loads(block["input"])} if block["type"] == "tool_use" else block
        for block in wire.anthropic_blocks(reply)
    ]
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": blocks}
    usage = {"input_tokens": 9, "output_tokens": 3}
    return {**head, "stop_reason": reply.reason, "stop_sequence": None, "usage": usage}


def gemini(reply: WireReply) -> Event:
    content = {"role": "model", "parts": wire.gemini_parts(reply)}
    counts = {"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12}
    candidate = {"content": content, "index": 0, "finishReason": reply.reason}
    return {"candidates": [candidate], "modelVersion": "m", "usageMetadata": counts}


def bedrock(reply: WireReply) -> Event:
    content: list[Event] = []
    if reply.thoughts:
        reasoning = {"text": reply.thoughts, "signature": f"sig:{reply.thoughts}"}
        content.append({"reasoningContent": {"reasoningText": reasoning}})
    if reply.text:
        content.append({"text": reply.text})
    for index, (name, arguments) in enumerate(reply.calls):
        use = {"toolUseId": reply.id(index, f"tooluse_{index}"), "name": name}
        content.append({"toolUse": {**use, "input": json.loads(arguments)}})
    usage = {"inputTokens": 9, "outputTokens": 3, "totalTokens": 12}
    message = {"role": "assistant", "content": content}
    rest = {"stopReason": reply.reason, "usage": usage, "metrics": {"latencyMs": 1}}
    return {"output": {"message": message}, **rest}
