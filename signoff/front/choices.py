"""The ways to answer what a thread waits for, as buttons and as text, for every front end.

`signoff.session.decisions` defines what an answer means, and whether it is valid.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from signoff.front.text import cut, escape_invisible, one_line
from signoff.graph.errors import ThreadError
from signoff.session.commands import TooLate
from signoff.session.decisions import (
    Action,
    Approval,
    Confirmation,
    PendingCall,
    Question,
    Waiting,
    read_json,
)
from signoff.session.status import Condition, ThreadStatus

SHELL = "run_shell"
_OPTION = 40
_MOST_DIGITS = 4
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
    elif isinstance(waiting, Confirmation):
        yield Choice("Confirm", "success", "yes")
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


def decision_of(text: str, call: PendingCall) -> Mapping[str, Any]:
    """Reads a typed decision on a call: a word, `reject: why`, or `edit: {…}`."""
    word, _, rest = text.partition(":")
    kind = word.strip().lower()
    if kind == "edit":
        try:
            return {"type": kind, "edited_action": {"name": call.name, "args": read_json(rest)}}
        except ValueError as error:
            raise ThreadError(f"The arguments are not valid JSON ({error}).") from error
    if kind in ("reject", "respond"):
        return {"type": kind, "message": rest.strip()}
    if kind == "approve":
        return approve(rest)
    ways = ", ".join(call.allowed)
    raise ThreadError(f"This is not a decision; use one of: {ways}. `reject: why` gives a reason.")


def approve(words: str) -> Mapping[str, Any]:
    """Returns the decision to run a call unchanged. words: any text after it; raises ThreadError if there is
    some, since nobody would read it."""
    if words.strip():
        raise ThreadError(
            "Nothing was approved: `approve` takes no further text. Use `reject: why` to say what is wrong."
        )
    return {"type": "approve"}


def option_of(text: str, options: Sequence[str]) -> str:
    """Reads a typed answer to a question: an option, the number of an option, or free text."""
    is_number = text not in options and text.isdecimal() and len(text) <= _MOST_DIGITS
    return options[int(text) - 1] if is_number and 0 < int(text) <= len(options) else text


def still_waiting(status: ThreadStatus, interrupt_id: str) -> Waiting:
    """Returns what was shown if the thread still waits for it. Raises TooLate if not."""
    waiting = status.wait(interrupt_id)
    if waiting is None:
        raise TooLate("This came too late: someone else has already answered. Nothing was changed.")
    return waiting


def answer_of(texts: Sequence[str], waiting: Waiting, shown: str = "") -> Any:
    """Returns typed text or a pressed button as an answer. shown: the id of what the person saw.

    For an approval: the text for each call, or one approval or rejection for all. Raises ThreadError for text
    that is not a valid answer.
    """
    if isinstance(waiting, Approval):
        return decisions_of(texts, waiting, shown)
    if len(texts) != 1:
        raise ThreadError(f"Give one answer, not {len(texts)}.")
    if isinstance(waiting, Question):
        return option_of(texts[0], waiting.options)
    pressed = (choice.answer for choice in choices(waiting, None))
    return next((answer for answer in pressed if as_typed(answer) == texts[0]), texts[0])


def as_typed(answer: Any) -> str | None:
    """Returns the answer of a choice as text that `answer_of` can read."""
    return answer if answer is None or isinstance(answer, str) else json.dumps(answer)


def decisions_of(texts: Sequence[str], waiting: Approval, shown: str) -> Mapping[str, Any]:
    """Returns one answer from the text for each of the calls shown under this id, or for all of them."""
    if len(texts) == 1 < len(waiting.calls):
        found = decision_of(texts[0], waiting.calls[0])
        if found["type"] not in ("approve", "reject"):
            raise ThreadError(
                f"There are {len(waiting.calls)} calls; only an approval or a rejection can apply to all."
            )
        texts = [*texts] * len(waiting.calls)
    if len(texts) != len(waiting.calls):
        raise ThreadError(f"There are {len(waiting.calls)} calls to decide on, not {len(texts)}.")
    decided = [decision_of(text, call) for text, call in zip(texts, waiting.calls, strict=True)]
    return {"shown": shown, "decisions": decided}


def arguments_text(call: PendingCall) -> str:
    """Returns the arguments of a call, for editing."""
    return escape_invisible(json.dumps(dict(call.args), indent=2, ensure_ascii=False, default=str))


def hint(waiting: Waiting | None) -> str:
    """Returns the hint in the prompt."""
    if isinstance(waiting, Question):
        return "your answer, or the number of an option"
    if isinstance(waiting, Confirmation):
        return "yes, or what is wrong"
    if isinstance(waiting, Action):
        return "its result"
    return "approve, or reject: why" if waiting else "describe a task; Enter sends it"


@dataclass(frozen=True)
class ThreadMove:
    """A command for a thread in its current status, besides writing and answering."""

    name: Literal["pause", "stop", "go_on", "extend", "retry"]
    label: str


def moves(status: ThreadStatus, *, running: bool, here: bool) -> Iterator[ThreadMove]:
    """Returns the possible moves. running: in any process now. here: in this one."""
    ended = str((status.outcome or {}).get("status", ""))
    if here or running:
        yield ThreadMove("pause", "Pause")
        if here:
            yield ThreadMove("stop", "End the task")
    elif status.condition is Condition.STOPPED:
        yield ThreadMove("go_on", "Go on")
        yield ThreadMove("stop", "End the task")
    elif status.condition is Condition.WAITING:
        if isinstance(status.waiting, Action) and status.waiting.tool == SHELL and not status.waiting.unknown:
            yield ThreadMove("go_on", "Go on")
        yield ThreadMove("stop", "End the task")
    elif ended == "limit":
        yield ThreadMove("extend", "More turns")
    elif ended == "error":
        yield ThreadMove("retry", "Try again")
