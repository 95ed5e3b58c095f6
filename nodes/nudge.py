"""Appends the synthetic reminder that fits the decision."""

from signoff.graph.machine import Event
from signoff.graph.messages import nudge as reminder
from signoff.graph.rules import nearest
from signoff.graph.state import AgentState
from signoff.nodes.node import NodeContext, Report


def nudge(state: AgentState, run: NodeContext) -> Report:
    task, kind = run.task(state), state["decision"]["rule"]
    texts, near = run.deps.texts, nearest(task, run.limits)
    left = near.remaining(texts) if near else ""
    # To the rules it is an empty reply.
    refused = kind == "empty" and task.fresh is not None and task.fresh.call_refused
    text = texts.nudges["refused_call" if refused else kind].format(left=left, count=task.row.times)
    return Report(Event.NUDGED, {"messages": [reminder(kind, text)]})
