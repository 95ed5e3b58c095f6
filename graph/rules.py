"""The rules of `decide`, in order. The first that applies reports its event.

Control calls stand before limits, so a finish on the very last turn is a success; limits stand before the
model's `finish_reason`; `stop` and `tool_calls` decide nothing at all.
"""

from collections.abc import Callable
from dataclasses import dataclass

from signoff.graph.limits import Limits
from signoff.graph.machine import Event
from signoff.graph.replies import Stop
from signoff.graph.state import Decision
from signoff.graph.task import Task

Why = str | None


@dataclass(frozen=True)
class Rule:
    """A name, the event to report, and a predicate that says why the rule applies, or None.

    The name is what `decision` shows; for a rule that ends the task it is the outcome's reason, for a rule
    that reminds it is the kind of the nudge.
    """

    name: str
    event: Event
    applies: Callable[[Task, Limits], Why]


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


def _turns(task: Task, limits: Limits) -> Why:
    if task.turns < limits.turns or task.answered:
        return None
    return f"{task.turns} of {limits.turns} turns are used"


def _talk_turns(task: Task, limits: Limits) -> Why:
    if task.talk_turns < limits.talk_turns:
        return None
    return f"{task.talk_turns} replies in a row without a call"


def _truncated(task: Task, _: Limits) -> Why:
    if task.fresh and task.fresh.stop is Stop.LENGTH and "truncated" not in task.nudged:
        return "the last reply was cut off (finish_reason length)"
    return None


def _empty(task: Task, _: Limits) -> Why:
    if task.fresh and task.fresh.empty and "empty" not in task.nudged:
        return "the last reply was empty"
    return None


def _filtered(task: Task, _: Limits) -> Why:
    if task.filtered == 1 and "filtered" not in task.nudged:
        return "the last reply was refused or filtered"
    return None


def _near_limit(task: Task, limits: Limits) -> Why:
    if task.turns < limits.remind_at or task.turns >= limits.turns or task.reminded:
        return None
    return f"{task.turns} of {limits.turns} turns are used"


def _talked(task: Task, _: Limits) -> Why:
    if task.fresh and task.fresh.talk and "talked" not in task.nudged:
        return "the history ends in a reply without a call"
    return None


def _think(_: Task, __: Limits) -> Why:
    return "nothing else applies"


RULES: tuple[Rule, ...] = (
    Rule("no_task", Event.FAILED, _no_task),
    Rule("ended", Event.ENDED, _ended),
    Rule("cancelled", Event.CANCELLED, _cancelled),
    Rule("calls_open", Event.CALLS_OPEN, _calls_open),
    Rule("needs_person", Event.FAILED, _needs_person),
    Rule("asked", Event.ASKED, _asked),
    Rule("claimed", Event.CLAIMED, _claimed),
    Rule("content_filter", Event.FAILED, _content_filter),
    Rule("turns", Event.EXHAUSTED, _turns),
    Rule("talk_turns", Event.EXHAUSTED, _talk_turns),
    Rule("truncated", Event.REMIND, _truncated),
    Rule("empty", Event.REMIND, _empty),
    Rule("filtered", Event.REMIND, _filtered),
    Rule("near_limit", Event.REMIND, _near_limit),
    Rule("talked", Event.TALKED, _talked),
    Rule("think", Event.THINK, _think),
)


def decide(task: Task, limits: Limits) -> Decision:
    """The first rule that applies: its name, its event and why."""
    if task.extra_turns:
        limits = limits.model_copy(update={"turns": limits.turns + task.extra_turns})
    for rule in RULES:
        if why := rule.applies(task, limits):
            return Decision(rule=rule.name, event=rule.event.value, why=why)
    raise AssertionError("the last rule always applies")
