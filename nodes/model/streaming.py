"""Whether a model is asked for a stream or for its whole reply at once.

A stream costs more CPU, and can be ended: the inner guard needs one. A reply that comes at once is bounded by
time alone.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Literal

from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig

from signoff.graph.inside.private import share_private

Streaming = Literal["always", "auto", "never"]
"""When a graph streams; see `build_graph`."""

_STREAMED_BY = ("_stream", "_astream")
_ASKED_BY = ("invoke", "ainvoke", "stream", "astream")
_TOLD_BY = ("on_llm_new_token", "on_stream_event")
_SILENT = (BaseCallbackHandler, AsyncCallbackHandler)


def is_streamed(model: Runnable[Any, Any], policy: Streaming, config: RunnableConfig) -> bool:
    """Whether a call of `model` in this run is a stream."""
    if policy == "never" or not streams(model):
        return False
    return policy == "always" or _asks_for_stream(model) or _listened(model, config)


def streams(model: Runnable[Any, Any]) -> bool:
    """Whether there is more to a stream of `model` than its whole reply at once."""
    model = inmost(model)
    if not isinstance(model, BaseChatModel) or not asked_as_usual(type(model)):
        return True
    return any(getattr(type(model), name) is not getattr(BaseChatModel, name) for name in _STREAMED_BY)


def in_loops(model: Runnable[Any, Any], *, streamed: bool) -> bool:
    """Whether `model` has an own way to be asked in an event loop; else LangChain asks it in a thread of the
    loop's pool, where nothing can end a call that hangs, and the process cannot end before it."""
    model = inmost(model)
    if not isinstance(model, BaseChatModel) or not asked_as_usual(type(model)):
        return True
    # Not by `getattr`, for which pydantic makes an error each time where there is none.
    inner = vars(model).get("model")
    if isinstance(inner, BaseChatModel):
        return in_loops(inner, streamed=streamed and streams(inner))
    name = "_astream" if streamed and not model.disable_streaming else "_agenerate"
    return getattr(type(model), name) is not getattr(BaseChatModel, name)


def without_streaming(model: BaseChatModel) -> BaseChatModel:
    """A copy of `model`, and of the model that it wraps, that never streams: as it is, it would as soon as
    somebody listens."""
    inner, update = vars(model).get("model"), dict[str, Any](disable_streaming=True)
    if isinstance(inner, BaseChatModel):
        update["model"] = without_streaming(inner)
    twin = model.model_copy(update=update)
    share_private(twin, model)
    return twin


def inmost(model: Runnable[Any, Any]) -> Runnable[Any, Any]:
    """The model that `model` is bound to."""
    while isinstance(model, RunnableBinding):
        model = model.bound
    return model


@lru_cache(maxsize=256)
def asked_as_usual(model: type[BaseChatModel]) -> bool:
    """Whether a call of such a model is LangChain's own code."""
    return all(getattr(model, name) is getattr(BaseChatModel, name) for name in _ASKED_BY)


def _asks_for_stream(model: Runnable[Any, Any]) -> bool:
    """Whether the model was made to stream in any case."""
    while isinstance(model, RunnableBinding):
        if model.kwargs.get("stream"):
            return True
        model = model.bound
    return isinstance(model, BaseChatModel) and bool(vars(model).get("streaming"))


def _listened(model: Runnable[Any, Any], config: RunnableConfig) -> bool:
    """Whether somebody waits for the pieces of a reply."""
    return any(map(_takes_pieces, _handlers(model, config)))


def _handlers(model: Runnable[Any, Any], config: RunnableConfig) -> Iterator[object]:
    yield from _of(config.get("callbacks"))
    while isinstance(model, RunnableBinding):
        yield from _of(model.config.get("callbacks"))
        model = model.bound
    if isinstance(model, BaseChatModel):
        yield from _of(model.callbacks)


def _of(callbacks: Any) -> Iterable[object]:
    return getattr(callbacks, "handlers", callbacks) or ()


def _takes_pieces(handler: object) -> bool:
    return isinstance(handler, BaseCallbackHandler) and _overrides(type(handler))


@lru_cache(maxsize=256)
def _overrides(handler: type[BaseCallbackHandler]) -> bool:
    # Not at the top: these take time to import, and are there when somebody uses them.
    from langchain_core.tracers.base import AsyncBaseTracer, BaseTracer
    from langchain_core.tracers.log_stream import LogStreamCallbackHandler

    if issubclass(handler, BaseTracer | AsyncBaseTracer) and not issubclass(
        handler, LogStreamCallbackHandler
    ):
        # A tracer notes the pieces when they come, and the whole reply in any case.
        return False
    own = [getattr(kind, name, None) for kind in _SILENT for name in _TOLD_BY]
    return any(getattr(handler, name, None) not in own for name in _TOLD_BY)
