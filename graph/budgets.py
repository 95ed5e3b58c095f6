"""How much of each limit a task has used, and which of them is the nearest."""

from collections.abc import Callable, Iterator, Mapping
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


def _turns(task: Task, limits: Limits) -> Budget:
    return Budget("turns", task.turns, limits.turns + task.extra_turns)


def _tool_calls(task: Task, limits: Limits) -> Budget | None:
    most = limits.tool_calls
    return None if most is None else Budget("tool_calls", task.used.tool_calls, most)


def _tokens(task: Task, limits: Limits) -> Budget | None:
    most = limits.tokens
    return None if most is None else Budget("tokens", task.used.total_tokens, most)


def _cost(task: Task, limits: Limits) -> Budget | None:
    if limits.cost is None or limits.prices is None:
        return None
    return Budget("cost", limits.prices.cost(task.used), limits.cost)


def _seconds(task: Task, limits: Limits) -> Budget | None:
    return None if limits.seconds is None else Budget("seconds", task.used.seconds, limits.seconds)


_BUDGETS: Mapping[str, Callable[[Task, Limits], Budget | None]] = {
    "turns": _turns,
    "tool_calls": _tool_calls,
    "tokens": _tokens,
    "cost": _cost,
    "seconds": _seconds,
}


def budget(name: str, task: Task, limits: Limits) -> Budget | None:
    """The budget of this name; None when it has no limit."""
    return _BUDGETS[name](task, limits)


def budgets(task: Task, limits: Limits) -> Iterator[Budget]:
    """All that is limited, the turns first."""
    return (found for of in _BUDGETS.values() if (found := of(task, limits)))


def nearest(task: Task, limits: Limits) -> Budget | None:
    """The limit of which the least is left, when that is at most a sixth; None also when one is over."""
    found = list(budgets(task, limits))
    near = [one for one in found if one.near]
    if any(one.spent for one in near if one.name != "tool_calls"):
        return None
    return max(near, key=lambda one: one.used / one.limit, default=None)
