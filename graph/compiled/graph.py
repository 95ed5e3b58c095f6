"""The compiled graph: every step is saved before the next one begins, and one runner holds a thread.

LangGraph's savers have no locking: of three runs of one thread at once each would make its own fork, and the
last one to write would win. A checkpointer with a `runner` of its own (those of `sqlite_storage` and
`postgres_storage`) keeps other processes out, too; with any other one this holds within the process.
"""

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    aclosing,
    asynccontextmanager,
    closing,
    contextmanager,
    nullcontext,
    suppress,
)
from functools import partial
from typing import Any, Generic, Literal, cast, overload
from weakref import WeakKeyDictionary

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import DEFAULT_RECURSION_LIMIT, merge_configs
from langchain_core.runnables.graph import Graph as Drawing
from langgraph.channels.base import BaseChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.constants import START
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Durability, GraphOutput, StateSnapshot, StateUpdate

from signoff.graph.compiled.inputs import (
    EXAMPLE,
    Entry,
    channels_of,
    check_channels,
    check_config,
    check_context,
    check_input,
    check_pauses,
    entry,
    is_unsettled,
    nested,
    no_thread,
    with_channels,
    with_input,
)
from signoff.graph.errors import SetupError, StorageError, ThreadBusy, ThreadLost, quote_id
from signoff.graph.foreign import checked_thread_id
from signoff.graph.inside.private import has_saver
from signoff.graph.inside.speed import with_light_runtime
from signoff.graph.machine import FIRST
from signoff.graph.outcome import ResultT, RunResult
from signoff.graph.schemas.state import checked_input
from signoff.graph.state import AgentState, Output
from signoff.nodes.node import Node
from signoff.nodes.requests import Operation, acarry_out, carry_out
from signoff.tools.processes.held import end_graph

# A runner that is just letting go must not send the next one away.
GRACE_SECONDS = 0.2

_lock = threading.Lock()
_held: WeakKeyDictionary[BaseCheckpointSaver[Any], set[str]] = WeakKeyDictionary()


def thread_to_hold(checkpointer: Any, own: RunnableConfig | None, given: RunnableConfig | None) -> str | None:
    """The id of the thread that a run with this configuration must hold; None when it must hold none.

    Raises SetupError for what cannot be the id of a thread, held or not.
    """
    check_config(given)
    configurable = merge_configs(own, given).get("configurable", {})
    saved = isinstance(checkpointer, BaseCheckpointSaver)
    # The saver of a nested run is its parent's.
    if has_saver(configurable) or not (saved or "thread_id" in configurable):
        return None
    thread_id = configurable.get("thread_id")
    if thread_id is None and not saved:
        return None
    if "thread_id" not in configurable:
        # Within another run, LangGraph takes the thread of that one.
        if not configurable and nested():
            return None
        raise no_thread(configurable)
    name = checked_thread_id(thread_id)
    return name if saved else None


def runner(checkpointer: BaseCheckpointSaver[Any], thread_id: str) -> AbstractContextManager[None]:
    """Holds the thread while the context lasts. Raises ThreadBusy when another runner holds it."""
    own = getattr(checkpointer, "runner", None)
    found: AbstractContextManager[None] = (own or _in_process(checkpointer))(thread_id)
    return found


@contextmanager
def storage_errors() -> Iterator[None]:
    """Raises StorageError in place of SQLite's errors for a full disk, a locked database and the like."""
    try:
        yield
    except sqlite3.Error as error:
        if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
            raise closed() from error
        raise StorageError(
            f"The database failed ({error}); what was saved before is kept, and the thread goes on when the "
            "database can be used again."
        ) from error


def closed() -> StorageError:
    """The error for a graph that is used after its storage was closed."""
    return StorageError(
        "The storage of this graph is closed: its `with` block has ended. Use the graph within it, or open "
        "the storage again and build the graph again."
    )


def busy(thread_id: str) -> ThreadBusy:
    """The error for a second runner."""
    return ThreadBusy(
        f"Thread {quote_id(thread_id)} is running elsewhere; wait until it ends, or pause it there."
    )


def lost(thread_id: str) -> ThreadLost:
    """The error for a runner whose connection was lost and whose thread another one has taken over."""
    return ThreadLost(
        f"Another runner has taken thread {quote_id(thread_id)} over; this one has stopped, nothing is lost."
    )


def _in_process(checkpointer: BaseCheckpointSaver[Any]) -> Any:
    @contextmanager
    def hold(thread_id: str) -> Iterator[None]:
        until = time.monotonic() + GRACE_SECONDS
        while not _try_hold(checkpointer, thread_id):
            if time.monotonic() > until:
                raise busy(thread_id)
            time.sleep(0.02)
        try:
            yield
        finally:
            with _lock:
                _held[checkpointer].discard(thread_id)

    return hold


def _try_hold(checkpointer: BaseCheckpointSaver[Any], thread_id: str) -> bool:
    with _lock:
        held = _held.setdefault(checkpointer, set())
        if thread_id in held:
            return False
        held.add(thread_id)
        return True


class DurableGraph(CompiledStateGraph[AgentState, Any, Any, Output], Generic[ResultT]):
    """Saves every step before the next one begins (`durability="sync"`), unless a weaker durability is
    passed.

    Holds the thread while it runs it (LangGraph's own default saves in the background and lets several runs
    of one thread overwrite each other): a second run at the same time raises ThreadBusy.
    """

    def close(self) -> None:
        """Ends what its tools hold open (shells, interpreters, servers of MCP) and no other graph uses.

        A later run starts them again.
        """
        end_graph(self.builder)

    def get_graph(self, config: RunnableConfig | None = None, *, xray: int | bool = False) -> Drawing:
        """LangGraph's drawing of the machine. Its state `execute` names the delegates in its metadata; with
        `xray` their machines are drawn, too."""
        from signoff.graph.compiled.drawn import draw  # only a drawing needs it

        return draw(self, config, xray)

    async def aget_graph(self, config: RunnableConfig | None = None, *, xray: int | bool = False) -> Drawing:
        # The graph of a delegate may be made by a function of the user's.
        return await asyncio.to_thread(self.get_graph, config, xray=xray)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """What a notebook shows: the machine. LangGraph's own has a server on the internet draw it."""
        from signoff.graph.drawing.diagram import svg  # only a notebook needs it

        return {"text/plain": f"{type(self).__name__} {self.name!r}", "image/svg+xml": svg()}

    # LangGraph's overloads of these two tell the return type by `version`, and end in one that says nothing.
    @overload  # type: ignore[override]  # as above
    def invoke(
        self, input: Any, config: RunnableConfig | None = None, *, version: Literal["v2", "v3"], **kwargs: Any
    ) -> Any: ...
    @overload
    def invoke(
        self, input: Any, config: RunnableConfig | None = None, *, stream_mode: Any, **kwargs: Any
    ) -> Any: ...
    @overload
    def invoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> RunResult[ResultT]: ...
    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        if not _asks_for_values(kwargs):
            return super().invoke(input, config, **kwargs, shown=False)
        return self._result(super().invoke(input, config, **kwargs, shown=False, version="v2"))

    @overload  # type: ignore[override]  # as above
    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, *, version: Literal["v2", "v3"], **kwargs: Any
    ) -> Any: ...
    @overload
    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, *, stream_mode: Any, **kwargs: Any
    ) -> Any: ...
    @overload
    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> RunResult[ResultT]: ...
    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        if not _asks_for_values(kwargs):
            return await super().ainvoke(input, config, **kwargs, shown=False)
        return self._result(await super().ainvoke(input, config, **kwargs, shown=False, version="v2"))

    def _result(self, output: GraphOutput[Any]) -> Any:
        """What the older form of `invoke` returns, with the type of its result."""
        if not isinstance(output.value, dict) and (output.value is not None or not output.interrupts):
            return output.value
        found = RunResult[ResultT](output.value or {})
        if output.interrupts:
            found["__interrupt__"] = list(output.interrupts)
        node = self.builder.nodes[str(FIRST)].runnable
        found.shape = node.deps.shape if isinstance(node, Node) else None
        return found

    @property
    def _channels(self) -> Mapping[str, BaseChannel[Any, Any, Any]]:
        """Those of the state that are the user's own."""
        node = self.builder.nodes[str(FIRST)].runnable
        return node.deps.channels if isinstance(node, Node) else {}

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:
        with self.runner(config), storage_errors():
            yield from self.stream_held(input, config, **kwargs)

    # LangGraph's own is a generator; where there is nothing to hold, another would only stand around it.
    def astream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> AsyncIterator[Any]:
        held, holding = self.astream_held(input, config, **kwargs), self.runner(config)
        return held if isinstance(holding, nullcontext) else _while_held(held, holding)

    def stream_held(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        *,
        durability: Durability | None = None,
        shown: bool = True,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """`stream`, for a caller that holds the thread already.

        shown: whether somebody sees the items one by one; what he has seen of a state is saved then.
        Raises ThreadError when the thread stands in a state that this graph does not have.
        """
        self._check(input, config, kwargs)
        begun = carry_out(self._entry(input, config), self)
        options = {"durability": self._raised(durability), **_with_context(kwargs)}
        stream = super().stream(begun, self._prepared(config), **options)
        steps = self._steps(config)
        return stream if steps is None else _saved(stream, *steps, shown)

    def astream_held(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        *,
        durability: Durability | None = None,
        shown: bool = True,
        **kwargs: Any,
    ) -> AsyncGenerator[Any, None]:
        """`astream`, for a caller that holds the thread already; `shown` as for `stream_held`.

        Raises ThreadError when the thread stands in a state that this graph does not have.
        """
        self._check(input, config, kwargs)
        options = {"durability": self._raised(durability), **_with_context(kwargs)}
        if self._place_to_hold(config) is None:
            self._check_channels(input)
            return cast(AsyncGenerator[Any, None], super().astream(input, self._prepared(config), **options))
        return self._astream_begun(input, config, options, shown)

    async def _astream_begun(
        self, input: Any, config: RunnableConfig | None, options: dict[str, Any], shown: bool
    ) -> AsyncGenerator[Any, None]:
        begun = await acarry_out(self._entry(input, config), self)
        stream = cast(AsyncGenerator[Any, None], super().astream(begun, self._prepared(config), **options))
        if (steps := self._steps(config)) is not None:
            stream = _asaved(stream, *steps, shown)
        async with aclosing(stream):
            async for item in stream:
                yield item

    def get_state(self, config: RunnableConfig, *, subgraphs: bool = False) -> StateSnapshot:
        """LangGraph's snapshot, with what a process that was killed had been given and not yet taken up."""
        self._thread(config)
        with storage_errors():
            state = super().get_state(config, subgraphs=subgraphs)
            saver = self._saver_of_input(state, config)
            return state if saver is None else with_input(state, saver.get_tuple(state.config))

    async def aget_state(self, config: RunnableConfig, *, subgraphs: bool = False) -> StateSnapshot:
        """`get_state`, for an event loop."""
        self._thread(config)
        with storage_errors():
            state = await super().aget_state(config, subgraphs=subgraphs)
            saver = self._saver_of_input(state, config)
            return state if saver is None else with_input(state, await saver.aget_tuple(state.config))

    def get_whole_state(self, config: RunnableConfig) -> StateSnapshot:
        """`get_state` with all channels, for the machine's own use."""
        return self.get_state(config)

    async def aget_whole_state(self, config: RunnableConfig) -> StateSnapshot:
        """`get_whole_state`, for an event loop."""
        return await self.aget_state(config)

    # Writing a state is a way into a thread, too: LangGraph would drop what was saved and not yet taken up.
    def bulk_update_state(
        self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]
    ) -> RunnableConfig:
        at = self._place_to_hold(config)
        with storage_errors():
            if at is not None and is_unsettled(at[0].get_tuple(at[1])):
                # Whoever runs the thread takes it up by itself.
                with suppress(ThreadBusy), self.runner(config):
                    self.settle(config)
            return super().bulk_update_state(config, supersteps)

    async def abulk_update_state(
        self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]
    ) -> RunnableConfig:
        at = self._place_to_hold(config)
        with storage_errors():
            if at is not None and is_unsettled(await at[0].aget_tuple(at[1])):
                with suppress(ThreadBusy):
                    async with in_thread(self.runner(config)):
                        await self.asettle(config)
            return await super().abulk_update_state(config, supersteps)

    # LangGraph's are generators: they would say what is wrong only when they are read.
    def get_state_history(self, config: RunnableConfig, **kwargs: Any) -> Iterator[StateSnapshot]:
        """LangGraph's snapshots of the thread, the newest first."""
        self._thread(config)
        return self._past(config, kwargs)

    def _past(self, config: RunnableConfig, options: dict[str, Any]) -> Iterator[StateSnapshot]:
        with storage_errors():
            yield from super().get_state_history(config, **options)

    def aget_state_history(self, config: RunnableConfig, **kwargs: Any) -> AsyncIterator[StateSnapshot]:
        """`get_state_history`, for an event loop."""
        self._thread(config)
        return self._apast(config, kwargs)

    async def _apast(self, config: RunnableConfig, options: dict[str, Any]) -> AsyncIterator[StateSnapshot]:
        with storage_errors():
            async for snapshot in super().aget_state_history(config, **options):
                yield snapshot

    def settle(self, config: RunnableConfig) -> None:
        """Takes up what a process that was killed had been given, and runs no state; for a caller that holds
        the thread."""
        for _ in super().stream(None, self._own(config), interrupt_before=[str(FIRST)], durability="sync"):
            pass

    async def asettle(self, config: RunnableConfig) -> None:
        """`settle`, for an event loop."""
        options: dict[str, Any] = {"interrupt_before": [str(FIRST)], "durability": "sync"}
        async for _ in super().astream(None, self._own(config), **options):
            pass

    def runner(self, config: RunnableConfig | None) -> AbstractContextManager[None]:
        """Holds the thread that `config` names. Raises ThreadBusy when another runner holds it."""
        thread_id = self._thread(config)
        if thread_id is None or not isinstance(self.checkpointer, BaseCheckpointSaver):
            return nullcontext()
        return runner(self.checkpointer, thread_id)

    def _thread(self, config: RunnableConfig | None) -> str | None:
        return thread_to_hold(self.checkpointer, self.config, config)

    def _check(self, given: Any, config: RunnableConfig | None, options: Mapping[str, Any]) -> None:
        """Rejects a run that cannot work before anything is saved."""
        self._thread(config)
        check_input(given)
        taken = self.builder.schemas[self.builder.input_schema]
        if len(taken) > 1:
            check_channels(given, taken)
        check_context(options.get("context"), self.context_schema)
        check_pauses(options, self.builder.nodes)
        if given is None and not self.checkpointer and not nested():
            raise SetupError(f"Without a checkpointer there is nothing to go on with; pass {EXAMPLE}.")

    def _entry(self, given: Any, config: RunnableConfig | None) -> Entry:
        """What a run with this input really begins with."""
        at = self._place_to_hold(config)
        if not at:
            self._check_channels(given)
            return given
        (saver, place), channels = at, self._channels
        if values := channels_of(given, channels):
            asked = Operation(partial(self.get_whole_state, place), partial(self.aget_whole_state, place))
            state = (yield asked).values
            given = with_channels(given, checked_input(values, channels, state, saver.serde))
        return (yield from entry(self, given, saver, place))

    def _check_channels(self, given: Any) -> None:
        """Refuses an input of a thread that is not saved here, with a value that its channel cannot take."""
        channels = self._channels
        if channels and (values := channels_of(given, channels)):
            checked_input(values, channels, {}, None)

    def _steps(self, config: RunnableConfig | None) -> tuple[Any, str] | None:
        """The saver that saves steps as a whole (`signoff.storage.steps`), if it does, and the thread."""
        at = self._place_to_hold(config)
        if at is None or not hasattr(at[0], "whole_steps"):
            return None
        return at[0], at[1]["configurable"]["thread_id"]

    def _place_to_hold(
        self, config: RunnableConfig | None
    ) -> tuple[BaseCheckpointSaver[Any], RunnableConfig] | None:
        """The saver, and where in it the thread stands that a run with this configuration holds."""
        thread_id = self._thread(config)
        if thread_id is None or not isinstance(self.checkpointer, BaseCheckpointSaver):
            return None
        configurable = merge_configs(self.config, config).get("configurable", {})
        place = {"thread_id": thread_id, "checkpoint_ns": ""}
        if named := configurable.get("checkpoint_id"):
            place["checkpoint_id"] = named
        return self.checkpointer, {"configurable": place}

    def _saver_of_input(
        self, state: StateSnapshot, config: RunnableConfig
    ) -> BaseCheckpointSaver[Any] | None:
        """The saver, if it may hold an input that the snapshot does not show; older points of a thread stay
        as they were."""
        at = self._place_to_hold(config) if START in state.next else None
        return at[0] if at and "checkpoint_id" not in at[1]["configurable"] else None

    def _own(self, config: RunnableConfig) -> RunnableConfig:
        """The configuration of a run of the machine's own on this thread: without a caller's limit of steps,
        and without what would mark the checkpoint as a caller's."""
        at = self._place_to_hold(config)
        assert at is not None, "the caller holds a thread"
        return at[1]

    def _prepared(self, config: RunnableConfig | None) -> RunnableConfig:
        return with_light_runtime(_without_default(config), self.store)

    def _raised(self, durability: Durability | None) -> Durability | None:
        return durability or ("sync" if self.checkpointer else None)


class JournalledGraph(DurableGraph[ResultT]):
    """Always saves every step before the next one begins: no effect for a reply that is not saved.

    A weaker `durability` would lose the reply in a crash, and with it the way to know that its call has run.
    """

    def _raised(self, durability: Durability | None) -> Durability | None:
        return "sync" if self.checkpointer else durability


def _saved(stream: Iterator[Any], saver: Any, thread_id: str, shown: bool) -> Iterator[Any]:
    """The items of a run, in which the writes of a state wait for their checkpoint."""
    with saver.whole_steps(thread_id), closing(cast(Generator[Any, None, None], stream)):
        for item in stream:
            if shown:
                saver.save_held(thread_id)
            yield item


async def _asaved(
    stream: AsyncGenerator[Any, None], saver: Any, thread_id: str, shown: bool
) -> AsyncGenerator[Any, None]:
    """`_saved`, for an event loop."""
    with saver.whole_steps(thread_id):
        try:
            async with aclosing(stream):
                async for item in stream:
                    if shown and saver.holds(thread_id):
                        await asyncio.to_thread(saver.save_held, thread_id)
                    yield item
        finally:
            if saver.holds(thread_id):
                # What ended the run is told; what could not be saved is tried once more in the end.
                with suppress(Exception):
                    await asyncio.to_thread(saver.save_held, thread_id)


async def _while_held(
    stream: AsyncGenerator[Any, None], holding: AbstractContextManager[None]
) -> AsyncGenerator[Any, None]:
    # A caller that leaves early gives the thread back only when the run has really stopped.
    with storage_errors():
        async with in_thread(holding), aclosing(stream):
            async for item in stream:
                yield item


@asynccontextmanager
async def in_thread(context: AbstractContextManager[None]) -> AsyncIterator[None]:
    """A context that may wait for the disk or the network, for an event loop."""
    if isinstance(context, nullcontext):
        yield
        return
    entering = asyncio.ensure_future(asyncio.to_thread(context.__enter__))
    try:
        await asyncio.shield(entering)
    except asyncio.CancelledError:
        # The thread of a pool cannot be cancelled: what it takes is given back when it has it.
        entering.add_done_callback(partial(_give_back, context))
        raise
    try:
        yield
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)


def _give_back(context: AbstractContextManager[None], entered: asyncio.Future[None]) -> None:
    if not entered.cancelled() and entered.exception() is None:
        asyncio.get_running_loop().run_in_executor(None, context.__exit__, None, None, None)


def _with_context(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The options with the context in the one form of a mapping that LangGraph checks by its schema."""
    context = kwargs.get("context")
    if context is None or isinstance(context, dict) or not isinstance(context, Mapping):
        return kwargs
    return {**kwargs, "context": dict(context)}


def _asks_for_values(kwargs: Mapping[str, Any]) -> bool:
    """Whether `invoke` is to give the last values in LangGraph's older form, which is its default.

    For that LangGraph has every step tell its updates, too, and looks for interrupts in them; in the newer
    form they come with the values.
    """
    return kwargs.get("stream_mode", "values") == "values" and "version" not in kwargs


def _without_default(config: RunnableConfig | None) -> RunnableConfig | None:
    """`config` without LangChain's default limit of 25 steps, which `batch` and chains fill in.

    LangChain's own merging of configurations takes that number for "not given", too.
    """
    if config is None or config.get("recursion_limit") != DEFAULT_RECURSION_LIMIT:
        return config
    rest = config.copy()
    del rest["recursion_limit"]
    return rest
