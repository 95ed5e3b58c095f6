"""The hold on a thread: the right to run it, and to write to it until it is let go."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs, var_child_runnable_config

from signoff.graph.errors import StorageError, ThreadBusy, ThreadLost, quote_id
from signoff.graph.foreign import label

_KEY = "__signoff_hold"
"""Its key in LangGraph's `configurable`, which is forwarded to whatever a run starts, and never saved."""
_T = TypeVar("_T")


class Hold:
    """One runner's right to a thread.

    It travels with the configuration of the run. So whatever the run has started, the thread of a tool that
    was given up, too, writes by this very hold, and is refused once it has been let go, also where another
    runner of the same process has the thread by then.
    """

    def __init__(self, thread_id: str, owner: object) -> None:
        """owner: names the database whose thread it is; the checkpointer, if that is somebody else's."""
        self.thread_id, self.owner = thread_id, owner
        self.label = label(thread_id)
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._is_over = False

    def write(self, work: Callable[[], _T]) -> _T:
        """Does what writes to the thread, which stays held meanwhile. Raises ThreadLost if it is not held."""
        # A forked child has none of what its parent holds, and its copy of the lock may never be freed.
        if os.getpid() != self._process:
            raise lost(self.thread_id)
        with self._lock:
            if self._is_over:
                raise lost(self.thread_id)
            return work()

    def end(self) -> None:
        """Refuses all further writes; waits for the one that is being made."""
        # First, so that an interrupt during the wait lets nothing be written later.
        self._is_over = True
        with self._lock:
            pass

    @contextmanager
    def here(self) -> Iterator[None]:
        """Whatever this block writes to the thread, it writes by this hold."""
        token = _here.set(self)
        try:
            yield
        finally:
            _here.reset(token)


_here: ContextVar[Hold | None] = ContextVar("_here", default=None)


def lost(thread_id: str) -> ThreadLost:
    """The error for a runner that no longer holds its thread."""
    return ThreadLost(
        f"This runner no longer holds thread {quote_id(thread_id)}, and writes no more to it; what it saved "
        "is kept."
    )


def closed() -> StorageError:
    """The error for a graph used after its storage was closed."""
    return StorageError(
        "This storage is closed: its `with` block has ended, or it or a graph of it was closed. Use it "
        "before that, or open it again and build the graph again."
    )


def busy(thread_id: str) -> ThreadBusy:
    """The error for a second runner."""
    return ThreadBusy(
        f"Thread {quote_id(thread_id)} is running elsewhere; wait until it ends, or pause it there."
    )


def holding(config: RunnableConfig | None, hold: Hold | None) -> RunnableConfig | None:
    """The configuration of a run that writes by this hold."""
    return config if hold is None else merge_configs(config, {"configurable": {_KEY: hold}})


def hold_of(name: str, owner: object, configurable: Mapping[str, Any] | None = None) -> Hold | None:
    """The hold by which the caller writes to this owner's thread with this label; None where it has none."""
    around = var_child_runnable_config.get() or {}
    known = [found.get(_KEY) for found in (configurable or {}, around.get("configurable", {}))]
    for hold in (*known, _here.get()):
        if hold is not None and hold.label == name and hold.owner == owner:
            return hold
    return None
