"""The rules of `decide`, in order. The first rule that applies reports its event.

Control calls come before limits, so a finish on the very last turn is a success; limits come before the
model's `finish_reason`; `stop` and `tool_calls` decide nothing at all. A budget tells how much of one limit a
task has used.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from types import MappingProxyType

from signoff.graph.history.reasons import StopReason
from signoff.graph.history.task import Task
from signoff.graph.history.usage import ROUND, Used
from signoff.graph.limits import Limits
from signoff.graph.machine import Event
from signoff.graph.state import Decision, TreeBudget
from signoff.graph.texts import Texts


@dataclass(frozen=True)
class Budget:
    """One limit by name, and how much of it is used."""

    name: str
    used: float
    limit: float
    words: str

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
        return self.words.format(used=self.used, limit=self.limit)

    def remaining(self, texts: Texts) -> str:
        """The remaining amount, in words for the model."""
        left = max(0, self.limit - self.used)
        percent = round(100 * left / self.limit)
        return texts.amounts[self.name].format(left=left, percent=percent)


@dataclass(frozen=True)
class CountedLimit:
    """A limit that is used up step by step. words: why the task ends at it. used: how much the task has used.
    most: the amount available; None for no limit. ends: whether the task ends as soon as the limit is used
    up, not only when one more is requested. total: for a limit on the whole tree, the usage of this task and
    all delegates below it since it began; None for a limit on a single machine.
    """

    words: str
    used: Callable[[Task, Limits], float]
    most: Callable[[Task, Limits], float | None]
    ends: bool = True
    total: Callable[[Task, Limits], float] | None = None


def _cost(used: Used, limits: Limits) -> float:
    return limits.prices.cost(used) + used.dearer + used.below_cost if limits.prices else 0.0


COUNTED: Mapping[str, CountedLimit] = MappingProxyType(
    {
        "turns": CountedLimit(
            "{used} of {limit} turns are used",
            lambda task, _: task.turns,
            lambda task, limits: task.most_turns(limits.turns),
        ),
        "tree_turns": CountedLimit(
            "{used} of {limit} turns of the tree are used",
            lambda task, _: task.turns + task.total.below_turns,
            lambda task, limits: limits.tree_turns and task.most_tree_turns(limits.tree_turns),
            total=lambda task, _: task.turns + task.total.below_turns,
        ),
        "tool_calls": CountedLimit(
            "{used} of {limit} tool calls are used",
            lambda task, _: task.used.tool_calls + task.used.below_calls,
            lambda _, limits: limits.tool_calls,
            ends=False,
            total=lambda task, _: task.total.tool_calls + task.total.below_calls,
        ),
        "children": CountedLimit(
            "{used} of {limit} delegates are started",
            lambda task, _: task.used.children,
            lambda _, limits: limits.children,
            ends=False,
        ),
        "tokens": CountedLimit(
            "{used:,} of {limit:,} tokens are used",
            lambda task, _: int(task.used.total_tokens + task.used.below_tokens + task.lost("tokens")),
            lambda _, limits: limits.tokens,
            total=lambda task, _: (
                task.total.total_tokens
                + task.total.below_tokens
                + int(task.lost("tokens", since_extended=False))
            ),
        ),
        "cost": CountedLimit(
            "{used:.6g} of {limit:g} is spent",
            lambda task, limits: _cost(task.used, limits) + task.lost("cost"),
            lambda _, limits: limits.cost if limits.prices else None,
            total=lambda task, limits: _cost(task.total, limits) + task.lost("cost", since_extended=False),
        ),
        "seconds": CountedLimit(
            "{used:.1f} of {limit:g} seconds of working time are used",
            lambda task, _: task.used.seconds + task.used.below_seconds,
            lambda _, limits: limits.seconds,
            total=lambda task, _: task.total.seconds + task.total.below_seconds,
        ),
    }
)
"""The limits that have a budget, by their names in `Limits`, turns first."""


SHARED = tuple(name for name, counted in COUNTED.items() if counted.total is not None)
"""The limits that apply to a whole tree of machines."""


def budget(name: str, task: Task, limits: Limits, tree: TreeBudget | None = None) -> Budget | None:
    """The budget of this name; None if there is no limit. In a delegate, it is its own limit or that of a
    machine above it, whichever leaves less. tree: the current values for those; defaults to the task's."""
    counted = COUNTED[name]
    most, known = counted.most(task, limits), tree or task.tree
    if most is None and known is None:
        return None
    own = None if most is None else Budget(name, counted.used(task, limits), most, counted.words)
    above = known["above"].get(name) if known else None
    if above is None or counted.total is None:
        return own
    used = above["others"] + counted.total(task, limits)
    whole = Budget(name, used, above["limit"], counted.words)
    return whole if own is None or whole.limit - whole.used < own.limit - own.used else own


def budgets(task: Task, limits: Limits) -> Iterator[Budget]:
    """All budgets with a limit, turns first."""
    return (found for name in COUNTED if (found := budget(name, task, limits)))


def nearest(task: Task, limits: Limits) -> Budget | None:
    """The budget with the least left, if that is at most a sixth; None also if one is used up."""
    found = list(budgets(task, limits))
    near = [one for one in found if one.near]
    if any(one.spent for one in near if COUNTED[one.name].ends):
        return None
    return max(near, key=lambda one: one.used / one.limit, default=None)


def is_last_turn(task: Task, limits: Limits) -> bool:
    """Whether a limit ends the task at the next decision, so that the last reply has no successor."""
    return any(found.spent and COUNTED[found.name].ends for found in budgets(task, limits))


Why = str | None
_REQUIRED = 3


@dataclass(frozen=True)
class Rule:
    """A name, the event to report, and a predicate that returns why the rule applies, or None.

    The name is shown in `decision`; for a rule that ends the task it is the outcome's reason, for a rule that
    reminds it is the kind of the nudge.
    """

    name: str
    event: Event
    applies: Callable[[Task, Limits], Why]


def _not_ready(task: Task, _: Limits) -> Why:
    return task.unready


def _ended(task: Task, _: Limits) -> Why:
    return "the thread has ended and nothing new has come" if task.ended else None


def _no_task(task: Task, _: Limits) -> Why:
    return "there is no message at all" if not task.id else None


def _cancelled(task: Task, _: Limits) -> Why:
    return "a stop was requested for this task" if task.stopped else None


def _calls_open(task: Task, _: Limits) -> Why:
    names = ", ".join(call.name for call in task.due)
    return f"open calls of the last reply: {names}" if task.due else None


def _needs_person(task: Task, _: Limits) -> Why:
    if task.ask and not task.can_ask:
        return f"{task.ask.name} was called, but there is no checkpointer to wait with"
    return None


def _asked(task: Task, _: Limits) -> Why:
    return f"{task.ask.name} stands ({task.ask.id})" if task.ask else None


def _claimed(task: Task, _: Limits) -> Why:
    return f"{task.finish.name} stands ({task.finish.id})" if task.finish else None


def _content_filter(task: Task, _: Limits) -> Why:
    return f"{task.filtered} refused or filtered replies in a row" if task.filtered >= 2 else None


def _used_up(name: str) -> Callable[[Task, Limits], Why]:
    """The rule of one budget. A person's message grants one more turn, but no more money or time."""

    def applies(task: Task, limits: Limits) -> Why:
        found = budget(name, task, limits)
        if found is None or not found.spent or (name == "turns" and task.answered):
            return None
        return found.why

    return applies


def _tool_calls(task: Task, limits: Limits) -> Why:
    found = budget("tool_calls", task, limits)
    return f"{found.why}, and one more was called" if found and task.used.refused else None


def _children(task: Task, limits: Limits) -> Why:
    found = budget("children", task, limits)
    return f"{found.why}, and one more was called" if found and task.used.no_more_children else None


def _depth(task: Task, limits: Limits) -> Why:
    return "a delegate was called below the deepest allowed level" if task.used.too_deep else None


def _repeats(task: Task, limits: Limits) -> Why:
    if limits.repeats is None or task.row.times < limits.repeats:
        return None
    return f"{task.row.times} identical results in a row"


def _spoke(task: Task, _: Limits) -> Why:
    return "the model waits for the user's next word" if task.spoke and task.can_ask else None


def _talk_turns(task: Task, limits: Limits) -> Why:
    if task.talk_turns < limits.talk_turns or task.answered:
        return None
    return f"{task.talk_turns} replies in a row without a call"


def _truncated(task: Task, _: Limits) -> Why:
    if task.fresh and task.fresh.stop is StopReason.LENGTH and "truncated" not in task.nudged:
        return "the last reply was cut off (finish_reason length)"
    return None


def _reasoning(task: Task, _: Limits) -> Why:
    if task.fresh and task.fresh.reasoning and "reasoning" not in task.nudged:
        return "there were only thoughts in the last reply"
    return None


def _empty(task: Task, _: Limits) -> Why:
    if task.fresh and task.fresh.empty and "empty" not in task.nudged:
        return "the last reply was empty"
    return None


def _filtered(task: Task, _: Limits) -> Why:
    if task.filtered == 1 and "filtered" not in task.nudged:
        return "the last reply was refused or filtered"
    return None


def repeats_to_mention(limits: Limits) -> int | None:
    """The number of repetitions at which the model is warned, once; None for never."""
    at = None if limits.repeats is None else max(2, (limits.repeats + 1) // 2)
    return at if at != limits.repeats else None


def _repeating(task: Task, limits: Limits) -> Why:
    told_at = repeats_to_mention(limits)
    if told_at is None or task.row.times < told_at or task.row.told:
        return None
    return f"{task.row.times} identical results in a row"


def _near_limit(task: Task, limits: Limits) -> Why:
    found = None if task.reminded else nearest(task, limits)
    return found.why if found else None


def _round(task: Task, _: Limits) -> Why:
    # Asked for, not forced: changing the tools for this one reply would invalidate the provider's cache of
    # the prompt.
    if task.batch and ROUND not in task.nudged:
        return f"a batch of {task.batch} call(s) has run; in rounds it is thought about before the next"
    return None


def _talked(task: Task, limits: Limits) -> Why:
    if _spoke(task, limits) or not task.fresh or not task.fresh.talk:
        return None
    answered = task.answered or "talked" in task.nudged
    return None if answered else "the history ends in a reply without a call"


def _think(_: Task, __: Limits) -> Why:
    return "nothing else applies"


TALKED = Rule("talked", Event.TALKED, _talked)
"""`route_tools` applies this rule, too, to a reply without calls, which saves a step through `decide`."""

RULES: tuple[Rule, ...] = (
    Rule("not_ready", Event.NOT_READY, _not_ready),
    Rule("no_task", Event.FAILED, _no_task),
    Rule("ended", Event.ENDED, _ended),
    Rule("cancelled", Event.CANCELLED, _cancelled),
    Rule("calls_open", Event.CALLS_OPEN, _calls_open),
    Rule("needs_person", Event.FAILED, _needs_person),
    Rule("asked", Event.ASKED, _asked),
    Rule("claimed", Event.CLAIMED, _claimed),
    Rule("content_filter", Event.FAILED, _content_filter),
    Rule("turns", Event.EXHAUSTED, _used_up("turns")),
    Rule("tree_turns", Event.EXHAUSTED, _used_up("tree_turns")),
    Rule("tool_calls", Event.EXHAUSTED, _tool_calls),
    Rule("children", Event.EXHAUSTED, _children),
    Rule("depth", Event.EXHAUSTED, _depth),
    Rule("tokens", Event.EXHAUSTED, _used_up("tokens")),
    Rule("cost", Event.EXHAUSTED, _used_up("cost")),
    Rule("seconds", Event.EXHAUSTED, _used_up("seconds")),
    Rule("repeats", Event.EXHAUSTED, _repeats),
    Rule("spoke", Event.ASKED, _spoke),
    Rule("talk_turns", Event.EXHAUSTED, _talk_turns),
    Rule("truncated", Event.REMIND, _truncated),
    Rule("reasoning", Event.REMIND, _reasoning),
    Rule("empty", Event.REMIND, _empty),
    Rule("filtered", Event.REMIND, _filtered),
    Rule("repeating", Event.REMIND, _repeating),
    Rule("near_limit", Event.REMIND, _near_limit),
    Rule(ROUND, Event.REMIND, _round),
    TALKED,
    Rule("think", Event.THINK, _think),
)


class ToolChoice(StrEnum):
    """What the next reply may call: anything or nothing, at least one tool, or a control tool.

    The request lists the same tools each time: different ones would invalidate the provider's prompt cache.
    """

    ALL = "all"
    REQUIRED = "required"
    CONTROLS = "controls"


LOOSER: Mapping[ToolChoice, ToolChoice] = MappingProxyType(
    {ToolChoice.CONTROLS: ToolChoice.REQUIRED, ToolChoice.REQUIRED: ToolChoice.ALL}
)
"""The fallback for a choice that a provider does not support."""


def tool_choice(task: Task, required: bool) -> ToolChoice:
    """The tool choice after replies without a call: two reminders, then a call is required, then a control
    call. `required`: always at least one call.

    Forcing calls from the start costs turns and traps weak models; so it comes late, and ends soon. After a
    person's answer the model is free to work again. After a reply that the provider refused, the choice is
    looser than the one by which that reply was asked for.
    """
    refused = sum(1 for _ in takewhile(lambda reply: reply.call_refused, reversed(task.replies)))
    climbed = 0 if task.answered else task.talk_turns - refused
    choice = ToolChoice.REQUIRED if required or climbed == _REQUIRED else ToolChoice.ALL
    if climbed > _REQUIRED:
        choice = ToolChoice.CONTROLS
    for _ in range(refused):
        choice = LOOSER.get(choice, choice)
    return choice


def decide(task: Task, limits: Limits) -> Decision:
    """The first rule that applies: its name, its event and the reason.

    A delegate's rules are applied twice to the same task: before `decide` for its ledger, and in it.
    """
    if task.decided is None or task.decided[0] is not limits:
        task.decided = limits, _decision(task, limits)
    found: Decision = task.decided[1]
    return found


def _decision(task: Task, limits: Limits) -> Decision:
    for rule in RULES:
        if why := rule.applies(task, limits):
            return Decision(rule=rule.name, event=rule.event.value, why=why)
    raise AssertionError("the last rule always applies")
