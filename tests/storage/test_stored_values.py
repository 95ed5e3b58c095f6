"""Every kind of value that is stored occurs in the threads of the incidents.

Whoever adds a channel, a key or a kind of entry adds it to an incident (`tests/incidents/`).
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import CheckpointTuple
from typing_extensions import is_typeddict

from signoff import Outcome
from signoff.graph.messages import KEY, Marks
from signoff.graph.state import MIDDLEWARE, AgentState, HookMarks
from signoff.machine import Event
from signoff.outcome import Change, CheckRun, Usage
from signoff.records import Figures
from signoff.storage import SqliteStorage

Keys = set[tuple[str, str]]

# The marks on messages that incidents leave.
MARKS = {
    "accepted", "after", "answer", "answered", "answers", "at", "at_turn", "begins", "by", "call_refused",
    "confirmed", "cut",
    "delegate", "edited", "estimated", "expired", "extended", "finish", "granted", "held",
    "not_run", "nudge", "order", "phase", "ran", "reply", "responded", "retries", "said",
    "seconds", "sent_back", "shown", "undone", "unknown", "wait", "waited",
}  # fmt: skip
# An input is written by LangGraph, without an event; a review ends in a deadlock where nobody can be asked,
# which is where nothing is stored.
NOT_STORED = {Event.INPUT}

# Keys that no incident leaves: what a provider's cache has served of the calls for a summary (the scripted
# model has no cache), answers that reach a thread although they cannot be read, the ids of those who have it
# go on, and the ledger of a tree.
LEDGER = {"TreeBudget", "BoundAbove", "GrantedCalls"}
NOT_LEFT = {
    ("Spent", "cached_tokens"),
    ("Decisions", "problem"),
    ("Undoing", "problem"),
    ("AgentState", "tree"),
    ("AgentState", "gone_on"),
}


class Recording:
    """Everything that a database holds: the values of the channels as they were written, one after
    another, and the entries of the store."""

    def __init__(self, storage: SqliteStorage) -> None:
        self.channels = list(_channels(storage.checkpointer.list(None)))
        self.entries = [(item.namespace[1], item.value) for item in storage.store.search((), limit=10_000)]

    def of(self, channel: str) -> list[Any]:
        return [value for name, value in self.channels if name == channel and value is not None]

    def _marks(self) -> Iterator[Mapping[str, Any]]:
        for message in _flat(self.of("messages")):
            if isinstance(message, BaseMessage):
                where = {**message.additional_kwargs, **message.response_metadata}
                yield where.get(KEY, {})

    def all_marks(self) -> set[str]:
        return {name for found in self._marks() for name in found}

    def keys(self) -> Keys:
        """The keys of typed values that occur, each with a value that says something."""
        found: Keys = set()
        hints = get_type_hints(AgentState)
        for name, value in self.channels:
            if name in hints and not _is_empty(value):
                found.add(("AgentState", name))
                found |= set(_keys(hints[name], value))
        for sort, value in self.entries:
            found |= set(_keys(Figures, value)) if sort == "figures" else set()
        return found


def _channels(saved: Iterator[CheckpointTuple]) -> Iterator[tuple[str, Any]]:
    for one in saved:
        yield from one.checkpoint["channel_values"].items()
        yield from ((channel, value) for _, channel, value in one.pending_writes or ())


def _flat(written: list[Any]) -> Iterator[Any]:
    for one in written:
        yield from _flat(one) if isinstance(one, list) else [one]


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | dict) and not value)


def _typed(hint: Any) -> Iterator[Any]:
    """The typed dictionaries that a value of this type is, or may hold."""
    if is_typeddict(hint):
        yield hint
    for part in get_args(hint):
        yield from _typed(part)


def _declared(hint: Any) -> Iterator[tuple[str, str]]:
    """Every key of the typed dictionaries in a type."""
    for kind in _typed(hint):
        for key, value in get_type_hints(kind).items():
            yield kind.__name__, key
            yield from _declared(value)


def _keys(hint: Any, value: Any) -> Iterator[tuple[str, str]]:
    """The keys that `value`, of type `hint`, has at all depths."""
    if isinstance(value, list):
        for one in value:
            yield from _keys(hint, one)
        return
    if not isinstance(value, dict):
        return
    kinds = [kind for kind in _typed(hint) if value.keys() <= get_type_hints(kind).keys()]
    if not kinds:
        for one in value.values():
            yield from _keys(hint, one)
    for kind in kinds:
        for key, of_key in get_type_hints(kind).items():
            if not _is_empty(value.get(key)):
                yield kind.__name__, key
                yield from _keys(of_key, value[key])


@pytest.fixture(scope="module")
def recording(incident_storage: SqliteStorage) -> Recording:
    return Recording(incident_storage)


def test_every_key_of_the_state_occurs(recording: Recording) -> None:
    declared = {*_declared(AgentState), *_declared(Figures)}
    assert ("Evidence", "call_id") in declared, "also what stands deep in a value"
    assert {one for one in declared - recording.keys() if one[0] not in LEDGER} == NOT_LEFT


def test_every_event_occurs(recording: Recording) -> None:
    assert set(recording.of("event")) == set(Event) - NOT_STORED


def test_every_field_of_an_outcome_occurs(recording: Recording) -> None:
    outcomes = [*recording.of("outcome"), *(value for sort, value in recording.entries if sort == "outcomes")]
    found = {key for outcome in outcomes for key, value in outcome.items() if not _is_empty(value)}
    assert any(outcome["retries"] and outcome["seconds_retrying"] for outcome in outcomes)
    assert set(Outcome.model_fields) == found
    parts: Mapping[str, Any] = {"checks": CheckRun, "changes": Change}
    for key, kind in parts.items():
        assert {name for outcome in outcomes for one in outcome[key] for name in one} == set(
            kind.model_fields
        )
    assert {name for outcome in outcomes for name in outcome["usage"]} == set(Usage.model_fields)
    assert {outcome["verified"] for outcome in outcomes} == {None, "asserted", "unverified", "verified"}
    assert {outcome["status"] for outcome in outcomes} == {"success", "limit", "error"}


def test_both_attempts_at_a_decision_occur(recording: Recording) -> None:
    decided = [one for found in recording.of("approvals") for one in found["calls"].values()]
    assert {one["attempt"] for one in decided} == {0, 1}


def test_every_mark_of_a_message_occurs(recording: Recording) -> None:
    assert recording.all_marks() == MARKS


def test_channels_of_a_users_own_occur(recording: Recording) -> None:
    assert ["the red ones"] in recording.of("notes")
    assert b"low" in recording.of("photo")


def test_every_mark_of_hooks_occurs(recording: Recording) -> None:
    found = recording.of(MIDDLEWARE)
    assert {key for one in found for key in one} == set(get_type_hints(HookMarks))


def test_every_sort_of_entry_of_the_store_occurs(recording: Recording) -> None:
    sorts = {sort for sort, _ in recording.entries}
    assert sorts == {"figures", "journal", "outcomes"}
    journal = [value for sort, value in recording.entries if sort == "journal"]
    assert {entry["status"] for entry in journal} == {"started", "done"}
    assert {type(entry["edited"]) for entry in journal} == {dict, type(None)}
    assert any(entry["messages"] for entry in journal)
    assert {kept for entry in journal for kept in entry.get("update", ())} == {"plain", "typed"}


def test_a_key_that_does_not_occur_is_found() -> None:
    """The walk itself: what is empty, or stands in another value, does not count."""
    approvals = {"task": "m", "calls": {"c": {"type": "edit", "args": {}, "hash": "h"}}, "problem": ""}
    assert set(_keys(get_type_hints(AgentState)["approvals"], approvals)) == {
        ("Decisions", "task"),
        ("Decisions", "calls"),
        ("CallDecision", "type"),
        ("CallDecision", "hash"),
    }


def test_the_page_of_what_is_stored_names_every_channel_and_every_mark() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "storage.md").read_text("utf-8")
    state, _, rest = page.partition("## Marks on messages")
    marks, _, entries = rest.partition("## Store entries")
    assert first_cells(state) >= set(get_type_hints(AgentState))
    assert first_cells(marks) == set(get_type_hints(Marks)) >= MARKS
    assert all(f"`{sort}`" in entries for sort in ("journal", "outcomes", "figures", "requests", "inbox"))


def first_cells(text: str) -> set[str]:
    """The words in backticks that begin the rows of tables."""
    return set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
