"""Reads a thread from a database, with all that its record tells."""

from collections.abc import Mapping
from typing import Any

from signoff.front.database import OpenStorage
from signoff.front.record.run import Run
from signoff.front.settings import recall
from signoff.nodes.journal import recorded
from signoff.session.history import chapters
from signoff.session.path import steps
from signoff.session.status import deps_of, look, readable, reading_graph


def read_run(storage: OpenStorage, thread_id: str) -> Run:
    """The thread as it is saved. Raises StorageError for one that cannot be read."""
    # Asked first: else a run that ends in between would look as if it had been stopped.
    running = storage.checkpointer.is_running(thread_id)
    graph = reading_graph(storage)
    status = look(graph, thread_id)
    with readable(thread_id):
        path = steps(storage.checkpointer, thread_id)
        told = chapters(status.values, deps_of(graph).toolbox, path)
        ends = [end for end in recorded(storage.store, thread_id) if end.thread_id == thread_id]
    outcomes: dict[str, Mapping[str, Any]] = {end.task: end.model_dump() for end in ends}
    if status.outcome is not None:
        outcomes[status.outcome["task"]] = dict(status.outcome)
    return Run(status, told, outcomes, path, running, recall(storage.store, thread_id))
