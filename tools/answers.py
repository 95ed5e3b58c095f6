"""Reads a person's answers: to a question, and to a finish that waits for confirmation."""

import json
import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from signoff.graph.messages import KEY
from signoff.graph.texts import DEFAULT_TEXTS, Texts
from signoff.tools.approvals import NO, YES

_BY = "by"
_SAID = ("answer", "message", "args", "response", "text", "content")
_NOTHING_SAID = ("ignore", "ignored")
_MOST_DIGITS = 9


_CALLS = frozenset({"call_id", "call_ids"})


def is_own(payload: Any) -> bool:
    """Whether this interrupt value comes from Signoff, not from other code: it names the calls that it is
    about."""
    return isinstance(payload, Mapping) and not _CALLS.isdisjoint(payload)


def signed(answer: Any, by: str | None) -> Any:
    """`answer` together with the name of the person who gave it; unchanged without a name."""
    return {KEY: {_BY: by}, "answer": answer} if by else answer


def unsigned(answer: Any) -> tuple[Any, dict[str, Any]]:
    """An answer, and the mark that records who gave it; no mark if unknown."""
    if not isinstance(answer, Mapping) or set(answer) != {KEY, "answer"}:
        return answer, {}
    marks = answer[KEY]
    by = marks.get(_BY) if isinstance(marks, Mapping) else None
    return answer["answer"], {_BY: by} if isinstance(by, str) else {}


def read_question(answer: Any, options: Sequence[str] = ()) -> Any:
    """The text of a person's answer: from the wrapping of an inbox or a chat page (`[{"type": "response",
    "args": …}]`, `{"answer": …}`, `{"decisions": […]}`), or the option with this number; "" for no answer.

    Idempotent: reading its own result gives the same.
    """
    said = _unwrapped(answer)
    if said is None or said in ({}, []):
        return ""
    if isinstance(said, str | int) and not isinstance(said, bool):
        text = str(said).strip()
        numbered = text not in options and text.isdecimal() and len(text) <= _MOST_DIGITS
        if numbered and 0 < int(text) <= len(options):
            return options[int(text) - 1]
    return said


def _unwrapped(answer: Any) -> Any:
    # Terminates, since each wrapping contains less than the one around it.
    while True:
        inside = _inside(answer)
        if inside is answer:
            return answer
        answer = inside


def _inside(answer: Any) -> Any:
    """The content of one wrapping; the answer itself if there is none."""
    if isinstance(answer, Mapping) and isinstance(answer.get("decisions"), list):
        answer = answer["decisions"]
    if isinstance(answer, list) and len(answer) == 1 and isinstance(answer[0], Mapping):
        answer = answer[0]
    if not isinstance(answer, Mapping):
        return answer
    said = next((answer[key] for key in _SAID if answer.get(key) is not None), None)
    if said is not None and ("type" in answer or len(answer) == 1):
        return said
    kind = answer.get("type")
    if isinstance(kind, str) and all(answer[key] is None for key in answer if key != "type"):
        return None if kind in _NOTHING_SAID else kind
    return answer


def waiting_time(args: Mapping[str, Any], asked_at: float | None) -> dict[str, Any]:
    """The part of a question's payload for its deadline: `default` (text) and `deadline` (seconds since the
    epoch), each only if the arguments have a usable value.

    asked_at: when the question was asked, in seconds since the epoch; None if unknown.
    """
    found: dict[str, Any] = {}
    default, seconds = text_of(args.get("default_answer")), seconds_of(args.get("deadline_seconds"))
    if default is not None:
        found["default"] = default
    if seconds is not None and asked_at is not None:
        found["deadline"] = asked_at + seconds
    return found


def seconds_of(value: Any) -> float | None:
    """A model's duration, in seconds; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if 0 < seconds < math.inf else None


def text_of(value: Any) -> str | None:
    """A model's short answer, as text; None for anything else."""
    if not isinstance(value, bool | int | float | str):
        return None
    return (value if isinstance(value, str) else json.dumps(value)).strip() or None


def expired(payload: Any, now: float, texts: Texts = DEFAULT_TEXTS) -> str | None:
    """The answer to use for a question whose deadline has passed: its default, or a text saying that nobody
    answered. None while it still waits, and for anything but a question with a deadline.

    payload: the value of an interrupt. now: seconds since the epoch.
    """
    if not isinstance(payload, Mapping) or payload.get("type") != "question":
        return None
    deadline = payload.get("deadline")
    if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not now >= deadline:
        return None
    default = payload.get("default")
    return default if isinstance(default, str) and default else texts.results["nobody_answered"].format()


_YES = YES | {"accepted", "confirm", "confirmed"}
_WORDS = ("feedback", "message", "args", "answer", "response", "text", "content")


@dataclass(frozen=True)
class ConfirmationAnswer:
    """Whether a person confirmed the finish, and their comment; for a no, the feedback."""

    ok: bool
    feedback: str = ""


def read_confirmation(answer: Any) -> ConfirmationAnswer:
    """The answer, in any of its forms: a bool, a word, any other text (which is feedback), `{"confirmed": …,
    "feedback": …}`, `{"type": "approve"}`, or a list of one of these, also under `decisions`, as inboxes and
    chat pages send it.

    Raises ValueError, with the reason, for anything that is neither a yes nor a no.
    """
    if isinstance(answer, Mapping) and "decisions" in answer:
        answer = answer["decisions"]
    if isinstance(answer, list | tuple):
        if len(answer) != 1:
            raise ValueError(f"{len(answer)} decisions for one finish")
        answer = answer[0]
    if isinstance(answer, Mapping):
        return _structured(answer)
    return _plain(answer)


def _plain(answer: Any) -> ConfirmationAnswer:
    if isinstance(answer, bool):
        return ConfirmationAnswer(answer)
    if not isinstance(answer, str) or not answer.strip():
        raise ValueError(f"{reprlib.repr(answer)} is neither a yes nor words")
    word = answer.strip().lower().rstrip(".!")
    if word in _YES:
        return ConfirmationAnswer(True)
    return ConfirmationAnswer(False, "" if word in NO else answer.strip())


def _structured(answer: Mapping[str, Any]) -> ConfirmationAnswer:
    said = next((found.strip() for key in _WORDS if isinstance(found := answer.get(key), str)), "")
    if "confirmed" in answer:
        return _with_words(_plain(answer["confirmed"]), said)
    kind = answer.get("type")
    word = kind.strip().lower() if isinstance(kind, str) else None
    if word is not None and word in _YES | NO:
        return _with_words(_plain(word), said)
    if said and word in (None, "feedback", "respond", "response"):
        return _plain(said)
    raise ValueError(f"{reprlib.repr(answer)} is neither a yes nor words")


def _with_words(found: ConfirmationAnswer, said: str) -> ConfirmationAnswer:
    return ConfirmationAnswer(found.ok, said or found.feedback)
