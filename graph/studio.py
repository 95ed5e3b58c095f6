"""The graph that `langgraph dev` serves and Studio shows, set up by the environment.

    SIGNOFF_MODEL       as `--model` of the command line; the embedded model when it is not set
    OPENAI_API_KEY, OPENAI_BASE_URL    for a model behind an OpenAI-compatible address
    SIGNOFF_WORKSPACE   the folder that the model works in; the current one when it is not set

It has no checkpointer and no store: the server brings them, by `signoff.server`.
"""

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import StateUpdate

from signoff.graph.build import Graph, build_graph
from signoff.graph.durable import JournalledGraph, in_thread
from signoff.graph.errors import SetupError, SignoffError
from signoff.models.choose import EMBEDDED, choose_model
from signoff.session.standing import config_of, standing_of
from signoff.tools.files import workspace_tools


class MissingModel(BaseChatModel):
    """Stands where a model cannot be made, so that the graph can be drawn; every call raises SetupError.

    why: what is missing and what to do about it.
    """

    why: str
    model_name: str = ""

    @property
    def _llm_type(self) -> str:
        return "missing"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        raise SetupError(self.why)


class Refused(ValueError):
    """What Signoff says of a run that cannot be, as a kind of error whose words a server passes on; of others
    it tells only the name."""


class ServedGraph(JournalledGraph):
    """The graph as a server runs it.

    A server that was killed starts its unfinished runs again, each with its first input; taken twice, a
    message would begin a second task. So a run that has left a checkpoint goes on from where its thread
    stands now. An edit of the state holds the thread like a run does.
    """

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        with _told():
            async with aclosing(super().astream(input, config, **kwargs)) as stream:  # type: ignore[type-var]  # it is a generator
                async for item in stream:
                    yield item

    def astream_held(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncGenerator[Any, None]:
        run = _run_id(config)
        if run is None or config is None:
            return super().astream_held(input, config, **kwargs)
        return self._going_on(run, input, config, **kwargs)

    async def _going_on(
        self, run: str, input: Any, config: RunnableConfig, **kwargs: Any
    ) -> AsyncGenerator[Any, None]:
        saver, thread_id = self.checkpointer, str(config.get("configurable", {}).get("thread_id"))
        place = config_of(thread_id)
        if isinstance(saver, BaseCheckpointSaver):
            taken = [found async for found in saver.alist(place, filter={"run_id": run}, limit=1)]
            if taken:
                input = standing_of(self, thread_id, await self.aget_state(place)).go_on
        async with aclosing(super().astream_held(input, config, **kwargs)) as stream:
            async for item in stream:
                yield item

    async def abulk_update_state(
        self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]
    ) -> RunnableConfig:
        with _told():
            async with in_thread(self.runner(config)):
                return await super().abulk_update_state(config, supersteps)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except SignoffError as error:
        raise Refused(str(error)) from error


def _run_id(config: RunnableConfig | None) -> str | None:
    """The id of the server's run; None outside of a server."""
    found = (config or {}).get("configurable", {}).get("run_id")
    return None if found is None else str(found)


def compose(env: Mapping[str, str]) -> Graph:
    """The graph with the model and the workspace that `env` names. Loads no weights and calls no server.

    Raises SetupError when the workspace does not exist. A model that cannot be made (no key, say) is no
    obstacle here: a task then ends with the error `model_error` that says what is missing.
    """
    tools = workspace_tools(env.get("SIGNOFF_WORKSPACE") or os.curdir)
    name, base_url = env.get("SIGNOFF_MODEL") or EMBEDDED, env.get("OPENAI_BASE_URL") or None
    try:
        chosen = choose_model(name, base_url, env)
    except SetupError as error:
        return served(build_graph(MissingModel(why=str(error)), tools))
    return served(build_graph(chosen.model, tools, system_prompt=chosen.prompt))


def served(graph: Graph) -> Graph:
    """A graph of `build_graph`, without a saver, as `langgraph.json` should name it: see `ServedGraph`."""
    # As `build_graph` sets the class of what LangGraph compiles.
    graph.__class__ = ServedGraph
    return graph


graph = compose(os.environ)
