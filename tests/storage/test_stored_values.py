"""The threads of the incidents hold every kind of value that is stored, and the page names them all."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from langchain_core.messages import BaseMessage

from signoff import Outcome
from signoff.graph.messages import KEY, Marks
from signoff.graph.state import AgentState
from signoff.machine import Event
from signoff.storage import SqliteStorage

# An input is written by LangGraph, without an event; a review ends in a deadlock where nobody can be asked,
# which is where nothing is stored.
NOT_STORED = {Event.INPUT}
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "storage.md"


class Recording:
    """Everything that a database holds: the values of the channels as they were written, one after
    another, and the entries of the store."""

    def __init__(self, storage: SqliteStorage) -> None:
        saved = list(storage.checkpointer.list(None))
        self.channels = [pair for one in saved for pair in one.checkpoint["channel_values"].items()]
        self.channels += [(name, value) for one in saved for _, name, value in one.pending_writes or ()]
        self.entries = [(item.namespace[1], item.value) for item in storage.store.search((), limit=10_000)]

    def of(self, channel: str) -> list[Any]:
        return [value for name, value in self.channels if name == channel and value is not None]

    def marks(self) -> set[str]:
        """The marks on messages."""
        messages = [one for one in _flat(self.of("messages")) if isinstance(one, BaseMessage)]
        kept = [{**one.additional_kwargs, **one.response_metadata}.get(KEY, {}) for one in messages]
        return {name for marks in kept for name in marks}


def _flat(written: list[Any]) -> Iterator[Any]:
    for one in written:
        yield from _flat(one) if isinstance(one, list) else [one]


@pytest.fixture(scope="module")
def recording(incident_storage: SqliteStorage) -> Recording:
    return Recording(incident_storage)


def test_every_event_occurs(recording: Recording) -> None:
    assert set(recording.of("event")) == set(Event) - NOT_STORED


def test_every_field_and_every_end_of_an_outcome_occurs(recording: Recording) -> None:
    outcomes = [*recording.of("outcome"), *(value for sort, value in recording.entries if sort == "outcomes")]
    said = {key for outcome in outcomes for key, value in outcome.items() if value not in (None, "", [], {})}
    assert said == set(Outcome.model_fields)
    assert {outcome["verified"] for outcome in outcomes} == {None, "asserted", "unverified", "verified"}
    assert {outcome["status"] for outcome in outcomes} == {"success", "limit", "error"}


def test_channels_of_a_users_own_occur(recording: Recording) -> None:
    assert ["the red ones"] in recording.of("notes")
    assert b"low" in recording.of("photo")


def test_the_page_of_what_is_stored_names_every_channel_mark_and_sort_of_entry(recording: Recording) -> None:
    state, _, rest = PAGE.read_text("utf-8").partition("## Marks on messages")
    marks, _, entries = rest.partition("## Store entries")
    assert first_cells(state) >= set(get_type_hints(AgentState))
    assert first_cells(marks) == set(get_type_hints(Marks)) >= recording.marks()
    sorts = {sort for sort, _ in recording.entries}
    assert sorts == {"figures", "journal", "outcomes", "rows"}
    assert [sort for sort in (*sorts, "requests", "inbox") if f"`{sort}`" not in entries] == []


def first_cells(text: str) -> set[str]:
    """The words in backticks that begin the rows of tables."""
    return set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
