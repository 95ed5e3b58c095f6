"""The messages of one task while they are being read: what is due, what stands, what waits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from langchain_core.messages import HumanMessage

from signoff.graph.replies import Call, Controls, Reply
from signoff.graph.state import Decided
from signoff.tools.approvals import fingerprint
from signoff.tools.control import Effect


class Wait(StrEnum):
    """What a thread waits for a person, or its driver, to give."""

    ANSWER = "answer"
    APPROVAL = "approval"
    ACTION = "action"


class Tools(Controls, Protocol):
    """What the reading needs to know of all tools."""

    def needs_approval(self, name: str, args: Mapping[str, Any]) -> bool: ...

    def is_driven(self, name: str) -> bool: ...


@dataclass(frozen=True)
class Words:
    """What the user wrote while a call waited, and what it waited for."""

    wait: Wait
    text: str


@dataclass
class Section:
    """The messages of one task while they are being read."""

    id: str = ""
    messages: list[HumanMessage] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    controls: list[tuple[Reply, Call]] = field(default_factory=list)
    nudges: list[tuple[str, int]] = field(default_factory=list)
    answers: dict[str, Words] = field(default_factory=dict)

    def ask(self) -> Call | None:
        """The question that stands: put, not answered, and nothing of its reply left to do before it."""
        for reply, call in self.controls:
            if call.effect is Effect.ASK and reply.open(call) and call.id not in self.answers:
                return call
        return None

    def finish(self, verdicts: Mapping[str, str]) -> Call | None:
        """The latest finish without a verdict and without an imported error."""
        for reply, call in reversed(self.controls):
            if call.effect is Effect.FINISH and reply.key(call) not in verdicts and not reply.failed(call):
                return call
        return None

    def due(self) -> tuple[Call, ...]:
        """The open calls of the last reply before its first finish or ask."""
        if not self.replies:
            return ()
        last = self.replies[-1]
        return tuple(call for call in last.before_control if last.open(call))

    def undecided(self, tools: Tools, decisions: Mapping[str, Decided]) -> tuple[Call, ...]:
        """The due calls that a person must approve and has not decided on."""
        return tuple(
            call
            for call in self.due()
            if call.effect is None
            and tools.needs_approval(call.name, call.args)
            and not decided(call, decisions)
        )

    def waits(
        self, tools: Tools, decisions: Mapping[str, Decided], asked: Mapping[str, str]
    ) -> tuple[Wait, tuple[Call, ...]] | None:
        """What waits, so that a human message arriving now belongs to it."""
        due = self.due()
        if not due:
            ask = self.ask()
            return (Wait.ANSWER, (ask,)) if ask else None
        if any(call.problem or call.effect for call in due):
            return None
        waiting = tuple(call for call in due if call.id in asked) or self.undecided(tools, decisions)
        if waiting:
            return Wait.APPROVAL, waiting
        return (Wait.ACTION, due[:1]) if tools.is_driven(due[0].name) else None


def decided(call: Call, decisions: Mapping[str, Decided]) -> Decided | None:
    """The decision on exactly this call: this id, this tool, these arguments."""
    found = decisions.get(call.id)
    return found if found and found["hash"] == fingerprint(call.name, call.args) else None
