"""Resets the state for a new task, closes calls that the user's message left open, summarises old turns."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import AnyMessage, BaseMessage

from signoff.graph.history.reader import Reader, read_messages
from signoff.graph.history.task import Task, current_task
from signoff.graph.machine import MACHINE, Event
from signoff.graph.messages import KEY, append_messages
from signoff.graph.outcome import conclude
from signoff.graph.prompt.compaction import compact
from signoff.graph.prompt.prompt import beyond, prompt_size
from signoff.graph.rules import decide
from signoff.graph.state import AgentState, Ending
from signoff.graph.vocabulary import REASONS
from signoff.nodes.delegates.ledger import fresh
from signoff.nodes.journal import Written, look_up, record_end
from signoff.nodes.model.messages import budget, named_calls
from signoff.nodes.model.summary import write_summary
from signoff.nodes.node import NO_BUDGET, NodeContext, Report, Steps
from signoff.nodes.requests import Files, Part, Store
from signoff.nodes.tool_calls.closing import answer_waiting, close
from signoff.nodes.undo import cut_short


def compress(state: AgentState, run: NodeContext) -> Steps:
    reader = run.reader(state)
    task = current_task(reader, state, can_ask=run.can_ask)
    update: dict[str, Any] = {}
    if renamed := _renamed(task, reader):
        state = {**state, "messages": append_messages(state["messages"], [renamed])}
        reader = run.reader(state)
        task = current_task(reader, state, can_ask=run.can_ask)
    answers = yield from answer_waiting(task, state, run)
    closed = (yield from close(task.strays, state, run)) if task.strays else Written()
    update |= closed.channels(state, run)
    if written := [*renamed, *_marked(state, reader), *answers, *closed.messages]:
        update["messages"] = written
    if state.get("task") != task.id:
        update["task"] = task.id
    if state.get("machine") != MACHINE:
        update["machine"] = MACHINE
    if not task.ended and ("outcome" not in state or state["outcome"] is not None):
        update["outcome"] = None
        if run.outputs.owner and run.descent is None:
            yield Files(run.outputs.goes_on)
    if not task.ended:
        update |= yield from _compacted(state, written, task, reader, run)
    if task.before:
        nudges = reader.before.nudges if reader.before else ()
        yield from _record_before(task.before, nudges, state, written, run)
    return Report(Event.READY, update)


def _renamed(task: Task, reader: Reader) -> list[BaseMessage]:
    """The replies whose calls are closed without ever being routed, with unique ids and tools' names."""
    found = list[BaseMessage]()
    left, taken = {stray.reply_id for stray in task.strays}, set[str]()
    for reply in reader.replies if left else ():
        renamed = named_calls(reply, taken) if reply.message.id in left else None
        found += [renamed] if renamed else []
        taken.update(call.id for call in reply.calls)
    return found


def _marked(state: AgentState, reader: Reader) -> list[AnyMessage]:
    """The user's messages that arrived while calls were open, with a mark on how they were interpreted."""
    found = []
    for message in state["messages"] if reader.unmarked else ():
        if notes := reader.unmarked.get(message.id or ""):
            kept = {**message.additional_kwargs, KEY: notes}
            found.append(message.model_copy(update={"additional_kwargs": kept}))
    return found


def _compacted(
    state: AgentState, written: list[BaseMessage], task: Task, reader: Reader, run: NodeContext
) -> Part[dict[str, Any]]:
    """Summarises old turns when the next prompt would be over its budget; `written` is what was just
    appended."""
    if written:
        after: AgentState = {**state, "messages": append_messages(state["messages"], [written])}
        state, reader = after, read_messages(after, run.deps.toolbox)
        task = current_task(reader, state, can_ask=run.can_ask)
    most = budget(state, task.id, run)
    if most >= NO_BUDGET:
        # Counting the messages would take time in proportion to the whole history.
        return {}
    size = prompt_size(state, reader, run.system_prompt, run.deps.texts)
    if size + beyond(reader, most) <= most:
        return {}
    task = yield from fresh(task, run)
    if decide(task, run.limits)["event"] != Event.THINK:
        return {}
    compaction = compact(state, reader, most, run.system_prompt, run.deps.texts)
    if compaction is None:
        return {}
    summary, spent = yield from write_summary(compaction, state, run, task)
    update: dict[str, Any] = {} if summary == state.get("digest") else {"digest": summary}
    return update if spent == state.get("spent") else {**update, "spent": spent}


def _record_before(
    before: Task,
    nudges: Sequence[tuple[str, int]],
    state: AgentState,
    written: Sequence[BaseMessage],
    run: NodeContext,
) -> Part[None]:
    """A part of the node: records the task that the user's new message interrupted. If it had ended and its
    effects were being undone, the effects that remain are recorded, too. written: the answers to its open
    calls, which show what delegates have done."""
    ended, undoing = state.get("ended"), state.get("undo")
    if state.get("task") != before.id:
        return
    is_effect = run.deps.toolbox.is_effect
    if undoing and undoing["task"] == before.id and not undoing["over"]:
        undoing = yield from cut_short(before, undoing, state, run)
        outcome = conclude(before, state["ending"], run.thread_id, is_effect, undoing)
        yield from record_end(before, outcome, nudges, run)
        return
    if ended and ended["task"] == before.id:
        return
    ending = Ending(task=before.id, status="error", reason="superseded", error=REASONS["superseded"].error)
    if written:
        after: AgentState = {**state, "messages": append_messages(state["messages"], [written])}
        closed = current_task(read_messages(after, run.deps.toolbox), after, can_ask=run.can_ask).before
        before = replace(closed or before, due=before.due, ask=before.ask, finish=before.finish)
    superseded = conclude(before, ending, run.thread_id, is_effect, undoing)
    (known,) = yield Store([look_up(superseded)])
    # A process can be killed after it recorded a success and before it saved the end of the task.
    if known is None or known.value["status"] != "success":
        yield from record_end(before, superseded, nudges, run)
