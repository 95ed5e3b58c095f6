"""The events for the readers of a thread: one bounded log, and a cursor for each reader.

A reader has no queue of its own, so one that never reads costs nothing: when it reads again, its position is
no longer in the log, and it gets the whole state again.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MOST_ENTRIES = 4_000
MOST_BYTES = 4_000_000


@dataclass(frozen=True)
class Entry:
    """seq: its number, from 1. data: the payload, as JSON text."""

    seq: int
    kind: str
    data: str


class Log:
    """Entries in order; drops the oldest when there are too many. Belongs to one event loop."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self._bytes = 0
        self.last = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self.readers = 0

    async def add(self, kind: str, data: str) -> None:
        """Adds an entry, and wakes the readers that wait for it."""
        self.last += 1
        self._entries.append(Entry(self.last, kind, data))
        self._bytes += len(data)
        while len(self._entries) > MOST_ENTRIES or (self._bytes > MOST_BYTES and len(self._entries) > 1):
            self._bytes -= len(self._entries.popleft().data)
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def clear(self) -> None:
        """Drops all entries; numbering continues."""
        self._entries.clear()
        self._bytes = 0

    def after(self, seq: int) -> Iterator[Entry] | None:
        """Returns the entries after this number; None if some of them were dropped."""
        if seq > self.last or (seq < self.last and (not self._entries or self._entries[0].seq > seq + 1)):
            return None
        first = max(0, len(self._entries) - (self.last - seq))
        return iter([self._entries[at] for at in range(first, len(self._entries))])

    async def wait(self, seq: int, seconds: float) -> bool:
        """Waits for an entry after this number; returns False if none comes within so many seconds."""
        # Not an asyncio.Condition: if its wait is cancelled while it wakes up, its lock is left in a state in
        # which the next `add` waits for ever.
        woken = asyncio.get_running_loop().create_future()
        self._waiting.add(woken)
        try:
            if self.last <= seq:
                await asyncio.wait({woken}, timeout=seconds)
        finally:
            self._waiting.discard(woken)
        return self.last > seq


def event(kind: str, data: str, seq: int | None = None) -> bytes:
    """Returns one encoded event of a stream. data: one line, as JSON is."""
    number = "" if seq is None else f"id: {seq}\n"
    return f"{number}event: {kind}\ndata: {data}\n\n".encode()


Fragments = Mapping[str, str]
"""The parts of a page by name, in order."""


@dataclass(frozen=True)
class PartsChange:
    """How the parts of a page have changed. order: all names if their order has changed, else None."""

    put: Fragments
    order: list[str] | None

    def __bool__(self) -> bool:
        return bool(self.put) or self.order is not None

    def document(self) -> dict[str, Any]:
        return {"put": dict(self.put), "order": self.order}


def changes(before: Fragments, after: Fragments) -> PartsChange:
    """Returns what to send to a reader that has `before`."""
    put = {name: markup for name, markup in after.items() if before.get(name) != markup}
    return PartsChange(put, list(after) if list(before) != list(after) else None)
