"""Writes the outcome, answers every call still open, and records the outcome once per task."""

from langchain_core.messages import ToolMessage

from signoff.graph.history import Task
from signoff.graph.marks import not_run
from signoff.graph.outcome import conclude
from signoff.graph.state import AgentState, Ended
from signoff.graph.texts import Texts
from signoff.nodes.kit import Run
from signoff.nodes.node import Report


def finish(state: AgentState, run: Run) -> Report:
    task = run.task(state)
    if task.ended:
        return Report(None)
    outcome = conclude(task, state["ending"], run.thread_id)
    closing = _closed(task, run.kit.texts)
    last = (closing[-1] if closing else state["messages"][-1]).id if state["messages"] else None
    return Report(
        None,
        {
            "messages": closing,
            "outcome": outcome.model_dump(),
            "ended": Ended(task=task.id, message=last or ""),
        },
        (outcome,),
    )


def _closed(task: Task, texts: Texts) -> list[ToolMessage]:
    open_calls = [(reply, call) for reply in task.replies for call in reply.calls if reply.open(call)]
    closing = []
    for _, call in open_calls:
        answer = not_run(call.id, call.name, texts.results["ended"], "ended")
        closing.append(answer.model_copy(update={"id": f"ended-{task.id}-{call.id}-{call.index}"}))
    return closing
