"""Runs the next batch of calls: the longest run of consecutive reads, or one other call, its effect at most
once."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

from langchain_core.messages import ToolMessage

from signoff.graph.blocks import as_json
from signoff.graph.errors import ThreadError
from signoff.graph.finish.again import going_on
from signoff.graph.history.reader import decided, who_decided
from signoff.graph.history.replies import Call
from signoff.graph.history.task import Task
from signoff.graph.machine import Event
from signoff.graph.messages import add_notes, marks, not_run, result
from signoff.graph.state import AgentState, CallDecision
from signoff.nodes.delegates.ledger import ledger_below
from signoff.nodes.delegates.run import ChildMachine, Children, is_begun
from signoff.nodes.journal import DONE, STARTED, WAITING, JournalEntry, Written, look, outcome_known, unknown
from signoff.nodes.node import NodeContext, Report, Steps
from signoff.nodes.requests import Part
from signoff.nodes.tool_calls.run import (
    MOST_STARTS,
    ToolResult,
    ToolRun,
    ToolRuns,
    misfit,
    once,
)
from signoff.tools.delegates import GIVEN
from signoff.tools.toolbox import Toolbox


def execute(state: AgentState, run: NodeContext) -> Steps:
    task = run.task(state)
    if task.stopped or not task.due:
        return Report(Event.DONE)
    yield from _check_is_none_below(task, run)
    if task.due[0].name not in run.deps.toolbox.tools:
        # The graph was rebuilt without this tool: if it has not run, `route_tools` tells the model.
        known = yield from _known(task.due[0], task, run)
        return Report(Event.MORE, {**known.channels(state, run), "messages": known.messages})
    batch = next_batch(task.due, run.deps.toolbox)
    if batch[0].name in run.deps.toolbox.delegates:
        written = yield from _delegates(batch, task, state, run)
    elif run.deps.toolbox.is_effect(batch[0].name):
        written = yield from _effect(batch[0], task, state, run)
    else:
        written = yield from _reads(batch, task, state, run)
    _sign(written, batch, task)
    left = len(batch) < len(task.due) or not written.messages
    update = {**written.channels(state, run), "messages": written.messages}
    return Report(Event.MORE if left else Event.DONE, update)


def next_batch(due: Sequence[Call], box: Toolbox) -> Sequence[Call]:
    """The calls that run together now: reads in parallel, delegates, or one call of another kind."""
    if due and due[0].name in box.delegates:
        return list(takewhile(lambda call: call.name in box.delegates, due))

    def beside(call: Call) -> bool:
        name = call.name
        return not (box.is_effect(name) or box.is_driven(name) or name in box.delegates)

    return list(takewhile(beside, due)) or due[:1]


def _reads(batch: Sequence[Call], task: Task, state: AgentState, run: NodeContext) -> Part[Written]:
    """Runs calls that change nothing in parallel. After an interrupt of one of them they run in order:
    LangGraph hands answers out in the order in which they are asked for.

    A run that resumes in this node may have been killed by one of them. So they run one by one, with journal
    entries like calls with effects: a call that kills its process again is then reported as unknown.
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


def _delegates(batch: Sequence[Call], task: Task, state: AgentState, run: NodeContext) -> Part[Written]:
    """Runs delegates in parallel. Their interrupts are raised together; delegates that have ended by then are
    not run again when the state runs again."""
    children, again = list[ChildMachine](), going_on(state["messages"])
    reply_id = task.reply_of(batch[0]).message.id or ""
    # The graph may have had an ordinary tool with that name before.
    begun = yield from look(run, reply_id, batch)
    known = {call.index: outcome_known(call, begun[call.id], run) for call in batch if call.id in begun}
    for call in batch:
        decision = decided(call, task.decisions)
        if call.index in known or not _may_run(call, decision, run):
            continue
        if refused := _misfit_of_edited(call, edited := _edited(decision), run):
            known[call.index] = Written([refused])
        else:
            children.append(ChildMachine(call, reply_id, run, edited, again.get(call.id)))
    results: list[ToolMessage] = (yield Children(children, task, ledger_below(task, run))) if children else []
    done = {child.call.index: found for child, found in zip(children, results, strict=True)}
    written = Written()
    for call in batch:
        found = done.get(call.index) or _not_approved(call, run)
        written.add(known.get(call.index) or Written([found]))
    return written


def _misfit_of_edited(call: Call, edited: Mapping[str, Any] | None, run: NodeContext) -> ToolMessage | None:
    """The result of a call whose arguments became invalid by a person's edit; None if they are valid. The
    model's own arguments were checked on arrival."""
    error = None if edited is None else run.deps.toolbox.misfit(call.name, edited)
    if edited is None or error is None:
        return None
    found = misfit(call, error, run)
    text = run.deps.texts.results["edited"].format(args=as_json(edited), result=found.text)
    return result(call.id, call.name, text, ok=False, edited=True, ran=dict(edited), **marks(found))


def _check_is_none_below(task: Task, run: NodeContext) -> Part[None]:
    """Raises ThreadError if a delegate that this graph no longer has is at work on one of the calls, even
    beside one that it has: its work would be reported as never done, or be done again by a tool of the same
    name."""
    for call in task.due:
        if call.name in run.deps.toolbox.delegates or not call.args.keys() >= GIVEN:
            continue
        if (yield from is_begun(call, task.reply_of(call).message.id or "", run)):
            raise ThreadError(
                f"The delegate {call.name!r} is at work in this thread, and this graph has none of that "
                "name; build it with the delegate and go on, or send a new message. Nothing was changed."
            )


def _sign(written: Written, batch: Sequence[Call], task: Task) -> None:
    """Marks the results of calls with who decided on them."""
    signed = {call.id: who_decided(decided(call, task.decisions)) for call in batch if task.decisions}
    if not any(signed.values()):
        return
    written.messages = [
        add_notes(found, signed.get(found.tool_call_id, {})) if isinstance(found, ToolMessage) else found
        for found in written.messages
    ]


def _waits(entry: JournalEntry) -> bool:
    return entry.status == WAITING


def _effect(call: Call, task: Task, state: AgentState, run: NodeContext) -> Part[Written]:
    """Runs one call that may change something, if it may run.

    Returns nothing for a call whose outcome is unknown if a person is to be asked: it stays due, and
    `route_tools` sends it to `approve`.
    """
    reply_id = task.reply_of(call).message.id or ""
    decision = decided(call, task.decisions)
    if _rejected(decision) or not _may_run(call, decision, run):
        known = yield from _known(call, task, run)
        return known if known.messages else Written([_not_approved(call, run)])
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


def _known(call: Call, task: Task, run: NodeContext) -> Part[Written]:
    """What is known of a call that does not run (again). Nothing if it has not run."""
    entry = (yield from look(run, task.reply_of(call).message.id or "", [call])).get(call.id)
    if entry is None:
        may_have_run = run.store is None and run.goes_on and not run.answered
        return Written([unknown(call, run, why="maybe_run")] if may_have_run else [])
    decision = decided(call, task.decisions)
    if entry.status == DONE or decision is None or not _rejected(decision):
        return outcome_known(call, entry, run)
    words = run.deps.texts.results["not_again"].format(reason=decision["message"])
    return Written([unknown(call, run, entry.edited, words, answered=True)])


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


def _rejected(decision: CallDecision | None) -> bool:
    return decision is not None and decision["type"] == "reject"


def _edited(decision: CallDecision | None) -> Mapping[str, Any] | None:
    return decision["args"] if decision is not None and decision["type"] == "edit" else None


def _not_approved(call: Call, run: NodeContext) -> ToolMessage:
    text = run.deps.texts.results["not_approved"].format(name=call.name)
    return not_run(call.id, call.name, text, "not_approved")
