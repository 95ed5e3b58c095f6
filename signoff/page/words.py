"""Texts of a page: as blocks that are cut to a length, numbers and moments in words."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

from signoff.graph.foreign import counted
from signoff.page.html import Child, Html, joined, line, tag

Item = TypeVar("Item")

_SCROLLS = 14
_WIDE = 1_400


def block(text: str, most: int, lines: int = 400) -> Html:
    """`text`, at most so many characters and lines of it; where its middle is left out, how much is."""
    head, left, tail = _parted(text, most, lines)
    if not left:
        return joined([head])
    note = tag("span", f"… {left:,} more characters left out of this page …", class_="left-out")
    return joined([head, "\n", note, "\n" if tail else None, tail])


def pre(text: str, most: int, class_: str = "") -> Html:
    """`text` as it stands, in a box that scrolls when it is long."""
    shown = text.strip("\n")
    return boxed(block(shown, most), class_, long=shown.count("\n") > _SCROLLS or len(shown) > _WIDE)


def boxed(content: Child, class_: str = "", *, long: bool) -> Html:
    """A box of text in even letters. long: it scrolls, so it can be reached by the keyboard."""
    return tag("pre", content, class_=class_ or None, tabindex="0" if long else None)


def prose(text: str, most: int, class_: str = "prose") -> Html:
    """What someone wrote."""
    return tag("div", block(text.strip(), most), class_=class_, dir="auto")


def folded(items: Sequence[Item], most: int) -> tuple[Sequence[Item], int, Sequence[Item]]:
    """The first and the last of the items, and how many between them are left out."""
    if len(items) <= most:
        return items, 0, ()
    last = most // 3
    return items[: most - last], len(items) - most, items[len(items) - last :]


def listed(texts: Sequence[str], most: int, room: int) -> Html:
    """The texts as a list."""
    head, left, tail = folded(texts, most)
    note = tag("li", f"… {left:,} more left out of this page", class_="left-out") if left else None
    rows = [[tag("li", block(text.strip(), room), dir="auto") for text in part] for part in (head, tail)]
    return tag("ul", rows[0], note, rows[1])


def moment(iso: str, *, day: bool = True) -> Html | None:
    """The time in UTC, with its day or without."""
    try:
        at = datetime.fromisoformat(iso).astimezone(UTC)
    except ValueError:
        return tag("span", line(iso, 80)) if iso else None
    told = f"{at.day} {at:%B %Y, %H:%M} UTC" if day else f"{at:%H:%M:%S}"
    return tag("time", told, datetime=f"{at:%Y-%m-%dT%H:%M:%SZ}")


def took(seconds: float) -> str:
    """A length of time as a person says it."""
    if seconds < 59.95:
        return f"{seconds:.1f} s" if seconds >= 0.05 or not seconds else "under 0.1 s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    begin = next(at for at, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[begin : begin + 2] if count)


def tokens(count: int, *, estimated: bool = False) -> str:
    return ("about " if estimated else "") + counted(count, "token")


def _parted(text: str, most: int, lines: int) -> tuple[str, int, str]:
    if len(text) <= most and text.count("\n") < lines:
        return text, 0, ""
    last = most // 4
    head, tail = (text, "") if len(text) <= most else (text[: most - last], text[len(text) - last :])
    above = lines - lines // 4
    rows = head.split("\n")
    if len(rows) > above and not tail:
        tail = "\n".join(rows[above:])
    head = "\n".join(rows[:above])
    tail = "\n".join(tail.split("\n")[-(lines - above) :])
    return head, len(text) - len(head) - len(tail), tail
