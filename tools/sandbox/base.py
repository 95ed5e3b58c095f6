"""The `Sandbox` protocol for model-written Python, and the result of a call, with output of bounded size."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

Exit = Literal["ok", "error", "timeout", "killed", "memory"]
"""`error`: the code raised or could not be parsed. `killed`: the interpreter was ended or ended itself."""

MB = 1_000_000


@dataclass(frozen=True)
class PythonResult:
    """The result of one call.

    stdout, stderr: what it wrote, with the traceback at the end of stderr; the middle is missing when
    `truncated`. value: `repr` of the last expression, None without one. seconds: how long the call took.
    note: a sentence for the model, for example that the variables are gone; empty when there is none.
    """

    exit: Exit
    stdout: str = ""
    stderr: str = ""
    value: str | None = None
    seconds: float = 0.0
    truncated: bool = False
    note: str = ""


@dataclass(frozen=True)
class Bounds:
    """The resources that code may use: sizes in bytes, `cpu` in seconds.

    memory: for each process. memory_together: for all processes of one interpreter. processes: how many one
    interpreter may have, threads included. file: for each file. disk: how much the free space may shrink
    during one call. scratch: for the private temporary folder where that is in memory. files: how many one
    call may make or change on disk, and how many there may be in each folder in memory. A call that exceeds
    `disk` or `files` is ended at the next check, at most `watch.EVERY_DISK` seconds later. cpu: for each
    process, over all calls. kept: for each stream of one call; the rest is discarded while reading. written:
    for both streams together; an interpreter that writes more is ended.
    """

    memory: int = 512 * MB
    memory_together: int = 1_000 * MB
    processes: int = 64
    file: int = 256 * MB
    disk: int = 1_000 * MB
    scratch: int = 128 * MB
    files: int = 20_000
    cpu: int = 3_600
    kept: int = 1 * MB
    written: int = 64 * MB


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
        """Returns which protections hold on this host, by name: false, true, or how.

        Raises SetupError like `run`.
        """


@dataclass
class Captured:
    """The beginning and the end of a stream, `room` bytes together."""

    room: int
    total: int = 0
    _head: bytearray = field(default_factory=bytearray)
    _tail: bytearray = field(default_factory=bytearray)

    def add(self, data: bytes) -> None:
        self.total += len(data)
        missing = max(self.room // 2 - len(self._head), 0)
        self._head += data[:missing]
        self._tail += data[missing:]
        if len(self._tail) > self.room:
            del self._tail[: -(self.room // 2)]

    @property
    def truncated(self) -> bool:
        return self.total > self.room

    def text(self) -> str:
        """Returns the text, with the number of bytes left out. Bytes that are not UTF-8 become U+FFFD."""
        if not self.truncated:
            return (self._head + self._tail).decode(errors="replace")
        tail = self._tail[-(self.room // 2) :]
        gone = self.total - len(self._head) - len(tail)
        head, end = self._head.decode(errors="replace"), tail.decode(errors="replace")
        return f"{head}\n[... {gone} bytes of output left out ...]\n{end}"
