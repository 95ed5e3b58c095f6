"""What the properties share: a reason, and which steps they look at."""

from signoff.graph.machine import State
from signoff.verify.machine import Step

Why = str | None


def asks_model(step: Step) -> bool:
    return step.before.place is State.CALL_LLM


def ends(step: Step) -> bool:
    return step.after.place is None and step.before.place is not None
