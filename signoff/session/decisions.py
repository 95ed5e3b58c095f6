"""What a driver gets from a step (a message, an action, a question or the end), and how it answers.

An invalid answer raises BadAnswer, which says what would be valid; the thread does not change.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic

from signoff.graph.blocks import as_json
from signoff.graph.history.reader import Wait
from signoff.graph.outcome import Outcome, ResultT, issues_of, summary_of
from signoff.tools.answers import (
    Asked,
    is_own,
    langchain_answer,
    read_action,
    read_approval,
    read_question,
)
from signoff.tools.approvals import DECISIONS, content_id_of_calls


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


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """What a thread waits for, from a person or from the program: a `Question`, an `Approval` or an `Action`.

    interrupt_id: names it in an answer. path: the names of the delegates from the top to the one that waits;
    empty for the thread's own machine. problem: why what came before is no answer, and how to answer; empty
    at first.
    """

    # The `type` in documents.
    _type: ClassVar[str]

    interrupt_id: str = field(kw_only=False)
    path: tuple[str, ...] = ()
    problem: str = ""
    # The id of the message that asks.
    _reply_id: str = ""
    # Other code asks, by LangGraph's `interrupt`, and gets the bare answer, without who gave it.
    _foreign: bool = False

    def read(self, answer: Any) -> Any:
        """The answer as it would be delivered. Raises BadAnswer for one that does not fit, and changes
        nothing."""
        raise NotImplementedError

    def document(self) -> dict[str, Any]:
        """What to show, on a page or in a queue, as plain JSON, with the id to answer by.

        waits_for: answer, approval, confirmation or action. reply_id: the id of the message that asks.
        """
        document: dict[str, Any] = {
            "type": self._type,
            "waits_for": str(self._waits_for),
            "interrupt_id": self.interrupt_id,
            "path": list(self.path),
        }
        rest = {"problem": self.problem, "reply_id": self._reply_id}
        return document | {name: value for name, value in rest.items() if value}

    @property
    def _waits_for(self) -> Wait:
        return Wait.ANSWER


@dataclass(frozen=True)
class Question(Waiting):
    """A question of the model. `default` is used if nobody has answered by `deadline` (epoch seconds)."""

    _type: ClassVar[str] = "question"

    text: str
    options: tuple[str, ...] = ()
    _call_id: str = ""
    default: str | None = None
    deadline: float | None = None

    def read(self, answer: Any) -> Any:
        """The answer in the thread's form: any text, number or value; None and {} mean "no answer"."""
        return read_question(answer, self.options)

    def document(self) -> dict[str, Any]:
        late = {"default": self.default, "deadline": self.deadline, "call_id": self._call_id or None}
        known = {"question": self.text, "options": list(self.options)}
        return super().document() | known | {name: value for name, value in late.items() if value is not None}


@dataclass(frozen=True)
class PendingCall:
    """A call that a person must decide on. `id`: by which a decision may name it. `allowed`: the allowed
    decisions. `args_schema`: the JSON schema of edited arguments."""

    name: str
    args: Mapping[str, Any]
    allowed: tuple[str, ...] = DECISIONS
    note: str = ""
    id: str = ""
    args_schema: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Approval(Waiting):
    """Calls that wait for a person's decision, in order; or a finish that a person must confirm."""

    _type: ClassVar[str] = "approval"

    calls: tuple[PendingCall, ...]
    _payload: Mapping[str, Any] = field(default_factory=dict)

    def read(self, answer: Any) -> Any:
        """The decisions in the thread's form, from words, JSON text, decisions, or an inbox's answer; for a
        finish also words that say what is wrong with it."""
        if not self._foreign:
            return read_approval(answer, self._questions, self._shown, self._payload)
        decisions = langchain_answer(answer, self._questions, self._shown)
        return decisions[0] if self._payload.get("type") == _ONE_CALL else {"decisions": decisions}

    @property
    def _waits_for(self) -> Wait:
        return Wait.CONFIRMATION if self._payload.get("finish") else Wait.APPROVAL

    @property
    def _shown(self) -> str:
        return content_id_of_calls(
            self.interrupt_id, [(call.id, call.name, call.args) for call in self.calls]
        )

    @property
    def _questions(self) -> Asked:
        return [(call.id, call.name, call.args, call.allowed, call.args_schema) for call in self.calls]

    def document(self) -> dict[str, Any]:
        """Beside the request: `shown`, a short id of exactly what it shows (`approve@ID` approves nothing
        else); for a finish also what the model says, and the issues that it leaves open."""
        document = {**self._payload, **super().document(), "shown": self._shown}
        if self._waits_for == Wait.CONFIRMATION:
            args = self.calls[0].args
            document |= {"summary": summary_of(args), "pending_issues": issues_of(args)}
        return document


@dataclass(frozen=True)
class Action(Waiting):
    """A call that is handed over: the driver runs it and answers with what it observed.

    unknown: it was handed out before and never answered, so it may have been done already: check before doing
    it again.
    """

    _type: ClassVar[str] = "action"

    tool: str
    args: Mapping[str, Any]
    _kind: str = "write"
    _call_id: str = ""
    unknown: bool = False
    # For a delegate's call, the checkpoint namespace of its machine.
    _machine: str = ""

    def read(self, answer: Any) -> Any:
        """The observation in the thread's form: text, or `{"output": …, "status": "error"}`; optionally with
        `seconds`, the time of the actual work, if that differs from the time until the answer."""
        return read_action(answer)

    def document(self) -> dict[str, Any]:
        return {
            **super().document(),
            "tool": self.tool,
            "args": dict(self.args),
            "kind": self._kind,
            "call_id": self._call_id,
            **({"unknown": True} if self.unknown else {}),
        }

    @property
    def _waits_for(self) -> Wait:
        return Wait.ACTION


@dataclass(frozen=True)
class Ended(Generic[ResultT]):
    """The task has ended: `outcome.status` says whether in success, at a limit or with an error, and
    `outcome.error` what to do about the last."""

    outcome: Outcome[ResultT]


@dataclass(frozen=True)
class Paused:
    """The run stopped at a step boundary on request; everything is saved. `by` is the way of the request:
    `pause` (in this process), `request` (from another one) or `signal`."""

    by: str = "pause"


AnyWaiting = Question | Approval | Action
"""The waits, for a type checker."""

Decision = Message | Question | Approval | Action | Ended[ResultT] | Paused
"""The result of a step of a session."""


def waiting_of(interrupt_id: str, value: Any) -> AnyWaiting:
    """What an interrupt with this value waits for. Any code may interrupt with any value: a value that cannot
    be interpreted is shown as a question."""
    given = value if isinstance(value, Mapping) else {}
    try:
        found = _waiting_of(interrupt_id, value, given)
    except (LookupError, TypeError, ValueError, AttributeError):
        found = Question(interrupt_id, as_json(value))
    path = given.get("path")
    place = tuple(map(str, path)) if isinstance(path, list | tuple) else ()
    problem = str(given.get("problem", ""))
    return replace(found, path=place, problem=problem, _foreign=not is_own(value))


_ONE_CALL = "tool_approval"
"""The type of LangChain's approval for a single call."""


def _waiting_of(interrupt_id: str, value: Any, found: Mapping[str, Any]) -> AnyWaiting:
    """found: the value, if it is a mapping. An approval without a type is LangChain's."""
    kind, call_id = found.get("type"), str(found.get("call_id", ""))
    if kind == _ONE_CALL:
        return Approval(interrupt_id, (_pending(found, {}, found.get("tool_call_id")),), found)
    if kind in (Approval._type, None) and isinstance(found.get("action_requests"), list):
        return _approval(interrupt_id, found)
    if kind == Action._type and isinstance(found.get("args"), Mapping):
        tool, sort = str(found.get("tool", "")), str(found.get("kind", "write"))
        reply_id, machine = str(found.get("reply_id", "")), str(found.get("machine", ""))
        return Action(interrupt_id, tool, found["args"], sort, call_id, _reply_id=reply_id, _machine=machine)
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
    return Approval(interrupt_id, calls, value)


def _pending(action: Mapping[str, Any], config: Mapping[str, Any], call_id: Any) -> PendingCall:
    args, allowed = action["args"], config.get("allowed_decisions") or DECISIONS
    if not isinstance(args, Mapping) or not isinstance(allowed, list | tuple):
        raise TypeError("a call has arguments by name, and decisions in a list")
    return PendingCall(
        name=str(action["name"]),
        args=args,
        allowed=tuple(allowed),
        note=str(action.get("description", "")),
        id=str(call_id or ""),
        args_schema=config.get("args_schema"),
    )
