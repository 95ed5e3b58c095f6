"""The status of a thread, read from what is saved, without a model."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache, partial
from typing import Any, Generic, Protocol, TypeVar

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.store.base import BaseStore, GetOp, PutOp
from langgraph.types import Command, Interrupt, StateSnapshot
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from signoff.graph.build import Graph, build_graph
from signoff.graph.compiled.inputs import INTERRUPT, RESUME
from signoff.graph.errors import SetupError, Unreadable
from signoff.graph.finish.again import entering
from signoff.graph.foreign import checked_thread_id, paused_place
from signoff.graph.history.reader import Wait
from signoff.graph.history.task import Task, read
from signoff.graph.machine import FIRST, Event, State
from signoff.graph.outcome import Outcome, ResultT, current_outcome, typed_outcome
from signoff.nodes.node import Dependencies, Node
from signoff.nodes.requests import Operation, Part, Store, carry_out
from signoff.session.decisions import AnyWaiting, Approval, Question, Waiting, waiting_of

WaitT = TypeVar("WaitT", bound=Waiting)


class Condition(StrEnum):
    """Where a thread stands.

    `unknown`: nothing is saved. `running`: some runner holds it, here or in another process. `waiting`: for
    an answer. `paused`: work is left, and a person asked to pause. `stopped`: work is left after a kill, or
    a run that was left. `ended`: the current task has an outcome.
    """

    UNKNOWN = "unknown"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    STOPPED = "stopped"
    ENDED = "ended"

    @property
    def has_work_left(self) -> bool:
        """Whether there is work that nobody does: paused, or stopped."""
        return self in (Condition.PAUSED, Condition.STOPPED)


@dataclass(frozen=True)
class ThreadStatus(Generic[ResultT]):
    """Where a thread stands.

    waits: everything that it waits for, including its delegates, in call order; nothing while it runs. task:
    the current task. outcome: how it ended; None if it has not. changed: when the thread last changed, in ISO
    8601. values: its state.
    """

    thread_id: str
    condition: Condition
    waits: tuple[AnyWaiting, ...] = ()
    outcome: Outcome[ResultT] | None = None
    task: Task = field(default_factory=Task)
    changed: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)

    def wait(self, interrupt_id: str | None = None) -> AnyWaiting | None:
        """What it waits for under this id, or without one the first of its waits; None if nothing."""
        return next((wait for wait in self.waits if interrupt_id in (None, wait.interrupt_id)), None)


@dataclass(frozen=True)
class Standing(ThreadStatus[Any]):
    """A thread for whoever continues it: only what is saved, so it is never `running`.

    go_on: the input that continues a thread with work left. left: the step that it has left to run, or that a
    killed process has partly saved. checkpoint_id: the newest checkpoint. asked: its interrupts, by id.
    """

    go_on: Command[Any] | None = None
    left: str = ""
    checkpoint_id: str = ""
    asked: Mapping[str, Any] = field(default_factory=dict)


def config_of(thread_id: str) -> RunnableConfig:
    """The LangGraph configuration for the thread. Raises SetupError for an invalid thread id."""
    return {"configurable": {"thread_id": checked_thread_id(thread_id)}}


def deps_of(graph: Graph) -> Dependencies:
    """The dependencies of a graph that `build_graph` made. Raises SetupError for any other graph."""
    node = graph.builder.nodes.get(str(FIRST)) if isinstance(graph, Graph) else None
    if node is None or not isinstance(node.runnable, Node):
        raise SetupError(f"{graph!r} was not made by build_graph; pass the graph that it returned.")
    return node.runnable.deps


def state_of(graph: Graph, name: str) -> State | None:
    """The state of the node `name`; None for anything that is not a node of the machine."""
    node = graph.builder.nodes.get(name)
    return node.runnable.state if node is not None and isinstance(node.runnable, Node) else None


class _NoModel(BaseChatModel):
    """A placeholder for the model in a graph that only reads."""

    @property
    def _llm_type(self) -> str:
        return "none"

    def bind_tools(self, tools: Any, **_: Any) -> Runnable[LanguageModelInput, AIMessage]:
        return self

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise SetupError("This graph only reads threads; build one with a model to run them.")


@lru_cache(maxsize=32)
def _graph_without_model(channels: tuple[str, ...] = ()) -> Graph:
    made: Any = TypedDict
    schema = made("Channels", dict.fromkeys(channels, Any)) if channels else None
    return build_graph(_NoModel(), state_schema=schema)


class SaverAndStore(Protocol):
    """What is needed of a storage to read it."""

    @property
    def checkpointer(self) -> BaseCheckpointSaver[Any]: ...

    @property
    def store(self) -> BaseStore | None: ...


def reading_graph(storage: SaverAndStore, thread_id: str | None = None) -> Graph:
    """A graph that can read every thread of `storage` but run none, since it has no model.

    It has no working tools, which are not needed to read the status of a thread. The graph is built once per
    process; each storage gets a cheap copy of it.

    thread_id: a thread to write to or copy: the graph then also has the channels that the user has added to
    its state, which would otherwise be lost. Raises StorageError if it cannot be read.
    """
    graph = _graph_without_model(_added(storage, thread_id) if thread_id else ())
    return graph.copy({"checkpointer": storage.checkpointer, "store": storage.store})


def _added(storage: SaverAndStore, thread_id: str) -> tuple[str, ...]:
    """The channels of a thread beyond the machine's."""
    with readable(thread_id):
        return _added_to(storage.checkpointer.get_tuple(config_of(thread_id)))


def _added_to(saved: CheckpointTuple | None) -> tuple[str, ...]:
    values = saved.checkpoint["channel_values"] if saved else ()
    known = _graph_without_model().channels
    return tuple(sorted(name for name in values if name not in known and re.fullmatch(r"(?!__)\w+", name)))


def graph_of_machine(saved: CheckpointTuple) -> Graph:
    """A graph that can read and write the machine of a delegate, from its last checkpoint; it cannot run it,
    and has no checkpointer."""
    return _graph_without_model(_added_to(saved))


def look(graph: Graph, thread_id: str) -> ThreadStatus:
    """The status of the thread as it is saved, so it is never `running`. Raises StorageError for data that
    cannot be read."""
    return carry_out(standing(graph, thread_id, config_of(thread_id)), graph)


def standing(graph: Graph, thread_id: str, config: RunnableConfig) -> Part[Standing]:
    """A part of a driver: where the thread of this configuration stands."""
    read_state = Operation(partial(graph.get_state, config), partial(graph.aget_state, config))
    with readable(thread_id):
        found = read_status(graph, thread_id, (yield read_state))
    if found.condition is Condition.STOPPED:
        (mark,) = yield Store([GetOp(*paused_place(thread_id))])
        if mark is not None and mark.value.get("checkpoint") == found.checkpoint_id:
            return replace(found, condition=Condition.PAUSED)
    return found


def shown(status: Standing, shape: TypeAdapter[ResultT] | None, *, running: bool) -> ThreadStatus[ResultT]:
    """The status of a thread for anybody. shape: of the result. Raises SetupError for a stored result that
    does not match it."""
    if running:
        return running_now(status)
    outcome = None if status.outcome is None else typed_outcome(status.values["outcome"], shape)
    return ThreadStatus(
        status.thread_id, status.condition, status.waits, outcome, status.task, status.changed, status.values
    )


def running_now(status: ThreadStatus[Any]) -> ThreadStatus[Any]:
    """The status of a thread that some runner holds: what is saved of its wait or its end is not its last
    word."""
    return ThreadStatus(
        status.thread_id, Condition.RUNNING, task=status.task, changed=status.changed, values=status.values
    )


def mark_paused(status: Standing) -> Store:
    """Records that a person paused the thread here. Whoever continues it takes the mark away."""
    place = paused_place(status.thread_id)
    return Store([PutOp(*place, {"checkpoint": status.checkpoint_id})])


def read_status(graph: Graph, thread_id: str, state: StateSnapshot) -> Standing:
    """Where a thread with this saved state stands, but whether a person paused it.

    Whether it has ended is read from its own outcome: after a kill LangGraph may name no next state although
    work is left, and the outcome may be that of an earlier task.
    """
    values: Any = state.values
    task = read(values, deps_of(graph).toolbox)
    if state.created_at is None:
        return Standing(thread_id, Condition.UNKNOWN)
    interrupts = state.interrupts or _interrupts_of_guards(graph, state)
    waits = tuple(_waiting(waiting_of(found.id, found.value), task) for found in interrupts)
    outcome = current_outcome(values)
    if outcome is not None:
        condition = Condition.ENDED
    elif waits:
        condition = Condition.WAITING
    else:
        condition = Condition.STOPPED
    return Standing(
        thread_id,
        condition,
        waits,
        None if outcome is None else typed_outcome(outcome, None),
        task,
        state.created_at,
        values,
        # With nothing left to run, LangGraph must be told where to enter.
        go_on=None if state.tasks else entering(Event.GO_ON),
        left=state.tasks[0].name if state.tasks and not waits else "",
        checkpoint_id=str(state.config["configurable"].get("checkpoint_id", "")),
        asked={found.id: found.value for found in interrupts},
    )


GUARDS = "guards"
"""The channel that identifies threads of agents with guards."""


def is_guarded(storage: SaverAndStore, thread_id: str) -> bool:
    """Whether the thread belongs to a LangChain agent with guards: it can be read here, but only its own
    program can continue it."""
    with readable(thread_id):
        saved = storage.checkpointer.get_tuple(config_of(thread_id))
        return saved is not None and GUARDS in saved.checkpoint["channel_values"]


def _interrupts_of_guards(graph: Graph, state: StateSnapshot) -> list[Interrupt]:
    """What a thread of an agent with guards waits for: its steps are not nodes of this graph, so LangGraph
    does not list them here."""
    if state.tasks or not isinstance(graph.checkpointer, BaseCheckpointSaver):
        return []
    try:
        saved = graph.checkpointer.get_tuple(state.config)
    except NotImplementedError:
        # The saver of LangGraph's server is async only; there, each thread is read by the graph that runs it.
        return []
    if saved is None or GUARDS not in saved.checkpoint["channel_values"]:
        return []
    writes = saved.pending_writes or []
    answered = {task for task, channel, _ in writes if channel == RESUME}
    found = [value for task, channel, value in writes if channel == INTERRUPT and task not in answered]
    return [one for value in found for one in value if isinstance(one, Interrupt)]


def _waiting(found: WaitT, task: Task) -> WaitT:
    """What the thread waits for, with the id of its reply; for a delegate, by default that of the reply that
    called it."""
    if found.path and found._reply_id:
        return found
    reply = task.spoke or task.last
    call = task.finish if isinstance(found, Approval) and found._waits_for == Wait.CONFIRMATION else None
    call = task.ask if isinstance(found, Question) else call
    if not found.path and call:
        reply = task.reply_of(call)
    return replace(found, _reply_id=reply.message.id or "") if reply else found


@contextmanager
def readable(thread_id: str) -> Iterator[None]:
    """Translates the errors of reading damaged database rows into Unreadable."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, NotImplementedError, RecursionError) as error:
        raise Unreadable(
            f"What the database holds of thread {thread_id!r} cannot be read ({type(error).__name__}: "
            f"{error}); begin another thread, or restore a backup of the database."
        ) from error
