"""Writes the outcome, answers every call still open, and records the outcome once per task."""

from langchain_core.messages import ToolMessage

from signoff.graph.history import Task
from signoff.graph.marks import not_run
from signoff.graph.outcome import conclude
from signoff.graph.state import AgentState, Ended
from signoff.graph.texts import Texts
from signoff.nodes.kit import Run
from signoff.nodes.node import Report, Steps, Store
from signoff.nodes.record import record


def finish(state: AgentState, run: Run) -> Steps:
    task = run.task(state)
    run.forget()
    closing = _closed(task, run.kit.texts)
    last = [*state["messages"], *closing][-1:]
    ended = Ended(task=task.id, message=(last[0].id or "") if last else "")
    if task.ended:
        return Report(None, {"ended": ended})
    outcome = conclude(task, state["ending"], run.thread_id)
    yield Store([record(outcome)])
    return Report(None, {"messages": closing, "outcome": outcome.model_dump(), "ended": ended})


def _closed(task: Task, texts: Texts) -> list[ToolMessage]:
    open_calls = [call for reply in task.replies for call in reply.calls if reply.open(call)]
    closing = []
    for call in open_calls:
        answer = not_run(call.id, call.name, texts.results["ended"], "ended")
        closing.append(answer.model_copy(update={"id": f"ended-{task.id}-{call.id}-{call.index}"}))
    return closing
