"""The graph that `langgraph dev` serves and Studio shows, configured by environment variables.

    SIGNOFF_MODEL as `--model` of the command line; the embedded model when it is not set OPENAI_API_KEY,
    OPENAI_BASE_URL for a model behind an OpenAI-compatible address; another provider's model (`anthropic:…`)
    uses that provider's variable SIGNOFF_WORKSPACE the folder that the model works in; the current one when
    it is not set SIGNOFF_TOOLS, SIGNOFF_APPROVE, SIGNOFF_PROTOCOL, SIGNOFF_CONSTITUTION as the options of
    `signoff run`

It has no checkpointer and no store: the server supplies them, through `signoff.server`.
"""

import atexit
import os
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import StateSnapshot, StateUpdate

from signoff import Graph, SetupError, SignoffError
from signoff.front.settings import Given, settle
from signoff.front.working import graph_of, policy_of, working_tools
from signoff.graph.compiled.graph import JournalledGraph
from signoff.graph.errors import ApprovalWarning
from signoff.graph.state import Output
from signoff.models.choose import Chosen, choose_model
from signoff.session.status import config_of, read_status

__all__ = ["compose", "served"]


class MissingModel(BaseChatModel):
    """A placeholder for a model that cannot be created, so that the graph can be drawn; every call raises
    SetupError.

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


class RefusedRun(ValueError):
    """A Signoff error for an impossible run, as an exception type whose message the server passes on; of
    other types it reports only the name."""


SHOWN = ("messages", "outcome", "decision", "phases", "digest", "acting")
"""The channels that a server's users see; the others are the machine's own."""
TOLD = ("messages", "outcome", "decision")
"""The channels among them that a run reports, during the run and at its end."""
_OWN = Output.__annotations__.keys() | TOLD
_whole: ContextVar[bool] = ContextVar("signoff_whole_state", default=False)
_enters: ContextVar[bool] = ContextVar("signoff_run_enters_thread", default=False)
"""Whether this task enters its thread with a run, which holds it already."""


class ServedGraph(JournalledGraph):
    """The graph as a server runs it.

    A server's users see the channels in `SHOWN`, and no update that changes none of them.

    A server that was killed restarts its unfinished runs, each with its original input; applied twice, a
    message would begin a second task. So a run that has left a checkpoint continues from the current state of
    its thread. An edit of the state holds the thread, as a run does.
    """

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        with _refusals():
            async with aclosing(super().astream(input, config, **kwargs)) as stream:  # type: ignore[type-var]  # it is a generator
                async for item in stream:
                    if not _changes_nothing(item):
                        yield item

    @property
    def stream_channels_asis(self) -> str | Sequence[str]:
        return super().stream_channels_asis if _whole.get() else [*SHOWN, *_users(self)]

    def get_whole_state(self, config: RunnableConfig) -> StateSnapshot:
        token = _whole.set(True)
        try:
            return self.get_state(config)
        finally:
            _whole.reset(token)

    async def aget_whole_state(self, config: RunnableConfig) -> StateSnapshot:
        token = _whole.set(True)
        try:
            return await self.aget_state(config)
        finally:
            _whole.reset(token)

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
                input = read_status(self, thread_id, await self.aget_whole_state(place)).go_on
        async with aclosing(super().astream_held(input, config, **kwargs)) as stream:
            async for item in stream:
                yield item

    def _entry(self, given: Any, config: RunnableConfig | None, context: Any) -> Generator[Any, Any, Any]:
        _enters.set(True)
        try:
            return (yield from super()._entry(given, config, context))
        finally:
            _enters.set(False)

    async def abulk_update_state(
        self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]
    ) -> RunnableConfig:
        if _enters.get():
            return await super().abulk_update_state(config, supersteps)
        with _refusals():
            return await super().abulk_update_state(config, supersteps)


def _changes_nothing(item: Any) -> bool:
    """Whether a stream item is an update without a change to any reported channel."""
    if not (
        isinstance(item, tuple) and len(item) > 1 and item[-2] == "updates" and isinstance(item[-1], dict)
    ):
        return False
    return not any(written for written in item[-1].values())


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except SignoffError as error:
        raise RefusedRun(str(error)) from error


def _run_id(config: RunnableConfig | None) -> str | None:
    """The id of the server's run; None outside of a server."""
    found = (config or {}).get("configurable", {}).get("run_id")
    return None if found is None else str(found)


def compose(env: Mapping[str, str]) -> Graph:
    """The graph with the model, workspace, tools, approvals and protocol that `env` names. Loads no weights
    and calls no server.

    Without SIGNOFF_TOOLS it has the file tools (with the tagged protocol also Python), but no shell, since
    anyone who reaches the port may use it. Raises SetupError for invalid settings. A model that cannot be
    created (for lack of a key, for example) does not raise here: a task then ends with the error
    `model_error`, which says what is missing.
    """
    given = _settings_in(env)
    settings = settle(given, None, env)
    try:
        chosen = choose_model(settings.model, settings.base_url, env)
    except SetupError as error:
        chosen = Chosen(MissingModel(why=str(error)), "", nullcontext())
    held = ExitStack()
    atexit.register(held.close)
    tools = held.enter_context(working_tools(settings, _unheard))
    with warnings.catch_warnings():
        # The server supplies a checkpointer.
        warnings.simplefilter("ignore", ApprovalWarning)
        return served(graph_of(settings, chosen, tools, None, policy_of(settings, tools, None), ()))


def _settings_in(env: Mapping[str, str]) -> Given:
    """The settings in `env`, in the form of command line options."""
    protocol, constitution = env.get("SIGNOFF_PROTOCOL") or None, env.get("SIGNOFF_CONSTITUTION")
    return Given(
        workspace=Path(env.get("SIGNOFF_WORKSPACE") or os.curdir),
        tools=env.get("SIGNOFF_TOOLS") or (None if protocol == "tagged" else "files"),
        approve=env.get("SIGNOFF_APPROVE") or None,
        protocol=protocol,
        constitution=Path(constitution) if constitution else None,
    )


def _unheard(_: bytes) -> None:
    """Discards the output of a running command."""


def served(graph: Graph) -> Graph:
    """Turns a graph from `build_graph`, without a saver, into a `ServedGraph` for `langgraph.json`."""
    # Sets the class of a compiled graph, as `build_graph` does.
    graph.__class__ = ServedGraph
    graph.output_channels = [*TOLD, *_users(graph)]
    return graph


def _users(graph: Graph) -> list[str]:
    """The user's own channels in the output."""
    return [name for name in graph.builder.schemas[graph.builder.output_schema] if name not in _OWN]


graph = compose(os.environ)
