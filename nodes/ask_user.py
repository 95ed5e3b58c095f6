"""Waits for a person's answer. Nothing here has an effect before the interrupt: the node runs again on
resume."""

import time
from typing import Any

from langchain_core.messages import HumanMessage
from langgraph.types import interrupt

from signoff.graph.blocks import as_json
from signoff.graph.history.reader import Wait
from signoff.graph.history.replies import Call, Reply
from signoff.graph.machine import Event
from signoff.graph.messages import KEY, Marks, marks, result
from signoff.graph.state import AgentState
from signoff.nodes.node import NodeContext, Report
from signoff.tools.answers import read_question, unsigned, waiting_time


def ask_user(state: AgentState, run: NodeContext) -> Report:
    task = run.task(state)
    call = task.ask
    if call is None and task.spoke is not None:
        return _next_word(task.spoke, run)
    if call is None:
        # The message did not arrive as an answer: compress records it as the answer.
        return Report(Event.ANSWERED)
    options = call.args.get("options") or []
    options = [options] if isinstance(options, str) else options
    asked = asked_at(task.reply_of(call), call)
    given = interrupt(
        {
            "type": "question",
            "question": call.args.get("question") or _as_text(dict(call.args)),
            "options": options,
            "call_id": call.id,
            **waiting_time(call.args, asked),
        }
    )
    answer, by = unsigned(given)
    said = read_question(answer, list(map(str, options)) if isinstance(options, list | tuple) else ())
    text = _as_text(said) or run.deps.texts.results["no_answer"].format()
    waited = 0.0 if asked is None else max(0.0, time.time() - asked)
    answered = result(call.id, call.name, text, answered=True, waited=waited, **by)
    return Report(Event.ANSWERED, {"messages": [answered]})


def _next_word(spoke: Reply, run: NodeContext) -> Report:
    """In a dialogue the model's text is shown to the user, whose reply continues the task."""
    answer, by = unsigned(
        interrupt({"type": "question", "question": spoke.text, "options": [], "call_id": ""})
    )
    text = _as_text(read_question(answer)) or run.deps.texts.results["no_answer"].format()
    notes = {"answers": [], "wait": str(Wait.WORD), **by}
    return Report(Event.ANSWERED, {"messages": [HumanMessage(text, additional_kwargs={KEY: notes})]})


def asked_at(reply: Reply, call: Call) -> float | None:
    """When `call` was due, in seconds since the epoch: the time of its reply plus the duration of the calls
    before it. Computed from the history alone, so it is the same after a restart; None for an imported
    reply."""
    at = marks(reply.message).get("at")
    results = [result for result in reply.found[: call.index] if result]
    notes = [marks(found) for found in results]
    return None if at is None else at + sum(map(_took, notes))


def _took(notes: Marks) -> float:
    used = notes["delegate"]["used"]["seconds"] if "delegate" in notes else 0.0
    return notes.get("seconds", 0.0) + notes.get("waited", 0.0) + float(used)


def _as_text(answer: Any) -> str:
    if answer is None:
        return ""
    return answer if isinstance(answer, str) else as_json(answer)
