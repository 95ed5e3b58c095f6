"""What of a point decides how it goes on: two points with the same key have the same future."""

from collections.abc import Hashable, Mapping
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage

from signoff.graph.finish.evidence import idle_refusals, moved
from signoff.graph.history.reader import Reader, read_messages
from signoff.graph.history.replies import Call
from signoff.graph.history.section import Verdict, decided, verdicts_of
from signoff.graph.history.task import Task, current_task
from signoff.graph.machine import State
from signoff.graph.messages import is_genuine, marks
from signoff.nodes.decide import STRAIGHT
from signoff.verify.machine import Machine, Point


def key(point: Point, machine: Machine) -> Hashable:
    """All that the rules and the nodes look at, counts no further than the limits count."""
    reader = read_messages(point.state, machine.kit.toolbox)
    task = current_task(reader, point.state, can_ask=machine.can_ask)
    return (
        point.place,
        point.waiting["type"] if point.waiting and "type" in point.waiting else point.waiting is not None,
        point.outside,
        _task(task, machine),
        _reply(task, point),
        _state(point, task, reader),
        _journal(point, task),
    )


def _task(task: Task, machine: Machine) -> Hashable:
    limits = machine.kit.limits
    left = max(0, limits.turns + task.extra_turns - task.turns)
    fresh = task.fresh
    return (
        bool(task.id),
        left,
        task.turns == task.resumed,
        tuple(_call(call) for call in task.due),
        _call(task.ask),
        _call(task.finish),
        tuple((_call(stray.call), stray.why) for stray in task.strays),
        tuple(call.id != "" and _call(call) for call in task.undecided),
        tuple(str(words.wait) for words in task.answers.values()),
        task.nudged,
        task.reminded,
        fresh and (fresh.stop, fresh.reasoning, fresh.empty, fresh.talk),
        task.spoke is not None,
        task.batch,
        min(task.talk_turns, limits.talk_turns),
        min(task.filtered, 2),
        task.answered,
        task.requested,
        (task.used.tool_calls, task.used.refused) if limits.tool_calls is not None else None,
        _work(task) if limits.repeats is not None else None,
        _idle(task, limits.refusals),
        _phase(task),
        task.stopped,
        task.ended,
        task.before is not None,
    )


def _call(call: Call | None) -> Hashable:
    if call is None:
        return None
    return call.name, repr(sorted(call.args.items())), call.problem, call.effect, call.id in ("", "call_0")


def _work(task: Task) -> Hashable:
    """The work so far, step by step: any of it may come round."""
    return tuple(
        tuple(
            (_call(call), found and found.status)
            for call, found in zip(reply.calls, reply.found, strict=True)
        )
        for reply in task.replies[task.resumed :]
        if reply.calls
    ), task.row


def _phase(task: Task) -> Hashable:
    """The last phase, and whether there was work after it."""
    if not task.phases:
        return None
    last = task.phases[-1]
    return last["percentage"], last["next_phase"], moved(task.replies[last["turn"] :])


def _idle(task: Task, most: int | None) -> Hashable:
    """The refusals that were told since the last work: the same once more would be a standstill, as would too
    many of them."""
    found = idle_refusals(task)
    claims = frozenset(
        (call.name, repr(sorted(call.args.items())), why["kind"], why["why"]) for call, why in found
    )
    return claims, None if most is None else min(len(found), most)


def _reply(task: Task, point: Point) -> Hashable:
    """The replies that hold what is due or stands: what came of each of their calls."""
    open_calls = [*task.due, *(call for call in (task.ask, task.finish) if call)]
    held = {id(reply): reply for call in open_calls for reply in [task.reply_of(call)]}
    # What comes next to be routed is looked at as a whole.
    if task.last and point.place in (State.ROUTE_TOOLS, State.EXECUTE):
        held[id(task.last)] = task.last
    replies = list(held.values())
    verdicts = verdicts_of(point.state.get("verdicts"), task.id)
    approvals = point.state.get("approvals")
    decisions = approvals["calls"] if approvals else {}
    return tuple(
        (
            tuple(_call(call) for call in reply.calls),
            tuple(
                (index, found.status, marks(found).get("not_run"), bool(marks(found).get("unknown")))
                for index, found in enumerate(reply.found)
                if found
            ),
            tuple(_verdict(verdicts.get(reply.key(call))) for call in reply.calls),
            tuple(
                (made := decided(call, decisions)) and (made["type"], made["attempt"]) for call in reply.calls
            ),
        )
        for reply in replies
    )


def _verdict(found: Verdict | None) -> str | None:
    return found if found is None or isinstance(found, str) else found["kind"]


def _state(point: Point, task: Task, reader: Reader) -> Hashable:
    state, messages = point.state, point.messages
    last = messages[-1] if messages else None
    ending, ended, outcome = state.get("ending"), state.get("ended"), state.get("outcome")
    asked: Mapping[str, Any] = state.get("approvals") or {}
    long = state.get("too_long")
    given = state.get("verdicts")
    confirm = given.get("asked") if given else None
    return (
        state["decision"]["rule"] if point.place is State.NUDGE else None,
        point.place is State.DECIDE and state.get("event") in STRAIGHT,
        ending and (ending["task"] == task.id, ending["status"], ending["reason"]),
        ended and (ended["task"] == task.id, last is not None and ended["message"] == last.id),
        outcome and (outcome["task"] == task.id, outcome["status"], outcome["reason"]),
        state.get("task") == task.id,
        task.before and (state.get("task") == task.before.id, ended and ended["task"] == task.before.id),
        isinstance(last, AIMessage),
        isinstance(last, HumanMessage) and is_genuine(last),
        reader.answering is not None,
        bool(reader.unmarked),
        "call_0" in task.call_ids,
        tuple(sorted(asked.get("asked", ()) or ())) != (),
        bool(asked.get("problem")),
        confirm and bool(confirm["problem"]),
        long and (long["task"] == task.id, last is not None and long["after"] == last.id),
    )


def _journal(point: Point, task: Task) -> Hashable:
    """What the store says of the calls that are open, and of the tasks."""
    open_calls = [call for reply in task.replies for call in reply.calls if reply.open(call)]
    ids = {call.id for call in [*open_calls, *(stray.call for stray in task.strays)]}
    tasks = {task.id: "this", task.before.id if task.before else "": "before"}
    found: list[Any] = []
    for (namespace, name), value in point.shelf.items():
        if namespace[1] == "journal" and name in ids:
            found.append((len([i for i in ids if i < name]), value["status"], value["attempt"]))
        elif namespace[1] != "journal" and name in tasks:
            found.append((namespace[1], tasks[name], str(value.get("status"))))
    return tuple(sorted(found, key=repr))
