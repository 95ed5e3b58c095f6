"""run_python: runs the model's Python in a sandbox, or without one where it is trusted."""

import os
import platform
import sys
from collections.abc import Collection, Mapping
from typing import Literal

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from pydantic import BaseModel, Field

from signoff.graph.errors import SetupError
from signoff.graph.foreign import capped
from signoff.graph.inside.installing import install_hint
from signoff.graph.kinds import Kind
from signoff.tools.processes.held import hold, holding_of
from signoff.tools.sandbox.base import Bounds, PythonResult, Sandbox
from signoff.tools.sandbox.linux import LinuxSandbox
from signoff.tools.sandbox.monty import MontySandbox
from signoff.tools.sandbox.process import Interpreter, Launch, Pool
from signoff.tools.sandbox.program import PROGRAM, installation
from signoff.tools.workspace import Workspace


class UnsafeSandbox:
    """Offers no protection.

    The code runs in its own process as the current user: it can read and delete every file of that user, read
    the environment with its keys, use the network, and leave processes running after everything else has
    ended. Only the time, output and memory of a call are limited.

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
            raise SetupError("This sandbox offers no protection; pass unsafe=True if that is what you want.")
        if sys.platform == "win32":
            raise SetupError(
                f"This sandbox does not exist on Windows; use the Monty sandbox: {install_hint('monty')}"
            )
        self._workspace = os.getcwd() if workspace is None else Workspace(workspace).root
        self._bounds = bounds or Bounds()
        self._pool = Pool(self._start)

    def run(self, code: str, *, timeout: float = 60.0, thread: str | None = None) -> PythonResult:
        return self._pool.run(code, timeout, thread)

    def close(self, thread: str | None = None) -> None:
        self._pool.close(thread)

    def enforced(self) -> Mapping[str, bool | str]:
        """Returns the limits that hold: the memory of processes that are not hidden, and the size of the
        output.
        """
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


SandboxKind = Literal["auto", "linux", "landlock", "monty", "unsafe"]


def choose_sandbox(
    kind: SandboxKind = "auto",
    *,
    workspace: str | os.PathLike[str] | None = None,
    writable: bool = True,
    protect: Collection[str] | None = None,
) -> Sandbox:
    """Returns the sandbox of this kind, started once to check that it works.

    `auto` takes the Linux sandbox, else Monty, and never the unsafe one; `landlock` is the Linux sandbox
    without bubblewrap. workspace: the folder the code sees; changed only when `writable`. protect: what code
    may not change in it (see `signoff.tools.protected`); the unsafe sandbox protects nothing. Raises
    SetupError when none works, or for an unknown kind.
    """
    match kind:
        case "linux":
            return LinuxSandbox(workspace, writable=writable, protect=protect)
        case "landlock":
            return LinuxSandbox(workspace, writable=writable, protect=protect, bubblewrap=False)
        case "monty":
            return _try_sandbox(MontySandbox(workspace, writable=writable, protect=protect))
        case "unsafe":
            return UnsafeSandbox(workspace, unsafe=True)
        case "auto":
            return _best(workspace, writable, protect)
        case _:
            raise SetupError(f"There is no sandbox {kind!r}; use auto, linux, landlock, monty or unsafe.")


def _best(
    workspace: str | os.PathLike[str] | None, writable: bool, protect: Collection[str] | None
) -> Sandbox:
    problems = []
    if platform.system() == "Linux":
        try:
            return LinuxSandbox(workspace, writable=writable, protect=protect)
        except SetupError as error:
            problems.append(str(error))
    try:
        return _try_sandbox(MontySandbox(workspace, writable=writable, protect=protect))
    except SetupError as error:
        problems.append(str(error))
    raise SetupError(
        f"There is no sandbox for Python on this host. {' '.join(problems)} "
        "To run the code without any protection, choose the sandbox `unsafe`."
    )


def _try_sandbox(sandbox: Sandbox) -> Sandbox:
    tried = sandbox.run("6 * 7", timeout=20)
    if tried.value != "42":
        raise SetupError(f"The sandbox does not work here: {tried.stderr.strip() or tried.exit}.")
    return sandbox


SECONDS = 60.0
"""How long one call may take."""

_DESCRIPTION = (
    "Run Python code and see what it prints; the value of a last expression is shown too. Variables, "
    "functions and imports stay for the next call. There is no network, and a call ends after "
    "{seconds:g} seconds; then, and when the interpreter breaks down, the variables are gone."
)
_WORDS = {
    "ok": "",
    "error": "",
    "timeout": "Timed out after {seconds:.1f} s.",
    "killed": "The interpreter has ended.",
    "memory": "Out of memory.",
}


class RunPython(BaseModel):
    """Arguments of `run_python`."""

    code: str = Field(description="Python code, as in a file. Print what you want to see.")


def python_tool(
    sandbox: Sandbox | None = None,
    workspace: str | os.PathLike[str] | Workspace | None = None,
    *,
    timeout: float = SECONDS,
) -> BaseTool:
    """Returns the tool `run_python(code)`.

    The tool returns text; when the code failed, it raises ToolException with that text.

    sandbox: None chooses the best one of this host, in which the code works in the folder `workspace`. What
    the code may not change there is the `protect` of a Workspace, by default git's folders, environments and
    the like. When a sandbox is passed, its own workspace counts, and `workspace` only stores outputs too long
    to show. timeout: seconds per call. The tool has the kind `write` even without a workspace: its calls use
    each other's variables, so they run one by one, in order. Raises SetupError when there is no sandbox.
    """
    place = Workspace(workspace) if workspace and not isinstance(workspace, Workspace) else workspace
    root = place.root if isinstance(place, Workspace) else None
    protect = place.protect if isinstance(place, Workspace) else None
    chosen = sandbox if sandbox is not None else choose_sandbox(workspace=root, protect=protect)
    keep = place.keep("run_python") if isinstance(place, Workspace) else None

    def run_python(code: str, config: RunnableConfig) -> str:
        thread = (config.get("configurable") or {}).get("thread_id")
        result = chosen.run(code, timeout=timeout, thread=None if thread is None else str(thread))
        text = capped(result_text(result), keep=keep)
        if result.exit != "ok":
            raise ToolException(text)
        return text

    tool = StructuredTool.from_function(
        run_python,
        name="run_python",
        description=_DESCRIPTION.format(seconds=timeout),
        args_schema=RunPython,
        metadata={"kind": str(Kind.WRITE)},
    )
    return hold(tool, holding_of(chosen))


def result_text(result: PythonResult) -> str:
    """Returns the result of a call as text for the model."""
    parts = [result.stdout.rstrip("\n")]
    if result.stderr.strip():
        parts.append(f"stderr:\n{result.stderr.rstrip()}" if result.stdout else result.stderr.rstrip())
    if result.value is not None:
        parts.append(result.value)
    parts += [_WORDS[result.exit].format(seconds=result.seconds), result.note]
    return "\n".join(part for part in parts if part) or "Done, with no output. Print what you want to see."
