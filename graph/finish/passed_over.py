"""What a claim of "done" must not pass over in silence: unknown effects and failed delegates.

Such a claim is refused once, unless a call has run since then that could have looked. What it passes over
nevertheless stands in the outcome's `open_points`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import ToolMessage

from signoff.graph.finish.lines import shown_call
from signoff.graph.history.replies import Call, Reply
from signoff.graph.history.task import Task
from signoff.graph.messages import marks
from signoff.graph.vocabulary import OPEN_POINTS

REFUSAL = "open"
"""The kind of refusal for such a claim: a key of `Texts.refusals`."""


@dataclass(frozen=True)
class OpenPoint:
    """sentence: in words for people. turn: the number of the reply that made the call. below: whether a
    delegate has passed over it, which its result tells; then it is listed and not refused."""

    sentence: str
    turn: int
    below: bool = False


def open_points_of(task: Task, is_effect: Callable[[str], bool]) -> list[OpenPoint]:
    """What is open, oldest first. The calls of one reply are separate parts of the work: only a later reply
    looks at what one of them has left.

    is_effect: whether a tool of this name may change something.
    """
    points: list[OpenPoint] = []
    for turn, reply in enumerate(task.replies, 1):
        if _looks(reply):
            points.clear()
        for call in reply.calls:
            result = reply.result(call)
            if result is not None and call.effect is None:
                points += _left_by(call, result, turn, is_effect)
    return points


def _looks(reply: Reply) -> bool:
    """Whether a call of the reply ran, or a person answered it, so that it could have looked."""
    looking = [call for call in reply.calls if call.effect in (None, "ask")]
    results = [result for call in looking if (result := reply.result(call)) and result.status != "error"]
    return any(not {"not_run", "expired"} & marks(result).keys() for result in results)


def _left_by(
    call: Call, result: ToolMessage, turn: int, is_effect: Callable[[str], bool]
) -> Iterator[OpenPoint]:
    notes = marks(result)
    if delegate := notes.get("delegate"):
        if result.status == "error":
            yield OpenPoint(OPEN_POINTS["delegate"].format(name=call.name, why=delegate["why"]), turn)
        for sentence in delegate.get("open", ()):
            yield OpenPoint(f"{call.name} / {sentence}", turn, below=True)
    elif notes.get("unknown") and not notes.get("answered") and is_effect(call.name):
        yield OpenPoint(OPEN_POINTS["effect"].format(call=shown_call(call)), turn)


def to_refuse(task: Task, is_effect: Callable[[str], bool]) -> list[OpenPoint]:
    """The points for which no finish was refused since they are open."""
    refused_in = max(
        (
            turn
            for turn, reply in enumerate(task.replies, 1)
            for call in reply.calls
            if (refused := task.refused.get(reply.key(call))) and refused["kind"] == REFUSAL
        ),
        default=0,
    )
    points = open_points_of(task, is_effect)
    return [point for point in points if point.turn >= refused_in and not point.below]


def passed_over(task: Task, claim: Mapping[str, Any], is_effect: Callable[[str], bool]) -> list[str]:
    """What the claim passes over, one sentence each; an honest "partial" or "blocked" passes over nothing."""
    if claim.get("outcome", "done") != "done":
        return []
    return [point.sentence for point in open_points_of(task, is_effect)]
