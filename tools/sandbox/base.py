"""The `Sandbox` protocol for model-written Python, the result of a call, and its bounds."""

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal, Protocol

from signoff.tools.pty.output import Capture

Exit = Literal["ok", "error", "timeout", "killed", "memory"]
"""`error`: the code raised or could not be parsed. `killed`: the interpreter was ended or ended itself."""

Folder = str | os.PathLike[str]

MB = 1_000_000


@dataclass(frozen=True)
class PythonResult:
    """The result of one call.

    stdout, stderr: what it wrote, with the traceback at the end of stderr; the middle is missing when
    `truncated`. value: `repr` of the last expression, None without one. seconds: how long the call took.
    note: a sentence for the model, for example that the variables are gone; empty when there is none.
    files: what it wrote to its own folder, by path with the size in bytes.
    """

    exit: Exit
    stdout: str = ""
    stderr: str = ""
    value: str | None = None
    seconds: float = 0.0
    truncated: bool = False
    note: str = ""
    files: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Bounds:
    """The resources that code may use: sizes in bytes.

    memory, threads: what one interpreter may use, looked at every `process.EVERY` seconds. memory_together:
    all of a sandbox; when one needs more, idle ones are ended first. addresses: what one may reserve;
    a larger allocation fails at once. descriptors: how many at once. file: for each file. disk, files: how
    much the free space, and the free places for files, may shrink during one call. A call that exceeds one of
    these is ended. kept: for each stream of one call; the rest is
    discarded while reading. written: for both streams together; an interpreter that writes more is ended."""

    memory: int = 1_000 * MB
    memory_together: int = 2_000 * MB
    addresses: int = 4_000 * MB
    threads: int = 64
    descriptors: int = 256
    file: int = 1_000 * MB
    disk: int = 1_000 * MB
    files: int = 50_000
    kept: int = 1 * MB
    written: int = 64 * MB

    def described(self, *names: str) -> dict[str, bool | str]:
        """The bounds of these names in words, or all."""
        bounds = {name: most for name, most in asdict(self).items() if name in names or not names}
        return {name: f"{most // MB:,} MB" if most >= MB else f"{most:,}" for name, most in bounds.items()}


TOO_MUCH_OUTPUT = "The code wrote far too much output and was ended."


class Output:
    """What one call prints, as a terminal would show it in the end."""

    def __init__(self, bounds: Bounds) -> None:
        half = bounds.kept // 2
        self._streams = {name: Capture(half, half) for name in ("stdout", "stderr")}
        self._left = bounds.written

    def add(self, name: str, data: bytes) -> bool:
        """False when it is too much. name: stdout or stderr."""
        self._left -= len(data)
        self._streams[name].add(data)
        return self._left >= 0

    def result(self, exit: Exit, value: str | None, since: float, note: str) -> PythonResult:
        """The result of the call that began at the moment `since` of the monotonic clock."""
        stdout, stderr = (stream.text() for stream in self._streams.values())
        truncated = any(stream.left_out for stream in self._streams.values())
        return PythonResult(exit, stdout, stderr, value, time.monotonic() - since, truncated, note)


class Sandbox(Protocol):
    """Runs untrusted Python code. All methods may be called from any thread."""

    def run(self, code: str, *, timeout: float = 60.0, thread: str | None = None) -> PythonResult:
        """Runs `code` for at most `timeout` seconds.

        Calls of one `thread` share their variables and run one after the other; without a thread
        nothing is kept. Raises SetupError when the sandbox cannot be started.
        """

    def close(self, thread: str | None = None) -> None:
        """Ends what runs for `thread`, or everything; a later call starts again."""

    def enforced(self) -> Mapping[str, bool | str]:
        """Which protections hold on this host, by name: false, true, or how.

        Raises SetupError like `run`.
        """
