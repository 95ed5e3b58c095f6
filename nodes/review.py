"""Judges the standing finish: its arguments, then the calls before it in the same reply."""

from pydantic import BaseModel, ValidationError

from signoff.graph.machine import Event
from signoff.graph.marks import nudge, result
from signoff.graph.replies import Call
from signoff.graph.state import AgentState, Ending, Verdicts
from signoff.graph.task import Task
from signoff.graph.texts import Texts
from signoff.nodes.kit import Run
from signoff.nodes.node import Report
from signoff.tools.control import ControlRegistry, explain


def review(state: AgentState, run: Run) -> Report:
    task, texts = run.task(state), run.kit.texts
    call = task.finish
    assert call is not None, "decide comes here only while a finish stands"
    refusal = refusal_of(call, task, run.kit.toolbox.controls, texts)
    verdicts = Verdicts(task=task.id, calls={**_said(state, task), call.id: refusal or "accepted"})
    is_open = task.reply_of(call).open(call)
    if refusal is None:
        ending = Ending(task=task.id, status="success", reason=call.name, call_id=call.id)
        answer = [result(call.id, call.name, texts.results["accepted"])] if is_open else []
        return Report(Event.ACCEPTED, {"verdicts": verdicts, "ending": ending, "messages": answer})
    if is_open:
        told = result(call.id, call.name, texts.results["refused"].format(reason=refusal), ok=False)
        return Report(Event.REFUSED, {"verdicts": verdicts, "messages": [told]})
    reminder = nudge("refused", texts.nudges["refused"].format(reason=refusal))
    return Report(Event.REFUSED, {"verdicts": verdicts, "messages": [reminder]})


def _said(state: AgentState, task: Task) -> dict[str, str]:
    verdicts = state.get("verdicts")
    return verdicts["calls"] if verdicts and verdicts["task"] == task.id else {}


def refusal_of(call: Call, task: Task, controls: ControlRegistry, texts: Texts) -> str | None:
    """Why the finish is refused, in words for the model; None when it is accepted."""
    claim, error = _claim(call, controls)
    if error is not None:
        return texts.refusals["arguments"].format(error=error)
    if not str(claim.get("summary", "")).strip():
        return texts.refusals["empty_summary"]
    reply = task.reply_of(call)
    failed = [before.name for before in reply.calls[: call.index] if reply.failed(before)]
    if failed:
        return texts.refusals["siblings"].format(names=", ".join(failed))
    if claim.get("outcome", "done") == "done" and (left := _left(claim)):
        return texts.refusals["unfinished"].format(open=left)
    return None


def _claim(call: Call, controls: ControlRegistry) -> tuple[dict[str, object], str | None]:
    """The arguments as the tool's schema reads them, or what is wrong with them."""
    schema = controls[call.name].tool.args_schema
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        return dict(call.args), None
    try:
        return schema.model_validate(call.args).model_dump(), None
    except ValidationError as error:
        return {}, explain(error)


def _left(claim: dict[str, object]) -> str:
    """What a claim of "done" says is still to do."""
    parts = []
    if claim.get("completion_percentage", 100) != 100:
        parts.append(f"{claim['completion_percentage']} % complete")
    if claim.get("next_phase"):
        parts.append(f"a next phase ({claim['next_phase']})")
    return " and ".join(parts)
