"""Writes the outcome, answers every call still open, and records the outcome once per task."""

from collections.abc import Sequence

from langchain_core.messages import BaseMessage

from signoff.graph.history.reader import Stray
from signoff.graph.history.task import Task
from signoff.graph.outcome import conclude
from signoff.graph.state import AgentState, Decision, EndedTask, Ending
from signoff.nodes.journal import Written, close, measured
from signoff.nodes.node import Files, NodeContext, Part, Report, Steps


def finish(state: AgentState, run: NodeContext) -> Steps:
    task = run.task(state)
    closed = yield from _closed(task, run)
    closing = _with_ids(closed.messages, task, len(state["messages"]))
    last = [*state["messages"], *closing][-1:]
    ended = EndedTask(task=task.id, message=(last[0].id or "") if last else "")
    update = closed.channels(state, run)
    if closing:
        update["messages"] = closing
    if task.ended:
        return Report(None, {**update, "ended": ended})
    nudges = run.reader(state).section.nudges
    run.forget()
    ending = state["ending"]
    outcome = conclude(task, ending, run.thread_id, run.kit.toolbox.is_effect)
    yield from measured(task, outcome, nudges, run)
    if run.outputs.owner:
        yield Files(run.outputs.ended)
    if decision := _decided_elsewhere(state, ending):
        update["decision"] = decision
    return Report(None, {**update, "outcome": outcome.model_dump(), "ended": ended})


def _decided_elsewhere(state: AgentState, ending: Ending) -> Decision | None:
    """Why the task has ended, where another state than `decide` found that out: a failing model, a review
    that does not get on. Else the decision of `decide` stands."""
    before = state.get("decision")
    if ending["status"] == "success" or (before and before["rule"] == ending["reason"]):
        return None
    return Decision(rule=ending["reason"], event=state.get("event", ""), why=ending.get("error", ""))


def _closed(task: Task, run: NodeContext) -> Part[Written]:
    """An answer for every open call."""
    strays = [
        Stray(call, "ended", reply.message.id or "")
        for reply in task.replies
        for call in reply.calls
        if reply.open(call)
    ]
    return (yield from close(strays, run))


def _with_ids(answers: Sequence[BaseMessage], task: Task, position: int) -> list[BaseMessage]:
    """Each with an id of its own: the last one is where the task ended."""
    ids = [f"ended-{task.id}-{position + number}" for number in range(len(answers))]
    return [answer.model_copy(update={"id": own}) for answer, own in zip(answers, ids, strict=True)]
