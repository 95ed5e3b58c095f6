"""Judges the standing finish: its arguments, then the calls before it in the same reply."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from signoff.graph.machine import Event
from signoff.graph.marks import nudge, result
from signoff.graph.replies import Call, Reply
from signoff.graph.state import AgentState, Ending, Verdicts
from signoff.graph.task import Task
from signoff.graph.texts import Texts
from signoff.nodes.kit import Run
from signoff.nodes.node import Report
from signoff.tools.control import ControlRegistry, explain


def review(state: AgentState, run: Run) -> Report:
    task, texts = run.task(state), run.kit.texts
    call = task.finish
    if call is None:
        # The history was changed by another way since decide looked at it: compress and decide look again.
        return Report(Event.REFUSED)
    reply = task.reply_of(call)
    claim, error = _claim(call, run.kit.toolbox.controls)
    refusal = _refusal(claim, error, call, reply, texts)
    verdicts = Verdicts(task=task.id, calls={**_said(state, task), reply.key(call): refusal or "accepted"})
    if refusal is None:
        ending = Ending(task=task.id, status="success", reason=call.name, claim=claim)
        answer = [result(call.id, call.name, texts.results["accepted"])] if reply.open(call) else []
        return Report(Event.ACCEPTED, {"verdicts": verdicts, "ending": ending, "messages": answer})
    if reply.open(call):
        told = result(call.id, call.name, texts.results["refused"].format(reason=refusal), ok=False)
        return Report(Event.REFUSED, {"verdicts": verdicts, "messages": [told]})
    reminder = nudge("refused", texts.nudges["refused"].format(reason=refusal))
    return Report(Event.REFUSED, {"verdicts": verdicts, "messages": [reminder]})


def _said(state: AgentState, task: Task) -> dict[str, str]:
    verdicts = state.get("verdicts")
    return verdicts["calls"] if verdicts and verdicts["task"] == task.id else {}


def _refusal(claim: dict[str, Any], error: str | None, call: Call, reply: Reply, texts: Texts) -> str | None:
    """Why the finish is refused, in words for the model; None when it is accepted."""
    if error is not None:
        return texts.refusals["arguments"].format(error=error)
    if "summary" in claim and not str(claim["summary"]).strip():
        return texts.refusals["empty_summary"]
    failed = [before.name for before in reply.calls[: call.index] if reply.failed(before)]
    if failed:
        return texts.refusals["siblings"].format(names=", ".join(failed))
    if claim.get("outcome", "done") == "done" and (left := _left(claim)):
        return texts.refusals["unfinished"].format(open=left)
    return None


def _claim(call: Call, controls: ControlRegistry) -> tuple[dict[str, Any], str | None]:
    """The arguments as the tool's schema reads them, or what is wrong with them."""
    schema = controls[call.name].tool.args_schema
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        return dict(call.args), None
    try:
        return schema.model_validate(call.args).model_dump(mode="json"), None
    except ValidationError as error:
        return {}, explain(error)


def _left(claim: Mapping[str, Any]) -> str:
    """What a claim of "done" says is still to do."""
    parts = []
    if claim.get("completion_percentage", 100) != 100:
        parts.append(f"{claim['completion_percentage']} % complete")
    if claim.get("next_phase"):
        parts.append(f"a next phase ({claim['next_phase']})")
    return " and ".join(parts)
