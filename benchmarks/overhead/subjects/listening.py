"""What a caller hears of a stream. Standard library only."""

import time


class Ear:
    """Counts the pieces with words, and the seconds until the first one. It listens from when it is made."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._first = 0.0
        self.heard = 0

    def hear(self, words: object) -> None:
        if words:
            if not self.heard:
                self._first = time.perf_counter() - self._begun
            self.heard += 1

    def told(self, steps: int, least: int) -> dict[str, float]:
        """What a run reports. Raises AssertionError where it heard fewer pieces than the provider sent."""
        assert self.heard >= least, f"{self.heard} pieces heard, not {least}"
        return {"steps": steps, "first": self._first}
