"""Visits every state that a run can reach.

Two points with the same key have the same future, so one of them is enough. A broken property is reported
with the path that led there.
"""

from collections import deque
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from signoff.graph.errors import IllegalEvent
from signoff.graph.finish.passed_over import open_points_of, to_refuse
from signoff.graph.finish.standstill import idle_refusals, moved
from signoff.graph.history.reader import Reader, Verdict, decided, read_messages, verdicts_of
from signoff.graph.history.replies import Call
from signoff.graph.history.task import Task, current_task
from signoff.graph.history.usage import Used
from signoff.graph.limits import Limits, is_whole
from signoff.graph.machine import ENTRIES, Event, State
from signoff.graph.messages import is_answer, is_genuine, marks
from signoff.graph.state import AgentState
from signoff.nodes.decide import STRAIGHT
from signoff.nodes.tool_calls.done import undo_key
from signoff.verify.choices import MOST_STEPS, OUTSIDE, REPLY, STEP, Possibility, World
from signoff.verify.machine import ALPHABET, THREAD, Machine, MachinePoint, MachineStep, reopened
from signoff.verify.properties import PROPERTIES, Property


@dataclass(frozen=True)
class Broken:
    """A property that does not hold, the reason, and the path there."""

    name: str
    why: str
    path: Sequence[str]


@dataclass
class Exploration:
    """The visited states.

    ways: for each state its successors, by what happens. reported: the events that the states of the machine
    have reported, and those from outside (without a state). compared: the number of steps that were repeated
    and compared.
    """

    broken: list[Broken] = field(default_factory=list)
    ways: dict[Hashable, dict[Possibility, Hashable]] = field(default_factory=dict)
    first: list[Hashable] = field(default_factory=list)
    compared: int = 0
    reported: set[tuple[State | None, Event | None]] = field(default_factory=set)

    @property
    def states(self) -> int:
        return len(self.ways)

    @property
    def transitions(self) -> int:
        return sum(map(len, self.ways.values()))

    def sequences(self, length: int) -> int:
        """Returns how many different runs of up to `length` replies and events these states represent."""
        reached: dict[Hashable, int] = {}
        for start in self.first:
            reached[start] = reached.get(start, 0) + 1
        total = 0
        for _ in range(length):
            after: dict[Hashable, int] = {}
            for state, times in self._settled(reached).items():
                for choice, target in self.ways.get(state, {}).items():
                    if choice.sort != STEP:
                        after[target] = after.get(target, 0) + times
            total, reached = total + sum(after.values()), after
        return total

    def _settled(self, reached: Mapping[Hashable, int]) -> Mapping[Hashable, int]:
        """Returns these states, and those that the machine alone reaches from them; cycles are cut."""
        all_of = dict(reached)
        waiting = deque((state, times, 0) for state, times in reached.items())
        while waiting:
            state, times, steps = waiting.popleft()
            for choice, target in self.ways.get(state, {}).items() if steps < MOST_STEPS else ():
                if choice.sort == STEP:
                    all_of[target] = all_of.get(target, 0) + times
                    waiting.append((target, times, steps + 1))
        return all_of


def key(point: MachinePoint, machine: Machine) -> Hashable:
    """Returns everything that the rules and the nodes read, with counts capped at their limits."""
    reader = read_messages(point.state, machine.deps.toolbox)
    task = current_task(reader, point.state, can_ask=machine.can_ask)
    return (
        point.place,
        point.waiting["type"] if point.waiting and "type" in point.waiting else point.waiting is not None,
        point.outside,
        _task(task, machine),
        _reply(task, point),
        _state(point, task, reader),
        _journal(point, task),
        _undo(point, task, machine),
    )


def _task(task: Task, machine: Machine) -> Hashable:
    limits = machine.deps.limits
    # Below 0 after answered questions: the machine treats that as 0, also where turns are granted then, and
    # an exploration that took this for granted would never see it broken.
    left = max(-1, task.most_turns(limits.turns) - task.turns)
    fresh = task.fresh
    return (
        bool(task.id),
        left,
        task.turns == task.resumed,
        tuple(_call(call) for call in task.due),
        _call(task.ask),
        _call(task.finish),
        tuple((_call(stray.call), stray.why) for stray in task.strays),
        tuple(call.id != "" and _call(call) for call in task.undecided),
        tuple(str(words.wait) for words in task.answers.values()),
        task.nudged,
        task.reminded,
        fresh and (fresh.stop, fresh.reasoning, fresh.empty, fresh.talk),
        task.spoke is not None,
        task.batch,
        min(task.talk_turns, limits.talk_turns),
        min(task.filtered, 2),
        task.answered,
        _used(task, limits),
        _work(task) if limits.repeats is not None else None,
        _idle(task, limits.refusals),
        _phase(task),
        _open_points(task, machine),
        task.stopped,
        task.ended,
        task.before is not None,
    )


def _used(task: Task, limits: Limits) -> Hashable:
    """Returns what is counted in whole numbers against a limit of the same name.

    Tokens and their cost follow from the turns here, and no clock runs.
    """
    counted = [name for name in Used._fields if getattr(limits, name, None) is not None and is_whole(name)]
    return tuple(getattr(task.used, name) for name in counted), task.used.refused


def _call(call: Call | None) -> Hashable:
    if call is None:
        return None
    return call.name, repr(sorted(call.args.items())), call.problem, call.effect, call.id in ("", "call_0")


def _work(task: Task) -> Hashable:
    """Returns the work so far, step by step: any of it may repeat."""
    return tuple(
        tuple(
            (_call(call), found and found.status)
            for call, found in zip(reply.calls, reply.found, strict=True)
        )
        for reply in task.replies[task.resumed :]
        if reply.calls
    ), task.row


def _phase(task: Task) -> Hashable:
    """Returns the last phase, and whether there was work after it."""
    if not task.phases:
        return None
    last = task.phases[-1]
    return last["percentage"], last["next_phase"], moved(task.replies[last["turn"] :])


def _open_points(task: Task, machine: Machine) -> Hashable:
    """Returns what is open, and for what of it the next claim of "done" is refused. An answer to the last
    reply settles what an earlier one has left open."""
    is_effect, last = machine.deps.toolbox.is_effect, len(task.replies)
    refused = [point.sentence for point in to_refuse(task, is_effect)]
    points = [(point.sentence, point.turn == last) for point in open_points_of(task, is_effect)]
    return tuple(points), tuple(refused)


def _idle(task: Task, most: int | None) -> Hashable:
    """Returns the refusals since the last work: a repeated one, or too many, would be a standstill."""
    found = idle_refusals(task)
    claims = frozenset(
        (call.name, repr(sorted(call.args.items())), why["kind"], why["why"]) for call, why in found
    )
    return claims, None if most is None else min(len(found), most)


def _reply(task: Task, point: MachinePoint) -> Hashable:
    """Returns the replies with pending or accepted calls, and the results of their calls."""
    open_calls = [*task.due, *(call for call in (task.ask, task.finish) if call)]
    held = {id(reply): reply for call in open_calls for reply in [task.reply_of(call)]}
    # The next calls to be routed are compared completely.
    if task.last and point.place in (State.ROUTE_TOOLS, State.EXECUTE):
        held[id(task.last)] = task.last
    replies = list(held.values())
    verdicts = verdicts_of(point.state.get("verdicts"), task.id)
    approvals = point.state.get("approvals")
    decisions = approvals["calls"] if approvals else {}
    return tuple(
        (
            tuple(_call(call) for call in reply.calls),
            tuple(
                (index, found.status, marks(found).get("not_run"), bool(marks(found).get("unknown")))
                for index, found in enumerate(reply.found)
                if found
            ),
            tuple(_verdict(verdicts.get(reply.key(call))) for call in reply.calls),
            tuple(
                (made := decided(call, decisions)) and (made["type"], made["attempt"]) for call in reply.calls
            ),
        )
        for reply in replies
    )


def _verdict(found: Verdict | None) -> str | None:
    return found if found is None or isinstance(found, str) else found["kind"]


def _state(point: MachinePoint, task: Task, reader: Reader) -> Hashable:
    state, messages = point.state, point.messages
    last = messages[-1] if messages else None
    ending, ended, outcome = state.get("ending"), state.get("ended"), state.get("outcome")
    asked: Mapping[str, Any] = state.get("approvals") or {}
    long = state.get("too_long")
    given = state.get("verdicts")
    confirm = given.get("asked") if given else None
    return (
        state["decision"]["rule"] if point.place is State.NUDGE else None,
        point.place is State.DECIDE and state.get("event") in STRAIGHT,
        ending and (ending["task"] == task.id, ending["status"], ending["reason"]),
        ended and (ended["task"] == task.id, last is not None and ended["message"] == last.id),
        outcome and (outcome["task"] == task.id, outcome["status"], outcome["reason"]),
        state.get("task") == task.id,
        # It tells whether a call that is closed may have run.
        state.get("event") if task.answers or task.strays else None,
        task.before and (state.get("task") == task.before.id, ended and ended["task"] == task.before.id),
        isinstance(last, AIMessage) and (is_answer(last) or "reply"),
        isinstance(last, HumanMessage) and is_genuine(last),
        reader.answering is not None,
        bool(reader.unmarked),
        "call_0" in task.call_ids,
        tuple(sorted(asked.get("asked", ()) or ())) != (),
        bool(asked.get("problem")),
        confirm and bool(confirm["problem"]),
        long and (long["task"] == task.id, last is not None and long["after"] == last.id),
    )


def _undo(point: MachinePoint, task: Task, machine: Machine) -> Hashable:
    """Returns what an undo reads: each effect of the task, by reply, the store entries for it and for its
    undo, and the progress of the undo."""
    if not machine.deps.toolbox.undos:
        return None
    shelf = [(name, value) for (place, name), value in point.shelf.items() if place[1] == "journal"]
    told = {name: (value["status"], value["attempt"]) for name, value in shelf}
    effects = tuple(
        tuple(
            (
                (_call(call), found.status, marks(found).get("not_run"), "undone" in marks(found)),
                (told.get(call.id), told.get(undo_key(reply.message.id or "", call.id))),
            )
            for call, found in zip(reply.calls, reply.found, strict=True)
            if found is not None and machine.deps.toolbox.is_effect(call.name)
        )
        for reply in task.replies
    )
    found = point.state.get("undo")
    if found is None or found["task"] != task.id:
        return effects
    done, event = tuple(step["why"] for step in found["done"]), point.state.get("event")
    how = found["ask"], found["over"], bool(found.get("left_off")), bool(found["problem"])
    decided_on = tuple(one["type"] for one in found["decisions"].values())
    return effects, done, how, decided_on, event


def _journal(point: MachinePoint, task: Task) -> Hashable:
    """Returns the entries of the store for open calls and for the tasks."""
    open_calls = [call for reply in task.replies for call in reply.calls if reply.open(call)]
    ids = {call.id for call in [*open_calls, *(stray.call for stray in task.strays)]}
    tasks = {task.id: "this", task.before.id if task.before else "": "before"}
    found: list[Any] = []
    for (namespace, name), value in point.shelf.items():
        if namespace[1] == "journal" and name in ids:
            found.append((len([i for i in ids if i < name]), value["status"], value["attempt"]))
        elif namespace[1] != "journal" and name in tasks:
            found.append((namespace[1], tasks[name], str(value.get("status"))))
    return tuple(sorted(found, key=repr))


ENDS = "always ends"
RESTART = "the same after a restart"
FAITHFUL = "a sound abstraction"
TWINS = "no other signal"
LEGAL = "only legal events"
OVERALL: Mapping[str, str] = {
    ENDS: "Without a message from a person every run ends, whatever the model says.",
    RESTART: "Another process does exactly the same, from every point.",
    TWINS: "A finish_reason of stop or tool_calls, or none, changes nothing.",
    LEGAL: "No state reports an event that its row of the table does not list, or fails.",
    FAITHFUL: "Two histories in one state of the exploration continue alike.",
}
FAULTS = (IllegalEvent, AssertionError, LookupError, StopIteration, TypeError, ValueError)
_TIMES = {"at", "seconds", "seconds_active", "seconds_retrying", "seconds_waiting", "waited", "held"}


class Explorer:
    """Explores one world. restart, faithful: whether to check these too, which takes twice the time."""

    def __init__(
        self,
        world: World,
        properties: Sequence[Property] = PROPERTIES,
        *,
        thorough: bool = True,
        until: Collection[str] = (),
    ) -> None:
        self.world = world
        self.found = Exploration()
        self._properties = properties
        self._thorough = thorough
        self._until = set(until)
        self._again: set[Hashable] = set()
        self._seconds: dict[Hashable, MachinePoint] = {}
        self._queue: deque[tuple[Hashable, MachinePoint]] = deque()

    def run(self) -> Exploration:
        """Returns everything that is reached; stops when one of the properties `until` is broken."""
        for point in self.world.begin():
            self.found.first.append(self._reach(point))
        while self._queue and not self._done:
            state, point = self._queue.popleft()
            self._visit(state, point)
        if not self._done:
            self._ends()
        if self._thorough and not self._done:
            self._compare()
        return self.found

    @property
    def _done(self) -> bool:
        return any(one.name in self._until for one in self.found.broken)

    def _reach(self, point: MachinePoint) -> Hashable:
        state = key(point, self.world.machine)
        if state not in self.found.ways:
            self.found.ways[state] = {}
            self._queue.append((state, point))
        elif (state, point.path[-1:]) not in self._again:
            self._again.add((state, point.path[-1:]))
            self._meets(point)
            self._seconds.setdefault(state, point)
        return state

    def _meets(self, point: MachinePoint) -> None:
        """Checks the properties of another history that has led to a known state.

        Continues until the model is called, a person is asked, or the task has ended.
        """
        machine = self.world.machine
        asked, steps = False, 0
        while point.place is not None and point.waiting is None and not asked and not self._done:
            if (steps := steps + 1) > MOST_STEPS:
                self._break(ENDS, f"{MOST_STEPS} steps without a model call", point.path)
                return
            asked = point.place is State.CALL_LLM
            machine.deps.readings.clear()
            try:
                step = machine.step(point, ALPHABET[self.world.replies[0]] if asked else None)
            except FAULTS as error:
                self._break(LEGAL, f"{point.place!s}: {type(error).__name__}: {error}", point.path)
                return
            self._judge(step, point.path)
            point = replace(step.after, path=point.path)

    def _judge(self, step: MachineStep, path: Sequence[str]) -> None:
        for one in self._properties:
            if why := one.broken(step, self.world.machine):
                self._break(one.name, why, path)

    def _visit(self, state: Hashable, point: MachinePoint) -> None:
        ways, said = self.found.ways[state], dict[str, MachinePoint]()
        opened = replace(point, state=reopened(point.state), outside=0) if self._thorough else None
        for choice, step in self._steps(point):
            path = (*point.path, choice.name) if choice.name else point.path
            step = replace(step, after=replace(step.after, path=path))
            self._judge(step, path)
            if step.after.via is not point.via or choice.sort != OUTSIDE:
                self.found.reported.add((None if step.after.via in ENTRIES else point.place, step.after.via))
            if opened is not None and choice.sort != OUTSIDE:
                self._restart(opened, choice, step)
            if self._done:
                return
            ways[choice] = self._reach(step.after)
            if choice.sort == REPLY:
                said[choice.name] = step.after
        self._twins(said)

    def _steps(self, point: MachinePoint) -> Iterator[tuple[Possibility, MachineStep]]:
        """Yields the steps from a point, in a process that has read its history up to the last message."""
        machine = self.world.machine
        before = {**point.state, "messages": point.messages[:-1]}
        machine.deps.readings.clear()
        machine.deps.readings[THREAD] = read_messages(cast(AgentState, before), machine.deps.toolbox)
        try:
            yield from self.world.successors(point)
        except FAULTS as error:
            self._break(LEGAL, f"{point.place!s}: {type(error).__name__}: {error}", point.path)

    def _restart(self, opened: MachinePoint, choice: Possibility, step: MachineStep) -> None:
        """Repeats the step in a process that took another path before."""
        machine = self.world.machine
        elsewhere = {**opened.state, "messages": [*opened.messages, AIMessage("elsewhere", id="elsewhere")]}
        machine.deps.readings[THREAD] = read_messages(cast(AgentState, elsewhere), machine.deps.toolbox)
        symbol = ALPHABET[choice.name] if choice.sort == REPLY else None
        again = machine.step(opened, symbol, choice.value)
        if _plain(again) != _plain(step):
            self._break(RESTART, f"{opened.place!s} does something else", step.after.path)
        self.found.compared += 1

    def _twins(self, said: Mapping[str, MachinePoint]) -> None:
        """Checks that two replies that differ only in their `finish_reason` lead through the same states."""
        for name, point in said.items():
            twin = said.get(ALPHABET[name].twin)
            try:
                same = twin is None or self._trail(point) == self._trail(twin)
            except FAULTS as error:
                self._break(LEGAL, f"{type(error).__name__}: {error}", (*point.path, name))
                return
            if not same:
                self._break(TWINS, f"{name!r} is not {ALPHABET[name].twin!r}", point.path)

    def _trail(self, point: MachinePoint) -> list[Hashable]:
        """Returns the states from `point` until the model or a person is asked, or the task has ended."""
        machine = self.world.machine
        trail = [key(point, machine)]
        while point.place not in (None, State.CALL_LLM) and point.waiting is None and len(trail) < MOST_STEPS:
            machine.deps.readings.clear()
            point = machine.step(point).after
            trail.append(key(point, machine))
        return trail

    def _compare(self) -> None:
        """Checks that a second history with the same state continues like the first.

        It does so for whatever may happen there, and then until the model or a person is asked, or the task
        has ended.
        """
        machine = self.world.machine
        for state, point in self._seconds.items():
            for choice, step in self._steps(point):
                after = self.found.ways[state].get(choice)
                alike = after == key(step.after, machine)
                if alike and choice.sort == STEP:
                    alike = self._trail(step.after) == self._known(after)
                if not alike:
                    self._break(FAITHFUL, f"{choice.sort} {choice.name}", (*point.path, choice.name))
                    return
                self.found.compared += 1

    def _known(self, state: Hashable) -> list[Hashable]:
        """Returns the trail of the first history."""
        trail = [state]
        alone = Possibility(STEP)
        while alone in self.found.ways[state] and self.found.ways[state][alone] != state:
            state = self.found.ways[state][alone]
            trail.append(state)
            if len(trail) == MOST_STEPS:
                break
        return trail

    def _ends(self) -> None:
        """Checks that the transitions without a person form no cycle."""
        if (state := endless(self.found.ways)) is not None:
            self._break(ENDS, f"an endless cycle in {state!r:.80}", ())

    def _break(self, name: str, why: str, path: Sequence[str]) -> None:
        self.found.broken.append(Broken(name, why, path))


def endless(ways: Mapping[Hashable, Mapping[Possibility, Hashable]]) -> Hashable:
    """Returns a state from which the machine alone comes back to it; None when there is none."""
    done: set[Hashable] = set()
    for start in ways:
        trail: dict[Hashable, Iterator[Hashable]] = {}
        waiting = [start]
        while waiting:
            state = waiting[-1]
            if state in done:
                waiting.pop()
                continue
            following = trail.setdefault(state, _alone(ways[state]))
            target = next((t for t in following if t not in done), None)
            if target is None:
                done.add(state)
                del trail[state]
                waiting.pop()
            elif target in trail:
                return state
            else:
                waiting.append(target)
    return None


def _alone(ways: Mapping[Possibility, Hashable]) -> Iterator[Hashable]:
    return iter([target for choice, target in ways.items() if choice.sort in (STEP, REPLY)])


def _plain(step: MachineStep) -> Any:
    """Returns a step without values of the clock."""
    ran = step.ran, step.undone
    return step.after.place, step.after.waiting, ran, _untimed(dict(step.update)), step.prompt


def _untimed(value: Any) -> Any:
    if isinstance(value, BaseMessage):
        return type(value), _untimed(dict(value))
    if isinstance(value, Mapping):
        return {name: _untimed(part) for name, part in value.items() if name not in _TIMES}
    if isinstance(value, list | tuple):
        return [_untimed(part) for part in value]
    return value
