"""Threads that a program began with a graph of its own: shown to everybody, run by that graph alone."""

from dataclasses import replace
from typing import Any

from signoff import ThreadError, ThreadStatus
from signoff.front.database import Database, OpenStorage
from signoff.front.settings import recall
from signoff.session import Condition
from signoff.session.status import is_guarded
from signoff.text import quote_id
from signoff.workers.submitting import of_workers

THEIR_GRAPH = "module:name"
"""Stands in a printed command for the name of the program's graph, which no thread holds."""


def is_of_program(storage: Any, thread_id: str) -> bool:
    """Whether a program began this thread, which exists, and goes on with it."""
    known = recall(storage.store, thread_id) is not None
    return not (known or of_workers(storage, thread_id) or is_guarded(storage, thread_id))


def check_tools(storage: OpenStorage, status: ThreadStatus) -> None:
    """Raises ThreadError for a thread of a program: the tools and approvals of a command are not its own."""
    if status.condition is not Condition.UNKNOWN and is_of_program(storage, status.thread_id):
        raise ThreadError(
            f"Thread {quote_id(status.thread_id)} was begun by a program, which has its tools and approvals; "
            f"go on there, or with its graph: signoff resume --graph {THEIR_GRAPH}. Nothing was changed."
        )


def naming_graph(database: Database, storage: OpenStorage, thread_id: str) -> Database:
    """Returns the database for the commands that go on with this thread: for one of a program, with
    `--graph`."""
    return replace(database, graph=THEIR_GRAPH) if is_of_program(storage, thread_id) else database
