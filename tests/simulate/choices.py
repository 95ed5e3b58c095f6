"""A schedule as a list of numbers: drawn from a seed, played again, and made shorter."""

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

_Option = TypeVar("_Option")


class Choices:
    """What happens next, one decision after another.

    A seed draws the decisions; a list gives them, and after its end each is the first option. So the first
    option should always be the dullest: a schedule is made shorter by making its numbers smaller.
    """

    def __init__(self, seed: int | None = None, given: Sequence[int] = ()) -> None:
        self._random = None if seed is None else random.Random(seed)
        self._given = list(given)
        self.taken: list[int] = []

    def below(self, most: int) -> int:
        """A number below `most`."""
        if self._random is not None:
            number = self._random.randrange(most)
        else:
            place = len(self.taken)
            number = min(self._given[place], most - 1) if place < len(self._given) else 0
        self.taken.append(number)
        return number

    def of(self, options: Sequence[_Option]) -> _Option:
        """One of the options; an option that stands there twice is drawn twice as often."""
        return options[self.below(len(options))]

    def once_in(self, times: int) -> bool:
        """Whether something rare happens."""
        return self.below(times) == times - 1


def shortest(failing: Sequence[int], fails: Callable[[Sequence[int]], bool], tries: int = 400) -> list[int]:
    """A short list of decisions that still fails, found by leaving out and by lowering what it can."""
    best, left = list(failing), tries
    size = max(1, len(best) // 2)
    while size and left:
        at, smaller = 0, False
        while at < len(best) and left:
            for shorter in (best[:at] + best[at + size :], best[:at] + [0] * size + best[at + size :]):
                if shorter != best and left:
                    left -= 1
                    if fails(shorter):
                        best, smaller = shorter, True
                        break
            else:
                at += size
        size = size if smaller and size == 1 else size // 2
    while best and best[-1] == 0:
        best.pop()
    return best
