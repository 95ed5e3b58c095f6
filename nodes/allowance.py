"""What the limits let through: which calls of a reply still run, and whether more turns are given."""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import ToolMessage

from signoff.graph.budgets import budget
from signoff.graph.marks import not_run, result
from signoff.graph.replies import Call
from signoff.graph.section import decided
from signoff.graph.task import Task
from signoff.nodes.journal import look
from signoff.nodes.kit import Run
from signoff.nodes.node import Part
from signoff.tools.kinds import Effect


def over_limit(calls: Sequence[Call], task: Task, run: Run) -> Part[dict[int, ToolMessage]]:
    """A part of a node: the answers, by position, to those of the work calls `calls` that a limit refuses.

    All, when the money or the time is used up; else the last ones, when there are more than may run. A call
    that has started is never refused: its effect may have taken place.
    """
    why, left = _refused(calls, task, run)
    if not left:
        return {}
    assert task.last is not None, "the calls are of the last reply"
    effects = [call for call in left if run.kit.toolbox.is_effect(call.name)]
    begun = yield from look(run, task.last.message.id or "", effects)
    text = run.kit.texts.results[why]
    return {
        call.index: not_run(call.id, call.name, text.format(name=call.name), why)
        for call in left
        if call.id not in begun
    }


def _refused(calls: Sequence[Call], task: Task, run: Run) -> tuple[str, Sequence[Call]]:
    for name in ("cost", "seconds"):
        found = budget(name, task, run.limits)
        if found and found.spent:
            return name, calls
    found = budget("tool_calls", task, run.limits)
    return "tool_calls", calls[max(0, int(found.limit - found.used)) :] if found else ()


def more_turns(call: Call, task: Task, run: Run) -> ToolMessage | None:
    """The answer to a request for more turns; None while a person has to be asked.

    One request of a task is heard. Granted without a person are at most as many turns as the limit; what was
    granted stands in the answer, so that the history alone says how many turns there are.
    """
    box, texts = run.kit.toolbox, run.kit.texts.results
    if error := box.problem(call.name, call.args):
        text = texts["invalid"].format(name=call.name, error=error)
        return not_run(call.id, call.name, text, "invalid")
    assert task.last is not None, "the call is of the last reply"
    before = any(other.effect is Effect.MORE_TURNS for other in task.last.calls[: call.index])
    if task.requested or before:
        return _answer(call, 0, task, run)
    if not box.needs_approval(call.name, call.args):
        return _answer(call, min(_turns(call.name, call.args, run), run.limits.turns), task, run)
    decision = decided(call, task.decisions)
    if decision is None:
        return None if run.can_ask else _answer(call, 0, task, run)
    args = decision["args"] if decision["type"] == "edit" else call.args
    agreed = decision["type"] in ("approve", "edit")
    turns = _turns(call.name, args or {}, run) if agreed else 0
    return _answer(call, turns, task, run, decision["message"])


def _turns(name: str, args: Mapping[str, Any], run: Run) -> int:
    """The number asked for, or set in its place by a person; 0 when that does not fit."""
    box = run.kit.toolbox
    return 0 if box.problem(name, args) else int(box.controls.read(name, args).get("turns", 0))


def _answer(call: Call, turns: int, task: Task, run: Run, words: str = "") -> ToolMessage:
    left = run.limits.turns + task.extra_turns + turns - task.turns
    text = run.kit.texts.results["granted" if turns else "not_granted"]
    shown = text.format(turns=turns, left=left, words=words).rstrip()
    return result(call.id, call.name, shown, ok=turns > 0, granted=turns)
