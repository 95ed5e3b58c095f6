"""Appends the synthetic reminder that fits the decision."""

from signoff.graph.machine import Event
from signoff.graph.marks import nudge as reminder
from signoff.graph.state import AgentState
from signoff.nodes.kit import Run
from signoff.nodes.node import Report


def nudge(state: AgentState, run: Run) -> Report:
    task, kind = run.task(state), state["decision"]["rule"]
    left = run.limits.turns + task.extra_turns - task.turns
    text = run.kit.texts.nudges[kind].format(left=left)
    return Report(Event.NUDGED, {"messages": [reminder(kind, text)]})
