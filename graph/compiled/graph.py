"""The compiled graph: saves every step before the next one begins, and lets one runner hold a thread.

LangGraph's savers have no locking: three concurrent runs of a thread would each make a fork, and the last one
to write would win. A checkpointer with its own `runner` (those of `sqlite_storage` and `postgres_storage`)
also keeps other processes out; with any other checkpointer the lock holds within this process only.
"""

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    aclosing,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from functools import partial
from typing import Any, Generic, Literal, NoReturn, Self, TypeVar, cast, overload
from weakref import WeakKeyDictionary

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import DEFAULT_RECURSION_LIMIT, merge_configs
from langchain_core.runnables.graph import Graph as Drawing
from langgraph.channels.base import BaseChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.constants import START
from langgraph.errors import GraphDrained, is_invalid_resume
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Durability, GraphOutput, StateSnapshot, StateUpdate
from pydantic import ValidationError

from signoff.graph.compiled.going_on import instruction_of, stop
from signoff.graph.compiled.holds import Hold, busy, closed, hold_of, holding
from signoff.graph.compiled.inputs import (
    EXAMPLE,
    Entry,
    NoAnswer,
    channels_of,
    check_channels,
    check_config,
    check_context,
    check_input,
    check_pauses,
    entry,
    instructed,
    is_unsettled,
    nested,
    no_thread,
    with_channels,
    with_input,
)
from signoff.graph.compiled.listening import STOP, RunRequest
from signoff.graph.errors import BadAnswer, SetupError, StorageError
from signoff.graph.foreign import checked_thread_id, explain, label
from signoff.graph.inside.private import has_saver
from signoff.graph.inside.speed import with_light_runtime
from signoff.graph.machine import FIRST
from signoff.graph.outcome import ResultT, RunResult, typed_outcome
from signoff.graph.schemas.state import RESULT, checked_input
from signoff.graph.state import AgentState, Output
from signoff.nodes.node import PROBLEM, Node
from signoff.nodes.requests import Operation, acarry_out, carry_out
from signoff.tools.processes.held import end_graph

# A runner that is just releasing the thread must not make the next one fail.
GRACE_SECONDS = 0.2

_T = TypeVar("_T")

_lock = threading.Lock()
_held: WeakKeyDictionary[BaseCheckpointSaver[Any], set[str]] = WeakKeyDictionary()


def thread_to_hold(checkpointer: Any, own: RunnableConfig | None, given: RunnableConfig | None) -> str | None:
    """The id of the thread that a run with this configuration must hold; None when it must hold none.

    Raises SetupError for an invalid thread id, whether the thread is held or not.
    """
    check_config(given)
    configurable = merge_configs(own, given).get("configurable", {})
    saved = isinstance(checkpointer, BaseCheckpointSaver)
    # A nested run uses its parent's saver.
    if has_saver(configurable) or not (saved or "thread_id" in configurable):
        return None
    thread_id = configurable.get("thread_id")
    if thread_id is None and not saved:
        return None
    if "thread_id" not in configurable:
        # Inside another run, LangGraph uses that run's thread.
        if not configurable and nested():
            return None
        raise no_thread(configurable)
    name = checked_thread_id(thread_id)
    return name if saved else None


@contextmanager
def runner(checkpointer: BaseCheckpointSaver[Any], thread_id: str) -> Iterator[Hold]:
    """Holds the thread while the context lasts, and gives the hold by which its run writes. Raises ThreadBusy
    when another runner holds it."""
    own = getattr(checkpointer, "runner", None)
    with (own or _in_process(checkpointer))(thread_id) as found:
        if isinstance(found, Hold):
            yield found
            return
        # A storage of somebody else's may hold threads and know nothing of holds.
        hold = Hold(thread_id, checkpointer)
        try:
            yield hold
        finally:
            hold.end()


@contextmanager
def storage_errors() -> Iterator[None]:
    """Translates SQLite's errors (a full disk, a locked database and the like) into StorageError, and
    LangGraph's error for an answer that does not fit into BadAnswer."""
    try:
        yield
    except ValidationError as error:
        if not is_invalid_resume(error) or nested():
            raise
        # A tool's own `response_schema` has no error of ours in it.
        ours = (error.errors()[0].get("ctx") or {}).get("error")
        raise BadAnswer(str(ours or f"The answer does not fit: {explain(error)}")) from error
    except sqlite3.Error as error:
        if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
            raise closed() from error
        raise StorageError(
            f"The database failed ({error}); what was saved before is kept, and the thread can continue "
            "when the database is available again."
        ) from error


def _in_process(checkpointer: BaseCheckpointSaver[Any]) -> Any:
    @contextmanager
    def runner(thread_id: str) -> Iterator[None]:
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

    return runner


def is_held(checkpointer: BaseCheckpointSaver[Any], thread_id: str) -> bool:
    """Whether this process runs the thread, with a checkpointer that has no `runner`."""
    with _lock:
        return thread_id in _held.get(checkpointer, ())


def is_running(checkpointer: BaseCheckpointSaver[Any], thread_id: str) -> bool:
    """Whether some runner holds the thread, with our storages also one of another process."""
    own = getattr(checkpointer, "is_running", None)
    return is_held(checkpointer, thread_id) if own is None else bool(own(thread_id))


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

    Holds the thread during a run (by default, LangGraph saves in the background and lets concurrent runs of a
    thread overwrite each other): a second concurrent run raises ThreadBusy.
    """

    def close(self) -> None:
        """Closes what its tools hold open (shells, interpreters, MCP servers) and no other graph uses.

        A later run starts them again; but a storage that the graph has opened itself is closed for good.
        """
        end_graph(self.builder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __copy__(self) -> Self:
        # It stands for its thread locks, open resources and storage, of which there is one each.
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise SetupError(
            "A graph cannot be pickled, nor sent to another process: it holds connections and functions. "
            "Build it in the process that runs it."
        )

    def get_graph(self, config: RunnableConfig | None = None, *, xray: int | bool = False) -> Drawing:
        """LangGraph's drawing of the machine. The metadata of `execute` lists the delegates; with `xray`
        their machines are drawn, too."""
        from signoff.graph.compiled.drawn import draw  # only a drawing needs it

        return draw(self, config, xray)

    async def aget_graph(self, config: RunnableConfig | None = None, *, xray: int | bool = False) -> Drawing:
        # A user's function may build the delegate's graph.
        return await asyncio.to_thread(self.get_graph, config, xray=xray)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """The machine, for notebooks. LangGraph's own version has a server on the internet draw it."""
        from signoff.graph.drawing.diagram import svg  # only a notebook needs it

        return {"text/plain": f"{type(self).__name__} {self.name!r}", "image/svg+xml": svg()}

    # LangGraph's overloads of these two pick the return type by `version`; the last one is untyped.
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
            return super().invoke(input, config, **kwargs)
        return self._result(super().invoke(input, config, **kwargs, version="v2"))

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
            return await super().ainvoke(input, config, **kwargs)
        return self._result(await super().ainvoke(input, config, **kwargs, version="v2"))

    def _result(self, output: GraphOutput[Any]) -> Any:
        """The return value of the older form of `invoke`, with the type of its result."""
        if not isinstance(output.value, dict) and (output.value is not None or not output.interrupts):
            return output.value
        found = RunResult[ResultT](output.value or {})
        if output.interrupts:
            found["__interrupt__"] = list(output.interrupts)
        node = self.builder.nodes[str(FIRST)].runnable
        if isinstance(node, Node):
            found.shape = node.deps.shape
            add_result(found, has_result=node.deps.result_check is not None)
        return found

    @property
    def _channels(self) -> Mapping[str, BaseChannel[Any, Any, Any]]:
        """The channels that the user has added to the state."""
        node = self.builder.nodes[str(FIRST)].runnable
        return node.deps.channels if isinstance(node, Node) else {}

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:
        with self.runner(config) as hold, storage_errors():
            config, request = holding(config, hold), self._request(config, kwargs)
            if request is None:
                yield from self.stream_held(input, config, **kwargs)
                return
            # What was asked of an earlier run is not meant for this one.
            if request.store.batch(request.looking)[0] is not None:
                request.store.batch(request.dropping)
            try:
                for item in self.stream_held(input, config, **{**kwargs, "control": request.control}):
                    if request.is_due() and request.heard(request.store.batch(request.looking)[0]):
                        request.store.batch(request.dropping)
                    yield item
            except GraphDrained:
                if request.word == STOP:
                    yield from self.stream_held(stop(), config, **kwargs)
                else:
                    saver: Any = self.checkpointer
                    request.store.batch(request.marking(saver.get_tuple(request.place)))

    # LangGraph's own is a generator; with no thread to hold, a second one around it would only cost time.
    def astream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> AsyncIterator[Any]:
        runner = self.runner(config)
        if isinstance(runner, nullcontext):
            return self.astream_held(input, config, **kwargs)
        return self._astream(runner, input, config, **kwargs)

    async def _astream(
        self,
        runner: AbstractContextManager[Hold | None],
        input: Any,
        config: RunnableConfig | None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        # If the caller leaves early, the thread is released only once the run has really stopped.
        with storage_errors():
            async with in_thread(runner) as hold:
                config, request = holding(config, hold), self._request(config, kwargs)
                if request is None:
                    stream = self.astream_held(input, config, **kwargs)
                else:
                    stream = self._alistening(request, input, config, **kwargs)
                async with aclosing(stream):
                    async for item in stream:
                        yield item

    async def _alistening(
        self, request: RunRequest, input: Any, config: RunnableConfig | None, **kwargs: Any
    ) -> AsyncGenerator[Any, None]:
        """`stream` while it listens, for an event loop."""
        if (await request.store.abatch(request.looking))[0] is not None:
            await request.store.abatch(request.dropping)
        run = self.astream_held(input, config, **{**kwargs, "control": request.control})
        try:
            async with aclosing(run):
                async for item in run:
                    if request.is_due() and request.heard((await request.store.abatch(request.looking))[0]):
                        await request.store.abatch(request.dropping)
                    yield item
        except GraphDrained:
            if request.word == STOP:
                async for item in self.astream_held(stop(), config, **kwargs):
                    yield item
            else:
                saver: Any = self.checkpointer
                await request.store.abatch(request.marking(await saver.aget_tuple(request.place)))

    def _request(self, config: RunnableConfig | None, options: Mapping[str, Any]) -> RunRequest | None:
        """What may be asked of this run elsewhere; None where nobody can ask, or the caller listens."""
        at = self._place_to_hold(config)
        if at is None or self.store is None or options.get("control") is not None:
            return None
        return RunRequest(self.store, {"configurable": {"thread_id": at[1]["configurable"]["thread_id"]}})

    def stream_held(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        *,
        durability: Durability | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """`stream`, for a caller whose configuration holds the thread already.

        Raises ThreadError when the thread stands in a state that this graph does not have.
        """
        self._check(input, config, kwargs)
        begun = carry_out(self._entry(input, config, kwargs.get("context")), self)
        options = {"durability": self._raised(durability), **_with_context(kwargs)}
        begun, config = _told_no_answer(begun, config)
        return super().stream(begun, self._prepared(config), **options)

    def astream_held(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        *,
        durability: Durability | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[Any, None]:
        """`astream`, for a caller whose configuration holds the thread already.

        Raises ThreadError when the thread stands in a state that this graph does not have.
        """
        self._check(input, config, kwargs)
        options = {"durability": self._raised(durability), **_with_context(kwargs)}
        if self._place_to_hold(config) is None:
            self._check_without_thread(input)
            return cast(AsyncGenerator[Any, None], super().astream(input, self._prepared(config), **options))
        return self._astream_begun(input, config, options)

    async def _astream_begun(
        self, input: Any, config: RunnableConfig | None, options: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        begun = await acarry_out(self._entry(input, config, options.get("context")), self)
        begun, config = _told_no_answer(begun, config)
        stream = cast(AsyncGenerator[Any, None], super().astream(begun, self._prepared(config), **options))
        async with aclosing(stream):
            async for item in stream:
                yield item

    def get_state(self, config: RunnableConfig, *, subgraphs: bool = False) -> StateSnapshot:
        """LangGraph's snapshot, including saved input that a killed process had not yet applied."""
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
        """`get_state` with all channels, for internal use."""
        return self.get_state(config)

    async def aget_whole_state(self, config: RunnableConfig) -> StateSnapshot:
        """`get_whole_state`, for an event loop."""
        return await self.aget_state(config)

    # Updating the state enters the thread, too: LangGraph would drop saved input that is not yet applied.
    def bulk_update_state(
        self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]
    ) -> RunnableConfig:
        with storage_errors(), self._writer(config) as hold:
            config = cast(RunnableConfig, holding(config, hold))
            at = self._place_to_hold(config)
            if at is not None and is_unsettled(at[0].get_tuple(at[1])):
                self.settle(config)
            return super().bulk_update_state(config, supersteps)

    async def abulk_update_state(
        self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]
    ) -> RunnableConfig:
        with storage_errors():
            async with in_thread(self._writer(config)) as hold:
                config = cast(RunnableConfig, holding(config, hold))
                at = self._place_to_hold(config)
                if at is not None and is_unsettled(await at[0].aget_tuple(at[1])):
                    await self.asettle(config)
                return await super().abulk_update_state(config, supersteps)

    def _writer(self, config: RunnableConfig | None) -> AbstractContextManager[Hold | None]:
        """`runner`, for one write; does nothing where the caller holds the thread already."""
        thread_id = self._thread(config)
        configurable = merge_configs(self.config, config).get("configurable", {})
        if thread_id is not None and self._hold(thread_id, configurable) is not None:
            return nullcontext()
        return self.runner(config)

    def _hold(self, thread_id: str, configurable: Mapping[str, Any]) -> Hold | None:
        database = getattr(self.checkpointer, "database", None)
        return hold_of(label(thread_id), getattr(database, "name", self.checkpointer), configurable)

    # LangGraph's own are generators, which would report an error only when iterated.
    def get_state_history(self, config: RunnableConfig, **kwargs: Any) -> Iterator[StateSnapshot]:
        """LangGraph's snapshots of the thread, newest first."""
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
        """Applies saved input that a killed process left behind, without running a state; for a caller that
        holds the thread."""
        for _ in super().stream(None, self._own(config), interrupt_before=[str(FIRST)], durability="sync"):
            pass

    async def asettle(self, config: RunnableConfig) -> None:
        """`settle`, for an event loop."""
        options: dict[str, Any] = {"interrupt_before": [str(FIRST)], "durability": "sync"}
        async for _ in super().astream(None, self._own(config), **options):
            pass

    def runner(self, config: RunnableConfig | None) -> AbstractContextManager[Any]:
        """Holds the thread that `config` names, and gives the hold; None where there is none to hold. Raises
        ThreadBusy when another runner holds it."""
        thread_id = self._thread(config)
        if thread_id is None or not isinstance(self.checkpointer, BaseCheckpointSaver):
            return nullcontext()
        return runner(self.checkpointer, thread_id)

    def _thread(self, config: RunnableConfig | None) -> str | None:
        return thread_to_hold(self.checkpointer, self.config, config)

    def _check(self, given: Any, config: RunnableConfig | None, options: Mapping[str, Any]) -> None:
        """Rejects an impossible run before anything is saved."""
        self._thread(config)
        check_input(given)
        taken = self.builder.schemas[self.builder.input_schema]
        if len(taken) > 1:
            check_channels(given, taken)
        check_context(options.get("context"), self.context_schema)
        check_pauses(options, self.builder.nodes)
        if given is None and not self.checkpointer and not nested():
            raise SetupError(f"Without a checkpointer there is nothing to go on with; pass {EXAMPLE}.")

    def _entry(self, given: Any, config: RunnableConfig | None, context: Any) -> Entry:
        """The input that the run actually starts with."""
        at = self._place_to_hold(config)
        if not at:
            self._check_without_thread(given)
            return given
        (saver, place), channels = at, self._channels
        if (instruction := instruction_of(given)) is not None:
            given = yield from instructed(self, instruction, saver, place, context)
        if values := channels_of(given, channels):
            asked = Operation(partial(self.get_whole_state, place), partial(self.aget_whole_state, place))
            state = (yield asked).values
            given = with_channels(given, checked_input(values, channels, state, saver.serde))
        return (yield from entry(self, given, saver, place))

    def _check_without_thread(self, given: Any) -> None:
        """Rejects what is impossible for a thread that is not saved here: an instruction, and an input value
        that its channel cannot take."""
        if instruction_of(given) is not None:
            raise SetupError(
                "go_on(), undo() and stop() need a thread of this graph's own storage; in the graph of "
                "somebody else, continue that graph, and without storage build this one with storage=."
            )
        channels = self._channels
        if channels and (values := channels_of(given, channels)):
            checked_input(values, channels, {}, None)

    def _place_to_hold(
        self, config: RunnableConfig | None
    ) -> tuple[BaseCheckpointSaver[Any], RunnableConfig] | None:
        """The saver, and the place in it of the thread that a run with this configuration holds."""
        thread_id = self._thread(config)
        if thread_id is None or not isinstance(self.checkpointer, BaseCheckpointSaver):
            return None
        configurable = merge_configs(self.config, config).get("configurable", {})
        place = {"thread_id": thread_id, "checkpoint_ns": ""}
        if named := configurable.get("checkpoint_id"):
            place["checkpoint_id"] = named
        held = holding({"configurable": place}, self._hold(thread_id, configurable))
        return self.checkpointer, cast(RunnableConfig, held)

    def _saver_of_input(
        self, state: StateSnapshot, config: RunnableConfig
    ) -> BaseCheckpointSaver[Any] | None:
        """The saver, if it may hold an input that the snapshot does not show; not for an older checkpoint."""
        at = self._place_to_hold(config) if START in state.next else None
        return at[0] if at and "checkpoint_id" not in at[1]["configurable"] else None

    def _own(self, config: RunnableConfig) -> RunnableConfig:
        """The configuration for an internal run on this thread: without the caller's recursion limit, and
        without keys that would mark the checkpoint as the caller's."""
        at = self._place_to_hold(config)
        assert at is not None, "the caller holds a thread"
        return at[1]

    def _prepared(self, config: RunnableConfig | None) -> RunnableConfig:
        return with_light_runtime(_without_default(config), self.store)

    def _raised(self, durability: Durability | None) -> Durability | None:
        return durability or ("sync" if self.checkpointer else None)


class JournalledGraph(DurableGraph[ResultT]):
    """Always saves every step before the next one begins: no effect runs for a reply that is not saved.

    A weaker `durability` would lose the reply in a crash, and with it the record that its call has run.
    """

    def _raised(self, durability: Durability | None) -> Durability | None:
        return "sync" if self.checkpointer else durability


@asynccontextmanager
async def in_thread(context: AbstractContextManager[_T]) -> AsyncIterator[_T]:
    """Enters a context manager that may block on disk or network, without blocking the event loop."""
    if isinstance(context, nullcontext):
        yield context.enter_result
        return
    entering = asyncio.ensure_future(asyncio.to_thread(context.__enter__))
    try:
        entered = await asyncio.shield(entering)
    except asyncio.CancelledError:
        # A pool thread cannot be cancelled: whatever it acquires is released once it has it.
        entering.add_done_callback(partial(_give_back, context))
        raise
    try:
        yield entered
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)


def _give_back(context: AbstractContextManager[Any], entered: asyncio.Future[Any]) -> None:
    if not entered.cancelled() and entered.exception() is None:
        asyncio.get_running_loop().run_in_executor(None, context.__exit__, None, None, None)


def _told_no_answer(given: Any, config: RunnableConfig | None) -> tuple[Any, RunnableConfig | None]:
    """The input and the configuration of a run; a message that is no answer only has the waits say so."""
    if not isinstance(given, NoAnswer):
        return given, config
    return None, merge_configs(config, {"configurable": {PROBLEM: given.problem}})


def _with_context(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The options, with the context as the mapping that LangGraph validates against its schema."""
    context = kwargs.get("context")
    if context is None or isinstance(context, dict) or not isinstance(context, Mapping):
        return kwargs
    return {**kwargs, "context": dict(context)}


def add_result(result: RunResult[Any], *, has_result: bool) -> None:
    """Puts an instance of the `response_format` into what `invoke` returns, also where nothing has run.

    Inside another run, whose state may take it over, it stays JSON.
    """
    outcome = result.get("outcome")
    if not has_result or not outcome or outcome["result"] is None:
        return
    typed = None if result.shape is None or nested() else typed_outcome(outcome, result.shape)
    result[RESULT] = outcome["result"] if typed is None else typed.result


def _asks_for_values(kwargs: Mapping[str, Any]) -> bool:
    """Whether `invoke` returns the last values in LangGraph's older form, which is its default.

    For that form, LangGraph also streams the updates of every step and looks for interrupts in them; in the
    newer form the interrupts come with the values.
    """
    return kwargs.get("stream_mode", "values") == "values" and "version" not in kwargs


def _without_default(config: RunnableConfig | None) -> RunnableConfig | None:
    """`config` without LangChain's default limit of 25 steps, which `batch` and chains fill in.

    When LangChain merges configurations, it also takes that number as "not given".
    """
    if config is None or config.get("recursion_limit") != DEFAULT_RECURSION_LIMIT:
        return config
    rest = config.copy()
    del rest["recursion_limit"]
    return rest
