"""Writes the outcome, answers every open call, writes the final answer, and records the outcome once per
task."""

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import BaseMessage

from signoff.graph.history.reader import calls_left
from signoff.graph.history.task import Task
from signoff.graph.machine import Event
from signoff.graph.messages import answer, append_messages, is_answer
from signoff.graph.outcome import answer_of, conclude
from signoff.graph.schemas.state import RESULT
from signoff.graph.state import AgentState, Decision, EndedTask, Ending, Undoing
from signoff.nodes.journal import Written, record_end
from signoff.nodes.node import NodeContext, Report, Steps
from signoff.nodes.requests import Files, Part
from signoff.nodes.tool_calls.closing import close
from signoff.nodes.tool_calls.done import may_have_effects


def finish(state: AgentState, run: NodeContext) -> Steps:
    task = run.task(state)
    left = calls_left(task.id, task.replies)
    closed = (yield from close(left, state, run)) if left else Written()
    channels = closed.channels(state, run)
    written = _with_ids(closed.messages, task, len(state["messages"]))
    if task.ended:
        return Report(None, {**channels, **_with_end(state, task, written)})
    nudges, ending = run.reader(state).section.nudges, state["ending"]
    if undoing := (yield from _to_undo(task, ending, state, run)):
        update = {**channels, "undo": undoing}
        return Report(Event.TO_UNDO, {**update, "messages": written} if written else update)
    # The usage and changes of delegates whose calls were just closed belong to this task as well.
    task = _with_results(task, written, state, run) if written else task
    if run.descent is None:
        run.forget()
    outcome = conclude(task, ending, run.thread_id, run.deps.toolbox.is_effect, state.get("undo"))
    yield from record_end(task, outcome, nudges, run)
    if run.outputs.owner and run.descent is None:
        yield Files(run.outputs.ended)
    decision = _decided_elsewhere(state, ending)
    if run.deps.answers:
        last = decision or state.get("decision")
        why = ending.get("error") or (last["why"] if last else "")
        text = answer_of(outcome, ending.get("claim") or {}, why, run.deps.texts)
        history, accepted = [*state["messages"], *written], outcome.status == "success"
        written = [*written, *_answer(history, text, task, run, accepted=accepted)]
    update = {**channels, **_with_end(state, task, written), "outcome": outcome.model_dump()}
    if run.deps.result_check is not None:
        update[RESULT] = update["outcome"]["result"]
    return Report(None, {**update, "decision": decision} if decision else update)


def _to_undo(task: Task, ending: Ending, state: AgentState, run: NodeContext) -> Part[Undoing | None]:
    """A part of the node: what to undo before the task ends: the effects of a failed task, if the graph is
    built so; and an undo that was started and interrupted by a kill. A delegate's effects are undone by the
    machine above it."""
    begun = state.get("undo")
    if run.descent is not None:
        return None
    if begun and begun["task"] == task.id:
        if begun["over"]:
            return None
        stopped = state.get("event") == Event.CANCELLED
        return Undoing(**{**begun, "left_off": True}) if stopped else begun
    if run.deps.on_failure == "keep" or ending["status"] == "success":
        return None
    if not (yield from may_have_effects(task, run)):
        return None
    ask = run.deps.on_failure == "ask"
    return Undoing(task=task.id, ask=ask, decisions={}, problem="", done=[], over=False)


def _with_end(state: AgentState, task: Task, written: Sequence[BaseMessage]) -> dict[str, Any]:
    """The messages to write, and the message at which the task ended."""
    last = [*state["messages"], *written][-1:]
    ended = EndedTask(task=task.id, message=(last[0].id or "") if last else "")
    return {"messages": list(written), "ended": ended} if written else {"ended": ended}


def _answer(
    history: Sequence[BaseMessage], text: str, task: Task, run: NodeContext, *, accepted: bool
) -> list[BaseMessage]:
    """The message that reports how the task ended; empty if an imported history already ends with it.

    Its id is derived from the task, its last reply and its position, so that repeating this step gives the
    same id, and another end of the same task (after `go_on`) a different one.
    """
    last = history[-1] if history else None
    if last is not None and is_answer(last) and last.text == text:
        return []
    reply = task.last.message.id if task.last else ""
    own = uuid.uuid5(uuid.NAMESPACE_OID, f"answer:{task.id}:{reply}:{len(history)}")
    after = (last.id or "") if last else ""
    return [answer(text, task.id, after, accepted=accepted, id=str(own), name=run.deps.name)]


def _decided_elsewhere(state: AgentState, ending: Ending) -> Decision | None:
    """Why the task has ended, if a state other than `decide` ended it: a failing model, a deadlocked review.
    Otherwise the decision of `decide` stands."""
    before = state.get("decision")
    if ending["status"] == "success" or (before and before["rule"] == ending["reason"]):
        return None
    return Decision(rule=ending["reason"], event=state.get("event", ""), why=ending.get("error", ""))


def _with_results(task: Task, written: Sequence[BaseMessage], state: AgentState, run: NodeContext) -> Task:
    """The task with the answers to its open calls; its open work is what was open before."""
    messages = append_messages(state["messages"], [written])
    after = run.task({**state, "messages": messages})
    return replace(after, due=task.due, ask=task.ask, finish=task.finish)


def _with_ids(results: Sequence[BaseMessage], task: Task, position: int) -> list[BaseMessage]:
    """Each message with its own id, since the last one marks where the task ended."""
    ids = [f"ended-{task.id}-{position + number}" for number in range(len(results))]
    return [result.model_copy(update={"id": own}) for result, own in zip(results, ids, strict=True)]
