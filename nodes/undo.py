"""Undoes one effect of an ended task, newest first. Each undo has its own journal entry with its start and
its result; an interrupted undo never runs again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, ToolCall, ToolMessage

from signoff.graph.history.task import Task
from signoff.graph.machine import Event
from signoff.graph.messages import add_notes, marks
from signoff.graph.outcome import StandingReason, one_line
from signoff.graph.prompt.compaction import with_undone
from signoff.graph.state import AgentState, UndoDecision, Undoing, UndoStep
from signoff.nodes.journal import DONE, WAITING
from signoff.nodes.node import NodeContext, Report, Steps
from signoff.nodes.requests import Part
from signoff.nodes.tool_calls.done import DoneCall, done_calls
from signoff.nodes.tool_calls.run import ToolRun, ToolRuns, once
from signoff.tools.answers import ask
from signoff.tools.approvals import (
    NOBODY,
    ApprovalDecision,
    Review,
    content_id_of_calls,
    read_answer,
    request,
)

_DECISIONS = ("approve", "reject")


def undo(state: AgentState, run: NodeContext) -> Steps:
    task, undoing = run.task(state), state.get("undo")
    if undoing is None or undoing["task"] != task.id or undoing["over"]:
        # The history has changed in the meantime: nothing of another task is undone.
        return Report(Event.UNDONE)
    if state.get("event") == Event.UNDO:
        # Input from outside is saved at the end of this step; an interrupt in it would show the old end.
        return Report(Event.NEXT)
    known = {step["effect"] for step in undoing["done"]}
    done: list[DoneCall] = yield from done_calls(task, state, run)
    left = [one for one in reversed(done) if one.key not in known]
    asked = [one for one in left if _is_asked(one, undoing)]
    if asked and run.can_ask and not undoing.get("left_off"):
        return _ask(asked, undoing, state, run)
    steps, ran = list[UndoStep](), False
    for one in left:
        why = _why_stands(one, undoing)
        if why is None and _may_run(one):
            if ran:
                # Each undo is a separate step, saved before the next one.
                return Report(Event.NEXT, _written(steps, undoing, state))
            ran = True
        steps.append(_step(one, why, _said(one, undoing)) if why else (yield from _undone(one)))
    return Report(Event.UNDONE, {**_written(steps, undoing, state, over=True)})


def cut_short(task: Task, undoing: Undoing, state: AgentState, run: NodeContext) -> Part[Undoing]:
    """A part of a node: the undo of a task that a new message has interrupted, with the remaining effects as
    not undone."""
    known = {step["effect"] for step in undoing["done"]}
    done: list[DoneCall] = yield from done_calls(task, state, run)
    stopped = Undoing(**{**undoing, "left_off": True})
    steps = list[UndoStep]()
    for one in reversed(done):
        if one.key not in known:
            why = _why_stands(one, stopped)
            steps.append(_step(one, why, "") if why else (yield from _undone(one)))
    return Undoing(**{**stopped, "done": [*undoing["done"], *steps], "over": True})


def _may_run(one: DoneCall) -> bool:
    """Whether its undo has not run yet."""
    return one.before is None or one.before.status == WAITING


def _review(one: DoneCall, undoing: Undoing) -> Review:
    """A person's choices for an undo: whether it runs. The approval rule of the undo tool applies."""
    if one.why is not None or one.undo is None or one.undoing is None:
        return NOBODY
    policy = one.machine.deps.toolbox.approvals
    found = policy.review(one.undo.judged_as, one.undo.judged(one.call.args, one.undoing.args))
    if not found.allowed:
        return Review(_DECISIONS) if undoing["ask"] else NOBODY
    allowed = tuple(word for word in found.allowed if word in _DECISIONS)
    return Review(allowed or _DECISIONS, problem=found.problem)


def _is_asked(one: DoneCall, undoing: Undoing) -> bool:
    return one.key not in undoing["decisions"] and _may_run(one) and bool(_review(one, undoing).allowed)


def _ask(asked: Sequence[DoneCall], undoing: Undoing, state: AgentState, run: NodeContext) -> Report:
    """Asks a person about every undo that needs approval, before any of them runs."""
    calls = [one.undoing for one in asked if one.undoing is not None]
    shown = [(call.id, call.name, _shown_args(call.args)) for call in calls]
    reviews = [_review(one, undoing) for one in asked]
    told = [
        review.describe(
            ToolCall(name=name, args=args, id=key, type="tool_call"),
            state,
            run.users_runtime,
            f"{' / '.join([*one.path, one.shown])} is to be undone.",
        )
        for one, review, (key, name, args) in zip(asked, reviews, shown, strict=True)
    ]
    payload = {**request(shown, reviews, told), "undo": True}
    problem = undoing["problem"]
    told_problem = {"problem": problem} if problem else {}
    answer, by = ask({**payload, **told_problem, **run.problem}, run.interrupt_id)
    try:
        # An exception after the interrupt has returned would be replayed forever: ask again and say why.
        found = read_answer(
            answer,
            [(name, args) for _, name, args in shown],
            [review.allowed for review in reviews],
            ids=[key for key, _, _ in shown],
            shown=content_id_of_calls(run.interrupt_id, shown),
        )
    except ValueError as error:
        return Report(Event.NEXT, {"undo": Undoing(**{**undoing, "problem": str(error)})})
    fresh = {call.id: _decided(decision, by) for call, decision in zip(calls, found, strict=True)}
    decisions = {**undoing["decisions"], **fresh}
    return Report(Event.NEXT, {"undo": Undoing(**{**undoing, "decisions": decisions, "problem": ""})})


def _decided(decision: ApprovalDecision, by: dict[str, Any]) -> UndoDecision:
    found = UndoDecision(type=decision.type, message=decision.message)
    return UndoDecision(**found, by=by["by"]) if by else found


def _shown_args(args: Any) -> dict[str, Any]:
    """The arguments as a person is shown them: an artifact may be anything."""
    return {name: value for name, value in args.items() if name != "artifact"}


def _why_stands(one: DoneCall, undoing: Undoing) -> StandingReason | None:
    """Why the effect is not undone without trying; None if its undo runs now, or already ran."""
    if one.why is not None or not _may_run(one):
        return one.why
    if undoing.get("left_off"):
        return "stopped"
    decision = undoing["decisions"].get(one.key)
    if decision is not None:
        return None if decision["type"] == "approve" else "rejected"
    return "not_approved" if _review(one, undoing).allowed else None


def _said(one: DoneCall, undoing: Undoing) -> str:
    decision = undoing["decisions"].get(one.key)
    return decision["message"] if decision is not None else ""


def _undone(one: DoneCall) -> Part[UndoStep]:
    """Runs the undo, unless the journal has its result, and returns the step."""
    found: BaseMessage | None = None
    if not _may_run(one):
        assert one.before is not None, "so it is known"
        found = one.before.messages[0] if one.before.status == DONE else None
    else:
        assert one.undo is not None, "so it can be undone"
        assert one.undoing is not None, "as above"
        job = ToolRuns([ToolRun(one.undoing, one.state, one.machine, tool=one.undo.tool)])
        told = one.undoing, one.reply_id, one.state, one.machine
        written = yield from once(*told, again=_waits, job=job)
        found = written.messages[0] if written.messages else None
    if not isinstance(found, ToolMessage) or marks(found).get("unknown"):
        return _step(one, "undo_unknown", "" if found is None else found.text)
    return _step(one, "undo_failed" if found.status == "error" else None, found.text)


def _waits(entry: Any) -> bool:
    return bool(entry.status == WAITING)


def _step(one: DoneCall, why: StandingReason | None, said: str) -> UndoStep:
    return UndoStep(
        effect=one.key, path=list(one.path), call=one.shown, why=why, said=one_line(said), result=one.told_in
    )


def _written(
    steps: Sequence[UndoStep], undoing: Undoing, state: AgentState, *, over: bool = False
) -> dict[str, Any]:
    """The writes for these steps: the undone results get a note, and so does the summary if it covers these
    calls."""
    update: dict[str, Any] = {
        "undo": Undoing(**{**undoing, "done": [*undoing["done"], *steps], "over": over})
    }
    lines: dict[str, dict[str, str]] = {}
    for step in steps:
        if step["why"] is None:
            lines.setdefault(step["result"], {})[step["effect"]] = step["call"]
    told = [one for one in state["messages"] if isinstance(one, ToolMessage) and one.id in lines]
    if told:
        undone = [(one, marks(one).get("undone", {}), lines[one.id or ""]) for one in told]
        update["messages"] = [add_notes(one, {"undone": {**old, **new}}) for one, old, new in undone]
        fresh = {one.id: [new[key] for key in new.keys() - old.keys()] for one, old, new in undone}
        update |= _told_in_summary(fresh, state)
    return update


def _told_in_summary(undone: Mapping[str | None, Sequence[str]], state: AgentState) -> dict[str, Any]:
    """The summary of old turns with a note, if it covers calls that were just undone, by their results."""
    summary, messages = state.get("digest"), state["messages"]
    end = next((at for at, one in enumerate(messages) if summary and one.id == summary["upto"]), -1)
    calls = [call for one in messages[: end + 1] for call in undone.get(one.id, ())]
    return {"digest": with_undone(summary, calls)} if summary and calls else {}
