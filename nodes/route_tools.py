"""Normalises the reply, answers what is answered without running anything, and says what comes next."""

from dataclasses import replace
from typing import Any

from langchain_core.messages import ToolMessage

from signoff.graph.machine import Event
from signoff.graph.marks import not_run, result
from signoff.graph.reducers import append_messages
from signoff.graph.replies import Call
from signoff.graph.section import decided
from signoff.graph.state import AgentState, Decision, Decisions
from signoff.graph.task import Task
from signoff.nodes.allowance import more_turns, over_limit
from signoff.nodes.journal import Unsettled, unsettled
from signoff.nodes.kit import Run
from signoff.nodes.naming import unique_ids
from signoff.nodes.node import Report, Steps
from signoff.nodes.told import misfit
from signoff.tools.kinds import Effect
from signoff.tools.names import nearest_name

_NAME = 100
_CALLS_IN_A_ROUND = 8


def route_tools(state: AgentState, run: Run) -> Steps:
    task = run.task(state)
    assert task.last is not None, "there is a reply to route"
    written: list[Any] = []
    if renamed := unique_ids(task.last, task.call_ids):
        written.append(renamed)
        messages = append_messages(state["messages"], written)
        task = run.task({**state, "messages": messages})
    if task.stopped or task.answers:
        # Nothing more runs: decide cancels, or compress writes the user's words down first.
        return Report(Event.SETTLED, {"messages": written} if written else {})
    answers = {call.index: answer(call, task, run) for call in task.due}
    running = [call for call in task.due if not answers[call.index] and call.effect is None]
    answers |= yield from over_limit(running, task, run)
    written += [found for found in answers.values() if found]
    update: dict[str, Any] = {"messages": written} if written else {}
    if left := [call for call in task.due if not answers[call.index]]:
        waiting = yield from unsettled(task, run)
        asked = replace(waiting, calls=tuple(call for call in waiting.calls if call in left))
        if asked.calls:
            update["approvals"] = _asking(state, task, asked)
            return Report(Event.NEEDS_APPROVAL, update)
        driven = run.kit.toolbox.is_driven(left[0].name)
        return Report(Event.TO_HAND_OVER if driven else Event.WORK, update)
    if _talked(task):
        why = "the reply is text without a call"
        update["decision"] = Decision(rule="talked", event=Event.TALKED.value, why=why)
        return Report(Event.TALKED, update)
    return Report(Event.SETTLED, update)


def _asking(state: AgentState, task: Task, waiting: Unsettled) -> Decisions:
    """The record of what a person is asked now: the answer counts for exactly this."""
    before = state.get("approvals")
    mine = before if before and before["task"] == task.id else None
    return Decisions(
        task=task.id,
        calls=mine["calls"] if mine else {},
        problem=mine["problem"] if mine else "",
        asked=waiting.shown,
    )


def _talked(task: Task) -> bool:
    asked = task.spoke is not None and task.can_ask
    return task.last is not None and task.last.talk and "talked" not in task.nudged and not asked


def answer(call: Call, task: Task, run: Run) -> ToolMessage | None:
    """The result of a call that runs nothing: a thought, a call that cannot run, or one that a person
    rejected or answered. None for real work."""
    texts, box = run.kit.texts.results, run.kit.toolbox
    if call.problem:
        text = texts[call.problem].format(name=call.name, error=call.error)
        return not_run(call.id, call.name, text, call.problem)
    if call.effect is Effect.CONTINUE:
        return result(call.id, call.name, texts["thought"].format())
    if call.effect is Effect.MORE_TURNS:
        return more_turns(call, task, run)
    if call.name not in box.tools:
        return _unknown(call, run)
    if (too_many := _above(call, task, run)) is not None:
        return not_run(call.id, call.name, too_many, "too_many")
    if (error := box.misfit(call.name, call.args)) and decided(call, task.decisions) is None:
        return misfit(call, error, run)
    return _from_person(call, task, run)


def _above(call: Call, task: Task, run: Run) -> str | None:
    """What is said of a call for which its reply has no place any more; None where it has."""
    limit, texts = run.limits.calls_per_reply, run.kit.texts.results
    if run.kit.toolbox.rounds:
        limit = min(limit, _CALLS_IN_A_ROUND)
    place = sum(other.effect is None for other in task.reply_of(call).calls[: call.index])
    return texts["too_many"].format(name=call.name, limit=limit) if place >= limit else None


def _unknown(call: Call, run: Run) -> ToolMessage:
    texts, names = run.kit.texts.results, [found.name for found in run.kit.toolbox.every]
    near = nearest_name(call.name, names)
    hint = texts["did_you_mean"].format(near=near) if near else ""
    text = texts["unknown"].format(name=call.name[:_NAME], tools=", ".join(names), hint=hint)
    return not_run(call.id, call.shown_name, text, "unknown")


def _from_person(call: Call, task: Task, run: Run) -> ToolMessage | None:
    texts = run.kit.texts.results
    if not run.can_ask and (who := _whom(call, task, run)):
        return not_run(call.id, call.name, texts["nobody"].format(name=call.name, who=who), "nobody")
    decision = decided(call, task.decisions)
    if decision is None or decision["type"] in ("approve", "edit"):
        return None
    if decision["type"] == "respond":
        return result(
            call.id, call.name, texts["responded"].format(message=decision["message"]), responded=True
        )
    text = texts["rejected"].format(reason=decision["message"]).rstrip()
    return not_run(call.id, call.name, text, "rejected")


def _whom(call: Call, task: Task, run: Run) -> str:
    if call in task.undecided:
        return "a person's approval"
    return "a driver" if run.kit.toolbox.is_driven(call.name) else ""
