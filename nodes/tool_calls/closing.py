"""Answers calls that will never run, or never continue.

Such a call gets the journal's result, "outcome unknown", or a reason. The answer for a delegate's call
reports the state of its machine, in which open calls are answered in the same way, at all levels below.
Nothing of that is saved there, so that a retry continues where it stopped.
"""

from collections.abc import Sequence
from functools import partial

from langchain_core.messages import ToolMessage
from langgraph.types import StateSnapshot

from signoff.graph.errors import ThreadError
from signoff.graph.history.reader import Stray, calls_left
from signoff.graph.history.task import Task
from signoff.graph.messages import add_notes, append_messages, not_run
from signoff.graph.outcome import changes
from signoff.nodes.delegates import results
from signoff.nodes.delegates.run import ChildMachine, is_begun
from signoff.nodes.journal import JournalEntry, Written, look, outcome_known
from signoff.nodes.node import NodeContext
from signoff.nodes.requests import Part
from signoff.tools.delegates import GIVEN


def close(strays: Sequence[Stray], run: NodeContext) -> Part[Written]:
    """A part of a node: one answer for each stray call."""
    closed, box = Written(), run.deps.toolbox
    entries: dict[tuple[str, str], JournalEntry] = {}
    for reply_id in dict.fromkeys(stray.reply_id for stray in strays):
        effects = [s.call for s in strays if s.reply_id == reply_id and box.is_journalled(s.call.name)]
        found = yield from look(run, reply_id, effects)
        entries |= {(reply_id, call_id): entry for call_id, entry in found.items()}
    for stray in strays:
        if left := (yield from _left(stray, run)):
            closed.add(Written([add_notes(left, {"reply": stray.reply_id})]))
            continue
        known = outcome_known(stray.call, entries.get((stray.reply_id, stray.call.id)), run)
        closed.add(known if known.messages else Written([_not_run(stray, run)]))
    return closed


def _not_run(stray: Stray, run: NodeContext) -> ToolMessage:
    text = run.deps.texts.results[stray.why].format(control=stray.control)
    return not_run(stray.call.id, stray.call.name, text, stray.why, reply=stray.reply_id)


def _left(stray: Stray, run: NodeContext) -> Part[ToolMessage | None]:
    """The result of an abandoned delegate call; None if it was never started."""
    call = stray.call
    unknown = partial(results.abandoned_result, call, (), results.NOTHING_USED, run)
    if call.name not in run.deps.toolbox.delegates:
        begun = call.args.keys() >= GIVEN and (yield from is_begun(call, stray.reply_id, run))
        return unknown() if begun else None
    child = ChildMachine(call, stray.reply_id, run)
    try:
        state = yield from child.look()
    except ThreadError:
        # Its graph had other states, and cannot be read here.
        return unknown()
    if state is None:
        return None
    if found := child.result(state.values):
        return found
    task = yield from _at_its_end(child, state)
    changed = changes(task, child.deps.toolbox.is_effect)
    return results.abandoned_result(call, changed, child.used(task), run)


def _at_its_end(child: ChildMachine, state: StateSnapshot) -> Part[Task]:
    """The task of a delegate as if it had ended."""
    closed = yield from close(calls_left(child.task(state.values).replies), child.context)
    messages = append_messages(state.values["messages"], [closed.messages])
    return child.task({**state.values, "messages": messages})
