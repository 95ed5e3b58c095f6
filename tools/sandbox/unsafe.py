"""No sandbox at all: for hosts and code that one trusts anyway."""

import os
import sys
from collections.abc import Mapping

from signoff.graph.errors import SetupError
from signoff.tools.sandbox.base import Bounds, PythonResult
from signoff.tools.sandbox.pool import Pool
from signoff.tools.sandbox.process import Interpreter, Launch
from signoff.tools.sandbox.program import PROGRAM, installation
from signoff.tools.workspace import Workspace


class UnsafeSandbox:
    """Protects from nothing.

    The code runs in a process of its own as the current user: it can read and delete every file of that
    user, read the environment with its keys, use the network, and leave processes behind that go on when
    everything else has ended. Only the time of a call, its output, and its memory are limited.

    Raises SetupError unless `unsafe` is True, and on Windows.
    """

    def __init__(
        self,
        workspace: str | os.PathLike[str] | None = None,
        *,
        unsafe: bool,
        bounds: Bounds | None = None,
    ) -> None:
        if not unsafe:
            raise SetupError("This sandbox protects from nothing; pass unsafe=True if that is what you want.")
        if sys.platform == "win32":
            raise SetupError('There is no such sandbox on Windows; use `pip install "signoff[monty]"`.')
        self._workspace = os.getcwd() if workspace is None else Workspace(workspace).root
        self._bounds = bounds or Bounds()
        self._pool = Pool(self._start)

    def run(self, code: str, *, timeout: float = 60.0, thread: str | None = None) -> PythonResult:
        return self._pool.run(code, timeout, thread)

    def close(self, thread: str | None = None) -> None:
        self._pool.close(thread)

    def moved(self, workspace: str | os.PathLike[str], bounds: Bounds) -> "UnsafeSandbox":
        return UnsafeSandbox(workspace, unsafe=True, bounds=bounds)

    def enforced(self) -> Mapping[str, bool | str]:
        """Nothing but the memory of what it has not hidden, and the size of the output."""
        names = ("own files", "own processes", "own network", "own user", "landlock", "seccomp")
        together = f"{self._bounds.memory_together // 1_000_000} MB together"
        held = {"memory": together, "output": f"{self._bounds.written // 1_000_000} MB"}
        return {**dict.fromkeys(names, False), **held}

    def _start(self) -> Interpreter:
        python = installation()
        launch = Launch(
            command=[python.executable, "-I", "-S", "-B", "-c", PROGRAM],
            env={**os.environ, "PWD": self._workspace},
            settings={"confinement": None, "folder": self._workspace, "packages": python.packages},
        )
        return Interpreter(launch, self._bounds)
