"""Appends the synthetic reminder that fits the decision."""

from signoff.graph.history.task import Task
from signoff.graph.kinds import Effect
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
    if kind == "near_limit" and near and near.name == "turns" and (name := _for_more(task, run)):
        text = f"{text} {texts.nudges['for_more'].format(name=name)}"
    return Report(Event.NUDGED, {"messages": [reminder(kind, text)]})


def _for_more(task: Task, run: NodeContext) -> str:
    """The name of the tool with which the model can still ask for more turns; empty if there is none."""
    controls = run.deps.toolbox.controls
    names = (name for name in controls if controls.effect(name) is Effect.MORE_TURNS)
    return "" if task.requested else next(names, "")
