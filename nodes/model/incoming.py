"""Follows a streaming reply chunk by chunk: decides when to cut it off, and how."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from math import ceil
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCallChunk
from langchain_core.messages.ai import UsageMetadata, add_usage, subtract_usage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.outputs import ChatGenerationChunk

from signoff.graph import clock
from signoff.graph.history.reasons import reason_in
from signoff.graph.history.replies import Controls, read_arguments
from signoff.graph.messages import NOTES, guard_notes
from signoff.nodes.model.stream import CallBounds, EarlyEnd, Silent

# How long to wait, after the end of a reply, for the provider to report its usage.
_USAGE_SECONDS = 5.0
_SHORT_OF_TIME = 0.5


class IncomingCall:
    """One call while it comes in. Its text is parsed only where something follows the call."""

    def __init__(self) -> None:
        self.name = ""
        self.id = ""
        self.pieces: list[str] = []
        self.length = 0
        self._parsed = 0
        self._whole = False

    @property
    def text(self) -> str:
        """The raw argument text so far."""
        return "".join(self.pieces)

    def add(self, part: ToolCallChunk) -> None:
        self.name += part["name"] or ""
        self.id = self.id or part["id"] or ""
        text = part["args"] or ""
        self.pieces.append(text)
        self.length += len(text)

    def whole(self) -> bool:
        """Whether the arguments are complete: one JSON object by a strict parser. No text yet is not."""
        if self._parsed != self.length:
            self._parsed, self._whole = self.length, False
            with suppress(ValueError):
                read_arguments(self.text)
                self._whole = self.text.lstrip().startswith("{")
        return self._whole

    def decides(self, controls: Controls) -> bool:
        """Whether this complete call is a finish, or a question that can be asked."""
        name = controls.resolve(self.name) or self.name
        effect = controls.effect(name)
        if effect == "ask":
            return controls.problem(name, read_arguments(self.text)) is None
        return effect == "finish"


class Incoming:
    """A reply while it streams. Everything is examined once, so a long reply costs no more per chunk.

    controls: None where no call decides anything. shown: the messages that the model answers. tools: as the
        provider is given them. watch: the bounds of the call; None where nothing bounds it.
    over: whether the reply ends here, and the provider's stream is to be closed.
    """

    def __init__(
        self,
        controls: Controls | None,
        shown: Sequence[BaseMessage],
        tools: list[dict[str, Any]] | None,
        watch: CallBounds | None = None,
    ) -> None:
        self.over = False
        self._controls = controls
        self._shown = shown
        self._tools = tools
        self._watch = watch
        self._end: list[ChatGenerationChunk] = []
        self._id: str | None = None
        self._chars = 0
        self._last_usage: UsageMetadata | None = None
        # What the provider has reported of what was handed on.
        self._reported = add_usage(None, None)
        self._calls: list[IncomingCall] = []
        # The places of the calls that the last chunk is of; and the chunks of calls that were handed on, each
        # with the lowest place in it.
        self._places: list[int] = []
        self._call_chunks: list[tuple[int, AIMessageChunk]] = []
        self._by_index: dict[int | str, list[int]] = {}
        # How many calls from the start are complete and decide nothing.
        self._settled = 0
        self._closing: float | None = None

    def take(self, chunk: ChatGenerationChunk) -> list[ChatGenerationChunk]:
        """Takes the next chunk; returns what is handed on now.

        A reply that has a finish reason is never cut off: the provider is done, and may report the usage
        soon.
        """
        message = chunk.message
        if not isinstance(message, AIMessageChunk):
            return [chunk]
        if usage := message.usage_metadata:
            message.usage_metadata = self._not_reported_before(usage)
        self._id = message.id or self._id
        text = _text_of(message)
        stop = self._watch.took(_size(text, message)) if self._watch else None
        if self._closing is None and _closes(chunk, message):
            self._closing = clock.monotonic()
            if self._watch:
                self._watch.ending(_USAGE_SECONDS)
        if self._closing is not None:
            for_cost = clock.monotonic() - self._closing
            self.over = for_cost > (_USAGE_SECONDS if stop is None else _SHORT_OF_TIME)
            return [chunk]
        if stop is EarlyEnd.STOPPED:
            self._ended(stop)
            return []
        if (keep := self._cut_at(message)) is not None:
            parts = zip(message.tool_call_chunks, self._places, strict=True)
            own = [part for part, place in parts if place < keep]
            begin = self._handed(_with_parts(message, own), text) if own else []
            self._finish({"cut": keep}, finish_reason="tool_calls")
            return begin
        given = [] if stop is EarlyEnd.SIZE else self._handed(message, text, chunk)
        if stop:
            self._ended(stop)
        return given

    def _not_reported_before(self, usage: UsageMetadata) -> UsageMetadata:
        """What this usage adds to those of the chunks before, since LangChain sums them: some servers report
        in each chunk what they have counted so far."""
        before, self._last_usage = self._last_usage, usage
        counts_up = before is not None and before["input_tokens"] == usage["input_tokens"] > 0
        return subtract_usage(usage, before) if counts_up else usage

    def closed(self) -> bool:
        """Whether the watch has ended the call, and what has come so far is the reply; not when it has fallen
        silent in the middle of it."""
        stop = self._watch.end if self._watch else None
        if stop is None:
            return False
        return self._closing is not None or self.over or self._ended(stop)

    def ended_by(self, watch: CallBounds) -> list[BaseMessage] | None:
        """The messages to append to what has arrived, once `watch` has ended the reply; None if there is no
        valid reply."""
        self._watch = watch
        return [last.message for last in self._end] if self.closed() else None

    def end(self) -> list[ChatGenerationChunk]:
        """What is still to be handed on when the stream has ended. Raises Silent when it was closed since
        nothing came any more: that can look like a regular end."""
        self.closed()
        if self._watch and self._watch.end is EarlyEnd.SILENT and self._closing is None and not self.over:
            raise Silent(f"no answer for {self._watch.silence:g} seconds (model_seconds)")
        return self._end

    def _ended(self, stop: EarlyEnd) -> bool:
        """Ends a reply that its watch cuts off; whether anything of it counts."""
        if stop is EarlyEnd.STOPPED:
            self._finish({"stopped": True})
        elif self._decided() is not None:
            self._finish({"cut": self._settled + 1}, finish_reason="tool_calls")
        elif stop is not EarlyEnd.SILENT:
            whole = len(list(takewhile(IncomingCall.whole, self._calls)))
            self._finish({"cut": whole, "ended": str(stop)}, finish_reason="length")
            self._drop_from(whole)
        return self.over

    def _cut_at(self, message: AIMessageChunk) -> int | None:
        """How many calls are kept when what comes with `message` cannot count any more. None: it counts."""
        # Without calls, nothing is decided: most chunks are words before them.
        decided = bool(self._calls) and message.text.strip() != "" and self._decided() is not None
        places = [self._place(part) for part in message.tool_call_chunks]
        self._places = places
        if not decided and max(places, default=0) > self._settled:
            at = self._decided()
            decided = at is not None and at < max(places)
        return self._settled + 1 if decided else None

    def _handed(
        self, message: AIMessageChunk, text: str, chunk: ChatGenerationChunk | None = None
    ) -> list[ChatGenerationChunk]:
        self._chars += len(text)
        if usage := message.usage_metadata:
            self._reported = add_usage(self._reported, usage)
        if self._places:
            self._call_chunks.append((min(self._places), message))
        return [chunk or ChatGenerationChunk(message=message)]

    def _drop_from(self, keep: int) -> None:
        """Empties what was handed on of the calls that do not count. LangChain reads the arguments of each
        call once more when the reply is whole, and for cut ones it takes the square of their length."""
        for lowest, message in self._call_chunks:
            for part in message.tool_call_chunks if lowest >= keep else ():
                part["args"] = ""

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

    def _finish(self, mark: dict[str, Any], **metadata: Any) -> None:
        """Ends the reply with a chunk that carries this mark."""
        message = AIMessageChunk(
            content="",
            id=self._id,
            response_metadata={**metadata, NOTES: {**mark, "estimated": True}},
            usage_metadata=self._usage(),
            chunk_position="last",
        )
        self.over, self._end = True, [ChatGenerationChunk(message=message)]

    def _usage(self) -> UsageMetadata:
        """An estimate of what the call cost, less what the provider has reported already: usages add up."""
        read = 0
        if not self._reported["input_tokens"]:
            read = count_tokens_approximately(self._shown, tools=list(self._tools or ()))
        # Of a text only the length is counted.
        chars = self._chars + sum(len(call.name) + call.length for call in self._calls)
        written = count_tokens_approximately([AIMessage(" " * chars)])
        if self._watch and self._watch.tokens and self._watch.end is self._watch.tokens[1]:
            # It was by this measure that the limit was reached.
            written = max(written, ceil(self._watch.tokens[0]))
        written = max(0, written - self._reported["output_tokens"])
        return UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)


def cut_short(
    chunks: Sequence[BaseMessage],
    shown: Sequence[BaseMessage],
    watch: CallBounds,
    controls: Controls,
    tools: list[dict[str, Any]] | None,
) -> list[BaseMessage] | None:
    """The reply of a call that its watch has ended: one that was abandoned, or has no guard in the model.

    chunks: what has come of it. shown, tools: what it was asked with. Returns None when it fell silent.
    """
    if any(guard_notes(chunk) for chunk in chunks[-1:] if isinstance(chunk, AIMessage)):
        # The guard has ended it in good order.
        return list(chunks)
    incoming, kept = Incoming(controls, shown, tools), list[BaseMessage]()
    # LangChain ends what was closed like what came to its end.
    if chunks and isinstance(chunks[-1], AIMessageChunk) and chunks[-1] == _nothing_more(chunks[-1]):
        chunks = chunks[:-1]
    for chunk in chunks:
        if isinstance(chunk, AIMessageChunk):
            kept += [part.message for part in incoming.take(ChatGenerationChunk(message=chunk))]
        elif isinstance(chunk, AIMessage):
            # It came whole.
            return list(chunks)
        if incoming.over:
            break
    last = incoming.ended_by(watch)
    return None if last is None else [*kept, *last]


def _nothing_more(last: AIMessageChunk) -> AIMessageChunk:
    """The chunk that LangChain puts at the end of a stream without one."""
    return AIMessageChunk(
        content="" if isinstance(last.content, str) else [], id=last.id, chunk_position="last"
    )


def _text_of(message: AIMessageChunk) -> str:
    """The words and thoughts of a chunk; the arguments of calls are counted with the calls."""
    content, thoughts = message.content, message.additional_kwargs.get("reasoning_content")
    if isinstance(content, str) and not thoughts:
        return content
    blocks = [content] if isinstance(content, str) else content
    texts = [thoughts]
    for block in blocks:
        keys = ("text", "thinking", "reasoning")
        texts += [block] if isinstance(block, str) else [block.get(key) for key in keys]
    return "".join(text for text in texts if isinstance(text, str))


def _size(text: str, message: AIMessageChunk) -> int:
    """The characters of a chunk: words, thoughts and arguments."""
    parts = message.tool_call_chunks
    return len(text) + sum(len(part["args"] or "") for part in parts) if parts else len(text)


def _closes(chunk: ChatGenerationChunk, message: AIMessageChunk) -> bool:
    """Whether the provider says with this chunk how the reply ends."""
    if message.chunk_position == "last":
        return True
    info, said = chunk.generation_info, message.response_metadata
    return reason_in({**info, **said} if info else said) != ""


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
