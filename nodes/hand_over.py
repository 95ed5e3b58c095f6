"""Yields one call to the driver and waits for what it observed. Nothing here has an effect before the
interrupt."""

import json
from collections.abc import Mapping
from typing import Any

from langgraph.types import interrupt

from signoff.graph.machine import Event
from signoff.graph.marks import result
from signoff.graph.section import decided
from signoff.graph.state import AgentState
from signoff.nodes.kit import Run
from signoff.nodes.node import Report
from signoff.tools.output import capped, kept_in


def hand_over(state: AgentState, run: Run) -> Report:
    task = run.task(state)
    call = task.due[0]
    decision = decided(call, task.decisions)
    edited = decision["args"] if decision and decision["type"] == "edit" else None
    args = dict(call.args) if edited is None else edited
    observed = interrupt(
        {
            "type": "action",
            "tool": call.name,
            "args": args,
            "kind": str(run.kit.toolbox.kinds[call.name]),
            "call_id": call.id,
        }
    )
    text, ok = _read(observed)
    kit = run.kit
    text = capped(text, limit=kit.result_chars, keep=kept_in(kit.outputs, call.id))
    if edited is not None:
        text = kit.texts.results["edited"].format(args=json.dumps(edited, default=str), result=text)
    return Report(Event.OBSERVED, {"messages": [result(call.id, call.name, text, ok=ok)]})


def _read(observed: Any) -> tuple[str, bool]:
    """The observation as text, and whether the action succeeded: a string, or `{"output", "status"}`."""
    if isinstance(observed, Mapping):
        text = observed.get("output", observed.get("content"))
        if isinstance(text, str):
            return text, observed.get("status") != "error"
    if observed is None or observed == "":
        return "(no output)", True
    return (observed if isinstance(observed, str) else json.dumps(observed, default=str)), True
