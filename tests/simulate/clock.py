"""The time in a schedule: it passes only where something takes time, and then at once."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from signoff.graph import clock


@dataclass
class VirtualClock:
    """The clock of one machine, in seconds since the epoch."""

    time: float = 1_800_000_000.0

    def passes(self, seconds: float) -> None:
        self.time += seconds

    @contextmanager
    def ticks(self) -> Iterator[None]:
        """The product goes by this clock."""
        before = clock.now, clock.monotonic
        clock.now = clock.monotonic = lambda: self.time
        try:
            yield
        finally:
            clock.now, clock.monotonic = before
