"""Waits for a person's answer. Nothing here has an effect before the interrupt: the node runs again on
resume."""

from typing import Any

from langchain_core.messages import HumanMessage

from signoff.graph import clock
from signoff.graph.blocks import as_json
from signoff.graph.history.reader import Wait
from signoff.graph.history.replies import Call, Reply
from signoff.graph.machine import Event
from signoff.graph.messages import KEY, Marks, marks, result
from signoff.graph.state import AgentState
from signoff.nodes.node import NodeContext, Report
from signoff.tools.answers import ask, options_of, read_question, waiting_time


def ask_user(state: AgentState, run: NodeContext) -> Report:
    task = run.task(state)
    call = task.ask
    if call is None and task.spoke is not None:
        return _next_word(task.spoke, run)
    if call is None:
        # The message did not arrive as an answer: compress records it as the answer.
        return Report(Event.ANSWERED)
    options = options_of(call.args)
    asked = asked_at(task.reply_of(call), call)
    question = call.args.get("question") or _as_text(dict(call.args))
    answer, by = ask(
        {
            **_asks(question, options, call.name, dict(call.args)),
            "call_id": call.id,
            **waiting_time(call.args, asked),
            **run.problem,
        },
        run.interrupt_id,
    )
    said = read_question(answer, list(map(str, options)) if isinstance(options, list | tuple) else ())
    text = _as_text(said) or run.deps.texts.results["no_answer"].format()
    waited = 0.0 if asked is None else max(0.0, clock.now() - asked)
    answered = result(call.id, call.name, text, answered=True, waited=waited, **by)
    return Report(Event.ANSWERED, {"messages": [answered]})


def _asks(question: Any, options: Any, name: str, args: dict[str, Any]) -> dict[str, Any]:
    """The payload of a question, also in the form of LangChain's human-in-the-loop requests."""
    return {
        "type": "question",
        "question": question,
        "options": options,
        "action_requests": [{"name": name, "args": args, "description": str(question)}],
        "review_configs": [{"action_name": name, "allowed_decisions": ["respond"]}],
    }


def _next_word(spoke: Reply, run: NodeContext) -> Report:
    """In a dialogue the model's text is shown to the user, whose reply continues the task."""
    payload = {**_asks(spoke.text, [], "ask_user", {"question": spoke.text}), "call_id": "", **run.problem}
    answer, by = ask(payload, run.interrupt_id)
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
