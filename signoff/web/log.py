"""What the readers of a thread are told: one bounded log, and a cursor for each reader.

There is no queue for each reader, so that one who never reads costs nothing: it finds, when it reads again,
that its place has gone, and is told everything anew.
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
    """seq: its number, from 1. data: what is sent, as JSON text."""

    seq: int
    kind: str
    data: str


class Log:
    """Entries in order; the oldest go when there are too many. All of it in one event loop."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self._bytes = 0
        self.last = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self.readers = 0

    async def add(self, kind: str, data: str) -> None:
        """Adds an entry, and wakes whoever waits for it."""
        self.last += 1
        self._entries.append(Entry(self.last, kind, data))
        self._bytes += len(data)
        while len(self._entries) > MOST_ENTRIES or (self._bytes > MOST_BYTES and len(self._entries) > 1):
            self._bytes -= len(self._entries.popleft().data)
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def clear(self) -> None:
        """Drops all entries; the next one has the next number."""
        self._entries.clear()
        self._bytes = 0

    def after(self, seq: int) -> Iterator[Entry] | None:
        """The entries after this number; None when some of them have gone."""
        if seq > self.last or (seq < self.last and (not self._entries or self._entries[0].seq > seq + 1)):
            return None
        first = max(0, len(self._entries) - (self.last - seq))
        return iter([self._entries[at] for at in range(first, len(self._entries))])

    async def wait(self, seq: int, seconds: float) -> bool:
        """Waits for an entry after this number; False when there is none in so many seconds."""
        # No asyncio.Condition: one whose wait is cancelled while it wakes up is left with a lock that nobody
        # holds, and whoever adds an entry then waits for ever.
        woken = asyncio.get_running_loop().create_future()
        self._waiting.add(woken)
        try:
            if self.last <= seq:
                await asyncio.wait({woken}, timeout=seconds)
        finally:
            self._waiting.discard(woken)
        return self.last > seq


def event(kind: str, data: str, seq: int | None = None) -> bytes:
    """One event of a stream as it is sent. data: one line, as JSON is."""
    number = "" if seq is None else f"id: {seq}\n"
    return f"{number}event: {kind}\ndata: {data}\n\n".encode()


Fragments = Mapping[str, str]
"""The parts of a page by their names, in order."""


@dataclass(frozen=True)
class PartsChange:
    """How the parts of a page have changed. order: all names, where that has changed; None where not."""

    put: Fragments
    order: list[str] | None

    def __bool__(self) -> bool:
        return bool(self.put) or self.order is not None

    def document(self) -> dict[str, Any]:
        return {"put": dict(self.put), "order": self.order}


def changes(before: Fragments, after: Fragments) -> PartsChange:
    """What has to be sent to somebody who has `before`."""
    put = {name: markup for name, markup in after.items() if before.get(name) != markup}
    return PartsChange(put, list(after) if list(before) != list(after) else None)
