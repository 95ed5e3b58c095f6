"""The prompt as the model gets it: within its budget, in the form that a LangChain chat model takes as it is.

A list it would first turn into messages and validate, one by one, each turn the whole of it.

"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.messages.utils import count_tokens_approximately as tokens
from langchain_core.prompt_values import ChatPromptValue
from langchain_core.runnables import Runnable, RunnableBinding

from signoff.graph.prompt.compaction import cut
from signoff.graph.prompt.prompt import beyond, build_view, last_turn, view_size
from signoff.graph.state import AgentState
from signoff.nodes.kit import Run
from signoff.nodes.node import Part


@dataclass(frozen=True, slots=True)
class Shown:
    """A view, its tokens by estimate, and those that the provider counts on top of an estimate."""

    view: list[BaseMessage]
    size: int
    beyond: int


@dataclass(frozen=True)
class Cut:
    """The view with the largest results of its last turn cut, their full texts kept in files."""

    view: list[BaseMessage]
    most: int

    def do(self, run: Run) -> list[BaseMessage]:
        return cut(self.view, last_turn(self.view), self.most, lambda name: keeping(run, name))

    async def ado(self, run: Run) -> list[BaseMessage]:
        return await asyncio.to_thread(self.do, run)


def show(state: AgentState, run: Run) -> Part[Shown]:
    """A part of a node: the view of the next model call."""
    reader = run.reader(state)
    view = build_view(state, reader, run.system_prompt, run.kit.texts)
    size, most = (
        view_size(state, reader, run.system_prompt, run.kit.texts),
        budget(state, state.get("task", ""), run),
    )
    extra = beyond(reader, most)
    if size + extra > most and (whole := tokens(view)) + extra > most:
        view = yield Cut(view, most - extra)
        size -= whole - tokens(view)
    return Shown(view, size, extra)


def is_full(state: AgentState, run: Run) -> bool:
    """Whether the view is over its budget, before anything in it is cut."""
    reader, most = run.reader(state), budget(state, state.get("task", ""), run)
    return view_size(state, reader, run.system_prompt, run.kit.texts) + beyond(reader, most) > most


def budget(state: AgentState, task: str, run: Run) -> int:
    """The most tokens of a view of this task: less than usual once the provider found one too long."""
    too_long = state.get("too_long")
    # The provider's own count may be far from the estimate that the usual budget was made of.
    squeezed = too_long["budget"] if too_long and too_long["task"] == task else run.kit.view_tokens
    return min(run.kit.view_tokens, squeezed)


def keeping(run: Run, name: str) -> Callable[[str], str]:
    """Keeps the full text of a result: where a tool of the graph can read it, if one says so by its `keep`
    (those of a workspace), else in the folder for outputs."""
    tools = run.kit.toolbox.tools.values()
    own = next((keep for tool in tools if (keep := getattr(tool, "keep", None))), None)
    found: Callable[[str], str] = (own or _in_outputs(run))(name)
    return found


def _in_outputs(run: Run) -> Callable[[str], Callable[[str], str]]:
    return run.outputs.keep


_STREAMED_BY = ("_stream", "_astream")
_ASKED_BY = ("invoke", "ainvoke", "stream", "astream")


# Pydantic's record of the fields that were given: one for all views.
_GIVEN = {"messages"}


class View(ChatPromptValue):
    """A view that is made for one call of a model: nobody else holds it, so it is not copied."""

    messages: list[BaseMessage]

    def to_messages(self) -> list[BaseMessage]:
        return self.messages


def prompt(model: Runnable[LanguageModelInput, BaseMessage], view: list[BaseMessage]) -> LanguageModelInput:
    """`view` for `model`: the list itself where something else than LangChain's own code might look at it."""
    while isinstance(model, RunnableBinding):
        model = model.bound
    own = isinstance(model, BaseChatModel) and _asked_as_usual(type(model))
    # Without validation: what is in a view are messages already.
    return View.model_construct(_GIVEN, messages=view) if own else view


def streams(model: Runnable[LanguageModelInput, BaseMessage]) -> bool:
    """Whether there is more to a stream of `model` than its whole reply at once."""
    while isinstance(model, RunnableBinding):
        model = model.bound
    if not isinstance(model, BaseChatModel) or not _asked_as_usual(type(model)):
        return True
    return any(getattr(type(model), name) is not getattr(BaseChatModel, name) for name in _STREAMED_BY)


def in_loops(model: Runnable[LanguageModelInput, BaseMessage]) -> bool:
    """Whether `model` has an own way to be asked in an event loop; else LangChain asks it in a thread of the
    loop's pool, where nothing can end a call that hangs, and the process cannot end before it."""
    while isinstance(model, RunnableBinding):
        model = model.bound
    if not isinstance(model, BaseChatModel) or not _asked_as_usual(type(model)):
        return True
    inner = getattr(model, "model", None)
    if isinstance(inner, BaseChatModel):
        return in_loops(inner)
    name = "_astream" if streams(model) and not model.disable_streaming else "_agenerate"
    return getattr(type(model), name) is not getattr(BaseChatModel, name)


def _asked_as_usual(model: type[BaseChatModel]) -> bool:
    return all(getattr(model, name) is getattr(BaseChatModel, name) for name in _ASKED_BY)
