"""Phases: parts of a task that the model reports as done, while the task goes on."""

from collections.abc import Mapping, Sequence
from typing import Any

from signoff.graph.state import Phase, Phases

KEPT = 1_000
"""Characters of a phase's words that the state keeps; the history has all of them."""


def percentage(claim: Mapping[str, Any]) -> float:
    """How much of the task a finish says is done; 100 when its tool has no such argument."""
    value = claim.get("completion_percentage", 100)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 100


def is_phase(claim: Mapping[str, Any]) -> bool:
    """Whether a finish claims that a part is done, and not the whole task."""
    left = percentage(claim) < 100 or bool(claim.get("next_phase"))
    return claim.get("outcome", "done") == "done" and left


def phases_of(found: Phases | None, task: str) -> list[Phase]:
    """The phases of `task` that were reported, the oldest first."""
    return found["done"] if found and found["task"] == task else []


def with_phase(found: Phases | None, task: str, claim: Mapping[str, Any], turn: int) -> Phases:
    """The phases of `task` with the one that `claim`, the reply number `turn`, reports."""
    phase = Phase(
        percentage=percentage(claim),
        summary=str(claim.get("summary", ""))[:KEPT],
        next_phase=str(claim.get("next_phase") or "")[:KEPT],
        turn=turn,
    )
    return Phases(task=task, done=[*phases_of(found, task), phase])


def is_new(claim: Mapping[str, Any], before: Sequence[Phase]) -> bool:
    """Whether a phase says something that the last one did not: more done, or another next phase."""
    if not before:
        return True
    following = str(claim.get("next_phase") or "")[:KEPT]
    return percentage(claim) > before[-1]["percentage"] or following != before[-1]["next_phase"]


def open_phases(found: Phases | None, task: str, turns: int | None = None) -> list[str]:
    """What the phases of `task` leave to do, one line each, for the model to read.

    turns: only those reported in the first so many turns. Nothing once there is none.
    """
    reported = [phase for phase in phases_of(found, task) if turns is None or phase["turn"] <= turns]
    return [_line(phase) for phase in reported]


def _line(phase: Phase) -> str:
    following = f"; next: {phase['next_phase']}" if phase["next_phase"] else ""
    return f"{phase['percentage']:g} % done: {phase['summary']}{following}"
