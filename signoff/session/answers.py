"""Answers to what a thread waits for: read tolerantly, checked before they are delivered.

An answer that does not fit is a ThreadError that says what would; the thread is left as it was.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from signoff.graph.errors import ThreadError
from signoff.graph.foreign import valid_text, valid_values
from signoff.nodes.tool_calls.results import saves
from signoff.tools.answers import read_confirmation, read_question
from signoff.tools.approvals import Decision, looks_named, read_answer, take_ids

HOW = "approve, reject, 'reject: why', or JSON with one decision for each call"
_WORDS = re.compile(
    r"(?P<word>approved?|accept|yes|y|ok)|(?P<no>reject(?:ed)?|no|n)\b[\s:,;.-]*(?P<why>.*)", re.I | re.S
)


def question_answer(answer: Any, options: Sequence[str]) -> Any:
    """The answer to a question: its text, also out of an inbox's or a chat page's wrapping; the option that
    a number names; "" for none."""
    _for_this(answer)
    return plain_value(read_question(answer, options))


Asked = Sequence[tuple[str, str, Mapping[str, Any], Sequence[str], Mapping[str, Any] | None]]
"""Calls that wait for a decision: the id, the tool, the arguments, the decisions that are allowed, and the
schema of edited arguments."""


def approval_answer(answer: Any, calls: Asked, shown: str) -> Any:
    """The decisions for `calls`, which were shown under the short id `shown`."""
    given = _given(answer, len(calls))
    _read(given, calls, shown)
    return plain_value(given)


def says_which(answer: Any, calls: Asked, shown: str) -> bool:
    """Whether an answer to `calls` says what it was given for, or needs not to: a rejection lets nothing run.

    Raises ThreadError for one that does not fit.
    """
    given = _given(answer, len(calls))
    found = _read(given, calls, shown)
    return bool(take_ids(given)[1]) or all(decision.type == "reject" for decision in found)


def _given(answer: Any, calls: int) -> Any:
    """The decisions of an answer, which may be words."""
    words, named = take_ids(answer) if isinstance(answer, str) else (answer, frozenset())
    given = _decisions_in_words(words, calls) if isinstance(words, str) else words
    if given is None or given in ({}, []):
        raise ThreadError(f"Nothing was answered; give {HOW}.")
    return {"shown": min(named), "decisions": given} if named and isinstance(words, str) else given


def _read(given: Any, calls: Asked, shown: str) -> list[Decision]:
    try:
        return read_answer(
            given,
            [(name, args) for _, name, args, _, _ in calls],
            [allowed for _, _, _, allowed, _ in calls],
            ids=[call_id for call_id, _, _, _, _ in calls],
            shown=shown,
            schemas=[schema for _, _, _, _, schema in calls],
        )
    except ValueError as error:
        raise ThreadError(f"The answer does not fit: {error}. Give {HOW}.") from error


_OBSERVED = {"output", "status", "seconds"}


def action_answer(answer: Any) -> Any:
    """What an action came to; an observation may be written as JSON, as from a command line."""
    _for_this(answer)
    found = _from_json(answer) if isinstance(answer, str) else answer
    observed = isinstance(found, Mapping) and "output" in found and set(found) <= _OBSERVED
    return plain_value(found if observed else answer)


def confirmation_answer(answer: Any, shown: str) -> Any:
    """A yes, or what is wrong. shown: the short id of the finish, which `yes@ID` names."""
    _for_this(answer, shown)
    answer = take_ids(answer)[0] if looks_named(answer) else _from_json(answer)
    try:
        read_confirmation(answer)
    except ValueError as error:
        raise ThreadError(f"The answer does not fit: {error}. Give yes, or say what is wrong.") from error
    return plain_value(answer)


def _for_this(answer: Any, shown: str = "") -> None:
    """Raises ThreadError for a decision that names something else: its words are no answer here."""
    found = _from_json(answer)
    decides = isinstance(found, Mapping) and {"shown", "decisions"} <= set(found)
    named = take_ids(found)[1] if decides or looks_named(answer) else frozenset()
    if other := sorted(named - {shown}):
        raise ThreadError(
            f"The answer does not fit: {other[0]!r} is not the id of what waits now; look at that first. "
            "Nothing was changed."
        )


def read_json(text: str) -> Any:
    """What a person typed as JSON, as it can be saved. Raises ValueError when it is none."""
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    # An escape may stand for half a character, which no database takes.
    return json.loads(valid_text(json.dumps(value, ensure_ascii=False)))


def plain_value(value: Any) -> Any:
    """`value` as a checkpoint can hold it. Raises ThreadError for one that it cannot."""
    if isinstance(value, str):
        return valid_text(value)
    try:
        found = valid_values(json.loads(json.dumps(value, default=str)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ThreadError(
            f"The answer cannot be saved ({error}); give text, or plain JSON values."
        ) from error
    if not saves(found):
        raise ThreadError("The answer cannot be saved; give text, or plain JSON values.")
    return found


def _from_json(answer: Any) -> Any:
    """JSON that came as text, as a command line gives it; words as they are."""
    if not isinstance(answer, str) or not answer.lstrip().startswith(("{", "[")):
        return answer
    try:
        return read_json(answer)
    except ValueError:
        return answer


def _decisions_in_words(text: str, calls: int) -> Any:
    if text.lstrip().startswith(("{", "[")):
        try:
            return read_json(text)
        except ValueError as error:
            raise ThreadError(f"The answer is no valid JSON ({error}); give {HOW}.") from error
    found = _WORDS.fullmatch(text.strip())
    if found is None:
        raise ThreadError(f"{text.strip()!r} is no decision; give {HOW}.")
    if found["word"]:
        return [{"type": "approve"}] * calls
    return [{"type": "reject", "message": found["why"].strip()}] * calls
