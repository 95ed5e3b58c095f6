"""run_shell: runs commands in a shell that keeps its folder and variables, one shell per thread."""

import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from langchain_core.messages import ToolCall
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.config import get_stream_writer
from pydantic import BaseModel, Field

from signoff.graph.errors import SetupError
from signoff.graph.foreign import LIMIT, capped
from signoff.graph.kinds import Kind
from signoff.tools.processes.held import hold, holding_of, together, when_gone
from signoff.tools.pty.environment import bash_path
from signoff.tools.pty.output import Live, Spool
from signoff.tools.pty.shell import Shell, ShellResult
from signoff.tools.workspace import Workspace

__all__ = [
    "Shell",
    "ShellPool",
    "ShellResult",
    "Spool",
    "terminal_tool",
]

_CALL_ID = "tool_call_id"
_ROOM_FOR_NOTES = 1_000
_MOST_BEFORE = 4_000
_BEFORE = "[Since the last command the terminal showed:]\n{before}\n[This command:]\n"
_MOST_STREAMED = 8_000
_DESCRIPTION = (
    "Run a command in bash, in a terminal that keeps its folder, variables and background jobs between "
    "calls. The result ends with the exit code. Nobody can type: pass input by a pipe or by options. "
    "Start servers in the background, with their output in a file: server > server.log 2>&1 &"
)
_WAITED = {
    "line": "it waited for a line of input and nobody can type: pass the input by a pipe or by options",
    "password": "it asked for a password and nobody can type one: use a way that needs none",
    "screen": "it waited for keys, as a full-screen program does, and nobody can type: use options that "
    "make it run by itself",
}


class ShellPool:
    """One shell for each thread and folder, at most `limit` of them.

    All are closed with the graph whose tools use them, when the pool is garbage-collected, and when the
    program ends; a thread that needs one afterwards gets a new one.

    If there are too many, the least recently used one is closed. start: starts a shell in a folder, for
    shells with their own variables or listener.
    """

    def __init__(self, limit: int = 32, start: Callable[[str | os.PathLike[str]], Shell] = Shell) -> None:
        self._limit = limit
        self._start = start
        self._lock = threading.Lock()
        self._shells: OrderedDict[tuple[str, str], Shell] = OrderedDict()
        when_gone(self, partial(_close_all, self._shells))

    def get(self, thread_id: str, cwd: str | os.PathLike[str]) -> Shell:
        """The thread's shell for the folder `cwd`, started if necessary.

        Raises SetupError as `Shell`, and ToolException if `limit` shells are running commands.
        """
        key = (thread_id, os.path.realpath(cwd))
        with self._lock:
            if key not in self._shells or self._shells[key].closed:
                self._shells.pop(key, None)
                self._make_room()
                self._shells[key] = self._start(cwd)
            self._shells.move_to_end(key)
            return self._shells[key]

    @contextmanager
    def lent(self, thread_id: str, cwd: str | os.PathLike[str]) -> Iterator[Shell]:
        """The thread's shell, as from `get`; without a thread (empty), one that is closed afterwards."""
        name = thread_id or secrets.token_hex(16)
        try:
            yield self.get(name, cwd)
        finally:
            if not thread_id:
                self.close(name)

    def close(self, thread_id: str | None = None) -> None:
        """Closes the shells of one thread, or all."""
        with self._lock:
            found = [key for key in self._shells if thread_id in (None, key[0])]
            together([self._shells.pop(key).close for key in found])

    def __len__(self) -> int:
        return len(self._shells)

    def _make_room(self) -> None:
        if len(self._shells) < self._limit:
            return
        idle = next((key for key, shell in self._shells.items() if not shell.busy), None)
        if idle is None:
            raise ToolException(f"{self._limit} shells are running commands; try again when one has ended.")
        self._shells.pop(idle).close()


def _close_all(open_shells: OrderedDict[tuple[str, str], Shell]) -> None:
    together([open_shells.popitem()[1].close for _ in range(len(open_shells))])


class RunShell(BaseModel):
    """Arguments of `run_shell`."""

    command: str = Field(description="The command, or several lines of them, as for bash.")
    timeout: float = Field(default=60, description="Seconds after which the command is stopped.")


class _Terminal(StructuredTool):
    """Passes the call id to the stream; an injected argument for it would make an id mandatory."""

    def invoke(
        self, input: str | dict[str, Any] | ToolCall, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Any:
        if isinstance(input, dict) and "args" in input and input.get("id"):
            # Not by `merge_configs`, which would replace the call's writer by the node's own.
            given = config or {}
            config = {**given, "metadata": {**given.get("metadata", {}), _CALL_ID: input["id"]}}
        return super().invoke(input, config, **kwargs)


def terminal_tool(workspace: str | os.PathLike[str], pool: ShellPool | None = None) -> BaseTool:
    """The tool `run_shell(command, timeout=60)`, of kind terminal, with shells of `pool` in `workspace`.

    pool: defaults to the tool's own pool.

    Each `thread_id` has its own shell; a run without one gets a new shell for each call. Inside a graph, the
    output is streamed live on the custom stream as `{"type": "terminal", "call_id": ..., "data": text}`,
    without control codes, and shortened if there is more than one can read. A failed command has an ordinary
    result. Raises SetupError if the folder does not exist or the system has no bash.
    """
    place = Workspace(workspace)
    bash_path(place.root)
    in_use = ShellPool() if pool is None else pool

    def run_shell(command: str, timeout: float, config: RunnableConfig) -> str:
        thread = str(config.get("configurable", {}).get("thread_id", ""))
        try:
            with in_use.lent(thread, place.root) as shell:
                return observed(shell.run(command, timeout, _streaming(config)), timeout, place)
        except SetupError as error:
            raise ToolException(str(error)) from error

    tool = _Terminal(
        name="run_shell",
        description=_DESCRIPTION,
        args_schema=RunShell,
        func=run_shell,
        metadata={"kind": str(Kind.TERMINAL), "seconds": None},
    )
    return hold(tool, holding_of(in_use))


def observed(result: ShellResult, timeout: float, place: Workspace) -> str:
    """The result text for the model, of a command in a shell of the workspace."""
    keep = place.keep("run_shell")
    before = capped(result.before.strip("\n"), limit=_MOST_BEFORE, keep=keep)
    before = _BEFORE.format(before=before) if before.strip() else ""
    output = capped(result.whole_output, limit=LIMIT - _ROOM_FOR_NOTES - len(before), keep=keep)
    return f"{before}{output.rstrip() or '(no output)'}\n[{'; '.join(_notes(result, timeout, place))}]"


def _streaming(config: RunnableConfig) -> Callable[[bytes], None] | None:
    """A function that sends output to the running graph's custom stream; None outside a graph."""
    try:
        write = get_stream_writer()
    except (RuntimeError, KeyError):
        # LangGraph raises this if no graph is running.
        return None
    live = Live()
    event: dict[str, Any] = {"type": "terminal"}
    if call_id := config.get("metadata", {}).get(_CALL_ID):
        event["call_id"] = call_id

    def send(data: bytes) -> None:
        text = live.feed(data)
        if text:
            write({**event, "data": capped(text, limit=_MOST_STREAMED, keep=None)})

    return send


def _notes(result: ShellResult, timeout: float, place: Workspace) -> list[str]:
    code = "unknown" if result.exit_code is None else result.exit_code
    notes = [f"exit code {code}", f"{result.seconds:.2f} s"]
    if result.timed_out:
        notes.append(
            f"stopped at the time-out of {timeout:g} s: pass a longer one, or run it in the background"
        )
    if result.waiting_for and not result.timed_out:
        notes.append(f"stopped: {_WAITED[result.waiting_for]}")
    if result.restarted:
        notes.append(
            f"the shell ended and a new one starts in {place.root}: folder, variables and background jobs "
            "are gone"
        )
    return notes
