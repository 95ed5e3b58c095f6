"""The Monty sandbox: an interpreter for a subset of Python, without access to the machine.

It is for hosts without Landlock. The package comes with the extra `monty`.
"""

import os
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from signoff.graph.errors import SetupError
from signoff.graph.inside.installing import install_hint
from signoff.tools.sandbox.base import MB, Bounds, Captured, Exit, PythonResult
from signoff.tools.sandbox.folder import OwnFolder, OwnFolders
from signoff.tools.sandbox.linux import writable_workspace
from signoff.tools.sandbox.process import LOST, MOST
from signoff.tools.workspace import Workspace

if TYPE_CHECKING:
    from pydantic_monty import Monty, MontySession, MountDir

_INSIDE, _OWN = "/workspace", "/own"
_MOST_OF_A_VALUE = 100_000
_TIME_UP = "The time limit was reached."


@dataclass
class _Seat:
    """The session of one thread. timeout: the time limit of a call, in seconds, that it was opened with.
    folder: the thread's folder."""

    lock: Lock = field(default_factory=Lock)
    session: "MontySession | None" = None
    timeout: float = 0.0
    opened: ExitStack = field(default_factory=ExitStack)
    folder: OwnFolder | None = None
    mounts: "list[MountDir]" = field(default_factory=list)

    def end(self) -> None:
        self.session = None
        self.opened.close()


class MontySandbox:
    """Runs code in Monty: no network, no environment, no processes, no files but two folders.

    It supports a part of Python and of its standard library, and no other packages. workspace: a folder that
    the code reads as /workspace. It writes to /own, a folder outside of the workspace that belongs to its
    thread; a call without a thread has none. writable: the workspace can be changed, too, if nothing at its
    top is protected (`protect`, as in `signoff.tools.protected`), because Monty can only open a whole folder.
    Sleeping counts against the timeout of the whole thread. Raises SetupError when Monty is not installed or
    does not start."""

    def __init__(
        self,
        workspace: str | os.PathLike[str] | None = None,
        *,
        writable: bool = False,
        bounds: Bounds | None = None,
        protect: Collection[str] | None = None,
    ) -> None:
        try:
            import pydantic_monty
        except ImportError as error:
            raise SetupError(f"Monty is not installed; run: {install_hint('monty')}") from error
        self._library = pydantic_monty
        self._bounds = bounds or Bounds()
        self.workspace = None if workspace is None else Workspace(workspace).root
        self._access = "read-only"
        if self.workspace and writable:
            protected = list(writable_workspace(self.workspace, protect).top())
            self._access = f"read-only, since {protected[0]} is protected" if protected else "writable"
        self._folders = OwnFolders()
        self._lock = Lock()
        self._seats: dict[str, _Seat] = {}
        self._mount: MountDir | None = None
        self._held: ExitStack | None = None
        self._workers: Monty | None = None

    def run(self, code: str, *, timeout: float = 60.0, thread: str | None = None) -> PythonResult:
        seat = self._seat(thread)
        with seat.lock:
            before = seat.session is not None
            if thread is not None and seat.folder is None:
                self._mount_own(seat, thread)
            try:
                result = self._run(seat, code, timeout)
            finally:
                if thread is None:
                    seat.end()
        lost = thread is not None and before and seat.session is None
        note = f"{_TIME_UP if result.exit == 'timeout' else ''} {LOST if lost else ''}".strip()
        result = replace(result, note=note)
        return result if seat.folder is None else seat.folder.finish(result, {})

    def close(self, thread: str | None = None) -> None:
        with self._lock:
            names = list(self._seats) if thread is None else [thread]
            seats = [seat for name in names if (seat := self._seats.pop(name, None))]
            held = self._held if thread is None else None
            if thread is None:
                self._held = self._workers = self._mount = None
        for seat in seats:
            with seat.lock:
                seat.end()
        if held:
            held.close()
        self._folders.close(thread)

    def enforced(self) -> Mapping[str, bool | str]:
        return {
            "interpreter": f"Monty {self._library.__version__}",
            "own files": True,
            "own processes": True,
            "own network": True,
            "workspace": self._access if self.workspace else False,
            "memory": f"{self._bounds.memory // MB:,} MB",
            "processes": "none can be started",
            "output": f"{self._bounds.written // MB:,} MB",
        }

    def _mount_own(self, seat: _Seat, thread: str) -> None:
        seat.folder = self._folders.of(thread)
        seat.folder.workspace = _INSIDE if self.workspace else None
        also = "the workspace and to " if self._access == "writable" else ""
        seat.folder.refusal = f"This code can write only to {also}its own folder {_OWN}."
        seat.mounts = [
            self._library.MountDir(
                host_path=seat.folder.path,
                virtual_path=_OWN,
                mode="read-write",
                write_bytes_limit=self._bounds.disk,
            )
        ]

    def _seat(self, thread: str | None) -> _Seat:
        if thread is None:
            return _Seat()
        with self._lock:
            seat = self._seats.setdefault(thread, _Seat())
            idle = [other for other in self._seats.values() if other is not seat and other.session]
            for other in idle[: max(len(idle) + 1 - MOST, 0)]:
                if other.lock.acquire(blocking=False):
                    other.end()
                    other.lock.release()
            return seat

    def _run(self, seat: _Seat, code: str, timeout: float) -> PythonResult:
        library = self._library
        session = self._session(seat, timeout)
        streams = {"stdout": Captured(self._bounds.kept), "stderr": Captured(self._bounds.kept)}
        written = 0

        def collect(stream: str, text: str) -> None:
            nonlocal written
            written += len(text)
            if written > self._bounds.written:
                raise MemoryError("far too much output")
            streams[stream].add(text.encode(errors="backslashreplace"))

        started = time.monotonic()
        exit: Exit = "ok"
        value: Any = None
        try:
            mounts = [*([self._mount] if self._mount else []), *seat.mounts]
            cwd = _INSIDE if self.workspace else _OWN if seat.mounts else None
            value = session.feed_run(code, print_callback=collect, mount=mounts, cwd=cwd)
        except library.MontyCrashedError as error:
            exit = "timeout" if error.timed_out else "killed"
            seat.end()
        except library.MontyError as error:
            exit = _exit_of(error.exception())
            streams["stderr"].add(f"{_describe_error(error)}\n".encode(errors="backslashreplace"))
            if exit in ("timeout", "memory"):
                seat.end()
        return PythonResult(
            exit,
            streams["stdout"].text(),
            streams["stderr"].text(),
            None if value is None else repr(value)[:_MOST_OF_A_VALUE],
            time.monotonic() - started,
            any(stream.truncated for stream in streams.values()),
        )

    def _session(self, seat: _Seat, timeout: float) -> "MontySession":
        """Returns the session of `seat` with this time limit; a new limit keeps the session's state."""
        if seat.session is not None and seat.timeout == timeout:
            return seat.session
        state = seat.session.dump() if seat.session is not None else None
        seat.end()
        checkout = self._pool().checkout(
            limits={
                "max_memory": self._bounds.memory,
                "max_feed_duration_secs": timeout,
                "max_total_sleep_secs": timeout,
            }
        )
        session = seat.opened.enter_context(checkout)
        if state is not None:
            session.load_session(state)
        seat.session, seat.timeout = session, timeout
        return session

    def _pool(self) -> "Monty":
        with self._lock:
            if self._workers is None:
                held = ExitStack()
                try:
                    pool = self._library.Monty(max_processes=2 * MOST)
                    self._workers = held.enter_context(pool)
                except (OSError, RuntimeError) as error:
                    raise SetupError(f"Monty does not start: {error}.") from error
                if self.workspace:
                    self._mount = held.enter_context(
                        self._library.MountDir(
                            host_path=self.workspace,
                            virtual_path=_INSIDE,
                            mode="read-write" if self._access == "writable" else "read-only",
                            write_bytes_limit=self._bounds.disk,
                        )
                    )
                self._held = held
            return self._workers


def _exit_of(error: BaseException) -> Exit:
    if isinstance(error, MemoryError):
        return "memory"
    return "timeout" if isinstance(error, TimeoutError) else "error"


def _describe_error(error: Any) -> str:
    display = getattr(error, "display", None)
    return str(display() if display else error)
