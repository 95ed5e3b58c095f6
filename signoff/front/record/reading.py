"""Reads a thread from a database, with everything that its record shows."""

from collections.abc import Mapping
from typing import Any

from signoff.front.database import OpenStorage
from signoff.front.programs import naming_graph
from signoff.front.record.run import DATABASE, Run
from signoff.front.settings import recall
from signoff.nodes.journal import recorded
from signoff.session.below import ChildThread, children
from signoff.session.history import chapters
from signoff.session.path import steps
from signoff.session.status import deps_of, look, readable, reading_graph


def read_run(storage: OpenStorage, thread_id: str) -> Run:
    """Reads what the record of a thread shows. Raises StorageError if it cannot be read."""
    # Checked first: otherwise a run that ends in between would look stopped.
    running = storage.checkpointer.is_running(thread_id)
    graph = reading_graph(storage)
    status = look(graph, thread_id)
    with readable(thread_id):
        path = steps(storage.checkpointer, thread_id)
        history = chapters(status.values, deps_of(graph).toolbox, path)
        machines = children(graph, thread_id, status.values)
        ends = [end for end in recorded(storage.store, thread_id) if end.thread_id == thread_id]
    outcomes: dict[str, Mapping[str, Any]] = {end.task: end.model_dump() for end in ends}
    if status.outcome is not None:
        outcomes[status.outcome.task] = status.outcome.model_dump(mode="json")
    settings = recall(storage.store, thread_id)
    below = {call_id: _child(child, running) for call_id, child in machines.items()}
    database = naming_graph(DATABASE, storage, thread_id)
    return Run(status, history, outcomes, path, running, settings, below, database=database)


def _child(found: ChildThread, running: bool) -> Run:
    status = found.status
    outcomes = {} if status.outcome is None else {status.outcome.task: status.outcome.model_dump(mode="json")}
    goes_on = running and status.outcome is None
    below = {call_id: _child(one, running) for call_id, one in found.below.items()}
    return Run(status, found.chapters, outcomes, found.steps, goes_on, None, below, found.path)
