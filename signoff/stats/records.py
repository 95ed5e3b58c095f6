"""Reads the tasks that have ended from the store, each with its outcome, figures and rating."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from signoff import SetupError, StorageError, ThreadError
from signoff.graph.finish.recorded import Figures
from signoff.graph.foreign import FIGURES, OUTCOMES, RATINGS, checked_thread_id, place
from signoff.text import label

if TYPE_CHECKING:
    # Takes a second to import, and is not needed for counting.
    from langgraph.store.base import BaseStore

_PAGE = 5000
STARS = range(1, 6)

Key = tuple[str, str]


class RecordedItem(Protocol):
    """An entry of a store."""

    @property
    def namespace(self) -> tuple[str, ...]: ...

    @property
    def key(self) -> str: ...

    @property
    def value(self) -> dict[str, Any]: ...


class Entries(Protocol):
    """A store to read entries from."""

    def search(
        self, namespace_prefix: tuple[str, ...], /, *, limit: int = 10, offset: int = 0
    ) -> Sequence[RecordedItem]: ...


@dataclass(frozen=True)
class TaskRecord:
    """One task that has ended.

    at: when, in seconds since 1970. rating: 1 to 5. The rest is as in `Outcome`.
    """

    thread_id: str | None
    task: str
    at: float
    status: str
    reason: str
    claim: str | None
    verified: str | None
    turns: int
    refusals: int
    seconds_waiting: float
    input_tokens: int
    output_tokens: int
    total_tokens: int
    figures: Figures
    rating: int | None

    @property
    def accepted(self) -> bool:
        """Whether a finish with the claim that all is done was accepted."""
        return self.status == "success" and self.claim == "done"

    @property
    def began(self) -> float:
        """Returns when its first model call began; if that is unknown, when it ended."""
        began = self.figures["began"]
        return self.at if began is None else began


def read_ended(store: Entries, thread_id: str | None = None) -> list[TaskRecord]:
    """Returns every task that has ended, of one thread or of all, in the order in which they began.

    Raises StorageError when an entry was not written by Signoff.
    """
    outcomes = {_key(item): item.value for item in _items(store, OUTCOMES, thread_id)}
    # Read after the outcomes, with which they are recorded: only those of a deleted thread are missing.
    figures = {_key(item): item.value for item in _items(store, FIGURES, thread_id)}
    ratings = {_key(item): item.value for item in _items(store, RATINGS, thread_id)}
    try:
        found = [
            _ended(value, figures[key], ratings.get(key)) for key, value in outcomes.items() if key in figures
        ]
    except (LookupError, TypeError) as error:
        raise StorageError(
            f"An outcome in the database cannot be read ({type(error).__name__}: {error}); restore a "
            "backup of the database, or use another one."
        ) from error
    return sorted(found, key=lambda ended: (ended.began, ended.at))


def rate(store: "BaseStore", thread_id: str, stars: int, task: int | None = None) -> TaskRecord:
    """Stores a person's rating of a task that has ended, replacing an earlier one; returns that task.

    stars: 1 (useless) to 5 (excellent). task: its number among the ended tasks of the thread, from 1; None
    for the last. Raises SetupError for a number out of range, ThreadError when nothing has ended.
    """
    if stars not in STARS:
        raise SetupError(f"A rating is a number from {STARS[0]} to {STARS[-1]}, not {stars}.")
    ended = read_ended(store, checked_thread_id(thread_id))
    if not ended:
        raise ThreadError(f"No task of thread {_quote_id(thread_id)} has ended; rate it when one has.")
    number = len(ended) if task is None else task
    if not 1 <= number <= len(ended):
        raise SetupError(
            f"{len(ended)} task(s) of thread {_quote_id(thread_id)} have ended; there is no task {number}."
        )
    rated = ended[number - 1]
    store.put(*place(RATINGS, thread_id, rated.task), {"rating": stars, "at": time.time()})
    return rated


def _quote_id(thread_id: str) -> str:
    return repr(thread_id if len(thread_id) <= 80 else f"{thread_id[:80]}…")


def _items(store: Entries, sort: str, thread_id: str | None) -> Iterator[RecordedItem]:
    """Yields the entries page by page, each at least once: writes may move others to the next page."""
    where = ("signoff", sort) if thread_id is None else ("signoff", sort, label(thread_id))
    offset = 0
    while page := store.search(where, limit=_PAGE, offset=offset):
        yield from page
        if len(page) < _PAGE:
            return
        offset += _PAGE


def _key(item: RecordedItem) -> Key:
    return item.namespace[-1], item.key


def _ended(
    value: Mapping[str, Any], figures: Mapping[str, Any], rating: Mapping[str, Any] | None
) -> TaskRecord:
    usage = value["usage"]
    return TaskRecord(
        thread_id=value["thread_id"],
        task=value["task"],
        at=figures["at"],
        status=value["status"],
        reason=value["reason"],
        claim=value["claim"],
        verified=value["verified"],
        turns=value["turns"],
        refusals=value["refusals"],
        seconds_waiting=value["seconds_waiting"],
        input_tokens=usage["input_tokens"],
        output_tokens=usage["output_tokens"],
        total_tokens=usage["total_tokens"],
        figures=cast(Figures, figures),
        rating=rating["rating"] if rating else None,
    )
