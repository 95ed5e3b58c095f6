"""Finds the faults of a loop, each with one small function over the history.

First the results are linked to their calls, and the history is divided into tasks.
"""

import json
import re
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from signoff.graph.kinds import Effect
from signoff.lint.trace import ControlNames, Result, Trace, TraceCall, TraceMessage, TraceReply
from signoff.tools.control import should_continue


@dataclass
class LinkedCall:
    """A call, its reply, and its results. Only the first result counts."""

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
    def has_run(self) -> bool:
        """Whether it has a result that is not an error: a refused call did not run."""
        return bool(self.results) and not self.results[0].failed


@dataclass
class LinkedReply:
    """A reply and its calls."""

    reply: TraceReply
    made: list[LinkedCall]

    def works(self, names: ControlNames) -> list[LinkedCall]:
        return [made for made in self.made if names.works(made.call)]

    def finish(self, names: ControlNames) -> int | None:
        """Returns the position of the finish that ended the task: as far as known, it was not refused."""
        return next((i for i, made in enumerate(self.made) if _task_ends(made, names)), None)


@dataclass
class Linked:
    """The replies by task: a task begins with a person's message. `lost` are results without a call."""

    trace: Trace
    tasks: list[list[LinkedReply]]
    lost: list[Result]
    reminded: set[int] = field(default_factory=set)
    """The positions of replies that a program answered with a reminder."""

    @property
    def steps(self) -> Iterator[LinkedReply]:
        return (step for task in self.tasks for step in task)

    @property
    def calls(self) -> Iterator[LinkedCall]:
        return (made for step in self.steps for made in step.made)

    def is_abandoned(self, task: list[LinkedReply], at: int) -> bool:
        """Whether the reply `at` makes no call and nothing followed from it; False for the last reply.

        That is: no program reminded the model, and the next reply, which may be the rest of this one, makes
        no call.
        """
        step, after = task[at], task[at + 1 : at + 2]
        if step.made or step.reply.at in self.reminded or any(following.made for following in after):
            return False
        return bool(after) or task is not self.tasks[-1]

    @cached_property
    def final(self) -> LinkedReply | None:
        """Returns the last reply, if only results come after it."""
        last = next((each for each in reversed(self.trace.entries) if not isinstance(each, Result)), None)
        return self.tasks[-1][-1] if isinstance(last, TraceReply) else None


def link(trace: Trace) -> Linked:
    """Links each result to its call: the first open call with its id in the latest reply that has one."""
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
            meant = index.answered_call(entry)
            meant.results.append(entry) if meant else lost.append(entry)
        elif entry.genuine and tasks[-1]:
            tasks.append([])
        elif not entry.genuine and tasks[-1]:
            reminded.add(tasks[-1][-1].reply.at)
    return Linked(trace, tasks, lost, reminded)


class _Index:
    """The calls so far, by id; `waiting` are the open ones, a queue for each reply."""

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

    def answered_call(self, result: Result) -> LinkedCall | None:
        """Returns the call that the result answers; the last one with this id if all are answered."""
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
        """Returns the call for a result without an id: in the last reply, of the tool that it names."""
        fits = [made for made in (self.step.made if self.step else ()) if not made.call.id]
        named = [made for made in fits if not result.name or made.call.name == result.name]
        return next((made for made in named if made.open), named[-1] if named else None)


def _task_ends(made: LinkedCall, names: ControlNames) -> bool:
    """Whether a call is a finish that was not refused, not only of a phase, and not answered with "go on"."""
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


_PERIODS = (1, 2, 3)


class RepeatedSteps(NamedTuple):
    """From step `start` on, `period` steps repeat `times` times."""

    start: int
    period: int
    times: int


def rows(steps: Sequence[Hashable], least: int) -> Iterator[RepeatedSteps]:
    """Returns the repetitions of at least `least` rounds, first to last, none within another.

    A step that is None equals no other step.
    """
    at = 0
    while at < len(steps):
        found = (RepeatedSteps(at, period, _rounds(steps, at, period)) for period in _PERIODS)
        row = next((each for each in found if each.times >= least), None)
        if row:
            yield row
        at += row.period * row.times if row else 1


def _rounds(steps: Sequence[Hashable], start: int, period: int) -> int:
    """Returns how often the `period` steps from `start` on repeat in a row."""
    at = start + period
    while at < len(steps) and steps[at] is not None and steps[at] == steps[at - period]:
        at += 1
    return (at - start) // period


_END = 400
_BETWEEN = re.compile(r"(?<=[.!?…:])\s+|(?<=[\u3002\uff01\uff1f])|\n+")

# They match only as whole words.
_PROMISES = (
    *("I'll", "I will", "I shall", "I'm going to", "I am going to", "I'm about to", "I am about to"),
    *("hold on", "one moment", "just a moment", "give me a moment", "bear with me"),
    *("let me", "let's", "we'll", "we will", "I'm now", "I am now", "next, I", "next I", "proceeding to"),
    *("I need to", "I now need to", "I still need to", "I still have to"),
    *("ich werde", "ich mache jetzt", "ich prüfe jetzt", "ich ändere jetzt", "lass mich", "lassen Sie mich"),
    *(
        "je vais",
        "laissez-moi",
        "laisse-moi",
        "voy a",
        "vamos a",
        "déjame",
        "eu vou",
        "vou agora",
        "deixe-me",
    ),
    *("ora vado", "ora procedo", "adesso procedo", "procederò", "сейчас я", "я сейчас", "я буду"),
)
_UNSPACED = ("我将", "我会", "我来", "接下来我", "让我", "これから")
# With these words it is an offer, a condition, a refusal or a farewell.
_OFFERS = (
    *("let me know", "let's talk", "let's discuss", "if", "once you", "when you", "whenever", "unless"),
    *(
        "happy to",
        "glad to",
        "be here",
        "wait",
        "remember",
        "keep in mind",
        "would you",
        "should I",
        "shall I",
    ),
    *(
        "do you want",
        "I will not",
        "I won't",
        "I'll never",
        "not going to",
        *("I'll need", "I will need", "we'll need", "we will need", "I need your", "I need the following"),
        *("until", "once I", "once we", "after you", "as soon as", "before I", "in the future", "next time"),
        "wenn",
        "sobald",
        "falls",
        "nicht",
    ),
    *("si vous", "si tu", "si quieres", "si lo quieres", "se você", "se quiser", "se vuoi", "если"),
)
_OFFERS_UNSPACED = ("如果", "不会")


def _any(words: tuple[str, ...], unspaced: tuple[str, ...]) -> re.Pattern[str]:
    spaced = "|".join(re.escape(word) for word in words)
    return re.compile(rf"\b(?:{spaced})\b|{'|'.join(unspaced)}", re.IGNORECASE)


# A question or a request; only the last sentences are checked for it.
_ASKING = 5
_ASKED = re.compile(
    r"[?\uff1f][\s\"')*_]*$|\bplease\s+(?:\w+ly\s+)?(?:confirm|provide|share|specify|tell|send|reply|respond|choose"
    r"|select|verify|let me know|enter|type|give me (?!a |one ))|\b(?:bitte|veuillez|por favor)\b"
    r"|\b(?:if|once|when) you (?:can |could )?(?:confirm|give|have|provide|send|share|tell)",
    re.IGNORECASE,
)
_ACTED = re.compile(r"(?:```|</[\w:.-]+>)\s*$")
_PROMISED = _any(_PROMISES, _UNSPACED)
_OFFERED = _any(_OFFERS, _OFFERS_UNSPACED)


def promise(text: str) -> str | None:
    """Returns the last sentence of a reply, or the one before it, if it promises to do something now.

    A reply that asks the person for something waits for the person, whatever else it says; a reply that ends
    with code or a tag has acted in a protocol of its own.
    """
    if _ACTED.search(text):
        return None
    end = text[-_END:].replace("\u2019", "'")
    sentences: list[str] = [part.strip() for part in _BETWEEN.split(end) if part.strip()]
    if any(_ASKED.search(sentence) for sentence in sentences[-_ASKING:]):
        return None
    for sentence in reversed(sentences[-2:]):
        if _PROMISED.search(sentence) and not _OFFERED.search(sentence):
            return sentence
    return None


REPEATS = 3
"""How many rounds of the same work count as a repetition, by default."""


class FaultKind(StrEnum):
    """The kinds of faults in the run of a loop."""

    DANGLING = "dangling-call"
    NO_CALL = "answer-without-call"
    ANSWERED_TWICE = "duplicate-answer"
    SAME_ID = "duplicate-call-id"
    WORK_AFTER = "work-after-finish"
    FINISH_AGAIN = "repeated-finish"
    FAILED_SIBLING = "failed-sibling"
    BLIND = "blind-finish"
    REPEAT = "repeat"
    PROMISE = "promise-then-stop"
    TRUNCATED = "truncated-call-ran"
    NO_FINISH = "no-finish"


MEANINGS = {
    FaultKind.DANGLING: "a call was never answered",
    FaultKind.NO_CALL: "an answer has no call before it",
    FaultKind.ANSWERED_TWICE: "a call was answered again",
    FaultKind.SAME_ID: "two calls have the same id",
    FaultKind.WORK_AFTER: "work was called after the task had been finished",
    FaultKind.FINISH_AGAIN: "the task was finished again",
    FaultKind.FAILED_SIBLING: "a finish was accepted although earlier work in the same reply had failed",
    FaultKind.BLIND: "a finish was accepted in the same reply as work whose result the model had not seen",
    FaultKind.REPEAT: "the same work repeatedly had the same result",
    FaultKind.PROMISE: "a reply says what it will do, and calls nothing",
    FaultKind.TRUNCATED: "a call that was cut off ran",
    FaultKind.NO_FINISH: "the history ends without a sign that the task is done",
}
"""Each fault, in words."""


@dataclass(frozen=True)
class Fault:
    """One fault.

    at: index of the message. call_id: of the call; None if it concerns no call. remark: it is worth
    mentioning, but not a fault of this system, whose model had no finishing tool.
    """

    kind: FaultKind
    at: int
    call_id: str | None
    says: str
    remark: bool = False


def faults(trace: Trace, names: ControlNames, repeats: int = REPEATS) -> list[Fault]:
    """Returns all faults of the history, by position. repeats: how many rounds make a repetition."""
    linked = link(trace)
    found = [fault for find in _FINDERS for fault in find(linked, names)]
    found += _repeats(linked, names, repeats)
    return sorted(found, key=lambda fault: fault.at)


def _dangling(linked: Linked, names: ControlNames) -> Iterator[Fault]:
    """Yields the calls without an answer.

    A finish, a question or a delegate that asks may stay open at the very end, where many loops stop; of a
    history that is known to wait, every call.
    """
    for made in linked.calls:
        ending = linked.trace.waits or names.finishes(made.call) or names.may_wait(made.call)
        at_end = linked.final is not None and linked.final.reply is made.reply
        if made.open and not (ending and at_end):
            yield _of(FaultKind.DANGLING, made, f"{made.call.name} was never answered")


def _no_call(linked: Linked, _: ControlNames) -> Iterator[Fault]:
    for result in linked.lost:
        yield Fault(
            FaultKind.NO_CALL, result.at, result.id, f"there is no call {result.id!r} before this answer"
        )


def _answered_twice(linked: Linked, _: ControlNames) -> Iterator[Fault]:
    for made in linked.calls:
        for again in made.results[1:]:
            says = f"{made.call.name} was answered in message {made.results[0].at} already"
            yield Fault(FaultKind.ANSWERED_TWICE, again.at, again.id, says)


def _same_id(linked: Linked, _: ControlNames) -> Iterator[Fault]:
    first: dict[str, LinkedCall] = {}
    for made in linked.calls:
        before = first.setdefault(made.call.id, made)
        if before is not made and made.call.id:
            says = f"{made.call.name} has the id of {before.call.name} in message {before.call.at}"
            yield _of(FaultKind.SAME_ID, made, says)


def _after_finish(linked: Linked, names: ControlNames) -> Iterator[Fault]:
    """Yields calls after the finish. A refused call was not done, and is not a fault."""
    for task in linked.tasks:
        ended: LinkedCall | None = None
        for made, ends in _ends(task, names):
            if ended is None:
                ended = made if ends else None
            elif made.failed:
                continue
            elif names.finishes(made.call):
                says = f"{made.call.name} again; message {ended.call.at} had finished the task"
                yield _of(FaultKind.FINISH_AGAIN, made, says)
            elif names.works(made.call):
                says = f"{made.call.name} was called after {ended.call.name} in message {ended.call.at}"
                yield _of(FaultKind.WORK_AFTER, made, says)


def _ends(task: Iterable[LinkedReply], names: ControlNames) -> Iterator[tuple[LinkedCall, bool]]:
    """Yields every call of a task, with whether it is the finish of its reply."""
    for step in task:
        finish = step.finish(names)
        yield from ((made, at == finish) for at, made in enumerate(step.made))


def _beside(linked: Linked, names: ControlNames) -> Iterator[Fault]:
    """Yields finishes in one reply with work that failed or, if none did, whose result was not seen."""
    for step in linked.steps:
        place = step.finish(names)
        if place is None:
            continue
        finish, before = step.made[place], [m for m in step.made[:place] if names.works(m.call)]
        failed = [made.call.name for made in before if made.failed]
        if failed:
            says = f"{finish.call.name} was accepted although {_list(failed)} failed in the same reply"
            yield _of(FaultKind.FAILED_SIBLING, finish, says)
        elif before:
            called = _list(made.call.name for made in before)
            says = f"{finish.call.name} was accepted before the model had seen the result of {called}"
            yield _of(FaultKind.BLIND, finish, says)


def _truncated(linked: Linked, names: ControlNames) -> Iterator[Fault]:
    for made in linked.calls:
        if made.has_run and not made.call.whole:
            yield _of(
                FaultKind.TRUNCATED,
                made,
                f"the arguments of {made.call.name} are no complete JSON, yet it ran",
            )
        elif made.has_run and made.reply.cut and names.works(made.call):
            yield _of(
                FaultKind.TRUNCATED, made, f"the reply was cut at the length limit, yet {made.call.name} ran"
            )


def _end(linked: Linked, names: ControlNames) -> Iterator[Fault]:
    """Yields the fault at the end of the last task, unless it ends with a finish, or waits for a person."""
    if linked.trace.waits or any(step.finish(names) is not None for step in linked.tasks[-1]):
        return
    final, last = linked.final, linked.trace.entries[-1]
    if final and any(made.open and names.may_wait(made.call) for made in final.made):
        return
    promised = promise(final.reply.text) if final and not final.made else None
    if promised:
        yield Fault(FaultKind.PROMISE, last.at, None, f"it ends with a promise: “{promised}”")
        return
    says = f"it ends with {_ending(last)}, without a finish"
    if names.can_finish(linked.trace):
        yield Fault(FaultKind.NO_FINISH, last.at, None, says)
    else:
        says += "; as far as the file says, there was no tool to finish with"
        yield Fault(FaultKind.NO_FINISH, last.at, None, says, remark=True)


def _promised(linked: Linked, names: ControlNames) -> Iterator[Fault]:
    """Yields promises in the middle that no call followed before the next message of a person or the model.

    The end of the history is checked by `_end`.
    """
    for task in linked.tasks:
        for at, step in enumerate(task):
            if step.finish(names) is not None:
                break
            if linked.is_abandoned(task, at) and (promised := promise(step.reply.text)):
                yield Fault(FaultKind.PROMISE, step.reply.at, None, f"a promise, and no call: “{promised}”")


def _ending(last: TraceReply | Result | TraceMessage) -> str:
    if isinstance(last, TraceMessage):
        return "a message that has no reply"
    if isinstance(last, Result):
        return "the result of a call"
    if last.calls:
        return f"a call of {_list(call.name for call in last.calls)}"
    return "a reply without a call" if last.text else "an empty reply"


def _repeats(linked: Linked, names: ControlNames, least: int) -> Iterator[Fault]:
    for task in linked.tasks:
        work = [step for step in task if step.works(names)]
        for row in rows([_done(step, names) for step in work], least):
            first = work[row.start].works(names)[0]
            cycle = [
                _list(m.call.name for m in step.works(names)) for step in work[row.start :][: row.period]
            ]
            upto = work[row.start + row.period * row.times - 1].reply.at
            says = f"{' → '.join(cycle)}: {row.times} times with the same results, up to message {upto}"
            yield _of(FaultKind.REPEAT, first, says)


def _done(step: LinkedReply, names: ControlNames) -> tuple[tuple[str, str, str], ...] | None:
    """Returns the work of a reply and its results, for comparison; None while a call is open."""
    work = step.works(names)
    if any(made.open for made in work):
        return None
    return tuple(sorted((made.call.name, made.call.arguments, made.results[0].text) for made in work))


def _of(kind: FaultKind, made: LinkedCall, says: str) -> Fault:
    return Fault(kind, made.call.at, made.call.id, says)


def _list(found: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(found))


_FINDERS: tuple[Callable[[Linked, ControlNames], Iterator[Fault]], ...] = (
    *(_dangling, _no_call, _answered_twice, _same_id, _after_finish, _beside, _truncated, _promised, _end),
)
