"""Reads LangChain's messages: `messages_to_dict`, `dumps`, and the fields of the messages themselves."""

from collections.abc import Iterator, Sequence

from signoff.graph.messages import KEY
from signoff.lint.openai import raw_call
from signoff.lint.pieces import (
    Item,
    blocks,
    call,
    is_cut,
    listing,
    looks_failed,
    mapping,
    said,
    shown,
    text_of,
    word,
)
from signoff.lint.trace import Entry, Result, TraceCall, TraceMessage, TraceReply, Unreadable

_CALLING = ("tool_use", "tool_call", "function_call")
_PEOPLE = {"human", "user"}
_TYPES = {*_PEOPLE, "ai", "assistant", "tool", "function", "system", "developer", "chat", "remove"}


def fields(item: Item) -> Item:
    """The fields of a message out of what one of LangChain's functions has wrapped around them."""
    if "lc" in item:
        kwargs, path = item.get("kwargs"), item.get("id")
        named = {"type": path[-1]} if isinstance(path, list) and path else {}
        return {**named, **kwargs} if isinstance(kwargs, dict) else {}
    if isinstance(item.get("data"), dict):
        return {"type": item.get("type"), **item["data"]}
    return item


def type_of(item: Item) -> str:
    """The type of a message, in small letters: `ai` also of a chunk (`AIMessageChunk`)."""
    found = fields(item).get("type")
    small = found.lower() if isinstance(found, str) else ""
    return small.removesuffix("chunk").removesuffix("message")


def is_message(item: Item) -> bool:
    """Whether this is a message of LangChain's."""
    wrapped = "lc" in item or (isinstance(item.get("data"), dict) and "type" in item)
    return type_of(item) in _TYPES and (wrapped or "content" in item)


def read(at: int, item: Item) -> Iterator[Entry]:
    """What the message `at` holds. Raises Unreadable for wrong types."""
    message, kind = fields(item), type_of(item)
    if kind not in _TYPES:
        raise Unreadable(f"Message {at} has a type that LangChain does not have: {kind or 'none'!r}.")
    if kind in ("ai", "assistant"):
        yield _reply(at, message)
    elif kind in ("tool", "function"):
        text = shown(at, message.get("content"))
        status = message.get("status")
        yield Result(
            at,
            word(at, "tool_call_id", message.get("tool_call_id")),
            text,
            looks_failed(text) if status is None else status == "error",
            word(at, "the name of a tool", message.get("name")),
        )
    elif kind in _PEOPLE:
        marks = mapping(at, "additional_kwargs", message.get("additional_kwargs")).get(KEY)
        text_of(at, message.get("content"))
        yield TraceMessage(at, genuine=not (isinstance(marks, dict) and "nudge" in marks))


def offers(items: Sequence[Item]) -> frozenset[str]:
    """Signoff's own finishing tool, where a message carries a mark of Signoff."""
    marked = (
        notes.get(KEY)
        for message in map(fields, items)
        for notes in (message.get("additional_kwargs"), message.get("response_metadata"))
        if isinstance(notes, dict)
    )
    return frozenset({"finish_task"}) if any(marked) else frozenset()


def _reply(at: int, message: Item) -> TraceReply:
    metadata = mapping(at, "response_metadata", message.get("response_metadata"))
    text = text_of(at, message.get("content"))
    return TraceReply(at, said(text), tuple(_calls(at, message, metadata)), is_cut(metadata))


def _calls(at: int, message: Item, metadata: Item) -> list[TraceCall]:
    """The calls, wherever they are: parsed, else as the provider sent them, else among the blocks."""
    good = [
        call(at, part.get("id"), part.get("name"), part.get("args"))
        for part in listing(at, "tool_calls", message.get("tool_calls"))
    ]
    bad = [
        TraceCall(
            at,
            word(at, "the id of a call", part.get("id")),
            word(at, "the name of a call", part.get("name")),
            word(at, "the arguments of a malformed call", part.get("args")),
            whole=False,
        )
        for part in listing(at, "invalid_tool_calls", message.get("invalid_tool_calls"))
    ]
    extras = mapping(at, "additional_kwargs", message.get("additional_kwargs"))
    raw = [raw_call(at, part) for part in listing(at, "tool_calls", extras.get("tool_calls"))]
    if good or bad:
        return _in_order([*bad, *good], raw, metadata)
    if raw:
        return raw
    return [
        call(at, part.get("call_id") or part.get("id"), part.get("name"), _arguments(part))
        for part in blocks(at, message.get("content"))
        if part.get("type") in _CALLING
    ]


def _arguments(part: Item) -> object:
    return next((part[key] for key in ("input", "args", "arguments") if part.get(key)), None)


def _in_order(found: list[TraceCall], raw: list[TraceCall], metadata: Item) -> list[TraceCall]:
    """`found` (the malformed first) as it was noted, else as the provider sent it, else as it is."""
    marks = metadata.get(KEY)
    order = marks.get("order") if isinstance(marks, dict) else None
    places = order if isinstance(order, list) and all(type(place) is int for place in order) else []
    if places and sorted(places) == [*range(len(found))]:
        return [found[place] for place in places]
    ids = [sent.id for sent in raw]
    if len({*ids}) == len(ids) and sorted(ids) == sorted(made.id for made in found):
        return sorted(found, key=lambda made: ids.index(made.id))
    return found
