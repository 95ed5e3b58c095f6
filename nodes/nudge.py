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
    text = texts.nudges[kind].format(left=left, count=task.row.times)
    return Report(Event.NUDGED, {"messages": [reminder(kind, text)]})
