"""Accepts the finish that stands. A finishing tool with a body of its own is run first, at most once; its
answer may say that the task goes on."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage

from signoff.graph.foreign import gets_past, words
from signoff.graph.history.section import ACCEPTED, GOES_ON, Verdict
from signoff.graph.kinds import Effect
from signoff.graph.machine import Event
from signoff.graph.messages import KEY, marks, result
from signoff.graph.state import Ending
from signoff.nodes.finishing.case import Case, Checks, Refusal
from signoff.nodes.journal import STARTED, WAITING, Entry
from signoff.nodes.node import Part, Report
from signoff.nodes.tool_calls.run import MOST_STARTS, once

_MOST_VERDICT = 300


@dataclass(frozen=True)
class _Answer:
    """What a finishing tool said: what is new in the history, what it returned, the effect of that, and the
    error when it has none."""

    messages: Sequence[BaseMessage] = ()
    value: Any = None
    effect: Effect = Effect.FINISH
    error: str = ""


def accept(
    case: Case, claim: dict[str, Any], verified: str, text: str, checks: Checks, **notes: Any
) -> Part[Report]:
    """A part of `review`: accepts `claim`, unless its tool says otherwise.

    text: what the model is told when its tool says nothing. checks: that it has passed. notes: marks on the
    result.
    """
    answer = (yield from _answer(case)) if _is_run(case) else _Answer()
    if answer.error:
        return case.refuse(_failed(case, answer.error), messages=answer.messages)
    if answer.effect is Effect.CONTINUE:
        return Report(Event.PHASE, {"verdicts": case.verdicts(GOES_ON), "messages": list(answer.messages)})
    if answer.effect is Effect.ASK:
        asks = {**claim, "requires_user_confirmation": True}
        written = _noted(answer.messages, notes)
        return case.confirm(asks, verified, checks=checks, messages=written, value=answer.value)
    return _accepted(Event.ACCEPTED, case, claim, verified, answer, text, checks, notes)


def accept_confirmed(
    case: Case, claim: dict[str, Any], verified: str, text: str, checks: Checks, *, run: bool, **notes: Any
) -> Part[Report]:
    """A part of `confirm`: the same for a claim that a person has confirmed; `run`: also its tool, if it has
    not been run."""
    answer = (yield from _answer(case)) if run and _is_run(case) else _Answer()
    if answer.error or answer.effect is Effect.CONTINUE:
        verdict: Verdict = _failed(case, answer.error).verdict if answer.error else GOES_ON
        written = _noted(answer.messages, notes)
        return Report(Event.SENT_BACK, {"verdicts": case.verdicts(verdict), "messages": written})
    return _accepted(Event.CONFIRMED, case, claim, verified, answer, text, checks, notes)


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
    messages = _noted(answer.messages, notes)
    if not messages and case.reply.open(case.call):
        messages = [result(case.call.id, case.call.name, text, **notes)]
    return Report(event, {"verdicts": case.verdicts(ACCEPTED), "ending": ending, "messages": messages})


def _is_run(case: Case) -> bool:
    return case.run.kit.toolbox.controls[case.call.name].is_run


def _answer(case: Case) -> Part[_Answer]:
    """Runs the tool, or reads what the history says that it returned."""
    call, reply, box = case.call, case.reply, case.run.kit.toolbox
    found: BaseMessage | None = reply.result(call)
    messages: list[BaseMessage] = []

    def again(entry: Entry) -> bool:
        repeats = box.may_repeat(call.name) and entry.attempt < MOST_STARTS
        return entry.status == WAITING or (entry.status == STARTED and repeats)

    if found is None:
        messages = yield from once(call, reply.message.id or "", case.state, case.run, again=again)
        found = messages[0]
    assert isinstance(found, ToolMessage), "the result of a call comes first"
    if found.status == "error":
        return _Answer(messages, error=found.text)
    value = _value(found)
    try:
        effect = Effect(box.controls[call.name].decide(value))
    except BaseException as error:
        # A function of the user's own may raise anything.
        if gets_past(error):
            raise
        return _Answer(error=f"it cannot be told whether the task has ended ({words(error)})")
    return _Answer(messages, value, effect)


def _value(found: ToolMessage) -> Any:
    """What the tool returned, as a JSON value if it is one, else as text."""
    if not isinstance(found.content, str):
        return found.content
    try:
        return json.loads(found.content)
    except ValueError:
        return found.content


def _failed(case: Case, error: str) -> Refusal:
    name = case.call.name
    told = case.refused("tool", name=name, error=error)
    return Refusal(told.text, case.refused("tool", name=name, error=error[:_MOST_VERDICT]).verdict)


def _noted(messages: Sequence[BaseMessage], notes: dict[str, Any]) -> list[BaseMessage]:
    """The messages, with marks on the first, which is the result."""
    if not messages or not notes:
        return list(messages)
    first = messages[0]
    kept = {**first.additional_kwargs, KEY: {**marks(first), **notes}}
    return [first.model_copy(update={"additional_kwargs": kept}), *messages[1:]]
