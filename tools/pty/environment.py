"""The bash and the clean environment that a shell starts with, and the checks and the file of a command."""

import math
import os
import secrets
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from langchain_core.tools import ToolException

from signoff.graph.errors import SetupError
from signoff.graph.foreign import valid_text
from signoff.tools.processes.helpers import find_program

MARK = "SIGNOFF_SHELL"
"""The variable in the environment of every process of a shell, by which it is found and ended."""

_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE")

_OWN = {"TERM": "xterm-256color", "PAGER": "cat", "GIT_PAGER": "cat", "HISTFILE": os.devnull}


def bash_path(workspace: str | None = None) -> str:
    """Returns the bash on PATH, outside `workspace`. Raises SetupError without bash or a Unix terminal."""
    if sys.platform == "win32":
        raise SetupError("The shell needs a Unix terminal; use Linux, macOS or WSL.")
    found = find_program("bash", workspace)
    if found is None:
        raise SetupError("bash was not found; install it, or put its folder on PATH.")
    return found


def clean_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Returns `extra`, the few variables of this process that hold no secrets, and a mark of its own."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    if (
        "LC_ALL" not in inherited
        and "LC_CTYPE" not in inherited
        and inherited.get("LANG", "C") in ("C", "POSIX")
    ):
        # Without it programs would write question marks for everything but ASCII.
        inherited["LANG"] = "C.UTF-8"
    return {"PATH": os.defpath} | inherited | _OWN | dict(extra) | {MARK: secrets.token_hex(16)}


@contextmanager
def written(command: str) -> Iterator[str]:
    """Writes the command to a file that exists while the command runs."""
    try:
        handle, path = tempfile.mkstemp(prefix="signoff-", suffix=".sh")
        with os.fdopen(handle, "wb") as file:
            file.write(command.encode() + b"\n")
    except OSError as error:
        raise ToolException(
            f"The command cannot be written to a file for bash ({error}); free some disk space."
        ) from error
    try:
        yield path
    finally:
        # The command itself may have removed it.
        with suppress(FileNotFoundError):
            os.unlink(path)


def check(command: str, timeout: float) -> None:
    """Raises ToolException unless the command and the timeout are valid."""
    if not command.strip():
        raise ToolException("The command is empty; pass a command to run.")
    if valid_text(command) != command:
        raise ToolException(
            "The command contains characters that are not valid text (such as NUL); remove them."
        )
    if not (timeout > 0 and math.isfinite(timeout)):
        raise ToolException("timeout must be a number of seconds above 0.")
