"""run_python: runs the model's Python in a sandbox, or without one where it is trusted."""

import os
import platform
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from pydantic import BaseModel, Field

from signoff.graph.errors import SetupError
from signoff.graph.foreign import Outputs, capped, outputs_folder
from signoff.graph.inside.installing import install_hint
from signoff.graph.inside.private import saver_of
from signoff.graph.kinds import Kind
from signoff.tools.processes.held import hold, holding_of
from signoff.tools.sandbox.base import MB, Bounds, PythonResult, Sandbox
from signoff.tools.sandbox.folder import files_text
from signoff.tools.sandbox.linux import LinuxSandbox
from signoff.tools.sandbox.monty import MontySandbox
from signoff.tools.sandbox.process import Launch, Pool
from signoff.tools.sandbox.program import PROGRAM, installation
from signoff.tools.workspace import Workspace


class UnsafeSandbox:
    """Offers no protection.

    The code runs in its own process as the current user: it can read and delete every file of that user, read
    the environment with its keys, use the network, and leave processes running after everything else has
    ended. Only the time and the output of a call are limited, and the memory of its process.

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
        self._pool = Pool(self._launch, self._bounds)

    def run(self, code: str, *, timeout: float = 60.0, thread: str | None = None) -> PythonResult:
        return self._pool.run(code, timeout, thread)

    def close(self, thread: str | None = None) -> None:
        self._pool.close(thread)

    def enforced(self) -> Mapping[str, bool | str]:
        """Returns the limits that hold: the memory of its own process, and the size of the output."""
        names = ("own files", "own processes", "own network", "own user", "landlock", "seccomp")
        held = {"memory": f"{self._bounds.memory // MB:,} MB", "output": f"{self._bounds.written // MB:,} MB"}
        return {**dict.fromkeys(names, False), **held}

    def _launch(self, thread: str | None) -> Launch:
        python = installation()
        folder = {"folder": self._workspace, "own": self._workspace}
        return Launch(
            command=[python.executable, "-I", "-S", "-B", "-c", PROGRAM],
            env={**os.environ, "PWD": self._workspace},
            settings={"confinement": None, "packages": python.packages, **folder},
        )


SandboxKind = Literal["auto", "linux", "monty", "unsafe"]


def choose_sandbox(
    kind: SandboxKind = "auto",
    *,
    workspace: str | os.PathLike[str] | None = None,
    writable: bool = False,
    protect: Collection[str] | None = None,
) -> Sandbox:
    """Returns the sandbox of this kind, started once to check that it works.

    `auto` takes the Linux sandbox, else Monty, and never the unsafe one. workspace: the folder the code
    reads. writable: the code may also change what exists at its top, but for what is protected (`protect`, as
    in `signoff.tools.protected`), and make files in the folders there. The unsafe sandbox protects nothing.
    Raises SetupError when none works, or for an unknown kind."""
    match kind:
        case "linux":
            return LinuxSandbox(workspace, writable=writable, protect=protect)
        case "monty":
            return _try_sandbox(MontySandbox(workspace, writable=writable, protect=protect))
        case "unsafe":
            return UnsafeSandbox(workspace, unsafe=True)
        case "auto":
            return _best(workspace, writable, protect)
        case _:
            raise SetupError(f"There is no sandbox {kind!r}; use auto, linux, monty or unsafe.")


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
    "functions and imports stay for the next call. There is no network, no process can be started, and a "
    "call is interrupted after {seconds:g} seconds. {files}"
)
_READS = "Write files to the folder in tempfile.gettempdir(): the result names them."
_WRITES = (
    "Existing files and folders of the working folder can be changed; where that is refused, write to the "
    "folder in tempfile.gettempdir(): the result names such files."
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
    writable: bool = False,
    timeout: float = SECONDS,
) -> BaseTool:
    """Returns the tool `run_python(code)`.

    The tool returns text; when the code failed, it raises ToolException with that text.

    sandbox: None chooses the best one of this host, in which the code works in the folder `workspace`, reads
    it, and writes to a folder of its own; `writable` opens the workspace, too, but for the `protect` of a
    Workspace (see `choose_sandbox`). When a sandbox is passed, its own workspace counts, and `workspace` only
    stores outputs too long to show. timeout: seconds per call. The tool has the kind `write` even without a
    workspace: its calls use each other's variables, so they run one by one, in order. Raises SetupError when
    there is no sandbox."""
    place = Workspace(workspace) if workspace and not isinstance(workspace, Workspace) else workspace
    root = place.root if isinstance(place, Workspace) else None
    protect = place.protect if isinstance(place, Workspace) else None
    chosen = (
        sandbox if sandbox is not None else choose_sandbox(workspace=root, writable=writable, protect=protect)
    )
    keep = place.keep("run_python") if isinstance(place, Workspace) else None
    outputs = outputs_folder()
    is_writable = "writable" in str(chosen.enforced().get("workspace"))

    def run_python(code: str, config: RunnableConfig) -> str:
        result = chosen.run(code, timeout=timeout, thread=_thread_of(config, outputs))
        text = capped(result_text(result), keep=keep)
        if result.exit != "ok":
            raise ToolException(text)
        return text

    tool = StructuredTool.from_function(
        run_python,
        name="run_python",
        description=_DESCRIPTION.format(seconds=timeout, files=_WRITES if is_writable else _READS),
        args_schema=RunPython,
        metadata={"kind": str(Kind.WRITE)},
    )
    return hold(tool, holding_of(chosen))


def _thread_of(config: RunnableConfig, folder: Path) -> str | None:
    """Returns the name by which the sandbox knows the thread: threads of two databases are different ones."""
    configurable = config.get("configurable") or {}
    thread = configurable.get("thread_id")
    if thread is None:
        return None
    return Outputs.of(folder, saver_of(configurable), str(thread)).owner or str(thread)


def result_text(result: PythonResult) -> str:
    """Returns the result of a call as text for the model."""
    parts = [result.stdout.rstrip("\n")]
    if result.stderr.strip():
        parts.append(f"stderr:\n{result.stderr.rstrip()}" if result.stdout else result.stderr.rstrip())
    if result.value is not None:
        parts.append(result.value)
    parts += [_WORDS[result.exit].format(seconds=result.seconds), result.note, files_text(result.files)]
    return "\n".join(part for part in parts if part) or "Done, with no output. Print what you want to see."
