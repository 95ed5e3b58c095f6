"""The status of a thread, read from what is saved, without a model."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.types import Command, Interrupt, StateSnapshot
from typing_extensions import TypedDict

from signoff.graph.build import Graph, Storage, build_graph
from signoff.graph.compiled.inputs import INTERRUPT, RESUME
from signoff.graph.errors import SetupError, Unreadable
from signoff.graph.finish.again import entering
from signoff.graph.foreign import checked_thread_id
from signoff.graph.history.task import Task, read
from signoff.graph.machine import FIRST, Event, State
from signoff.graph.outcome import current_outcome
from signoff.nodes.node import Dependencies, Node
from signoff.session.decisions import Confirmation, Question, Waiting, waiting_of


class Condition(StrEnum):
    """`unknown`: nothing is saved. `stopped`: work is left. `ended`: the current task has an outcome."""

    UNKNOWN = "unknown"
    WAITING = "waiting"
    STOPPED = "stopped"
    ENDED = "ended"


@dataclass(frozen=True)
class ThreadStatus:
    """A thread as it is saved.

    waits: everything that it waits for, including its delegates, in call order; `waiting` is the first.
    changed: when it last changed, in ISO 8601. go_on: the input that continues a stopped thread. left: the
    step that a stopped thread has left to run, or that a killed process has partly saved.
    """

    thread_id: str
    condition: Condition
    task: Task = field(default_factory=Task)
    values: Mapping[str, Any] = field(default_factory=dict)
    waiting: Waiting | None = None
    go_on: Command[Any] | None = None
    changed: str = ""
    left: str = ""
    waits: tuple[Waiting, ...] = ()

    def wait(self, interrupt_id: str | None) -> Waiting | None:
        """What it waits for under this id; None if nothing."""
        return next((found for found in self.waits if found.interrupt_id == interrupt_id), None)

    @property
    def quoted_id(self) -> str:
        """The thread's id, quoted for a message."""
        return self.thread_id if len(self.thread_id) <= 80 else f"{self.thread_id[:80]}…"

    @property
    def outcome(self) -> Mapping[str, Any] | None:
        """The outcome of the current task; None if it has none yet."""
        return self.values["outcome"] if self.condition is Condition.ENDED else None


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


def reading_graph(storage: Storage, thread_id: str | None = None) -> Graph:
    """A graph that can read every thread of `storage` but run none, since it has no model.

    It has no working tools, which are not needed to read the status of a thread. The graph is built once per
    process; each storage gets a cheap copy of it.

    thread_id: a thread to write to or copy: the graph then also has the channels that the user has added to
    its state, which would otherwise be lost. Raises StorageError if it cannot be read.
    """
    graph = _graph_without_model(_added(storage, thread_id) if thread_id else ())
    return graph.copy({"checkpointer": storage.checkpointer, "store": storage.store})


def _added(storage: Storage, thread_id: str) -> tuple[str, ...]:
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
    """The current status of the thread.

    Whether it has ended is read from its own outcome: after a kill LangGraph may name no next state although
    work is left, and the outcome may be that of an earlier task. Raises StorageError for data that cannot be
    read.
    """
    with readable(thread_id):
        return read_status(graph, thread_id, graph.get_state(config_of(thread_id)))


def read_status(graph: Graph, thread_id: str, state: StateSnapshot) -> ThreadStatus:
    """The status of a thread with this saved state."""
    values: Any = state.values
    task = read(values, deps_of(graph).toolbox)
    if state.created_at is None:
        return ThreadStatus(thread_id, Condition.UNKNOWN)
    interrupts = state.interrupts or _interrupts_of_guards(graph, state)
    waits = tuple(_waiting(waiting_of(found.id, found.value), task) for found in interrupts)
    waiting = waits[0] if waits else None
    if current_outcome(values) is not None:
        condition = Condition.ENDED
    elif waiting:
        condition = Condition.WAITING
    else:
        condition = Condition.STOPPED
    # With nothing left to run, LangGraph must be told where to enter.
    go_on = None if state.tasks else entering(Event.GO_ON)
    left = state.tasks[0].name if state.tasks and not waiting else ""
    return ThreadStatus(thread_id, condition, task, values, waiting, go_on, state.created_at, left, waits)


GUARDS = "guards"
"""The channel that identifies threads of agents with guards."""


def is_guarded(storage: Storage, thread_id: str) -> bool:
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


def _waiting(found: Waiting, task: Task) -> Waiting:
    """What the thread waits for, with the id of its reply; for a delegate, by default that of the reply that
    called it."""
    if found.path and found.reply_id:
        return found
    reply = task.spoke or task.last
    if not found.path and (call := {Question: task.ask, Confirmation: task.finish}.get(type(found))):
        reply = task.reply_of(call)
    return replace(found, reply_id=reply.message.id or "") if reply else found


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
