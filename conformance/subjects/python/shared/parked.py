"""For frameworks whose runs wait for a person inside their process. Standard library only."""

import queue
import threading
from collections.abc import Callable
from typing import Any

from wire import Refused, Report

_GIVEN_UP = object()
PATIENCE = 20.0
"""Seconds for a run that was given up to end."""


class Parked:
    """One run at a time, in a thread of its own, which stands still in `ask` until somebody answers."""

    def __init__(self) -> None:
        self._reports: queue.Queue[Report | Exception] = queue.Queue()
        self._answers: queue.Queue[Any] = queue.Queue()
        self._one = threading.Lock()
        self._thread: threading.Thread | None = None
        self._waiting = False
        self._closed = False

    def run(self, work: Callable[[], Report]) -> Report:
        """Begins `work`; its report, or that of its first question."""
        if self._waiting:
            raise Refused("the run waits for an answer, and takes no message meanwhile")
        self._thread = threading.Thread(target=self._work, args=(work,), daemon=True)
        self._thread.start()
        return self._next()

    def ask(self, report: Report) -> Any:
        """Called by the run: stands still until there is an answer. One question at a time."""
        with self._one:
            if not self._closed:
                self._reports.put(report)
                answer = self._answers.get()
                if answer is not _GIVEN_UP:
                    return answer
        raise RuntimeError("nobody is there any more")

    def answer(self, value: Any) -> Report:
        """Gives the run its answer; the report that comes next."""
        if not self._waiting:
            raise Refused("no question is waiting")
        self._answers.put(value)
        return self._next()

    def close(self) -> None:
        """Gives up a run that waits, so that the next one does not meet it."""
        self._closed = True
        if self._waiting and self._thread:
            self._answers.put(_GIVEN_UP)
            self._thread.join(PATIENCE)

    def _work(self, work: Callable[[], Report]) -> None:
        try:
            self._reports.put(work())
        except Exception as error:  # noqa: BLE001  raised again in the thread of the caller
            self._reports.put(error)

    def _next(self) -> Report:
        found = self._reports.get()
        self._waiting = isinstance(found, Report) and found.status in ("question", "approval")
        if isinstance(found, Exception):
            raise found
        return found
