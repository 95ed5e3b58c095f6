"""Visits every state that a run can reach, by everything that may happen in it."""

from collections import deque
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage

from signoff.graph.errors import IllegalEvent
from signoff.graph.history.reader import read_messages
from signoff.graph.machine import State
from signoff.graph.state import AgentState
from signoff.verify.abstract import key
from signoff.verify.alphabet import ALPHABET
from signoff.verify.choices import OUTSIDE, REPLY, STEP, Choice, World
from signoff.verify.found import MOST_STEPS, Broken, Found
from signoff.verify.machine import THREAD, Point, Step, reopened
from signoff.verify.properties import PROPERTIES, Property

ENDS = "always ends"
RESTART = "the same after a restart"
FAITHFUL = "a sound abstraction"
TWINS = "no other signal"
LEGAL = "only legal events"
OVERALL: Mapping[str, str] = {
    ENDS: "Without a person's word every run ends, whatever the model says.",
    RESTART: "Another process does exactly the same, from every point.",
    TWINS: "A finish_reason of stop or tool_calls, or none, changes nothing.",
    LEGAL: "No state reports an event that its row of the table does not list, or fails.",
    FAITHFUL: "Two histories in one state of the exploration go on alike.",
}
_FAULTS = (IllegalEvent, AssertionError, LookupError, StopIteration, TypeError, ValueError)
_STOPS = (None, State.CALL_LLM)
_TIMES = {"at", "seconds", "seconds_active", "seconds_waiting", "waited"}


class Explorer:
    """Explores one world. restart, faithful: whether these are checked, too, which takes twice the time."""

    def __init__(
        self,
        world: World,
        properties: Sequence[Property] = PROPERTIES,
        *,
        thorough: bool = True,
        until: Collection[str] = (),
    ) -> None:
        self.world = world
        self.found = Found()
        self._properties = properties
        self._thorough = thorough
        self._until = set(until)
        self._again: set[Hashable] = set()
        self._seconds: dict[Hashable, Point] = {}
        self._queue: deque[tuple[Hashable, Point]] = deque()

    def run(self) -> Found:
        """Everything that is reached; only until one of the properties `until` is broken."""
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

    def _reach(self, point: Point) -> Hashable:
        state = key(point, self.world.machine)
        if state not in self.found.ways:
            self.found.ways[state] = {}
            self._queue.append((state, point))
        elif (state, point.path[-1:]) not in self._again:
            self._again.add((state, point.path[-1:]))
            self._meets(point)
            self._seconds.setdefault(state, point)
        return state

    def _meets(self, point: Point) -> None:
        """Another history has led to a known state: what the properties say of it until the model is asked,
        a person is, or the task has ended."""
        machine = self.world.machine
        asked, steps = False, 0
        while point.place is not None and point.waiting is None and not asked and not self._done:
            if (steps := steps + 1) > MOST_STEPS:
                self._break(ENDS, f"{MOST_STEPS} steps, and the model was not asked", point.path)
                return
            asked = point.place is State.CALL_LLM
            machine.kit.readings.clear()
            try:
                step = machine.step(point, ALPHABET[self.world.replies[0]] if asked else None)
            except _FAULTS as error:
                self._break(LEGAL, f"{point.place!s}: {type(error).__name__}: {error}", point.path)
                return
            self._judge(step, point.path)
            point = replace(step.after, path=point.path)

    def _judge(self, step: Step, path: Sequence[str]) -> None:
        for one in self._properties:
            if why := one.broken(step, self.world.machine):
                self._break(one.name, why, path)

    def _visit(self, state: Hashable, point: Point) -> None:
        ways, said = self.found.ways[state], dict[str, Point]()
        opened = replace(point, state=reopened(point.state), outside=0) if self._thorough else None
        for choice, step in self._steps(point):
            path = (*point.path, choice.name) if choice.name else point.path
            step = replace(step, after=replace(step.after, path=path))
            self._judge(step, path)
            if step.after.via is not point.via or choice.sort != OUTSIDE:
                self.found.reported.add((point.place, step.after.via))
            if opened is not None and choice.sort != OUTSIDE:
                self._restart(opened, choice, step)
            if self._done:
                return
            ways[choice] = self._reach(step.after)
            if choice.sort == REPLY:
                said[choice.name] = step.after
        self._twins(said)

    def _steps(self, point: Point) -> Iterator[tuple[Choice, Step]]:
        """The steps from a point, in a process that has read its history up to the last message."""
        machine = self.world.machine
        before = {**point.state, "messages": point.messages[:-1]}
        machine.kit.readings.clear()
        machine.kit.readings[THREAD] = read_messages(cast(AgentState, before), machine.kit.toolbox)
        try:
            yield from self.world.successors(point)
        except _FAULTS as error:
            self._break(LEGAL, f"{point.place!s}: {type(error).__name__}: {error}", point.path)

    def _restart(self, opened: Point, choice: Choice, step: Step) -> None:
        """The same step by a process that had gone on another way before."""
        machine = self.world.machine
        elsewhere = {**opened.state, "messages": [*opened.messages, AIMessage("elsewhere", id="elsewhere")]}
        machine.kit.readings[THREAD] = read_messages(cast(AgentState, elsewhere), machine.kit.toolbox)
        symbol = ALPHABET[choice.name] if choice.sort == REPLY else None
        again = machine.step(opened, symbol, choice.value)
        if _plain(again) != _plain(step):
            self._break(RESTART, f"{opened.place!s} does something else", step.after.path)
        self.found.compared += 1

    def _twins(self, said: Mapping[str, Point]) -> None:
        """Two replies that differ only in their `finish_reason` lead through the same states."""
        for name, point in said.items():
            twin = said.get(ALPHABET[name].twin)
            try:
                same = twin is None or self._trail(point) == self._trail(twin)
            except _FAULTS as error:
                self._break(LEGAL, f"{type(error).__name__}: {error}", (*point.path, name))
                return
            if not same:
                self._break(TWINS, f"{name!r} is not {ALPHABET[name].twin!r}", point.path)

    def _trail(self, point: Point) -> list[Hashable]:
        """The states from `point` on, until the model is asked, a person is, or the task has ended."""
        machine = self.world.machine
        trail = [key(point, machine)]
        while point.place not in (None, State.CALL_LLM) and point.waiting is None and len(trail) < MOST_STEPS:
            machine.kit.readings.clear()
            point = machine.step(point).after
            trail.append(key(point, machine))
        return trail

    def _compare(self) -> None:
        """A second history that leads to a state goes on as the first did: by whatever may happen in it, and
        then until the model is asked, a person is, or the task has ended."""
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
        """The trail of the first history."""
        trail = [state]
        alone = Choice(STEP)
        while alone in self.found.ways[state] and self.found.ways[state][alone] != state:
            state = self.found.ways[state][alone]
            trail.append(state)
            if len(trail) == MOST_STEPS:
                break
        return trail

    def _ends(self) -> None:
        """The states and what leads from one to the next without a person are no circle."""
        done: set[Hashable] = set()
        for start in self.found.ways:
            trail: dict[Hashable, Iterator[Hashable]] = {}
            waiting = [start]
            while waiting:
                state = waiting[-1]
                if state in done:
                    waiting.pop()
                    continue
                following = trail.setdefault(state, self._alone(state))
                target = next((t for t in following if t not in done), None)
                if target is None:
                    done.add(state)
                    del trail[state]
                    waiting.pop()
                elif target in trail:
                    self._break(ENDS, f"round and round in {state!r:.80}", ())
                    return
                else:
                    waiting.append(target)

    def _alone(self, state: Hashable) -> Iterator[Hashable]:
        return iter([t for choice, t in self.found.ways[state].items() if choice.sort in (STEP, REPLY)])

    def _break(self, name: str, why: str, path: Sequence[str]) -> None:
        self.found.broken.append(Broken(name, why, path))


def _plain(step: Step) -> Any:
    """A step without what the clock wrote."""
    return step.after.place, step.after.waiting, step.ran, _untimed(dict(step.update)), step.view


def _untimed(value: Any) -> Any:
    if isinstance(value, BaseMessage):
        return type(value), _untimed(dict(value))
    if isinstance(value, Mapping):
        return {name: _untimed(part) for name, part in value.items() if name not in _TIMES}
    if isinstance(value, list | tuple):
        return [_untimed(part) for part in value]
    return value
