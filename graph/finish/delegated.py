"""The delegates of a task that did not succeed: a finish must not pass over them in silence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from signoff.graph.history.task import Task
from signoff.graph.messages import marks

REFUSAL = "delegates"
"""The kind of refusal for a finish that leaves out a failed delegate: a key of `Texts.refusals`."""


@dataclass(frozen=True)
class FailedDelegate:
    """A delegate whose last call in the task has failed. turn: the number of the reply that made it."""

    name: str
    why: str
    turn: int

    @property
    def sentence(self) -> str:
        return f"{self.name} did not succeed ({self.why})"


def failed_delegates(task: Task) -> list[FailedDelegate]:
    """Those that failed, and were not called again with success since."""
    failed: dict[str, FailedDelegate] = {}
    for turn, reply in enumerate(task.replies, 1):
        for call in reply.calls:
            found = reply.result(call)
            if found is None or not (mark := marks(found).get("delegate")):
                continue
            failed.pop(call.name, None)
            if found.status == "error":
                failed[call.name] = FailedDelegate(call.name, str(mark.get("why", mark["status"])), turn)
    return list(failed.values())


def unlisted(failed: Sequence[FailedDelegate], issues: Sequence[str]) -> list[FailedDelegate]:
    """Those that a claim with these issues does not name."""
    said = [issue.casefold() for issue in issues]
    return [one for one in failed if not any(one.name.casefold() in issue for issue in said)]


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
    """What a claim of "done" leaves out, in a sentence each."""
    if claim.get("outcome", "done") != "done":
        return []
    return [one.sentence for one in unlisted(failed_delegates(task), issues)]
