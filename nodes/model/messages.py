"""The messages sent to the model, and the reply it returns.

The prompt is kept within its budget, in the form that a LangChain chat model takes as it is: LangChain would
convert and validate the messages of a list one by one, the whole list in each turn. The calls of a reply get
ids of their own.
"""

import asyncio
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.messages.utils import count_tokens_approximately as tokens
from langchain_core.prompt_values import ChatPromptValue
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig

from signoff.graph.history.replies import Reply, with_call_words
from signoff.graph.prompt.compaction import truncate
from signoff.graph.prompt.prompt import (
    beyond,
    build_prompt,
    last_turn,
    prompt_size,
)
from signoff.graph.state import AgentState
from signoff.nodes.model.models import Keeper, Streaming
from signoff.nodes.node import NO_BUDGET, NodeContext
from signoff.nodes.requests import Part


@dataclass(frozen=True, slots=True)
class FittedPrompt:
    """A prompt, its estimated tokens, and the tokens that the provider counts beyond the estimate.

    own: the user's part of the system prompt.
    """

    messages: list[BaseMessage]
    size: int
    beyond: int
    own: str | SystemMessage = ""


@dataclass(frozen=True)
class Truncate:
    """Truncates the largest results in the last turn of a prompt, and keeps their full texts in files."""

    prompt: list[BaseMessage]
    most: int

    def do(self, run: NodeContext) -> list[BaseMessage]:
        return truncate(self.prompt, last_turn(self.prompt), self.most, lambda name: keeping(run, name))

    async def ado(self, run: NodeContext) -> list[BaseMessage]:
        return await asyncio.to_thread(self.do, run)


def show(state: AgentState, run: NodeContext, *, whole: bool = False) -> Part[FittedPrompt]:
    """A part of a node: the prompt of the next model call. whole: even if it is over its budget."""
    reader, told, texts = run.reader(state), run.system_prompt, run.deps.texts
    size, most = prompt_size(state, reader, told, texts), budget(state, state.get("task", ""), run)
    prompt, extra = build_prompt(state, reader, told, texts), beyond(reader, most)
    if not whole and size + extra > most and (all_of_it := tokens(prompt)) + extra > most:
        prompt = yield Truncate(prompt, most - extra)
        size -= all_of_it - tokens(prompt)
    return FittedPrompt(prompt, size, extra, run.own_prompt)


def options_of(model: Runnable[Any, Any]) -> Mapping[str, Any]:
    """The options that are bound to `model`, its tools among them."""
    return model.kwargs if isinstance(model, RunnableBinding) else {}


def is_full(state: AgentState, run: NodeContext) -> bool:
    """Whether the prompt is over its budget, before anything in it is cut."""
    if run.deps.prompt_tokens >= NO_BUDGET:
        return False
    reader, most = run.reader(state), budget(state, state.get("task", ""), run)
    return prompt_size(state, reader, run.system_prompt, run.deps.texts) + beyond(reader, most) > most


def budget(state: AgentState, task: str, run: NodeContext) -> int:
    """The maximum tokens of a prompt in this task: less than usual once the provider rejected one as too
    long."""
    too_long = state.get("too_long")
    # The provider's count may differ much from the estimate on which the usual budget is based.
    squeezed = too_long["budget"] if too_long and too_long["task"] == task else run.deps.prompt_tokens
    return min(run.deps.prompt_tokens, squeezed)


def keeping(run: NodeContext, name: str) -> Callable[[str], str]:
    """Keeps the full text of a result: where a tool of the graph can read it, if a tool has a `keep` (as
    those of a workspace do), else in the folder for outputs."""
    tools = run.deps.toolbox.tools.values()
    own = next((keep for tool in tools if (keep := getattr(tool, "keep", None))), None)
    found: Callable[[str], str] = (own or run.outputs.keep)(name)
    return found


def bind_to_thread(state: AgentState, run: NodeContext) -> Callable[[Any], Runnable[Any, Any]]:
    """Binds the model to this thread, if the model keeps something per thread."""
    acting, messages, keeps = state.get("acting"), state["messages"], run.deps.keeper is not None

    def in_place(model: Any) -> Runnable[Any, Any]:
        found: Runnable[Any, Any] = model
        return model._in_thread(acting, messages) if keeps and isinstance(model, Keeper) else found

    return in_place


_STREAMED_BY = ("_stream", "_astream")
_ASKED_BY = ("invoke", "ainvoke", "stream", "astream")
_TOLD_BY = ("on_llm_new_token", "on_stream_event")
_SILENT = (BaseCallbackHandler, AsyncCallbackHandler)


# Pydantic's set of explicitly set fields: one for all prompts.
_GIVEN = {"messages"}


class PromptInput(ChatPromptValue):
    """A prompt made for one model call: nothing else refers to it, so it is not copied."""

    messages: list[BaseMessage]

    def to_messages(self) -> list[BaseMessage]:
        return self.messages


def model_input(
    model: Runnable[LanguageModelInput, BaseMessage], prompt: list[BaseMessage]
) -> LanguageModelInput:
    """`prompt` for `model`: the plain list if code other than LangChain's own might inspect it."""
    model = _inmost(model)
    own = isinstance(model, BaseChatModel) and _has_standard_call(type(model))
    # Without validation: what is in a prompt are messages already.
    return PromptInput.model_construct(_GIVEN, messages=prompt) if own else prompt


def is_streamed(model: Runnable[Any, Any], policy: Streaming, config: RunnableConfig) -> bool:
    """Whether a call of `model` in this run is a stream."""
    if policy == "never" or not streams(model):
        return False
    return policy == "always" or _asks_for_stream(model) or is_listened_to(model, config)


def streams(model: Runnable[Any, Any]) -> bool:
    """Whether `model` really streams, instead of returning its whole reply as one chunk."""
    model = _inmost(model)
    if not isinstance(model, BaseChatModel) or not _has_standard_call(type(model)):
        return True
    return _has_stream(type(model))


@lru_cache(maxsize=256)
def _has_stream(model: type[BaseChatModel]) -> bool:
    return any(getattr(model, name) is not getattr(BaseChatModel, name) for name in _STREAMED_BY)


def in_loops(model: Runnable[Any, Any], *, streamed: bool) -> bool:
    """Whether `model` has its own async implementation; else LangChain calls it in the loop's thread pool,
    where a hanging call cannot be ended and keeps the process alive."""
    model = _inmost(model)
    if not isinstance(model, BaseChatModel) or not _has_standard_call(type(model)):
        return True
    # Not by `getattr`, for which pydantic makes an error each time where there is none.
    inner = vars(model).get("model")
    if isinstance(inner, BaseChatModel):
        return in_loops(inner, streamed=streamed and streams(inner))
    name = "_astream" if streamed and not model.disable_streaming else "_agenerate"
    return getattr(type(model), name) is not getattr(BaseChatModel, name)


def _inmost(model: Runnable[Any, Any]) -> Runnable[Any, Any]:
    """The innermost model that `model` wraps."""
    while isinstance(model, RunnableBinding):
        model = model.bound
    return model


@lru_cache(maxsize=256)
def _has_standard_call(model: type[BaseChatModel]) -> bool:
    """Whether a call of such a model is LangChain's own code."""
    return all(getattr(model, name) is getattr(BaseChatModel, name) for name in _ASKED_BY)


def _asks_for_stream(model: Runnable[Any, Any]) -> bool:
    """Whether the model was made to stream in any case."""
    model = _inmost(model)
    return isinstance(model, BaseChatModel) and bool(vars(model).get("streaming"))


def is_listened_to(model: Runnable[Any, Any], config: RunnableConfig) -> bool:
    """Whether something consumes the chunks of a reply."""
    model = _inmost(model)
    of_model = model.callbacks if isinstance(model, BaseChatModel) else None
    # A list of handlers, or a manager that has one.
    every: list[Any] = [config.get("callbacks"), of_model]
    handlers = (handler for each in every for handler in getattr(each, "handlers", each) or ())
    return any(map(_takes_pieces, handlers))


def _takes_pieces(handler: object) -> bool:
    # Imported here, since these are slow to import; whoever uses them has them loaded.
    from langchain_core.tracers.base import AsyncBaseTracer, BaseTracer
    from langchain_core.tracers.log_stream import LogStreamCallbackHandler

    tracer = isinstance(handler, BaseTracer | AsyncBaseTracer)
    if tracer and not isinstance(handler, LogStreamCallbackHandler):
        # It records the chunks as they arrive, and the whole reply in any case.
        return False
    silent = [getattr(kind, name, None) for kind in _SILENT for name in _TOLD_BY]
    return any(getattr(type(handler), name, None) not in silent for name in _TOLD_BY)


def named_calls(reply: Reply, taken: AbstractSet[str]) -> AIMessage | None:
    """The reply with a unique id, and the name of its tool, for every open call; None if each has both
    already.

    Providers repeat "call_0" in every reply, or give no id. The new id is derived from the reply's id and the
    position of the call, so that repeating this step gives the same one. A slightly misspelled name becomes
    the tool's before anyone judges the call: a middleware that asks a person about `pay` would let `Pay`
    pass.
    """
    seen = set[str]()
    fresh: dict[int, dict[str, str]] = {}
    names = [call.name for call in reply.calls] if reply.plain else reply.names
    for call, written in zip(reply.calls, names, strict=True):
        new = dict[str, str]()
        if reply.open(call) and (not call.id or call.id in seen or call.id in taken):
            new["id"] = reply.own_id(call)
        if reply.open(call) and call.known and call.name != written:
            new["name"] = call.name
        if new:
            fresh[call.index] = new
        seen.add(new.get("id", call.id))
    return with_call_words(reply.message, fresh) if fresh else None
