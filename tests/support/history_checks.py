"""What must hold of any history and of any view, as lists of faults in words."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage


def calls_of(message: AIMessage) -> list[Any]:
    return [*message.tool_calls, *message.invalid_tool_calls]


def history_faults(messages: Sequence[BaseMessage], ended: bool, *, was_routed: bool = True) -> Iterator[str]:
    """Every call is answered at most once, and exactly once in a thread that has ended; no result belongs to
    no call, or comes before it; every message has an id of its own.

    was_routed: False where a process may have been killed between a reply and the state that gives its calls
    ids of their own.
    """
    made, answered = Counter[str](), Counter[str]()
    for message in messages:
        if isinstance(message, AIMessage):
            made.update(str(call["id"] or "") for call in calls_of(message))
        elif isinstance(message, ToolMessage):
            answered[message.tool_call_id] += 1
            if answered[message.tool_call_id] > made[message.tool_call_id]:
                yield f"a result too many for call {message.tool_call_id!r}"
    if len({message.id for message in messages}) != len(messages):
        yield "two messages have the same id"
    if not all(message.id for message in messages):
        yield "a message has no id"
    if ended and made != answered:
        yield f"calls {dict(made - answered)} are not answered at the end"
    if ended and was_routed:
        yield from (f"{times} calls have the id {call_id!r}" for call_id, times in made.items() if times > 1)
        if "" in made:
            yield "a call has no id"


def shrunk(before: Sequence[BaseMessage], after: Sequence[BaseMessage]) -> Iterator[str]:
    """What was in the history and is not there any more, or says something else."""
    if [message.id for message in before] != [message.id for message in after[: len(before)]]:
        yield "the history has lost, or moved, messages"
    for old, new in zip(before, after, strict=False):
        if not isinstance(old, AIMessage) and old.content != new.content:
            yield f"message {old.id} has changed from {old.content!r:.80} to {new.content!r:.80}"


def view_faults(view: Sequence[BaseMessage]) -> Iterator[str]:
    """Every call is answered once, right after its reply; every result belongs to the reply before it."""
    open_calls: list[str] = []
    for message in view:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in open_calls:
                yield f"the view has a result for {message.tool_call_id!r}, which is not open there"
            else:
                open_calls.remove(message.tool_call_id)
            continue
        if open_calls:
            yield f"the view has open calls: {open_calls}"
        open_calls = (
            [str(c["id"] or "") for c in message.tool_calls] if isinstance(message, AIMessage) else []
        )
        if "" in open_calls or len(set(open_calls)) < len(open_calls):
            yield f"the view has calls without an id of their own: {open_calls}"
        if isinstance(message, AIMessage) and message.invalid_tool_calls:
            yield "the view has a call that is no JSON"
    if open_calls:
        yield f"the view ends in open calls: {open_calls}"


def finished_rightly(messages: Sequence[BaseMessage], task: str, finishes: Collection[str]) -> bool:
    """Whether a finish was called, and accepted, in the task that began with the message of this id."""
    start = next((at for at, message in enumerate(messages) if message.id == task), 0)
    called = {
        call["id"]
        for message in messages[start:]
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    }
    return any(
        message.name in finishes and message.status == "success" and message.tool_call_id in called
        for message in messages[start:]
        if isinstance(message, ToolMessage)
    )
