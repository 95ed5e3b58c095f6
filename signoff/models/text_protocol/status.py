"""The position of work in the tagged text protocol, read from its messages, and one reply of the inner model.

The text of a reply is passed on as it arrives, with its calls at the end.
"""

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.outputs import ChatGenerationChunk

from signoff.graph.history.reasons import StopReason, stop_of
from signoff.graph.messages import NOTES, is_genuine, is_reply, marks, nudge_kind
from signoff.graph.prompt.prompt import SUMMARY_MARK
from signoff.models.text_protocol.calls import DEBUGGING, ToolNames, calls_of, is_forced, last_update
from signoff.models.text_protocol.reading import EVIDENCE, Reading, read_text

KEY = "signoff_tagged"
"""The key in `response_metadata` that marks a reply whose text is in the protocol's form."""

EXECUTORS = ("run_python", "run_shell")


class Progress(NamedTuple):
    """The approach and the status of the current task; None while there is none."""

    approach: str | None = None
    status: str | None = None


def tagged_notes(message: BaseMessage) -> Mapping[str, Any] | None:
    """Returns the metadata of a reply in the tagged protocol; None for every other message."""
    found = message.response_metadata.get(KEY) if isinstance(message, AIMessage) else None
    return found if isinstance(found, dict) else None


@dataclass(frozen=True)
class Position:
    """The position of the work.

    own: the status that the model stated. failing: the last execution failed or
    timed out. evidence: what the last execution showed.
    """

    approach: str | None = None
    status: str | None = None
    own: str | None = None
    failing: bool = False
    evidence: ToolMessage | None = None

    def thought(self, args: Mapping[str, Any], notes: Mapping[str, Any]) -> "Position":
        """Applies a thought, which changes the fields it names. A forced status is not the model's own."""
        status = args.get("status") or self.status
        own = notes.get("status") if "status" in notes else args.get("status")
        return replace(
            self, approach=args.get("approach") or self.approach, status=status, own=own or self.own
        )

    def executed(self, shown: ToolMessage) -> "Position":
        failing = shown.status == "error"
        return replace(self, status=DEBUGGING if failing else self.own, failing=failing, evidence=shown)


def current_status(
    messages: Sequence[BaseMessage], executors: Collection[str] = EXECUTORS, think: str = "think"
) -> Progress:
    """Returns the approach and status at the end of `messages`.

    They are those of the last thought of the current task, but the status is `Debugging` after an execution
    (a call of one of `executors`) that failed or timed out, until another one succeeds or a reply without
    code states another status. A call that was not run is not an execution.
    """
    found = position(messages, executors, think)
    return Progress(found.approach, found.status)


def position(
    messages: Sequence[BaseMessage], executors: Collection[str] = EXECUTORS, think: str = "think"
) -> Position:
    """Returns the position that `current_status` is taken from."""
    *_, last = (Position(), *positions(messages, executors, think))
    return last


def positions(
    messages: Sequence[BaseMessage], executors: Collection[str] = EXECUTORS, think: str = "think"
) -> Iterator[Position]:
    """Yields the position of the work after each of `messages`."""
    now = Position()
    names: dict[str, str] = {}
    for message in messages:
        if _begins(message):
            now = Position()
        elif nudge_kind(message) == SUMMARY_MARK:
            # The thoughts that the summary replaces are no longer shown.
            now = now.thought(marks(message), {})
        elif isinstance(message, AIMessage):
            for call in message.tool_calls:
                names[call["id"] or ""] = call["name"]
                if call["name"] == think:
                    now = now.thought(call["args"], tagged_notes(message) or {})
        elif isinstance(message, ToolMessage):
            name = message.name or names.get(message.tool_call_id)
            if name in executors and "not_run" not in marks(message):
                now = now.executed(message)
        yield now


def reply_statuses(messages: Sequence[BaseMessage]) -> list[str | None]:
    """Returns for each reply the status after its actions; None for a reply in another form."""
    found: list[str | None] = []
    tagged = False
    for message, now in zip(messages, positions(messages), strict=True):
        if is_reply(message):
            tagged = tagged_notes(message) is not None
            found.append(now.status if tagged else None)
        elif tagged and isinstance(message, ToolMessage):
            found[-1] = now.status
    return found


def _begins(message: BaseMessage) -> bool:
    """Whether a message begins a task; an answer does not."""
    return isinstance(message, HumanMessage) and is_genuine(message) and "answers" not in marks(message)


_TAG_LENGTH = 320

_LOOKS = 16


class TaggedReply:
    """A reply while it arrives.

    prompt: the messages it answers. bound: the available tools. executors: those of them that execute
    something. failing: the last execution failed. imagined: the reply has begun to make up evidence; nothing
    that follows counts, so it need not be awaited.
    """

    def __init__(
        self,
        prompt: Sequence[BaseMessage],
        names: ToolNames,
        bound: Set[str],
        *,
        executors: Collection[str],
        failing: bool,
    ) -> None:
        self.prompt = prompt
        self.imagined = False
        self._names = names
        self._bound = bound
        self._executors = executors
        self._failing = failing
        self._pieces: list[str] = []
        self._tail = ""
        self._looks = 0
        self._id: str | None = None
        self._metadata: dict[str, Any] = {}
        self._counted = False

    def take(self, message: BaseMessage) -> ChatGenerationChunk:
        """Returns a chunk of the reply to pass on, without tool calls, which this protocol does not have."""
        assert isinstance(message, AIMessage), "a chat model answers with an AIMessage"
        self._id = self._id or message.id
        self._metadata |= {key: value for key, value in message.response_metadata.items() if value}
        self._counted = self._counted or message.usage_metadata is not None
        self._pieces.append(message.text)
        self._look(message.text)
        extras = message.additional_kwargs
        chunk = AIMessageChunk(
            content=message.content,
            additional_kwargs={k: v for k, v in extras.items() if k not in ("tool_calls", "function_call")},
            response_metadata=message.response_metadata,
            usage_metadata=message.usage_metadata,
            id=message.id,
        )
        return ChatGenerationChunk(message=chunk)

    def end(self) -> ChatGenerationChunk:
        """Returns the last chunk, with the calls that the text makes."""
        text = "".join(self._pieces)
        reading = read_text(text)
        truncated = stop_of(AIMessage("", response_metadata=self._metadata)) is StopReason.LENGTH
        forced = is_forced(reading, self._names, self._executors, failing=self._failing)
        made = calls_of(reading, self._names, self._bound, truncated=truncated, debugging=forced)
        name = self._id or text
        calls = [
            tool_call_chunk(name=call.name, args=call.arguments, id=_call_id(name, at), index=at)
            for at, call in enumerate(made)
        ]
        metadata: dict[str, Any] = {KEY: _notes(reading, forced)}
        estimated = self.imagined and not self._counted
        if estimated:
            metadata |= {NOTES: {"estimated": True}, "finish_reason": "stop"}
        last = AIMessageChunk(
            content="",
            id=self._id,
            tool_call_chunks=calls,
            response_metadata=metadata,
            usage_metadata=self._usage(text) if estimated else None,
            chunk_position="last",
        )
        return ChatGenerationChunk(message=last)

    def _look(self, piece: str) -> None:
        """Checks whether the reply makes up evidence, each time that it writes the tag.

        The number of checks is limited, because each parses the whole text again.
        """
        window = self._tail + piece
        if tag := EVIDENCE.search(window):
            window = window[tag.end() :]
            if self._looks < _LOOKS and not self.imagined:
                self._looks += 1
                self.imagined = read_text("".join(self._pieces)).upto is not None
        self._tail = window[-_TAG_LENGTH:]

    def _usage(self, text: str) -> UsageMetadata:
        read, wrote = count_tokens_approximately(self.prompt), count_tokens_approximately([AIMessage(text)])
        return UsageMetadata(input_tokens=read, output_tokens=wrote, total_tokens=read + wrote)


def _notes(reading: Reading, forced: bool) -> dict[str, Any]:
    """Returns the model's own status where another one is forced, and how much of the text was parsed."""
    status = {"status": last_update(reading).status} if forced else {}
    upto = {} if reading.upto is None else {"upto": reading.upto}
    return {**status, **upto}


def _call_id(reply: str, at: int) -> str:
    return f"call_{uuid.uuid5(uuid.NAMESPACE_OID, f'{reply}:{at}').hex[:24]}"
