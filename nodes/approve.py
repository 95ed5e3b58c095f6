"""Waits for a person's decision on all calls that need one. Nothing has an effect before the interrupt."""

from collections.abc import Sequence

from langgraph.types import interrupt

from signoff.graph.machine import Event
from signoff.graph.replies import Call
from signoff.graph.state import AgentState, Decided, Decisions
from signoff.nodes.journal import Unsettled, unsettled
from signoff.nodes.kit import Run
from signoff.nodes.node import Report, Steps
from signoff.tools.approvals import DECISIONS, fingerprint, read_answer, request


def approve(state: AgentState, run: Run) -> Steps:
    task = run.task(state)
    waiting: Unsettled = yield from unsettled(task, run)
    if not waiting.calls:
        return Report(Event.DECIDED)
    before = state.get("approvals")
    problem = before["problem"] if before and before["task"] == task.id else ""
    allowed = [_allowed(call, waiting, run) for call in waiting.calls]
    payload = request([(call.id, call.name, call.args) for call in waiting.calls], allowed)
    for action, call in zip(payload["action_requests"], waiting.calls, strict=True):
        if waiting.attempts.get(call.id):
            action["description"] = run.kit.texts.results["unknown_outcome"].format(name=call.name)
    answer = interrupt({**payload, "problem": problem} if problem else payload)
    known = before["calls"] if before and before["task"] == task.id else {}
    try:
        found = read_answer(answer, [(call.name, call.args) for call in waiting.calls], allowed)
    except ValueError as error:
        # An exception after the interrupt has returned would be replayed for ever: ask again and say why.
        return Report(Event.DECIDED, {"approvals": Decisions(task=task.id, calls=known, problem=str(error))})
    fresh = {
        call.id: Decided(
            type=decision.type,
            hash=fingerprint(call.name, call.args),
            attempt=waiting.attempts.get(call.id, 0),
            args=dict(decision.args) if decision.args is not None else None,
            message=decision.message,
        )
        for call, decision in zip(waiting.calls, found, strict=True)
    }
    decisions = Decisions(task=task.id, calls={**known, **fresh}, problem="")
    return Report(Event.DECIDED, {"approvals": decisions})


def _allowed(call: Call, waiting: Unsettled, run: Run) -> Sequence[str]:
    if waiting.attempts.get(call.id):
        return DECISIONS
    return run.kit.toolbox.approvals.allowed(call.name, call.args) or DECISIONS
