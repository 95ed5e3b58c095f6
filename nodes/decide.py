"""Applies the ordered rules and reports the event of the first that applies. A settled reply leads here
directly, not through `compress`, which would nearly always have nothing to do; so this state first checks
whether `compress` has work.
"""

from dataclasses import replace
from typing import Any

from signoff.graph.history.task import Task
from signoff.graph.machine import Event
from signoff.graph.rules import decide as apply_rules
from signoff.graph.state import AgentState, Ending
from signoff.graph.vocabulary import REASONS
from signoff.nodes.model.messages import is_full
from signoff.nodes.node import NodeContext, Report

# The events that lead here directly from a reply's calls.
STRAIGHT = (Event.DONE, Event.SETTLED)
_STATUS = {Event.EXHAUSTED: "limit", Event.FAILED: "error", Event.CANCELLED: "error"}


def decide(state: AgentState, run: NodeContext) -> Report:
    task = run.task(state)
    if state.get("event") in STRAIGHT and (why := _unready(state, task, run)):
        task = replace(task, unready=why)
    decision = apply_rules(task, run.limits)
    event = Event(decision["event"])
    update: dict[str, Any] = {"decision": decision}
    if event in _STATUS:
        ending = Ending(task=task.id, status=_STATUS[event], reason=decision["rule"])
        if text := REASONS[decision["rule"]].error:
            question = task.ask.args.get("question", "") if task.ask else ""
            ending["error"] = text.format(question=question)
        update["ending"] = ending
    return Report(event, update)


def _unready(state: AgentState, task: Task, run: NodeContext) -> str | None:
    """What `compress` must do first; None for nothing."""
    if state.get("task") != task.id or task.answers or run.reader(state).unmarked:
        return "an edit of the state brought a new message"
    if task.strays:
        return "calls are open that nothing will run"
    return "the prompt is over its budget" if is_full(state, run) else None
