"""The standing finish, as `review` and `confirm` see it, and what they write about it. If the finishing tool
has its own code, accepting the finish runs that tool first, at most once; its result may say that the task
continues.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from langchain_core.messages import BaseMessage, ToolMessage

from signoff.graph.arguments import one_of
from signoff.graph.finish.standstill import idle_refusals
from signoff.graph.foreign import gets_past, words
from signoff.graph.history.reader import ACCEPTED, GOES_ON, PENDING, Verdict, verdicts_of
from signoff.graph.history.replies import Call, Reply, fingerprint
from signoff.graph.history.task import Task
from signoff.graph.kinds import EFFECTS, Effect
from signoff.graph.machine import Event
from signoff.graph.messages import add_notes, nudge, result
from signoff.graph.state import AgentState, Ending, PendingConfirmation, RefusedFinish, Verdicts
from signoff.nodes.journal import STARTED, WAITING, JournalEntry, Written
from signoff.nodes.node import NodeContext, Report
from signoff.nodes.requests import Part
from signoff.nodes.tool_calls.run import MOST_STARTS, once

_MOST_TOLD = 4_000
_MOST_ERROR = 1_000
_NOBODY = (
    "{name} waits for a person to confirm it. Build the graph with storage= (or a checkpointer) so that it "
    "can wait for one."
)

Checks = Sequence[dict[str, Any]]
"""The checks that ran on a claim, as fields of `CheckRun`."""


@dataclass(frozen=True)
class Refusal:
    """Why a finish is refused, in words for the model. verdict: the shorter form that is stored and by which
    a repeated refusal is recognised."""

    text: str
    verdict: RefusedFinish


@dataclass(frozen=True)
class Case:
    """The standing finish, while it is judged."""

    state: AgentState
    run: NodeContext
    task: Task
    call: Call
    reply: Reply

    @classmethod
    def of(cls, state: AgentState, run: NodeContext) -> Self | None:
        """The finish that stands now; None if the history has changed in the meantime."""
        task = run.task(state)
        return None if task.finish is None else cls(state, run, task, task.finish, task.reply_of(task.finish))

    @property
    def key(self) -> str:
        return self.reply.key(self.call)

    @property
    def is_run(self) -> bool:
        """Whether its tool has code of its own."""
        return self.run.deps.toolbox.controls[self.call.name].is_run

    @property
    def claim(self) -> dict[str, Any]:
        """What it claims: its arguments as read by their schema, or those that are valid."""
        controls, call = self.run.deps.toolbox.controls, self.call
        if controls.problem(call.name, call.args):
            return controls.salvage(call.name, call.args)
        return controls.read(call.name, call.args)

    def lacks_result(self, claim: Mapping[str, Any], value: Any = None) -> str:
        """Why there can be no success with this claim, where the graph has a `response_format`; empty if
        there can. value: the return value of a finishing tool."""
        check = self.run.deps.result_check
        if check is None or claim.get("outcome") in ("blocked", "impossible"):
            return ""
        found = claim.get("result", value)
        return check(found) if found is not None else "a result is required."

    @property
    def verdict(self) -> Verdict | None:
        """The earlier verdict on it."""
        return verdicts_of(self.state.get("verdicts"), self.task.id).get(self.key)

    @property
    def confirmation(self) -> PendingConfirmation | None:
        """What a person is being asked about it; None for another finish, including one with other
        arguments."""
        verdicts = self.state.get("verdicts")
        found = verdicts.get("asked") if verdicts else None
        return found if found and found["hash"] == self._hash else None

    @property
    def _hash(self) -> str:
        return fingerprint(self.call.name, self.call.args)

    def verdicts(self, verdict: Verdict) -> Verdicts:
        """The verdicts of the task, with this one."""
        before = verdicts_of(self.state.get("verdicts"), self.task.id)
        return Verdicts(task=self.task.id, calls={**before, self.key: verdict})

    def refused(self, kind: str, **values: Any) -> Refusal:
        """The refusal of this kind, a key of `Texts.refusals`."""
        text = self.run.deps.texts.refusals[kind].format(**values)
        return Refusal(text, RefusedFinish(kind=kind, why=text))

    def feedback(
        self, kind: str, *, ok: bool = True, seconds: float = 0.0, **values: Any
    ) -> list[BaseMessage]:
        """The message to the model: the result of the call, or a reminder if an imported history already has
        a result. `kind` is a key of both in `Texts`."""
        texts, notes = self.run.deps.texts, {"seconds": seconds} if seconds else {}
        if self.reply.open(self.call):
            text = texts.results[kind].format(**values)
            return [result(self.call.id, self.call.name, text, ok=ok, **notes)]
        return [nudge(kind, texts.nudges[kind].format(**values), **notes)]

    def confirm(
        self,
        claim: Mapping[str, Any],
        verified: str,
        *,
        seconds: float = 0.0,
        checks: Checks = (),
        messages: Sequence[BaseMessage] = (),
        value: Any = None,
    ) -> Report:
        """Asks a person to confirm the claim. If nobody can be asked, the task ends as after a question, with
        an error that keeps the claim. value: the return value of a finishing tool."""
        if self.run.can_ask:
            return self.ask(verified, seconds=seconds, checks=checks, messages=messages)
        ending = Ending(
            task=self.task.id,
            status="error",
            reason="needs_person",
            claim=dict(claim),
            checks=list(checks),
            error=_NOBODY.format(name=self.call.name),
        )
        if value is not None:
            ending["result"] = value
        answers = list(messages)
        if not answers and self.reply.open(self.call):
            notes = {"seconds": seconds} if seconds else {}
            text = self.run.deps.texts.results["nobody_confirms"].format()
            answers = [result(self.call.id, self.call.name, text, ok=False, **notes)]
        return Report(Event.FAILED, {"ending": ending, "messages": answers})

    def ask(
        self,
        verified: str,
        *,
        problem: str = "",
        seconds: float = 0.0,
        checks: Checks = (),
        messages: Sequence[BaseMessage] = (),
    ) -> Report:
        """Asks a person about it. problem: what is wrong with it, if anything."""
        asked = PendingConfirmation(
            hash=self._hash, problem=problem, verified=verified, seconds=seconds, checks=list(checks)
        )
        verdicts = Verdicts(**self.verdicts(PENDING), asked=asked)
        return Report(Event.NEEDS_PERSON, {"verdicts": verdicts, "messages": list(messages)})

    def refuse(
        self,
        refusal: Refusal,
        *,
        seconds: float = 0.0,
        checks: Checks = (),
        messages: Sequence[BaseMessage] = (),
    ) -> Report:
        """Refuses it; `messages` tell the model so, instead of the usual sentence.

        If the same claim is refused again for the same reason, or too many refusals follow each other with no
        work in between, this would repeat forever: so a person decides, or the task ends. A person is never
        asked to accept what lacks its result.
        """
        stuck = self._stuck(refusal)
        if stuck and self.run.can_ask and not self.lacks_result(self.claim):
            return self.ask("unverified", problem=refusal.text[:_MOST_TOLD], seconds=seconds, checks=checks)
        answers = list(messages) or self.feedback("refused", ok=False, seconds=seconds, reason=refusal.text)
        update: dict[str, Any] = {"verdicts": self.verdicts(refusal.verdict), "messages": answers}
        if not stuck:
            return Report(Event.REFUSED, update)
        error = f"{self.call.name} was refused {stuck}, with no work in between: {refusal.text[:_MOST_ERROR]}"
        ending = Ending(
            task=self.task.id, status="limit", reason="review_deadlock", error=error, checks=list(checks)
        )
        return Report(Event.DEADLOCK, {**update, "ending": ending})

    def _stuck(self, refusal: Refusal) -> str:
        """How often it was refused without any work in between, in words; empty while the model may try
        again."""
        before, most = idle_refusals(self.task, self.call), self.run.limits.refusals
        if any(
            (fingerprint(call.name, call.args), why) == (self._hash, refusal.verdict) for call, why in before
        ):
            return "again for the same reason"
        return f"{len(before) + 1} times in a row" if most is not None and len(before) + 1 >= most else ""


_MOST_VERDICT = 300


@dataclass(frozen=True)
class _Answer:
    """The answer of a finishing tool: its additions to the history and the user's channels, its return value,
    the effect of that value, and the error if it has none."""

    messages: Sequence[BaseMessage] = ()
    channels: Mapping[str, Any] = field(default_factory=dict)
    value: Any = None
    effect: Effect = "finish"
    error: str = ""


def accept(
    case: Case, claim: dict[str, Any], verified: str, text: str, checks: Checks, **notes: Any
) -> Part[Report]:
    """A part of `review`: accepts `claim`, unless its tool says otherwise.

    text: the message to the model if its tool returns none. checks: the checks that it passed. notes: marks
    on the result.
    """
    answer = (yield from _answer(case)) if case.is_run else _Answer()
    report = _judged(case, claim, verified, answer, text, checks, notes)
    # If a person is asked first, the tool's result is written afterwards, from the journal.
    if not answer.channels or not report.update["messages"]:
        return report
    return replace(report, update={**answer.channels, **report.update})


def _judged(
    case: Case,
    claim: dict[str, Any],
    verified: str,
    answer: _Answer,
    text: str,
    checks: Checks,
    notes: dict[str, Any],
) -> Report:
    if answer.error:
        return case.refuse(_failed(case, answer.error), messages=answer.messages)
    if answer.effect == "continue":
        return Report(Event.PHASE, {"verdicts": case.verdicts(GOES_ON), "messages": list(answer.messages)})
    if why := case.lacks_result(claim, answer.value):
        return case.refuse(case.refused("result", error=why))
    if answer.effect == "ask":
        asks = {**claim, "requires_user_confirmation": True}
        written = _mark_first(answer.messages, notes)
        return case.confirm(asks, verified, checks=checks, messages=written, value=answer.value)
    return _accepted(Event.ACCEPTED, case, claim, verified, answer, text, checks, notes)


def accept_confirmed(
    case: Case, claim: dict[str, Any], verified: str, text: str, checks: Checks, *, run: bool, **notes: Any
) -> Part[Report]:
    """A part of `confirm`: accepts a claim that a person has confirmed; `run`: runs its tool, too, if that
    has not run yet."""
    answer = (yield from _answer(case)) if run and case.is_run else _Answer()
    goes_on = not answer.error and answer.effect == "continue"
    lacks = "" if answer.error or goes_on else case.lacks_result(claim, answer.value)
    if answer.error or goes_on or lacks:
        refusal = _failed(case, answer.error) if answer.error else case.refused("result", error=lacks)
        verdict: Verdict = GOES_ON if goes_on else refusal.verdict
        messages = case.feedback("refused", ok=False, reason=refusal.text) if lacks else answer.messages
        written = _mark_first(messages, notes)
        update = {**answer.channels, "verdicts": case.verdicts(verdict), "messages": written}
        return Report(Event.SENT_BACK, update)
    report = _accepted(Event.CONFIRMED, case, claim, verified, answer, text, checks, notes)
    return replace(report, update={**answer.channels, **report.update}) if answer.channels else report


def _accepted(
    event: Event,
    case: Case,
    claim: dict[str, Any],
    verified: str,
    answer: _Answer,
    text: str,
    checks: Checks,
    notes: dict[str, Any],
) -> Report:
    ending = Ending(
        task=case.task.id,
        status="success",
        reason=case.call.name,
        claim=claim,
        verified=verified,
        checks=list(checks),
    )
    if answer.value is not None:
        ending["result"] = answer.value
    messages = _mark_first(answer.messages, notes)
    if not messages and case.reply.open(case.call):
        messages = [result(case.call.id, case.call.name, text, **notes)]
    return Report(event, {"verdicts": case.verdicts(ACCEPTED), "ending": ending, "messages": messages})


def _answer(case: Case) -> Part[_Answer]:
    """Runs the tool, or reads its return value from the history."""
    call, reply, box = case.call, case.reply, case.run.deps.toolbox
    found: BaseMessage | None = reply.result(call)
    written = Written()

    def again(entry: JournalEntry) -> bool:
        repeats = box.may_repeat(call.name) and entry.attempt < MOST_STARTS
        return entry.status == WAITING or (entry.status == STARTED and repeats)

    if found is None:
        written = yield from once(call, reply.message.id or "", case.state, case.run, again=again)
        found = written.messages[0]
    messages, channels = written.messages, written.channels(case.state, case.run)
    assert isinstance(found, ToolMessage), "the result of a call comes first"
    if found.status == "error":
        return _Answer(messages, channels, error=found.text)
    value = _value(found)
    try:
        effect = one_of("the effect", box.controls[call.name].decide(value), EFFECTS)
    except BaseException as error:
        # A user's function may raise anything.
        if gets_past(error):
            raise
        return _Answer(error=f"it cannot be told whether the task has ended ({words(error)})")
    return _Answer(messages, channels, value, effect)


def _value(found: ToolMessage) -> Any:
    """The tool's return value, as JSON if it can be parsed, else as text."""
    if not isinstance(found.content, str):
        return found.content
    try:
        return json.loads(found.content)
    except ValueError:
        return found.content


def _failed(case: Case, error: str) -> Refusal:
    name = case.call.name
    refusal = case.refused("tool", name=name, error=error)
    return Refusal(refusal.text, case.refused("tool", name=name, error=error[:_MOST_VERDICT]).verdict)


def _mark_first(messages: Sequence[BaseMessage], notes: dict[str, Any]) -> list[BaseMessage]:
    """The messages with marks on the first one, the result."""
    if not messages or not notes:
        return list(messages)
    first = messages[0]
    return [add_notes(first, notes) if isinstance(first, ToolMessage) else first, *messages[1:]]
