"""The shapes in which providers deliver a reply, read alike: its calls, how it stopped, what it thought.

A reply's calls belong into `tool_calls` and `invalid_tool_calls`. Imported histories, and servers of older
protocols, have them elsewhere: in a provider's extras or among the blocks of the content.

The arguments of a call, read from their raw text by a strict parser.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from langchain_core.messages import AIMessage, InvalidToolCall, ToolCall

from signoff.graph.messages import KEY, marks

_DEPTH = 64


def read_arguments(raw: str) -> dict[str, Any]:
    """The arguments of a call from their raw text: one whole JSON object.

    No text, or null, means no arguments; an object written into a JSON string is read, and so are line ends
    inside of strings. Raises ValueError, saying what is wrong, for everything else: it is cut, no JSON (NaN),
    no object, or nothing that a database takes.
    """
    value = _parsed(raw) if raw.strip() else {}
    if isinstance(value, str):
        value = _parsed(value) if value.strip() else {}
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"a {type(value).__name__}, not an object")
    if not storable(value):
        raise ValueError("nested too deep, or a number too large")
    return value


def complete_json(raw: str) -> bool:
    """Whether `raw` is the whole text of a call's arguments, as `read_arguments` reads them."""
    try:
        read_arguments(raw)
    except ValueError:
        return False
    return True


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, strict=False, parse_constant=_no_json)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _no_json(word: str) -> Any:
    raise ValueError(f"{word} is no JSON value")


def storable(value: Any, depth: int = _DEPTH) -> bool:
    """Whether this is a JSON value that a database takes: not nested too deep, no integer beyond 64 bits, no
    infinity."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -(2**63) <= value < 2**64
    if isinstance(value, str):
        return True
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        named = not isinstance(value, dict) or all(isinstance(key, str) for key in value)
        return depth > 0 and named and all(storable(part, depth - 1) for part in parts)
    return value is None


_REASONS = ("finish_reason", "stop_reason", "stopReason", "done_reason")
_LENGTH = {
    "length",
    "max_tokens",
    "max_output_tokens",
    "model_length",
    "error_limit",
    "incomplete",
    "model_context_window_exceeded",
}
_FILTERED = {
    "content_filter",
    "content_filtered",
    "refusal",
    "safety",
    "image_safety",
    "recitation",
    "prohibited_content",
    "blocklist",
    "spii",
    "guardrail_intervened",
    "error_toxic",
}
_BROKEN = {"error", "abort", "failed", "cancelled", "timeout", "insufficient_system_resource"}
_THOUGHTS = {"reasoning", "thinking", "redacted_thinking", "reasoning_content"}
_THOUGHT_KEYS = ("reasoning_content", "reasoning", "reasoning_details")
_THINK = re.compile(r"\s*<(think|thinking)>.*?(?:</\1>|\Z)|(?:(?!<think).)*?</think>", re.DOTALL)
_ARGUMENTS = {
    "tool_use": ("partial_json", "input"),
    "tool_call": ("args",),
    "tool_call_chunk": ("args",),
    "invalid_tool_call": ("args",),
    "function_call": ("arguments",),
}
_T = TypeVar("_T")


class Stop(StrEnum):
    """How a reply stopped, as far as it matters: `stop` and `tool_calls` both read as `normal`.

    `paused`: the provider's own tools take long; the reply goes on when it is sent back as it is.
    """

    NORMAL = "normal"
    LENGTH = "length"
    FILTERED = "filtered"
    PAUSED = "paused"


def reason_of(message: AIMessage) -> str:
    """The provider's word for how the reply stopped, in small letters; empty when it gives none."""
    metadata = message.response_metadata
    details = metadata.get("incomplete_details")
    said = [details.get("reason")] if isinstance(details, Mapping) else []
    said += [metadata.get(key) for key in (*_REASONS, "status")]
    # An enum of a provider's package prints as `FinishReason.SAFETY`.
    found = next((reason for reason in said if isinstance(reason, str) and reason.strip()), "")
    return found.strip().lower().rsplit(".", 1)[-1]


def broken_off(message: AIMessage) -> bool:
    """Whether the provider says that it failed in the middle of the reply."""
    return reason_of(message) in _BROKEN


def stop_of(message: AIMessage) -> Stop:
    """How the provider says that the reply stopped. One that broke off reads like one that was cut."""
    reason = reason_of(message)
    if reason in _LENGTH or reason in _BROKEN:
        return Stop.LENGTH
    if reason in _FILTERED or message.additional_kwargs.get("refusal") or _blocked(message):
        return Stop.FILTERED
    return Stop.PAUSED if reason == "pause_turn" else Stop.NORMAL


def _blocked(message: AIMessage) -> bool:
    """Whether a block of the content is a refusal, or the prompt was blocked before there was a reply."""
    feedback = message.response_metadata.get("prompt_feedback")
    if isinstance(feedback, Mapping) and feedback.get("block_reason"):
        return True
    if isinstance(message.content, str):
        return False
    parts = [part.get("value") if part.get("type") == "non_standard" else part for part in _blocks(message)]
    return any(isinstance(part, Mapping) and part.get("type") == "refusal" for part in parts)


def words_of(message: AIMessage) -> str:
    """What the reply says, without what a model thinks aloud in `<think>` tags before it."""
    text: str = message.text
    if "think" in text and (thought := _THINK.match(text)):
        text = text[thought.end() :]
    return text.strip()


def thinks(message: AIMessage) -> bool:
    """Whether the reply holds thoughts that are no words for anybody."""
    usage = message.usage_metadata
    counted = (usage.get("output_token_details") if usage else None) or {}
    return (
        any(part.get("type") in _THOUGHTS for part in _blocks(message))
        or any(message.additional_kwargs.get(key) for key in _THOUGHT_KEYS)
        or bool(counted.get("reasoning"))
        or words_of(message) != message.text.strip()
    )


def normal(message: AIMessage) -> AIMessage:
    """The reply with all its calls, in order, in `tool_calls` and `invalid_tool_calls`; `message` itself when
    they are there already. What was called in blocks of the content is no longer among them.
    """
    if marks(message).get("checked"):
        return message
    if message.tool_calls or message.invalid_tool_calls:
        if not message.invalid_tool_calls and all(storable(call["args"]) for call in message.tool_calls):
            return message
        found = in_order(message, [*message.invalid_tool_calls, *message.tool_calls])
        return with_calls(message, [(call["name"], call["id"], call["args"]) for call in found])
    if extras := list(_of_extras(message.additional_kwargs)):
        return with_calls(message, extras)
    blocks = [_of_block(part) for part in _blocks(message) if part.get("type") in _ARGUMENTS]
    if not blocks:
        return message
    content = [p for p in message.content if isinstance(p, str) or p.get("type") not in _ARGUMENTS]
    return with_calls(message.model_copy(update={"content": content}), blocks)


def with_calls(message: AIMessage, calls: Sequence[tuple[Any, Any, Any]]) -> AIMessage:
    """The message with these calls in place of its own: name, id, and arguments as text or as they are. What
    is no JSON object becomes an `invalid_tool_call`; the mark `order` keeps the positions of both sorts."""
    good: list[ToolCall] = []
    bad: list[InvalidToolCall] = []
    places: list[tuple[bool, int]] = []
    for name, call_id, args in calls:
        text = args if isinstance(args, str) else _as_json(args)
        name, call_id = _text(name), _text(call_id)
        try:
            read = read_arguments(text)
        except ValueError as error:
            places.append((False, len(bad)))
            bad.append(
                InvalidToolCall(
                    type="invalid_tool_call", name=name, id=call_id, args=text, error=str(error)[:200]
                )
            )
        else:
            places.append((True, len(good)))
            good.append(ToolCall(type="tool_call", name=name, id=call_id, args=read))
    order = [len(bad) + at if is_good else at for is_good, at in places]
    metadata = {**message.response_metadata, KEY: {**marks(message), "order": order}}
    return message.model_copy(
        update={"tool_calls": good, "invalid_tool_calls": bad, "response_metadata": metadata}
    )


def raw_texts(message: AIMessage, call_id: str) -> list[Any]:
    """The raw texts of a call's arguments, as far as the provider's extras and blocks still hold them."""
    blocks = [_of_block(part) for part in _blocks(message) if part.get("type") == "function_call"]
    raw = [*_of_extras(message.additional_kwargs)] or blocks
    return [args for _, its_id, args in raw if (its_id or "") == call_id]


def _blocks(message: AIMessage) -> Iterator[dict[str, Any]]:
    if isinstance(message.content, list):
        yield from (part for part in message.content if isinstance(part, dict))


def _of_extras(extras: Mapping[str, Any]) -> Iterator[tuple[Any, Any, Any]]:
    """The calls of OpenAI's raw message: `tool_calls`, or the one `function_call` of its first protocol."""
    several = extras.get("tool_calls")
    if isinstance(several, list) and several:
        raw = [call for call in several if isinstance(call, Mapping)]
        told = [(call.get("function"), call.get("id")) for call in raw]
    else:
        told = [(extras.get("function_call"), None)]
    for function, call_id in told:
        if isinstance(function, Mapping):
            yield function.get("name"), call_id, function.get("arguments")


def _of_block(part: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    keys = _ARGUMENTS[part["type"]]
    args = next((part[key] for key in keys if part.get(key)), None)
    return part.get("name"), part.get("call_id") or part.get("id"), args


def in_order(message: AIMessage, found: list[_T]) -> list[_T]:
    """`found` (the malformed calls, then the others) in the order of the reply: as it is marked, else as the
    provider's raw shape shows it.

    Without either the malformed come first, which is the careful reading: a finish beside them is void.
    """
    if len(found) < 2:
        return found
    noted = marks(message).get("order")
    # A provider can send a mark of this name, too.
    order = noted if isinstance(noted, list) and all(type(at) is int for at in noted) else []
    if sorted(order) == list(range(len(found))):
        return [found[at] for at in order]
    blocks = [_of_block(part) for part in _blocks(message) if part.get("type") in _ARGUMENTS]
    ids = [call_id for _, call_id, _ in [*_of_extras(message.additional_kwargs)] or blocks]
    own = [call["id"] for call in [*message.invalid_tool_calls, *message.tool_calls]]
    if len(set(ids)) == len(ids) == len(found) and set(own) == set(ids):
        return [found[own.index(call_id)] for call_id in ids]
    return found


def _as_json(args: Any) -> str:
    """Arguments as text; what is no JSON is none afterwards either, so that the call is malformed."""
    try:
        return json.dumps(args)
    except (TypeError, ValueError, RecursionError):
        return f"({type(args).__name__} with values that are no JSON)"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
