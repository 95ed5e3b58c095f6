"""The failed delegates of a task: a finish must not silently pass over them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from signoff.graph.history.task import Task
from signoff.graph.messages import marks

REFUSAL = "delegates"
"""The kind of refusal for a finish that omits a failed delegate: a key of `Texts.refusals`."""


@dataclass(frozen=True)
class FailedDelegate:
    """A delegate with a failed call in the task. turn: the number of the reply that made the call. above: for
    a delegate further down, the delegates on the way to it, whose own tasks succeeded."""

    name: str
    why: str
    turn: int
    above: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        return f"{' / '.join((*self.above, self.name))} did not succeed ({self.why})"


def failed_delegates(task: Task) -> list[FailedDelegate]:
    """The delegates that failed, and that no later reply has called successfully. The calls of one reply are
    separate parts of the work, so the success of one does not make up for the failure of another."""
    failed: dict[str, FailedDelegate] = {}
    for turn, reply in enumerate(task.replies, 1):
        results = [(call.name, found) for call in reply.calls if (found := reply.result(call))]
        told = [(name, found, mark) for name, found in results if (mark := marks(found).get("delegate"))]
        for name, _, _ in told:
            failed.pop(name, None)
        failed |= {
            name: FailedDelegate(name, mark["why"], turn)
            for name, found, mark in told
            if found.status == "error"
        }
    return list(failed.values())


def failed_below(task: Task) -> list[FailedDelegate]:
    """Failed delegates below a delegate that succeeded, as recorded in the result of its last reply."""
    failed: dict[str, list[FailedDelegate]] = {}
    for turn, reply in enumerate(task.replies, 1):
        in_reply: dict[str, list[FailedDelegate]] = {}
        for call in reply.calls:
            result = reply.result(call)
            mark = marks(result).get("delegate") if result is not None else None
            if mark is not None:
                in_reply.setdefault(call.name, []).extend(
                    FailedDelegate(one["path"][-1], one["why"], turn, (call.name, *one["path"][:-1]))
                    for one in mark.get("failed", ())
                )
        failed |= in_reply
    return [one for found in failed.values() for one in found]


def failed_for_above(task: Task) -> list[dict[str, Any]]:
    """The delegates that failed in a finished task and below it, as recorded in the marks of its result."""
    if not task.total.children:
        return []
    found = [*failed_delegates(task), *failed_below(task)]
    return [{"path": [*one.above, one.name], "why": one.why} for one in found]


def unlisted(failed: Sequence[FailedDelegate], issues: Sequence[str]) -> list[FailedDelegate]:
    """The failed delegates that these issues do not mention."""
    return [one for one in failed if not any(_names(issue, one.name) for issue in issues)]


def _names(issue: str, name: str) -> bool:
    """Whether the issue has the name as a separate word: neither "write" nor "it-desk" names `it`."""
    return re.search(rf"(?<!\w)(?<!\w-){re.escape(name)}(?!-?\w)", issue, re.IGNORECASE) is not None


def unseen(failed: Sequence[FailedDelegate], task: Task) -> list[FailedDelegate]:
    """The failed delegates that no refused finish has reported to the model since they failed."""
    told = max(
        (
            turn
            for turn, reply in enumerate(task.replies, 1)
            for call in reply.calls
            if (refused := task.refused.get(reply.key(call))) and refused["kind"] == REFUSAL
        ),
        default=0,
    )
    return [one for one in failed if one.turn >= told]


def unmentioned_failures(task: Task, claim: Mapping[str, Any], issues: Sequence[str]) -> list[str]:
    """What a claim of "done" omits, one sentence each."""
    if claim.get("outcome", "done") != "done":
        return []
    return [one.sentence for one in unlisted([*failed_delegates(task), *failed_below(task)], issues)]
