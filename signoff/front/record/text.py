"""Truncates texts for a page, and formats numbers, durations and times."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Generic, NamedTuple, TypeVar

from signoff.front.text import cut, one_line

Item = TypeVar("Item")
Made = TypeVar("Made")

_SCROLLS = 14
_WIDE = 1_400


class Ends(NamedTuple):
    """A text without its middle. left: the number of omitted characters."""

    head: str
    left: int
    tail: str


class Fold(NamedTuple, Generic[Item]):
    """The first and the last items of a list.

    left: how many are omitted before the item at `gap`. gap: -1 when none is omitted.
    """

    rows: Sequence[Item]
    left: int
    gap: int

    def each(self, make: Callable[[Item], Made]) -> "Fold[Made]":
        """Returns the same fold with `make` applied to each item."""
        return Fold([make(item) for item in self.rows], self.left, self.gap)


class Moment(NamedTuple):
    """A time in words. iso: the same in ISO 8601; empty where the words are not a time."""

    words: str
    iso: str


def line(text: str, most: int | None) -> str:
    """Returns the beginning of `text` on one line, at most `most` characters; None for all of it."""
    if most is None:
        return one_line(text)
    start = text.lstrip()[: 4 * most]
    return cut(one_line(start), most)


def shorten(text: str, most: int | None, lines: int = 400) -> Ends:
    """Returns `text`, limited to so many characters and lines: more of its beginning than of its end. most:
    None for all of it."""
    if most is None or (len(text) <= most and text.count("\n") < lines):
        return Ends(text, 0, "")
    last = most // 4
    head, tail = (text, "") if len(text) <= most else (text[: most - last], text[len(text) - last :])
    above = lines - lines // 4
    rows = head.split("\n")
    if len(rows) > above and not tail:
        tail = "\n".join(rows[above:])
    head = "\n".join(rows[:above])
    tail = "\n".join(tail.split("\n")[-(lines - above) :])
    return Ends(head, len(text) - len(head) - len(tail), tail)


def fold(items: Sequence[Item], most: int | None) -> Fold[Item]:
    """Returns the items, without the middle if there are too many. most: None for all of them."""
    if most is None or len(items) <= most:
        return Fold(items, 0, -1)
    last = most // 3
    rows = [*items[: most - last], *items[len(items) - last :]]
    return Fold(rows, len(items) - most, most - last)


def limit(bound: int, most: int | None) -> int | None:
    """Returns the bound of something small; None where all is drawn, which is where `most` is None."""
    return None if most is None else bound


def share(most: int | None, count: int, least: int) -> int | None:
    """Returns the characters for each of `count` texts, at least `least`; None where all is drawn."""
    return None if most is None else max(least, most // max(count, 1))


def is_long(text: str) -> bool:
    """Whether a box with this text scrolls; then it must be reachable with the keyboard."""
    return text.count("\n") > _SCROLLS or len(text) > _WIDE


def moment(iso: str, day: bool = True) -> Moment | None:
    """Returns the time in UTC, with or without its day; None for no time."""
    try:
        at = datetime.fromisoformat(iso).astimezone(UTC)
    except ValueError:
        return Moment(line(iso, 80), "") if iso else None
    words = f"{at.day} {at:%B %Y, %H:%M} UTC" if day else f"{at:%H:%M:%S}"
    return Moment(words, f"{at:%Y-%m-%dT%H:%M:%SZ}")


def duration(seconds: float) -> str:
    """Returns a duration in words."""
    if seconds < 59.95:
        return f"{seconds:.1f} s" if seconds >= 0.05 or not seconds else "under 0.1 s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    begin = next(at for at, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[begin : begin + 2] if count)


def number(count: int) -> str:
    return f"{count:,}"
