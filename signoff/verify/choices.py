"""What may happen at a point of a run: the model's replies, a person's answers, and events from outside."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from langchain_core.messages import HumanMessage

from signoff.graph.finish.again import another_try, more_turns, undoing
from signoff.graph.machine import Event, State, enters
from signoff.graph.messages import result
from signoff.verify.machine import ALPHABET, STOPPED, Machine, MachinePoint, MachineStep, Symbol, merged

STEP, REPLY, ANSWER, OUTSIDE = "step", "reply", "answer", "outside"
MOST_STEPS = 100
"""A run with more steps in a row without the model or a person is considered endless."""
EVENTS = ("kill", "message", "stop", "go further", "nothing")


@dataclass(frozen=True)
class Possibility:
    """One possible event. sort: STEP (the machine alone), REPLY, ANSWER or OUTSIDE."""

    sort: str
    name: str = ""
    value: Any = field(default=None, compare=False)


@dataclass(frozen=True)
class World:
    """A graph, and what may happen to it.

    replies: names of the alphabet. events: those that may come from outside, at most `outside` of them in one
    run. starts: the histories with which a thread begins. alphabet: the replies, by name.
    """

    name: str
    machine: Machine
    replies: Sequence[str] = tuple(ALPHABET)
    events: Sequence[str] = ()
    outside: int = 0
    starts: Mapping[str, Sequence[Any]] = field(default_factory=lambda: {"a task": [("user", "do it")]})
    alphabet: Mapping[str, Symbol] = field(default_factory=lambda: ALPHABET)

    def begin(self) -> Iterator[MachinePoint]:
        for name, messages in self.starts.items():
            yield replace(self.machine.begin(messages, self.outside), path=(name,))

    def successors(self, point: MachinePoint) -> Iterator[tuple[Possibility, MachineStep]]:
        """Yields everything that may happen at `point`, with the following point."""
        if point.place is State.CALL_LLM:
            for name in self.replies:
                yield Possibility(REPLY, name), self.machine.step(point, self.alphabet[name])
            if point.outside and "stop" in self.events:
                one_less = replace(point, outside=point.outside - 1)
                yield Possibility(OUTSIDE, "stop the stream"), self.machine.step(one_less, STOPPED)
        elif point.waiting is not None:
            for choice in answers(point.waiting):
                given = replace(point, agreed=point.agreed | agreed(point, choice))
                yield choice, self.machine.step(given, answer=choice.value)
        elif point.place is not None:
            step = self.machine.step(point)
            yield Possibility(STEP), step
            if point.outside and "kill" in self.events:
                yield from self._kills(point, step.operations)
        if point.outside:
            for name in self.events:
                if (after := outside(name, point, self.machine)) is not None:
                    yield Possibility(OUTSIDE, name), MachineStep(point, after)

    def _kills(self, point: MachinePoint, operations: int) -> Iterator[tuple[Possibility, MachineStep]]:
        """Yields kills of the process before each operation on the store, and before the state is saved."""
        one_less = replace(point, outside=point.outside - 1)
        for lives in range(1, operations + 1):
            step = self.machine.step(one_less, lives=lives)
            if step.after.place is not point.place or step.operations == operations:
                done = step.after
                after = replace(one_less, shelf=done.shelf, ran=done.ran, undone=done.undone)
                step = replace(step, after=after)
            if step.after.shelf != point.shelf:
                yield Possibility(OUTSIDE, f"kill after {lives}"), step


def outside(name: str, point: MachinePoint, machine: Machine) -> MachinePoint | None:
    """Returns the point after an event from outside; None where it cannot happen."""
    state, ended = point.state, point.place is None
    match name:
        case "message":
            sent = _entered(point, Event.INPUT, {"messages": [HumanMessage("and that")]})
            return replace(sent, fresh=len(state["messages"]) if ended else point.fresh)
        case "nothing":
            return _entered(point, Event.INPUT, {}) if ended else None
        case "stop":
            # Like a session does, for the running task.
            task = state.get("task")
            return _by_hand(point, Event.STOP, {"stop": task}) if task and not ended else None
        case "fork":
            return _continued(point, Event.FORK)
        case "go on":
            return _continued(point, Event.GO_ON)
        case "go further":
            return _further(point) if ended else None
        case "expire":
            return _expired(point)
        case "undo":
            if not ended or not state.get("outcome"):
                return None
            asked = undoing({**state, "messages": list(state["messages"])}, ask=False)
            return _entered(point, Event.UNDO, cast(dict[str, Any], asked.update))
    return None


def _continued(point: MachinePoint, event: Event) -> MachinePoint | None:
    """Returns the point after a thread without an end was entered again. A granted end stays; pending
    requests are dropped."""
    open_work = point.place is not None and point.place is not State.FINISH
    return _by_hand(point, event, {}) if open_work else None


def _further(point: MachinePoint) -> MachinePoint | None:
    """Returns the point after a thread went on from a limit or an error."""
    outcome = point.state.get("outcome")
    if not outcome or outcome["status"] == "success":
        return None
    command = more_turns(point.state, 1) if outcome["status"] == "limit" else another_try(point.state)
    return _entered(point, Event.GO_ON, cast(dict[str, Any], command.update))


def _expired(point: MachinePoint) -> MachinePoint | None:
    """Answers the waiting question with its default."""
    waiting = point.waiting or {}
    if waiting.get("type") != "question" or not waiting.get("call_id"):
        return None
    answered = result(waiting["call_id"], "ask_user", "no answer came", answered=True, expired=True)
    return _by_hand(point, Event.EXPIRE, {"messages": [answered]})


def _by_hand(point: MachinePoint, event: Event, update: Mapping[str, Any]) -> MachinePoint:
    """Returns the point after the result of `entry_update` was written."""
    return _entered(point, event, {**update, "event": str(event)})


def _entered(point: MachinePoint, event: Event, update: Mapping[str, Any]) -> MachinePoint:
    """Returns the point after an event from outside that writes this."""
    return replace(
        point,
        place=enters(event),
        state=merged(point.state, update),
        outside=point.outside - 1,
        waiting=None,
        via=event,
    )


def answers(waiting: Mapping[str, Any]) -> Iterator[Possibility]:
    """What a person may answer; what does not fit is refused before it reaches the machine."""
    match waiting.get("type"):
        case "approval":
            for word in ("approve", "reject"):
                decision = {"type": word, "message": "no"} if word == "reject" else {"type": word}
                decisions = [decision] * len(waiting["action_requests"])
                yield Possibility(ANSWER, word, {"decisions": decisions})
        case "action":
            yield Possibility(ANSWER, "observed", "It was done.")
            yield Possibility(ANSWER, "it failed", {"status": "error", "output": "no luck"})
        case "question":
            yield Possibility(ANSWER, "blue", "blue")


def agreed(point: MachinePoint, choice: Possibility) -> frozenset[str]:
    found = point.state.get("approvals")
    return frozenset(found["asked"]) if found and choice.name == "approve" else frozenset()
