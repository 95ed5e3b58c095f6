"""Where a thread stands: what is in the database, read without a model."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.types import Command

from signoff.cli.waits import Waiting, waiting_of
from signoff.graph.build import Graph, Storage, build_graph
from signoff.graph.errors import StorageError
from signoff.graph.machine import FIRST
from signoff.graph.outcome import current_outcome
from signoff.graph.task import Task, read
from signoff.models.scripted import ScriptedModel
from signoff.tools.control import standard_controls
from signoff.tools.toolbox import make_toolbox

TOOLS = make_toolbox((), standard_controls())
"""What reading a thread takes: the control tools. Of working tools only their names matter here."""


class Condition(StrEnum):
    """`unknown`: nothing is saved. `stopped`: work is left. `ended`: the current task has an outcome."""

    UNKNOWN = "unknown"
    WAITING = "waiting"
    STOPPED = "stopped"
    ENDED = "ended"


@dataclass(frozen=True)
class Standing:
    """A thread as it is saved.

    changed: when, in ISO 8601. go_on: the input that continues a stopped one.
    """

    thread_id: str
    condition: Condition
    task: Task = field(default_factory=Task)
    values: Mapping[str, Any] = field(default_factory=dict)
    waiting: Waiting | None = None
    go_on: Command[Any] | None = None
    changed: str = ""

    @property
    def outcome(self) -> Mapping[str, Any] | None:
        """The outcome of the current task; None while it has none."""
        return self.values["outcome"] if self.condition is Condition.ENDED else None


def config_of(thread_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id}}


def reading_graph(storage: Storage) -> Graph:
    """A graph that can read every thread and run none: its model has nothing to say."""
    return build_graph(ScriptedModel([]), storage=storage)


def look(graph: Graph, thread_id: str) -> Standing:
    """Where the thread stands now.

    Whether it has ended is read from its own outcome: after a kill LangGraph may name no next state although
    work is left, and the outcome may be that of an earlier task.
    """
    with readable(thread_id):
        state = graph.get_state(config_of(thread_id))
        values: Any = state.values
        task = read(values, TOOLS)
    if state.created_at is None:
        return Standing(thread_id, Condition.UNKNOWN)
    waiting = next((waiting_of(found.id, found.value) for found in state.interrupts), None)
    if current_outcome(values) is not None:
        condition = Condition.ENDED
    elif waiting:
        condition = Condition.WAITING
    else:
        condition = Condition.STOPPED
    # With nothing left to run, LangGraph has to be told where to enter.
    go_on = None if state.tasks else Command(goto=str(FIRST), update={})
    return Standing(thread_id, condition, task, values, waiting, go_on, state.created_at)


@contextmanager
def readable(thread_id: str) -> Iterator[None]:
    """Raises StorageError in place of what reading damaged rows of a database raises."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise StorageError(
            f"What the database holds of thread {thread_id!r} cannot be read ({type(error).__name__}: "
            f"{error}); begin another thread, or put back a copy of the database."
        ) from error
