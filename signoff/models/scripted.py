"""A chat model that plays a script: for tests and demos, strict, with no key and no network.

    with ScriptedModel([call("write_file", path="a.txt", content="hi"), "I wrote it."]) as model:
        first = model.invoke("Write a.txt")    # asks for write_file
        second = model.invoke([...])           # says "I wrote it."

A call beyond the script raises `UnexpectedCall`; leaving the `with` block with steps left over raises
`UnusedSteps`. `model.seen` holds what the model was shown, call by call.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.chat_models import agenerate_from_stream, generate_from_stream
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field, PrivateAttr

from signoff.models.script import (
    Player,
    Script,
    ScriptedCall,
    ScriptedReply,
    Seen,
    Step,
    UnexpectedCall,
    UnusedSteps,
    Wire,
    call,
    reply,
)

__all__ = [
    "Script",
    "ScriptedCall",
    "ScriptedModel",
    "ScriptedReply",
    "Seen",
    "Step",
    "UnexpectedCall",
    "UnusedSteps",
    "call",
    "reply",
]

CHARS_PER_TOKEN = 4


class ScriptedModel(BaseChatModel):
    """Plays `script`, one step a call, streamed or not, sync or async.

    script: steps, taken one by one as they are needed (so a generator or `itertools.repeat` may be endless),
        or one function that is given the messages and returns the step: it knows no position, so it also
        serves a run that goes on in another process. A step is
        - text, a `call(...)`, a list of both, or a `reply(...)`;
        - an `AIMessage`, sent as a copy with an id of its own;
        - an exception, which is raised;
        - a function that is given the messages and returns one of these.

    Every copy of the model (`bind_tools`, `bind`, `model_copy`) shares the position and the record. Options
    that real models take (`temperature`, `max_tokens`, ...) are accepted and change nothing.
    """

    one_name: ClassVar[bool] = True
    model_name: str = "scripted"
    delay: float = Field(default=0.0, ge=0)
    """Seconds before each chunk."""
    chunk_size: int = Field(default=16, ge=1)
    """Characters of text or arguments in a chunk."""

    _player: Player = PrivateAttr()

    def __init__(self, script: Script, **kwargs: Any) -> None:
        # A cached answer would leave its step unplayed.
        super().__init__(**{"cache": False, **kwargs})
        self._player = Player(script)

    @property
    def seen(self) -> list[Seen]:
        """What the model was shown, call by call, also in calls that failed."""
        return self._player.seen

    @property
    def chunks_sent(self) -> int:
        """Chunks handed out so far; it stands still once a stream is closed."""
        return self._player.chunks_sent

    def assert_done(self) -> None:
        """Check that the script was played exactly.

        Raises `UnusedSteps` when steps are left. Raises again the first `UnexpectedCall`, or failed `assert`
        in a step, of an earlier call: an agent may have treated it as a failing provider.
        """
        self._player.assert_done()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.assert_done()

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | dict[str, Any] | bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """This model with tools, as `BaseChatModel.bind_tools`; "any" and True read as "required"."""
        schemas = [convert_to_openai_tool(tool) for tool in tools]
        choice = "required" if tool_choice == "any" or tool_choice is True else tool_choice
        chosen = {} if choice is None else {"tool_choice": choice}
        return self.bind(tools=schemas, **chosen, **kwargs)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_name}

    def _chunks(
        self, messages: list[BaseMessage], stop: list[str] | None, options: dict[str, Any]
    ) -> Iterator[ChatGenerationChunk]:
        rest = dict(options) if stop is None else {**options, "stop": stop}
        tools = [convert_to_openai_tool(tool) for tool in rest.pop("tools", None) or ()]
        choice = rest.pop("tool_choice", None)
        wire = self._player.play(Seen(list(messages), tools, choice, rest))
        return _cut(wire, messages, options.get("model", self.model_name), self.chunk_size)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in self._chunks(messages, stop, kwargs):
            if self.delay:
                time.sleep(self.delay)
            self._player.count_chunk()
            if run_manager:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._chunks(messages, stop, kwargs):
            await asyncio.sleep(self.delay)  # also without a delay: a network would let others run
            self._player.count_chunk()
            if run_manager:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return generate_from_stream(self._stream(messages, stop, **kwargs))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages, stop, **kwargs))


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


def _cut(wire: Wire, shown: list[BaseMessage], model: str, size: int) -> Iterator[ChatGenerationChunk]:
    """The reply in chunks, as providers stream it: reason and usage come in a last chunk of their own."""
    id = f"msg_{uuid.uuid4().hex}"
    index = -1
    for part in wire.parts:
        if isinstance(part, ScriptedCall):
            index += 1
            deltas = [tool_call_chunk(name=part.name, args="", id=part.id, index=index)]
            deltas += [tool_call_chunk(args=text, index=index) for text in _pieces(part.arguments, size)]
            for delta in deltas:
                yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[delta], id=id))
        else:
            for content in _pieces(part, size) if isinstance(part, str) else [part]:
                yield ChatGenerationChunk(message=AIMessageChunk(content=content, id=id))
    reason = "stop" if index < 0 else "tool_calls"
    metadata = {"finish_reason": reason, "model_name": model, **wire.response_metadata}
    usage = _usage(wire, shown)
    last = AIMessageChunk(
        content="", response_metadata=metadata, usage_metadata=usage, id=id, chunk_position="last"
    )
    # Not given above, where raw tool calls among them would be read as further calls.
    last.additional_kwargs = wire.additional_kwargs
    yield ChatGenerationChunk(message=last, generation_info=metadata)


def _usage(wire: Wire, shown: list[BaseMessage]) -> UsageMetadata | None:
    if wire.usage is False:
        return None
    if isinstance(wire.usage, dict):
        return wire.usage
    read, written = wire.usage or (_tokens(_size(message) for message in shown), _tokens(_sent_sizes(wire)))
    return UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)


def _tokens(sizes: Iterable[int]) -> int:
    return -(-sum(sizes) // CHARS_PER_TOKEN)


def _size(message: BaseMessage) -> int:
    calls = message.tool_calls if isinstance(message, AIMessage) else ()
    return len(str(message.content)) + sum(len(c["name"]) + len(str(c["args"])) for c in calls)


def _sent_sizes(wire: Wire) -> Iterator[int]:
    yield len(wire.additional_kwargs.get("refusal") or "")
    for part in wire.parts:
        yield len(part.name) + len(part.arguments) if isinstance(part, ScriptedCall) else len(str(part))
