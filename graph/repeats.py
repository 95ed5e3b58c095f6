"""Repetitions: the same work with the same result again and again, alone or as a cycle of two or three.

Talk and thoughts between work hide nothing; the same thought again and again, with no work between, is a
repetition, too. The calls of one reply are compared as a batch. What is polled and changes is none: the
results are compared, too, as they are.
"""

import re
from hashlib import blake2b
from typing import Generic, NamedTuple, Self, TypeVar

from langchain_core.messages import BaseMessage

from signoff.graph.replies import Call, Reply
from signoff.tools.approvals import fingerprint
from signoff.tools.control import Effect

_PERIODS = (1, 2, 3)
_Step = TypeVar("_Step", "_Work", "_Thought")

# The file that keeps the whole of a long result is named by the call; the digest at its end is of the text.
_KEPT = re.compile(r"the full text is in [^\n;]*-([0-9a-f]{12}\.txt)")


class Row(NamedTuple):
    """How often the last work, or the last cycle of two or three, has come round (1: it is new), and whether
    the model was told so."""

    times: int = 1
    told: bool = False


class Repeats:
    """The work of a task, reply by reply, and the thoughts since the last of it."""

    def __init__(self) -> None:
        self._work = _Steps[_Work]()
        self._thoughts = _Steps[_Thought]()

    def replied(self, reply: Reply) -> None:
        if any(call.effect is None for call in reply.before_control):
            self._work.found.append(_Work(reply))
            self._thoughts = _Steps[_Thought]()
        elif thought := [call for call in reply.before_control if call.effect is Effect.CONTINUE]:
            self._thoughts.found.append(
                _Thought(tuple(fingerprint(call.name, call.args) for call in thought))
            )

    def shown(self, message: BaseMessage) -> None:
        """What a tool shows beside its result."""
        if self._work.found:
            self._work.found[-1].shows(_text(message))

    def told(self) -> None:
        """The model was told of the row that the task ends in."""
        self._work.told_at = len(self._work.found)
        self._thoughts.told_at = len(self._thoughts.found)

    def row(self) -> Row:
        """The longer row: that of the work, or of the thoughts after it."""
        work = self._work.row()
        return max(work, self._thoughts.row(), key=lambda row: row.times) if self._thoughts.found else work


class _Steps(Generic[_Step]):
    """Steps in order. Only as much of their end is compared as is alike."""

    def __init__(self) -> None:
        self.found: list[_Step] = []
        self.told_at = 0

    def row(self) -> Row:
        """The row that the steps end in. A step that has not come to its end is not looked at."""
        end = len(self.found)
        if end and not self.found[-1].ended:
            end -= 1
        periods: list[int] = [period for period in _PERIODS if self._alike(end - 1, period)]
        if not periods:
            # Nearly every time.
            return Row(1, self.told_at > max(0, end - 1))
        rounds = (self._rounds(period, end) for period in sorted({1, *periods}))
        times, start = max(rounds, key=lambda found: found[0])
        return Row(times, self.told_at > start)

    def _alike(self, at: int, period: int) -> bool:
        """Whether a step is that of `period` steps before."""
        if at < period:
            return False
        step, before = self.found[at], self.found[at - period]
        return not step.differs(before) and bool(found := step.step()) and found == before.step()

    def _rounds(self, period: int, end: int) -> tuple[int, int]:
        """How often the last `period` steps have come round before `end`, and where that begins."""
        at = end - 1
        while self._alike(at, period):
            at -= 1
        alike = end - 1 - at
        return (alike + period) // period, max(0, end - alike - period)


class _Thought:
    """The thoughts of a reply that does nothing else."""

    __slots__ = ("_step",)

    def __init__(self, thoughts: tuple[str, ...]) -> None:
        self._step = _digest(thoughts)

    ended = True

    def step(self) -> bytes:
        return self._step

    def differs(self, other: Self) -> bool:
        return self._step != other._step


class _Work:
    """The work calls of one reply, and what their tools show beside the results."""

    __slots__ = ("_added", "_step", "reply")

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self._added: tuple[str, ...] = ()
        self._step: bytes | None = None

    def shows(self, text: str) -> None:
        self._added += (text,)
        self._step = None

    @property
    def calls(self) -> list[Call]:
        return [call for call in self.reply.before_control if call.effect is None]

    @property
    def ended(self) -> bool:
        """Whether all its calls have their results."""
        return all(call.index in self.reply.results for call in self.calls)

    def differs(self, other: Self) -> bool:
        """Whether the calls alone tell the steps apart, which costs less than to compare all of them."""
        own, others = self.calls, other.calls
        if len(own) == len(others) == 1:
            return own[0].name != others[0].name or own[0].args != others[0].args
        return len(own) != len(others)

    def step(self) -> bytes | None:
        """The calls and what came of them, to compare; None while one is open."""
        if self._step is None:
            calls = self.calls
            results = [self.reply.results.get(call.index) for call in calls]
            if None in results:
                return None
            done = sorted(
                (fingerprint(call.name, call.args), result.status, _text(result))
                for call, result in zip(calls, results, strict=True)
                if result
            )
            self._step = _digest((done, self._added))
        return self._step


def _digest(step: object) -> bytes:
    """A long run keeps a few bytes of each of its steps, not their texts."""
    return blake2b(repr(step).encode(errors="backslashreplace"), digest_size=16).digest()


def _text(message: BaseMessage) -> str:
    content = message.content
    return _KEPT.sub(r"\1", content) if isinstance(content, str) else repr(content)
