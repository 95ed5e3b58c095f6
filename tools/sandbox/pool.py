"""The interpreters of a sandbox: each thread that needs one has one, up to a limit.

All of them end with the sandbox, and at the latest with this process.
"""

import os
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from threading import BoundedSemaphore, Lock, RLock
from typing import Protocol

from signoff.graph.errors import SetupError
from signoff.tools.filesystem.paths import quote_path
from signoff.tools.processes.helpers import base_python
from signoff.tools.protected import Protected
from signoff.tools.sandbox.base import Bounds, Folder, PythonResult
from signoff.tools.sandbox.folder import OwnFolder, OwnFolders
from signoff.tools.workspace import Workspace

MOST = 8
"""How many interpreters run at once; the least recently used one is ended to make room."""

LOST = "The variables of earlier calls are gone."

_MOST_REMEMBERED = 1_000
_MOST_NAMED = 5


class Interpreter(Protocol):
    """Runs code, with variables that stay while it is `alive`.

    folder: where the code writes. memory: the bytes that it uses.
    """

    folder: OwnFolder
    alive: bool

    @property
    def memory(self) -> int: ...

    def run(self, code: str, timeout: float) -> PythonResult: ...

    def stop(self) -> None:
        """Ends a running call, from any thread."""

    def kill(self) -> None:
        """Ends the interpreter and frees its resources; not during a call."""


@dataclass
class _Seat:
    """The interpreter of one thread; the lock is held while a call runs. is_lost: it was ended meanwhile."""

    lock: Lock = field(default_factory=Lock)
    interpreter: Interpreter | None = None
    is_lost: bool = False


class Pool(ABC):
    """Runs the code of each thread in that thread's interpreter: a `Sandbox` but for `enforced`."""

    workspace: str | None = None

    def __init__(self, bounds: Bounds | None) -> None:
        self._bounds = bounds or Bounds()
        self._folders = OwnFolders()
        self._turns = BoundedSemaphore(MOST)
        # An interpreter that is being started asks whether it fits.
        self._lock = RLock()
        self._seats: OrderedDict[str, _Seat] = OrderedDict()
        self._alive: set[Interpreter] = set()
        weakref.finalize(self, _end, self._alive, self._folders, os.getpid())

    @abstractmethod
    def _start(self, folder: OwnFolder, fits: Callable[[], bool]) -> Interpreter:
        """A new interpreter, which must not keep this object alive. Raises SetupError.

        folder: where its code writes. fits: whether there is room for what it uses now.
        """

    def run(self, code: str, *, timeout: float = 60.0, thread: str | None = None) -> PythonResult:
        if self.workspace and not os.path.isdir(self.workspace):
            return PythonResult("error", note="The workspace folder is gone; ask the user to restore it.")
        seat = _Seat() if thread is None else self._seat(thread)
        with seat.lock, self._turns:
            is_lost, seat.is_lost = seat.is_lost, False
            why = seat.interpreter.folder.outdated() if seat.interpreter else ""
            if why:
                self._empty(seat)
            interpreter = seat.interpreter = seat.interpreter or self._started(thread)
            try:
                result = interpreter.run(code, timeout)
            finally:
                if not interpreter.alive or thread is None or self._seats.get(thread) is not seat:
                    self._empty(seat)
            is_lost = is_lost or bool(why) or seat.interpreter is None
            if thread is None or not is_lost:
                return result
            return replace(result, note=" ".join(filter(None, (result.note, why, LOST))))

    def close(self, thread: str | None = None) -> None:
        """A running call of a process ends as `killed`."""
        with self._lock:
            names = list(self._seats) if thread is None else [thread]
            seats = [seat for name in names if (seat := self._seats.pop(name, None))]
        for seat in seats:
            if interpreter := seat.interpreter:
                interpreter.stop()
            # A call that runs sees that its seat is gone, and empties it.
            if seat.lock.acquire(blocking=False):
                self._empty(seat)
                seat.lock.release()
        self._folders.close(thread)

    def _seat(self, thread: str) -> _Seat:
        with self._lock:
            seat = self._seats.setdefault(thread, _Seat())
            self._seats.move_to_end(thread)
            if len(self._seats) > _MOST_REMEMBERED:
                self._seats.popitem(last=False)
            return seat

    def _started(self, thread: str | None) -> Interpreter:
        """A new interpreter, after making room for it."""
        fits = weakref.WeakMethod(self._fits)
        with self._lock:
            self._end_idle(lambda: len(self._alive) < MOST)
            folder = self._folders.of(thread)
            try:
                interpreter = self._start(folder, lambda: (fits() or bool)())
            except SetupError:
                folder.clean()
                raise
            self._alive.add(interpreter)
            return interpreter

    def _fits(self) -> bool:
        """Whether all interpreters together use no more than they may, after the idle ones are ended."""

        def is_enough() -> bool:
            return sum(each.memory for each in list(self._alive)) <= self._bounds.memory_together

        if is_enough():
            return True
        with self._lock:
            self._end_idle(is_enough)
        return is_enough()

    def _end_idle(self, is_enough: Callable[[], bool]) -> None:
        """Ends idle interpreters, the least recently used one first, until it is enough."""
        for seat in list(self._seats.values()):
            if is_enough():
                return
            if seat.interpreter and seat.lock.acquire(blocking=False):
                self._empty(seat)
                seat.is_lost = True
                seat.lock.release()

    def _empty(self, seat: _Seat) -> None:
        """Ends the interpreter of a seat whose lock is held."""
        if seat.interpreter:
            seat.interpreter.kill()
            seat.interpreter.folder.clean()
            self._alive.discard(seat.interpreter)
            seat.interpreter = None


class WorkspacePool(Pool):
    """A pool whose interpreters read a workspace, and change it if it is `writable`.

    beside_protected: what of a writable workspace can be changed where something in it is protected. Raises
    SetupError when the workspace as a whole is protected.
    """

    beside_protected: str

    def __init__(
        self,
        workspace: Folder | None = None,
        *,
        writable: bool = False,
        bounds: Bounds | None = None,
        protect: Collection[str] | None = None,
    ) -> None:
        super().__init__(bounds)
        self.workspace: str | None = None if workspace is None else Workspace(workspace).root
        self._protected = Protected(self.workspace, protect) if writable and self.workspace else None
        if self._protected and self._protected.why(str(self.workspace)):
            raise SetupError(
                f"The workspace {self.workspace} is protected as a whole, and code may not change it. Take "
                "another folder, or accept it by name: protect=['!.']."
            )
        # The interpreter is started from outside and confines itself after that.
        base_python(self.workspace, protect)
        self._prepare()
        trial = self.run("6 * 7", timeout=20.0)
        if trial.value != "42":
            raise SetupError(f"The sandbox does not work here: {trial.stderr.strip() or trial.exit}.")

    @abstractmethod
    def _prepare(self) -> None:
        """Raises SetupError where this sandbox cannot work."""

    def _boundary(self, by: str) -> dict[str, bool | str]:
        """What holds, by name; `by` what."""
        protected = list(self._protected.top()) if self._protected else []
        access = "read-only"
        if self._protected:
            access = self.beside_protected if protected else "writable"
        return {
            **dict.fromkeys(("own files", "own processes", "own network"), by),
            "workspace": access if self.workspace else False,
            **({"protected": names_text(protected)} if protected else {}),
            "processes": "none can be started",
        }


def names_text(names: Sequence[str]) -> str:
    """Names in one line; not all of many."""
    return ", ".join(map(quote_path, names[:_MOST_NAMED])) + (" and others" if names[_MOST_NAMED:] else "")


def _end(alive: set[Interpreter], folders: OwnFolders, owner: int) -> None:
    # A fork of this process has the set, but does not own the processes and their folders.
    if os.getpid() == owner:
        for interpreter in list(alive):
            interpreter.kill()
            interpreter.folder.clean()
        folders.close(None)
