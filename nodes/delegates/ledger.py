"""The ledger of a tree of machines: the usage of each, and what it has reserved and not yet settled.

A machine knows its own usage from its history, and that of its delegates once their calls have results.
Machines that run in parallel do not see each other. So each machine of a tree with a limit writes to one
entry of the store before each reply, and after it where others run beside it. Its usage is a sum over its own
history, so that writing it again counts nothing twice; its reservation is one reply, and beside others the
calls of that reply. The entry is changed by one atomic swap, in which the rules decide whether a reply may
start. The values read there are saved with the step before `decide`, so that a restart and a replay decide
the same without the store.

In Signoff's own storages only the runner of the thread changes the entry. There it is changed in the process,
and saved with the checkpoint of the step that has changed it: a reservation before the reply is asked for,
the cost of a reply together with the reply.

Without a store, or without a thread, the tree keeps its ledger in the process.
"""

import asyncio
import os
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NotRequired, TypedDict, TypeVar
from weakref import WeakKeyDictionary

from langgraph.store.base import BaseStore, GetOp

from signoff.graph.finish.again import GoingOn, going_on
from signoff.graph.foreign import label, pause_place
from signoff.graph.history.reader import calls_left
from signoff.graph.history.replies import Call, Reply
from signoff.graph.history.task import Task
from signoff.graph.history.usage import of_reply
from signoff.graph.inside.speed import lazy
from signoff.graph.limits import Limits
from signoff.graph.machine import Event, State, next_state
from signoff.graph.messages import foreseen
from signoff.graph.rules import COUNTED, SHARED, budget, decide
from signoff.graph.state import AgentState, BoundAbove, GrantedCalls, TreeBudget
from signoff.nodes.delegates.descent import TreeBound, is_within, namespace
from signoff.nodes.node import NodeContext, Report, Steps, Work
from signoff.nodes.requests import Part, Store, Swap

LEDGER = "ledger"
_T = TypeVar("_T")


class OpenReply(TypedDict):
    """A reply that was reserved and is not settled. turn: its number. reserved: of tokens and cost as much as
    the reply before it used. by: the process that did. again: how often it was begun before, by one that came
    to an end."""

    turn: int
    reserved: dict[str, float]
    by: str
    again: int


class LedgerEntry(TypedDict):
    """One machine. used: by it, and by those below whose calls have results, by the names of the limits.
    calls: those of its last reply that may run. lost: what replies have cost that nobody got. turn, reply:
    the number of its last reply, and what that has cost."""

    used: dict[str, float]
    turn: NotRequired[int]
    reply: NotRequired[dict[str, float]]
    open: NotRequired[OpenReply]
    calls: NotRequired[int]
    lost: NotRequired[dict[str, float]]


Row = Mapping[str, Any]
"""The entries of a tree: `{"machines": {namespace: LedgerEntry}}`."""

_Edit = Callable[[Mapping[str, LedgerEntry]], tuple[dict[str, LedgerEntry], _T]]


@dataclass
class RunLedger:
    """The ledger of a tree that has no store."""

    machines: dict[str, LedgerEntry] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def change(self, edit: _Edit[_T]) -> _T:
        with self.lock:
            self.machines, found = edit(self.machines)
        return found


_MOST_LAST = 256
_LAST: WeakKeyDictionary[Any, dict[Any, dict[str, Any]]] = WeakKeyDictionary()
"""The ledgers as last written by this process, by store."""

# For stores without an atomic swap: at least machines in one process do not lose each other's writes.
_ONE_BY_ONE = threading.Lock()


@dataclass(frozen=True)
class _Change:
    """Changes the ledger of the tree; returns the result of the edit, which may run more than once."""

    root: str
    kept: RunLedger | None
    edit: _Edit[Any]

    def do(self, run: NodeContext) -> Any:
        return self._swapped(run) if self.kept is None else self.kept.change(self.edit)

    async def ado(self, run: NodeContext) -> Any:
        return self.do(run) if self.kept is not None else await asyncio.to_thread(self.do, run)

    def _name(self, run: NodeContext) -> tuple[tuple[str, ...], str]:
        return ("signoff", LEDGER, label(run.thread_id)), self.root

    def _edited(self, before: Mapping[str, Any] | None) -> tuple[dict[str, Any], Any]:
        machines, found = self.edit(before["machines"] if before else {})
        return {"machines": machines}, found

    def _swapped(self, run: NodeContext) -> Any:
        store, (place, key) = run.store, self._name(run)
        assert store is not None, "without a store the tree keeps its ledger in the process"
        swaps = hasattr(store, "swap")
        last = _LAST.setdefault(store, {}) if swaps else {}
        # The value last written by this process is nearly always the current one.
        before = last.pop((place, key), None)
        with nullcontext() if swaps else _ONE_BY_ONE:
            while True:
                if before is None:
                    item = store.get(place, key)
                    before = None if item is None else item.value
                after, found = self._edited(before)
                if Swap(place, key, before, after).on(store):
                    if len(last) < _MOST_LAST:
                        last[place, key] = after
                    return found
                before = None


def _begun(entry: LedgerEntry, name: str) -> float:
    """A machine's usage of a limit, including its reservations."""
    found = entry["used"].get(name, 0) + entry.get("lost", {}).get(name, 0)
    if name == "tool_calls":
        found += entry.get("calls", 0)
    elif reply := entry.get("open"):
        found += 1 if name == "tree_turns" else reply["reserved"].get(name, 0)
    return found


def _above(
    machines: Mapping[str, LedgerEntry], ns: str, bounds: tuple[TreeBound, ...]
) -> dict[str, BoundAbove]:
    """For each limit by name, the bound of the machine above `ns` that leaves the least."""
    found: dict[str, BoundAbove] = {}
    for bound in bounds:
        others = [
            entry for at, entry in machines.items() if is_within(at, bound.ns) and not is_within(at, ns)
        ]
        for name, limit in bound.limits.items():
            one = BoundAbove(others=sum(_begun(entry, name) for entry in others), limit=limit)
            if name not in found or limit - one["others"] < found[name]["limit"] - found[name]["others"]:
                found[name] = one
    return found


def _used(task: Task, limits: Limits) -> dict[str, float]:
    """The usage of the task and all delegates below it since it began, by the names of the limits."""
    return {
        name: total(task, limits) - task.lost(name, since_extended=False)
        for name in SHARED
        if (total := COUNTED[name].total)
    }


def _of_mark(used: Mapping[str, Any]) -> dict[str, float]:
    """A delegate's usage, from the mark of a withdrawn result."""
    return {"tree_turns": used["turns"]} | {
        name: used[name] for name in SHARED if name != "tree_turns" and name in used
    }


def _of_reply(reply: Reply | None, limits: Limits) -> dict[str, float]:
    """The usage of a reply, as counted by its provider."""
    found = of_reply(reply.message, lambda: (0, 0)) if reply else None
    tokens = found.total_tokens if found else 0
    return {"tokens": tokens, "cost": limits.prices.cost(found) if found and limits.prices else 0.0}


@dataclass(frozen=True)
class TreeMachine:
    """A machine at one moment, as it changes the ledger. again: its delegates whose results were taken back,
    by the ids of their calls."""

    ns: str
    task: Task
    limits: Limits
    bounds: tuple[TreeBound, ...]
    again: Mapping[str, GoingOn] = field(default_factory=dict)

    @lazy
    def cost(self) -> dict[str, float]:
        """The usage of its last reply."""
        return _of_reply(self.task.last, self.limits)

    def settled(self, machines: Mapping[str, LedgerEntry]) -> dict[str, LedgerEntry]:
        """The entries with this one's use. What those below it have used whose calls have results is part of
        that; the others keep their own."""
        before, cost = machines.get(self.ns), self.cost
        entry = LedgerEntry(used=_used(self.task, self.limits), turn=self.task.turns, reply=cost)
        before = self.without_lost(before) if before else None
        lost = dict(before.get("lost", {})) if before else {}
        reply = before.get("open") if before else None
        if reply and reply["again"] and reply["turn"] <= self.task.turns:
            # The prompt was the same; so it has cost about as much as the reply that came in its place.
            lost = {name: lost.get(name, 0) + reply["again"] * cost[name] for name in cost}
        if lost:
            entry["lost"] = lost
        below = [(name, self._of_open(name, call, machines)) for name, call in self._open_calls()]
        others = {at: kept for at, kept in machines.items() if not is_within(at, self.ns)}
        return {**others, self.ns: entry, **{at: kept for _, found in below for at, kept in found.items()}}

    def _open_calls(self) -> list[tuple[str, Call]]:
        """The open calls of the last reply, each with the namespace that its machine has, if it has one."""
        reply = self.task.last
        if reply is None:
            return []
        calls = [call for call in reply.calls if reply.open(call)]
        return [(namespace(self.ns, call.name, reply.message.id or "", call.id), call) for call in calls]

    def _of_open(self, ns: str, call: Call, machines: Mapping[str, LedgerEntry]) -> Mapping[str, LedgerEntry]:
        """The entries of a delegate whose call is open, and of those below it."""
        found = {at: kept for at, kept in machines.items() if is_within(at, ns)}
        again = None if found else self.again.get(call.id)
        return found if again is None else {ns: LedgerEntry(used=_of_mark(again.used))}

    def without_lost(self, entry: LedgerEntry) -> LedgerEntry:
        """The entry, where the last reply that it knows is in no history, since the process ended before that
        was saved: what it has cost is lost."""
        if entry.get("turn", 0) <= self.task.turns:
            return entry
        lost, reply = entry.get("lost", {}), entry.get("reply", {})
        lost = {name: lost.get(name, 0) + cost for name, cost in reply.items()}
        return {**entry, "used": _used(self.task, self.limits), "turn": self.task.turns, "lost": lost}

    def begun_again(
        self, machines: Mapping[str, LedgerEntry], *, calling: bool
    ) -> tuple[dict[str, LedgerEntry], None]:
        """Notes that a reply which was reserved is begun once more: what the first one has cost is lost.
        calling: the run goes on with the call of the model itself, which was begun, then, even in this
        process."""
        after, entry = dict(machines), machines.get(self.ns)
        if entry is None:
            return after, None
        after[self.ns] = entry = self.without_lost(entry)
        reply = entry.get("open")
        if reply and reply["turn"] <= self.task.turns:
            # It has arrived, and is settled only after its calls.
            reply = None
        if reply and (calling or _is_anothers(reply)):
            after[self.ns] = {**entry, "open": {**reply, "by": _process(), "again": reply["again"] + 1}}
        elif calling and not reply:
            # The reply was settled, and is asked for again: this process, too, may end before it comes.
            after[self.ns] = {**entry, "open": self._reserved(again=0)}
        return after, None

    def _reserved(self, again: int) -> OpenReply:
        """The next reply, before it is begun."""
        return OpenReply(turn=self.task.turns + 1, reserved=self.cost, by=_process(), again=again)

    def read(self, machines: Mapping[str, LedgerEntry]) -> TreeBudget:
        found = TreeBudget(task=self.task.id, above=_above(machines, self.ns, self.bounds))
        if self.ns in machines and (lost := machines[self.ns].get("lost")):
            found["lost"] = lost
        if self.task.tree and (counted := self.task.tree.get("counted")):
            found["counted"] = counted
        if granted := self._granted():
            found["granted"] = granted
        return found

    def _granted(self) -> GrantedCalls | None:
        """What the last reply was granted, also when no call of it is left: without it, the value in the
        state would change once more for each reply."""
        found = self.task.tree.get("granted") if self.task.tree else None
        if found is None or self.task.last is None or self.task.due:
            return None
        return found if found["reply"] == self.task.last.message.id else None

    def deciding(
        self, machines: Mapping[str, LedgerEntry], wanted: int = 0
    ) -> tuple[dict[str, LedgerEntry], TreeBudget]:
        """Settles what is done, and reserves the next reply, if the rules let it begin; where calls of the
        last one are left, as many of them as may run. wanted: how many are left."""
        reply = machines[self.ns].get("open") if self.ns in machines else None
        after = self.settled(machines)
        found = self.read(after)
        task = self.task if found == self.task.tree else replace(self.task, tree=found)
        if decide(task, self.limits)["event"] == Event.THINK:
            same = reply if reply and reply["turn"] == self.task.turns + 1 else None
            after[self.ns]["open"] = self._reserved(same["again"] + _is_anothers(same) if same else 0)
        elif wanted:
            self._grant(after, found, wanted)
        return after, found

    def replied(
        self, machines: Mapping[str, LedgerEntry], wanted: int
    ) -> tuple[dict[str, LedgerEntry], TreeBudget]:
        """Settles a reply, and reserves as many of its work calls as may run."""
        after = self.settled(machines)
        found = self.read(after)
        self._grant(after, found, wanted)
        return after, found

    def _grant(self, after: dict[str, LedgerEntry], found: TreeBudget, wanted: int) -> None:
        """Reserves so many calls of the last reply, or as many as may run, and notes that in `found`."""
        reply = self.task.last
        assert reply is not None, "the calls are of the last reply"
        bound = budget("tool_calls", self.task, self.limits, found)
        calls = wanted if bound is None else max(0, min(wanted, int(bound.limit - bound.used)))
        after[self.ns]["calls"] = calls
        found["granted"] = GrantedCalls(reply=reply.message.id or "", calls=reply.work_run + calls)


_NAMES: dict[int, str] = {}


def _process() -> str:
    """An id of this process, since process numbers are reused."""
    number = os.getpid()
    return _NAMES.get(number) or _NAMES.setdefault(number, uuid.uuid4().hex)


def _is_anothers(reply: OpenReply) -> bool:
    return reply["by"] != _process()


def kept_in_process(run: NodeContext) -> bool:
    """Whether the ledger of a tree with this machine at its top is kept in the process."""
    return run.store is None or run.thread_id is None


def _is_kept(run: NodeContext) -> bool:
    """Whether this machine writes to a ledger: a tree has a limit."""
    if run.descent is not None:
        return bool(run.descent.bounds)
    if not run.deps.toolbox.delegates or kept_in_process(run):
        return False
    return any(getattr(run.limits, name) is not None for name in SHARED)


def _machine(task: Task, state: AgentState, run: NodeContext) -> TreeMachine:
    bounds = run.descent.bounds if run.descent is not None else ()
    again = going_on(state["messages"]) if run.deps.toolbox.delegates else {}
    return TreeMachine(run.ns, task, run.limits, bounds, again)


def _change(run: NodeContext, task: Task, edit: _Edit[_T]) -> _Change:
    above = run.descent
    return _Change(above.root if above else task.id, above.ledger if above else None, edit)


def fresh(task: Task, run: NodeContext) -> Part[Task]:
    """A part of a node of a delegate: the task with the current ledger. Reserves nothing."""
    if run.descent is None or not run.descent.bounds:
        return task
    machine = TreeMachine(run.ns, task, run.limits, run.descent.bounds)
    found = yield _change(run, task, lambda machines: (dict(machines), machine.read(machines)))
    return replace(task, tree=found)


_WATCHED = frozenset(
    {State.COMPRESS, State.DECIDE, State.CALL_LLM, State.ROUTE_TOOLS, State.EXECUTE, State.FINISH}
)


def in_tree(state: State, work: Work) -> Work:
    """The work of a state in a tree of machines: with the ledger, and with checks for a requested pause."""
    if state not in _WATCHED:
        return work
    working = _kept(state, work)
    return _listening(working) if state in (State.CALL_LLM, State.EXECUTE) else working


def _listening(work: Work) -> Work:
    """The work of a delegate's state, preceded by a check whether another process requests a pause: the
    runner of the thread only waits for the delegate, and sees none of its steps."""

    def steps(held: AgentState, run: NodeContext) -> Steps:
        (asked,) = yield Store([GetOp(*pause_place(run.thread_id))])
        if asked is not None and not run.draining:
            run.control.request_drain("request")
        found = work(held, run)
        return found if isinstance(found, Report) else (yield from found)

    def listening(held: AgentState, run: NodeContext) -> Report | Steps:
        heard = run.descent is not None and run.descent.listens and run.thread_id is not None
        return steps(held, run) if heard and run.store is not None else work(held, run)

    return listening


def _kept(state: State, work: Work) -> Work:
    """The work of a state with what the ledger needs: nothing, where no limit bounds a tree."""

    def steps(held: AgentState, run: NodeContext) -> Steps:
        if run.goes_on:
            calling = state is State.CALL_LLM
            task = run.task(held)
            machine = _machine(task, held, run)
            # The reply that is begun again is asked for in this very step.
            yield _change(run, task, lambda machines: machine.begun_again(machines, calling=calling))
        if state is State.FINISH:
            return (yield from _ended(work, held, run))
        found = work(held, run)
        report: Report = found if isinstance(found, Report) else (yield from found)
        return (yield from _after(report, held, run)) if _is_noted(state, report, run) else report

    def working(held: AgentState, run: NodeContext) -> Report | Steps:
        needed = state is not State.DECIDE or run.goes_on
        return steps(held, run) if needed and _is_kept(run) else work(held, run)

    return working


def _ended(work: Work, held: AgentState, run: NodeContext) -> Steps:
    """The report of the last state. What its delegates have used that it ends stays in the ledger: going
    on goes on with them."""
    task = run.task(held)
    closes = bool(calls_left(task.id, task.replies))
    found = work(held, run)
    report: Report = found if isinstance(found, Report) else (yield from found)
    # In the given state, the calls that it has answered are still open; nothing else must be read again.
    task = run.task(held) if closes else task
    machine = _machine(task, held, run)
    yield _change(run, task, lambda machines: (machine.settled(machines), None))
    return report


def _is_noted(state: State, report: Report, run: NodeContext) -> bool:
    """Whether the ledger is changed after this report of a state."""
    assert report.event is not None, "only the last state reports no event"
    if report.event is Event.REPLIED:
        return _may_grant(run)
    return next_state(state, report.event) is State.DECIDE


def _after(report: Report, held: AgentState, run: NodeContext) -> Steps:
    """The report of a state, with the ledger as read when it was settled."""
    replied = report.event is Event.REPLIED
    update, messages = report.update, held["messages"]
    if "messages" in update:
        messages, written = foreseen(messages, update["messages"])
        update = {**update, "messages": written}
        report = Report(report.event, update)
    after: AgentState = {**held, **update, "messages": messages}  # type: ignore[typeddict-item]  # what a node reports
    task = run.task(after)
    machine, wanted = _machine(task, after, run), _wanted(task, run)
    if not replied:
        found = yield _change(run, task, lambda machines: machine.deciding(machines, wanted))
    elif wanted:
        found = yield _change(run, task, lambda machines: machine.replied(machines, wanted))
    else:
        return report
    if found == held.get("tree") or not (found.keys() - {"task", "above"} or found["above"]):
        # Nothing runs beside the machine at the top, and nothing was lost: its history says all.
        return report
    return Report(report.event, {**report.update, "tree": found})


def _may_grant(run: NodeContext) -> bool:
    """Whether the ledger may need to know of calls before they run."""
    box = run.deps.toolbox
    return _bounds_calls(run) or bool(box.delegates) or box.approvals.asks


def _bounds_calls(run: NodeContext) -> bool:
    """Whether a limit of tool calls bounds this machine together with others that may run beside it."""
    if run.deps.toolbox.delegates and run.limits.tool_calls is not None:
        return True
    above = run.descent
    if above is None or not any("tool_calls" in bound.limits for bound in above.bounds):
        return False
    return not above.leaves_alone(run.ns)


def _wanted(task: Task, run: NodeContext) -> int:
    """The work calls of the last reply, where the ledger needs to know of them before they run."""
    box = run.deps.toolbox
    work = [
        call for call in task.due if call.effect is None and call.problem is None and call.name in box.tools
    ]
    if not (_bounds_calls(run) or task.undecided or any(call.name in box.delegates for call in work)):
        return 0
    return sum(not box.misfit(call.name, call.args) for call in work)


def bounds_below(task: Task, run: NodeContext) -> tuple[TreeBound, ...]:
    """The limits that bound the delegates of this machine: its own, and those above it."""
    own = {
        name: found.limit + total(task, run.limits) - counted.used(task, run.limits)
        for name in SHARED
        if (found := _own(name, task, run.limits)) and (counted := COUNTED[name]) and (total := counted.total)
    }
    above = run.descent.bounds if run.descent is not None else ()
    return (*above, TreeBound(run.ns, own)) if own else above


def _own(name: str, task: Task, limits: Limits) -> Any:
    return budget(name, replace(task, tree=None), limits)


def ledger_below(task: Task, run: NodeContext) -> RunLedger | None:
    """The ledger in the process for the delegates of this machine; None where the store has it."""
    if run.descent is not None:
        above: RunLedger | None = run.descent.ledger
        return above
    if not kept_in_process(run):
        return None
    return RunLedger({run.ns: _at_work(task, run.limits)})


def _at_work(task: Task, limits: Limits) -> LedgerEntry:
    """The entry of a machine that has not written to the ledger of this run."""
    return LedgerEntry(used=_used(task, limits), calls=sum(call.effect is None for call in task.due))


def enter(ledger: RunLedger, ns: str, task: Task, limits: Limits) -> None:
    """Records a machine that continues in another run: its usage is not in the ledger of this run yet."""
    entry = _at_work(task, limits)
    ledger.change(lambda machines: ({ns: entry, **machines}, None))


def copy_ledger(store: BaseStore, threads: tuple[str, str], root: str, machines: Sequence[str]) -> None:
    """Copies the ledger entries of these machines from the first thread to the second."""
    source, target = (("signoff", LEDGER, label(thread_id)) for thread_id in threads)
    if item := store.get(source, root):
        kept = {ns: entry for ns, entry in item.value["machines"].items() if ns in machines}
        store.put(target, root, {"machines": kept})
