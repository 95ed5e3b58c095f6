"""Reads a person's answer to what a thread waits for: one reader, for every way in.

A wait is an interrupt; its payload says what was asked. `read` returns what would be delivered, or raises
BadAnswer, and nothing changes. The entry of a graph and a session call it before anything is saved; in the
graph of somebody else, it stands behind the `response_schema` of the interrupt.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from langgraph.types import interrupt
from pydantic import BeforeValidator, WithJsonSchema

from signoff.graph.errors import BadAnswer
from signoff.graph.foreign import valid_text
from signoff.graph.messages import KEY
from signoff.graph.texts import DEFAULT_TEXTS, Texts
from signoff.graph.values import sound
from signoff.tools.approvals import (
    DECISIONS,
    ApprovalDecision,
    content_id_of_calls,
    looks_named,
    read_answer,
    take_ids,
)

_BY = "by"
_SAID = ("answer", "message", "args", "response", "text", "content")
_NOTHING_SAID = ("ignore", "ignored")
_NOT_SAID = frozenset({*DECISIONS, "accept"} - {"respond"})
_CALLS = frozenset({"call_id", "call_ids"})
_MOST_DIGITS = 9
_LONGEST = 300
_OBSERVED = {"output", "status", "seconds"}

APPROVAL, QUESTION, ACTION = "approval", "question", "action"
"""The types of a wait, in its payload."""

HOW = (
    "approve, reject, 'reject: why', 'edit: {arguments}', 'respond: its result', or JSON with one decision "
    "for each call"
)
HOW_TO_CONFIRM = "yes, or say what is wrong"
_WORDS = re.compile(
    r"(?P<word>approved?|accept(?:ed)?|yes|y|ok|true|confirm(?:ed)?)[.!]?|(?P<no>reject(?:ed)?|no|n|false)\b[\s:,;.-]*(?P<why>.*)",
    re.I | re.S,
)


def ask(
    payload: Mapping[str, Any], interrupt_id: str, check: Callable[[Any], None] = lambda _: None
) -> tuple[Any, dict[str, Any]]:
    """Waits for a person. Returns the answer as delivered, and the mark that records who gave it.

    check: raises BadAnswer for what the payload alone cannot tell, from what `read` returned.
    """

    def fitting(answer: Any) -> Any:
        # Its error names this function, so it must hold nothing that nobody may see.
        try:
            check(read(payload, interrupt_id, unwrapped(answer)))
            return delivered(payload, interrupt_id, answer)
        except BadAnswer as error:
            raise ValueError(str(error)) from error

    checked = Annotated[Any, BeforeValidator(fitting), WithJsonSchema({"title": "Answer"})]
    return unsigned(interrupt(dict(payload), response_schema=checked))


def delivered(payload: Mapping[str, Any], interrupt_id: str, answer: Any) -> Any:
    """The answer as it is saved, with the name of who gave it and the time that a driver measured."""
    bare, marks = unsigned(answer)
    value = read(payload, interrupt_id, unwrapped(bare))
    if isinstance(bare, Mapping) and set(bare) == {KEY, "observed"}:
        value = {KEY: plain_value(bare[KEY]), "observed": value}
    return signed(value, valid_text(marks.get(_BY, "")))


def read(payload: Mapping[str, Any], interrupt_id: str, answer: Any) -> Any:
    """What is delivered for an answer to a wait of Signoff's with this payload.

    Raises BadAnswer for an answer that does not fit.
    """
    match payload.get("type"):
        case "approval":
            return read_approval(answer, asked_of(payload), _shown(payload, interrupt_id), payload)
        case "action":
            return read_action(answer)
    options = payload.get("options")
    return read_question(answer, list(map(str, options)) if isinstance(options, list | tuple) else ())


def unwrapped(answer: Any) -> Any:
    """An answer without the name of who gave it, and without the time that a driver measured."""
    answer = unsigned(answer)[0]
    if isinstance(answer, Mapping) and set(answer) == {KEY, "observed"}:
        return answer["observed"]
    return answer


Asked = Sequence[tuple[str, str, Mapping[str, Any], Sequence[str], Mapping[str, Any] | None]]
"""Calls that wait for a decision: id, tool, arguments, allowed decisions, and the schema of edited
arguments."""


def asked_of(payload: Mapping[str, Any]) -> Asked:
    """The calls that the payload of an approval names."""
    actions = payload["action_requests"]
    configs = payload.get("review_configs") or [{}] * len(actions)
    ids = payload.get("call_ids") or [""] * len(actions)
    return [
        (
            str(call_id),
            action["name"],
            action["args"],
            config.get("allowed_decisions") or DECISIONS,
            config.get("args_schema"),
        )
        for action, config, call_id in zip(actions, configs, ids, strict=True)
    ]


def _shown(payload: Mapping[str, Any], interrupt_id: str) -> str:
    calls = [(call_id, name, args) for call_id, name, args, _, _ in asked_of(payload)]
    return content_id_of_calls(interrupt_id, calls)


def read_approval(answer: Any, calls: Asked, shown: str, payload: Mapping[str, Any]) -> Any:
    """The decisions for `calls`, which were shown under the short id `shown`."""
    given = _parse_decisions(answer, len(calls), finishes=bool(payload.get("finish")))
    decisions_of(given, calls, shown)
    return plain_value(given)


def decisions_of(given: Any, calls: Asked, shown: str) -> list[ApprovalDecision]:
    """One decision for each call. Raises BadAnswer for decisions that do not fit."""
    try:
        return read_answer(
            given,
            [(name, args) for _, name, args, _, _ in calls],
            [allowed for _, _, _, allowed, _ in calls],
            ids=[call_id for call_id, _, _, _, _ in calls],
            shown=shown,
            schemas=[schema for _, _, _, _, schema in calls],
        )
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"The answer does not fit: {str(error)[:_LONGEST]}. Answer with {HOW}.") from error


def langchain_answer(answer: Any, calls: Asked, shown: str) -> list[dict[str, Any]]:
    """The decisions for `calls`, one for each, in the form of LangChain's middleware."""
    found = decisions_of(_parse_decisions(answer, len(calls)), calls, shown)
    given = [_for_langchain(name, one) for (_, name, *_), one in zip(calls, found, strict=True)]
    decisions: list[dict[str, Any]] = plain_value(given)
    return decisions


def _for_langchain(name: str, decision: ApprovalDecision) -> dict[str, Any]:
    found: dict[str, Any] = {"type": decision.type}
    if decision.type == "edit":
        found["edited_action"] = {"name": name, "args": dict(decision.args or {})}
    if decision.type == "respond" or (decision.type == "reject" and decision.message):
        found["message"] = decision.message
    return found


def _parse_decisions(answer: Any, calls: int, *, finishes: bool = False) -> Any:
    """The decisions of an answer, which may be words.

    finishes: the call is a finish, and other words say what is wrong with it.
    """
    answer = unwrapped(answer)
    words, named = take_ids(answer) if isinstance(answer, str) else (answer, frozenset())
    how = HOW_TO_CONFIRM if finishes else HOW
    if finishes and isinstance(words, Mapping):
        words = _confirmed(words)
    given = _decisions_in_words(words, calls, finishes) if isinstance(words, str) else words
    if isinstance(given, Mapping) and "decisions" in given:
        beside = given.get("call_ids")
        several = len(beside) if isinstance(beside, list | tuple) else calls
        given = {**given, "decisions": _each_in_words(given["decisions"], several, finishes)}
    else:
        given = _each_in_words(given, calls, finishes)
    if given is None or given in ({}, []):
        raise BadAnswer(f"Nothing was answered; answer with {how}.")
    return {"shown": min(named), "decisions": given} if named and isinstance(words, str) else given


def _each_in_words(given: Any, calls: int, finishes: bool) -> Any:
    """Decisions, some of which may be words: a text for all calls, or one in a list for its own call."""
    if isinstance(given, str) and not looks_named(given):
        return _decisions_in_words(given, calls, finishes)
    if not isinstance(given, list | tuple):
        return given
    return [_own_in_words(one, finishes) for one in given]


def _own_in_words(decision: Any, finishes: bool) -> Any:
    """The decision on one call, which may be a text, and that JSON."""
    if not isinstance(decision, str) or looks_named(decision):
        return decision
    read = _decisions_in_words(decision, 1, finishes)
    return read[0] if isinstance(read, list) and len(read) == 1 else read


def _confirmed(answer: Mapping[str, Any]) -> Any:
    """A confirmation as decisions: `{"confirmed": …, "feedback": …}`, or text in the wrapping of an inbox."""
    said = next((answer[key] for key in ("feedback", *_SAID) if isinstance(answer.get(key), str)), "")
    if "confirmed" in answer:
        word = answer["confirmed"]
        return {"type": "reject", "message": said} if word is False or (said and word != "yes") else word
    if said and answer.get("type") in (None, "feedback", "respond", "response"):
        return said
    return answer


def _decisions_in_words(text: str, calls: int, finishes: bool) -> Any:
    if text.lstrip().startswith(("{", "[")):
        try:
            return read_json(text)
        except ValueError as error:
            if not finishes:
                raise BadAnswer(f"The answer is not valid JSON ({error}); answer with {HOW}.") from error
    words = _WORDS.fullmatch(text.strip())
    if words is not None:
        reason = (words["why"] or "").strip()
        return [{"type": "approve"} if words["word"] else {"type": "reject", "message": reason}] * calls
    if finishes and not text.strip():
        raise BadAnswer(f"Nothing was answered; answer with {HOW_TO_CONFIRM}.")
    if finishes and not looks_named(text):
        return [{"type": "reject", "message": text.strip()}]
    kind, _, rest = (part.strip() for part in text.partition(":"))
    return [_decision_in_words(kind.lower(), rest, calls)] * calls


def _decision_in_words(kind: str, rest: str, calls: int) -> dict[str, Any]:
    """The decision of a text such as `respond: 42`. calls: how many calls the text is for."""
    if kind == "approve" and not rest:
        return {"type": "approve"}
    if kind == "approve":
        raise BadAnswer(
            "Nothing was approved: `approve` takes no further text. Use `reject: why` to say what is wrong."
        )
    if kind not in ("edit", "respond"):
        raise BadAnswer(f"{kind[:_LONGEST]!r} is not a decision; answer with {HOW}.")
    if calls > 1:
        raise BadAnswer(f"There are {calls} calls; only an approval or a rejection can apply to all.")
    if kind == "respond":
        return {"type": "respond", "message": rest}
    try:
        return {"type": "edit", "edited_action": {"args": read_json(rest)}}
    except ValueError as error:
        raise BadAnswer(f"The arguments are not valid JSON ({error}).") from error


def options_of(args: Mapping[str, Any]) -> list[Any]:
    """The options of a question, from the arguments of its call."""
    options = args.get("options") or []
    return [options] if isinstance(options, str) else list(options)


def read_action(answer: Any) -> Any:
    """The observation of an action, which may be JSON text, as from a command line. Raises BadAnswer for a
    decision: nobody has observed anything then."""
    observed = _from_json(unwrapped(answer))
    if _decides(observed) or looks_named(answer):
        raise BadAnswer(
            "The answer does not fit: this call is handed over, and a decision says nothing of what it gave. "
            "Answer with its output as text, or with {'output': …, 'status': …}."
        )
    is_form = isinstance(observed, Mapping) and "output" in observed and set(observed) <= _OBSERVED
    return plain_value(observed if is_form else unwrapped(answer))


def _decides(answer: Any) -> bool:
    """Whether an answer is a document with decisions."""
    if isinstance(answer, list | tuple):
        return len(answer) > 0 and all(_decides(one) for one in answer)
    if not isinstance(answer, Mapping):
        return False
    kind = answer.get("type")
    return "decisions" in answer or (isinstance(kind, str) and kind in {*DECISIONS, "accept", "ignore"})


def is_yes(text: str) -> bool:
    """Whether a text is a yes and nothing else."""
    return (found := _WORDS.fullmatch(text.strip())) is not None and found["word"] is not None


def read_json(text: str) -> Any:
    """A person's JSON text as a value that can be saved. Raises ValueError for anything else."""
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    try:
        plain = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise ValueError("it holds NaN, or a number that is too large") from error
    # An escape may stand for a lone surrogate, which databases reject.
    return json.loads(valid_text(plain))


def plain_value(value: Any) -> Any:
    """`value` in a form that a checkpoint can store. Raises BadAnswer if there is none."""
    if isinstance(value, str):
        return valid_text(value)
    try:
        return sound(json.loads(valid_text(json.dumps(value, default=str, ensure_ascii=False))))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadAnswer(f"The answer cannot be saved ({error}); pass text, or plain JSON values.") from error


def _from_json(answer: Any) -> Any:
    """Parses JSON that is given as text, as on a command line; other text is unchanged."""
    if not isinstance(answer, str) or not answer.lstrip().startswith(("{", "[")):
        return answer
    try:
        return read_json(answer)
    except ValueError:
        return answer


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
    "args": …}]`, `{"answer": …}`, `{"decisions": […]}`), or the option with this number or letter; "" for no
    answer.

    Idempotent: reading its own result gives the same. Raises BadAnswer for the number of no option, and for a
    decision on calls.
    """
    given = unwrapped(answer)
    if _is_no_answer_to_a_question(given):
        raise BadAnswer("The answer does not fit: it decides on calls, and this is a question; answer it.")
    said = _unwrapped(given)
    if said is None or said in ({}, []):
        return ""
    if isinstance(said, float) and said.is_integer() and abs(said) < 10**_MOST_DIGITS:
        said = int(said)
    if options and isinstance(said, str | int) and not isinstance(said, bool):
        said = _option(said, str(said).strip(), options)
    return plain_value(said)


def _option(said: Any, text: str, options: Sequence[str]) -> Any:
    if text in options:
        return text
    if re.fullmatch(r"[+-]?\d+", text):
        number = int(text) if len(text) <= _MOST_DIGITS else 0
        if not 0 < number <= len(options):
            raise BadAnswer(
                f"The answer does not fit: there is no option {text[:_MOST_DIGITS]}; they are numbered from "
                f"1 to {len(options)}."
            )
        return options[number - 1]
    letter = "abcdefghijklmnopqrstuvwxyz".find(text.lower()) if len(text) == 1 else -1
    return options[letter] if 0 <= letter < len(options) else said


def _is_no_answer_to_a_question(answer: Any) -> bool:
    """Whether it is a decision on calls: approve, edit or reject, or one with a short id."""
    if isinstance(answer, str):
        # Other text is an answer, whatever it looks like.
        document = _from_json(answer)
        return looks_named(answer) or (
            isinstance(document, Mapping) and {"shown", "decisions"} <= set(document)
        )
    if isinstance(answer, Mapping) and "decisions" in answer:
        answer = answer["decisions"]
    first = answer[0] if isinstance(answer, list) and answer else answer
    kind = first.get("type") if isinstance(first, Mapping) else None
    return isinstance(kind, str) and kind in _NOT_SAID


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
