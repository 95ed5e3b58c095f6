"""Judges a finish by the calls that it cites as evidence, and detects standstill.

A task stands still when its finishes are refused again and again, with no work in between.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from langchain_core.messages import ToolMessage

from signoff.graph.history.replies import Call, Reply
from signoff.graph.history.task import Task
from signoff.graph.kinds import SENT_BACK, Effect
from signoff.graph.messages import marks
from signoff.graph.state import RefusedFinish

# The line that the terminal appends to every output: a failed command has an ordinary result.
_EXIT = re.compile(r"\n\[exit code (\w+)[^\n]*\]\s*\Z")


@dataclass(frozen=True)
class Doubt:
    """Why a cited call proves nothing. why: a key of `Texts.refusals`; last: the change after it."""

    why: str
    id: str
    last: str = ""


@dataclass(frozen=True)
class _Past:
    call: Call
    result: ToolMessage

    @property
    def succeeded(self) -> bool:
        code = _EXIT.search(self.result.text)
        return self.result.status != "error" and (code is None or code[1] == "0")

    @property
    def took_effect(self) -> bool:
        """Whether it may have had an effect: it succeeded, or its outcome is unknown. A failed command may
        have done a part."""
        return self.result.status != "error" or bool(marks(self.result).get("unknown"))


def doubt(
    cited: Sequence[str],
    finish: Call,
    task: Task,
    changes: Callable[[str], bool],
    checks: Callable[[str], bool],
) -> Doubt | None:
    """What is wrong with the evidence of `finish`; None when every cited call exists in this task, succeeded,
    and is newer than the last call that may have changed something.

    cited: call ids, or tool names, which stand for the tool's last call. changes: whether the tool of this
    name may change something. checks: whether such a tool can also verify something (a terminal): then the
    last change itself may be the evidence.
    """
    past = list(_past(task, finish))
    last = max((at for at, one in enumerate(past) if changes(one.call.name) and one.took_effect), default=-1)
    for name in cited:
        at = _place(name, past)
        if at is None:
            return Doubt("evidence_missing", name)
        if not past[at].succeeded:
            return Doubt("evidence_failed", name)
        if at < last or (at == last and not checks(past[at].call.name)):
            return Doubt("evidence_old", name, f"{past[last].call.name}, {past[last].call.id}")
    return None


def _past(task: Task, finish: Call) -> Iterator[_Past]:
    """The work calls that ran before `finish`, in order."""
    until = task.reply_of(finish)
    for reply in task.replies:
        for call in reply.calls:
            result = reply.result(call)
            if call is finish:
                return
            if call.effect is None and result is not None and reply.was_run(call):
                yield _Past(call, result)
        if reply is until:
            return


def _place(name: str, past: Sequence[_Past]) -> int | None:
    """The index of the newest call with this id, else of the newest call of the tool with this name."""
    ids = [at for at, one in enumerate(past) if one.call.id == name]
    names = [at for at, one in enumerate(past) if one.call.name == name]
    return max(ids or names, default=None)


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
        call.effect in (None, Effect.ASK) and reply.was_run(call) for reply in replies for call in reply.calls
    )
