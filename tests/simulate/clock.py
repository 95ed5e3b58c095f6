"""The time in a schedule: it passes only where something takes time, and then at once."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from signoff.graph import clock


@dataclass
class VirtualClock:
    """The clock of one machine, in seconds since the epoch. ahead: seconds that nobody has seen pass yet."""

    time: float = 1_800_000_000.0
    ahead: float = 0.0
    calls: int = 0

    def passes(self, seconds: float) -> None:
        self.ahead += seconds
        self._shows()

    @contextmanager
    def one_call(self) -> Iterator[None]:
        """Whoever waits for this call sees its time pass when it ends. Else it would hang on how fast two
        threads are whether the call is given up in the middle."""
        self.calls += 1
        try:
            yield
        finally:
            self.calls -= 1
            self._shows()

    def _shows(self) -> None:
        if not self.calls:
            self.time, self.ahead = self.time + self.ahead, 0.0

    @contextmanager
    def ticks(self) -> Iterator[None]:
        """The product goes by this clock."""
        before = clock.now, clock.monotonic
        clock.now = clock.monotonic = lambda: self.time
        try:
            yield
        finally:
            clock.now, clock.monotonic = before
