"""The inner guard: cuts off a streaming reply once nothing more of it can count.

A model that has called `finish_task` may keep writing, and finish ten times over. Once a call that ends or
pauses the run is complete and something follows it, the stream is closed, which makes the provider stop
generating. The same happens on a user's stop, at a limit, and for a reply that is too large
(`nodes/model/stream.py`). The model's stream then ends normally: callbacks and traces see a reply, not an
error. The last chunk says so in its marks: `cut` (how many calls are kept), with `ended` for a limit, or
`stopped`, and `estimated`, since a provider that is cut off reports no usage. What comes of a call that was
abandoned in its thread is dropped here.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, convert_to_messages
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableBinding

from signoff.graph.history.replies import Controls
from signoff.graph.inside.private import share_private
from signoff.nodes.model.incoming import Incoming
from signoff.nodes.model.stream import WATCH, Abandoned

_CONTROLS, _LAST_STEP, _REFUSED = "_signoff_controls", "_signoff_last_step", "_signoff_refused"
_Model = TypeVar("_Model")
LastStep = Callable[[list[BaseMessage], Mapping[str, Any]], list[BaseMessage]]
"""Makes what is sent of the messages that a model is called with, and of the options of the call."""


def guarded(
    model: _Model, controls: Controls, last_step: LastStep | None = None, *, cuts: bool = True
) -> _Model:
    """The model with the inner guard in it; `model` itself is not changed.

    The guard is in a subclass of the model's own class, where the provider's stream is at hand. With
    streaming disabled, only a late reply is dropped. A model without its own stream is returned as it is, and
    so is anything that is not a chat model. last_step: makes what is sent, where other code calls the model.
    cuts: whether a stream is cut off at all.
    """
    if not isinstance(model, BaseChatModel) or not (last_step or _stream_layers(type(model))):
        return model
    twin: Any = model.model_copy()
    streams = cuts and not model.disable_streaming
    twin.__class__ = _guarded_class(type(model), sends=last_step is not None, streams=streams)
    twin.__dict__[_CONTROLS], twin.__dict__[_LAST_STEP] = controls, last_step
    # Both share the model's private attributes (a client, a counter).
    share_private(twin, model)
    if "stream_chunk_timeout" not in model.model_fields_set and hasattr(model, "stream_chunk_timeout"):
        # ChatOpenAI's own default for a loop takes a quarter of the CPU of a stream, and swallows
        # cancellations; the watch of a call does the same.
        twin.__dict__["stream_chunk_timeout"] = None
    made: _Model = twin
    return made


def without_streaming(model: Any) -> Any:
    """A copy of `model`, and of the model that it wraps, that never streams; the original would as soon as
    something listens. Anything but a chat model is returned as it is."""
    if not isinstance(model, BaseChatModel):
        return model
    inner, update = vars(model).get("model"), dict[str, Any](disable_streaming=True)
    if vars(model).get("streaming"):
        # Some packages send it as it is, whatever else is said.
        update["streaming"] = False
    if isinstance(inner, BaseChatModel):
        update["model"] = without_streaming(inner)
    twin = model.model_copy(update=update)
    share_private(twin, model)
    return twin


def is_guarded(model: object) -> bool:
    """Whether `model`, or the model that it wraps, has the guard."""
    while isinstance(model, RunnableBinding):
        model = model.bound
    return isinstance(model, _Sync | _Async)


def in_call(
    model: BaseChatModel, listener: BaseCallbackHandler, refused: Callable[[Exception], bool]
) -> BaseChatModel:
    """A copy of a guarded model for one call, wherever a middleware makes it: in a thread of its own, too.

    listener: hears its stream. refused: whether to ask once more without streaming after an error.
    """
    own = model.callbacks
    update = {"callbacks": [*(own or ()), listener]} if isinstance(own, list | None) else {}
    twin = model.model_copy(update=update)
    twin.__dict__[_REFUSED] = refused
    share_private(twin, model)
    return twin


def has_last_step(model: object) -> bool:
    """Whether `model` has a guard that makes what is sent."""
    return bool(vars(model).get(_LAST_STEP))


def _sent(model: object, given: Any, options: Mapping[str, Any]) -> Any:
    last_step: LastStep | None = vars(model).get(_LAST_STEP)
    return last_step(convert_to_messages(given), options) if last_step and isinstance(given, list) else given


def _without_streaming_after(model: object, error: Exception) -> Any:
    refused: Callable[[Exception], bool] | None = vars(model).get(_REFUSED)
    return without_streaming(model) if refused is not None and refused(error) else None


class _Sending:
    """Makes what is sent where LangChain's agent calls the model, which it does by these methods alone; and
    asks once more without streaming, where no middleware between can take the refusal for a failure."""

    def invoke(self, input: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            # The class that this one is mixed into has the method, as below.
            return super().invoke(_sent(self, input, kwargs), *args, **kwargs)  # type: ignore[misc]  # it has
        except Exception as error:
            if (whole := _without_streaming_after(self, error)) is None:
                raise
        return whole.invoke(input, *args, **kwargs)

    async def ainvoke(self, input: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super().ainvoke(_sent(self, input, kwargs), *args, **kwargs)  # type: ignore[misc]  # as above
        except Exception as error:
            if (whole := _without_streaming_after(self, error)) is None:
                raise
        return await whole.ainvoke(input, *args, **kwargs)


class _Whole:
    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        result: ChatResult = super()._generate(*args, **kwargs)  # type: ignore[misc]  # as above
        _drop_if_abandoned()
        return result


class _Sync:
    def _stream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        chunks: Iterator[ChatGenerationChunk] = super()._stream(messages, *args, **kwargs)  # type: ignore[misc]  # it has
        incoming = _incoming(self, messages, kwargs)
        try:
            for chunk in chunks:
                _drop_if_abandoned()
                yield from incoming.take(chunk)
                if incoming.over:
                    break
        finally:
            if close := getattr(chunks, "close", None):
                close()
        _drop_if_abandoned()
        yield from incoming.end()


class _Async:
    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        chunks: AsyncIterator[ChatGenerationChunk] = super()._astream(messages, *args, **kwargs)  # type: ignore[misc]  # as above
        incoming = _incoming(self, messages, kwargs)
        try:
            async for chunk in chunks:
                for given in incoming.take(chunk):
                    yield given
                if incoming.over:
                    break
        except (Exception, asyncio.CancelledError):
            # A cancelled call may raise another error; it was cancelled by its watch.
            if not incoming.closed():
                raise
        finally:
            if close := getattr(chunks, "aclose", None):
                await close()
        for given in incoming.end():
            yield given


def _incoming(model: object, messages: list[BaseMessage], options: dict[str, Any]) -> Incoming:
    # A model whose `bind_tools` builds a new one of its class has no controls: then only its watch cuts.
    return Incoming(getattr(model, _CONTROLS, None), messages, options.get("tools"), WATCH.get())


def _drop_if_abandoned() -> None:
    watch = WATCH.get()
    if watch is not None and watch.abandoned:
        raise Abandoned


def _stream_layers(model: type[BaseChatModel]) -> tuple[type, ...]:
    """The mixins of the guard that fit the model: one for each streaming method that it implements."""
    sync = (_Sync,) if model._stream is not BaseChatModel._stream else ()
    return (*sync, _Async) if model._astream is not BaseChatModel._astream else sync


@lru_cache(maxsize=256)
def _guarded_class(model: type[BaseChatModel], *, sends: bool, streams: bool) -> type[BaseChatModel]:
    # By the name of the model's own class, which traces show and by which some providers are known.
    names = {"__module__": model.__module__, "__qualname__": model.__qualname__, "__doc__": model.__doc__}
    metaclass: Any = type(model)
    layers = (_Whole, *(_stream_layers(model) if streams else ()), model)
    bases = (_Sending, *layers) if sends else layers
    made: type[BaseChatModel] = metaclass(model.__name__, bases, names)
    return made
