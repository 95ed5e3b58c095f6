"""What a driver gets from a step (a message, an action, a question or the end), and how it answers.

Answers are parsed leniently and checked before they are delivered. An invalid one raises a ThreadError that
says what would be valid; the thread does not change.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic

from signoff.graph.blocks import as_json
from signoff.graph.errors import ThreadError
from signoff.graph.foreign import valid_text
from signoff.graph.history.reader import Wait
from signoff.graph.outcome import Outcome, ResultT
from signoff.graph.values import sound
from signoff.tools.answers import is_own, read_confirmation, read_question
from signoff.tools.approvals import (
    DECISIONS,
    ApprovalDecision,
    content_id,
    content_id_of_calls,
    looks_named,
    read_answer,
    take_ids,
)

HOW = "approve, reject, 'reject: why', or JSON with one decision for each call"
_WORDS = re.compile(
    r"(?P<word>approved?|accept|yes|y|ok)|(?P<no>reject(?:ed)?|no|n)\b[\s:,;.-]*(?P<why>.*)", re.I | re.S
)


def question_answer(answer: Any, options: Sequence[str]) -> Any:
    """The answer to a question: its text, unwrapped if it comes from an inbox or a chat page; the option with
    this number; "" for no answer."""
    _for_this(answer)
    return plain_value(read_question(answer, options))


Asked = Sequence[tuple[str, str, Mapping[str, Any], Sequence[str], Mapping[str, Any] | None]]
"""Calls that wait for a decision: id, tool, arguments, allowed decisions, and the schema of edited
arguments."""


def approval_answer(answer: Any, calls: Asked, shown: str) -> Any:
    """The decisions for `calls`, which were shown under the short id `shown`."""
    given = _parse_decisions(answer, len(calls))
    _read(given, calls, shown)
    return plain_value(given)


def langchain_answer(answer: Any, calls: Asked, shown: str) -> list[dict[str, Any]]:
    """The decisions for `calls`, one for each, in the form of LangChain's middleware."""
    found = _read(_parse_decisions(answer, len(calls)), calls, shown)
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


def says_which(answer: Any, calls: Asked, shown: str) -> bool:
    """Whether an answer to `calls` names what it is for, or need not: a rejection lets nothing run.

    Raises ThreadError for an invalid answer.
    """
    given = _parse_decisions(answer, len(calls))
    found = _read(given, calls, shown)
    return bool(take_ids(given)[1]) or all(decision.type == "reject" for decision in found)


def _parse_decisions(answer: Any, calls: int) -> Any:
    """The decisions of an answer, which may be words."""
    words, named = take_ids(answer) if isinstance(answer, str) else (answer, frozenset())
    given = _decisions_in_words(words, calls) if isinstance(words, str) else words
    if given is None or given in ({}, []):
        raise ThreadError(f"Nothing was answered; answer with {HOW}.")
    return {"shown": min(named), "decisions": given} if named and isinstance(words, str) else given


def _read(given: Any, calls: Asked, shown: str) -> list[ApprovalDecision]:
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
        raise ThreadError(f"The answer does not fit: {error}. Answer with {HOW}.") from error


_OBSERVED = {"output", "status", "seconds"}


def action_answer(answer: Any) -> Any:
    """The observation of an action, which may be JSON text, as from a command line."""
    _for_this(answer)
    found = _from_json(answer) if isinstance(answer, str) else answer
    observed = isinstance(found, Mapping) and "output" in found and set(found) <= _OBSERVED
    return plain_value(found if observed else answer)


def confirmation_answer(answer: Any, shown: str) -> Any:
    """A yes, or feedback. shown: the short id of the finish, which `yes@ID` names."""
    _for_this(answer, shown)
    answer = take_ids(answer)[0] if looks_named(answer) else _from_json(answer)
    try:
        read_confirmation(answer)
    except ValueError as error:
        raise ThreadError(f"The answer does not fit: {error}. Answer yes, or say what is wrong.") from error
    return plain_value(answer)


def _for_this(answer: Any, shown: str = "") -> None:
    """Raises ThreadError for a decision with another short id, which is not an answer here."""
    found = _from_json(answer)
    decides = isinstance(found, Mapping) and {"shown", "decisions"} <= set(found)
    named = take_ids(found)[1] if decides or looks_named(answer) else frozenset()
    if other := sorted(named - {shown}):
        raise ThreadError(
            f"The answer does not fit: {other[0]!r} is not the id of what waits now; look at that first. "
            "Nothing was changed."
        )


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
    """`value` in a form that a checkpoint can store. Raises ThreadError if there is none."""
    if isinstance(value, str):
        return valid_text(value)
    try:
        return sound(json.loads(json.dumps(value, default=str)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ThreadError(
            f"The answer cannot be saved ({error}); pass text, or plain JSON values."
        ) from error


def _from_json(answer: Any) -> Any:
    """Parses JSON that is given as text, as on a command line; other text is unchanged."""
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
            raise ThreadError(f"The answer is not valid JSON ({error}); answer with {HOW}.") from error
    found = _WORDS.fullmatch(text.strip())
    if found is None:
        raise ThreadError(f"{text.strip()!r} is not a decision; answer with {HOW}.")
    if found["word"]:
        return [{"type": "approve"}] * calls
    return [{"type": "reject", "message": found["why"].strip()}] * calls


@dataclass(frozen=True)
class Message:
    """Text of the model. `calls` are the tools called in the same reply, which run with the next step.

    Without calls it is only talk, and the next step reminds the model that talk does not end the task.
    message_id: the id of the reply.
    """

    text: str
    turn: int
    calls: tuple[str, ...] = ()
    message_id: str = ""


@dataclass(frozen=True)
class Question:
    """A question of the model. `default` is used if nobody has answered by `deadline` (epoch seconds).
    `reply_id`: the id of the message that asks. `path`: the names of the delegates from the top to the one
    that asks; empty for the thread's own machine (the same in the classes below). `foreign`: other code asks,
    not Signoff, by LangGraph's `interrupt`, and gets the bare answer, without who gave it (the same
    below)."""

    # `waits_for`: the word of `graph.vocabulary.WAITS`. `pause`: the `type` of the interrupt, and the name in
    # JSON documents.
    waits_for: ClassVar[str] = str(Wait.ANSWER)
    pause: ClassVar[str] = "question"

    interrupt_id: str
    text: str
    options: tuple[str, ...] = ()
    call_id: str = ""
    default: str | None = None
    deadline: float | None = None
    reply_id: str = ""
    path: tuple[str, ...] = ()
    foreign: bool = False

    def read(self, answer: Any) -> Any:
        """The answer in the thread's form: any text, number or value; None and {} mean "no answer"."""
        return question_answer(answer, self.options)

    def document(self) -> Any:
        """Its form in `--json`."""
        known = {"question": self.text, "options": list(self.options)}
        late = {"default": self.default, "deadline": self.deadline}
        return known | {name: value for name, value in late.items() if value is not None} | _place(self.path)


@dataclass(frozen=True)
class PendingCall:
    """A call that a person must decide on. `allowed`: the allowed decisions. `call_id`: the id by which a
    decision may name it. `args_schema`: the JSON schema of edited arguments."""

    name: str
    args: Mapping[str, Any]
    allowed: tuple[str, ...] = DECISIONS
    note: str = ""
    call_id: str = ""
    args_schema: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Approval:
    """Calls that wait for a person's decision, in order. `problem`: why an earlier answer was invalid.

    `shown` is a short id of exactly this request: `approve@ID` approves nothing else. `reply_id`: the id of
    the message that made the calls.
    """

    waits_for: ClassVar[str] = str(Wait.APPROVAL)
    pause: ClassVar[str] = "approval"

    interrupt_id: str
    calls: tuple[PendingCall, ...]
    problem: str = ""
    payload: Mapping[str, Any] = field(default_factory=dict)
    reply_id: str = ""
    path: tuple[str, ...] = ()
    foreign: bool = False

    def read(self, answer: Any) -> Any:
        """The decisions in the thread's form, from words, JSON text, decisions, or an inbox's answer.

        Raises ThreadError for an invalid answer, so that it is never delivered.
        """
        if not self.foreign:
            return approval_answer(answer, self._questions, self.shown)
        decisions = langchain_answer(answer, self._questions, self.shown)
        return decisions[0] if self.payload.get("type") == _ONE_CALL else {"decisions": decisions}

    def says_which(self, answer: Any) -> bool:
        """Whether an answer names `shown`, or need not, since it rejects. Raises as `read`."""
        return says_which(answer, self._questions, self.shown)

    @property
    def shown(self) -> str:
        return content_id_of_calls(
            self.interrupt_id, [(call.call_id, call.name, call.args) for call in self.calls]
        )

    @property
    def _questions(self) -> Asked:
        return [(call.call_id, call.name, call.args, call.allowed, call.args_schema) for call in self.calls]

    def document(self) -> Any:
        return {**self.payload, "shown": self.shown}


@dataclass(frozen=True)
class Action:
    """A call that is handed over: the driver runs it and answers with what it observed.

    unknown: it was handed out before and never answered, so it may have been done already: check before doing
    it again. reply_id: the id of the message that made the call. machine: for a delegate's call, the
    checkpoint namespace of its machine.
    """

    waits_for: ClassVar[str] = str(Wait.ACTION)
    pause: ClassVar[str] = "action"

    interrupt_id: str
    tool: str
    args: Mapping[str, Any]
    kind: str = "write"
    call_id: str = ""
    unknown: bool = False
    reply_id: str = ""
    path: tuple[str, ...] = ()
    machine: str = ""
    foreign: bool = False

    def read(self, answer: Any) -> Any:
        """The observation in the thread's form: text, or `{"output": …, "status": "error"}`; optionally with
        `seconds`, the time of the actual work, if that differs from the time until the answer."""
        return action_answer(answer)

    def document(self) -> Any:
        return {
            "type": self.pause,
            "tool": self.tool,
            "args": dict(self.args),
            "kind": self.kind,
            "call_id": self.call_id,
            **({"unknown": True} if self.unknown else {}),
            **_place(self.path),
        }


@dataclass(frozen=True)
class Confirmation:
    """A finish that a person must confirm, or send back with what is wrong.

    problem: what the review found wrong with it, twice; empty if nothing. `shown` is a short id of exactly
    this finish: `yes@ID` confirms nothing else. reply_id: the id of the message that made the call.
    """

    waits_for: ClassVar[str] = str(Wait.CONFIRMATION)
    pause: ClassVar[str] = "confirmation"

    interrupt_id: str
    summary: str
    claim: str = "done"
    pending_issues: tuple[str, ...] = ()
    call_id: str = ""
    problem: str = ""
    reply_id: str = ""
    path: tuple[str, ...] = ()
    foreign: bool = False

    def read(self, answer: Any) -> Any:
        """A yes, or feedback. Raises ThreadError for an answer that is neither."""
        return confirmation_answer(answer, self.shown)

    @property
    def shown(self) -> str:
        return content_id(self.interrupt_id, self.call_id, self.summary, list(self.pending_issues))

    def document(self) -> Any:
        found = {"summary": self.summary, "claim": self.claim, "pending_issues": list(self.pending_issues)}
        found |= _place(self.path)
        return {**found, "problem": self.problem} if self.problem else found


@dataclass(frozen=True)
class Finished(Generic[ResultT]):
    """The task has ended with a success or at a limit."""

    outcome: Outcome[ResultT]


@dataclass(frozen=True)
class Failed(Generic[ResultT]):
    """The task has ended with an error: one sentence that says what to do. `retry()` tries again."""

    error: str
    outcome: Outcome[ResultT]


@dataclass(frozen=True)
class Paused:
    """The run stopped at a step boundary on request; everything is saved. `by` is the way of the request:
    `pause` (in this process), `request` (from another one) or `signal`."""

    by: str = "pause"


Waiting = Question | Approval | Action | Confirmation
"""What a thread can wait for."""

Decision = Message | Waiting | Finished[ResultT] | Failed[ResultT] | Paused
"""The result of a step of a session."""


def waiting_of(interrupt_id: str, value: Any) -> Waiting:
    """What an interrupt with this value waits for. Any code may interrupt with any value: a value that cannot
    be interpreted is shown as a question."""
    given = value if isinstance(value, Mapping) else {}
    try:
        found = _waiting_of(interrupt_id, value, given)
    except (LookupError, TypeError, ValueError, AttributeError):
        found = Question(interrupt_id, as_json(value))
    path = given.get("path")
    place = tuple(map(str, path)) if isinstance(path, list | tuple) else ()
    return replace(found, path=place, foreign=not is_own(value))


_ONE_CALL = "tool_approval"
"""The type of LangChain's approval for a single call."""


def _place(path: Sequence[str]) -> dict[str, Any]:
    return {"path": list(path)} if path else {}


def _waiting_of(interrupt_id: str, value: Any, found: Mapping[str, Any]) -> Waiting:
    """found: the value, if it is a mapping. An approval without a type is LangChain's."""
    kind, call_id = found.get("type"), str(found.get("call_id", ""))
    if kind == _ONE_CALL:
        return Approval(interrupt_id, (_pending(found, {}, found.get("tool_call_id")),), payload=found)
    if kind in (Approval.pause, None) and isinstance(found.get("action_requests"), list):
        return _approval(interrupt_id, found)
    if kind == Action.pause and isinstance(found.get("args"), Mapping):
        tool, sort = str(found.get("tool", "")), str(found.get("kind", "write"))
        reply_id, machine = str(found.get("reply_id", "")), str(found.get("machine", ""))
        return Action(interrupt_id, tool, found["args"], sort, call_id, reply_id=reply_id, machine=machine)
    if kind == Confirmation.pause:
        issues = tuple(map(str, found.get("pending_issues") or ()))
        summary, claim = str(found.get("summary", "")), str(found.get("claim", "done"))
        return Confirmation(interrupt_id, summary, claim, issues, call_id, str(found.get("problem", "")))
    text = found.get("question", value if isinstance(value, str) else as_json(value))
    options, default, deadline = found.get("options"), found.get("default"), found.get("deadline")
    return Question(
        interrupt_id,
        str(text),
        tuple(map(str, options)) if isinstance(options, list | tuple) else (),
        call_id,
        default if isinstance(default, str) else None,
        deadline if _is_time(deadline) else None,
    )


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _approval(interrupt_id: str, value: Mapping[str, Any]) -> Approval:
    """Raises for a value that is none."""
    asked = value["action_requests"]
    configs = value.get("review_configs") or [{}] * len(asked)
    # Other code gives them no ids, but they must be distinguishable.
    ids = value.get("call_ids") or [f"{interrupt_id[:8]}-{at}" for at in range(1, len(asked) + 1)]
    calls = tuple(_pending(*one) for one in zip(asked, configs, ids, strict=True))
    if not calls:
        raise ValueError("no call waits")
    return Approval(interrupt_id, calls, str(value.get("problem", "")), value)


def _pending(action: Mapping[str, Any], config: Mapping[str, Any], call_id: Any) -> PendingCall:
    args, allowed = action["args"], config.get("allowed_decisions") or DECISIONS
    if not isinstance(args, Mapping) or not isinstance(allowed, list | tuple):
        raise TypeError("a call has arguments by name, and decisions in a list")
    return PendingCall(
        name=str(action["name"]),
        args=args,
        allowed=tuple(allowed),
        note=str(action.get("description", "")),
        call_id=str(call_id or ""),
        args_schema=config.get("args_schema"),
    )
