"""What a thread waits for: an answer, a decision on calls, or what an action came to."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from langgraph.types import Command

from signoff.graph.errors import ThreadError
from signoff.tools.approvals import DECISIONS, read_answer
from signoff.tools.output import valid_text

_WORDS = re.compile(
    r"(?P<word>approved?|accept|yes|y|ok)|(?P<no>reject(?:ed)?|no|n)\b[\s:,;.-]*(?P<why>.*)", re.I | re.S
)
HOW = "approve, reject, 'reject: why', or JSON with one decision for each call"


@dataclass(frozen=True)
class Question:
    """What the model asks. `interrupt_id` is what an answer is sent to."""

    waits_for: ClassVar[str] = "answer"

    interrupt_id: str
    text: str
    options: tuple[str, ...] = ()

    def answered(self, answer: Any) -> Command[Any]:
        """The input that goes on with this answer."""
        return Command(resume={self.interrupt_id: answer})

    def by_message(self, text: str) -> Command[Any]:
        """The input that goes on when the user simply writes `text`."""
        return self.answered(text)

    def document(self) -> Any:
        """What `--json` says of it."""
        return {"question": self.text, "options": list(self.options)}


@dataclass(frozen=True)
class PendingCall:
    """A call that a person must decide on. `allowed`: the decisions that they may take."""

    name: str
    args: Mapping[str, Any]
    allowed: tuple[str, ...] = DECISIONS
    note: str = ""


@dataclass(frozen=True)
class Approval:
    """Calls that wait for a person's decision, in order. `problem`: why an earlier answer did not fit."""

    waits_for: ClassVar[str] = "approval"

    interrupt_id: str
    calls: tuple[PendingCall, ...]
    problem: str = ""
    payload: Mapping[str, Any] = field(default_factory=dict)

    def answered(self, answer: Any) -> Command[Any]:
        """The input that delivers this answer: words, JSON as text, or a list of decisions.

        Raises ThreadError for one that does not fit, so that a wrong one is never delivered.
        """
        given = self._read(answer) if isinstance(answer, str) else answer
        self.check(given)
        return Command(resume={self.interrupt_id: given})

    def by_message(self, text: str) -> Command[Any]:
        """The input that rejects all calls with these words."""
        return self.answered([{"type": "reject", "message": text}] * len(self.calls))

    def check(self, given: Any) -> None:
        """Raises ThreadError when these decisions do not fit the calls."""
        calls = [(call.name, call.args) for call in self.calls]
        try:
            read_answer(given, calls, [call.allowed for call in self.calls])
        except ValueError as error:
            raise ThreadError(f"The answer does not fit: {error}. Give {HOW}.") from error

    def document(self) -> Any:
        return dict(self.payload)

    def _read(self, text: str) -> Any:
        if text.lstrip().startswith(("{", "[")):
            return _json(text)
        found = _WORDS.fullmatch(text.strip())
        if found is None:
            raise ThreadError(f"{text.strip()!r} is no decision; give {HOW}.")
        if found["word"]:
            return [{"type": "approve"}] * len(self.calls)
        return [{"type": "reject", "message": found["why"].strip()}] * len(self.calls)


@dataclass(frozen=True)
class Action:
    """A call that a graph handed over: whoever drives it runs it and answers with what came of it."""

    waits_for: ClassVar[str] = "action"

    interrupt_id: str
    tool: str
    args: Mapping[str, Any]
    kind: str = "write"
    payload: Mapping[str, Any] = field(default_factory=dict)

    def answered(self, answer: Any) -> Command[Any]:
        """The input that goes on with this observation."""
        return Command(resume={self.interrupt_id: answer})

    def by_message(self, text: str) -> Command[Any]:
        return self.answered(text)

    def document(self) -> Any:
        return dict(self.payload)


Waiting = Question | Approval | Action


def waiting_of(interrupt_id: str, value: Any) -> Waiting:
    """What an interrupt with this value waits for; a pause of an unknown kind is shown as a question."""
    if isinstance(value, Mapping):
        if value.get("type") == "approval" and isinstance(value.get("action_requests"), Sequence):
            return _approval(interrupt_id, value)
        if value.get("type") == "action" and isinstance(value.get("args"), Mapping):
            tool, kind = str(value.get("tool", "")), str(value.get("kind", "write"))
            return Action(interrupt_id, tool, value["args"], kind, value)
        if "question" in value:
            options = tuple(map(str, value.get("options") or ()))
            return Question(interrupt_id, str(value["question"]), options)
    return Question(interrupt_id, value if isinstance(value, str) else json.dumps(value, default=str))


def _approval(interrupt_id: str, value: Mapping[str, Any]) -> Approval:
    asked = value["action_requests"]
    configs = value.get("review_configs") or [{}] * len(asked)
    calls = tuple(
        PendingCall(
            name=str(action["name"]),
            args=action["args"],
            allowed=tuple(config.get("allowed_decisions") or DECISIONS),
            note=str(action.get("description", "")),
        )
        for action, config in zip(asked, configs, strict=True)
    )
    return Approval(interrupt_id, calls, str(value.get("problem", "")), value)


def read_json(text: str) -> Any:
    """What a person typed as JSON, as it can be saved. Raises ValueError when it is none."""
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    # An escape may stand for half a character, which no database takes.
    return json.loads(valid_text(json.dumps(value, ensure_ascii=False)))


def _json(text: str) -> Any:
    try:
        return read_json(text)
    except ValueError as error:
        raise ThreadError(f"The answer is no valid JSON ({error}); give {HOW}.") from error
