"""The effects of a task and its delegates, in the order in which they happened, with the undo of each.

They are read from the histories and the journal of the thread: nothing extra is recorded while a task runs.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from langchain_core.messages import ToolMessage

from signoff.graph.errors import ThreadError
from signoff.graph.finish.lines import shown_call
from signoff.graph.history.replies import Call, Reply
from signoff.graph.history.task import Task
from signoff.graph.messages import marks
from signoff.graph.outcome import StandingReason, may_have_run
from signoff.graph.state import AgentState
from signoff.nodes.delegates.run import ChildMachine
from signoff.nodes.journal import DONE, STARTED, JournalEntry, look
from signoff.nodes.node import NodeContext
from signoff.nodes.requests import Part
from signoff.tools.toolbox import Toolbox
from signoff.tools.undo import UndoTool


@dataclass(frozen=True)
class DoneCall:
    """A call that may have changed something.

    key: identifies its effect. machine: the run of the machine that made it, with its state. call: with the
    arguments that ran. at: when it completed. path: the delegates that lead to it. told_in: the id of the
    message in the thread's own history that shows it. why: why it cannot be undone. undo: the undo tool and
    its call; before: the journal entry of that call.
    """

    key: str
    machine: NodeContext
    state: AgentState
    reply_id: str
    call: Call
    at: float
    path: tuple[str, ...]
    told_in: str
    why: StandingReason | None = None
    undo: UndoTool | None = None
    undoing: Call | None = None
    before: JournalEntry | None = None

    @property
    def shown(self) -> str:
        return shown_call(self.call)


@dataclass(frozen=True)
class _Level:
    """A machine of the thread, with its task and its position: see `DoneCall`."""

    run: NodeContext
    state: AgentState
    task: Task
    path: tuple[str, ...] = ()
    told_in: str | None = None


def done_calls(task: Task, state: AgentState, run: NodeContext) -> Part[list[DoneCall]]:
    """A part of a node: the effects of the task, oldest first."""
    found = yield from _of_machine(_Level(run, state, task))
    return sorted(found, key=attrgetter("at"))  # stable: entries with the same time keep their order


def may_have_effects(task: Task, run: NodeContext) -> Part[bool]:
    """A part of a node: whether a call of the task may have changed something, judged by the tools, or by the
    journal if the graph no longer has a tool."""
    box = run.deps.toolbox
    calls = [(reply, call) for reply in task.replies for call in reply.calls]
    if any(box.is_effect(call.name) or _is_lost_delegate(reply, call, box) for reply, call in calls):
        return True
    for reply in task.replies:
        if (yield from look(run, reply.message.id or "", [*filter(_is_work, reply.calls)])):
            return True
    return False


def _of_machine(machine: _Level) -> Part[list[DoneCall]]:
    """The effects of a machine and those below it.

    Only delegates of one reply run in parallel and must be ordered by time. A machine's own calls run one
    after the other, in the order of the history; an interrupted call has no time, and another process may
    have another clock.
    """
    found, latest = list[DoneCall](), 0.0
    for reply in machine.task.replies:
        own, begun = (yield from _of_reply(machine, reply)), latest
        for call in reply.calls:
            beside, some = _is_beside(reply, call, machine), own.get(call.id, ())
            if beside and not some:
                some = yield from _of_delegate(machine, reply, call)
            some = [replace(one, at=max(one.at, begun if beside else latest)) for one in some]
            found += some
            latest = max([latest, *(one.at for one in some)])
            begun = begun if beside else latest
    return found


def _of_reply(machine: _Level, reply: Reply) -> Part[Mapping[str, Sequence[DoneCall]]]:
    """The machine's own calls of a reply that may have taken effect, by call id.

    A call in the journal was an effect when it ran, whatever the graph now knows about its tool.
    """
    calls = [_as_ran(reply, call) for call in reply.calls if _is_work(call)]
    undoing = [Call(call.index, _key(machine, reply, call), call.name, {}) for call in calls]
    entries = yield from look(machine.run, reply.message.id or "", [*calls, *undoing])
    own = [call for call in calls if call.id in entries or machine.run.deps.toolbox.is_journalled(call.name)]
    done = {call.id: _done(machine, reply, call, entries) for call in own}
    return {name: [one] for name, one in done.items() if one is not None}


def _is_work(call: Call) -> bool:
    return call.effect in (None, "finish")


def _is_lost_delegate(reply: Reply, call: Call, box: Toolbox) -> bool:
    """Whether the call was answered by a delegate that the graph no longer has."""
    found = reply.result(call)
    return call.name not in box.delegates and found is not None and "delegate" in marks(found)


def _is_beside(reply: Reply, call: Call, machine: _Level) -> bool:
    """Whether the call went to a delegate, which may run in parallel with others."""
    box = machine.run.deps.toolbox
    return call.name in box.delegates or _is_lost_delegate(reply, call, box)


def _as_ran(reply: Reply, call: Call) -> Call:
    """The call with the arguments that actually ran, including a person's edits."""
    result = reply.result(call)
    ran = None if result is None else marks(result).get("ran")
    return call if ran is None else replace(call, args=ran)


def undo_key(reply_id: str, call_id: str, ns: str = "") -> str:
    """The journal key for the undo of a call. ns: the namespace of the delegate's machine that made the
    call."""
    text = "".join(f"{len(part)}:{part}" for part in (ns, reply_id, call_id))
    return f"undo-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:16]}"


def _key(machine: _Level, reply: Reply, call: Call) -> str:
    descent = machine.run.descent
    return undo_key(reply.message.id or "", call.id, "" if descent is None else descent.ns)


def _done(machine: _Level, reply: Reply, call: Call, entries: Mapping[str, JournalEntry]) -> DoneCall | None:
    """The call, if it may have taken effect."""
    run, entry = machine.run, entries.get(call.id)
    if entry is not None and entry.edited is not None:
        call = replace(call, args=entry.edited)
    result = _result(reply, call, entry)
    if result is None and entry is None:
        return None
    if result is not None and entry is None and not may_have_run(reply, call):
        return None
    if call.effect == "finish" and entry is None:
        # A finishing tool has run if the journal has it; else its result is the verdict of the review.
        return None
    key = _key(machine, reply, call)
    found = DoneCall(
        key=key,
        machine=run,
        state=machine.state,
        reply_id=reply.message.id or "",
        call=call,
        at=(entry.at if entry is not None else 0.0) or marks(reply.message).get("at", 0.0),
        path=machine.path,
        told_in=_told_in(machine, result),
        why=_why_not(run, call, result, entry),
        undo=run.deps.toolbox.undos.get(call.name),
        before=entries.get(key),
    )
    if found.why is not None or found.undo is None or result is None:
        return found
    args = found.undo.arguments(call.args, result)
    return replace(found, undoing=Call(call.index, key, found.undo.tool.name, args))


def _result(reply: Reply, call: Call, entry: JournalEntry | None) -> ToolMessage | None:
    """The result in the history, or in the journal if the process was killed in between."""
    found = reply.result(call)
    if found is None and entry is not None and entry.status == DONE:
        found = next((one for one in entry.messages if isinstance(one, ToolMessage)), None)
    return found


def _why_not(
    run: NodeContext, call: Call, result: ToolMessage | None, entry: JournalEntry | None
) -> StandingReason | None:
    """Why the call cannot be undone; None if it can."""
    if run.deps.toolbox.is_driven(call.name):
        return "handed_over"
    if (entry is None and run.store is not None) or (entry is not None and entry.copied):
        return "elsewhere"
    if result is None or marks(result).get("unknown") or (entry is not None and entry.status == STARTED):
        return "unknown"
    if result.status == "error":
        return "failed"
    return None if call.name in run.deps.toolbox.undos else "no_undo"


def _of_delegate(machine: _Level, reply: Reply, call: Call) -> Part[Sequence[DoneCall]]:
    """The effects of a delegate's machine and those below it."""
    result = reply.result(call)
    if call.name not in machine.run.deps.toolbox.delegates:
        return [_standing(machine, reply, call, "another_graph")]
    child = ChildMachine(call, reply.message.id or "", machine.run)
    try:
        state = yield from child.look()
    except ThreadError:
        # Its graph had other states.
        return [_standing(machine, reply, call, "another_graph")]
    if state is None:
        if result is None or not may_have_run(reply, call) or not child.tool.effects:
            return []
        return [_standing(machine, reply, call, "elsewhere")]
    values: Any = state.values
    below = _Level(
        run=child.context,
        state=values,
        task=child.task(values),
        path=(*machine.path, call.name),
        told_in=_told_in(machine, result),
    )
    return (yield from _of_machine(below))


def _standing(machine: _Level, reply: Reply, call: Call, why: StandingReason) -> DoneCall:
    """A delegate call whose machine cannot be read."""
    at, told_in = marks(reply.message).get("at", 0.0), _told_in(machine, reply.result(call))
    key, reply_id = _key(machine, reply, call), reply.message.id or ""
    return DoneCall(key, machine.run, machine.state, reply_id, call, at, machine.path, told_in, why)


def _told_in(machine: _Level, result: ToolMessage | None) -> str:
    return machine.told_in or ((result.id or "") if result is not None else "")
