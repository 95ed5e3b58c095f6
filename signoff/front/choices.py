"""The ways to answer what a thread waits for, as buttons and as text, for every front end.

What an answer means, and whether it is valid, says `Waiting.read`.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from signoff import Action, Approval, PendingCall, Question, ThreadError, ThreadStatus, TooLate, Waiting
from signoff.front.text import cut, escape_invisible, one_line
from signoff.session import Condition

SHELL = "run_shell"
_OPTION = 40
_UNKNOWN = "It is not known whether this was done. Check before you do it again."
MOST_OPTIONS = 9
"""The most options of a question that get their own button."""


@dataclass(frozen=True)
class Choice:
    """A button. answer: the answer it gives; None if the person has to type more, or if it runs an action
    again. kind: that of a decision on a call."""

    label: str
    tone: Literal["primary", "success", "warning", "error", "default"]
    answer: Any = None
    kind: str = ""


def choices(waiting: Waiting, call: PendingCall | None) -> Iterator[Choice]:
    """Returns the buttons for a wait; for an approval, those for one of its calls."""
    if isinstance(waiting, Question):
        for option in waiting.options[:MOST_OPTIONS]:
            yield Choice(cut(one_line(option), _OPTION), "primary", option)
    elif isinstance(waiting, Action):
        if waiting.unknown and waiting.tool == SHELL:
            yield Choice("Run it again", "warning")
        yield Choice("Report that it is not known", "primary", {"output": _UNKNOWN, "status": "error"})
    elif call:
        known = (
            Choice("Approve", "success", {"type": "approve"}, "approve"),
            Choice("Edit", "primary", kind="edit"),
            Choice("Reject", "error", kind="reject"),
            Choice("Answer in its place", "default", kind="respond"),
        )
        yield from (choice for choice in known if choice.kind in call.allowed)


def waits_for(waiting: Waiting | None) -> str | None:
    """Returns what a wait is for, by the word of its document; None for no wait."""
    return None if waiting is None else str(waiting.document()["waits_for"])


def still_waiting(status: ThreadStatus, interrupt_id: str) -> Waiting:
    """Returns what was shown if the thread still waits for it. Raises TooLate if not."""
    waiting = status.wait(interrupt_id)
    if waiting is None:
        raise TooLate("This came too late: someone else has already answered. Nothing was changed.")
    return waiting


def answer_of(texts: Sequence[str], waiting: Waiting, shown: str = "") -> Any:
    """Returns typed text or a pressed button as an answer, which `waiting.read` then reads. shown: the id of
    what the person saw.

    For an approval: the text for each call, or one for all. Raises ThreadError for more answers than asked
    for.
    """
    if isinstance(waiting, Approval):
        return {"shown": shown, "decisions": texts[0] if len(texts) == 1 else list(texts)}
    if len(texts) != 1:
        raise ThreadError(f"Give one answer, not {len(texts)}.")
    pressed = (choice.answer for choice in choices(waiting, None))
    return next((answer for answer in pressed if as_typed(answer) == texts[0]), texts[0])


def as_typed(answer: Any) -> str | None:
    """Returns the answer of a choice as text that `answer_of` can read."""
    return answer if answer is None or isinstance(answer, str) else json.dumps(answer)


def arguments_text(call: PendingCall) -> str:
    """Returns the arguments of a call, for editing."""
    return escape_invisible(json.dumps(dict(call.args), indent=2, ensure_ascii=False, default=str))


def hint(waiting: Waiting | None) -> str:
    """Returns the hint in the prompt."""
    match waiting:
        case Question():
            return "your answer, or the number of an option"
        case Approval():
            return "approve, or " + (
                "what is wrong" if waits_for(waiting) == "confirmation" else "reject: why"
            )
        case Action():
            return "its result"
    return "describe a task; Enter sends it"


@dataclass(frozen=True)
class ThreadMove:
    """A command for a thread in its current status, besides writing and answering."""

    name: Literal["pause", "stop", "go_on"]
    label: str


def moves(status: ThreadStatus, *, running: bool, here: bool) -> Iterator[ThreadMove]:
    """Returns the possible moves. running: in any process now. here: in this one."""
    ended = "" if status.outcome is None else status.outcome.status
    if here or running:
        yield ThreadMove("pause", "Pause")
        if here:
            yield ThreadMove("stop", "End the task")
    elif status.condition.has_work_left:
        yield ThreadMove("go_on", "Go on")
        yield ThreadMove("stop", "End the task")
    elif status.condition is Condition.WAITING:
        waiting = status.wait()
        if isinstance(waiting, Action) and waiting.tool == SHELL and not waiting.unknown:
            yield ThreadMove("go_on", "Go on")
        yield ThreadMove("stop", "End the task")
    elif ended == "limit":
        yield ThreadMove("go_on", "More turns")
    elif ended == "error":
        yield ThreadMove("go_on", "Try again")
