"""A history with its results put to its calls, and its tasks told apart."""

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from signoff.graph.kinds import Effect
from signoff.lint.trace import ControlNames, Result, Trace, TraceCall, TraceReply
from signoff.tools.control import should_continue


@dataclass
class LinkedCall:
    """A call that was made, in which reply, and what came of it. Only the first result counts."""

    call: TraceCall
    reply: TraceReply
    results: list[Result] = field(default_factory=list)

    @property
    def open(self) -> bool:
        return not self.results

    @property
    def failed(self) -> bool:
        return bool(self.results) and self.results[0].failed

    @property
    def ran(self) -> bool:
        """Whether it has a result that is no error: one that was refused did not run."""
        return bool(self.results) and not self.results[0].failed


@dataclass
class LinkedReply:
    """A reply and its calls."""

    reply: TraceReply
    made: list[LinkedCall]

    def works(self, names: ControlNames) -> list[LinkedCall]:
        return [made for made in self.made if names.works(made.call)]

    def finish(self, names: ControlNames) -> int | None:
        """The place of the finish that ended the task, as far as the history says: none was refused."""
        return next((i for i, made in enumerate(self.made) if _ends(made, names)), None)


@dataclass
class Linked:
    """The replies by task: a task begins with a person's words. `lost` are results without a call."""

    trace: Trace
    tasks: list[list[LinkedReply]]
    lost: list[Result]
    reminded: set[int] = field(default_factory=set)
    """Where replies stand that a program answered with a reminder."""

    @property
    def steps(self) -> Iterator[LinkedReply]:
        return (step for task in self.tasks for step in task)

    @property
    def calls(self) -> Iterator[LinkedCall]:
        return (made for step in self.steps for made in step.made)

    def left(self, task: list[LinkedReply], at: int) -> bool:
        """Whether the reply `at` calls nothing, and was left at that: neither did a program remind the model,
        nor does the next reply, which may be the rest of this one, make a call. Not of the last reply."""
        step, after = task[at], task[at + 1 : at + 2]
        if step.made or step.reply.at in self.reminded or any(following.made for following in after):
            return False
        return bool(after) or task is not self.tasks[-1]

    @cached_property
    def final(self) -> LinkedReply | None:
        """The last reply, when nothing but results comes after it."""
        last = next((each for each in reversed(self.trace.entries) if not isinstance(each, Result)), None)
        return self.tasks[-1][-1] if isinstance(last, TraceReply) else None


def link(trace: Trace) -> Linked:
    """Puts each result to its call: the first open one with its id in the latest reply that has one."""
    tasks: list[list[LinkedReply]] = [[]]
    lost: list[Result] = []
    reminded: set[int] = set()
    index = _Index()
    for entry in trace.entries:
        if isinstance(entry, TraceReply):
            step = LinkedReply(entry, [LinkedCall(call, entry) for call in entry.calls])
            tasks[-1].append(step)
            index.add(step)
        elif isinstance(entry, Result):
            meant = index.meant(entry)
            meant.results.append(entry) if meant else lost.append(entry)
        elif entry.genuine and tasks[-1]:
            tasks.append([])
        elif not entry.genuine and tasks[-1]:
            reminded.add(tasks[-1][-1].reply.at)
    return Linked(trace, tasks, lost, reminded)


class _Index:
    """The calls so far by id; `waiting` are the open ones, a queue for each reply."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[deque[LinkedCall]]] = {}
        self.last: dict[str, LinkedCall] = {}
        self.step: LinkedReply | None = None

    def add(self, step: LinkedReply) -> None:
        self.step = step
        queues: dict[str, deque[LinkedCall]] = {}
        for made in step.made:
            queues.setdefault(made.call.id, deque()).append(made)
            self.last[made.call.id] = made
        for call_id, queue in queues.items():
            self.waiting.setdefault(call_id, []).append(queue)

    def meant(self, result: Result) -> LinkedCall | None:
        """The call that the result answers; the last one with this id when all of them have an answer."""
        if not result.id:
            return self._nameless(result)
        queues = self.waiting.get(result.id)
        if not queues:
            return self.last.get(result.id)
        made = queues[-1].popleft()
        if not queues[-1]:
            queues.pop()
        return made

    def _nameless(self, result: Result) -> LinkedCall | None:
        """Without an id it is of the last reply, and of the tool it names."""
        fits = [made for made in (self.step.made if self.step else ()) if not made.call.id]
        named = [made for made in fits if not result.name or made.call.name == result.name]
        return next((made for made in named if made.open), named[-1] if named else None)


def _ends(made: LinkedCall, names: ControlNames) -> bool:
    """Whether a call is a finish that was not refused, claims no mere phase, and was not told to go on."""
    if not names.finishes(made.call) or made.failed or not made.call.whole:
        return False
    claim = json.loads(made.call.arguments)
    if isinstance(claim, dict) and _phase(claim):
        return False
    return made.open or should_continue(_value(made.results[0].text)) is not Effect.CONTINUE


def _phase(claim: dict[str, object]) -> bool:
    percent = claim.get("completion_percentage")
    short = isinstance(percent, int | float) and percent < 100
    return claim.get("outcome", "done") == "done" and (short or bool(claim.get("next_phase")))


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
