"""The Monty sandbox: an interpreter for a subset of Python, without access to the machine.

It is for hosts without Landlock. The package comes with the extra `monty`.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from signoff.graph.errors import SetupError
from signoff.graph.inside.installing import install_hint
from signoff.tools.sandbox.base import TOO_MUCH_OUTPUT, Bounds, Exit, Output, PythonResult
from signoff.tools.sandbox.folder import OwnFolder
from signoff.tools.sandbox.pool import Interpreter, WorkspacePool

if TYPE_CHECKING:
    from pydantic_monty import MontySession, MountDir, ResourceLimits

_WORKSPACE, _OWN = "/workspace", "/own"
_MOST_OF_A_VALUE = 100_000
_EXITS: dict[type[BaseException], Exit] = {MemoryError: "memory", TimeoutError: "timeout"}


class MontyInterpreter:
    """A session of Monty in a process of its own. mounts: the folders that it reaches; it begins in the first
    one."""

    memory = 0
    """It is bounded by Monty itself."""

    def __init__(self, folder: OwnFolder, mounts: "Sequence[MountDir]", bounds: Bounds) -> None:
        from pydantic_monty import Monty

        self.folder, self._mounts, self._bounds = folder, mounts, bounds
        self._opened, self._checkout = ExitStack(), ExitStack()
        self._workers = self._opened.enter_context(Monty(max_processes=1))
        self._session: MontySession | None = None
        self._timeout = 0.0
        self.alive = True

    def run(self, code: str, timeout: float) -> PythonResult:
        from pydantic_monty import MontyCrashedError, MontyError

        session = self._session_with(timeout)
        output, worker, is_flood = Output(self._bounds), session.worker_pid, False

        def collect(stream: str, text: str) -> None:
            nonlocal is_flood
            if output.add(stream, text.encode(errors="backslashreplace")) or is_flood:
                return
            is_flood = True
            if worker:
                # An error raised here would end the call only when its time is up.
                os.kill(worker, signal.SIGTERM)

        started = time.monotonic()
        exit: Exit = "ok"
        value: Any = None
        is_refused = False
        try:
            cwd = self._mounts[0].virtual_path
            value = session.feed_run(code, print_callback=collect, mount=list(self._mounts), cwd=cwd)
        except MontyCrashedError as error:
            exit = "timeout" if error.timed_out else "killed"
        except MontyError as error:
            exit = _EXITS.get(type(error.exception()), "error")
            is_refused = str(error.exception()).startswith("[Errno 30]")
            shown = error.display() if hasattr(error, "display") else error
            output.add("stderr", f"{shown}\n".encode(errors="backslashreplace"))
        self.alive = exit in ("ok", "error")
        shown_value = None if value is None else repr(value)[:_MOST_OF_A_VALUE]
        note = "The time limit was reached." if exit == "timeout" else ""
        if is_flood:
            note = TOO_MUCH_OUTPUT
        return self.folder.finish(output.result(exit, shown_value, started, note), {"refused": is_refused})

    def stop(self) -> None:
        """A running call ends with its time."""

    def kill(self) -> None:
        self.alive = False
        self._checkout.close()
        self._opened.close()

    def _session_with(self, timeout: float) -> "MontySession":
        """The session with this time limit; a new limit keeps the session's state."""
        if self._session is not None and self._timeout == timeout:
            return self._session
        state = self._session.dump() if self._session is not None else None
        self._checkout.close()
        limits: ResourceLimits = {"max_memory": self._bounds.memory, "max_feed_duration_secs": timeout}
        limits["max_total_sleep_secs"] = timeout
        checkout = self._workers.checkout(limits=limits)
        self._session, self._timeout = self._checkout.enter_context(checkout), timeout
        if state is not None:
            self._session.load_session(state)
        return self._session


class MontySandbox(WorkspacePool):
    """Runs code in Monty: no network, no environment, no processes, no files but two folders.

    It supports a part of Python and of its standard library, and no other packages. workspace: a folder that
    the code reads as /workspace. It writes to /own, a folder outside of the workspace that belongs to its
    thread. writable: the workspace can be changed, too, if nothing at its top is protected (`protect`, as in
    `signoff.tools.protected`), because Monty can only open a whole folder. Raises SetupError when Monty is
    not installed or does not work."""

    beside_protected = "read-only"

    def _prepare(self) -> None:
        try:
            import pydantic_monty
        except ImportError as error:
            raise SetupError(f"Monty is not installed; run: {install_hint('monty')}") from error
        self._version = pydantic_monty.__version__

    def enforced(self) -> Mapping[str, bool | str]:
        bounds = self._bounds.described("memory", "written")
        return {**self._boundary(f"by Monty {self._version}"), "own folder": _OWN, **bounds}

    def _start(self, folder: OwnFolder, fits: Callable[[], bool]) -> Interpreter:
        is_writable = self._protected is not None and not self._protected.top()
        also = "the workspace and to " if is_writable else ""
        folder.refusal = f"This code can write only to {also}its own folder {_OWN}."
        folder.begin([self.workspace] if self.workspace else [])
        own = self._mounted(folder.path, _OWN, "read-write")
        if not self.workspace:
            return MontyInterpreter(folder, [own], self._bounds)
        mode = "read-write" if is_writable else "read-only"
        return MontyInterpreter(folder, [self._mounted(self.workspace, _WORKSPACE, mode), own], self._bounds)

    def _mounted(self, path: str, inside: str, mode: Any) -> "MountDir":
        from pydantic_monty import MountDir

        return MountDir(host_path=path, virtual_path=inside, mode=mode, write_bytes_limit=self._bounds.disk)
