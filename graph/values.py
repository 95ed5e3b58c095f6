"""Makes values from outside sound, once, where they enter: a model's reply, the messages of a middleware, a
tool's output.

A sound value is stored, sent and read again without loss by everything behind the edge: checkpoints
(msgpack), the store (JSON), providers. It consists of dicts with texts as keys, lists, texts without lone
surrogates and NUL, booleans, None, finite numbers, and integers of 64 bits; it is nested at most DEPTH levels
deep and is not larger than MOST. Code behind the edge does not ask again.

Nobody outside can set our marks: what a message from outside has under our key is dropped. What the guard
inside a model notes on a reply comes under NOTES, which nobody else knows.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from math import isfinite
from typing import Any, TypeVar, cast

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.messages.ai import UsageMetadata

from signoff.graph.foreign import gets_past, strict_serde, valid_text, words
from signoff.graph.messages import KEY, NOTES, NOTES_PREFIX

DEPTH = 64
"""The most levels of a value."""

MOST = 2**24
"""The size of the largest value: its characters and bytes, and `_EACH` for every value in it."""

_EACH = 16
_MOST_INTEGER = 2**64
_LEAST_INTEGER = -(2**63)
_T = TypeVar("_T")


def is_sound(value: Any) -> bool:
    """Whether `value` can be stored as it is."""
    return _size(value, DEPTH, MOST) >= 0


def _size(value: Any, depth: int, most: int) -> int:
    """The size of a sound value; -1 for any other, and for one larger than `most`."""
    kind = type(value)
    if kind is str:
        valid = (value.isascii() and "\0" not in value) or valid_text(value) == value
        return len(value) + _EACH if valid and len(value) <= most else -1
    if kind is not dict and kind is not list:
        return _size_of_one(value)
    size = _EACH
    # Loops: every reply is looked at, and a generator for each level costs more than all the rest.
    for part in value:
        if not depth or size > most:
            return -1
        if kind is dict:
            if type(part) is not str or (inner := _size(part, 0, most)) < 0:
                return -1
            size, part = size + inner, value[part]
        inner = _size(part, depth - 1, most - size)
        if inner < 0:
            return -1
        size += inner
    return size if depth and size <= most else -1


def _size_of_one(value: Any) -> int:
    kind = type(value)
    if kind is int:
        return _EACH if _LEAST_INTEGER <= value < _MOST_INTEGER else -1
    if kind is float:
        return _EACH if isfinite(value) else -1
    return _EACH if value is None or kind is bool else -1


def sound(value: Any, *, drops: bool = False, with_bytes: bool = False) -> Any:
    """`value` in a form that can be stored, with valid text; the same object if it has that form.

    drops: what has no such form is left out of the list or dict that it is in. with_bytes: bytes are kept;
    only a checkpoint can hold them. Raises ValueError, with the reason, for what has no such form, and for
    what is too large.
    """
    return value if is_sound(value) else _Mender(drops=drops, with_bytes=with_bytes).mended(value, DEPTH)


class _Mender:
    """Makes one value sound."""

    def __init__(self, *, drops: bool, with_bytes: bool) -> None:
        self._drops = drops
        self._with_bytes = with_bytes
        self._left = MOST

    def mended(self, value: Any, depth: int) -> Any:
        if isinstance(value, Enum):
            # As a provider's package prints it.
            value = value.value if isinstance(value.value, str) else value.name
        self._left -= _EACH + (len(value) if isinstance(value, str | bytes) else 0)
        if self._left < 0:
            raise ValueError("too large")
        if isinstance(value, str):
            return valid_text(str.__str__(value))
        if isinstance(value, Mapping | list | tuple):
            if not depth:
                raise ValueError("nested too deep")
            if isinstance(value, Mapping):
                pairs = self._kept(
                    value.items(), lambda pair: (self._key(pair[0]), self.mended(pair[1], depth - 1))
                )
                return dict(pairs)
            return list(self._kept(value, lambda part: self.mended(part, depth - 1)))
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, bytes) and self._with_bytes:
            return bytes(value)
        if not isinstance(value, int | float):
            raise ValueError(f"a value of type {type(value).__name__}")
        # A number of numpy as what it extends.
        number = int(value) if isinstance(value, int) else float(value)
        if _size_of_one(number) < 0:
            raise ValueError("a number too large")
        return number

    def _key(self, key: Any) -> str:
        if not isinstance(key, str | int):
            raise ValueError(f"a key of type {type(key).__name__}")
        text: str = self.mended(str(key), 0)
        return text

    def _kept(self, parts: Iterable[Any], mend: Callable[[Any], _T]) -> Iterator[_T]:
        for part in parts:
            try:
                yield mend(part)
            except ValueError:
                if not self._drops or self._left < 0:
                    raise


def as_words(value: Any) -> str:
    """`str(value)` as valid text; the name of its type if that raises, or would be too large."""
    try:
        sound([value], drops=True)
    except ValueError:
        return f"<{type(value).__name__}>"
    return words(value)


def saves(value: Any) -> bool:
    """Whether a checkpoint can hold `value`, which may be a message, a document or another known object."""
    try:
        strict_serde().dumps_typed(value)
    except BaseException as error:
        # A custom value may raise anything while it is read.
        if gets_past(error):
            raise
        return False
    return True


_COUNTS = ("input_tokens", "output_tokens", "total_tokens")
_DETAILS = ("input_token_details", "output_token_details")
_MOST_TOKENS = 2**53
_LONGEST_ID = 200
# What these keys of a block or a raw call hold is looked up, and so must be text.
_WORDS = ("type", "id", "call_id", "name")


def sound_reply(message: object) -> AIMessage:
    """A model's reply as LangChain's own message, with sound fields; its calls whose arguments are no sound
    object are among the invalid ones.

    Raises TypeError for what is no reply, and ValueError for one that is too large.
    """
    if not isinstance(message, AIMessage):
        raise TypeError(f"the model answered with a {type(message).__name__}, not with an AIMessage")
    # A message may be made without some of its fields.
    fields = vars(message)
    told = fields.get("response_metadata")
    # Some providers want bytes of theirs back.
    metadata = sound_extras(told, with_bytes=True)
    extras = sound_extras(fields.get("additional_kwargs"), with_bytes=True)
    notes = dict(told[NOTES]) if type(told) is dict and NOTES in told else {}
    good, bad, order = _calls(fields.get("tool_calls"), fields.get("invalid_tool_calls"))
    if order:
        notes["order"] = order
    if type(metadata.get("model_provider", "")) is not str:
        metadata = {key: value for key, value in metadata.items() if key != "model_provider"}
    if type(raw := extras.get("tool_calls")) is list:
        extras = {**extras, "tool_calls": [_with_words(call) for call in raw if isinstance(call, dict)]}
    return AIMessage.model_construct(
        content=sound_content(fields.get("content"), with_bytes=True),
        additional_kwargs=extras,
        response_metadata={**metadata, KEY: notes} if notes else metadata,
        type="ai",
        name=_text(fields.get("name")),
        id=sound_id(fields.get("id")),
        tool_calls=good,
        invalid_tool_calls=bad,
        usage_metadata=_usage(fields.get("usage_metadata")),
    )


def sound_message(message: BaseMessage) -> BaseMessage:
    """A message of a middleware or a tool as one of LangChain's own, with sound fields and without our marks.

    Raises TypeError or ValueError if there is none.
    """
    if isinstance(message, AIMessage):
        return sound_reply(message)
    kinds = (HumanMessage, SystemMessage, ToolMessage, ChatMessage, FunctionMessage)
    kind = next((kind for kind in kinds if isinstance(message, kind)), None)
    if kind is None:
        raise TypeError(f"a {type(message).__name__} is no message of a history")
    fields = vars(message)
    more: dict[str, Any] = {
        name: _text(fields[name]) for name in ("role", "tool_call_id", "status") if name in fields
    }
    if (artifact := fields.get("artifact")) is not None and saves(artifact):
        more["artifact"] = artifact
    return kind(
        content=sound_content(fields.get("content")),
        additional_kwargs=sound_extras(fields.get("additional_kwargs")),
        response_metadata=sound_extras(fields.get("response_metadata")),
        name=_text(fields.get("name")),
        id=sound_id(fields.get("id")),
        **more,
    )


def sound_content(content: Any, *, with_bytes: bool = False) -> str | list[str | dict[str, Any]]:
    """The content of a message: text, or blocks. Raises TypeError if it is neither."""
    if content is None:
        return ""
    if not isinstance(content, str | list | tuple):
        raise TypeError(f"the content of the message is a {type(content).__name__}")
    content = sound(content, drops=True, with_bytes=with_bytes)
    if type(content) is str:
        return content
    return [
        _with_words(part) if type(part) is dict else part for part in content if type(part) in (str, dict)
    ]


def sound_extras(extras: Any, *, with_bytes: bool = False) -> dict[str, Any]:
    """The extras of a message, without what has our key."""
    if not extras or not isinstance(extras, Mapping):
        return {}
    made: dict[str, Any] = sound(extras, drops=True, with_bytes=with_bytes)
    return {key: made[key] for key in made if not _is_ours(key)} if any(map(_is_ours, made)) else made


def _is_ours(key: str) -> bool:
    return key == KEY or key.startswith(NOTES_PREFIX)


def sound_id(message_id: Any) -> str | None:
    """The id of a message; None, for a new one, if it is no text or too long to be a key in a database."""
    text = _text(message_id)
    return text if text and len(text) <= _LONGEST_ID else None


def _text(value: Any) -> str | None:
    return valid_text(value) if isinstance(value, str) else None


def _with_words(part: dict[str, Any]) -> dict[str, Any]:
    """A block or a raw call in which what is looked up is text; LangChain takes the text of a block of text
    for granted when it counts."""
    if any(type(part.get(key, "")) is not str for key in _WORDS):
        part = {key: value for key, value in part.items() if key not in _WORDS or type(value) is str}
    if part.get("type") == "text" and type(part.get("text")) is not str:
        return {**part, "text": ""}
    return part


def _calls(calls: Any, invalid: Any) -> tuple[list[ToolCall], list[InvalidToolCall], list[int]]:
    """The calls of a reply, those that cannot run, and the order of both if some were moved."""
    calls = calls if isinstance(calls, list | tuple) else []
    bad = [_bad(call) for call in invalid] if isinstance(invalid, list | tuple) else []
    if all(map(_is_call, calls)):
        return calls if type(calls) is list else list(calls), bad, []
    good, before, places = list[ToolCall](), len(bad), list[tuple[bool, int]]()
    for call in calls:
        try:
            made = _call(call)
        except ValueError as error:
            places.append((False, len(bad)))
            bad.append(_bad(call, str(error)))
        else:
            places.append((True, len(good)))
            good.append(made)
    # Where there were invalid ones before, nobody knows the order.
    return good, bad, [] if before else [at + len(bad) if is_good else at for is_good, at in places]


def _is_call(call: Any) -> bool:
    if type(call) is not dict or type(call.get("name")) is not str or type(call.get("args")) is not dict:
        return False
    call_id = call.get("id", 0)
    return (call_id is None or type(call_id) is str) and call.get("type") == "tool_call" and is_sound(call)


def _call(call: Any) -> ToolCall:
    """Raises ValueError for a call that cannot run."""
    if not isinstance(call, Mapping) or not isinstance(call.get("args"), Mapping):
        raise ValueError("the arguments are no object")
    made = sound({key: value for key, value in call.items() if key != "args"}, drops=True)
    made |= {"name": _text(call.get("name")) or "", "args": sound(call["args"]), "id": _text(call.get("id"))}
    return cast(ToolCall, {**made, "type": "tool_call"})


def _bad(call: Any, error: str | None = None) -> InvalidToolCall:
    call = call if isinstance(call, Mapping) else {"args": call}
    args = call.get("args")
    return InvalidToolCall(
        type="invalid_tool_call",
        name=_text(call.get("name")),
        id=_text(call.get("id")),
        args=None if args is None else arguments_text(args),
        error=error or _text(call.get("error")),
    )


def arguments_text(args: Any) -> str:
    """The arguments of a call as text; what is no JSON stays invalid, so that its call does not run."""
    if isinstance(args, str):
        return valid_text(args)
    try:
        # Else what is too large would first become a text.
        sound([args], drops=True)
        return json.dumps(args)
    except (TypeError, ValueError, RecursionError):
        return f"({type(args).__name__} with values that are no JSON)"


def _usage(usage: Any) -> UsageMetadata | None:
    """The usage that a provider reports; None for one that cannot be, which is then estimated: no prompt is
    without tokens, but some servers report zeros."""
    if not isinstance(usage, Mapping) or not all(_is_count(usage.get(name)) for name in _COUNTS):
        return None
    if not usage["input_tokens"]:
        return None
    made: Any = {name: usage[name] for name in _COUNTS}
    for name in _DETAILS:
        if isinstance(details := usage.get(name), Mapping):
            made[name] = {key: value for key, value in sound(details, drops=True).items() if _is_count(value)}
    return made  # type: ignore[no-any-return]  # it has the three counts


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST_TOKENS
