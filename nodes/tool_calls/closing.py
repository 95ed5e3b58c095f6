"""Answers calls that will never run, or that nobody goes on with.

Such a call gets the journal's result, "outcome unknown", or a reason. That of a delegate tells what its
machine has come to: the calls that are open there are answered alike, of all that stand below it. Nothing of
that is saved there, so that a retry goes on where it stood.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.types import StateSnapshot

from signoff.graph.errors import ThreadError
from signoff.graph.history.reader import Stray, calls_left
from signoff.graph.history.task import Task
from signoff.graph.messages import add_notes, append_messages, not_run
from signoff.graph.outcome import MOST_CHANGES, changes
from signoff.nodes.delegates import results
from signoff.nodes.delegates.run import ChildMachine, is_begun
from signoff.nodes.journal import JournalEntry, Written, look, outcome_known
from signoff.nodes.node import NodeContext
from signoff.nodes.requests import Part
from signoff.tools.delegates import GIVEN


@dataclass
class Closed:
    """Calls that were answered. changes: what machines below may have changed, as fields of `Change`, the
    names of the delegates that lead there before each call."""

    written: Written = field(default_factory=Written)
    changes: list[dict[str, Any]] = field(default_factory=list)


def close(strays: Sequence[Stray], run: NodeContext) -> Part[Written]:
    """A part of a node: one answer for each stray call."""
    return (yield from _close(strays, run)).written


def _close(strays: Sequence[Stray], run: NodeContext) -> Part[Closed]:
    closed, box = Closed(), run.deps.toolbox
    entries: dict[tuple[str, str], JournalEntry] = {}
    for reply_id in dict.fromkeys(stray.reply_id for stray in strays):
        effects = [s.call for s in strays if s.reply_id == reply_id and box.is_journalled(s.call.name)]
        found = yield from look(run, reply_id, effects)
        entries |= {(reply_id, call_id): entry for call_id, entry in found.items()}
    for stray in strays:
        if left := (yield from _left(stray, run)):
            closed.written.add(left.written)
            closed.changes += left.changes
            continue
        known = outcome_known(stray.call, entries.get((stray.reply_id, stray.call.id)), run)
        closed.written.add(known if known.messages else Written([_not_run(stray, run)]))
    return closed


def _not_run(stray: Stray, run: NodeContext) -> ToolMessage:
    text = run.deps.texts.results[stray.why].format(control=stray.control)
    return not_run(stray.call.id, stray.call.name, text, stray.why, reply=stray.reply_id)


_Told = tuple[ToolMessage | None, list[dict[str, Any]]]
"""The result of a delegate's call, and what it and all below it may have changed."""


def _left(stray: Stray, run: NodeContext) -> Part[Closed | None]:
    """The call of a delegate that nobody goes on with; None when it was never begun."""
    found, changed = yield from _told(stray, run)
    if found is None:
        return None
    below = [{**one, "call": f"{stray.call.name} / {one['call']}"} for one in changed]
    return Closed(Written([add_notes(found, {"reply": stray.reply_id})]), below)


def _told(stray: Stray, run: NodeContext) -> Part[_Told]:
    call = stray.call
    if call.name not in run.deps.toolbox.delegates:
        begun = call.args.keys() == GIVEN and (yield from is_begun(call, stray.reply_id, run))
        return (results.abandoned_result(call, None, results.NOTHING_USED, run) if begun else None), []
    child = ChildMachine(call, stray.reply_id, run)
    try:
        state = yield from child.look()
    except ThreadError:
        # Another graph than that of today has begun it: nobody can read here what it has come to.
        return results.abandoned_result(call, None, results.NOTHING_USED, run), []
    if state is None:
        return None, []
    if found := child.result_if_over(state):
        return found, []
    if child.deps is None:
        return results.abandoned_result(call, None, results.NOTHING_USED, run), []
    task, changed = yield from _at_its_end(child, state)
    return results.abandoned_result(call, changed, child.used(task), run), changed


def _at_its_end(child: ChildMachine, state: StateSnapshot) -> Part[tuple[Task, list[dict[str, Any]]]]:
    """The task of a delegate as if it had come to its end, and what it and all below may have changed."""
    run = child.context
    closed = yield from _close(calls_left(child.task(state.values).replies), run)
    messages = append_messages(state.values["messages"], [closed.written.messages])
    task = child.task({**state.values, "messages": messages})
    found = [*changes(task, run.deps.toolbox.is_effect), *closed.changes]
    return task, found[-MOST_CHANGES:]
