"""Reads a file into a history: finds the JSON value, the messages, their format and the offered tools.

A file may be a state, a request, a log, a trajectory, or the results of a benchmark. The result is a history
or one clear sentence.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

from signoff.lint import harnesses, providers
from signoff.lint.pieces import Item, is_cut, kind_of
from signoff.lint.trace import Entry, Trace, Unreadable

# Where programs store the list: in a state, a request, a response, a page of a conversation, a trajectory.
_PLACES = ("messages", "history", "traj", "items", "data", "input", "output")
_AROUND = ("values", "kwargs", "state")
_OFFERS = ("tools", "functions", "available_tools")
_ATTACHED = "attachment://"
_MOST_SHOWN = 6


class RunMessages(NamedTuple):
    """The messages of one run.

    offered: the names of the offered tools. cut: the last reply reached its limit. waits: a person is to
    answer.
    """

    items: list[Item]
    offered: frozenset[str]
    cut: bool
    waits: bool


def messages_in(
    document: Any, alone: Callable[[Item], bool], name: str, run: int | None, known: str
) -> RunMessages:
    """Returns the messages in a JSON value: a list of them, or an object that contains one.

    alone: whether an object is itself a message. name: of the file, for errors. run: which one, if the file
    contains several. known: the formats, for errors. Raises Unreadable.
    """
    document = _chosen(document, name, run)
    _refuse_by_name(document, name)
    found = _messages(document, alone)
    if not isinstance(found, list):
        what = f" with {keys(document)}" if isinstance(document, dict) else ""
        raise Unreadable(
            f"{name} holds {kind_of(document)}{what}, not a list of messages; known are {known}."
        )
    if not found:
        raise Unreadable(f"{name} contains an empty list; there are no messages to check.")
    for at, item in enumerate(found):
        if not isinstance(item, dict):
            raise Unreadable(f"{name} holds a list in which item {at} is {kind_of(item)}, not a message.")
    cut = isinstance(document, dict) and is_cut(document)
    return RunMessages(found, frozenset(_offered(document)), cut, _waits(document))


def keys(item: Mapping[str, Any]) -> str:
    """Returns the keys of an object, for people."""
    if not item:
        return "no keys"
    shown = ", ".join(repr(key[:40]) for key in [*item][:_MOST_SHOWN])
    return f"the keys {shown}" + (" …" if len(item) > _MOST_SHOWN else "")


def _chosen(document: Any, name: str, run: int | None) -> Any:
    """Returns the selected or the only run; the document itself if it is not a collection of runs."""
    several = _runs(document)
    if several is None:
        if run:
            raise Unreadable(f"{name} contains one run; omit --run.")
        return document
    what, runs = several
    if run is None and len(runs) > 1:
        raise Unreadable(
            f"{name} holds {len(runs):,} {what}; select one of them with --run 0 to --run {len(runs) - 1}."
        )
    if not runs:
        raise Unreadable(f"{name} holds no {what}; there are no messages to check.")
    if run is not None and run >= len(runs):
        raise Unreadable(f"{name} holds {len(runs):,} {what}; the last one is --run {len(runs) - 1}.")
    return _attached(runs[run or 0])


def _runs(document: Any) -> tuple[str, list[Any]] | None:
    """Returns the runs of a file format for several runs, and what they are called; None for any other."""
    if isinstance(document, dict):
        for key, what, inside in (
            ("samples", "samples of an inspect log", "messages"),
            ("simulations", "simulations of tau2-bench", "messages"),
            ("attempts", "attempts of SWE-agent", "history"),
        ):
            if _all_hold(document.get(key), inside):
                return what, document[key]
        return None
    if not isinstance(document, list) or not document:
        return None
    if _all_hold(document, "traj"):
        return "results of tau-bench", document
    if _all_hold(document, "messages") or all(isinstance(part, list) for part in document):
        # A run's input is a batch of conversations in some logs.
        return "conversations", document
    return None


def _all_hold(runs: Any, key: str) -> bool:
    return (
        isinstance(runs, list)
        and bool(runs)
        and all(isinstance(run, dict) and isinstance(run.get(key), list) for run in runs)
    )


def _refuse_by_name(document: Any, name: str) -> None:
    """Raises Unreadable for known formats without messages."""
    if not isinstance(document, dict):
        return
    if "eval" in document and "plan" in document and not document.get("samples"):
        raise Unreadable(f"{name} is an inspect log without samples; read the log with its samples.")
    if isinstance(document.get("trajectory"), list) and not any(key in document for key in _PLACES):
        raise Unreadable(
            f"{name} is a trajectory of SWE-agent without its history; take the file that has `history`, too."
        )


def _messages(document: Any, alone: Callable[[Item], bool]) -> Any:
    """Returns the list of messages in the object around it."""
    if not isinstance(document, dict) or alone(document):
        return [document] if isinstance(document, dict) else document
    for around in _AROUND:
        if isinstance(document.get(around), dict):
            return _messages(document[around], alone)
    if isinstance(document.get("input"), list) and isinstance(document.get("output"), list):
        return [*document["input"], *document["output"]]
    if isinstance(document.get("history"), list) and "messages" not in document:
        return [*document["history"], *_only_in_trajectory(document)]
    return next((document[key] for key in _PLACES if isinstance(document.get(key), list)), None)


def _only_in_trajectory(document: Item) -> Iterator[Item]:
    """Returns SWE-agent's submission, which some versions do not put into the history."""
    found = document.get("trajectory")
    steps = [step for step in found if isinstance(step, dict)] if isinstance(found, list) else []
    last = str(steps[-1].get("action")).strip() if steps else ""
    written = [
        item.get("action") for item in document["history"] if isinstance(item, dict) and "action" in item
    ]
    if last.split()[:1] == ["submit"] and str(written[-1] if written else "").strip() != last:
        yield {"role": "assistant", "content": steps[-1].get("response"), "thought": "", "action": last}


def _offered(document: Any) -> Iterator[str]:
    """Returns the names of the offered tools: from a request, a state, or the model's calls in a log."""
    if not isinstance(document, dict):
        return
    for key in _OFFERS:
        found = document.get(key)
        for tool in found if isinstance(found, list) else []:
            yield from _name_of(tool)
    for around in (*_AROUND, "body", "request", "metadata", "invocation_params"):
        yield from _offered(document.get(around))
    events = document.get("events")
    for event in events if isinstance(events, list) else []:
        yield from _offered(event)


def _waits(document: Any) -> bool:
    """Whether a state or a thread of LangGraph's says that it waits."""
    if not isinstance(document, dict):
        return False
    tasks = document.get("tasks")
    asking = [document, *(tasks if isinstance(tasks, list) else [])]
    told = any(
        isinstance(one, dict) and (one.get("interrupts") or one.get("__interrupt__")) for one in asking
    )
    return told or any(_waits(document.get(around)) for around in _AROUND)


def _name_of(tool: Any) -> Iterator[str]:
    """Returns the name of a tool as requests write it: a text, at the top, or below `function`."""
    if isinstance(tool, dict):
        function = tool.get("function")
        tool = function.get("name") if isinstance(function, dict) else tool.get("name")
    if isinstance(tool, str):
        yield tool


def _attached(run: Any) -> Any:
    """Returns the run with the texts inserted that inspect stores separately in `attachments`."""
    parts = run.get("attachments") if isinstance(run, dict) else None
    if not isinstance(parts, dict) or not parts:
        return run

    def put(value: Any) -> Any:
        if isinstance(value, str) and value.startswith(_ATTACHED):
            return parts.get(value.removeprefix(_ATTACHED), value)
        if isinstance(value, list):
            return [put(part) for part in value]
        return {key: put(part) for key, part in value.items()} if isinstance(value, dict) else value

    return {**run, "messages": put(run.get("messages"))}


def _nothing(_: Sequence[Item]) -> frozenset[str]:
    return frozenset()


class Format(NamedTuple):
    """A message format.

    shows: whether an item can only be of this format. read: returns all entries of the
    items. offers: returns the finishing tools that the items themselves mention.
    """

    name: str
    shows: Callable[[Item], bool]
    read: Callable[[Sequence[Item], bool], Iterator[Entry]]
    offers: Callable[[Sequence[Item]], frozenset[str]] = _nothing


def _each(read: Callable[[int, Item], Iterator[Entry]]) -> Callable[[Sequence[Item], bool], Iterator[Entry]]:
    return lambda items, _: chain.from_iterable(read(at, item) for at, item in enumerate(items))


FORMATS = (
    Format(
        "LangChain messages",
        providers.is_langchain,
        _each(providers.read_langchain),
        providers.langchain_offers,
    ),
    Format("OpenAI Responses items", providers.is_item, providers.read_items),
    Format("SWE-agent messages", harnesses.is_swe_agent, harnesses.read_swe_agent, harnesses.offers),
    Format("mini-swe-agent messages", harnesses.is_mini, harnesses.read_mini, harnesses.offers),
    Format("AgentDojo messages", harnesses.is_agentdojo, _each(providers.read_chat)),
    Format("tau2-bench messages", harnesses.is_tau2, _each(providers.read_chat)),
    Format("inspect messages", harnesses.is_inspect, _each(providers.read_chat)),
    Format("Anthropic messages", providers.is_anthropic, _each(providers.read_anthropic)),
    Format("OpenAI chat messages", providers.is_chat, _each(providers.read_chat)),
)
"""The known formats; the first one that an item shows is used."""

KNOWN = ", ".join(known.name for known in FORMATS)
"""The formats, for people."""


def read_trace(document: Any, name: str = "The file", run: int | None = None) -> Trace:
    """Returns the history in a JSON value: a list of messages, or an object that contains one.

    name: of the file, for errors. run: which one, if the file contains several. Raises Unreadable, which says
    what was found and what is known.
    """
    items, offered, cut, waits = messages_in(document, _is_message, name, run, KNOWN)
    found = next((each for each in FORMATS if any(map(each.shows, items))), None)
    if found is None:
        raise Unreadable(f"{name} holds {_shape(items)}, which is none of the known formats: {KNOWN}.")
    entries = tuple(found.read(items, cut))
    if not entries:
        raise Unreadable(f"{name} contains only instructions ({found.name}); there is nothing to check.")
    return Trace(found.name, len(items), entries, offered | found.offers(items), waits)


def _is_message(item: Item) -> bool:
    return providers.is_chat(item) or providers.is_langchain(item)


def _shape(items: Sequence[Item]) -> str:
    return f"{len(items):,} object{'s' * (len(items) != 1)}, the first with {keys(items[0])}"


MOST_BYTES = 64 * 1024 * 1024
"""The largest file that is read, in bytes."""

DEEPEST = 100
"""The most levels of nesting that a message history may have."""

_ARCHIVE = b"PK\x03\x04"


def read_file(path: Path) -> Any:
    """Returns the JSON value in the file at `path`; for JSON lines, the list of the values.

    Raises Unreadable, naming the file, when it cannot be read, is too large, is not JSON, or is nested too
    deeply.
    """
    try:
        with path.open("rb") as file:
            return parse(read_all(file, str(path)), str(path))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "that is not a file name"
        raise Unreadable(f"{path} cannot be read ({why}); name a JSON file with messages.") from error


def read_all(file: IO[bytes], name: str) -> bytes:
    """Returns all bytes of an open file. Raises Unreadable when there are more than `MOST_BYTES`."""
    data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise Unreadable(
            f"{name} is longer than {MOST_BYTES // 2**20} MB; cut it down to the messages of one thread."
        )
    return data


def parse(data: bytes, name: str) -> Any:
    """Returns the JSON value in `data`. name: of the file, for errors."""
    if data.startswith(_ARCHIVE):
        raise Unreadable(
            f"{name} is an archive, as inspect's logs (.eval) are; write the log as JSON, with "
            "`inspect log dump FILE`."
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(
            f"{name} is not UTF-8 text (byte {error.start:,}); save it as UTF-8 JSON."
        ) from error
    if not text.strip():
        raise Unreadable(f"{name} is empty; write the messages into it as JSON.")
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        value = _lines(text, name, error)
    except (RecursionError, ValueError) as error:
        raise _odd(name, error) from error
    if _deeper(value, DEEPEST):
        raise Unreadable(f"{name} is nested deeper than {DEEPEST} levels; no message history is.")
    return value


def _lines(text: str, name: str, error: json.JSONDecodeError) -> list[Any]:
    """Returns the values of JSON lines; `error`: why the whole is not JSON."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    values: list[Any] = []
    for number, line in lines:
        try:
            values.append(json.loads(line))
        except json.JSONDecodeError as wrong:
            at = f"line {number}" if values else f"line {error.lineno}, column {error.colno}"
            why = wrong.msg if values else error.msg
            raise Unreadable(f"{name} is not JSON ({at}: {why}); write the messages as JSON.") from error
        except (RecursionError, ValueError) as wrong:
            raise _odd(name, wrong) from wrong
    return values


def _odd(name: str, error: Exception) -> Unreadable:
    if isinstance(error, RecursionError):
        return Unreadable(f"{name} is nested too deeply to be read; no message history is.")
    return Unreadable(f"{name} holds a number that is too long to be read; no message history does.")


def _deeper(value: Any, levels: int) -> bool:
    """Whether `value` has more than `levels` of nesting. Without recursion: it may have very many."""
    layer = [value]
    for _ in range(levels):
        layer = [
            part
            for found in layer
            if isinstance(found, dict | list)
            for part in (found.values() if isinstance(found, dict) else found)
            if isinstance(part, dict | list)
        ]
        if not layer:
            return False
    return True
