"""The common parts of the formats: text, ids, arguments, stop reasons and failures."""

import json
import re
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage

from signoff.graph.history.replies import StopReason, complete_json, stop_of, words_of
from signoff.lint.trace import TraceCall, Unreadable

Item = Mapping[str, Any]

_STOPS = ("finish_reason", "stop_reason", "stopReason", "done_reason", "incomplete_details", "status")

# Formats without a status show a failure only in the text of the result.
_FAILED = re.compile(
    r"\W{0,3}(?:Traceback \(most recent call last\)"
    r"|[\w.]*(?:error|exception)\s*(?::|\b(?:executing|running|calling|invoking|reading|writing|in)\b)"
    r"|fatal:|an error (?:has )?occurred)",
    re.IGNORECASE,
)


def kind_of(value: Any) -> str:
    """Returns the type of a JSON value, for people."""
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "nothing"}
    return kinds.get(type(value), "a number")


def wrong(at: int, what: str, value: Any) -> Unreadable:
    """Returns the error for a part of message `at` with the wrong type."""
    return Unreadable(f"Message {at}: {what} is {kind_of(value)}; this is not a known format.")


def mapping(at: int, what: str, value: Any) -> Item:
    """Returns `value` as an object; None becomes an empty one."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wrong(at, what, value)
    return value


def listing(at: int, what: str, value: Any) -> list[Item]:
    """Returns `value` as a list of objects; None becomes an empty one."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise wrong(at, what, value)
    return [mapping(at, f"a part of {what}", part) for part in value]


def word(at: int, what: str, value: Any) -> str:
    """Returns `value`, a text or a number, as a name or an id; None becomes an empty one."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise wrong(at, what, value)
    return str(value)


def blocks(at: int, content: Any) -> list[Item]:
    """Returns the blocks of a content; a text is one block."""
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise wrong(at, "the content", content)
    return [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else mapping(at, "a block of the content", part)
        for part in content
    ]


def text_of(at: int, content: Any) -> str:
    """Returns the text of a content."""
    texts = [_text(block) for block in blocks(at, content)]
    return "\n".join(text for text in texts if isinstance(text, str))


def without_thoughts(text: str) -> str:
    """Returns the `text` of a reply without the thoughts that some models write before it."""
    return words_of(AIMessage(text))


def result_text(at: int, content: Any) -> str:
    """Returns a result of any type as text, for comparing and matching."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, str) or _is_text(part) for part in content):
        return text_of(at, content)
    return "" if content is None else json.dumps(content, sort_keys=True)


def call(at: int, call_id: Any, name: Any, arguments: Any) -> TraceCall:
    """Returns a recorded call. arguments: raw text, or the object itself."""
    found, called = word(at, "the id of a call", call_id), word(at, "the name of a call", name)
    if not isinstance(arguments, str):
        return TraceCall(at, found, called, json.dumps(arguments or {}, sort_keys=True))
    if not complete_json(arguments):
        return TraceCall(at, found, called, arguments, whole=False)
    return TraceCall(
        at, found, called, json.dumps(json.loads(arguments or "{}", strict=False), sort_keys=True)
    )


def is_cut(metadata: Item) -> bool:
    """Whether the provider says that it stopped the reply at a limit."""
    given = {key: metadata[key] for key in _STOPS if metadata.get(key)}
    return bool(given) and stop_of(AIMessage("", response_metadata=given)) is StopReason.LENGTH


def looks_failed(text: str) -> bool:
    """Whether a result reads like an error, for formats without another sign of it."""
    return bool(_FAILED.match(text)) or _says_so(text)


def _says_so(text: str) -> bool:
    if not text.lstrip().startswith("{"):
        return False
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    failing = any(found.get(key) not in (None, False, "", [], {}) for key in ("error", "is_error", "isError"))
    return (
        failing or found.get("success") is False or found.get("ok") is False or found.get("status") == "error"
    )


def _text(block: Item) -> Any:
    """Returns the text of a block; AgentDojo's text blocks have it as their content."""
    return block.get("content") if block.get("type") == "text" and "text" not in block else block.get("text")


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(_text(part), str)
