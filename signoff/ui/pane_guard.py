"""Ends what a terminal started when the application is killed and cannot do it itself.

bash tells its background jobs that the terminal is gone only while it waits for a command, and a program may
ignore being told.
"""

import secrets
import subprocess

from signoff.tools.processes.helpers import isolated, program_text
from signoff.tools.pty import processes as pty_processes

_NAME = "SIGNOFF_PANE"
_SECONDS = 2.0
# Not as a module of the package, whose import takes long and much memory.
_CODE = f"""
import sys, types
if not sys.stdin.buffer.read(1):
    made = sys.modules["processes"] = types.ModuleType("processes")
    exec({program_text(pty_processes.__file__)!r}, made.__dict__)
    made.end_marked(sys.argv[1])
"""


class Guard:
    """A process that outlives this one by a moment, to end all that has `variables` in its environment.

    On systems that do not tell what processes do it does nothing.
    """

    def __init__(self) -> None:
        self.variables = {_NAME: secrets.token_hex(16)}
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Starts watching, unless that was done."""
        if self._process or not pty_processes.known():
            return
        mark = f"{_NAME}={self.variables[_NAME]}"
        self._process = subprocess.Popen(
            isolated(_CODE, mark),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # In a session of its own it does not end with the application's terminal.
            start_new_session=True,
        )

    def end(self) -> None:
        """Stops watching: nothing is left to end. May be repeated."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.communicate(b".", timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
