"""The ways to answer what a thread waits for, as buttons and as words; every front end offers these.

What an answer means, and whether it fits, `signoff.session.decisions` says.
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
"""Options of a question that get a button of their own."""


@dataclass(frozen=True)
class Choice:
    """A button. key: the letter that presses it. answer: what it answers; None when more is to be typed, or
    when it runs an action again."""

    key: str
    label: str
    tone: Literal["primary", "success", "warning", "error", "default"]
    answer: Any = None


def choices(waiting: Waiting, call: PendingCall | None) -> Iterator[Choice]:
    """The buttons for what waits; of an approval, for one of its calls."""
    if isinstance(waiting, Question):
        for number, option in enumerate(waiting.options[:MOST_OPTIONS], start=1):
            yield Choice(str(number), cut(one_line(option), _OPTION), "primary", option)
    elif isinstance(waiting, Confirmation):
        yield Choice("y", "Confirm", "success", "yes")
    elif isinstance(waiting, Action):
        if waiting.unknown and waiting.tool == SHELL:
            yield Choice("g", "Run it again", "warning")
        yield Choice("u", "Report that it is not known", "primary", {"output": _UNKNOWN, "status": "error"})
    elif call:
        known = {
            "approve": Choice("a", "Approve", "success", {"type": "approve"}),
            "edit": Choice("e", "Edit", "primary"),
            "reject": Choice("r", "Reject", "error"),
            "respond": Choice("w", "Answer in its place", "default"),
        }
        yield from (known[kind] for kind in known if kind in call.allowed)


def decision_of(text: str, call: PendingCall) -> Mapping[str, Any]:
    """What was typed on a call: a decision's word, `reject: why`, or `edit: {…}`."""
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
    raise ThreadError(f"This decides nothing; say one of: {ways}. `reject: why` gives a reason.")


def approve(words: str) -> Mapping[str, Any]:
    """The decision to run a call as it stands. words: what was typed after it; raises ThreadError for any,
    since nobody would read them."""
    if words.strip():
        raise ThreadError(
            "Nothing was approved: no words can follow `approve`. Use `reject: why` to say what is wrong."
        )
    return {"type": "approve"}


def option_of(text: str, options: Sequence[str]) -> str:
    """What was typed on a question: an option, the option of a number, or the text itself."""
    is_number = text not in options and text.isdecimal() and len(text) <= _MOST_DIGITS
    return options[int(text) - 1] if is_number and 0 < int(text) <= len(options) else text


def still_waiting(status: ThreadStatus, interrupt_id: str) -> Waiting:
    """What was shown, if the thread waits for it still. Raises TooLate when it does not."""
    waiting = status.wait(interrupt_id)
    if waiting is None:
        raise TooLate("This came too late: somebody else has answered already. Nothing was changed.")
    return waiting


def answer_of(texts: Sequence[str], waiting: Waiting, shown: str = "") -> Any:
    """What was typed or pressed, as an answer to what waits. shown: the id of what the person has seen.

    Of an approval: what was typed on each of its calls, or one approval or rejection for all. Raises
    ThreadError for words that mean nothing.
    """
    if isinstance(waiting, Approval):
        return decisions_of(texts, waiting, shown)
    if len(texts) != 1:
        raise ThreadError(f"One answer is wanted, not {len(texts)}.")
    if isinstance(waiting, Question):
        return option_of(texts[0], waiting.options)
    pressed = (choice.answer for choice in choices(waiting, None))
    return next((answer for answer in pressed if as_typed(answer) == texts[0]), texts[0])


def as_typed(answer: Any) -> str | None:
    """The answer of a choice as words, which `answer_of` reads again."""
    return answer if answer is None or isinstance(answer, str) else json.dumps(answer)


def decisions_of(texts: Sequence[str], waiting: Approval, shown: str) -> Mapping[str, Any]:
    """What was typed on each of the calls that were shown under this id, or on all of them, as one
    answer."""
    if len(texts) == 1 < len(waiting.calls):
        found = decision_of(texts[0], waiting.calls[0])
        if found["type"] not in ("approve", "reject"):
            raise ThreadError(
                f"There are {len(waiting.calls)} calls; only an approval or a rejection is for all of them."
            )
        texts = [*texts] * len(waiting.calls)
    if len(texts) != len(waiting.calls):
        raise ThreadError(f"There are {len(waiting.calls)} calls to decide on, not {len(texts)}.")
    decided = [decision_of(text, call) for text, call in zip(texts, waiting.calls, strict=True)]
    return {"shown": shown, "decisions": decided}


def arguments_text(call: PendingCall) -> str:
    """The arguments of a call, to be edited."""
    return escape_invisible(json.dumps(dict(call.args), indent=2, ensure_ascii=False, default=str))


def hint(waiting: Waiting | None) -> str:
    """What the prompt is for."""
    if isinstance(waiting, Question):
        return "your answer, or the number of one"
    if isinstance(waiting, Confirmation):
        return "yes, or what is wrong"
    if isinstance(waiting, Action):
        return "its result"
    return "approve, or reject: why" if waiting else "describe the task; Enter sends it"


@dataclass(frozen=True)
class ThreadMove:
    """Something that a person can do with a thread as it stands, beside writing and answering."""

    name: Literal["pause", "stop", "go_on", "extend", "retry"]
    label: str


def moves(status: ThreadStatus, *, running: bool, here: bool) -> Iterator[ThreadMove]:
    """The moves that fit. running: in some process now. here: in this one."""
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
