"""What a terminal's screen still has to be shown, in bounded memory however fast a program writes."""

import re
import threading
from collections import deque
from dataclasses import dataclass

MOST = 200_000
"""Bytes that are kept; what comes on top pushes the oldest out."""
SLICE = 512
"""Bytes handed out at once."""

_SWITCHES = re.compile(rb"\x1b\[\?([0-9]{1,4})([hl])")
_LONGEST_SWITCH = 8
_CHUNK = 4_096


@dataclass(frozen=True)
class Words:
    """Words of the application itself, shown among the output on lines of their own."""

    words: str
    over_prompt: bool = False


class Backlog:
    """Output and words in the order in which they came. Any thread may add, one takes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: deque[bytes | Words] = deque()
        self._size = 0
        self._lost = 0
        self._end = b""
        self._switched: dict[bytes, bytes] = {}

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, item: bytes | Words) -> bool:
        """Adds one; whether nothing was waiting before."""
        with self._lock:
            first = not self._items
            if isinstance(item, Words):
                self._items.append(item)
            else:
                self._items.extend(item[at : at + _CHUNK] for at in range(0, len(item), _CHUNK))
                self._size += len(item)
            while self._size > MOST:
                self._drop(self._items.popleft())
            return first

    def take(self) -> bytes | Words | None:
        """The next words or some hundred bytes; None when there is nothing.

        Where bytes were lost, it first gives the modes they set (as of a full-screen program, or of the
        cursor), then words that say how much is missing.
        """
        with self._lock:
            if self._lost:
                return self._gap()
            if not self._items:
                return None
            item = self._items.popleft()
            if isinstance(item, Words):
                return item
            if len(item) > SLICE:
                self._items.appendleft(item[SLICE:])
                item = item[:SLICE]
            self._size -= len(item)
            return item

    def _drop(self, item: bytes | Words) -> None:
        if isinstance(item, Words):
            return
        self._size -= len(item)
        self._lost += len(item)
        found = self._end + item
        self._switched.update(_SWITCHES.findall(found))
        self._end = found[-_LONGEST_SWITCH:]

    def _gap(self) -> bytes | Words:
        if self._switched:
            # The first character ends a sequence whose end was lost.
            modes = b"".join(b"\x1b[?%b%b" % each for each in self._switched.items())
            self._switched = {}
            return b"\x18" + modes + b"\x1b[m"
        lost, self._lost, self._end = self._lost, 0, b""
        self._drop_first_line()
        return Words(f"\x1b[2;3m[… {lost / 1e6:.1f} MB of output not shown …]")

    def _drop_first_line(self) -> None:
        """Leaves out the line whose beginning was lost."""
        if self._items and isinstance(self._items[0], bytes):
            line, end, rest = self._items[0].partition(b"\n")
            if end:
                self._size -= len(line) + 1
                self._items[0] = rest
