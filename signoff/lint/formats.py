"""Which format a history is in, by its shape, and what it holds."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from signoff.lint import anthropic, harnesses, langchain, openai
from signoff.lint.holders import held, keys
from signoff.lint.pieces import Item
from signoff.lint.trace import Entry, Trace, Unreadable


def _nothing(_: Sequence[Item]) -> frozenset[str]:
    return frozenset()


class Format(NamedTuple):
    """shows: whether an item can only be of this format. read: all entries of the items. offers: the
    finishing tools that the items themselves speak of."""

    name: str
    shows: Callable[[Item], bool]
    read: Callable[[Sequence[Item], bool], Iterator[Entry]]
    offers: Callable[[Sequence[Item]], frozenset[str]] = _nothing


def _each(read: Callable[[int, Item], Iterator[Entry]]) -> Callable[[Sequence[Item], bool], Iterator[Entry]]:
    return lambda items, _: chain.from_iterable(read(at, item) for at, item in enumerate(items))


FORMATS = (
    Format("LangChain messages", langchain.is_message, _each(langchain.read), langchain.offers),
    Format("OpenAI Responses items", openai.is_item, openai.read_items),
    Format("SWE-agent messages", harnesses.is_swe_agent, harnesses.read_swe_agent, harnesses.offers),
    Format("mini-swe-agent messages", harnesses.is_mini, harnesses.read_mini, harnesses.offers),
    Format("AgentDojo messages", harnesses.is_agentdojo, _each(openai.read_chat)),
    Format("tau2-bench messages", harnesses.is_tau2, _each(openai.read_chat)),
    Format("inspect messages", harnesses.is_inspect, _each(openai.read_chat)),
    Format("Anthropic messages", anthropic.is_message, _each(anthropic.read)),
    Format("OpenAI chat messages", openai.is_chat, _each(openai.read_chat)),
)
"""The formats that are known; the first that an item shows is taken."""

KNOWN = ", ".join(known.name for known in FORMATS)
"""The formats, for people."""


def read_trace(document: Any, name: str = "The file", run: int | None = None) -> Trace:
    """The history in a JSON value: a list of messages, or an object that holds one.

    name: of the file, for errors. run: which one, where the file holds several. Raises Unreadable, which says
    what was found and what is known.
    """
    items, offered, cut = held(document, _is_message, name, run, KNOWN)
    found = next((each for each in FORMATS if any(map(each.shows, items))), None)
    if found is None:
        raise Unreadable(f"{name} holds {_shape(items)}, which is none of the formats known here: {KNOWN}.")
    entries = tuple(found.read(items, cut))
    if not entries:
        raise Unreadable(f"{name} holds instructions only ({found.name}); there is nothing to look at.")
    return Trace(found.name, len(items), entries, offered | found.offers(items))


def _is_message(item: Item) -> bool:
    return openai.is_chat(item) or langchain.is_message(item)


def _shape(items: Sequence[Item]) -> str:
    return f"{len(items):,} object{'s' * (len(items) != 1)}, the first with {keys(items[0])}"
