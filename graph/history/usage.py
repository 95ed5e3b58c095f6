"""The usage of a task and its repetitions, counted while its history is read.

So a decision takes time in proportion to the new messages, not to the whole task. A repetition is the same
work with the same result several times in a row, alone or as a cycle of two or three. Talk and thoughts in
between do not interrupt it; the same thought several times in a row, with no work in between, is a
repetition, too. The calls of one reply are compared as a batch. Polling that returns something new is not a
repetition, since the results are compared, too.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from hashlib import blake2b
from operator import add, sub
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from signoff.graph.history.replies import Call, Reply, fingerprint
from signoff.graph.kinds import SENT_BACK
from signoff.graph.messages import Marks, marks
from signoff.graph.state import Spent

_PERIODS = (1, 2, 3)
_Step = TypeVar("_Step")
_NONE: Mapping[int, tuple[str, ...]] = MappingProxyType({})

# The file with the full text of a long result is named after the call; its last part is a digest of the text.
_KEPT = re.compile(r"the full text is in [^\n;]*-([0-9a-f]{12}\.txt)")


class RepeatCount(NamedTuple):
    """How often the last work, or the last cycle of two or three, occurred in a row (1: it is new), and
    whether the model was warned."""

    times: int = 1
    told: bool = False


class Repeats:
    """The work of a task, reply by reply, and the thoughts since the last work."""

    def __init__(self) -> None:
        self._work = _Work()
        self._thoughts: _Thoughts | None = None

    def replied(self, reply: Reply) -> None:
        if reply.work_calls:
            self._work.found.append(reply)
            self._thoughts = None
        elif thought := [call for call in reply.before_control if call.effect == "continue"]:
            self._thoughts = self._thoughts or _Thoughts()
            self._thoughts.found.append(_digest([fingerprint(call.name, call.args) for call in thought]))

    def note_display(self, message: BaseMessage) -> None:
        """Records what a tool displays beside its result."""
        if self._work.found:
            self._work.shows(_text(message))

    def note_warning(self) -> None:
        """Records that the model was warned of the current row of repetitions."""
        self._work.told_at = len(self._work.found)
        if self._thoughts:
            self._thoughts.told_at = len(self._thoughts.found)

    def row(self) -> RepeatCount:
        """The longer row of repetitions: of the work, or of the thoughts after it."""
        work = self._work.row()
        return max(work, self._thoughts.row(), key=lambda row: row.times) if self._thoughts else work


class _Steps(ABC, Generic[_Step]):
    """Steps in order. Compares them from the end, only as far as they are alike."""

    def __init__(self) -> None:
        self.found: list[_Step] = []
        self.told_at = 0

    def row(self) -> RepeatCount:
        """The row of repetitions at the end. An unfinished step is ignored."""
        end = len(self.found)
        if end and not self.ended(self.found[-1]):
            end -= 1
        periods: list[int] = [period for period in _PERIODS if self._alike(end - 1, period)]
        if not periods:
            # Nearly every time.
            return RepeatCount(1, self.told_at > max(0, end - 1))
        rounds = (self._rounds(period, end) for period in sorted({1, *periods}))
        times, start = max(rounds, key=lambda found: found[0])
        return RepeatCount(times, self.told_at > start)

    def _alike(self, at: int, period: int) -> bool:
        """Whether a step equals the one `period` steps before."""
        return at >= period and self.alike(at, at - period)

    def _rounds(self, period: int, end: int) -> tuple[int, int]:
        """How often the last `period` steps occurred in a row before `end`, and where that begins."""
        at = end - 1
        while self._alike(at, period):
            at -= 1
        alike = end - 1 - at
        return (alike + period) // period, max(0, end - alike - period)

    @abstractmethod
    def ended(self, step: _Step) -> bool: ...

    @abstractmethod
    def alike(self, at: int, before: int) -> bool:
        """Whether two finished steps, given by position, are the same."""


class _Thoughts(_Steps[bytes]):
    """The thoughts of replies that do nothing else."""

    def ended(self, step: bytes) -> bool:
        return True

    def alike(self, at: int, before: int) -> bool:
        return self.found[at] == self.found[before]


class _Work(_Steps[Reply]):
    """The work calls of replies, and what their tools display beside the results."""

    def __init__(self) -> None:
        super().__init__()
        self._added: Mapping[int, tuple[str, ...]] = _NONE
        self._known: dict[int, bytes] = {}

    def shows(self, text: str) -> None:
        last = len(self.found) - 1
        self._added = {**self._added, last: (*self._added.get(last, ()), text)}
        self._known.pop(last, None)

    def ended(self, step: Reply) -> bool:
        """Whether all its calls have their results."""
        return not any(map(step.open, step.work_calls))

    def alike(self, at: int, before: int) -> bool:
        calls, others = self.found[at].work_calls, self.found[before].work_calls
        # The calls alone nearly always tell two steps apart, which is cheaper than comparing the results,
        # too.
        if len(calls) != len(others):
            return False
        if len(calls) == 1 and (calls[0].name, calls[0].args) != (others[0].name, others[0].args):
            return False
        return self.ended(self.found[before]) and self._step(at) == self._step(before)

    def _step(self, at: int) -> bytes:
        """The calls and their results, for comparison."""
        if at not in self._known:
            reply = self.found[at]
            done = sorted(
                (fingerprint(call.name, call.args), result.status, _text(result))
                for call in reply.work_calls
                if (result := reply.result(call))
            )
            self._known[at] = _digest((done, self._added.get(at, ())))
        return self._known[at]


def _digest(step: object) -> bytes:
    """A digest of a step, so that a long run keeps a few bytes per step, not the texts."""
    return blake2b(repr(step).encode(errors="backslashreplace"), digest_size=16).digest()


def _text(message: BaseMessage) -> str:
    content = message.content
    return _KEPT.sub(r"\1", content) if isinstance(content, str) else repr(content)


RESUMED = "resumed"
REPEATING = "repeating"
FROM_TOOL = "tool"
ROUND = "round"
MIDDLEWARE = "middleware"
# Synthetic messages that do not correct the model.
NOT_CORRECTIONS = (RESUMED, FROM_TOOL, MIDDLEWARE, ROUND)


class Used(NamedTuple):
    """Usage: tokens of the model's replies (and of summaries that a model wrote), work calls that ran,
    seconds in model calls and tools. `refused`: work calls above their limit. `estimated`: model calls for
    which the provider did not report all tokens. `retries`: how often a model call was retried, with `held`
    seconds of waiting in all.

    `children` are the delegate calls that were started; `no_more_children` and `too_deep` those that a limit
    refused. Fields that begin with `below` count all machines below this one.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0
    tool_calls: int = 0
    seconds: float = 0.0
    refused: int = 0
    estimated: int = 0
    retries: int = 0
    held: float = 0.0
    children: int = 0
    no_more_children: int = 0
    too_deep: int = 0
    below_turns: int = 0
    below_tokens: int = 0
    below_calls: int = 0
    below_seconds: float = 0.0
    below_cost: float = 0.0
    dearer: float = 0.0

    def plus(self, other: "Used") -> "Used":
        return Used(*map(add, self, other))

    def minus(self, other: "Used") -> "Used":
        return Used(*map(sub, self, other))


NOTHING = Used()


class Tally:
    """The sums of one task.

    `reach`: the turns that all grants by `go_on` allow at least, each counted from the turns used by then;
    `tree_reach`: the same for all machines of the tree together.
    """

    __slots__ = ("_all", "_before", "reach", "repeats", "tree_reach")

    def __init__(self) -> None:
        self.repeats = Repeats()
        self.reach = 0
        self.tree_reach = 0
        self._all = NOTHING
        self._before = NOTHING

    def total(self, spent: Spent | None) -> Used:
        """The usage since the task began. `spent`: the usage of its summaries."""
        return self._all.plus(_of_summaries(spent)) if spent else self._all

    def used(self, total: Used) -> Used:
        """The part of `total` that counts against the limits: everything since the task was last extended."""
        return total if self._before is NOTHING else total.minus(self._before)

    def replied(self, reply: Reply, estimate: Callable[[], tuple[int, int]]) -> None:
        """`estimate` returns the input and output tokens, for a reply without a count from the provider."""
        self.repeats.replied(reply)
        self._all = self._all.plus(of_reply(reply.message, estimate))

    def settled(self, call: Call, result: ToolMessage) -> None:
        notes = marks(result)
        why = notes.get("not_run")
        if call.effect == "finish" and "seconds" in notes:
            # Its checks, or a finishing tool that ran.
            self._all = self._all.plus(Used(seconds=notes["seconds"]))
        if call.effect is None:
            ran, refused = int(why is None), int(why == "tool_calls")
            took = Used(tool_calls=ran, refused=refused, seconds=notes.get("seconds", 0.0))
            self._all = self._all.plus(took)
            if why in _NO_CHILD:
                self._all = self._all.plus(Used(**{_NO_CHILD[why]: 1}))
            elif child := notes.get("delegate"):
                self._all = self._all.plus(of_child(child))
        elif why is None and (call.effect == "ask" or notes.get(SENT_BACK)):
            self.note_person()

    def reminded(self, kind: str, message: BaseMessage) -> None:
        """A synthetic message of this kind."""
        if kind == RESUMED:
            self.repeats = Repeats()
            if (spent := marks(message).get("extended")) is not None:
                self._before = self._all.plus(_of_summaries(spent))
                for used in marks(message).get("again", {}).get("delegates", {}).values():
                    # Its result was withdrawn, and the next one carries its total usage.
                    self._before = self._before.plus(of_child({"used": used})).plus(Used(tool_calls=1))
                self._note_grant(marks(message), self._before.below_turns)
        elif kind == REPEATING:
            self.repeats.note_warning()
        elif kind == FROM_TOOL:
            self.repeats.note_display(message)
        elif kind == SENT_BACK:
            self.note_person()

    def _note_grant(self, notes: Marks, below: int) -> None:
        """Records granted turns. below: the turns of the delegates by then."""
        if used := notes.get("at_turn", 0):
            self.reach = max(self.reach, used)
            self.tree_reach = max(self.tree_reach, used + below)
        if self.reach:
            self.reach += notes.get("granted", 0)
            self.tree_reach += notes.get("granted", 0)

    def note_person(self) -> None:
        """Records a person's message: later work does not count as a repetition of earlier work."""
        self.repeats = Repeats()


_NO_CHILD = {"children": "no_more_children", "depth": "too_deep"}


def of_child(found: Mapping[str, Any]) -> Used:
    """The usage of a delegate and all below it, from `below` in the mark of its result."""
    used = found["used"]
    return Used(
        children=1,
        below_turns=used["turns"],
        below_tokens=used["tokens"],
        below_calls=used["tool_calls"],
        below_seconds=used["seconds"],
        below_cost=used.get("cost", 0.0),
    )


def of_reply(message: AIMessage, estimate: Callable[[], tuple[int, int]]) -> Used:
    usage, notes = message.usage_metadata, marks(message)
    seconds = notes.get("seconds", 0.0)
    if not usage:
        # An imported reply was not a model call of this thread.
        read, written = estimate() if "at" in notes else (0, 0)
        return Used(
            read, written, read + written, seconds=seconds, estimated=int("at" in notes), **_tries(notes)
        )
    return Used(
        usage["input_tokens"],
        usage["output_tokens"],
        usage["total_tokens"],
        min(usage["input_tokens"], (usage.get("input_token_details") or {}).get("cache_read", 0)),
        seconds=seconds,
        estimated=int(bool(notes.get("estimated"))),
        **_tries(notes),
    )


def _tries(notes: Marks) -> dict[str, Any]:
    if "retries" not in notes and "dearer" not in notes:
        # Nearly every reply.
        return {}
    return {
        "retries": notes.get("retries", 0),
        "held": notes.get("held", 0.0),
        "dearer": notes.get("dearer", 0.0),
    }


def _of_summaries(spent: Mapping[str, Any] | None) -> Used:
    if not spent:
        return NOTHING
    tokens = (spent["input_tokens"], spent["output_tokens"], spent["total_tokens"])
    cached = spent.get("cached_tokens", 0)
    return Used(*tokens, cached, seconds=spent["seconds"], estimated=int(spent["estimated"]))
