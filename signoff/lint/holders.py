"""Where in a file the messages are, and which tools it says were offered: a state, a request, a log, a
trajectory, or the results of a benchmark."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from signoff.lint.pieces import Item, is_cut, kind_of
from signoff.lint.trace import Unreadable

# Where programs keep the list: a state, a request, a response, a page of a conversation, a trajectory.
_PLACES = ("messages", "history", "traj", "items", "data", "input", "output")
_AROUND = ("values", "kwargs", "state")
_OFFERS = ("tools", "functions", "available_tools")
_ATTACHED = "attachment://"
_MOST_SHOWN = 6


class RunMessages(NamedTuple):
    """The messages of one run. offered: the names of tools. cut: the last reply reached its limit."""

    items: list[Item]
    offered: frozenset[str]
    cut: bool


def held(document: Any, alone: Callable[[Item], bool], name: str, run: int | None, known: str) -> RunMessages:
    """The messages in a JSON value: a list of them, or an object that holds one.

    alone: whether an object is itself a message. name: of the file, for errors. run: which one, where the
    file holds several. known: the formats, for errors. Raises Unreadable.
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
        raise Unreadable(f"{name} holds an empty list; there is no message to look at.")
    for at, item in enumerate(found):
        if not isinstance(item, dict):
            raise Unreadable(f"{name} holds a list in which item {at} is {kind_of(item)}, not a message.")
    cut = isinstance(document, dict) and is_cut(document)
    return RunMessages(found, frozenset(_offered(document)), cut)


def keys(item: Mapping[str, Any]) -> str:
    """The keys of an object, for people."""
    if not item:
        return "no keys"
    shown = ", ".join(repr(key[:40]) for key in [*item][:_MOST_SHOWN])
    return f"the keys {shown}" + (" …" if len(item) > _MOST_SHOWN else "")


def _chosen(document: Any, name: str, run: int | None) -> Any:
    """The run that was named, or the only one; the document itself where it is no collection of runs."""
    several = _runs(document)
    if several is None:
        if run:
            raise Unreadable(f"{name} holds one run; leave --run out.")
        return document
    what, runs = several
    if run is None and len(runs) > 1:
        raise Unreadable(
            f"{name} holds {len(runs):,} {what}; name one of them with --run 0 to --run {len(runs) - 1}."
        )
    if not runs:
        raise Unreadable(f"{name} holds no {what}; there is no message to look at.")
    if run is not None and run >= len(runs):
        raise Unreadable(f"{name} holds {len(runs):,} {what}; the last one is --run {len(runs) - 1}.")
    return _attached(runs[run or 0])


def _runs(document: Any) -> tuple[str, list[Any]] | None:
    """The runs of a file that is made for several, and what they are called; None for any other."""
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
    """What is known, and holds no messages."""
    if not isinstance(document, dict):
        return
    if "eval" in document and "plan" in document and not document.get("samples"):
        raise Unreadable(f"{name} is an inspect log without samples; read the log with its samples.")
    if isinstance(document.get("trajectory"), list) and not any(key in document for key in _PLACES):
        raise Unreadable(
            f"{name} is a trajectory of SWE-agent without its history; take the file that has `history`, too."
        )


def _messages(document: Any, alone: Callable[[Item], bool]) -> Any:
    """The list of messages in the object around it."""
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
    """The submission of SWE-agent, which some versions keep out of the history."""
    found = document.get("trajectory")
    steps = [step for step in found if isinstance(step, dict)] if isinstance(found, list) else []
    last = str(steps[-1].get("action")).strip() if steps else ""
    written = [
        item.get("action") for item in document["history"] if isinstance(item, dict) and "action" in item
    ]
    if last.split()[:1] == ["submit"] and str(written[-1] if written else "").strip() != last:
        yield {"role": "assistant", "content": steps[-1].get("response"), "thought": "", "action": last}


def _offered(document: Any) -> Iterator[str]:
    """The names of the tools that were offered: in a request, a state, or the calls of the model in a log."""
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


def _name_of(tool: Any) -> Iterator[str]:
    """The name of a tool as requests write it: bare, at the top, or below `function`."""
    if isinstance(tool, dict):
        function = tool.get("function")
        tool = function.get("name") if isinstance(function, dict) else tool.get("name")
    if isinstance(tool, str):
        yield tool


def _attached(run: Any) -> Any:
    """The run with the texts in place that inspect keeps apart in `attachments`."""
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
