"""Yields one call to the driver and waits for what it observed. Nothing here has an effect before the
interrupt."""

from collections.abc import Mapping
from math import inf
from typing import Any

from signoff.graph import clock
from signoff.graph.blocks import as_json
from signoff.graph.foreign import capped
from signoff.graph.history.reader import decided
from signoff.graph.machine import Event
from signoff.graph.messages import KEY, not_run, result
from signoff.graph.state import AgentState
from signoff.nodes.ask_user import asked_at
from signoff.nodes.node import NodeContext, Report
from signoff.tools.answers import ask

_RESULT_KEYS = {"output", "content", "status"}


def hand_over(state: AgentState, run: NodeContext) -> Report:
    task, deps = run.task(state), run.deps
    if task.answers or not task.due or task.due[0].problem or not deps.toolbox.is_driven(task.due[0].name):
        # The history was changed from outside: `route_tools` decides what is due now.
        return Report(Event.OBSERVED)
    call = task.due[0]
    decision = decided(call, task.decisions)
    approved = decision is not None and decision["type"] in ("approve", "edit")
    if deps.toolbox.needs_approval(call.name, call.args) and not approved:
        text = deps.texts.results["not_approved"].format(name=call.name)
        return Report(Event.OBSERVED, {"messages": [not_run(call.id, call.name, text, "not_approved")]})
    edited = decision["args"] if decision and decision["type"] == "edit" else None
    args = dict(call.args) if edited is None else edited
    observed, by = ask(
        {
            "type": "action",
            "tool": call.name,
            "args": args,
            "kind": str(deps.toolbox.kinds[call.name]),
            "call_id": call.id,
            # As LangChain's human-in-the-loop requests, which show it; no decision answers it.
            "action_requests": [{"name": call.name, "args": args, "description": "The program runs it."}],
            "review_configs": [{"action_name": call.name, "allowed_decisions": []}],
            **_machine(task.reply_of(call).message.id or "", run),
            **run.problem,
        },
        run.interrupt_id,
    )
    seconds, observed = _worked(observed)
    asked = asked_at(task.reply_of(call), call)
    waited = 0.0 if asked is None else max(0.0, clock.now() - asked - seconds)
    text, ok = _read(observed)
    if edited is not None:
        text = deps.texts.results["edited"].format(args=as_json(edited), result=text)
    text = capped(text, limit=deps.result_chars, keep=run.outputs.keep(call.id))
    notes: dict[str, Any] = dict(by) if edited is None else {"edited": True, "ran": dict(edited), **by}
    answer = result(call.id, call.name, text, ok=ok, seconds=seconds, waited=waited, **notes)
    return Report(Event.OBSERVED, {"messages": [answer]})


def _machine(reply_id: str, run: NodeContext) -> dict[str, str]:
    """What the top machine needs to record the call in the journal of the delegate that makes it."""
    return {} if run.descent is None else {"machine": run.descent.ns, "reply_id": reply_id}


def timed(observed: Any, seconds: float) -> dict[str, Any]:
    """The observation, with the driver's time for the call."""
    return {KEY: {"seconds": seconds}, "observed": observed}


def _worked(answer: Any) -> tuple[float, Any]:
    """The seconds of work behind an answer, and the observation. The seconds are those that the driver
    reports with its output, else those that its session has measured. All other time counts as waiting."""
    measured = 0.0
    if isinstance(answer, Mapping) and set(answer) == {KEY, "observed"}:
        measured, answer = answer[KEY]["seconds"], answer["observed"]
    if not isinstance(answer, Mapping) or not _RESULT_KEYS & set(answer):
        return measured, answer
    duration = answer.get("seconds")
    if isinstance(duration, int | float) and not isinstance(duration, bool) and 0 <= duration < inf:
        return float(duration), answer
    return measured, answer


def _read(observed: Any) -> tuple[str, bool]:
    """The observation as text, and whether the action succeeded: a string, or `{"output", "status"}` (and
    `seconds`, of the work)."""
    text, ok = observed, True
    if isinstance(observed, Mapping):
        ok = observed.get("status") != "error"
        output = observed.get("output", observed.get("content"))
        text = output if isinstance(output, str) else observed
    if text is None or text == "":
        return "(no output)", ok
    return (text if isinstance(text, str) else as_json(text)), ok
