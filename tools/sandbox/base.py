"""The `Sandbox` protocol for model-written Python, and the result of a call, with output of bounded size."""

import re
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
    """The resources that code may use: sizes in bytes, `cpu` in seconds.

    memory: what one interpreter may use, checked every `watch.EVERY` seconds. memory_together: all of a
    sandbox; when one needs more, idle ones are ended first. addresses: what one interpreter may reserve; a
    larger allocation fails at once. threads, descriptors: how many at once. file: for each file. disk: how
    much the free space may shrink during one call. files: how many one call may make or change. A call that
    exceeds `disk` or `files` is ended at the next check. cpu: over all calls of an interpreter. kept: for
    each stream of one call; the rest is discarded while reading. written: for both streams together; an
    interpreter that writes more is ended."""

    memory: int = 1_000 * MB
    memory_together: int = 2_000 * MB
    addresses: int = 4_000 * MB
    threads: int = 64
    descriptors: int = 256
    file: int = 256 * MB
    disk: int = 1_000 * MB
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
        """Returns the text as a terminal would show it in the end, with the number of bytes left out. Bytes
        that are not UTF-8 become U+FFFD.
        """
        if not self.truncated:
            return settled((self._head + self._tail).decode(errors="replace"))
        tail = self._tail[-(self.room // 2) :]
        gone = self.total - len(self._head) - len(tail)
        head, end = (settled(part.decode(errors="replace")) for part in (self._head, tail))
        return f"{head}\n[... {gone} bytes of output left out ...]\n{end}"


_MOVES = re.compile(r"[\r\b\x1b]")
# Sequences that set colours and the like, with the erasing of a line among them; or one other character.
_PART = re.compile(
    r"\x1b\[(?P<erase>[02]?)K|\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]|$)"
    r"|(?P<move>[\r\b])|(?P<text>[^\r\b\x1b]+)"
)


def settled(text: str) -> str:
    """Returns what a terminal would show in the end: lines that were written over, and no colours."""
    if not _MOVES.search(text):
        return text
    return "\n".join(_settled_line(line) for line in text.replace("\r\n", "\n").split("\n"))


def _settled_line(line: str) -> str:
    if not _MOVES.search(line):
        return line
    cells: list[str] = []
    at = 0
    for part in _PART.finditer(line):
        if text := part["text"]:
            cells[at : at + len(text)] = text
            at += len(text)
        elif part["move"]:
            at = 0 if part["move"] == "\r" else max(at - 1, 0)
        elif part["erase"] is not None:
            # The whole line is erased to be written again.
            at = 0 if part["erase"] == "2" else at
            del cells[at:]
    return "".join(cells)
