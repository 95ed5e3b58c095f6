"""Detects standstill: a task whose finishes are refused again and again, with no work in between."""

from collections.abc import Sequence

from signoff.graph.history.replies import Call, Reply
from signoff.graph.history.task import Task
from signoff.graph.kinds import SENT_BACK
from signoff.graph.state import RefusedFinish


def idle_refusals(task: Task, finish: Call | None = None) -> list[tuple[Call, RefusedFinish]]:
    """The finishes refused before `finish` (by default: so far) since the last work, the last message of a
    person, and the last resume after an end, each with the reason; newest first."""
    found: list[tuple[Call, RefusedFinish]] = []
    holding = task.last if finish is None else task.reply_of(finish)
    place = next((at for at, reply in enumerate(task.replies) if reply is holding), -1)
    for reply in reversed(task.replies[task.resumed : place + 1]):
        before = [call for call in reversed(reply.calls) if call is not finish]
        refusals = [(call, why) for call in before if (why := task.refused.get(reply.key(call)))]
        found += [(call, why) for call, why in refusals if why["kind"] != SENT_BACK]
        if any(why["kind"] == SENT_BACK for _, why in refusals) or moved([reply]):
            break
    return found


def moved(replies: Sequence[Reply]) -> bool:
    """Whether these replies made progress: a work call ran, or a question was answered."""
    return any(
        call.effect in (None, "ask") and reply.was_run(call) for reply in replies for call in reply.calls
    )
