"""Waits for a person to confirm a finish, or to send it back. Nothing here has an effect before the
interrupt: the node runs again on resume."""

import time
from typing import Any

from langgraph.types import interrupt

from signoff.graph.blocks import as_json
from signoff.graph.foreign import valid_text
from signoff.graph.history.reader import PENDING
from signoff.graph.history.task import is_phase
from signoff.graph.kinds import SENT_BACK
from signoff.graph.machine import Event
from signoff.graph.outcome import issues_of, summary_of
from signoff.graph.state import AgentState, RefusedFinish
from signoff.nodes.ask_user import asked_at
from signoff.nodes.finishing.case import Case, accept_confirmed
from signoff.nodes.journal import rejection
from signoff.nodes.node import NodeContext, Report, Steps
from signoff.nodes.review import judge
from signoff.tools.answers import ConfirmationAnswer, read_confirmation, unsigned


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
    answer, by = unsigned(interrupt(_payload(case, claim, asked["problem"])))
    said = _read(answer)
    texts, seconds = run.deps.texts.results, asked["seconds"]
    since = asked_at(case.reply, case.call)
    waited = 0.0 if since is None else max(0.0, time.time() - since - seconds)
    notes: dict[str, Any] = {"waited": waited} | ({"seconds": seconds} if seconds else {}) | by
    notes["said"] = said.feedback
    if not said.ok:
        feedback = said.feedback or texts["no_feedback"].format()
        message = rejection(case.reply, case.call, feedback, run.deps.texts, **notes)
        verdicts = case.verdicts(RefusedFinish(kind=SENT_BACK, why=feedback))
        return Report(Event.SENT_BACK, {"verdicts": verdicts, "messages": [message]})
    text = texts["confirmed"].format(words=said.feedback).rstrip()
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


def _payload(case: Case, claim: dict[str, Any], problem: str) -> dict[str, Any]:
    return {
        "type": "confirmation",
        "call_id": case.call.id,
        "summary": summary_of(claim),
        "claim": str(claim.get("outcome", "done")),
        "pending_issues": issues_of(claim),
        **({"problem": problem} if problem else {}),
    }


def _unasked(claim: dict[str, Any]) -> dict[str, Any]:
    """The claim without its request for a confirmation, which is redundant once a person is asked."""
    return {name: value for name, value in claim.items() if name != "requires_user_confirmation"}


def _read(answer: Any) -> ConfirmationAnswer:
    """The person's answer; anything but a yes is feedback, since an error raised after the interrupt has
    returned would be replayed forever."""
    try:
        said = read_confirmation(answer)
    except ValueError:
        words = answer.strip() if isinstance(answer, str) else as_json(answer)
        said = ConfirmationAnswer(False, "" if answer in (None, {}, []) else words)
    return ConfirmationAnswer(said.ok, valid_text(said.feedback))
