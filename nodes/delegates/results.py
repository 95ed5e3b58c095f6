"""The tool result for a delegate's task, and its marks for the machine."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from langchain_core.messages import ToolMessage

from signoff.graph.errors import SetupError
from signoff.graph.finish.again import LEFT
from signoff.graph.foreign import capped, valid_text
from signoff.graph.history.replies import Call
from signoff.graph.history.task import Task
from signoff.graph.limits import Prices
from signoff.graph.messages import result
from signoff.graph.outcome import Outcome
from signoff.graph.prompt.prompt import shortened
from signoff.graph.vocabulary import REASONS
from signoff.nodes.model.advice import masked
from signoff.nodes.node import NodeContext


class UsedBelow(TypedDict):
    """The usage of a delegate and all below it, as stored in the mark of its result. cost: only if a machine
    above has a limit of cost."""

    turns: int
    tokens: int
    tool_calls: int
    seconds: float
    cost: NotRequired[float]


def used_by(task: Task, prices: Prices | None) -> UsedBelow:
    """The usage of a task and all delegates below it."""
    total = task.total
    used = UsedBelow(
        turns=task.turns + total.below_turns,
        tokens=total.total_tokens + total.below_tokens + int(task.lost("tokens", since_extended=False)),
        tool_calls=total.tool_calls + total.below_calls,
        seconds=round(total.seconds + total.below_seconds, 3),
    )
    if prices is not None:
        used["cost"] = (
            prices.cost(total) + total.dearer + total.below_cost + task.lost("cost", since_extended=False)
        )
    return used


_CAUSE = 800
_WHY = 2_000
"""Characters of why a delegate failed, with the causes of all that failed below it."""

NOTHING_USED = UsedBelow(turns=0, tokens=0, tool_calls=0, seconds=0.0)


def ended(
    call: Call,
    outcome: Outcome,
    used: UsedBelow,
    run: NodeContext,
    *,
    cause: str = "",
    below: Sequence[str] = (),
    **notes: Any,
) -> ToolMessage:
    """The result of a delegate whose task has ended: a failed call, unless it is done. cause: the error that
    ended it, without secrets. below: why delegates of it failed."""
    texts = run.deps.texts.results
    said, why = outcome.summary or outcome.last_text, why_not(outcome, cause, below)
    if outcome.succeeded:
        text = texts["delegate_done"].format(name=call.name, verified=outcome.verified, summary=said).rstrip()
    else:
        text = texts["delegate_failed"].format(name=call.name, why=why, summary=said).rstrip()
    value = outcome.model_dump(mode="json")["result"]
    if value is not None:
        text += texts["delegate_result"].format(result=json.dumps(value, ensure_ascii=False))
    passed_over = outcome.open_points if outcome.succeeded else []
    if issues := [*outcome.pending_issues, *passed_over]:
        text += texts["delegate_issues"].format(issues="; ".join(issues))
    changes = [change.model_dump() for change in outcome.changes]
    if changes and not outcome.succeeded:
        text += _changed(changes, run)
    mark: dict[str, Any] = {"status": outcome.status, "reason": outcome.reason, "used": dict(used)}
    if changes:
        mark["changes"] = changes
    mark |= {"claim": outcome.claim, "verified": outcome.verified}
    if not outcome.succeeded:
        mark["why"] = why
    elif passed_over:
        mark["open"] = passed_over
    kept = result(
        call.id,
        call.name,
        _fit(text, call, run),
        ok=outcome.succeeded,
        waited=outcome.seconds_waiting,
        delegate=mark,
        **notes,
    )
    return kept if value is None else kept.model_copy(update={"artifact": value})


def why_not(outcome: Outcome, cause: str, below: Sequence[str]) -> str:
    """Why a task is not done: how it ended, the error that ended it, and the sentences of `below`."""
    if outcome.status == "success":
        why = f"it claims {outcome.claim or 'nothing'}"
    else:
        shown = REASONS[outcome.reason].shown if outcome.reason in REASONS else outcome.reason
        why = f"{outcome.status}: {shown}"
    why += f": {shortened(cause, _CAUSE).rstrip('.')}" if cause else ""
    return shortened("; ".join([why, *below]), _WHY)


def unmade(call: Call, error: SetupError, run: NodeContext) -> ToolMessage:
    """The result of a delegate whose graph could not be made."""
    why = f"error: {shortened(masked(str(error)), _CAUSE).rstrip('.')}"
    text = run.deps.texts.results["delegate_failed"].format(name=call.name, why=why, summary="").rstrip()
    mark = {"status": "error", "reason": "no_graph", "used": dict(NOTHING_USED), "why": why}
    return result(call.id, call.name, _fit(text, call, run), ok=False, delegate=mark)


def abandoned_result(
    call: Call, changes: Sequence[Mapping[str, Any]], used: UsedBelow, run: NodeContext
) -> ToolMessage:
    """The result of an abandoned delegate. changes: what it and all below it may have changed, as far as
    known, as fields of `Change`."""
    text = run.deps.texts.results["delegate_left"].format(name=call.name)
    if changes:
        text += _changed(changes, run)
    mark: dict[str, Any] = {"status": LEFT, "reason": LEFT, "used": dict(used)}
    mark["why"] = "it was ended before it had finished"
    if changes:
        mark["changes"] = [dict(change) for change in changes]
    return result(call.id, call.name, _fit(text, call, run), ok=False, unknown=True, delegate=mark)


def _changed(found: Sequence[Mapping[str, Any]], run: NodeContext) -> str:
    lines = [f"{change['call']} ({change['came']})" for change in found]
    return run.deps.texts.results["delegate_changes"].format(changes="; ".join(lines))


def _fit(text: str, call: Call, run: NodeContext) -> str:
    return capped(valid_text(text), limit=run.deps.result_chars, keep=run.outputs.keep(call.id))
