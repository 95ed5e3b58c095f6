"""Which format a history is in, by its shape, and what it holds."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from signoff.lint import anthropic, langchain, openai
from signoff.lint.pieces import Item, is_cut, kind_of
from signoff.lint.trace import Entry, Trace, Unreadable

KNOWN = "LangChain messages, OpenAI chat messages, OpenAI Responses items and Anthropic messages"
# Where programs keep the list: a state, a request, a response, a page of a conversation.
_PLACES = ("messages", "items", "data", "input", "output")
_MOST_SHOWN = 6


class Format(NamedTuple):
    """shows: whether an item can only be of this format. read: all entries of the items."""

    name: str
    shows: Callable[[Item], bool]
    read: Callable[[Sequence[Item], bool], Iterator[Entry]]


def _each(read: Callable[[int, Item], Iterator[Entry]]) -> Callable[[Sequence[Item], bool], Iterator[Entry]]:
    return lambda items, _: chain.from_iterable(read(at, item) for at, item in enumerate(items))


FORMATS = (
    Format("LangChain messages", langchain.is_message, _each(langchain.read)),
    Format("OpenAI Responses items", openai.is_item, openai.read_items),
    Format("Anthropic messages", anthropic.is_message, _each(anthropic.read)),
    Format("OpenAI chat messages", openai.is_chat, _each(openai.read_chat)),
)
"""The formats that are known; the first that an item shows is taken."""


def read_trace(document: Any, name: str = "The file") -> Trace:
    """The history in a JSON value: a list of messages, or an object that holds one.

    name: of the file, for errors. Raises Unreadable, which says what was found and what is known.
    """
    items = _items(document, name)
    found = next((each for each in FORMATS if any(map(each.shows, items))), None)
    if found is None:
        raise Unreadable(f"{name} holds {_shape(items)}, which is none of the formats known here: {KNOWN}.")
    cut = isinstance(document, dict) and is_cut(document)
    entries = tuple(found.read(items, cut))
    if not entries:
        raise Unreadable(f"{name} holds instructions only ({found.name}); there is nothing to look at.")
    return Trace(found.name, len(items), entries)


def _items(document: Any, name: str) -> list[Item]:
    found = _messages(document)
    if not isinstance(found, list):
        what = f" with {_keys(document)}" if isinstance(document, dict) else ""
        raise Unreadable(
            f"{name} holds {kind_of(document)}{what}, not a list of messages; known are {KNOWN}."
        )
    if len(found) == 1 and isinstance(found[0], list):
        # A run's input is a batch of conversations in some logs.
        found = found[0]
    if not found:
        raise Unreadable(f"{name} holds an empty list; there is no message to look at.")
    for at, item in enumerate(found):
        if not isinstance(item, dict):
            raise Unreadable(f"{name} holds a list in which item {at} is {kind_of(item)}, not a message.")
    return found


def _messages(document: Any) -> Any:
    """The list of messages in the object around it."""
    if not isinstance(document, dict) or openai.is_chat(document) or langchain.is_message(document):
        return [document] if isinstance(document, dict) else document
    for around in ("values", "kwargs", "state"):
        if isinstance(document.get(around), dict):
            return _messages(document[around])
    if isinstance(document.get("input"), list) and isinstance(document.get("output"), list):
        return [*document["input"], *document["output"]]
    return next((document[key] for key in _PLACES if isinstance(document.get(key), list)), None)


def _shape(items: Sequence[Item]) -> str:
    return f"{len(items):,} object{'s' * (len(items) != 1)}, the first with {_keys(items[0])}"


def _keys(item: Mapping[str, Any]) -> str:
    if not item:
        return "no keys"
    shown = ", ".join(repr(key[:40]) for key in [*item][:_MOST_SHOWN])
    return f"the keys {shown}" + (" …" if len(item) > _MOST_SHOWN else "")
