"""Normalises the reply, answers calls that need no tool, and decides what comes next.

Also applies the limits: which calls of a reply still run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import ToolMessage

from signoff.graph.history.reader import decided, who_decided
from signoff.graph.history.replies import Call, Reply
from signoff.graph.history.task import Task
from signoff.graph.machine import Event
from signoff.graph.messages import append_messages, marks, not_run, result
from signoff.graph.rules import TALKED, Budget, budget
from signoff.graph.state import AgentState, Decision, Decisions
from signoff.nodes.journal import Unsettled, look, unsettled
from signoff.nodes.model.messages import named_calls
from signoff.nodes.node import NodeContext, Report, Steps
from signoff.nodes.tool_calls.run import misfit
from signoff.tools.toolbox import nearest_name


def over_limit(calls: Sequence[Call], task: Task, run: NodeContext) -> dict[int, ToolMessage]:
    """The answers, by position, to those of the work calls `calls` that a limit refuses.

    All of them if cost or time is used up; else the last ones, if there are more than may run.
    """
    found = dict(_no_child(calls, task, run)) if run.deps.toolbox.delegates else {}
    why, left = _refused(calls, task, run)
    return found | {call.index: _over(call, why, run) for call in left}


def _over(call: Call, why: str, run: NodeContext) -> ToolMessage:
    return not_run(call.id, call.name, run.deps.texts.results[why].format(name=call.name), why)


def _no_child(calls: Sequence[Call], task: Task, run: NodeContext) -> Iterator[tuple[int, ToolMessage]]:
    """The answers to delegate calls that a limit refuses: the maximum depth or number is reached, or the
    budget is used up."""
    bound = budget("children", task, run.limits)
    room = int(bound.limit - bound.used) if bound else len(calls)
    spent = next(
        (name for name in ("tree_turns", "tokens") if (b := budget(name, task, run.limits)) and b.spent), None
    )
    for call in (one for one in calls if one.name in run.deps.toolbox.delegates):
        if run.limits.depth < 1:
            yield call.index, _over(call, "depth", run)
        elif room <= 0:
            yield call.index, _over(call, "children", run)
        elif spent:
            yield call.index, _over(call, spent, run)
        room -= 1


def _refused(calls: Sequence[Call], task: Task, run: NodeContext) -> tuple[str, Sequence[Call]]:
    for name in ("cost", "seconds"):
        found = budget(name, task, run.limits)
        if found and found.spent:
            return name, calls
    found = budget("tool_calls", task, run.limits)
    return "tool_calls", calls[max(0, _room(found, task)) :] if found else ()


def _room(bound: Budget, task: Task) -> int:
    """How many more calls may run. In a tree, this was granted to the reply on arrival, since other machines
    run in parallel."""
    granted = task.tree.get("granted") if task.tree else None
    reply = task.last
    if granted is None or reply is None or granted["reply"] != reply.message.id:
        return int(bound.limit - bound.used)
    return granted["calls"] - reply.work_run


_NAME = 100
_CALLS_IN_A_ROUND = 8


def route_tools(state: AgentState, run: NodeContext) -> Steps:
    task = run.task(state)
    assert task.last is not None, "there is a reply to route"
    written, reply_id = list[Any](), task.last.message.id or ""
    if renamed := named_calls(task.last, task.call_ids):
        written.append(renamed)
        messages = append_messages(state["messages"], written)
        task = run.task({**state, "messages": messages})
    if task.stopped or task.answers:
        # Nothing more runs: decide cancels, or compress records the user's message first.
        return Report(Event.SETTLED, {"messages": written} if written else {})
    answers = {call.index: answer(call, task, run) for call in task.due}
    running = [call for call in task.due if not answers[call.index] and call.effect is None]
    answers |= over_limit(running, task, run)
    refused = [call for call in task.due if _is_refused(call, answers[call.index])]
    # A call that has started is never said to be not run: `execute` tells what is known of it.
    started = yield from look(run, reply_id, refused)
    answers |= {call.index: None for call in refused if call.id in started}
    written += [found for found in answers.values() if found]
    update: dict[str, Any] = {"messages": written} if written else {}
    if left := [call for call in task.due if not answers[call.index]]:
        waiting = yield from unsettled(task, run)
        if asked := tuple(call for call in waiting.calls if call in left):
            update["approvals"] = _asking(state, task, replace(waiting, calls=asked))
            return Report(Event.NEEDS_APPROVAL, update)
        driven = run.deps.toolbox.is_driven(left[0].name)
        return Report(Event.TO_HAND_OVER if driven else Event.WORK, update)
    if TALKED.applies(task, run.limits):
        why = "the reply is text without a call"
        update["decision"] = Decision(rule=TALKED.name, event=TALKED.event.value, why=why)
        return Report(TALKED.event, update)
    return Report(Event.SETTLED, update)


def _is_refused(call: Call, answer: ToolMessage | None) -> bool:
    """Whether this says of a complete work call that it does not run."""
    return call.effect is None and not call.problem and answer is not None and "not_run" in marks(answer)


def _asking(state: AgentState, task: Task, waiting: Unsettled) -> Decisions:
    """The record of what a person is being asked: the answer applies to exactly this."""
    before = state.get("approvals")
    mine = before if before and before["task"] == task.id else None
    return Decisions(
        task=task.id,
        calls=mine["calls"] if mine else {},
        problem=mine["problem"] if mine else "",
        asked=waiting.hashes,
    )


def answer(call: Call, task: Task, run: NodeContext) -> ToolMessage | None:
    """The result of a call that runs nothing: a thought, a call that cannot run, or one that a person
    rejected or answered. None for real work."""
    texts, box = run.deps.texts.results, run.deps.toolbox
    if call.problem:
        text = texts[call.problem].format(name=call.name, error=call.error)
        return not_run(call.id, call.name, text, call.problem)
    if call.effect == "continue":
        return result(call.id, call.name, texts["thought"].format())
    reply = task.reply_of(call)
    if reply.only_controls:
        text = texts["controls_only"].format(tools=", ".join(box.controls))
        return not_run(call.id, call.provider_name, text, "controls_only")
    if call.name in box.provided:
        return not_run(call.id, call.provider_name, texts["provided"].format(name=call.name), "provided")
    offered = marks(reply.message).get("offered")
    if call.name not in box.tools or (offered is not None and call.name not in offered):
        return _unknown(call, run, offered)
    if (too_many := _above(call, reply, run)) is not None:
        return not_run(call.id, call.name, too_many, "too_many")
    if (error := box.misfit(call.name, call.args)) and decided(call, task.decisions) is None:
        return misfit(call, error, run)
    return _from_person(call, task, run)


def _above(call: Call, reply: Reply, run: NodeContext) -> str | None:
    """Why a call exceeds the limit of calls per reply; None if it does not."""
    limit, texts = run.limits.calls_per_reply, run.deps.texts.results
    if run.deps.toolbox.rounds:
        limit = min(limit, _CALLS_IN_A_ROUND)
    place = sum(other.effect is None for other in reply.calls[: call.index])
    return texts["too_many"].format(name=call.name, limit=limit) if place >= limit else None


def _unknown(call: Call, run: NodeContext, offered: Sequence[str] | None) -> ToolMessage:
    """The answer to a call of an unknown tool, or of one that is not offered now. offered: of the working
    tools."""
    texts, box = run.deps.texts.results, run.deps.toolbox
    working = [name for name in box.tools if offered is None or name in offered]
    names = [*working, *box.controls]
    if call.name in box.tools:
        text = texts["not_offered"].format(name=call.name, tools=", ".join(names))
        return not_run(call.id, call.name, text, "not_offered")
    near = nearest_name(call.name, names)
    hint = texts["did_you_mean"].format(near=near) if near else ""
    text = texts["unknown"].format(name=call.name[:_NAME], tools=", ".join(names), hint=hint)
    return not_run(call.id, call.provider_name, text, "unknown")


def _from_person(call: Call, task: Task, run: NodeContext) -> ToolMessage | None:
    texts = run.deps.texts.results
    if not run.can_ask and (who := _whom(call, task, run)):
        return not_run(call.id, call.name, texts["nobody"].format(name=call.name, who=who), "nobody")
    decision = decided(call, task.decisions)
    if decision is None or decision["type"] in ("approve", "edit"):
        return None
    by = who_decided(decision)
    if decision["type"] == "respond":
        return result(
            call.id, call.name, texts["responded"].format(message=decision["message"]), responded=True, **by
        )
    text = texts["rejected"].format(reason=decision["message"]).rstrip()
    return not_run(call.id, call.name, text, "rejected", said=decision["message"], **by)


def _whom(call: Call, task: Task, run: NodeContext) -> str:
    if call in task.undecided:
        return "a person's approval"
    return "a driver" if run.deps.toolbox.is_driven(call.name) else ""
