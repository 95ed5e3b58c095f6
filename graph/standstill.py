"""Whether a finish is refused again and again, with no work in between."""

from collections.abc import Sequence

from signoff.graph.replies import Call, Reply
from signoff.graph.state import RefusedFinish
from signoff.graph.tally import SENT_BACK
from signoff.graph.task import Task
from signoff.tools.kinds import Effect


def idle_refusals(task: Task, finish: Call | None = None) -> list[tuple[Call, RefusedFinish]]:
    """The finishes that were refused before `finish` (by default: so far), and why: since the last work, the
    last word of a person, and the last time that the task was resumed after an end. The newest first."""
    found: list[tuple[Call, RefusedFinish]] = []
    holding = task.last if finish is None else task.reply_of(finish)
    place = next((at for at, reply in enumerate(task.replies) if reply is holding), -1)
    for reply in reversed(task.replies[task.resumed : place + 1]):
        before = [call for call in reversed(reply.calls) if call is not finish]
        told = [(call, why) for call in before if (why := task.refused.get(reply.key(call)))]
        found += [(call, why) for call, why in told if why["kind"] != SENT_BACK]
        if any(why["kind"] == SENT_BACK for _, why in told) or moved([reply]):
            break
    return found


def moved(replies: Sequence[Reply]) -> bool:
    """Whether work of these replies was run, or a question in them was answered."""
    return any(
        call.effect in (None, Effect.ASK) and reply.ran(call) for reply in replies for call in reply.calls
    )
