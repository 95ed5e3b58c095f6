"""Reads a thread from a database, with everything that its record shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from signoff.front.database import OpenStorage
from signoff.front.record.run import Run
from signoff.front.settings import recall
from signoff.graph.outcome import Outcome
from signoff.nodes.journal import recorded
from signoff.session.below import ChildThread, children
from signoff.session.history import Chapter, chapters
from signoff.session.path import Step, steps
from signoff.session.status import ThreadStatus, deps_of, look, readable, reading_graph


@dataclass(frozen=True)
class SavedThread:
    """A saved thread: its status, its tasks and steps, the records of its ends, oldest first, whether a
    process runs it now, and the machines of its delegates, by the ids of their calls."""

    status: ThreadStatus
    chapters: Sequence[Chapter]
    path: Sequence[Step]
    ends: Sequence[Outcome]
    running: bool
    below: Mapping[str, ChildThread]


def read_saved(storage: OpenStorage, thread_id: str) -> SavedThread:
    """Reads a thread. Raises StorageError if it cannot be read."""
    # Checked first: otherwise a run that ends in between would look stopped.
    running = storage.checkpointer.is_running(thread_id)
    graph = reading_graph(storage)
    status = look(graph, thread_id)
    with readable(thread_id):
        path = steps(storage.checkpointer, thread_id)
        history = chapters(status.values, deps_of(graph).toolbox, path)
        below = children(graph, thread_id, status.values)
        return SavedThread(status, history, path, recorded(storage.store, thread_id), running, below)


def read_run(storage: OpenStorage, thread_id: str) -> Run:
    """Reads what the record of a thread shows. Raises StorageError if it cannot be read."""
    saved = read_saved(storage, thread_id)
    ends = (end for end in saved.ends if end.thread_id == thread_id)
    outcomes: dict[str, Mapping[str, Any]] = {end.task: end.model_dump() for end in ends}
    if saved.status.outcome is not None:
        outcomes[saved.status.outcome["task"]] = dict(saved.status.outcome)
    settings = recall(storage.store, thread_id)
    below = {call_id: _child(found, saved.running) for call_id, found in saved.below.items()}
    return Run(saved.status, saved.chapters, outcomes, saved.path, saved.running, settings, below)


def _child(found: ChildThread, running: bool) -> Run:
    status = found.status
    outcomes = {} if status.outcome is None else {status.outcome["task"]: dict(status.outcome)}
    goes_on = running and status.outcome is None
    below = {call_id: _child(one, running) for call_id, one in found.below.items()}
    return Run(status, found.chapters, outcomes, found.steps, goes_on, None, below, found.path)
