"""Forks: a child connects anew, and never waits for a lock that another thread of its parent has taken."""

import ctypes
import os
import threading
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Any
from weakref import WeakSet

ending = threading.RLock()
"""Held while threads end that have made connections, which may still be making some."""
databases: WeakSet[Any] = WeakSet()
"""Each `Database` of this process."""
sessions: WeakSet[Any] = WeakSet()
"""Each connection of this process to a server."""
_locks: WeakSet[Any] = WeakSet()
_forking = threading.Lock()
_waited_for = ExitStack()


def lock_against_forks() -> AbstractContextManager[object]:
    """A lock for whoever uses a database's library, which has locks of its own: a fork waits until it is
    free."""
    lock = threading.RLock()
    with _forking:
        _locks.add(lock)
    return lock


def leak(inherited: object) -> None:
    """Keeps what a child has of its parent's connections: freeing it would tidy up behind the parent."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


def _before_fork() -> None:
    _waited_for.enter_context(ending)
    _waited_for.enter_context(_forking)
    for lock in [*_locks]:
        _waited_for.enter_context(lock)


def _after_fork() -> None:
    # Taken out at first: as soon as the locks are free another thread may fork.
    _waited_for.pop_all().close()


def _in_child() -> None:
    _after_fork()
    for database in databases:
        database.forget_inherited()
    for session in sessions:
        leak(session)
        # Otherwise this child would keep it open, and with it a thread's lock, when its parent dies.
        with suppress(Exception):
            os.close(session.fileno())
    sessions.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
