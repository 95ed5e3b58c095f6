"""Waits for a person's answer. Nothing here has an effect before the interrupt: the node runs anew on
resume."""

import json
import time
from typing import Any

from langgraph.types import interrupt

from signoff.graph.machine import Event
from signoff.graph.marks import marks, result
from signoff.graph.state import AgentState
from signoff.nodes.kit import Run
from signoff.nodes.node import Report


def ask_user(state: AgentState, run: Run) -> Report:
    task = run.task(state)
    call = task.ask
    if call is None:
        # A message that came by another way than an answer: compress writes it down as the answer.
        return Report(Event.ANSWERED)
    options = call.args.get("options") or []
    answer = interrupt(
        {
            "type": "question",
            "question": call.args.get("question") or _as_text(dict(call.args)),
            "options": [options] if isinstance(options, str) else options,
            "call_id": call.id,
        }
    )
    asked_at = marks(task.reply_of(call).message).get("at", time.time())
    text = _as_text(answer) or run.kit.texts.results["no_answer"]
    waited = max(0.0, time.time() - asked_at)
    answered = result(call.id, call.name, text, answered=True, waited=waited)
    return Report(Event.ANSWERED, {"messages": [answered]})


def _as_text(answer: Any) -> str:
    if answer is None:
        return ""
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, default=str)
