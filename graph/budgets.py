"""How much of each limit a task has used, and which of them is the nearest."""

from collections.abc import Iterator
from dataclasses import dataclass

from signoff.graph.limits import Limits
from signoff.graph.task import Task
from signoff.graph.texts import Texts

_WORDS = {
    "turns": "{used} of {limit} turns are used",
    "tool_calls": "{used} of {limit} tool calls are used",
    "tokens": "{used:,} of {limit:,} tokens are used",
    "cost": "{used:.6g} of {limit:g} is spent",
    "seconds": "{used:.1f} of {limit:g} seconds of working time are used",
}


@dataclass(frozen=True)
class Budget:
    """One limit by its name, and what is used of it."""

    name: str
    used: float
    limit: float

    @property
    def spent(self) -> bool:
        """Whether nothing is left."""
        return self.used >= self.limit

    @property
    def near(self) -> bool:
        """Whether about a sixth is left, or less."""
        if isinstance(self.limit, int):
            return self.used >= max(1, self.limit - max(1, self.limit // 6))
        return self.used >= self.limit * 5 / 6

    @property
    def why(self) -> str:
        return _WORDS[self.name].format(used=self.used, limit=self.limit)

    def left(self, texts: Texts) -> str:
        """What is left of it, in words for the model."""
        left = max(0, self.limit - self.used)
        percent = round(100 * left / self.limit)
        return texts.amounts[self.name].format(left=left, percent=percent)


def budget(name: str, task: Task, limits: Limits) -> Budget | None:
    """The budget of this name; None when it has no limit."""
    return next((found for found in budgets(task, limits) if found.name == name), None)


def budgets(task: Task, limits: Limits) -> Iterator[Budget]:
    """All that is limited, the turns first."""
    used = task.used
    yield Budget("turns", task.turns, limits.turns + task.extra_turns)
    if limits.tool_calls is not None:
        yield Budget("tool_calls", used.tool_calls, limits.tool_calls)
    if limits.tokens is not None:
        yield Budget("tokens", used.total_tokens, limits.tokens)
    if limits.cost is not None and limits.prices is not None:
        yield Budget("cost", limits.prices.cost(used), limits.cost)
    if limits.seconds is not None:
        yield Budget("seconds", used.seconds, limits.seconds)


def nearest(task: Task, limits: Limits) -> Budget | None:
    """The limit of which the least is left, when that is at most a sixth; None also when one is over."""
    found = list(budgets(task, limits))
    near = [one for one in found if one.near]
    if any(one.spent for one in near if one.name != "tool_calls"):
        return None
    return max(near, key=lambda one: one.used / one.limit, default=None)
