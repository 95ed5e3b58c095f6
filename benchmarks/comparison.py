"""Compares two loops: means per task, as a table."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.table import Table

from benchmarks.loops import LOOPS, PLAIN, SIGNOFF, Run


@dataclass(frozen=True)
class Prices:
    """US dollars per million tokens. cached: the share of the price for a token from the provider's cache."""

    input: float
    output: float
    cached: float = 0.1

    def of(self, run: Run) -> float:
        return (run.input_tokens * self.input + run.output_tokens * self.output) / 1_000_000

    def with_cache(self, run: Run) -> float | None:
        """The cost of the run with a cache that serves all repeated tokens; None if unknown."""
        if run.repeated_tokens is None:
            return None
        saved = run.repeated_tokens * self.input * (1 - self.cached) / 1_000_000
        return self.of(run) - saved


@dataclass(frozen=True)
class Row:
    """The runs of one loop on one class of tasks; turns, tokens, costs and seconds are means per task.

    new_tokens, cached_cost: with a provider's cache; None if it is unknown what the cache would serve.
    """

    kind: str
    loop: str
    tasks: int
    turns: float
    tokens: float
    cost: float
    seconds: float
    tasks_per_second: float
    ended: dict[str, int]
    right: int | None
    new_tokens: float | None = None
    cached_cost: float | None = None


def rows(runs: Sequence[Run], prices: Prices) -> list[Row]:
    """Returns a row for each class and loop, then one row per loop over all classes if there are several."""
    kinds = list(dict.fromkeys(run.kind for run in runs))
    found = [
        _row(kind, loop, [run for run in runs if (run.kind, run.loop) == (kind, loop)], prices)
        for kind in kinds
        for loop in LOOPS
    ]
    every = [_row("all", loop, [run for run in runs if run.loop == loop], prices) for loop in LOOPS]
    return found + (every if len(kinds) > 1 else [])


def _row(kind: str, loop: str, runs: Sequence[Run], prices: Prices) -> Row:
    ends = [run.ended for run in runs]
    right = [run.right for run in runs]
    seconds = sum(run.seconds for run in runs)
    new = [run.tokens - run.repeated_tokens for run in runs if run.repeated_tokens is not None]
    cached = [cost for cost in map(prices.with_cache, runs) if cost is not None]
    return Row(
        kind=kind,
        loop=loop,
        tasks=len(runs),
        turns=statistics.fmean(run.turns for run in runs),
        tokens=statistics.fmean(run.tokens for run in runs),
        cost=statistics.fmean(map(prices.of, runs)),
        seconds=seconds / len(runs),
        tasks_per_second=len(runs) / seconds,
        ended={end: ends.count(end) for end in dict.fromkeys(ends)},
        right=None if None in right else sum(map(bool, right)),
        new_tokens=statistics.fmean(new) if len(new) == len(runs) else None,
        cached_cost=statistics.fmean(cached) if len(cached) == len(runs) else None,
    )


def fewer(found: Iterable[Row]) -> dict[str, float]:
    """Returns by what share B is below A in turns, tokens, cost and seconds, over all tasks."""
    last = {row.loop: row for row in found}
    plain, ours = last[PLAIN], last[SIGNOFF]
    names = ["turns", "tokens", "cost", "seconds"]
    if plain.new_tokens is not None and ours.new_tokens is not None:
        names += ["new_tokens", "cached_cost"]
    return {name: 1 - getattr(ours, name) / getattr(plain, name) for name in names}


def table(title: str, found: Sequence[Row]) -> Table:
    looked = any(row.right is not None for row in found)
    cached = all(row.new_tokens is not None for row in found)
    caches = ["new tokens", "cost, cached"] if cached else []
    names = ["class", "loop", "tasks", "turns", "tokens", "cost", *caches, "seconds", "tasks/s", "ended by"]
    shown = Table(title=title, title_justify="left")
    for name in [*names, *(["right"] if looked else [])]:
        words = name in ("class", "loop", "ended by")
        shown.add_column(name, justify="left" if words else "right", no_wrap=name != "ended by")
    for place, row in enumerate(found):
        cells = [
            row.kind,
            row.loop,
            str(row.tasks),
            f"{row.turns:.1f}",
            f"{row.tokens:,.0f}",
            f"${row.cost:.4f}",
            *([f"{row.new_tokens:,.0f}", f"${row.cached_cost:.4f}"] if cached else []),
            f"{row.seconds:.3f}",
            f"{row.tasks_per_second:.3g}",
            ", ".join(f"{end}: {count}" for end, count in row.ended.items()),
        ]
        cells += [f"{row.right} of {row.tasks}"] if looked else []
        shown.add_row(*cells, end_section=place % 2 == 1)
    return shown


def told(found: Sequence[Row]) -> str:
    """Returns the difference in one sentence."""
    words = {
        "turns": ("fewer turns", "more turns"),
        "tokens": ("fewer tokens", "more tokens"),
        "cost": ("less cost", "more cost"),
        "seconds": ("less time", "more time"),
        "new_tokens": ("fewer new tokens", "more new tokens"),
        "cached_cost": ("less cost with a cache", "more cost with a cache"),
    }
    parts = [f"{abs(share):.0%} {words[name][share < 0]}" for name, share in fewer(found).items()]
    return f"B compared with A, over all tasks: {', '.join(parts)}."
