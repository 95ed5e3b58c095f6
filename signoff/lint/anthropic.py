"""Reads Anthropic's messages: calls and results are blocks of the content."""

from collections.abc import Iterator

from signoff.lint.pieces import Item, blocks, call, is_cut, said, shown, word
from signoff.lint.trace import Entry, Result, TraceMessage, TraceReply, Unreadable

_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use")


def is_message(item: Item) -> bool:
    """Whether this can only be a message of Anthropic's."""
    if item.get("role") not in ("user", "assistant"):
        return False
    content = item.get("content")
    parts = content if isinstance(content, list) else []
    return "stop_reason" in item or any(
        isinstance(part, dict) and part.get("type") in _BLOCKS for part in parts
    )


def read(at: int, item: Item) -> Iterator[Entry]:
    """What the message `at` holds. Raises Unreadable for wrong types.

    Tools that the provider runs itself are left out: their results stand in the same reply. Text beside
    results is a reminder of the program that sent them, and begins no task.
    """
    role = item.get("role")
    parts = blocks(at, item.get("content"))
    if role == "assistant":
        text = "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))
        calls = [
            call(at, part.get("id"), part.get("name"), part.get("input"))
            for part in parts
            if part.get("type") == "tool_use"
        ]
        yield TraceReply(at, said(text), tuple(calls), is_cut({"stop_reason": item.get("stop_reason")}))
    elif role == "user":
        results = [part for part in parts if part.get("type") == "tool_result"]
        for part in results:
            call_id = word(at, "tool_use_id", part.get("tool_use_id"))
            yield Result(at, call_id, shown(at, part.get("content")), part.get("is_error") is True)
        if len(results) < len(parts) or not parts:
            yield TraceMessage(at, genuine=not results)
    elif role not in ("system", "developer"):
        raise Unreadable(f"Message {at} has a role that Anthropic does not have: {str(role)[:40]!r}.")
