"""Keeps the current task in the channel `past`, so that messages removed by other middleware still count.

Each hook of `Guards` records there what is new in its task: the messages as it sees them, and those that it
writes. So limits, outcomes, repetitions and reminders are based on what has happened, whatever the model is
shown, and are the same after a restart, on a fork and in a resumed run. A new task starts a new ledger.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter, eq, is_
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolMessage
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from signoff.graph.history.reader import Tools
from signoff.graph.history.replies import read_reply
from signoff.graph.messages import is_reply, not_run, nudge_kind, result

_ID = attrgetter("id")
_BEGIN = RemoveMessage(id=REMOVE_ALL_MESSAGES)
_TAKEN_OUT = "Taken out of the messages by another middleware."


def take_down(before: Sequence[BaseMessage] | None, writes: Sequence[Any]) -> list[BaseMessage]:
    """The reducer of the ledger: appends writes; a write from `begin` starts it anew. A message that appears
    twice has changed."""
    found = list(before or ())
    for write in writes:
        if write and isinstance(write[0], RemoveMessage):
            found = list(write[1:])
        else:
            found += write
    return found


def begin(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """The write that starts the ledger of a task with these messages."""
    return [_BEGIN, *messages]


@dataclass(frozen=True, slots=True)
class Whole:
    """The history of a thread, including removed messages.

    If nothing was removed, `messages` are those of the thread; else only the current task's. start: the index
    where the ledger begins; known: the index of the first message that is not recorded yet, 0 if the ledger
    must start anew. lost: whether anything was removed. unseen: the messages that no hook of `Guards` has
    seen yet.
    """

    messages: Sequence[BaseMessage]
    start: int = 0
    known: int = 0
    lost: bool = False
    unseen: Sequence[BaseMessage] = ()


def whole_history(
    messages: Sequence[BaseMessage],
    past: Sequence[BaseMessage],
    after: str,
    tools: Tools,
    *,
    is_input: bool = False,
) -> Whole:
    """The history of the thread with these messages.

    past: the ledger. after: the id of the message before its first one. is_input: whether the messages may
    end in a new input.
    """
    if not past:
        return Whole(messages)
    start = _place(messages, past[0].id, len(messages) - len(past))
    if start is None or (messages[start - 1].id if start else "") != after:
        return _merged(messages, _latest(past), tools, is_input=is_input)
    # Nearly always it is as it was recorded, and nothing in it is looked at.
    noted = past if _begins(past, messages, start) else _latest(past)
    if noted is past or _begins(noted, messages, start):
        known = start + len(noted)
        return Whole(messages, start, known, unseen=messages[known:])
    return _merged(messages, noted, tools, is_input=is_input)


def _place(messages: Sequence[BaseMessage], message_id: str | None, near: int) -> int | None:
    """The index of the message. Searches from `near` back to the first message, and only then after `near`,
    so that the earlier tasks of a long thread are not read."""
    near = max(near, 0)
    places = chain(range(min(near, len(messages) - 1), -1, -1), range(near + 1, len(messages)))
    return next((at for at in places if messages[at].id == message_id), None)


def _begins(past: Sequence[BaseMessage], messages: Sequence[BaseMessage], start: int) -> bool:
    """Whether the messages from `start` on start with those of the ledger."""
    there = messages[start:] if start else messages
    if len(past) > len(there):
        return False
    # The same objects, except for loaded ones; a changed message keeps its id.
    return all(map(is_, past, there)) or all(map(eq, map(_ID, past), map(_ID, there)))


def _latest(past: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Each message once, in its latest recorded version."""
    return list({message.id: message for message in past}.values())


def _merged(
    messages: Sequence[BaseMessage], past: Sequence[BaseMessage], tools: Tools, *, is_input: bool
) -> Whole:
    """The task from the ledger, with current versions of its messages, and the new messages."""
    places = {message.id: at for at, message in enumerate(messages)}
    kept = [messages[places[one.id]] if one.id in places else one for one in past]
    noted = {message.id for message in past}
    last = max((places[one.id] for one in past if one.id in places), default=None)
    if last is None and is_input:
        last = _before_input(messages)
    new = [
        message
        for at, message in enumerate(messages)
        if message.id not in noted
        and not is_summary(message)
        # Other messages there are summaries by other middleware of what it has removed.
        and ((last is not None and at > last) or isinstance(message, ToolMessage) or nudge_kind(message))
    ]
    replies = [one for one in past if is_reply(one)]
    lost = [one for one in replies if one.id not in places]
    closed = _closed(lost, replies[-1], [*past, *new], tools) if lost else {}
    if not closed:
        return Whole([*kept, *new], 0, len(past), True, new)
    whole = [one for message in kept for one in (message, *closed.get(message.id, ()))]
    return Whole([*whole, *new], 0, 0, True, new)


def is_summary(message: BaseMessage) -> bool:
    """Whether LangChain's middleware wrote this message to replace older ones."""
    return message.additional_kwargs.get("lc_source") == "summarization"


def _before_input(messages: Sequence[BaseMessage]) -> int:
    """The index of the last message before the user's messages at the end."""
    return max((at for at, message in enumerate(messages) if message.type != "human"), default=-1)


def _closed(
    lost: Sequence[AIMessage], last: AIMessage, messages: Sequence[BaseMessage], tools: Tools
) -> dict[str | None, list[BaseMessage]]:
    """Results for the open calls of removed replies, by reply id: LangChain's loop will not run them. Calls
    of the last reply may have run and lost their results with it, so a work call of that reply counts as
    run."""
    answered = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    found: dict[str | None, list[BaseMessage]] = {}
    for reply in (read_reply(message, tools) for message in lost):
        for call in reply.calls:
            if call.id in answered:
                continue
            works = call.effect is None and call.problem is None and call in reply.before_control
            reply_id = reply.message.id or ""
            made = (
                result(call.id, call.name, _TAKEN_OUT, reply=reply_id)
                if works and reply.message.id == last.id
                else not_run(call.id, call.name, _TAKEN_OUT, "taken_out", reply=reply_id)
            )
            made = made.model_copy(update={"id": f"{reply_id}-{call.id}"})
            found.setdefault(reply.message.id, []).append(made)
    return found


def seen_in(messages: Sequence[BaseMessage], written: Iterable[BaseMessage]) -> list[BaseMessage]:
    """The messages of `written` that belong in the thread: without new versions of removed messages, and
    without results of removed calls."""
    written = list(written)
    replies = [one for one in (*messages, *written) if isinstance(one, AIMessage)]
    calls = {call["id"] for reply in replies for call in (*reply.tool_calls, *reply.invalid_tool_calls)}
    return [one for one in written if not isinstance(one, ToolMessage) or one.tool_call_id in calls]
