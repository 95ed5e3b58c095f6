"""The end of what a terminal shows, for the live area: cheap however much comes."""

import threading

from signoff.cli.safe import plain
from signoff.tools.pty.output import harmless

_KEPT = 16_384


class Tail:
    """Keeps the last bytes; only what is looked at is rendered. Fed from the thread in which a tool runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._data = bytearray()
        self._cut = False

    def feed(self, data: bytes) -> None:
        with self._lock:
            self._data += data[-_KEPT:]
            if len(self._data) > _KEPT:
                del self._data[:-_KEPT]
                self._cut = True

    def clear(self) -> None:
        with self._lock:
            self._data.clear()
            self._cut = False

    def lines(self, most: int) -> list[str]:
        """The last lines that are not empty, harmless."""
        with self._lock:
            data, cut = bytes(self._data), self._cut
        if cut:
            # The first line may begin in the middle of a character or of an escape sequence.
            data = data.partition(b"\n")[2] or data
        return [line for line in plain(harmless(data)).split("\n") if line.strip()][-most:]
