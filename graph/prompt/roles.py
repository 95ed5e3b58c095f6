"""What is sent to a model, in the order of roles that every provider takes.

Strict providers and chat templates refuse a user message right after a tool result, two messages of the user
or of the assistant in a row, and an assistant's message as the first. So a line of the assistant stands
between a result and what is said after it: of all forms tried it is the one that they all take, and that
leaves what an earlier call has sent as it was. The lines are of the prompt only; the history holds none.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from signoff.graph.blocks import text_block
from signoff.graph.history.reasons import StopReason, stop_of
from signoff.graph.messages import is_genuine, is_line, line, marks, nudge, nudge_kind
from signoff.graph.texts import Texts

_TOOL = "tool"
_UNTAKEN = {(ToolMessage, HumanMessage), (HumanMessage, HumanMessage), (AIMessage, AIMessage)}


def as_sent(prompt: list[BaseMessage], texts: Texts) -> list[BaseMessage]:
    """The prompt as it is sent: the last step before the provider's client. Nearly always it is that already,
    since `extend_in_turn` has made it, and only its pairs of types are looked at."""
    sent = prompt
    if not _UNTAKEN.isdisjoint(pairwise(map(type, prompt))):
        sent = []
        extend_in_turn(sent, prompt, texts)
    begin = next((at for at, message in enumerate(sent) if not isinstance(message, SystemMessage)), len(sent))
    if begin < len(sent) and isinstance(sent[begin], AIMessage):
        sent = [*sent[:begin], _users_line(texts), *sent[begin:]]
    return sent[:-1] if is_line(sent[-1]) else sent


def extend_in_turn(prompt: list[BaseMessage], more: Iterable[BaseMessage], texts: Texts) -> None:
    """Appends messages to the prompt so that the roles alternate.

    Of one message after another of the user none has been sent yet, or something would stand between them: so
    they are joined. Replies of the model are never changed. A line gives way to a reply beside it.
    """
    for message in more:
        last = prompt[-1] if prompt else None
        if isinstance(message, HumanMessage):
            if isinstance(last, HumanMessage) and _are_one(last, message):
                prompt[-1] = _joined(last, message)
                continue
            if isinstance(last, HumanMessage | ToolMessage):
                prompt.append(fixed_line(texts))
        elif is_line(message) and not isinstance(last, HumanMessage | ToolMessage):
            continue
        elif isinstance(message, AIMessage) and isinstance(last, AIMessage):
            if is_line(last):
                prompt.pop()
            # A reply that the provider paused is continued by the next one.
            elif stop_of(last) is not StopReason.PAUSED:
                prompt.append(_users_line(texts))
        prompt.append(message)


def fixed_line(texts: Texts) -> AIMessage:
    """The assistant's line wherever the history has no words for it."""
    return line(texts.between["assistant"].format())


def _users_line(texts: Texts) -> HumanMessage:
    return nudge("between", texts.between["user"].format())


def _are_one(first: HumanMessage, second: HumanMessage) -> bool:
    """Whether two messages can be sent as one: not those of two people, nor what began another task, nor what
    a person said and what a tool displayed, which may be cut."""
    kinds = nudge_kind(first), nudge_kind(second)
    apart = None in kinds and _TOOL in kinds
    return first.name == second.name and "begins" not in marks(second) and not apart


def _joined(first: HumanMessage, second: HumanMessage) -> HumanMessage:
    """Both as one, which is a person's only if both are: our words must not pass for a person's."""
    content = [*_blocks(first.content), *_blocks(second.content)]
    return (second if is_genuine(first) else first).model_copy(update={"content": content, "id": first.id})


def _blocks(content: str | Sequence[Any]) -> list[Any]:
    parts = [content] if isinstance(content, str) else content
    return [text_block(part) if isinstance(part, str) else part for part in parts if part]
