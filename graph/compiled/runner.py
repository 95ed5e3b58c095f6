"""One runner a thread: whoever runs a thread holds it, and a second one is sent away.

LangGraph's savers have no locking: of three runs of one thread at once each would make its own fork, and the
last one to write would win. A checkpointer with a `runner` of its own (those of `sqlite_storage` and
`postgres_storage`) keeps other processes out, too; with any other one this holds within the process.
"""

import re
import reprlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from langgraph.checkpoint.base import BaseCheckpointSaver

from signoff.graph.compiled.inputs import check_config, nested, no_thread
from signoff.graph.errors import SetupError, StorageError, ThreadBusy, ThreadLost, shown
from signoff.graph.private import has_saver

# A runner that is just letting go must not send the next one away.
GRACE_SECONDS = 0.2

# Half a character cannot be encoded, and databases end a text at NUL.
_UNUSABLE = re.compile("[\ud800-\udfff\0]")
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


def checked_thread_id(given: object) -> str:
    """`given`, as the id of a thread. Raises SetupError, in the same words at every way in."""
    if isinstance(given, str) and given and _UNUSABLE.search(given) is None:
        return given
    told = shown(given) if isinstance(given, str) else reprlib.repr(given)
    raise SetupError(f"A thread id is valid text, not empty and without NUL; not {told}.")


def runner(checkpointer: BaseCheckpointSaver[Any], thread_id: str) -> AbstractContextManager[None]:
    """Holds the thread while the context lasts. Raises ThreadBusy when another runner holds it."""
    own = getattr(checkpointer, "runner", None)
    found: AbstractContextManager[None] = (own or _in_process(checkpointer))(thread_id)
    return found


@contextmanager
def storage_errors() -> Iterator[None]:
    """Raises StorageError in place of what SQLite raises for a full disk, a database that is locked, …"""
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
        "the storage again and build the graph anew."
    )


def busy(thread_id: str) -> ThreadBusy:
    """The error for a second runner."""
    return ThreadBusy(
        f"Thread {shown(thread_id)} is running elsewhere; wait until it ends, or pause it there."
    )


def lost(thread_id: str) -> ThreadLost:
    """The error for a runner that was cut off, and whose thread another one has taken."""
    return ThreadLost(
        f"Another runner has taken thread {shown(thread_id)} over; this one has stopped, nothing is lost."
    )


def _in_process(checkpointer: BaseCheckpointSaver[Any]) -> Any:
    @contextmanager
    def hold(thread_id: str) -> Iterator[None]:
        until = time.monotonic() + GRACE_SECONDS
        while not _taken(checkpointer, thread_id):
            if time.monotonic() > until:
                raise busy(thread_id)
            time.sleep(0.02)
        try:
            yield
        finally:
            with _lock:
                _held[checkpointer].discard(thread_id)

    return hold


def _taken(checkpointer: BaseCheckpointSaver[Any], thread_id: str) -> bool:
    with _lock:
        held = _held.setdefault(checkpointer, set())
        if thread_id in held:
            return False
        held.add(thread_id)
        return True
