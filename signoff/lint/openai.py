"""Reads OpenAI's formats: chat completions, and the items of the Responses API."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

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
    """What the chat message `at` holds. Raises Unreadable for wrong types."""
    choice = _completed(item)
    message = mapping(at, "the message", choice.get("message")) if choice else item
    role = message.get("role")
    if role in _MODEL:
        text = said(text_of(at, message.get("content")))
        yield TraceReply(at, text, tuple(_calls(at, message)), is_cut(choice or message))
    elif role in _TOOL:
        yield from _results(at, message)
    elif role in _PEOPLE:
        blocks(at, message.get("content"))
        yield TraceMessage(at)
    elif role not in _SILENT:
        raise Unreadable(f"Message {at} has a role that no chat has: {str(role)[:40]!r}.")


def _results(at: int, message: Item) -> Iterator[Result]:
    """The result in a message, or one for each of the calls that it answers together (SWE-agent)."""
    text, name = shown(at, message.get("content")), _tool(at, message)
    failed = _failed(message, text)
    if failed and not text:
        error = message.get("error")
        text = shown(at, error.get("message") if isinstance(error, dict) else error)
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
    """The name of the tool that a result is of; AgentDojo and inspect have it elsewhere."""
    made = message.get("tool_call")
    called = made.get("function") if isinstance(made, dict) else message.get("function")
    return word(at, "the name of a tool", called if message.get("name") is None else message["name"])


def _failed(message: Item, text: str) -> bool:
    """By what the message says of itself, a status or an error; else by its words."""
    if "status" in message:
        return bool(message["status"] == "error")
    if "error" in message or isinstance(message.get("function"), str):
        return bool(message.get("error"))
    return looks_failed(text)


def raw_call(at: int, part: Item) -> TraceCall:
    """A call as chat completions write it; short forms are understood, too: LangChain's, and those in which
    the function is one word (AgentDojo, inspect) or the name and the arguments stand at the top."""
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
    """The first choice of a whole chat completion."""
    choices = item.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None


def is_item(item: Item) -> bool:
    """Whether this can only be an item of the Responses API."""
    kind = item.get("type")
    return isinstance(kind, str) and (kind == "reasoning" or kind.endswith(("_call", "_call_output")))


def read_items(items: Sequence[Item], cut: bool = False) -> Iterator[Entry]:
    """What the items hold; those of the model that follow each other are one reply.

    cut: the last reply reached its limit, as the response around it says.
    """
    run: list[tuple[int, Item]] = []
    for at, item in enumerate(items):
        role, kind = item.get("role"), item.get("type")
        if not isinstance(role, str | None) or not isinstance(kind, str | None):
            raise Unreadable(f"Item {at} has a role or a type that is no text.")
        if kind is None and role is None:
            raise Unreadable(f"Item {at} has neither a type nor a role ({_keys(item)}).")
        output = (kind or "").endswith("_call_output")
        if run and kind == "reasoning" and "call_id" in run[-1][1]:
            # Nobody answered the calls before it: another reply begins.
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
    return TraceReply(run[-1][0], said("\n".join(texts)), tuple(calls), cut)


def _item_call(at: int, item: Item) -> TraceCall:
    """A call of a function, or of a tool that OpenAI defines and the program runs (a shell, a computer)."""
    kind = str(item.get("type"))
    if kind == "function_call":
        return call(at, item["call_id"], item.get("name"), item.get("arguments"))
    given = {key: item[key] for key in ("input", "action", "operation") if key in item}
    return call(at, item["call_id"], item.get("name") or kind.removesuffix("_call"), given)


def _output(at: int, item: Item) -> Result:
    text = shown(at, item.get("output"))
    return Result(at, word(at, "call_id", item.get("call_id")), text, looks_failed(text))


def _keys(item: Item) -> str:
    return "its keys: " + (", ".join([*item][:5]) or "none")
