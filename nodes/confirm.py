"""Waits for a person to confirm a finish, or to send it back. Nothing here has an effect before the
interrupt: the node runs again on resume."""

from typing import Any

from signoff.graph import clock
from signoff.graph.history.reader import PENDING
from signoff.graph.history.task import is_phase
from signoff.graph.kinds import SENT_BACK
from signoff.graph.machine import Event
from signoff.graph.state import AgentState, RefusedFinish
from signoff.nodes.ask_user import asked_at
from signoff.nodes.finishing.case import Case, accept_confirmed
from signoff.nodes.journal import rejection
from signoff.nodes.node import NodeContext, Report, Steps
from signoff.nodes.review import judge
from signoff.tools.answers import ask, asked_of, decisions_of, read
from signoff.tools.approvals import content_id_of_calls


def confirm(state: AgentState, run: NodeContext) -> Steps:
    case = Case.of(state, run)
    asked = case.confirmation if case is not None and case.verdict == PENDING else None
    if case is None or asked is None:
        # The history has changed in the meantime: compress records a user's message as feedback, or review
        # judges the current claim.
        return Report(Event.SENT_BACK)
    claim, refusal = judge(case)
    if refusal and not asked["problem"]:
        return Report(Event.SENT_BACK)
    if is_phase(claim):
        # If a person accepts a refused phase, the task ends with it.
        claim = {**claim, "outcome": "partial"}
    payload = {**_payload(case, asked["problem"]), **run.problem}
    answer, by = ask(payload, run.interrupt_id)
    calls = asked_of(payload)
    shown = content_id_of_calls(run.interrupt_id, [call[:3] for call in calls])
    (decision,) = decisions_of(read(payload, run.interrupt_id, answer), calls, shown)
    confirmed, feedback = decision.type == "approve", decision.message
    texts, seconds = run.deps.texts.results, asked["seconds"]
    since = asked_at(case.reply, case.call)
    waited = 0.0 if since is None else max(0.0, clock.now() - since - seconds)
    notes: dict[str, Any] = {"waited": waited} | ({"seconds": seconds} if seconds else {}) | by
    notes["said"] = feedback
    if not confirmed:
        feedback = feedback or texts["no_feedback"].format()
        message = rejection(case.reply, case.call, feedback, run.deps.texts, **notes)
        verdicts = case.verdicts(RefusedFinish(kind=SENT_BACK, why=feedback))
        return Report(Event.SENT_BACK, {"verdicts": verdicts, "messages": [message]})
    text = texts["confirmed"].format(words=feedback).rstrip()
    fits = not asked["problem"]
    return (
        yield from accept_confirmed(
            case,
            _unasked(claim),
            asked["verified"],
            text,
            asked["checks"],
            run=fits,
            confirmed=True,
            **notes,
        )
    )


def _payload(case: Case, problem: str) -> dict[str, Any]:
    """An approval of the finishing call: approved, it ends the task; rejected, it says what is wrong."""
    name, args = case.call.name, dict(case.call.args)
    note = "Approve to end the task, or say what is wrong."
    return {
        "type": "approval",
        "finish": True,
        "call_ids": [case.call.id],
        "action_requests": [{"name": name, "args": args, "description": note}],
        "review_configs": [{"action_name": name, "allowed_decisions": ["approve", "reject"]}],
        **({"problem": problem} if problem else {}),
    }


def _unasked(claim: dict[str, Any]) -> dict[str, Any]:
    """The claim without its request for a confirmation, which is redundant once a person is asked."""
    return {name: value for name, value in claim.items() if name != "requires_user_confirmation"}
