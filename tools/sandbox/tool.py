"""run_python: the model's Python, in a sandbox."""

import os

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from pydantic import BaseModel, Field

from signoff.graph.foreign import capped
from signoff.graph.kinds import Kind
from signoff.tools.processes.held import hold, holding_of
from signoff.tools.sandbox.base import PythonResult, Sandbox
from signoff.tools.sandbox.choose import choose_sandbox
from signoff.tools.workspace import Workspace

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
    """The tool `run_python(code)`; it returns text and raises ToolException with it when the code failed.

    sandbox: None chooses the best one of this host, in which the code works in the folder `workspace`; what
    it may not change there is `protect` of a Workspace, by default git's folders, environments and the like.
    With a sandbox given, its own workspace counts, and `workspace` only keeps outputs too long to show.
    timeout: seconds of a call. The tool is of kind `write` also without a workspace: its calls build on
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
        text = capped(told(result), keep=keep)
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


def told(result: PythonResult) -> str:
    """What a call came to, as text for the model."""
    parts = [result.stdout.rstrip("\n")]
    if result.stderr.strip():
        parts.append(f"stderr:\n{result.stderr.rstrip()}" if result.stdout else result.stderr.rstrip())
    if result.value is not None:
        parts.append(result.value)
    parts += [_WORDS[result.exit].format(seconds=result.seconds), result.note]
    return "\n".join(part for part in parts if part) or "Done, with no output. Print what you want to see."
