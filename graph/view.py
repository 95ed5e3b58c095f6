"""The view: what the model is shown. Every call in it is answered, right after the reply that made it."""

from collections.abc import Iterator, Sequence

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolCall, ToolMessage

from signoff.graph.history import Reader
from signoff.graph.marks import is_genuine
from signoff.graph.replies import Reply
from signoff.graph.state import AgentState
from signoff.graph.texts import Texts

_RAW_SHOWN = 500


def build_view(state: AgentState, reader: Reader, system_prompt: str, texts: Texts) -> list[BaseMessage]:
    """System prompt, the task's own messages, the digest, and the turns that are not folded, whole.

    The history itself is never changed; what is folded or repaired is so only in the view.
    """
    messages = state["messages"]
    digest = state.get("digest")
    start = folded(messages, digest["upto"] if digest else None)
    head: list[BaseMessage] = [SystemMessage(content=system_text(messages, system_prompt))]
    if digest:
        own = {message.id for message in reader.section.messages}
        head += [message for message in messages[:start] if message.id in own]
        lines = "\n".join(digest["lines"])
        head.append(HumanMessage(content=texts.digest.format(lines=lines)))
    return head + list(_repaired(messages, start, reader, texts))


def system_text(messages: Sequence[BaseMessage], system_prompt: str) -> str:
    """The system prompt, joined by the system messages of the history in their order."""
    own = [message.text for message in messages if isinstance(message, SystemMessage)]
    return "\n\n".join(part for part in [system_prompt, *own] if part)


def folded(messages: Sequence[BaseMessage], upto: str | None) -> int:
    """How many messages from the start are folded: all up to the one with the id `upto`."""
    if upto is None:
        return 0
    return next((i + 1 for i, message in enumerate(messages) if message.id == upto), 0)


def _repaired(
    messages: Sequence[BaseMessage], start: int, reader: Reader, texts: Texts
) -> Iterator[BaseMessage]:
    """The messages from `start` on. A result stands directly after its call, wherever the history has it; a
    user's answer to a question stands only as that result; a result that belongs to no call is left out."""
    replies = iter(reader.replies)
    for position, message in enumerate(messages):
        if isinstance(message, AIMessage):
            reply = next(replies)
            if position >= start and (reply.calls or reply.text):
                yield from _turn(reply, texts)
        elif position < start or isinstance(message, (SystemMessage, ToolMessage)):
            continue
        elif not (is_genuine(message) and message.id in reader.spoken):
            yield message


def _turn(reply: Reply, texts: Texts) -> Iterator[BaseMessage]:
    yield _sendable(reply)
    for call in reply.calls:
        yield reply.results.get(call.index) or ToolMessage(
            content=texts.results["pending"], tool_call_id=call.id, name=call.name, status="error"
        )


def _sendable(reply: Reply) -> AIMessage:
    """The reply without calls that are not JSON: some servers refuse a whole request for one of them."""
    message = reply.message
    if not message.invalid_tool_calls:
        return message
    raw = {bad["id"]: bad["args"] or "" for bad in message.invalid_tool_calls}
    calls = [
        ToolCall(
            name=call.name,
            id=call.id,
            args={"unreadable": raw[call.id][:_RAW_SHOWN]} if call.id in raw else dict(call.args),
        )
        for call in reply.calls
    ]
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": []})
