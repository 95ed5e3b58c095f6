"""Closes calls that will never run: with the journal's result, "outcome unknown", or a reason."""

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage

from signoff.graph.history.reader import Stray
from signoff.graph.history.replies import Call, Reply
from signoff.graph.history.section import Wait
from signoff.graph.history.task import Task
from signoff.graph.kinds import Effect
from signoff.graph.messages import not_run, nudge, result
from signoff.graph.texts import Texts
from signoff.nodes.journal import Entry, look, outcome_known, unknown
from signoff.nodes.kit import Run
from signoff.nodes.node import Part


def close(strays: Sequence[Stray], run: Run) -> Part[list[BaseMessage]]:
    """A part of a node: one answer for each stray call."""
    closed: list[BaseMessage] = []
    entries: dict[tuple[str, str], Entry] = {}
    for reply_id in dict.fromkeys(stray.reply_id for stray in strays):
        effects = [
            s.call for s in strays if s.reply_id == reply_id and run.kit.toolbox.is_effect(s.call.name)
        ]
        found = yield from look(run, reply_id, effects)
        entries |= {(reply_id, call_id): entry for call_id, entry in found.items()}
    for stray in strays:
        known = outcome_known(stray.call, entries.get((stray.reply_id, stray.call.id)), run)
        closed += known or [_not_run(stray, run)]
    return closed


def _not_run(stray: Stray, run: Run) -> ToolMessage:
    text = run.kit.texts.results[stray.why].format(control=stray.control)
    return not_run(stray.call.id, stray.call.name, text, stray.why, reply=stray.reply_id)


def sent_back(reply: Reply, call: Call, feedback: str, texts: Texts, **notes: Any) -> BaseMessage:
    """What the model is told of a finish that a person did not accept: the result of its call, or a reminder
    where an imported history has a result already."""
    if reply.open(call):
        text = texts.results["sent_back"].format(feedback=feedback)
        own = {"reply": reply.message.id or "", "sent_back": True, **notes}
        return result(call.id, call.name, text, ok=False, **own)
    return nudge(
        "sent_back", texts.nudges["sent_back"].format(feedback=feedback), finish=reply.key(call), **notes
    )


def answer_waiting(task: Task, run: Run) -> Part[list[BaseMessage]]:
    """A part of a node: the user's words as the results of the calls that waited for a person."""
    if not task.answers:
        return []
    calls = {call.id: (reply, call) for reply in task.replies for call in reply.calls if reply.open(call)}
    texts, answers = run.kit.texts.results, list[BaseMessage]()
    for call_id, words in task.answers.items():
        if words.wait is Wait.CONFIRMATION:
            finish, reply = _finish_of(task, call_id)
            answers.append(
                sent_back(reply, finish, words.text or texts["no_feedback"].format(), run.kit.texts)
            )
            continue
        reply, call = calls[call_id]
        reply_id = reply.message.id or ""
        if words.wait is Wait.ANSWER:
            text = words.text or texts["no_answer"].format()
            answers.append(result(call_id, call.name, text, answered=True, reply=reply_id))
            continue
        entry = (yield from look(run, reply_id, [call])).get(call_id)
        if words.wait is Wait.APPROVAL:
            text = texts["rejected"].format(reason=words.text)
            refused = not_run(call_id, call.name, text, "rejected", reply=reply_id)
        else:
            text = texts["taken_back"].format(words=words.text)
            refused = not_run(call_id, call.name, text, "superseded", reply=reply_id)
        answers.append(unknown(call, run, entry.edited, words.text) if entry else refused)
    return answers


def _finish_of(task: Task, call_id: str) -> tuple[Call, Reply]:
    """The latest finish with this id, and its reply."""
    return next(
        (reply.control, reply)
        for reply in reversed(task.replies)
        if reply.control and reply.control.id == call_id and reply.control.effect is Effect.FINISH
    )
