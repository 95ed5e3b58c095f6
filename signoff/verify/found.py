"""What an exploration has found: the states, what leads from one to the next, and what does not hold."""

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from signoff.graph.machine import Event, State
from signoff.verify.choices import STEP, Choice

# More in a row without the model or a person are no way to an end.
MOST_STEPS = 100


@dataclass(frozen=True)
class Broken:
    """A property that does not hold, why, and the way there."""

    name: str
    why: str
    path: Sequence[str]


@dataclass
class Found:
    """What was visited. ways: for each state its successors, by what happens. reported: the events that the
    states of the machine have reported. compared: steps that were done a second time, and compared."""

    broken: list[Broken] = field(default_factory=list)
    ways: dict[Hashable, dict[Choice, Hashable]] = field(default_factory=dict)
    first: list[Hashable] = field(default_factory=list)
    compared: int = 0
    reported: set[tuple[State | None, Event | None]] = field(default_factory=set)

    @property
    def states(self) -> int:
        return len(self.ways)

    @property
    def transitions(self) -> int:
        return sum(map(len, self.ways.values()))

    def sequences(self, length: int) -> int:
        """How many different runs of up to `length` replies and events these states stand for."""
        reached: dict[Hashable, int] = {}
        for start in self.first:
            reached[start] = reached.get(start, 0) + 1
        total = 0
        for _ in range(length):
            after: dict[Hashable, int] = {}
            for state, times in self._settled(reached).items():
                for choice, target in self.ways.get(state, {}).items():
                    if choice.sort != STEP:
                        after[target] = after.get(target, 0) + times
            total, reached = total + sum(after.values()), after
        return total

    def _settled(self, reached: Mapping[Hashable, int]) -> Mapping[Hashable, int]:
        """These states, and those that the machine alone goes on to from them; circles are left."""
        all_of = dict(reached)
        waiting = deque((state, times, 0) for state, times in reached.items())
        while waiting:
            state, times, steps = waiting.popleft()
            for choice, target in self.ways.get(state, {}).items() if steps < MOST_STEPS else ():
                if choice.sort == STEP:
                    all_of[target] = all_of.get(target, 0) + times
                    waiting.append((target, times, steps + 1))
        return all_of
