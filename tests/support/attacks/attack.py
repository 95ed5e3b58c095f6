"""A hostile program, and how its success is detected from outside.

Its processes are watched while it runs, by the name that they took.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from signoff.tools.sandbox.base import PythonResult
from tests.support.attacks.arena import AddedFiles, Arena, Grounds

_EVERY = 0.05
_PAGE = 4096
_ADMINISTRATOR = 21  # CAP_SYS_ADMIN


@dataclass
class PeakUsage:
    """The peaks that were measured; memory in bytes, `long_large` in seconds.

    unmapped: bytes in memory files (memfd) that processes hold open.
    """

    processes: int = 0
    threads: int = 0
    memory: int = 0
    unmapped: int = 0
    long_large: float = 0.0
    administrator: bool = False
    root: bool = False
    traced: bool = False
    listening: bool = False


def marked(mark: str) -> list[int]:
    """Returns the processes of this host that have the name `mark`, without those that have ended."""
    found = []
    for entry in os.scandir("/proc") if os.path.isdir("/proc") else []:
        if entry.name.isdigit():
            # It may have ended since it was listed.
            with suppress(OSError):
                stat = Path(entry.path, "stat").read_text()
                name, rest = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :]
                if name == mark and rest[0] not in "ZX":
                    found.append(int(entry.name))
    return found


def processor_time(processes: list[int]) -> float:
    """Returns the seconds of processor time that `processes` have used so far."""
    total = 0
    for process in processes:
        with suppress(OSError):
            rest = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            total += int(rest[11]) + int(rest[12])
    return total / os.sysconf("SC_CLK_TCK")


class Sampler:
    """Samples throughout the `with` block. large: from how many bytes on memory counts as large."""

    def __init__(self, arena: Arena, large: int) -> None:
        self._arena, self._large = arena, large
        self.seen = PeakUsage()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._stop.wait(_EVERY):
            now = time.monotonic()
            self._look(now - last)
            last = now

    def _look(self, passed: float) -> None:
        seen = self.seen
        processes = marked(self._arena.mark)
        status = [_status(process) for process in processes]
        memory = sum(_resident(process) for process in processes)
        seen.processes = max(seen.processes, len(processes))
        seen.threads = max(seen.threads, sum(int(fields.get("Threads", "0")) for fields in status))
        seen.memory = max(seen.memory, memory)
        seen.unmapped = max(seen.unmapped, sum(map(_in_memory_files, processes)))
        seen.long_large += passed if memory > self._large else 0.0
        seen.administrator |= any(
            int(fields.get("CapEff", "0"), 16) >> _ADMINISTRATOR & 1 for fields in status
        )
        seen.root |= any(fields.get("Uid", "-1 -1").split()[1] == "0" for fields in status)
        seen.traced |= _status(self._arena.victim).get("TracerPid", "0") != "0"
        seen.listening |= self._arena.is_listening()


def _status(process: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _in_memory_files(process: int) -> int:
    total = 0
    # The process, or one of its file descriptors, may be gone at any time.
    with suppress(OSError):
        for handle in os.scandir(f"/proc/{process}/fd"):
            with suppress(OSError):
                if os.readlink(handle.path).startswith("/memfd:"):
                    total += os.stat(handle.path).st_blocks * 512
    return total


@dataclass(frozen=True)
class Observed:
    """What happened, as far as it can be seen from outside.

    after: the next call of the same thread, which prints 42 when all is well. late: seconds by which the call
    exceeded its timeout. busy: seconds of processor time used after the call had returned. grounds: the
    workspace of programs that have one, and `made` what was added to it.
    """

    arena: Arena
    result: PythonResult
    after: PythonResult
    late: float
    busy: float
    seen: PeakUsage = field(default_factory=PeakUsage)
    grounds: Grounds | None = None
    made: AddedFiles | None = None

    @property
    def output_text(self) -> str:
        """Returns all text that the program got out."""
        return self.result.stdout + self.result.stderr + (self.result.value or "")


Leak = Callable[[Observed], str]
"""Returns what got through, in words; empty when nothing did."""


@dataclass(frozen=True)
class Attack:
    """A hostile program.

    timeout: its time limit in seconds. leak: returns what got through. in_grounds: it runs in a workspace of
    its own.
    """

    name: str
    tries: str
    code: str
    leak: Leak
    timeout: float = 5.0
    in_grounds: bool = False


def secret_shown(observed: Observed) -> str:
    return "a secret came out" if observed.arena.secret in observed.output_text else ""


def reached(observed: Observed) -> str:
    names = observed.arena.received()
    return f"a listener outside was reached: {names}" if names else ""


def written_outside(observed: Observed) -> str:
    return "a file outside was written" if observed.arena.outside.exists() else ""


def broken(observed: Observed) -> str:
    """Checks whether the next call failed."""
    after = observed.after
    return "" if (after.exit, after.stdout.strip()) == ("ok", "42") else "the next call did not work"


def late(observed: Observed) -> str:
    """Checks whether the program blocked its caller for longer than its timeout."""
    return "" if observed.late < 3.0 else f"the caller waited {observed.late:.1f} s too long"
