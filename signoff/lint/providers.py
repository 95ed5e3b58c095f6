"""Reads the messages of OpenAI (chat completions, items of the Responses API), Anthropic and LangChain."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from signoff.graph.messages import KEY
from signoff.lint.pieces import (
    Item,
    blocks,
    call,
    is_cut,
    listing,
    looks_failed,
    mapping,
    result_text,
    text_of,
    without_thoughts,
    word,
)
from signoff.lint.trace import Entry, Result, TraceCall, TraceMessage, TraceReply, Unreadable

_PEOPLE = ("user", "human")
_MODEL = ("assistant", "ai", "model")
_TOOL = ("tool", "function")
_SILENT = ("system", "developer")
ROLES = (*_PEOPLE, *_MODEL, *_TOOL, *_SILENT)
"""The roles of chat messages; some programs write LangChain's names for them."""


def is_chat(item: Item) -> bool:
    """Whether this is a chat message, or a completion that holds one."""
    return item.get("role") in ROLES or _completed(item) is not None


def read_chat(at: int, item: Item) -> Iterator[Entry]:
    """Returns the entries of the chat message `at`. Raises Unreadable for wrong types."""
    choice = _completed(item)
    message = mapping(at, "the message", choice.get("message")) if choice else item
    role = message.get("role")
    if role in _MODEL:
        text = without_thoughts(text_of(at, message.get("content")))
        yield TraceReply(at, text, tuple(_calls(at, message)), is_cut(choice or message))
    elif role in _TOOL:
        yield from _results(at, message)
    elif role in _PEOPLE:
        blocks(at, message.get("content"))
        yield TraceMessage(at)
    elif role not in _SILENT:
        raise Unreadable(f"Message {at} has an unknown role: {str(role)[:40]!r}.")


def _results(at: int, message: Item) -> Iterator[Result]:
    """Yields the result in a message, or one for each of the calls that it answers together (SWE-agent)."""
    text, name = result_text(at, message.get("content")), _tool(at, message)
    failed = _failed(message, text)
    if failed and not text:
        error = message.get("error")
        text = result_text(at, error.get("message") if isinstance(error, dict) else error)
    together = message.get("tool_call_ids")
    if isinstance(together, list) and together:
        ids = [word(at, "a part of tool_call_ids", part) for part in together]
    else:
        given = message.get("tool_call_id")
        ids = [
            word(at, "tool_call_id", message.get("id") if given is None and "requestor" in message else given)
        ]
    for call_id in ids:
        yield Result(at, call_id, text, failed, name)


def _tool(at: int, message: Item) -> str:
    """Returns the name of the tool of a result; AgentDojo and inspect have it elsewhere."""
    made = message.get("tool_call")
    called = made.get("function") if isinstance(made, dict) else message.get("function")
    return word(at, "the name of a tool", called if message.get("name") is None else message["name"])


def _failed(message: Item, text: str) -> bool:
    """Whether the message is a failure: by its status or error field, else by its text."""
    if "status" in message:
        return bool(message["status"] == "error")
    if "error" in message or isinstance(message.get("function"), str):
        return bool(message.get("error"))
    return looks_failed(text)


def raw_call(at: int, part: Item) -> TraceCall:
    """Returns a call as chat completions write it, or in a short form.

    Short forms are LangChain's, and those in which the function is a text (AgentDojo, inspect) or the name
    and the arguments are at the top.
    """
    function = part.get("function")
    short = next((key for key in ("args", "arguments") if key in part), None)
    if short and not isinstance(function, dict):
        made = call(at, part.get("id"), part.get("name") if function is None else function, part[short])
        return replace(made, whole=made.whole and not part.get("parse_error"))
    if custom := part.get("custom"):
        free = mapping(at, "a call", custom)
        text = word(at, "the input of a call", free.get("input"))
        return call(at, part.get("id"), free.get("name"), {"input": text})
    function = mapping(at, "a function", function)
    return call(at, part.get("id"), function.get("name"), function.get("arguments"))


def _calls(at: int, message: Item) -> Iterator[TraceCall]:
    for part in listing(at, "tool_calls", message.get("tool_calls")):
        yield raw_call(at, part)
    if legacy := message.get("function_call"):
        yield raw_call(at, {"function": legacy})


def _completed(item: Item) -> Item | None:
    """Returns the first choice of a whole chat completion."""
    choices = item.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None


def is_item(item: Item) -> bool:
    """Whether this can only be an item of the Responses API."""
    kind = item.get("type")
    return isinstance(kind, str) and (kind == "reasoning" or kind.endswith(("_call", "_call_output")))


def read_items(items: Sequence[Item], cut: bool = False) -> Iterator[Entry]:
    """Returns the entries of the items; consecutive items of the model are one reply.

    cut: the last reply reached its limit, according to the response around it.
    """
    run: list[tuple[int, Item]] = []
    for at, item in enumerate(items):
        role, kind = item.get("role"), item.get("type")
        if not isinstance(role, str | None) or not isinstance(kind, str | None):
            raise Unreadable(f"Item {at} has a role or a type that is not a text.")
        if kind is None and role is None:
            raise Unreadable(f"Item {at} has neither a type nor a role ({_keys(item)}).")
        output = (kind or "").endswith("_call_output")
        if run and kind == "reasoning" and "call_id" in run[-1][1]:
            # The calls before it were not answered: another reply begins.
            yield _spoken(run)
            run = []
        if not output and (role in _MODEL or role is None):
            run.append((at, item))
            continue
        if role in _SILENT:
            continue
        if run:
            yield _spoken(run)
            run = []
        yield _output(at, item) if output else TraceMessage(at)
    if run:
        last = _spoken(run)
        yield TraceReply(last.at, last.text, last.calls, last.cut or cut)


def _spoken(run: Sequence[tuple[int, Item]]) -> TraceReply:
    texts = [text_of(at, item.get("content")) for at, item in run if item.get("role") in _MODEL]
    calls = [_item_call(at, item) for at, item in run if "call_id" in item]
    cut = any(is_cut(item) for _, item in run)
    return TraceReply(run[-1][0], without_thoughts("\n".join(texts)), tuple(calls), cut)


def _item_call(at: int, item: Item) -> TraceCall:
    """A call of a function, or of a tool that OpenAI defines and the program runs (a shell, a computer)."""
    kind = str(item.get("type"))
    if kind == "function_call":
        return call(at, item["call_id"], item.get("name"), item.get("arguments"))
    given = {key: item[key] for key in ("input", "action", "operation") if key in item}
    return call(at, item["call_id"], item.get("name") or kind.removesuffix("_call"), given)


def _output(at: int, item: Item) -> Result:
    text = result_text(at, item.get("output"))
    return Result(at, word(at, "call_id", item.get("call_id")), text, looks_failed(text))


def _keys(item: Item) -> str:
    return "its keys: " + (", ".join([*item][:5]) or "none")


_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use")


def is_anthropic(item: Item) -> bool:
    """Whether this can only be a message of Anthropic's."""
    if item.get("role") not in ("user", "assistant"):
        return False
    content = item.get("content")
    parts = content if isinstance(content, list) else []
    return "stop_reason" in item or any(
        isinstance(part, dict) and part.get("type") in _BLOCKS for part in parts
    )


def read_anthropic(at: int, item: Item) -> Iterator[Entry]:
    """Returns the entries of the message `at`. Raises Unreadable for wrong types.

    Tools that the provider runs itself are left out: their results are in the same reply. Text next to
    results is a reminder of the program that sent them, and does not begin a task.
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
        yield TraceReply(
            at, without_thoughts(text), tuple(calls), is_cut({"stop_reason": item.get("stop_reason")})
        )
    elif role == "user":
        results = [part for part in parts if part.get("type") == "tool_result"]
        for part in results:
            call_id = word(at, "tool_use_id", part.get("tool_use_id"))
            yield Result(at, call_id, result_text(at, part.get("content")), part.get("is_error") is True)
        if len(results) < len(parts) or not parts:
            yield TraceMessage(at, genuine=not results)
    elif role not in ("system", "developer"):
        raise Unreadable(f"Message {at} has a role that Anthropic does not know: {str(role)[:40]!r}.")


_CALLING = ("tool_use", "tool_call", "function_call")
_LANGCHAIN_PEOPLE = {"human", "user"}
_TYPES = {*_LANGCHAIN_PEOPLE, "ai", "assistant", "tool", "function", "system", "developer", "chat", "remove"}


def fields(item: Item) -> Item:
    """Returns the fields of a message without the wrapper of one of LangChain's functions."""
    if "lc" in item:
        kwargs, path = item.get("kwargs"), item.get("id")
        named = {"type": path[-1]} if isinstance(path, list) and path else {}
        return {**named, **kwargs} if isinstance(kwargs, dict) else {}
    if isinstance(item.get("data"), dict):
        return {"type": item.get("type"), **item["data"]}
    return item


def type_of(item: Item) -> str:
    """Returns the type of a message, in lower case: `ai` also for a chunk (`AIMessageChunk`)."""
    found = fields(item).get("type")
    small = found.lower() if isinstance(found, str) else ""
    return small.removesuffix("chunk").removesuffix("message")


def is_langchain(item: Item) -> bool:
    """Whether this is a message of LangChain's."""
    wrapped = "lc" in item or (isinstance(item.get("data"), dict) and "type" in item)
    return type_of(item) in _TYPES and (wrapped or "content" in item)


def read_langchain(at: int, item: Item) -> Iterator[Entry]:
    """Returns the entries of the message `at`. Raises Unreadable for wrong types."""
    message, kind = fields(item), type_of(item)
    if kind not in _TYPES:
        raise Unreadable(f"Message {at} has a type that LangChain does not know: {kind or 'none'!r}.")
    if kind in ("ai", "assistant"):
        yield _reply(at, message)
    elif kind in ("tool", "function"):
        text = result_text(at, message.get("content"))
        status = message.get("status")
        yield Result(
            at,
            word(at, "tool_call_id", message.get("tool_call_id")),
            text,
            looks_failed(text) if status is None else status == "error",
            word(at, "the name of a tool", message.get("name")),
        )
    elif kind in _LANGCHAIN_PEOPLE:
        marks = mapping(at, "additional_kwargs", message.get("additional_kwargs")).get(KEY)
        text_of(at, message.get("content"))
        yield TraceMessage(at, genuine=not (isinstance(marks, dict) and "nudge" in marks))


def langchain_offers(items: Sequence[Item]) -> frozenset[str]:
    """Returns Signoff's own finishing tool, if a message carries a mark of Signoff."""
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
    return TraceReply(
        at, without_thoughts(text), tuple(_langchain_calls(at, message, metadata)), is_cut(metadata)
    )


def _langchain_calls(at: int, message: Item, metadata: Item) -> list[TraceCall]:
    """Returns the calls: the parsed ones, else as the provider sent them, else from the content blocks."""
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
    """Returns `found` (malformed calls first) in the recorded or the provider's order, else unchanged."""
    marks = metadata.get(KEY)
    order = marks.get("order") if isinstance(marks, dict) else None
    places = order if isinstance(order, list) and all(type(place) is int for place in order) else []
    if places and sorted(places) == [*range(len(found))]:
        return [found[place] for place in places]
    ids = [sent.id for sent in raw]
    if len({*ids}) == len(ids) and sorted(ids) == sorted(made.id for made in found):
        return sorted(found, key=lambda made: ids.index(made.id))
    return found
