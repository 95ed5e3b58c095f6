"""Resources that tools keep open beyond a call (shells, interpreters, MCP servers), and their end."""

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver


class Holding:
    """A resource that a tool keeps open. `end` closes it, may be called at any time, and does not refer to
    this object.

    It is closed with the last graph that uses it, and at the latest with the program. A later call of the
    tool opens it again.
    """

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        self._lock = threading.Lock()
        self._users: set[object] = set()
        when_gone(self, end)

    def use(self, user: object) -> None:
        """Keeps the resource open for `user`."""
        with self._lock:
            self._users.add(user)

    def leave(self, user: object) -> None:
        """Ends the resource when `user` was the last one."""
        with self._lock:
            self._users.discard(user)
            last = not self._users
        if last:
            self._end()


class OpenResources:
    """The open resources of one graph's tools. Closed by `end`, and when the graph is garbage-collected."""

    def __init__(self, tools: Iterable[BaseTool]) -> None:
        found = [_holdings[part] for tool in tools for part in _functions(tool) if part in _holdings]
        user = object()
        for holding in found:
            holding.use(user)
        self.holds = bool(found)
        self._end = partial(_leave, found, user)
        if found:
            when_gone(self, self._end)

    def end(self) -> None:
        """Closes what no other graph uses. May be called again; a graph that is used later opens it again."""
        self._end()


# Found by the tool's function, which copies of the tool share.
_holdings: weakref.WeakKeyDictionary[Callable[..., Any], Holding] = weakref.WeakKeyDictionary()
_by_owner: weakref.WeakKeyDictionary[Any, Holding] = weakref.WeakKeyDictionary()
_by_saver: weakref.WeakKeyDictionary[Any, weakref.WeakSet[OpenResources]] = weakref.WeakKeyDictionary()
_by_graph: weakref.WeakKeyDictionary[Any, OpenResources] = weakref.WeakKeyDictionary()
_closed_with: weakref.WeakKeyDictionary[Any, Callable[[], None]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()
_at_work: set[threading.Thread] = set()
_ending = threading.Event()


def hold(tool: BaseTool, holding: Holding) -> BaseTool:
    """`tool`, with the resource that it keeps open."""
    for part in _functions(tool):
        _holdings[part] = holding
    return tool


def holding_of(owner: Any, close: str = "close") -> Holding:
    """The holding of `owner`, shared by all tools that use it; the method named `close` ends it."""
    try:
        found = _by_owner.get(owner)
    except TypeError:
        # A custom sandbox need not be hashable.
        return Holding(getattr(owner, close))
    if found is None:
        found = _by_owner[owner] = Holding(partial(_close, weakref.ref(owner), close))
    return found


def _close(owner: Callable[[], Any], close: str) -> None:
    if (found := owner()) is not None:
        getattr(found, close)()


def used_by(graph: Any, saver: Any, tools: Iterable[BaseTool]) -> None:
    """Ties the resources of `tools` to `graph` (one object that all its copies share) and to `saver`."""
    held = OpenResources(tools)
    if not held.holds:
        return
    with _lock:
        _by_graph[graph] = held
        if isinstance(saver, BaseCheckpointSaver):
            _by_saver.setdefault(saver, weakref.WeakSet()).add(held)


def close_with(graph: Any, close: Callable[[], None]) -> None:
    """Calls `close`, which may be called again, when `graph` is closed, and when it is gone."""
    _closed_with[graph] = close
    when_gone(graph, close)


def end_graph(graph: Any) -> None:
    """Closes the resources of the tools of `graph`, and what else is closed with it."""
    if held := _by_graph.get(graph):
        held.end()
    if close := _closed_with.get(graph):
        close()


def end_with(saver: Any) -> None:
    """Closes the resources for the graphs of a storage that is being closed."""
    with _lock:
        found = list(_by_saver.get(saver, ()))
    together([held.end for held in found])


def together(ends: Iterable[Callable[[], None]]) -> None:
    """Runs several `end` functions in parallel, since each may wait for a program to exit, and returns after
    the last."""
    threads = [threading.Thread(target=end, daemon=True) for end in ends]
    for thread in threads:
        try:
            thread.start()
        except RuntimeError:
            # No thread can start while the program exits, so they run one after another.
            thread.run()
    for thread in threads:
        with suppress(RuntimeError):
            thread.join()


def when_gone(owner: object, end: Callable[[], None]) -> None:
    """Calls `end` after `owner` was garbage-collected, and at the latest when the program ends.

    Python may collect at any line, even in a thread that holds the lock that `end` needs; so a separate
    thread calls it. In a fork of this process nothing is called: the resources belong to the parent.
    """
    weakref.finalize(owner, _collected, end, os.getpid())


def _collected(end: Callable[[], None], pid: int) -> None:
    if os.getpid() != pid:
        return
    if not _ending.is_set():
        thread = threading.Thread(target=_run, args=(end,), daemon=True)
        with suppress(RuntimeError):
            thread.start()
            return
    end()


def _run(end: Callable[[], None]) -> None:
    thread = threading.current_thread()
    _at_work.add(thread)
    try:
        end()
    finally:
        _at_work.discard(thread)


def _leave(holdings: list[Holding], user: object) -> None:
    together([partial(holding.leave, user) for holding in holdings])


def _functions(tool: BaseTool) -> list[Callable[..., Any]]:
    found = (getattr(tool, "func", None), getattr(tool, "coroutine", None))
    return [part for part in found if part is not None]


def _finish() -> None:
    _ending.set()
    for thread in list(_at_work):
        thread.join()


# Exit handlers run last in, first out: this does for the remaining owners what `weakref` does.
weakref.finalize(OpenResources, _finish).detach()
atexit.register(_finish)
