"""The messages of one task while they are being read: what is due, what stands, what waits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from langchain_core.messages import HumanMessage

from signoff.graph.history.replies import Call, Controls, Reply
from signoff.graph.history.usage import SENT_BACK, Tally
from signoff.graph.kinds import Effect, fingerprint
from signoff.graph.state import Decided, RefusedFinish, Verdicts

# The verdicts on a finish that are no refusal. `PENDING`: a person has been asked to confirm it. `PHASE`: a
# part is done. `GOES_ON`: a finishing tool has said that the task goes on.
ACCEPTED = "accepted"
PENDING = "needs a person"
PHASE = "phase"
GOES_ON = "goes on"
_STANDS = (ACCEPTED, PENDING)
_NO_REFUSALS = (ACCEPTED, PENDING, PHASE, GOES_ON)
# How version 0.1.0 kept a person's word; it kept every refusal as a text.
_SENT_BACK_BEFORE = "sent back"

Verdict = str | RefusedFinish


class Wait(StrEnum):
    """What a thread waits for a person, or its driver, to give. `word`: the next word in a dialogue."""

    ANSWER = "answer"
    APPROVAL = "approval"
    ACTION = "action"
    WORD = "word"
    CONFIRMATION = "confirmation"


class Tools(Controls, Protocol):
    """What the reading needs to know of all tools."""

    def needs_approval(self, name: str, args: Mapping[str, Any]) -> bool: ...

    def is_driven(self, name: str) -> bool: ...

    @property
    def dialogue(self) -> bool: ...

    @property
    def rounds(self) -> bool: ...


@dataclass(frozen=True)
class Words:
    """What the user wrote while a call waited, and what it waited for."""

    wait: Wait
    text: str


@dataclass(slots=True)
class Section:
    """The messages of one task while they are being read.

    `nudges`, `sent_back` (finishes that a person did not accept, by `Reply.key`) and `heard` (the user's
    words in a dialogue) each say after how many replies that was.
    """

    id: str = ""
    messages: list[HumanMessage] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    controls: list[tuple[Reply, Call]] = field(default_factory=list)
    nudges: list[tuple[str, int]] = field(default_factory=list)
    answers: dict[str, Words] = field(default_factory=dict)
    sent_back: dict[str, int] = field(default_factory=dict)
    heard: list[int] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)

    def ask(self) -> Call | None:
        """The question that stands: put, not answered, and nothing of its reply left to do before it."""
        for reply, call in self.controls:
            if call.effect is Effect.ASK and reply.open(call) and call.id not in self.answers:
                return call
        return None

    def finish(self, verdicts: Mapping[str, Verdict]) -> Call | None:
        """The latest finish that was not refused, here or in an import.

        None after one that a person sent back, or that was no end: an earlier claim does not stand again in
        its place. One that was accepted still stands: a process can be killed before its task has ended.
        """
        for reply, call in reversed(self.controls):
            if call.effect is not Effect.FINISH:
                continue
            key, words = reply.key(call), self.answers.get(call.id)
            if key in self.sent_back or (words and words.wait is Wait.CONFIRMATION):
                return None
            verdict = verdicts.get(key, PENDING)
            if verdict in (PHASE, GOES_ON):
                return None
            if verdict in _STANDS and not reply.failed(call):
                return call
        return None

    def confirming(self, verdicts: Mapping[str, Verdict]) -> Call | None:
        """The standing finish, when a person has been asked to confirm it."""
        call = self.finish(verdicts)
        pending = {key for key, verdict in verdicts.items() if verdict == PENDING}
        return next((c for reply, c in self.controls if c is call and reply.key(c) in pending), None)

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
            if call.effect in (None, Effect.MORE_TURNS)
            and tools.needs_approval(call.name, call.args)
            and not decided(call, decisions)
        )

    def spoke(self) -> Reply | None:
        """The last reply, when it is words only and neither the user nor a reminder has come after it."""
        now = len(self.replies)
        reminded = any(at == now for _, at in self.nudges)
        return (
            self.replies[-1]
            if now and self.replies[-1].talk and not reminded and now not in self.heard
            else None
        )

    def waits(
        self,
        tools: Tools,
        decisions: Mapping[str, Decided],
        asked: Mapping[str, str],
        verdicts: Mapping[str, Verdict],
    ) -> tuple[Wait, tuple[Call, ...]] | None:
        """What waits, so that a human message arriving now belongs to it."""
        due = self.due()
        if not due:
            if ask := self.ask():
                return Wait.ANSWER, (ask,)
            if finish := self.confirming(verdicts):
                return Wait.CONFIRMATION, (finish,)
            return (Wait.WORD, ()) if tools.dialogue and self.spoke() else None
        if any(call.problem or call.effect not in (None, Effect.MORE_TURNS) for call in due):
            return None
        waiting = tuple(call for call in due if call.id in asked) or self.undecided(tools, decisions)
        if waiting:
            return Wait.APPROVAL, waiting
        return (Wait.ACTION, due[:1]) if tools.is_driven(due[0].name) else None


def verdicts_of(found: Verdicts | None, task: str) -> dict[str, Verdict]:
    """The verdicts on the finishes of `task`, by `Reply.key`: one of the above, or the refusal."""
    return found["calls"] if found and found["task"] == task else {}


def refusals_of(verdicts: Mapping[str, Verdict]) -> dict[str, RefusedFinish]:
    """Those of the verdicts that are refusals."""
    return {key: _refused(verdict) for key, verdict in verdicts.items() if verdict not in _NO_REFUSALS}


def _refused(verdict: Verdict) -> RefusedFinish:
    if not isinstance(verdict, str):
        return verdict
    return RefusedFinish(kind=SENT_BACK if verdict.startswith(_SENT_BACK_BEFORE) else "", why=verdict)


def decided(call: Call, decisions: Mapping[str, Decided]) -> Decided | None:
    """The decision on exactly this call: this id, this tool, these arguments."""
    found = decisions.get(call.id)
    return found if found and found["hash"] == fingerprint(call.name, call.args) else None
