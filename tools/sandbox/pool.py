"""The interpreters of a sandbox: one for each thread that needs one, not too many, none left behind."""

import os
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import BoundedSemaphore, Lock

from signoff.tools.sandbox.base import PythonResult
from signoff.tools.sandbox.process import Interpreter

MOST = 8
"""Interpreters at once; the one used longest ago makes room for another."""

LOST = "The variables of earlier calls are gone."

_REMEMBERED = 1_000


@dataclass
class _Seat:
    """One thread's interpreter; the lock is held while a call runs."""

    lock: Lock = field(default_factory=Lock)
    interpreter: Interpreter | None = None
    lost: bool = False


class Pool:
    """Runs code of a thread in the thread's interpreter, `most` of them at once."""

    def __init__(self, start: Callable[[], Interpreter], most: int = MOST) -> None:
        self._start = start
        self._most = most
        self._turns = BoundedSemaphore(most)
        self._lock = Lock()
        self._seats: OrderedDict[str, _Seat] = OrderedDict()
        self._alive: set[Interpreter] = set()
        self._finalizer = weakref.finalize(self, _end, self._alive, os.getpid())

    def run(self, code: str, timeout: float, thread: str | None) -> PythonResult:
        """As `Sandbox.run`."""
        if thread is None:
            with self._turns:
                return self._once(code, timeout)
        seat = self._seat(thread)
        with seat.lock, self._turns:
            lost, seat.lost = seat.lost, False
            if seat.interpreter is None:
                seat.interpreter = self._started()
            result = seat.interpreter.run(code, timeout)
            if not seat.interpreter.alive or self._seats.get(thread) is not seat:
                lost = True
                self._drop(seat.interpreter)
                seat.interpreter = None
            note = f"{result.note} {LOST}".strip() if lost else result.note
            return replace(result, note=note)

    def close(self, thread: str | None) -> None:
        """As `Sandbox.close`. A call that is running ends as killed."""
        with self._lock:
            names = list(self._seats) if thread is None else [thread]
            seats = [seat for name in names if (seat := self._seats.pop(name, None))]
            idle = [seat for seat in seats if seat.lock.acquire(blocking=False)]
        for seat in seats:
            if seat.interpreter:
                seat.interpreter.stop()
        for seat in idle:
            if seat.interpreter:
                self._drop(seat.interpreter)
                seat.interpreter = None
            seat.lock.release()

    def _once(self, code: str, timeout: float) -> PythonResult:
        interpreter = self._started()
        try:
            return interpreter.run(code, timeout)
        finally:
            self._drop(interpreter)

    def _seat(self, thread: str) -> _Seat:
        with self._lock:
            seat = self._seats.setdefault(thread, _Seat())
            self._seats.move_to_end(thread)
            spare = [name for name, old in self._seats.items() if old.interpreter is None and old is not seat]
            for name in spare[: max(len(self._seats) - _REMEMBERED, 0)]:
                del self._seats[name]
            return seat

    def _started(self) -> Interpreter:
        """A new interpreter, after room was made for it."""
        with self._lock:
            for seat in list(self._seats.values()):
                if len(self._alive) < self._most:
                    break
                if seat.interpreter and seat.lock.acquire(blocking=False):
                    seat.interpreter.kill()
                    self._alive.discard(seat.interpreter)
                    seat.interpreter, seat.lost = None, True
                    seat.lock.release()
            interpreter = self._start()
            self._alive.add(interpreter)
            return interpreter

    def _drop(self, interpreter: Interpreter) -> None:
        interpreter.kill()
        with self._lock:
            self._alive.discard(interpreter)


def _end(alive: set[Interpreter], owner: int) -> None:
    # A fork of this process has the set, but not the processes.
    if os.getpid() == owner:
        for interpreter in list(alive):
            interpreter.kill()
