"""A chat model that plays a script: for tests and demos, strict, with no key and no network.

    with ScriptedModel([call("write_file", path="a.txt", content="hi"), "I wrote it."]) as model:
        first = model.invoke("Write a.txt")    # asks for write_file
        second = model.invoke([...])           # says "I wrote it."

A call beyond the script raises `UnexpectedCall`; leaving the `with` block with steps left over raises
`UnusedSteps`. `model.seen` holds what the model was shown, call by call.
"""

import asyncio
import functools
import itertools
import json
import operator
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, ClassVar, Literal, Self, TypeAlias

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, message_chunk_to_message
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call, tool_call_chunk
from langchain_core.output_parsers.openai_tools import make_invalid_tool_call, parse_tool_call
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field, PrivateAttr


class UnexpectedCall(AssertionError):
    """The model was called after its script had ended."""


class UnusedSteps(AssertionError):
    """Steps of the script were not used."""


@dataclass(frozen=True)
class ScriptedCall:
    """One tool call as the provider sends it: `arguments` is the exact text; id None asks for a new id."""

    name: str
    arguments: str
    id: str | None = None


Usage: TypeAlias = UsageMetadata | tuple[int, int] | Literal[False] | None


@dataclass(frozen=True)
class ScriptedReply:
    """One reply: its text and calls in order, and the provider's metadata (see `reply`)."""

    parts: tuple[str | ScriptedCall, ...]
    finish_reason: str | None = None
    usage: Usage = None
    refusal: str | None = None

    def __post_init__(self) -> None:
        for part in self.parts:
            if not isinstance(part, str | ScriptedCall):
                raise TypeError(f"A reply consists of text and call(...), not of {part!r}.")


Step: TypeAlias = (
    str
    | ScriptedCall
    | ScriptedReply
    | AIMessage
    | BaseException
    | Sequence[str | ScriptedCall]
    | Callable[[list[BaseMessage]], "Step"]
)
Script: TypeAlias = Iterable[Step] | Callable[[list[BaseMessage]], Step]


def call(
    name: str,
    /,
    *,
    id: str | None = None,
    raw: str | None = None,
    args: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> ScriptedCall:
    """Returns one call of the tool `name` with these arguments.

    id: the provider's id; "" for a missing one, None for a new one ("call_1", "call_2", ...). raw: the exact
    argument text instead of arguments, for malformed or truncated JSON. args: arguments as a mapping, for
    those named like a parameter of this function (`id`, `raw`, `args`).

    Raises TypeError for `raw` beside arguments, and for arguments that are not JSON.
    """
    if args is not None and not isinstance(args, Mapping):
        raise TypeError("args is a mapping of arguments; for an argument of that name: args={'args': ...}.")
    merged = {**(args or {}), **arguments}
    if raw is not None and merged:
        raise TypeError("raw is the whole argument text: pass either raw or arguments.")
    return ScriptedCall(name, _json(merged) if raw is None else raw, id)


def reply(
    *parts: str | ScriptedCall,
    finish_reason: str | None = None,
    usage: Usage = None,
    refusal: str | None = None,
) -> ScriptedReply:
    """Returns one reply with text and calls in this order; `reply()` is empty.

    finish_reason: None means "tool_calls" when there are calls, else "stop".
    usage: (input tokens, output tokens) or LangChain's dict; False for a provider that reports none; None
        counts characters, four to a token.
    refusal: the text of a refusal, where OpenAI's models put it (`additional_kwargs["refusal"]`).
    """
    return ScriptedReply(parts, finish_reason, usage, refusal)


@dataclass(frozen=True)
class Seen:
    """What the model was shown in one call; `tools` are OpenAI-style schemas, `kwargs` all other options."""

    messages: list[BaseMessage]
    tools: list[dict[str, Any]]
    tool_choice: Any
    kwargs: dict[str, Any]

    @property
    def tool_names(self) -> list[str]:
        """Returns the names of the offered tools, in order."""
        return [tool["function"]["name"] if "function" in tool else tool["type"] for tool in self.tools]


@dataclass(frozen=True)
class Wire:
    """A reply as a provider sends it: every call has its final id; a list holds a message's content
    blocks.
    """

    parts: Sequence[str | ScriptedCall | list[str | dict[Any, Any]]]
    usage: Usage
    response_metadata: dict[str, Any]
    additional_kwargs: dict[str, Any]


class Player:
    """The position in a script and the recorded calls, shared by all copies of a model."""

    def __init__(self, script: Script) -> None:
        if isinstance(script, str | ScriptedCall | ScriptedReply | BaseMessage | BaseException | type):
            raise TypeError("A script is a list of steps or one function; put a single step into a list.")
        self._steps: Iterator[Step] = itertools.repeat(script) if callable(script) else iter(script)
        self._has_end = not callable(script)
        self._lock = threading.Lock()
        self._fault: AssertionError | None = None
        self._ids = (f"call_{number}" for number in itertools.count(1))
        self._given_ids: set[str] = set()
        self.seen: list[Seen] = []
        self.chunks_sent: int = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def count_chunk(self) -> None:
        with self._lock:
            self.chunks_sent += 1

    def play(self, seen: Seen) -> Wire:
        try:
            step = self._take(seen)
            while callable(step):
                step = step() if isinstance(step, type) else step(list(seen.messages))
        except AssertionError as fault:
            self._fault = self._fault or fault
            raise
        if isinstance(step, BaseException):
            raise step.with_traceback(None)
        return self._wire(step)

    def _take(self, seen: Seen) -> Step:
        with self._lock:
            self.seen.append(seen)
            for step in self._steps:
                return step
            count = len(self.seen)
        shown = "\n".join(f"  {_excerpt(message)}" for message in seen.messages[-3:])
        raise UnexpectedCall(f"The script has no step for call {count} of the model. It was shown:\n{shown}")

    def _wire(self, step: Step) -> Wire:
        if isinstance(step, AIMessage):
            sent = step.model_copy(deep=True)
            calls = [ScriptedCall(c["name"], _json(c["args"]), c["id"]) for c in sent.tool_calls]
            calls += [
                ScriptedCall(c["name"] or "", c["args"] or "", c["id"]) for c in sent.invalid_tool_calls
            ]
            blocks = [sent.content, *calls]
            return Wire(blocks, sent.usage_metadata, sent.response_metadata, sent.additional_kwargs)
        if isinstance(step, str | ScriptedCall):
            step = reply(step)
        elif isinstance(step, list | tuple):
            step = reply(*step)
        if not isinstance(step, ScriptedReply):
            raise TypeError(f"A step is text, call(...), reply(...), AIMessage or exception, not {step!r}.")
        with self._lock:
            parts = [self._with_id(part) if isinstance(part, ScriptedCall) else part for part in step.parts]
        metadata = {} if step.finish_reason is None else {"finish_reason": step.finish_reason}
        extra = {} if step.refusal is None else {"refusal": step.refusal}
        return Wire(parts, step.usage, metadata, extra)

    def _with_id(self, part: ScriptedCall) -> ScriptedCall:
        if part.id is None:
            return replace(part, id=next(id for id in self._ids if id not in self._given_ids))
        self._given_ids.add(part.id)
        return part

    def assert_done(self) -> None:
        if self._fault is not None:
            raise self._fault
        with self._lock:
            for step in self._steps if self._has_end else ():
                left = 1 + operator.length_hint(self._steps)
                self._steps = itertools.chain([step], self._steps)
                raise UnusedSteps(f"At least {left} steps of the script are unused; the next one: {step!r}.")


def _json(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def _excerpt(message: BaseMessage) -> str:
    calls = [tool_call["name"] for tool_call in getattr(message, "tool_calls", ())]
    return f"{message.type}: {str(message.content)[:200]!r}" + (f" calls {', '.join(calls)}" if calls else "")


CHARS_PER_TOKEN = 4


class ScriptedModel(BaseChatModel):
    """Plays `script`, one step per call, streamed or not, sync or async.

    script: steps, taken one by one as they are needed (so a generator or `itertools.repeat` may be endless),
    or one function that takes the messages and returns the step: it has no position, so it also works for a
    run that continues in another process. A step is - text, a `call(...)`, a list of both, or a `reply(...)`;
    - an `AIMessage`, sent as a copy with its own id; - an exception, which is raised; - a function that takes
    the messages and returns one of these.

    Every copy of the model (`bind_tools`, `bind`, `model_copy`) shares the position and the recorded calls.
    Options of real models (`temperature`, `max_tokens`, ...) are accepted and ignored.
    """

    one_name: ClassVar[bool] = True
    model_name: str = "scripted"
    delay: float = Field(default=0.0, ge=0)
    """Seconds before each chunk."""
    chunk_size: int = Field(default=16, ge=1)
    """Characters of text or arguments in a chunk."""

    _player: Player = PrivateAttr()

    def __init__(self, script: Script, **kwargs: Any) -> None:
        # A cached reply would leave its step unused.
        super().__init__(**{"cache": False, **kwargs})
        self._player = Player(script)

    @property
    def seen(self) -> list[Seen]:
        """Returns what the model was shown in each call, also in calls that failed."""
        return self._player.seen

    @property
    def chunks_sent(self) -> int:
        """Returns the number of chunks sent so far; it no longer changes once a stream is closed."""
        return self._player.chunks_sent

    def assert_done(self) -> None:
        """Checks that the script was used exactly.

        Raises `UnusedSteps` when steps are left. Raises the first `UnexpectedCall`, or failed `assert` in a
        step, of an earlier call again: an agent may have treated it as a provider error.
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
        """Returns this model with tools, like `BaseChatModel.bind_tools`; "any" and True mean "required"."""
        schemas = [_schema(tool) for tool in tools]
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
        tools = [_schema(tool) for tool in rest.pop("tools", None) or ()]
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
            await asyncio.sleep(self.delay)  # even without a delay: a network call would let other tasks run
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
        return _whole(list(self._stream(messages, stop, **kwargs)))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return _whole([chunk async for chunk in self._astream(messages, stop, **kwargs)])


def _whole(chunks: list[ChatGenerationChunk]) -> ChatResult:
    """A reply that comes at once, as OpenAI's client reads it: a call is what its whole text says. LangChain
    makes a call of half a text, too, for a reply that is still coming in."""
    merged = functools.reduce(operator.add, chunks)
    assert isinstance(merged.message, AIMessageChunk), "it is a reply"
    message = message_chunk_to_message(merged.message)
    assert isinstance(message, AIMessage), "it was made of its chunks"
    message.tool_calls, message.invalid_tool_calls = [], []
    for part in merged.message.tool_call_chunks:
        raw = {"id": part["id"], "function": {"name": part["name"], "arguments": part["args"]}}
        try:
            parsed = parse_tool_call(raw, return_id=True) or {}
        except OutputParserException as error:
            message.invalid_tool_calls.append(make_invalid_tool_call(raw, str(error)))
            continue
        if isinstance(parsed.get("args"), dict):
            message.tool_calls.append(tool_call(name=parsed["name"], args=parsed["args"], id=parsed["id"]))
        else:
            message.invalid_tool_calls.append(make_invalid_tool_call(raw, None))
    return ChatResult(generations=[ChatGeneration(message=message, generation_info=merged.generation_info)])


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


def _schema(tool: Any) -> dict[str, Any]:
    """Returns a tool's schema for the model; a provider's built-in tool unchanged."""
    described = {"function", "parameters", "input_schema", "title", "description"}
    if isinstance(tool, dict) and tool.get("type") != "function" and not described & tool.keys():
        return tool
    return convert_to_openai_tool(tool)


def _cut(wire: Wire, shown: list[BaseMessage], model: str, size: int) -> Iterator[ChatGenerationChunk]:
    """Yields the reply in chunks, as providers stream it: reason and usage come in a separate last chunk."""
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
    # Not passed above, where raw tool calls among them would be read as further calls.
    last.additional_kwargs = wire.additional_kwargs
    yield ChatGenerationChunk(message=last, generation_info=metadata)


def _usage(wire: Wire, shown: list[BaseMessage]) -> UsageMetadata | None:
    if wire.usage is False:
        return None
    if isinstance(wire.usage, dict):
        return wire.usage
    read, written = wire.usage or (_tokens(_size(message) for message in shown), _tokens(_part_sizes(wire)))
    return UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)


def _tokens(sizes: Iterable[int]) -> int:
    return -(-sum(sizes) // CHARS_PER_TOKEN)


def _size(message: BaseMessage) -> int:
    calls = message.tool_calls if isinstance(message, AIMessage) else ()
    return len(str(message.content)) + sum(len(c["name"]) + len(str(c["args"])) for c in calls)


def _part_sizes(wire: Wire) -> Iterator[int]:
    yield len(wire.additional_kwargs.get("refusal") or "")
    for part in wire.parts:
        yield len(part.name) + len(part.arguments) if isinstance(part, ScriptedCall) else len(str(part))
