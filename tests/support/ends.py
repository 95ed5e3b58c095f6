"""How a task has ended, of a decision or of a state."""

from collections.abc import Mapping
from typing import Any

from signoff import Decision, Ended, Outcome, Session, ThreadError, outcome_of


def saved_outcome(values: Mapping[str, Any]) -> dict[str, Any] | None:
    """The outcome of a thread with these values; None while its task has not ended, or not yet begun."""
    if "outcome" not in values:
        return None
    try:
        return outcome_of(values).model_dump(mode="json")
    except ThreadError:
        return None


def to_the_end(session: Session[Any]) -> Outcome[Any]:
    """The outcome of a thread whose every question is answered by "yes"."""
    while waits := session.status().waits:
        session.resume("yes", waits[0].interrupt_id)
    outcome = session.status().outcome
    assert outcome is not None
    return outcome


def outcome_at(decision: Decision | None) -> Outcome:
    """The outcome of a task that has ended."""
    assert isinstance(decision, Ended), decision
    return decision.outcome
