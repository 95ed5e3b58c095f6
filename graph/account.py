"""What a task leaves behind for whoever reads how it ended: what it changed last, and what is open."""

from collections.abc import Callable, Iterator
from typing import Any

from signoff.graph.marks import marks
from signoff.graph.phases import is_phase
from signoff.graph.replies import Call, Reply
from signoff.graph.tally import SENT_BACK
from signoff.graph.task import Task
from signoff.tools.kinds import Effect

MOST_CHANGES = 8
_CALL = 160
_RESULT = 200
_ARGUMENT = 60
_NO_TURN = ("truncated", "too_many", "tool_calls", "cost", "seconds")


def changes(task: Task, is_effect: Callable[[str], bool]) -> list[dict[str, Any]]:
    """The last calls of the task that may have changed something, the newest last, each with its result in a
    line, as fields of `Change`. is_effect: whether a tool of this name may change something."""
    found = (
        _change(reply, call)
        for reply in reversed(task.replies)
        for call in reversed(reply.calls)
        if call.effect is None and is_effect(call.name) and _may_have_run(reply, call)
    )
    last = [change for change, _ in zip(found, range(MOST_CHANGES), strict=False)]
    return last[::-1]


def open_calls(task: Task) -> list[str]:
    """The calls that the end left open, and those of the last reply that did not get their turn."""
    found = [*task.due, *(call for call in (task.ask, task.finish) if call)]
    last = task.last
    for call, result in zip(last.calls, last.found, strict=True) if last else ():
        if result is not None and marks(result).get("not_run") in _NO_TURN:
            found.append(call)
    return [f"{call.name}({dict(call.args)})" for call in found]


def open_points(task: Task) -> list[str]:
    """What the model, or the review, last said to be open, in a sentence each: the next phase, the status of
    the last thought, and why the last finish did not count."""
    points = []
    if task.phases and (following := task.phases[-1]["next_phase"]):
        points.append(f"the next phase: {_line(following, _RESULT)}")
    if status := _status(task):
        points.append(f"its last status: {_line(status, _RESULT)}")
    if (refused := _last_finish(task)) and (why := _why_not(task, *refused)):
        points.append(f"its last finish did not count: {_line(why, _RESULT)}")
    return points


def last_claim(task: Task) -> dict[str, Any]:
    """The arguments of the last finish, whether it counted or not."""
    found = _last_finish(task)
    return dict(found[1].args) if found else {}


def _may_have_run(reply: Reply, call: Call) -> bool:
    """A person who responds gives the result in place of the call."""
    found = reply.result(call)
    return found is not None and not {"not_run", "responded"} & marks(found).keys()


def _change(reply: Reply, call: Call) -> dict[str, Any]:
    found = reply.result(call)
    assert found is not None, "only what has a result is asked for"
    came = "unknown" if marks(found).get("unknown") else "error" if found.status == "error" else "ok"
    return {"call": _shown(call), "result": _line(found.text, _RESULT), "came": came}


def _shown(call: Call) -> str:
    """The call in one line, its arguments short."""
    told = ", ".join(f"{name}={_line(repr(value), _ARGUMENT)}" for name, value in call.args.items())
    return _line(f"{call.name}({told})", _CALL)


def _status(task: Task) -> str:
    thoughts = (
        said
        for reply in reversed(task.replies)
        for call in reversed(reply.calls)
        if call.effect is Effect.CONTINUE and call.problem is None and (said := call.args.get("status"))
    )
    return str(next(thoughts, ""))


def _last_finish(task: Task) -> tuple[Reply, Call] | None:
    return next(_finishes(task), None)


def _finishes(task: Task) -> Iterator[tuple[Reply, Call]]:
    for reply in reversed(task.replies):
        for call in reversed(reply.calls):
            if call.effect is Effect.FINISH and not is_phase(call.args):
                yield reply, call


def _why_not(task: Task, reply: Reply, call: Call) -> str:
    refused, found = task.refused.get(reply.key(call)), reply.result(call)
    if refused and refused["why"]:
        return refused["why"]
    if refused and refused["kind"] == SENT_BACK:
        return found.text if found else "a person sent it back"
    return found.text if found is not None and reply.failed(call) and reply.ran(call) else ""


def _line(text: str, most: int) -> str:
    """`text` on one line; of a long one its beginning and its end, where the exit code stands."""
    flat = " ".join(text.split())
    if len(flat) <= most:
        return flat
    tail = most // 3
    return f"{flat[: most - tail - 3]} … {flat[len(flat) - tail :]}"
