"""P0: starts a new task clean, closes what the user's message left open, folds old turns."""

from typing import Any

from langchain_core.messages import AnyMessage
from langchain_core.messages.utils import count_tokens_approximately

from signoff.graph.digest import fold, quick_size
from signoff.graph.history import Reader
from signoff.graph.machine import Event
from signoff.graph.marks import KEY
from signoff.graph.outcome import Outcome, conclude
from signoff.graph.state import AgentState, Digest, Ending
from signoff.graph.task import Task, current_task
from signoff.graph.view import build_view
from signoff.nodes.closing import answer_waiting, close
from signoff.nodes.kit import Run
from signoff.nodes.node import Report, Steps, Store
from signoff.nodes.record import record


def compress(state: AgentState, run: Run) -> Steps:
    reader = run.reader(state)
    task = current_task(reader, state, can_ask=run.can_ask)
    update: dict[str, Any] = {}
    answers = yield from answer_waiting(task, run)
    closed = yield from close(task.strays, run)
    if written := [*_marked(state, reader), *answers, *closed]:
        update["messages"] = written
    if state.get("task") != task.id:
        update["task"] = task.id
    if not task.ended and ("outcome" not in state or state["outcome"] is not None):
        update["outcome"] = None
    if not task.ended and (digest := _digest(state, reader, run)):
        update["digest"] = digest
    if superseded := _superseded(state, task, run):
        yield Store([record(superseded)])
    return Report(Event.READY, update)


def _marked(state: AgentState, reader: Reader) -> list[AnyMessage]:
    """The user's messages that came while calls were open, with a note on how they were taken."""
    found = []
    for message in state["messages"] if reader.unmarked else ():
        if notes := reader.unmarked.get(message.id or ""):
            kept = {**message.additional_kwargs, KEY: notes}
            found.append(message.model_copy(update={"additional_kwargs": kept}))
    return found


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
