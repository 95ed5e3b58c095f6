"""Waits for a person to confirm a finish, or to send it back. Nothing here has an effect before the
interrupt: the node runs anew on resume."""

import time
from typing import Any

from langgraph.types import interrupt

from signoff.graph.machine import Event
from signoff.graph.marks import result
from signoff.graph.outcome import issues_of, summary_of
from signoff.graph.replies import Call
from signoff.graph.section import PENDING, verdicts_of
from signoff.graph.state import AgentState, Ending
from signoff.graph.task import Task
from signoff.nodes.ask_user import asked_at
from signoff.nodes.closing import sent_back
from signoff.nodes.kit import Run
from signoff.nodes.node import Report
from signoff.nodes.results import as_json
from signoff.nodes.review import judge, with_verdict
from signoff.tools.confirmations import Confirmed, read_confirmation
from signoff.tools.output import valid_text


def confirm(state: AgentState, run: Run) -> Report:
    task = run.task(state)
    call = task.finish
    if call is None or not _asked(state, task, call):
        # The history was changed by another way: compress writes a message of the user down as feedback.
        return Report(Event.SENT_BACK)
    reply = task.reply_of(call)
    claim, refusal = judge(call, reply, run)
    if refusal:
        # The call was changed by another way: review refuses what it claims now.
        return Report(Event.SENT_BACK)
    answer = interrupt(
        {
            "type": "confirmation",
            "call_id": call.id,
            "summary": summary_of(_unasked(claim)),
            "claim": str(claim.get("outcome", "done")),
            "pending_issues": issues_of(claim),
        }
    )
    said = _read(answer)
    asked = asked_at(reply, call)
    waited = 0.0 if asked is None else max(0.0, time.time() - asked)
    if not said.ok:
        feedback = said.feedback or run.kit.texts.results["no_feedback"]
        verdicts = with_verdict(state, task, reply.key(call), f"sent back: {feedback}")
        told = sent_back(reply, call, feedback, run.kit.texts, waited=waited)
        return Report(Event.SENT_BACK, {"verdicts": verdicts, "messages": [told]})
    verdicts = with_verdict(state, task, reply.key(call), "accepted")
    text = run.kit.texts.results["confirmed"].format(words=said.feedback).rstrip()
    done = [result(call.id, call.name, text, confirmed=True, waited=waited)] if reply.open(call) else []
    ending = Ending(task=task.id, status="success", reason=call.name, claim=_unasked(claim))
    return Report(Event.CONFIRMED, {"verdicts": verdicts, "ending": ending, "messages": done})


def _unasked(claim: dict[str, Any]) -> dict[str, Any]:
    """The claim without its wish for a confirmation, which is no news while it is asked for and after."""
    return {name: value for name, value in claim.items() if name != "requires_user_confirmation"}


def _asked(state: AgentState, task: Task, call: Call) -> bool:
    key = task.reply_of(call).key(call)
    return verdicts_of(state.get("verdicts"), task.id).get(key) == PENDING


def _read(answer: Any) -> Confirmed:
    """What the person said; everything that is no yes is feedback, since an error raised after the interrupt
    has returned would be replayed for ever."""
    try:
        said = read_confirmation(answer)
    except ValueError:
        words = answer.strip() if isinstance(answer, str) else as_json(answer)
        said = Confirmed(False, "" if answer in (None, {}, []) else words)
    return Confirmed(said.ok, valid_text(said.feedback))
