"""What other middleware takes out of the messages still counts: the channel `past` holds the current task.

Each hook of `Guards` notes there what is new in its task: the messages as it sees them, and those that it
writes. So limits, outcomes, repetitions and reminders go by what has happened, whatever the model is shown,
and are the same after a restart, on a fork and in a resumed run. A new task begins a new ledger.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
    """The reducer of the ledger: what is written is appended, what `begin` returns begins it anew. A message
    that is there twice has changed."""
    found = list(before or ())
    for write in writes:
        if write and isinstance(write[0], RemoveMessage):
            found = list(write[1:])
        else:
            found += write
    return found


def begin(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """What is written to begin the ledger of a task with these."""
    return [_BEGIN, *messages]


@dataclass(frozen=True, slots=True)
class Whole:
    """The history of a thread, with what was taken out of it.

    Where nothing was, `messages` are those of the thread; else the current task's alone. start: where in them
    the ledger begins; known: where what is not noted yet begins, 0 where the ledger is to begin anew. lost:
    whether something was taken out. unseen: those of the messages that no hook of `Guards` has seen yet.
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
    start = _place(messages, past[0].id)
    if start is not None and (messages[start - 1].id if start else "") == after:
        for noted in (past, _latest(past)):
            if _begins(noted, messages, start):
                known = start + len(noted)
                return Whole(messages, start, known, unseen=messages[known:])
    return _merged(messages, _latest(past), tools, is_input=is_input)


def _place(messages: Sequence[BaseMessage], message_id: str | None) -> int | None:
    return next((at for at, message in enumerate(messages) if message.id == message_id), None)


def _begins(past: Sequence[BaseMessage], messages: Sequence[BaseMessage], start: int) -> bool:
    """Whether the messages from `start` on begin with those of the ledger."""
    there = messages[start:] if start else messages
    if len(past) > len(there):
        return False
    # The very same objects, but for those that were loaded; a changed message keeps its id.
    return all(map(is_, past, there)) or all(map(eq, map(_ID, past), map(_ID, there)))


def _latest(past: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Each message once, as it was noted last."""
    return list({message.id: message for message in past}.values())


def _merged(
    messages: Sequence[BaseMessage], past: list[BaseMessage], tools: Tools, *, is_input: bool
) -> Whole:
    """The task as the ledger has it, in today's versions, and what is new."""
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
        # What stands elsewhere is how other middleware tells of what it has taken out.
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
    """Whether LangChain's middleware wrote this in place of older messages."""
    return message.additional_kwargs.get("lc_source") == "summarization"


def _before_input(messages: Sequence[BaseMessage]) -> int:
    """The place of the last message before those of the user at the end."""
    return max((at for at, message in enumerate(messages) if message.type != "human"), default=-1)


def _closed(
    lost: Sequence[AIMessage], last: AIMessage, messages: Sequence[BaseMessage], tools: Tools
) -> dict[str | None, list[BaseMessage]]:
    """Results for the open calls of replies that were taken out, by the id of the reply: LangChain's loop
    will not run them. What it ran of the last reply may have lost its result together with it, so a working
    call of that one counts as run."""
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
    """What of `written` is for the thread: no new version of a message that was taken out of it, and no
    result of a call that was."""
    written = list(written)
    replies = [one for one in (*messages, *written) if isinstance(one, AIMessage)]
    calls = {call["id"] for reply in replies for call in (*reply.tool_calls, *reply.invalid_tool_calls)}
    return [one for one in written if not isinstance(one, ToolMessage) or one.tool_call_id in calls]
