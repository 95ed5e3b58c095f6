"""Sanitises a provider's reply so that it can be checkpointed, and gives its calls ids of their own."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from signoff.graph.foreign import is_plain, valid_text, valid_values
from signoff.graph.history.replies import Reply, with_call_ids
from signoff.graph.history.shapes import reason_of
from signoff.graph.messages import KEY, marks

_SERDE = JsonPlusSerializer(pickle_fallback=False, allowed_msgpack_modules=None)
_PARTS = ("content", "tool_calls", "invalid_tool_calls")
_EXTRAS = ("additional_kwargs", "response_metadata")
_COUNTS = ("input_tokens", "output_tokens", "total_tokens")
_DETAILS = ("input_token_details", "output_token_details")
_MOST_TOKENS = 2**53


def sound(message: AIMessage) -> AIMessage:
    """The reply without half characters, which a model can write as escapes, without a provider's extras that
    are no plain values, and with a usage only where it is one. `id` is None where it is no text.

    Raises ValidationError, or TypeError, for what is no reply at all even so.
    """
    if isinstance(message.content, list):
        message = message.model_copy(update={"content": [_worded(part) for part in message.content]})
    name, own = message.name, message.id
    given = [getattr(message, part) for part in (*_PARTS, *_EXTRAS)]
    if all(map(is_plain, [*given, name, own])) and all(
        text is None or isinstance(text, str) for text in (name, own)
    ):
        # Nearly every reply.
        if not _is_usual(message):
            AIMessage(**dict(zip(_PARTS, given, strict=False)))
        return message.model_copy(
            update={"usage_metadata": _counted(message.usage_metadata), "id": own or None}
        )
    parts = {part: valid_values(getattr(message, part)) for part in _PARTS}
    AIMessage(**parts)
    rest = {
        "usage_metadata": _counted(message.usage_metadata),
        "name": valid_text(name) if isinstance(name, str) else None,
        "id": valid_text(own) if isinstance(own, str) and own else None,
    }
    message = message.model_copy(update={**parts, **rest})
    try:
        message = message.model_copy(update={part: valid_values(getattr(message, part)) for part in _EXTRAS})
        _SERDE.dumps_typed(message)
    except (TypeError, ValueError, RecursionError):
        kept = {"finish_reason": reason_of(message), KEY: dict(marks(message))}
        message = message.model_copy(update={"additional_kwargs": {}, "response_metadata": kept})
        _SERDE.dumps_typed(message)
    return message


def _is_usual(message: AIMessage) -> bool:
    """Whether this is text and whole calls, so that there is nothing that LangChain would refuse."""
    plain = type(message.content) is str and message.invalid_tool_calls == []
    return plain and type(message.tool_calls) is list and all(map(_is_call, message.tool_calls))


def _is_call(call: Any) -> bool:
    if type(call) is not dict:
        return False
    name, args, own = call.get("name"), call.get("args"), call.get("id", 0)
    right = type(name) is str and type(args) is dict and (own is None or type(own) is str)
    return right and call.get("type", "tool_call") == "tool_call"


def _worded(part: Any) -> Any:
    """A part of the content; one of text has a text, which LangChain takes for granted when it counts."""
    if isinstance(part, dict) and part.get("type") == "text" and not isinstance(part.get("text"), str):
        return {**part, "text": ""}
    return part


def _counted(usage: Any) -> UsageMetadata | None:
    """The usage that a provider reports; None for one that cannot be, which is then estimated."""
    if not isinstance(usage, Mapping) or not all(_count(usage.get(name)) for name in _COUNTS):
        return None
    details = [usage.get(name) or {} for name in _DETAILS]
    right = all(isinstance(found, Mapping) and all(map(_count, found.values())) for found in details)
    if right and type(usage) is dict:
        return usage  # type: ignore[return-value]  # checked above
    kept = dict(usage) if right else {name: usage[name] for name in _COUNTS}
    return UsageMetadata(**kept)  # type: ignore[no-any-return,typeddict-item]  # checked above


def _count(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < _MOST_TOKENS


def unique_ids(reply: Reply, taken: AbstractSet[str]) -> AIMessage | None:
    """The reply with an id of its own for every open call; None when each has one already.

    Providers repeat "call_0" in every reply, or give none. The new id is made from the reply's id and the
    position of the call, so that a repetition of this step makes the same one.
    """
    seen = set[str]()
    fresh: dict[int, str] = {}
    for call in reply.calls:
        if reply.open(call) and (not call.id or call.id in seen or call.id in taken):
            fresh[call.index] = reply.own_id(call)
        seen.add(fresh.get(call.index, call.id))
    return with_call_ids(reply.message, fresh) if fresh else None
