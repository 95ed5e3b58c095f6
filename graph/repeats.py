"""Repetitions: the same work with the same result again and again, alone or as a cycle of two or three.

Only work calls count; talk and thoughts between them hide nothing. The calls of one reply are compared as a
batch. What is polled and changes is no repetition: the results are compared, too, as they are.
"""

import re
from collections.abc import Hashable
from typing import NamedTuple

from langchain_core.messages import BaseMessage

from signoff.graph.replies import Reply
from signoff.tools.approvals import fingerprint

_PERIODS = (1, 2, 3)

# The file that keeps the whole of a long result is named by the call; the digest at its end is of the text.
_KEPT = re.compile(r"the full text is in [^\n;]*-([0-9a-f]{12}\.txt)")


class Row(NamedTuple):
    """How often the last work, or the last cycle of two or three, has come round (1: it is new), and whether
    the model was told so."""

    times: int = 1
    told: bool = False


NEW = Row()


class Repeats:
    """The work of a task, reply by reply. Only as much of its end is compared as is alike."""

    def __init__(self) -> None:
        self._work: list[_Work] = []
        self._told_at = 0

    def replied(self, reply: Reply) -> None:
        if any(call.effect is None for call in reply.before_control):
            self._work.append(_Work(reply))

    def shown(self, message: BaseMessage) -> None:
        """What a tool shows beside its result."""
        if self._work:
            self._work[-1].added.append(_text(message))

    def told(self) -> None:
        """The model was told of the row that the work ends in."""
        self._told_at = len(self._work)

    def row(self) -> Row:
        """The row that the work ends in. Work that has not come to its end is not looked at."""
        end = len(self._work)
        if end and self._work[-1].step() is None:
            end -= 1
        times, start = max((self._rounds(period, end) for period in _PERIODS), key=lambda found: found[0])
        return Row(times, self._told_at > start)

    def _rounds(self, period: int, end: int) -> tuple[int, int]:
        """How often the last `period` replies have come round before `end`, and where that begins."""
        at = end - 1
        while at >= period and (step := self._work[at].step()) and step == self._work[at - period].step():
            at -= 1
        alike = end - 1 - at
        return (alike + period) // period, max(0, end - alike - period)


class _Work:
    """The work calls of one reply; `added` is what their tools show beside the results."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.added: list[str] = []
        self._made: tuple[int, Hashable] | None = None

    def step(self) -> Hashable | None:
        """The calls and what came of them, to compare; None while one is open."""
        if self._made is None or self._made[0] != len(self.added):
            calls = [call for call in self.reply.before_control if call.effect is None]
            results = [self.reply.results.get(call.index) for call in calls]
            if None in results:
                return None
            done = sorted(
                (fingerprint(call.name, call.args), result.status, _text(result))
                for call, result in zip(calls, results, strict=True)
                if result
            )
            self._made = len(self.added), (*done, *self.added)
        return self._made[1]


def _text(message: BaseMessage) -> str:
    content = message.content
    return _KEPT.sub(r"\1", content) if isinstance(content, str) else repr(content)
