"""A command before it runs: what can be run at all, and the file from which bash reads it."""

import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from langchain_core.tools import ToolException

from signoff.tools.output import valid_text


@contextmanager
def written(command: str) -> Iterator[str]:
    """A file that holds the command for as long as it runs."""
    try:
        handle, path = tempfile.mkstemp(prefix="signoff-", suffix=".sh")
        with os.fdopen(handle, "wb") as file:
            file.write(command.encode() + b"\n")
    except OSError as error:
        raise ToolException(f"The command cannot be stored for bash ({error}); free some space.") from error
    try:
        yield path
    finally:
        # The command itself may have removed it.
        with suppress(FileNotFoundError):
            os.unlink(path)


def check(command: str, timeout: float) -> None:
    """Raises ToolException, saying what to do, unless this can be run."""
    if not command.strip():
        raise ToolException("The command is empty; give a command to run.")
    if valid_text(command) != command:
        raise ToolException(
            "The command holds characters that are not valid text (such as NUL); leave them out."
        )
    if not (timeout > 0 and math.isfinite(timeout)):
        raise ToolException("timeout must be a number of seconds above 0.")
