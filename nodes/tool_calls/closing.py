"""Answers calls that will never run, or never continue.

Such a call gets the journal's result; "outcome unknown" if it may have run and no journal can tell; or else a
reason. The answer for a delegate's call reports the state of its machine, in which open calls are answered in
the same way, at all levels below. Nothing of that is saved there, so that a retry continues where it stopped.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.types import StateSnapshot

from signoff.graph.errors import BadAnswer, ThreadError
from signoff.graph.history.reader import Stray, Wait, calls_left
from signoff.graph.history.replies import Call, Reply
from signoff.graph.history.task import Task
from signoff.graph.machine import Event
from signoff.graph.messages import add_notes, append_messages, marks, not_run, result
from signoff.graph.outcome import changes
from signoff.graph.state import AgentState
from signoff.nodes.delegates import results
from signoff.nodes.delegates.run import ChildMachine, is_begun
from signoff.nodes.execute import next_batch
from signoff.nodes.journal import JournalEntry, Written, look, outcome_known, rejection, unknown
from signoff.nodes.node import NodeContext
from signoff.nodes.requests import Part
from signoff.tools.answers import options_of, read_question
from signoff.tools.delegates import GIVEN


def close(strays: Sequence[Stray], state: AgentState, run: NodeContext) -> Part[Written]:
    """A part of a node: one answer for each stray call."""
    closed = Written()
    entries: dict[tuple[str, str], JournalEntry] = {}
    for reply_id in dict.fromkeys(stray.reply_id for stray in strays):
        calls = [stray.call for stray in strays if stray.reply_id == reply_id and is_run(stray.call, run)]
        found = yield from look(run, reply_id, calls)
        entries |= {(reply_id, call_id): entry for call_id, entry in found.items()}
    for stray in strays:
        if left := (yield from _left(stray, run)):
            closed.add(Written([add_notes(left, {"reply": stray.reply_id})]))
            continue
        known = outcome_known(stray.call, entries.get((stray.reply_id, stray.call.id)), run)
        closed.add(known if known.messages else Written([_without_record(stray, state, run)]))
    return closed


def _without_record(stray: Stray, state: AgentState, run: NodeContext) -> ToolMessage:
    """The answer to a call of which nothing is recorded."""
    if may_have_run(stray, state, run):
        return unknown(stray.call, run, why="maybe_run", reply=stray.reply_id)
    control = stray.reply.control
    text = run.deps.texts.results[stray.why].format(control=control.name if control else "")
    return not_run(stray.call.id, stray.call.name, text, stray.why, reply=stray.reply_id)


_NOT_YET = (
    Event.REPLIED,
    Event.NEEDS_APPROVAL,
    Event.DECIDED,
    Event.OBSERVED,
    Event.MORE,
    Event.SETTLED,
)
"""What the last state has reported while no further call of the last reply had begun."""
_BEFORE_REVIEW = (*_NOT_YET, Event.WORK, Event.TO_HAND_OVER, Event.DONE)


def may_have_run(stray: Stray, state: AgentState, run: NodeContext) -> bool:
    """Whether an open call of which nothing is recorded may have run.

    For a reply of this thread the journal tells; without one, the stored state tells which calls cannot have
    begun. The calls of an import may have run elsewhere.
    """
    call, reply, box = stray.call, stray.reply, run.deps.toolbox
    if call.problem or reply.only_controls or not is_run(call, run):
        return False
    if reply.control is not None and call.index > reply.control.index:
        return False
    if "at" not in marks(reply.message) or state.get("task") != stray.task:
        return True
    if call.name in box.delegates:
        # Its machine would have been saved.
        return False
    if run.store is not None and box.is_journalled(call.name) and not box.is_driven(call.name):
        return False
    event, approvals = state.get("event"), state.get("approvals")
    if event in (_NOT_YET if call.effect is None else _BEFORE_REVIEW):
        return False
    if approvals is not None and call.id in approvals["asked"]:
        return False
    left = [call for call in reply.before_control if reply.open(call)]
    if call.effect is not None:
        return not left
    # LangChain's loop runs all calls of a reply side by side.
    return run.deps.any_channel or call in next_batch(left, box)


def is_run(call: Call, run: NodeContext) -> bool:
    """Whether such a call runs code: not that of a control tool which has only arguments."""
    return call.effect is None or run.deps.toolbox.run_tool(call.name) is not None


def _left(stray: Stray, run: NodeContext) -> Part[ToolMessage | None]:
    """The result of an abandoned delegate call; None if it was never started."""
    call = stray.call
    unreadable = partial(results.abandoned_result, call, (), results.NOTHING_USED, run)
    if call.name not in run.deps.toolbox.delegates:
        begun = call.args.keys() >= GIVEN and (yield from is_begun(call, stray.reply_id, run))
        return unreadable() if begun else None
    child = ChildMachine(call, stray.reply_id, run)
    try:
        state = yield from child.look()
    except ThreadError:
        # Its graph had other states, and cannot be read here.
        return unreadable()
    if state is None:
        return None
    if found := child.result(state.values):
        return found
    task = yield from _at_its_end(child, state)
    changed = changes(task, child.deps.toolbox.is_effect)
    return results.abandoned_result(call, changed, child.used(task), run)


def _at_its_end(child: ChildMachine, state: StateSnapshot) -> Part[Task]:
    """The task of a delegate as if it had ended."""
    values: Any = state.values
    task = child.task(values)
    closed = yield from close(calls_left(task.id, task.replies), values, child.context)
    messages = append_messages(state.values["messages"], [closed.messages])
    return child.task({**state.values, "messages": messages})


def _said(text: str, call: Call) -> str:
    """A message as the answer to a question, which may be the number or the letter of an option."""
    try:
        return str(read_question(text, list(map(str, options_of(call.args)))))
    except BadAnswer:
        # Several messages at once, of which the entry has looked at the last.
        return text


def answer_waiting(task: Task, state: AgentState, run: NodeContext) -> Part[list[BaseMessage]]:
    """A part of a node: the user's messages as the results of the calls that waited for a person."""
    if not task.answers:
        return []
    calls = {call.id: (reply, call) for reply in task.replies for call in reply.calls if reply.open(call)}
    texts, answers = run.deps.texts.results, list[BaseMessage]()
    for call_id, words in task.answers.items():
        if words.wait is Wait.CONFIRMATION:
            finish, reply = _finish_of(task, call_id)
            answers.append(
                rejection(
                    reply,
                    finish,
                    words.text or texts["no_feedback"].format(),
                    run.deps.texts,
                    said=words.text,
                )
            )
            continue
        reply, call = calls[call_id]
        reply_id = reply.message.id or ""
        if words.wait is Wait.ANSWER:
            text = _said(words.text, call) or texts["no_answer"].format()
            answers.append(result(call_id, call.name, text, answered=True, reply=reply_id))
            continue
        entry = (yield from look(run, reply_id, [call])).get(call_id)
        approves = words.wait is Wait.APPROVAL
        said = words.text if approves else texts["instead"].format(words=words.text)
        if entry is not None:
            notes: dict[str, Any] = {"answered": True} if approves else {}
            answers.append(unknown(call, run, entry.edited, said, reply=reply_id, **notes))
        elif not approves and may_have_run(Stray(call, reply, "superseded", task.id), state, run):
            answers.append(unknown(call, run, None, said, why="maybe_run", reply=reply_id))
        else:
            text = texts["rejected" if approves else "taken_back"].format(reason=words.text, words=words.text)
            why = "rejected" if approves else "superseded"
            answers.append(not_run(call_id, call.name, text, why, reply=reply_id))
    return answers


def _finish_of(task: Task, call_id: str) -> tuple[Call, Reply]:
    """The latest finish with this id, and its reply."""
    return next(
        (reply.control, reply)
        for reply in reversed(task.replies)
        if reply.control and reply.control.id == call_id and reply.control.effect == "finish"
    )
