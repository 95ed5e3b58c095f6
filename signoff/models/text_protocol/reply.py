"""One reply of the inner model: its text goes through as it comes, and at its end come its calls."""

import uuid
from collections.abc import Collection, Sequence, Set
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.outputs import ChatGenerationChunk

from signoff.graph.history.replies import StopReason, stop_of
from signoff.graph.messages import KEY as MARKS
from signoff.models.text_protocol.calls import ToolNames, calls_of, is_forced, last_update
from signoff.models.text_protocol.reading import EVIDENCE, Reading, read_text
from signoff.models.text_protocol.status import KEY

_TAG_LENGTH = 320
_LOOKS = 16


class TaggedReply:
    """A reply while it comes in.

    prompt: what it answers. bound: the tools there are. executors: those of them that execute something.
    failing: the last execution failed. `imagined`: the reply has begun to make up evidence; nothing that
    follows counts, so the rest need not be waited for.
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
        """A piece of the reply as it is passed on: without tool calls, which are none in this protocol."""
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
        """The last chunk: the calls that the text makes."""
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
            metadata |= {MARKS: {"estimated": True}, "finish_reason": "stop"}
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
        """Looks whether the reply makes up evidence, each time that it writes the tag; not without end, as
        each look reads the whole text again."""
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
    """The model's own status where another one is forced, and how much of the text was read."""
    status = {"status": last_update(reading).status} if forced else {}
    upto = {} if reading.upto is None else {"upto": reading.upto}
    return {**status, **upto}


def _call_id(reply: str, at: int) -> str:
    return f"call_{uuid.uuid5(uuid.NAMESPACE_OID, f'{reply}:{at}').hex[:24]}"
