"""Waits for a person's decision on all calls that need one. Nothing has an effect before the interrupt."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from langchain_core.messages import ToolCall

from signoff.graph.errors import BadAnswer
from signoff.graph.foreign import explain, valid_text
from signoff.graph.history.replies import Call, fingerprint
from signoff.graph.machine import Event
from signoff.graph.state import AgentState, CallDecision, Decisions
from signoff.nodes.journal import Unsettled, unsettled
from signoff.nodes.node import NodeContext, Report, Steps
from signoff.tools.answers import ask, asked_of, decisions_of
from signoff.tools.approvals import (
    ANYBODY,
    ApprovalDecision,
    Review,
    content_id_of_calls,
    read_answer,
    request,
)


def approve(state: AgentState, run: NodeContext) -> Steps:
    task = run.task(state)
    waiting: Unsettled = yield from unsettled(task, run)
    before = state.get("approvals")
    mine = before if before and before["task"] == task.id else None
    known, asked, problem = (mine["calls"], mine["asked"], mine["problem"]) if mine else ({}, {}, "")
    if task.answers or not waiting.calls:
        return Report(
            Event.DECIDED, {"approvals": Decisions(task=task.id, calls=known, problem="", asked={})}
        )
    shown = [(call.id, call.name, call.args) for call in waiting.calls]
    reviews = [_review(call, run) for call in waiting.calls]
    descriptions = [
        _description(call, review, waiting, state, run)
        for call, review in zip(waiting.calls, reviews, strict=True)
    ]
    payload = request(shown, reviews, descriptions) | ({"problem": problem} if problem else {})
    answer, by = ask({**payload, **run.problem}, run.interrupt_id, partial(_check_edits, payload, run))
    try:
        # An exception after the interrupt has returned would be replayed forever: ask again and say why.
        if asked != waiting.hashes:
            raise ValueError("the calls have changed since they were shown; look at them again")
        found = read_answer(
            answer,
            [(call.name, call.args) for call in waiting.calls],
            [review.allowed for review in reviews],
            ids=[call.id for call in waiting.calls],
            shown=content_id_of_calls(run.interrupt_id, shown),
            schemas=[review.args_schema for review in reviews],
        )
    except ValueError as error:
        again = Decisions(task=task.id, calls=known, problem=str(error), asked={})
        return Report(Event.DECIDED, {"approvals": again})
    fresh = {
        call.id: _decided(call, decision, waiting, by)
        for call, decision in zip(waiting.calls, found, strict=True)
    }
    decisions = Decisions(task=task.id, calls={**known, **fresh}, problem="", asked={})
    return Report(Event.DECIDED, {"approvals": decisions})


def _check_edits(payload: Mapping[str, Any], run: NodeContext, answer: Any) -> None:
    """Raises BadAnswer for edited arguments with which their tool cannot be called."""
    calls = asked_of(payload)
    shown = content_id_of_calls(
        run.interrupt_id, [(call_id, name, args) for call_id, name, args, _, _ in calls]
    )
    toolbox = run.deps.toolbox
    for (_, name, args, *_), decision in zip(calls, decisions_of(answer, calls, shown), strict=True):
        if decision.args is None:
            continue
        if error := toolbox.misfit(name, decision.args):
            raise BadAnswer(
                f"The answer does not fit: the edited arguments of {name} do not fit: {explain(error)}"
            )
        # A slip in the name of an optional argument: the call would run with its default instead.
        if fresh := [one for one in toolbox.unknown_arguments(name, decision.args) if one not in args]:
            raise BadAnswer(
                f"The answer does not fit: {name} has no argument {valid_text(fresh[0])[:40]!r}, which the "
                "edited arguments have."
            )


def _decided(call: Call, decision: ApprovalDecision, waiting: Unsettled, by: dict[str, Any]) -> CallDecision:
    found = CallDecision(
        type=decision.type,
        hash=fingerprint(call.name, call.args),
        attempt=waiting.attempts.get(call.id, 0),
        args=dict(decision.args) if decision.args is not None else None,
        message=decision.message,
    )
    return CallDecision(**found, by=by["by"]) if by else found


def _review(call: Call, run: NodeContext) -> Review:
    """What the policy requires; every decision is allowed for a call that waits only because of a crash."""
    found = run.deps.toolbox.approvals.review(call.name, call.args)
    return found if found.allowed else ANYBODY


def _description(call: Call, review: Review, waiting: Unsettled, state: AgentState, run: NodeContext) -> str:
    texts = run.deps.texts.results
    if waiting.attempts.get(call.id):
        return texts["unknown_outcome"].format(name=call.name)
    given = ToolCall(name=call.name, args=dict(call.args), id=call.id, type="tool_call")
    return review.describe(given, state, run.users_runtime, f"{call.name} waits for approval.")
