"""The output of one call, of bounded size however much is written."""

from dataclasses import dataclass, field


@dataclass
class Captured:
    """The beginning and the end of a stream, `room` bytes together."""

    room: int
    total: int = 0
    _head: bytearray = field(default_factory=bytearray)
    _tail: bytearray = field(default_factory=bytearray)

    def add(self, data: bytes) -> None:
        self.total += len(data)
        missing = max(self.room // 2 - len(self._head), 0)
        self._head += data[:missing]
        self._tail += data[missing:]
        if len(self._tail) > self.room:
            del self._tail[: -(self.room // 2)]

    @property
    def truncated(self) -> bool:
        return self.total > self.room

    def text(self) -> str:
        """As text; where bytes were left out it says how many. What is no UTF-8 shows as U+FFFD."""
        if not self.truncated:
            return (self._head + self._tail).decode(errors="replace")
        tail = self._tail[-(self.room // 2) :]
        gone = self.total - len(self._head) - len(tail)
        head, end = self._head.decode(errors="replace"), tail.decode(errors="replace")
        return f"{head}\n[... {gone} bytes of output left out ...]\n{end}"
