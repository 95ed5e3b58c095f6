"""Runs the next batch of calls: the longest run of consecutive reads, or one other call, its effect at most
once."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

from langchain_core.messages import ToolMessage

from signoff.graph.history.reader import decided, who_decided
from signoff.graph.history.replies import Call
from signoff.graph.history.task import Task
from signoff.graph.machine import Event
from signoff.graph.messages import not_run, noted
from signoff.graph.state import AgentState, CallDecision
from signoff.nodes.journal import STARTED, WAITING, JournalEntry, Written
from signoff.nodes.node import NodeContext, Report, Steps
from signoff.nodes.requests import Part
from signoff.nodes.tool_calls.run import MOST_STARTS, ToolResult, ToolRun, ToolRuns, once
from signoff.tools.toolbox import Toolbox


def execute(state: AgentState, run: NodeContext) -> Steps:
    task = run.task(state)
    if task.stopped or not task.due:
        return Report(Event.DONE)
    batch = next_batch(task.due, run.deps.toolbox)
    if run.deps.toolbox.is_effect(batch[0].name):
        written = yield from _effect(batch[0], task, state, run)
    else:
        written = yield from _reads(batch, task, state, run)
    _sign(written, batch, task)
    left = len(batch) < len(task.due) or not written.messages
    update = {**written.channels(state, run), "messages": written.messages}
    return Report(Event.MORE if left else Event.DONE, update)


def next_batch(due: Sequence[Call], box: Toolbox) -> Sequence[Call]:
    """The calls that run together now: reads in parallel, anything else alone."""

    def beside(call: Call) -> bool:
        return not box.is_effect(call.name) and not box.is_driven(call.name)

    return list(takewhile(beside, due)) or due[:1]


def _reads(batch: Sequence[Call], task: Task, state: AgentState, run: NodeContext) -> Part[Written]:
    """Runs calls that change nothing in parallel. After an interrupt of one of them they run in order:
    LangGraph hands answers out in the order in which they are asked for.

    A run that goes on in this very node was perhaps killed by one of them. So they run one by one, in the
    journal like calls that have an effect: the one that kills its process again is then told as unknown.
    """
    if run.goes_on and not run.answered and run.store is not None:
        return (yield from _reads_again(batch, task, state, run))
    decisions = [decided(call, task.decisions) for call in batch]
    pairs = [(c, d) for c, d in zip(batch, decisions, strict=True) if _may_run(c, d, run)]
    jobs = [ToolRun(call, state, run, _edited(decision)) for call, decision in pairs]
    results: list[ToolResult] = yield ToolRuns(jobs, one_by_one=run.answered, most=run.deps.parallel)
    done = {job.call.index: found for job, found in zip(jobs, results, strict=True)}
    written = Written()
    for call in batch:
        found = done.get(call.index)
        written.add(found.written if found else Written([_not_approved(call, run)]))
    return written


def _reads_again(batch: Sequence[Call], task: Task, state: AgentState, run: NodeContext) -> Part[Written]:
    written = Written()
    for call in batch:
        decision = decided(call, task.decisions)
        if not _may_run(call, decision, run):
            written.add(Written([_not_approved(call, run)]))
            continue
        reply_id = task.reply_of(call).message.id or ""
        written.add((yield from once(call, reply_id, state, run, again=_waits, edited=_edited(decision))))
    return written


def _sign(written: Written, batch: Sequence[Call], task: Task) -> None:
    """Marks the results of calls with who decided on them."""
    signed = {call.id: who_decided(decided(call, task.decisions)) for call in batch if task.decisions}
    if not any(signed.values()):
        return
    written.messages = [
        noted(found, signed.get(found.tool_call_id, {})) if isinstance(found, ToolMessage) else found
        for found in written.messages
    ]


def _waits(entry: JournalEntry) -> bool:
    return entry.status == WAITING


def _effect(call: Call, task: Task, state: AgentState, run: NodeContext) -> Part[Written]:
    """One call that may change something, if it may run.

    Nothing comes back for a call whose outcome is unknown when a person is to be asked: it stays due, and
    `route_tools` sends it to `approve`.
    """
    reply_id = task.reply_of(call).message.id or ""
    decision = decided(call, task.decisions)
    if not _may_run(call, decision, run):
        return Written([_not_approved(call, run)])
    again = partial(runs_again, call, decision, run)
    return (
        yield from once(
            call,
            reply_id,
            state,
            run,
            again=again,
            edited=_edited(decision),
            ask_unknown=run.deps.ask_unknown and not run.deps.toolbox.may_repeat(call.name),
        )
    )


def runs_again(call: Call, decision: CallDecision | None, run: NodeContext, entry: JournalEntry) -> bool:
    """Whether a call with a journal entry runs again: it paused itself, is declared repeatable, or a person
    decided so."""
    if _waits(entry):
        return True
    asked = _approved(decision) and decision is not None and decision["attempt"] == entry.attempt
    repeats = run.deps.toolbox.may_repeat(call.name) and entry.attempt < MOST_STARTS
    return entry.status == STARTED and (asked or repeats)


def _may_run(call: Call, decision: CallDecision | None, run: NodeContext) -> bool:
    return _approved(decision) or not run.deps.toolbox.needs_approval(call.name, call.args)


def _approved(decision: CallDecision | None) -> bool:
    return decision is not None and decision["type"] in ("approve", "edit")


def _edited(decision: CallDecision | None) -> Mapping[str, Any] | None:
    return decision["args"] if decision is not None and decision["type"] == "edit" else None


def _not_approved(call: Call, run: NodeContext) -> ToolMessage:
    text = run.deps.texts.results["not_approved"].format(name=call.name)
    return not_run(call.id, call.name, text, "not_approved")
