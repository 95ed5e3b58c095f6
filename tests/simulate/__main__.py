"""`python -m tests.simulate [--seeds N] [--first N] [--seconds N]`: plays schedules, and says what was met.

Fails with the seed of the first schedule that breaks a law, and with the shortest one that breaks it, too.
"""

import argparse
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from signoff.machine import TRANSITIONS
from tests.simulate.choices import Choices, shortest
from tests.simulate.guarded import GuardedWorld
from tests.simulate.world import HANGS, World
from tests.support.arguments import at_least


def played(choices: Choices, met: Counter[str]) -> str:
    """What a schedule breaks; empty if nothing."""
    try:
        (GuardedWorld if choices.once_in(10) else World)(choices, met).play()
    except Exception as error:  # noqa: BLE001  whatever it is, it is told with its schedule
        return f"{error}\n{traceback.format_exc()}"
    return ""


@dataclass(frozen=True)
class Broken:
    """A schedule that breaks a law."""

    seed: int
    fault: str
    taken: Sequence[int]

    def __str__(self) -> str:
        if self.fault.startswith(HANGS):
            return f"seed {self.seed}: {self.fault}"
        kind = self.fault[:12]
        few = shortest(self.taken, lambda given: played(Choices(given=given), Counter()).startswith(kind))
        why = played(Choices(given=few), Counter())
        return f"seed {self.seed}: {self.fault.splitlines()[0]}\nthe shortest schedule, {few}:\n{why}"


def simulate(
    seeds: int, first: int, seconds: float = float("inf")
) -> tuple[Counter[str], int, Broken | None]:
    """What was met, how many schedules were played, and the first one that broke a law."""
    met, until = Counter[str](), time.monotonic() + seconds
    for number in range(seeds):
        choices = Choices(first + number)
        if fault := played(choices, met):
            return met, number + 1, Broken(first + number, fault, choices.taken)
        if time.monotonic() > until:
            return met, number + 1, None
    return met, seeds, None


def transitions() -> set[str]:
    """From state to state, as the machine has them."""
    return {f"transition: {state} → {to}" for state, row in TRANSITIONS.items() for to in row.values()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=at_least(1), default=1_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    begun = time.process_time()
    met, done, fault = simulate(options.seeds, options.first, options.seconds)
    seconds = time.process_time() - begun
    for name in sorted({*met, *transitions()}):
        print(f"{met[name]:8,} {name}")
    print(f"{done:,} schedules, {done / seconds:.1f} a second of CPU time", flush=True)
    if fault:
        print(fault)
    return 1 if fault else 0


if __name__ == "__main__":
    os.environ["SIGNOFF_CONFIG"] = "none"
    sys.exit(main())
