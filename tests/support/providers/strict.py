"""What strict providers refuse in a request, in their words: its order, its pairs, its ids, its signatures.

Each check is the rule of one API, by its documentation or by code of its own that is public. It raises
`Refused`; what it says nothing against, the provider takes.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.support.servers.fake_provider import Body

Check = Callable[[Body], None]


class Refused(Exception):
    """A request that the provider does not take, with status 400."""


def require(holds: object, words: str) -> None:
    if not holds:
        raise Refused(words)


def everything(body: Body) -> None:
    """Ollama takes any order of messages."""
    for message in body["messages"]:
        require(message["role"] in {"system", "user", "assistant", "tool"}, "invalid role")
        require(isinstance(message.get("content", ""), str), "cannot unmarshal content into a string")


def chat_completions(body: Body) -> None:
    """OpenAI: https://platform.openai.com/docs/api-reference/chat/create."""
    known = {"role", "content", "name", "tool_calls", "tool_call_id", "refusal", "audio"}
    for message in body["messages"]:
        require(not set(message) - known, f"Unrecognized fields: {sorted(set(message) - known)}")
        sorts = _types(message.get("content"))
        if message["role"] == "tool":
            require(sorts <= {"text"}, "Image URLs are only allowed for messages with role 'user'.")
        if message["role"] == "assistant":
            require(sorts <= {"text", "refusal"}, f"Invalid value: {sorts}.")
            require(message.get("tool_calls") or message.get("content"), "Invalid value for 'content'.")
    _chat_pairs(body["messages"])


def chat_with_thoughts(body: Body) -> None:
    """Fireworks and OpenRouter take the thoughts of a reply back."""
    thoughts = {"reasoning", "reasoning_content", "reasoning_details"}
    messages = [{key: m[key] for key in m if key not in thoughts} for m in body["messages"]]
    chat_completions({**body, "messages": messages})


def text_only(body: Body) -> None:
    """DeepSeek: https://api-docs.deepseek.com/api/create-chat-completion; its models see no pictures."""
    kinds = [kind for message in body["messages"] for kind in _types(message.get("content"))]
    require("image_url" not in kinds, "unknown variant `image_url`, expected `text`")
    chat_with_thoughts(body)


def alternating(body: Body) -> None:
    """Chat templates of Devstral, Gemma and Mistral on vLLM and llama.cpp: user and assistant in turn."""
    chat_completions(body)
    last = "assistant"
    for message in body["messages"]:
        if message["role"] in {"system", "tool"} or message.get("tool_calls"):
            continue
        require(message["role"] != last, "Conversation roles must alternate.")
        last = message["role"]


def mistral(body: Body) -> None:
    """mistral-common: `_validate_message_order`, `_validate_tool_call`."""
    follows = {
        "": {"system", "user", "assistant"},
        "system": {"system", "user", "assistant"},
        "user": {"system", "user", "assistant"},
        "assistant": {"assistant", "user", "tool"},
        "tool": {"assistant", "tool"},
    }
    last = ""
    for message in body["messages"]:
        role, calls = message["role"], message.get("tool_calls") or []
        require(role in follows[last], f"Unexpected role '{role}' after role '{last}'")
        require(_types(message["content"]) <= {"text"} or role == "user", "Only users send pictures.")
        ids = [call["id"] for call in calls] + ([message.get("tool_call_id")] if role == "tool" else [])
        for id_ in ids:
            require(re.fullmatch(r"[a-zA-Z0-9]{9}", id_ or ""), f"Tool call id was {id_}")
        require(role != "assistant" or message["content"] or calls, "Either content or tool_calls.")
        last = role
    require(last in {"user", "tool"}, f"Expected last role User or Tool for serving but got {last}")
    _chat_pairs(body["messages"])


def responses(body: Body) -> None:
    """OpenAI: https://platform.openai.com/docs/api-reference/responses/create."""
    items = body["input"]
    calls, outputs = list[str](), list[str]()
    for item, after in zip(items, [*items[1:], {}], strict=True):
        match item.get("type", "message"):
            case "reasoning":
                follower = after.get("type", "message")
                fits = follower in {"function_call", "reasoning"} or after.get("role") == "assistant"
                require(fits, f"Item '{item.get('id')}' was provided without its required following item.")
            case "function_call":
                require(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", item["name"]), "Invalid 'input[].name'")
                require(item.get("id", "fc").startswith("fc"), "Expected an ID that begins with 'fc'.")
                require(item["call_id"] and item["call_id"] not in calls, "Duplicate or empty call_id")
                calls.append(item["call_id"])
            case "function_call_output":
                known = item["call_id"] in calls or "previous_response_id" in body
                require(known, f"No tool call found for call_id {item['call_id']}.")
                outputs.append(item["call_id"])
    if "previous_response_id" not in body:
        require(sorted(calls) == sorted(outputs), "No tool output found for a function call.")


def anthropic(body: Body) -> None:
    """https://platform.claude.com/docs/en/api/messages, and the pages on tools, thinking and caching."""
    require(json.dumps(body).count('"cache_control"') <= 4, "A maximum of 4 blocks with cache_control.")
    thinks = body.get("thinking", {}).get("type") in {"enabled", "adaptive"}
    forced = body.get("tool_choice", {}).get("type") in {"any", "tool"}
    require(not (thinks and forced), "Thinking may not be enabled when tool_choice forces tool use.")
    merged = list(_merged(body["messages"], _anthropic_blocks))
    require(merged[0][0] == "user", 'messages: first message must use the "user" role')
    require(merged[-1][0] == "user", "The conversation must end with a user message.")
    for (role, blocks), (_, after) in zip(merged, [*merged[1:], ("", [])], strict=True):
        require(role in {"user", "assistant"}, f'messages: Unexpected role "{role}".')
        for block in blocks:
            _anthropic_block(role, block)
        uses = [block["id"] for block in blocks if block["type"] == "tool_use"]
        results = [block["tool_use_id"] for block in after if block["type"] == "tool_result"]
        require(len(set(uses)) == len(uses), "messages: `tool_use` ids must be unique")
        require(sorted(uses) == sorted(results), f"`tool_use` {uses} and `tool_result` {results} do not fit.")
        kinds = [block["type"] == "tool_result" for block in after]
        require(kinds == sorted(kinds, reverse=True), "tool_result blocks must come first.")
    if thinks:
        _begins_with_thoughts(merged)


def gemini(body: Body) -> None:
    """https://ai.google.dev/gemini-api/docs/function-calling and .../thought-signatures."""
    contents = body["contents"]
    asked = [
        at for at, c in enumerate(contents) if c["role"] == "user" and any("text" in p for p in c["parts"])
    ]
    followers = [*contents[1:], {"parts": []}]
    for at, (content, after) in enumerate(zip(contents, followers, strict=True)):
        require(content["parts"], "contents.parts must not be empty.")
        for part in content["parts"]:
            require(set(part) - {"thought", "thoughtSignature"}, "required oneof field 'data'")
            require(part.get("text", "x") or part.get("thoughtSignature"), "empty text parameter")
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        if not calls:
            continue
        answers = [part["functionResponse"] for part in after["parts"] if "functionResponse" in part]
        names = [[function["name"] for function in functions] for functions in (calls, answers)]
        require(names[0] == names[1], f"function responses {names[1]} to function calls {names[0]}")
        ids = [[function.get("id") for function in functions] for functions in (calls, answers)]
        require(not any(ids[0]) or ids[0] == ids[1], "function response id does not match the call")
        require(at and contents[at - 1]["role"] == "user", "A function call turn comes after a user turn.")
        first = next(part for part in content["parts"] if "functionCall" in part)
        signed = first.get("thoughtSignature") or at < max(asked, default=-1)
        require(signed, f"Function call is missing a thought_signature in functionCall parts, position {at}.")


def bedrock(body: Body) -> None:
    """https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html."""
    messages = body["messages"]
    require(messages[0]["role"] == "user", "A conversation must start with a user message.")
    for message, after in zip(messages, [*messages[1:], {"role": "", "content": []}], strict=True):
        require(message["role"] != after["role"], "A conversation must alternate.")
        require(message["content"], "The content field in the Message object is empty.")
        for block in message["content"]:
            require(block.get("text", "x").strip(), "The text field in the ContentBlock object is blank.")
        uses = [block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block]
        results = [block["toolResult"]["toolUseId"] for block in after["content"] if "toolResult" in block]
        require(all(re.fullmatch(r"[a-zA-Z0-9_.:-]{1,64}", use) for use in uses), f"toolUseId {uses}")
        require(len(set(uses)) == len(uses), "The toolUse ids are not unique.")
        require(sorted(uses) == sorted(results), f"Expected toolResult blocks for the following Ids: {uses}")


def _types(content: Any) -> set[str]:
    return {block["type"] for block in content} if isinstance(content, list) else set()


def _chat_pairs(messages: list[Body]) -> None:
    """After the calls of a reply come their results, and nothing before those."""
    waiting = list[str]()
    for message in [*messages, {"role": "end"}]:
        if message["role"] == "tool":
            require(message["tool_call_id"] in waiting, "A 'tool' message must answer a call.")
            waiting.remove(message["tool_call_id"])
            continue
        require(not waiting, f"'tool_calls' must be followed by tool messages responding to {waiting}.")
        for call in message.get("tool_calls") or []:
            function = call["function"]
            require(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", function["name"]), "Invalid 'function.name'.")
            require(isinstance(function["arguments"], str), "arguments must be a string")
            require(0 < len(call["id"]) <= 40 and call["id"] not in waiting, f"Invalid id {call['id']}.")
            waiting.append(call["id"])


def _merged(messages: list[Body], blocks: Callable[[Body], list[Body]]) -> Iterator[tuple[str, list[Body]]]:
    """Messages of one role in a row are one, for Anthropic."""
    role, content = messages[0]["role"], list[Body]()
    for message in messages:
        if message["role"] != role:
            yield role, content
            role, content = message["role"], []
        content = content + blocks(message)
    yield role, content


def _anthropic_blocks(message: Body) -> list[Body]:
    content = message["content"]
    require(content, "messages: all messages must have non-empty content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


_ANTHROPIC_BLOCKS = {
    "user": {"text", "image", "document", "tool_result"},
    "assistant": {"text", "tool_use", "thinking", "redacted_thinking"},
}
_TOOL_USE = {"type", "id", "name", "input", "cache_control", "caller"}


def _anthropic_block(role: str, block: Body) -> None:
    require(block["type"] in _ANTHROPIC_BLOCKS[role], f"Input tag '{block['type']}' is not expected.")
    match block:
        case {"type": "text", "text": text}:
            require(text.strip(), "messages: text content blocks must contain non-whitespace text")
        case {"type": "tool_use", "id": id_, "name": name, "input": arguments}:
            require(re.fullmatch(r"[a-zA-Z0-9_-]+", id_), f"tool_use.id: {id_}")
            require(re.fullmatch(r"[a-zA-Z0-9_-]{1,200}", name), "tool_use.name")
            require(isinstance(arguments, dict), "tool_use.input: Input should be a valid dictionary")
            require(not set(block) - _TOOL_USE, f"tool_use: Extra inputs are not permitted {sorted(block)}")
        case {"type": "thinking"}:
            require(set(block) == {"type", "thinking", "signature"}, "Extra inputs are not permitted")
            require(block["signature"] == f"sig:{block['thinking']}", "Invalid `signature`")


def _begins_with_thoughts(merged: list[tuple[str, list[Body]]]) -> None:
    """The reply whose results are sent now: its thoughts go with it."""
    if all(block["type"] == "tool_result" for block in merged[-1][1]):
        first = merged[-2][1][0]["type"]
        require(first in {"thinking", "redacted_thinking"}, f"Expected `thinking`, but found `{first}`.")
