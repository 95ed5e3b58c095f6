"""How a person's answer to a finish that waits for confirmation is read: a yes, or what is wrong."""

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from signoff.tools.approvals import NO, YES

_YES = YES | {"accepted", "confirm", "confirmed"}
_WORDS = ("feedback", "message", "args", "answer", "response", "text", "content")


@dataclass(frozen=True)
class Confirmed:
    """Whether a person confirmed the finish, and what they said beside it; for a no, the feedback."""

    ok: bool
    feedback: str = ""


def read_confirmation(answer: Any) -> Confirmed:
    """The answer, in any of its shapes: a bool, a word, any other text (which is feedback),
    `{"confirmed": …, "feedback": …}`, `{"type": "approve"}`, or a list of one of these, also under
    `decisions`, as inboxes and chat pages send it.

    Raises ValueError, with the reason, for what is neither a yes nor a no.
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


def _plain(answer: Any) -> Confirmed:
    if isinstance(answer, bool):
        return Confirmed(answer)
    if not isinstance(answer, str) or not answer.strip():
        raise ValueError(f"{reprlib.repr(answer)} is neither a yes nor words")
    word = answer.strip().lower().rstrip(".!")
    if word in _YES:
        return Confirmed(True)
    return Confirmed(False, "" if word in NO else answer.strip())


def _structured(answer: Mapping[str, Any]) -> Confirmed:
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


def _with_words(found: Confirmed, said: str) -> Confirmed:
    return Confirmed(found.ok, said or found.feedback)
