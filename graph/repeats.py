"""Repetitions: the same work with the same result again and again, alone or as a cycle of two or three.

Talk and thoughts between work hide nothing; the same thought again and again, with no work between, is a
repetition, too. The calls of one reply are compared as a batch. What is polled and changes is none: the
results are compared, too, as they are.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from langchain_core.messages import BaseMessage

from signoff.graph.replies import Call, Reply
from signoff.tools.kinds import Effect, fingerprint

_PERIODS = (1, 2, 3)
_Step = TypeVar("_Step")
_NONE: Mapping[int, tuple[str, ...]] = MappingProxyType({})

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
        self._work = _Work()
        self._thoughts: _Thoughts | None = None

    def replied(self, reply: Reply) -> None:
        if any(call.effect is None for call in reply.before_control):
            self._work.found.append(reply)
            self._thoughts = None
        elif thought := [call for call in reply.before_control if call.effect is Effect.CONTINUE]:
            self._thoughts = self._thoughts or _Thoughts()
            self._thoughts.found.append(_digest([fingerprint(call.name, call.args) for call in thought]))

    def shown(self, message: BaseMessage) -> None:
        """What a tool shows beside its result."""
        if self._work.found:
            self._work.shows(_text(message))

    def told(self) -> None:
        """The model was told of the row that the task ends in."""
        self._work.told_at = len(self._work.found)
        if self._thoughts:
            self._thoughts.told_at = len(self._thoughts.found)

    def row(self) -> Row:
        """The longer row: that of the work, or of the thoughts after it."""
        work = self._work.row()
        return max(work, self._thoughts.row(), key=lambda row: row.times) if self._thoughts else work


class _Steps(ABC, Generic[_Step]):
    """Steps in order. Only as much of their end is compared as is alike."""

    def __init__(self) -> None:
        self.found: list[_Step] = []
        self.told_at = 0

    def row(self) -> Row:
        """The row that the steps end in. A step that has not come to its end is not looked at."""
        end = len(self.found)
        if end and not self.ended(self.found[-1]):
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
        return at >= period and self.alike(at, at - period)

    def _rounds(self, period: int, end: int) -> tuple[int, int]:
        """How often the last `period` steps have come round before `end`, and where that begins."""
        at = end - 1
        while self._alike(at, period):
            at -= 1
        alike = end - 1 - at
        return (alike + period) // period, max(0, end - alike - period)

    @abstractmethod
    def ended(self, step: _Step) -> bool: ...

    @abstractmethod
    def alike(self, at: int, before: int) -> bool:
        """Whether two steps, by their positions, are the same. Both have come to their end."""


class _Thoughts(_Steps[bytes]):
    """The thoughts of replies that do nothing else."""

    def ended(self, step: bytes) -> bool:
        return True

    def alike(self, at: int, before: int) -> bool:
        return self.found[at] == self.found[before]


class _Work(_Steps[Reply]):
    """The work calls of replies, and what their tools show beside the results."""

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
        return not any(map(step.open, _calls(step)))

    def alike(self, at: int, before: int) -> bool:
        calls, others = _calls(self.found[at]), _calls(self.found[before])
        # The calls alone nearly always tell two steps apart, which costs less than to compare all of them.
        if len(calls) != len(others):
            return False
        if len(calls) == 1 and (calls[0].name, calls[0].args) != (others[0].name, others[0].args):
            return False
        return self.ended(self.found[before]) and self._step(at) == self._step(before)

    def _step(self, at: int) -> bytes:
        """The calls and what came of them, to compare."""
        if at not in self._known:
            reply = self.found[at]
            done = sorted(
                (fingerprint(call.name, call.args), result.status, _text(result))
                for call in _calls(reply)
                if (result := reply.result(call))
            )
            self._known[at] = _digest((done, self._added.get(at, ())))
        return self._known[at]


def _calls(reply: Reply) -> list[Call]:
    """The work calls of the reply."""
    return [call for call in reply.before_control if call.effect is None]


def _digest(step: object) -> bytes:
    """A long run keeps a few bytes of each of its steps, not their texts."""
    return blake2b(repr(step).encode(errors="backslashreplace"), digest_size=16).digest()


def _text(message: BaseMessage) -> str:
    content = message.content
    return _KEPT.sub(r"\1", content) if isinstance(content, str) else repr(content)
