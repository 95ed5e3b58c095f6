"""Threads that run sync tools and calls of models: kept for the next, since starting one takes as long as a
small tool."""

import os
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

_MOST_IDLE = 16
_Work = Callable[[], object]
_idle: deque[SimpleQueue[_Work]] = deque()
# In a child process none of these threads exists.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)


def in_thread(work: _Work) -> None:
    """Runs `work`, which must not raise, in a daemon thread; one that hangs holds up nothing else.

    The last thread that came free is taken first: so one serves all calls of a run. When `work` gives False,
    its thread is not used again.
    """
    try:
        queue = _idle.pop()
    except IndexError:
        queue = SimpleQueue()
        threading.Thread(target=_serve, args=(queue,), name="signoff-helper", daemon=True).start()
    queue.put(work)


def _serve(queue: SimpleQueue[_Work]) -> None:
    while True:
        if queue.get()() is False or len(_idle) >= _MOST_IDLE:
            return
        _idle.append(queue)
