"""run_python: runs the model's Python in a sandbox, or without one where it is trusted."""

import os
import sys
from collections.abc import Callable, Collection, Mapping
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
from signoff.tools.sandbox.base import Bounds, Folder, PythonResult, Sandbox
from signoff.tools.sandbox.folder import OwnFolder, files_text
from signoff.tools.sandbox.linux import LinuxSandbox
from signoff.tools.sandbox.monty import MontySandbox
from signoff.tools.sandbox.pool import Interpreter, Pool
from signoff.tools.sandbox.process import ProcessInterpreter
from signoff.tools.workspace import Workspace


class UnsafeSandbox(Pool):
    """Offers no protection.

    The code runs in its own process as the current user: it can read and delete every file of that user, read
    the environment with its keys, use the network, and leave processes running after everything else has
    ended. Only the time, the output and the threads of a call are limited, and the memory of its process.

    Raises SetupError unless `unsafe` is True, and on Windows.
    """

    def __init__(
        self, workspace: Folder | None = None, *, unsafe: bool, bounds: Bounds | None = None
    ) -> None:
        if not unsafe:
            raise SetupError("This sandbox offers no protection; pass unsafe=True if that is what you want.")
        if sys.platform == "win32":
            raise SetupError(f"This sandbox is not for Windows; use Monty: {install_hint('monty')}")
        super().__init__(bounds)
        self.workspace: str | None = os.getcwd() if workspace is None else Workspace(workspace).root

    def enforced(self) -> Mapping[str, bool | str]:
        """The limits that hold: the memory of its own process, and the size of the output."""
        names = ("own files", "own processes", "own network")
        return {**dict.fromkeys(names, False), **self._bounds.described("memory", "written")}

    def _start(self, folder: OwnFolder, fits: Callable[[], bool]) -> Interpreter:
        folder.begin([])
        env = {**os.environ, "PWD": str(self.workspace), "TMPDIR": folder.path}
        request = {"confinement": None, "folder": self.workspace}
        return ProcessInterpreter(request, env, folder, self._bounds, fits)


SandboxKind = Literal["auto", "linux", "monty", "unsafe"]
_KINDS = {"auto": (LinuxSandbox, MontySandbox), "linux": (LinuxSandbox,), "monty": (MontySandbox,)}


def choose_sandbox(
    kind: SandboxKind = "auto",
    *,
    workspace: Folder | None = None,
    writable: bool = False,
    protect: Collection[str] | None = None,
) -> Sandbox:
    """The sandbox of this kind, started once to check that it works.

    `auto` takes the Linux sandbox, else Monty, and never the unsafe one. workspace: the folder the code
    reads. writable: the code may also change what exists at its top, but for what is protected (`protect`, as
    in `signoff.tools.protected`), and make files in the folders there. The unsafe sandbox protects nothing.
    Raises SetupError when none works, or for an unknown kind."""
    if kind == "unsafe":
        return UnsafeSandbox(workspace, unsafe=True)
    if kind not in _KINDS:
        raise SetupError(f"There is no sandbox {kind!r}; use auto, linux, monty or unsafe.")
    problems = []
    for sandbox in _KINDS[kind]:
        try:
            return sandbox(workspace, writable=writable, protect=protect)
        except SetupError as error:
            problems.append(str(error))
    raise SetupError(
        f"There is no sandbox for Python on this host. {' '.join(problems)} "
        "To run the code without any protection, choose the sandbox `unsafe`."
    )


SECONDS = 60.0
"""How long one call may take."""

_DESCRIPTION = (
    "Run Python code and see what it prints; the value of a last expression is shown too. Variables, "
    "functions and imports stay for the next call. There is no network, no process can be started, and a "
    "call is interrupted after {seconds:g} seconds. {files}"
)
_READS = "Write files to the folder {own}: the result names them."
_WRITES = (
    "What exists in the working folder can be changed (beside something protected not deleted, renamed or "
    "replaced at its top); where that is refused, write to the folder {own}: the result names such files."
)
_WORDS = {
    "timeout": "Timed out after {seconds:.1f} s.",
    "killed": "The interpreter has ended.",
    "memory": "Out of memory.",
}


class RunPython(BaseModel):
    """Arguments of `run_python`."""

    code: str = Field(description="Python code, as in a file. Print what you want to see.")


def python_tool(
    sandbox: Sandbox | None = None,
    workspace: Folder | Workspace | None = None,
    *,
    writable: bool = False,
    timeout: float = SECONDS,
) -> BaseTool:
    """The tool `run_python(code)`.

    The tool returns text; when the code failed, it raises ToolException with that text.

    sandbox: None chooses the best one of this host, in which the code works in the folder `workspace`, reads
    it, and writes to a folder of its own; `writable` opens the workspace, too, but for the `protect` of a
    Workspace (see `choose_sandbox`). When a sandbox is passed, its own workspace counts, and `workspace` only
    stores outputs too long to show. timeout: seconds per call. The tool has the kind `write` even without a
    workspace: its calls use each other's variables, so they run one by one, in order. Raises SetupError when
    there is no sandbox."""
    place = Workspace(workspace) if isinstance(workspace, str | os.PathLike) else workspace
    if sandbox is None:
        root, protect = (place.root, place.protect) if place else (None, None)
        sandbox = choose_sandbox(workspace=root, writable=writable, protect=protect)
    chosen = sandbox
    keep = place.keep("run_python") if place else None
    enforced = chosen.enforced()
    files = _WRITES if "writable" in str(enforced.get("workspace")) else _READS
    files = files.format(own=enforced.get("own folder", "in tempfile.gettempdir()"))

    def run_python(code: str, config: RunnableConfig) -> str:
        result = chosen.run(code, timeout=timeout, thread=_thread_of(config))
        text = capped(result_text(result), keep=keep)
        if result.exit != "ok":
            raise ToolException(text)
        return text

    tool = StructuredTool.from_function(
        run_python,
        name="run_python",
        description=_DESCRIPTION.format(seconds=timeout, files=files),
        args_schema=RunPython,
        metadata={"kind": str(Kind.WRITE)},
    )
    return hold(tool, holding_of(chosen))


def _thread_of(config: RunnableConfig) -> str | None:
    """The name by which the sandbox knows the thread: threads of two databases are different ones."""
    configurable = config.get("configurable") or {}
    thread = configurable.get("thread_id")
    if thread is None:
        return None
    return Outputs.of(outputs_folder(), saver_of(configurable), str(thread)).owner or str(thread)


def result_text(result: PythonResult) -> str:
    """The result of a call as text for the model."""
    parts = [result.stdout.rstrip("\n")]
    if result.stderr.strip():
        parts.append(f"stderr:\n{result.stderr.rstrip()}" if result.stdout else result.stderr.rstrip())
    if result.value is not None:
        parts.append(result.value)
    ending = _WORDS.get(result.exit, "").format(seconds=result.seconds)
    parts += [ending, result.note, files_text(result.files)]
    return "\n".join(part for part in parts if part) or "Done, with no output. Print what you want to see."
