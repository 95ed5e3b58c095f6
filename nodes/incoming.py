"""A reply while it comes in, chunk by chunk: whether what has come decides the run, and how it is cut off."""

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCallChunk
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.outputs import ChatGenerationChunk

from signoff.graph.arguments import complete_json, read_arguments
from signoff.graph.marks import KEY
from signoff.graph.replies import Controls
from signoff.tools.control import Effect

_REASONS = ("finish_reason", "stop_reason", "stopReason", "done_reason")


class IncomingCall:
    """One call while it comes in. Its text is read once, and parsed once when its braces have closed."""

    def __init__(self) -> None:
        self.name = ""
        self.id = ""
        self.pieces: list[str] = []
        self._depth = 0
        self._quoted = self._escaped = self._closed = self._spoilt = False
        self._whole: bool | None = None

    @property
    def text(self) -> str:
        """The raw argument text so far."""
        return "".join(self.pieces)

    def add(self, part: ToolCallChunk) -> None:
        self.name += part["name"] or ""
        self.id = self.id or part["id"] or ""
        text = part["args"] or ""
        self.pieces.append(text)
        for char in text:
            self._read(char)

    def _read(self, char: str) -> None:
        if self._closed:
            self._spoilt = self._spoilt or not char.isspace()
        elif self._escaped:
            self._escaped = False
        elif self._quoted:
            self._escaped, self._quoted = char == "\\", char != '"'
        elif char == '"':
            self._quoted = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            self._closed = self._depth == 0

    def whole(self) -> bool:
        """Whether the arguments are complete: one JSON object by a strict parser. No text yet is not."""
        if not self._closed or self._spoilt:
            return False
        if self._whole is None:
            self._whole = complete_json(self.text)
        return self._whole

    def decides(self, controls: Controls) -> bool:
        """Whether this complete call is a finish, or a question that can be asked."""
        name = controls.meant(self.name) or self.name
        effect = controls.effect(name)
        if effect is Effect.ASK:
            return controls.problem(name, read_arguments(self.text)) is None
        return effect is Effect.FINISH


class Incoming:
    """A reply while it comes in. Everything is looked at once, so a long reply costs no more per chunk.

    controls: None where no call decides anything. shown: the messages that the model answers. tools: as the
        provider is given them.
    """

    def __init__(
        self, controls: Controls | None, shown: Sequence[BaseMessage], tools: list[dict[str, Any]] | None
    ) -> None:
        self._controls = controls
        self._shown = shown
        self._tools = tools
        self._chunks: list[AIMessageChunk] = []
        self._calls: list[IncomingCall] = []
        self._by_index: dict[int | str, list[int]] = {}
        # How many calls from the start are complete and decide nothing.
        self._settled = 0
        self._closing = False

    def end(self, chunk: ChatGenerationChunk, *, stopped: bool) -> list[ChatGenerationChunk]:
        """Takes the next chunk. Empty while the reply goes on; else the chunks that end it in place of this
        one, and the provider's stream is to be closed.

        stopped: whether the user has asked for a stop. A reply that has said how it ends is never cut: the
        provider has done its work, and reports what it cost.
        """
        message = chunk.message
        if not isinstance(message, AIMessageChunk):
            return []
        self._closing = self._closing or _closes(chunk, message)
        if self._closing:
            return []
        if stopped:
            return [self._last({"stopped": True}, message)]
        decided = message.text.strip() != "" and self._decided() is not None
        places = [self._place(part) for part in message.tool_call_chunks]
        if not decided and max(places, default=0) > self._settled:
            at = self._decided()
            decided = at is not None and at < max(places)
        if not decided:
            self._chunks.append(message)
            return []
        keep = self._settled + 1
        own = [part for part, place in zip(message.tool_call_chunks, places, strict=True) if place < keep]
        begin = [self._given(_with_parts(message, own))] if own else []
        return [*begin, self._last({"cut": keep}, message, finish_reason="tool_calls")]

    def _given(self, message: AIMessageChunk) -> ChatGenerationChunk:
        self._chunks.append(message)
        return ChatGenerationChunk(message=message)

    def _place(self, part: ToolCallChunk) -> int:
        """Adds a part to its call, by the rules by which LangChain joins parts; the place of that call."""
        index, given = part["index"], part["id"] or ""
        joinable = isinstance(index, int) or (isinstance(index, str) and index.startswith("lc_"))
        known = self._by_index.setdefault(index, []) if joinable and index is not None else []
        for place in known:
            found = self._calls[place]
            if not found.id or not given or found.id == given:
                found.add(part)
                return place
        self._calls.append(IncomingCall())
        self._calls[-1].add(part)
        known.append(len(self._calls) - 1)
        return known[-1]

    def _decided(self) -> int | None:
        """The place of the first call that ends or pauses the run, if it and all before it are complete."""
        while self._controls and self._settled < len(self._calls):
            call = self._calls[self._settled]
            if not call.whole():
                return None
            if call.decides(self._controls):
                return self._settled
            self._settled += 1
        return None

    def _last(self, mark: dict[str, Any], dropped: AIMessageChunk, **metadata: Any) -> ChatGenerationChunk:
        ids = [message.id for message in [*self._chunks[-1:], dropped] if message.id]
        message = AIMessageChunk(
            content="",
            id=ids[0] if ids else None,
            response_metadata={**metadata, KEY: {**mark, "estimated": True}},
            usage_metadata=self._usage(),
            chunk_position="last",
        )
        return ChatGenerationChunk(message=message)

    def _usage(self) -> UsageMetadata:
        """An estimate of what the call cost, less what the provider has reported already: usages add up."""
        reported = [message.usage_metadata for message in self._chunks if message.usage_metadata]
        read = 0
        if not any(usage["input_tokens"] for usage in reported):
            read = count_tokens_approximately(self._shown, tools=list(self._tools or ()))
        texts = [_text_of(message) for message in self._chunks]
        texts += [call.name + call.text for call in self._calls]
        written = count_tokens_approximately([AIMessage("".join(texts))])
        written = max(0, written - sum(usage["output_tokens"] for usage in reported))
        return UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)


def _text_of(message: AIMessageChunk) -> str:
    """The words and thoughts of a chunk; the arguments of calls are counted with the calls."""
    blocks = [message.content] if isinstance(message.content, str) else message.content
    texts = [message.additional_kwargs.get("reasoning_content")]
    for block in blocks:
        keys = ("text", "thinking", "reasoning")
        texts += [block] if isinstance(block, str) else [block.get(key) for key in keys]
    return "".join(text for text in texts if isinstance(text, str))


def _closes(chunk: ChatGenerationChunk, message: AIMessageChunk) -> bool:
    """Whether the provider says with this chunk how the reply ends."""
    said = {**(chunk.generation_info or {}), **message.response_metadata}
    return message.chunk_position == "last" or any(said.get(reason) for reason in _REASONS)


def _with_parts(message: AIMessageChunk, parts: list[ToolCallChunk]) -> AIMessageChunk:
    """The chunk with only these parts of calls."""
    if len(parts) == len(message.tool_call_chunks):
        return message
    return AIMessageChunk(
        content=message.content,
        tool_call_chunks=parts,
        response_metadata=message.response_metadata,
        usage_metadata=message.usage_metadata,
        id=message.id,
    )
