"""P0: starts a new task clean, closes what the user's message left open, folds old turns."""

from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.messages.utils import count_tokens_approximately

from signoff.graph.digest import fold, quick_size
from signoff.graph.history import Reader, Task, current_task
from signoff.graph.machine import Event
from signoff.graph.marks import not_run, result
from signoff.graph.outcome import Outcome, conclude
from signoff.graph.state import AgentState, Digest, Ending
from signoff.graph.texts import Texts
from signoff.graph.view import build_view
from signoff.nodes.kit import Run
from signoff.nodes.node import Report, Steps, Store
from signoff.nodes.record import record


def compress(state: AgentState, run: Run) -> Steps:
    reader = run.reader(state)
    task = current_task(reader, state, can_ask=run.can_ask)
    update: dict[str, Any] = {}
    if closing := [*_answers(task, run.kit.texts), *_closed(task, run.kit.texts)]:
        update["messages"] = closing
    if state.get("task") != task.id:
        update["task"] = task.id
    if not task.ended and ("outcome" not in state or state["outcome"] is not None):
        update["outcome"] = None
    if not task.ended and (digest := _digest(state, reader, run)):
        update["digest"] = digest
    if superseded := _superseded(state, task, run):
        yield Store([record(superseded)])
    return Report(Event.READY, update)


def _answers(task: Task, texts: Texts) -> list[ToolMessage]:
    """The user's words as results of the questions that they answer."""
    calls = {call.id: (reply, call) for reply in task.replies for call in reply.calls if reply.open(call)}
    found = []
    for call_id, words in task.answers.items():
        reply, call = calls[call_id]
        words = words or texts.results["no_answer"]
        found.append(result(call_id, call.name, words, answered=True, reply=reply.message.id))
    return found


def _closed(task: Task, texts: Texts) -> list[ToolMessage]:
    """The answers to calls that will never run."""
    return [
        not_run(
            stray.call.id,
            stray.call.name,
            texts.results[stray.why].format(control=stray.control),
            stray.why,
            reply=stray.reply_id,
        )
        for stray in task.strays
    ]


def _digest(state: AgentState, reader: Reader, run: Run) -> Digest | None:
    budget = run.kit.view_tokens
    size = quick_size(state, reader)
    if size is not None and size <= budget:
        return None
    view = build_view(state, reader, run.system_prompt, run.kit.texts)
    return fold(state, reader, max(size or 0, count_tokens_approximately(view)), budget)


def _superseded(state: AgentState, task: Task, run: Run) -> Outcome | None:
    """The outcome of the task that the user's new message cut short, if there is one."""
    before, ended = task.before, state.get("ended")
    if before is None or state.get("task") != before.id or (ended and ended["task"] == before.id):
        return None
    ending = Ending(
        task=before.id,
        status="error",
        reason="superseded",
        error="The user wrote a new message before this task had ended.",
    )
    return conclude(before, ending, run.thread_id)
