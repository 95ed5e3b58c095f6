"""Visits every state that a machine and its delegates can reach together."""

from collections import deque
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from langchain_core.messages import ToolMessage

from signoff.graph.errors import SignoffError
from signoff.graph.finish.again import LEFT
from signoff.graph.foreign import label
from signoff.graph.history.reader import read_messages
from signoff.graph.history.task import Task, current_task
from signoff.graph.messages import is_reply, marks
from signoff.graph.state import BoundAbove
from signoff.nodes.delegates.ledger import LEDGER
from signoff.verify.choices import MOST_STEPS, STEP
from signoff.verify.explore import (
    ENDS,
    FAITHFUL,
    FAULTS,
    LEGAL,
    Broken,
    Exploration,
    endless,
    key,
)
from signoff.verify.machine import Entries, MachinePoint
from signoff.verify.properties import PROPERTIES
from signoff.verify.tree import TOP, Tree, TreePoint, TreeStep, TreeWorld, Way, path
from signoff.verify.tree_properties import (
    NO_DEADLOCK,
    NO_LOST_WAIT,
    TREE_PROPERTIES,
    waits_are_at_the_top,
)


class TreeExplorer:
    """Explores one world. thorough: whether to check the abstraction, too, which takes twice the time."""

    def __init__(self, world: TreeWorld, *, thorough: bool = True, until: Collection[str] = ()) -> None:
        self.world = world
        self.found = Exploration()
        self._thorough = thorough
        self._until = set(until)
        self._queue: deque[tuple[Hashable, TreePoint]] = deque()
        self._seconds: dict[Hashable, TreePoint] = {}
        self._key = _Keys(world.tree, goes_on="go further" in world.events).of

    def run(self) -> Exploration:
        """Returns everything that is reached; stops when one of the properties `until` is broken."""
        self.found.first.append(self._reach(self.world.begin()))
        while self._queue and not self._done:
            state, point = self._queue.popleft()
            ways = self.found.ways[state]
            for choice, steps in self._ways(point):
                for step in steps:
                    self._judge(step)
                if self._done:
                    return self.found
                ways[choice] = self._reach(steps[-1].after)
        if not self._done:
            self._ends()
        if self._thorough and not self._done:
            self._compare()
        return self.found

    @property
    def _done(self) -> bool:
        return any(one.name in self._until for one in self.found.broken)

    def _reach(self, point: TreePoint) -> Hashable:
        state = self._key(point)
        if state not in self.found.ways:
            self.found.ways[state] = {}
            self._queue.append((state, point))
        else:
            self._seconds.setdefault(state, point)
        return state

    def _ways(self, point: TreePoint) -> Iterator[Way]:
        try:
            delegates = self.world.tree.top.delegates(point.top)
            standing = self.world.tree.stand(point) if delegates else None
            if standing is not None and (why := waits_are_at_the_top(point, standing)):
                self._break(NO_LOST_WAIT, why, point)
            for choice, steps in self.world.successors(point, standing):
                told = (*point.path, choice.name) if choice.sort != STEP else point.path
                if len(steps) > MOST_STEPS:
                    self._break(ENDS, f"{MOST_STEPS} steps without a model call", point)
                last = replace(steps[-1], after=replace(steps[-1].after, path=told))
                yield choice, [*steps[:-1], last]
        except (*FAULTS, SignoffError) as error:
            self._break(LEGAL, f"{type(error).__name__}: {error}", point)

    def _judge(self, step: TreeStep) -> None:
        machine = self.world.tree.plain(step.ns)
        for one in PROPERTIES:
            if why := one.broken(step.step, machine):
                self._break(one.name, f"{why} ({step.ns.partition(':')[0] or 'the top'})", step.after)
        for other in TREE_PROPERTIES:
            if why := other.broken(step, self.world.tree):
                self._break(other.name, why, step.after)

    def _ends(self) -> None:
        """Checks that there is no cycle without a model or a person, and that an end can be reached from
        everywhere."""
        if (state := endless(self.found.ways)) is not None:
            self._break(ENDS, f"an endless cycle in {state!r:.80}", None)
        before: dict[Hashable, list[Hashable]] = {}
        for state, ways in self.found.ways.items():
            for target in ways.values():
                before.setdefault(target, []).append(state)
        ended = [state for state in self.found.ways if isinstance(state, tuple) and state[0] is None]
        reached, waiting = set[Hashable](ended), list[Hashable](ended)
        while waiting:
            for state in before.get(waiting.pop(), ()):
                if state not in reached:
                    reached.add(state)
                    waiting.append(state)
        for state in self.found.ways.keys() - reached:
            self._break(NO_DEADLOCK, f"no end can be reached from {state!r:.80}", None)
            return

    def _compare(self) -> None:
        """Checks that a second history with the same state continues like the first."""
        for state, point in self._seconds.items():
            for choice, steps in self._ways(point):
                if self.found.ways[state].get(choice) != self._key(steps[-1].after):
                    self._break(FAITHFUL, f"{choice.sort} {choice.name}", steps[-1].after)
                    return
                self.found.compared += 1

    def _break(self, name: str, why: str, point: TreePoint | None) -> None:
        self.found.broken.append(Broken(name, why, point.path if point is not None else ()))


class _Keys:
    """Returns everything that the rules and the nodes of all machines read, with the position of the top
    machine first.

    The part of one machine is cached while its point is the same object. goes_on: whether a task may continue
    after its end, together with the delegates whose results are then withdrawn.
    """

    def __init__(self, tree: Tree, *, goes_on: bool) -> None:
        self._tree = tree
        self._goes_on = goes_on
        self._bounds = tree.bounds
        self._known: dict[tuple[int, str], tuple[MachinePoint, Entries, Hashable]] = {}

    def of(self, point: TreePoint) -> Hashable:
        live = sorted(
            (ns for ns in point.below if self._may_move(point, ns)),
            key=lambda ns: (ns.count("|"), point.calls[ns], ns),
        )
        kept = [self._ledger(value) for place, value in point.top.shelf.items() if place[0][1] == LEDGER]
        places = [_position(point, point.calls[ns]) for ns in live]
        parts = [self._one(point, ns) for ns in (TOP, *live)]
        return point.top.place, point.top.outside, *places, *parts, *kept

    def _may_move(self, point: TreePoint, ns: str) -> bool:
        if point.is_live(ns):
            return True
        if not self._goes_on or not point.top.outside:
            return False
        above, reply_id, call_id = point.calls[ns]
        messages = point.all[above].messages
        last = next((message.id for message in reversed(messages) if is_reply(message)), None)
        results = (m for m in messages if isinstance(m, ToolMessage) and m.tool_call_id == call_id)
        left = all(marks(found).get("delegate", {}).get("status") in _TAKEN_BACK for found in results)
        return reply_id == last and left and (above == TOP or self._may_move(point, above))

    def _one(self, point: TreePoint, ns: str) -> Hashable:
        at, mine = point.all[ns], _own_journal(point.top.shelf, ns)
        known = self._known.get((id(at), ns))
        if known is None or known[1] != mine:
            known = self._known[id(at), ns] = (at, mine, self._read(replace(at, shelf=mine, outside=0), ns))
        return known[2]

    def _read(self, at: MachinePoint, ns: str) -> Hashable:
        machine = self._tree.plain(ns)
        reader = read_messages(at.state, machine.deps.toolbox)
        task = current_task(reader, at.state, can_ask=True)
        counted = [self._counted(task, name) for name in _COUNTED if name in self._bounds]
        tree = at.state.get("tree") if self._bounds else None
        held = tree["above"] if tree else {}
        above = sorted((name, self._least(name, one)) for name, one in held.items())
        given = tree.get("granted") if tree else None
        granted = given and (given["calls"], task.last and given["reply"] == task.last.message.id)
        return ns.count("|"), key(at, machine), tuple(counted), tuple(above), granted

    def _least(self, name: str, bound: BoundAbove) -> float:
        return min(float(self._bounds[name]), bound["others"])

    def _ledger(self, row: Mapping[str, Any]) -> Hashable:
        """The ledger entries of the tree's machines, for the limits that it has."""
        found = []
        for ns, entry in row["machines"].items():
            used = [min(most, entry["used"].get(name, 0)) for name, most in self._bounds.items()]
            begun = entry.get("open")
            one = (tuple(used), begun and (begun["turn"], begun["again"]), entry.get("calls", 0))
            found.append((path(ns), one))
        return tuple(sorted(found, key=repr))

    def _counted(self, task: Task, name: str) -> tuple[float, float]:
        """The usage of a limit by a task and those below it, capped at the limit."""
        most, used = self._bounds[name], [getattr(task.total, one) for one in _COUNTED[name]]
        return min(most, used[0]), min(most, used[1])


_TAKEN_BACK = ("error", "limit", LEFT)
_COUNTED = {"tokens": ("total_tokens", "below_tokens"), "tool_calls": ("tool_calls", "below_calls")}


def _position(point: TreePoint, call: Any) -> Hashable:
    """Which call of which reply of its machine this is, counted from the end."""
    above, reply_id, call_id = call
    if not call_id:
        return None
    messages = point.all[above].messages
    reply = next(m for m in messages if m.id == reply_id)
    return above, [one["id"] for one in reply.tool_calls].index(call_id)  # type: ignore[attr-defined]


def _own_journal(shelf: Entries, ns: str) -> Entries:
    """The store entries that belong to this machine alone."""
    mine = label(ns) if ns else None

    def own(namespace: tuple[str, ...]) -> bool:
        if namespace[1] != "journal":
            return ns == TOP
        return (namespace[3] if len(namespace) == 5 else None) == mine

    return {place: value for place, value in shelf.items() if own(place[0])}
