"""What the processes of a terminal are doing, read from /proc. Elsewhere than on Linux nothing is known."""

import ctypes
import os
import platform
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

_PROC = "/proc"
_HANGUP_SECONDS = 0.3
_STOP_SECONDS = 1.0
_ROUNDS = 200
_EMPTY_LOOKS = 3
_PR_SET_CHILD_SUBREAPER = 36
# Loaded here, as little may be done between a fork and the program that follows.
_C_LIBRARY = ctypes.CDLL(None) if sys.platform == "linux" else None
_DEV_TTY = os.makedev(5, 0) if hasattr(os, "makedev") else -1

Waits = Literal["terminal", "poll", "hidden", "other"]


def _calls(*, reads: tuple[int, ...], polls: tuple[int, ...]) -> "dict[int, Waits]":
    return {**dict.fromkeys(reads, "terminal"), **dict.fromkeys(polls, "poll")}


# The numbers of read, readv and the kinds of poll, select and epoll_wait.
_CALLS: dict[str, dict[int, Waits]] = {
    "x86_64": _calls(reads=(0, 19), polls=(7, 23, 232, 270, 271, 281, 441)),
    "aarch64": _calls(reads=(63, 65), polls=(22, 72, 73, 441)),
}


@dataclass(frozen=True)
class Process:
    """One row of the process table: ids, state letter, controlling terminal, and CPU ticks so far."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    terminal: int
    ticks: int


def known() -> bool:
    """Whether this system tells what processes do."""
    return os.path.exists(f"{_PROC}/self/stat")


def processes() -> Iterator[Process]:
    """All processes that are running now, without those that ended and wait to be collected."""
    if not known():
        return
    for name in os.listdir(_PROC):
        if name.isdigit() and (found := process(int(name))) and found.state not in "ZX":
            yield found


def process(pid: int) -> Process | None:
    """The process with this id, or None when it has gone."""
    row = _read(f"{_PROC}/{pid}/stat").decode(errors="replace").rpartition(")")[2].split()
    if not row:
        return None
    parent, group, session, terminal = (int(field) for field in row[1:5])
    return Process(pid, row[0], parent, group, session, terminal, int(row[11]) + int(row[12]))


def waits(at: Process) -> set[Waits]:
    """What the threads of a process wait for: its terminal, several things at once, or something else.

    `hidden`: the process belongs to another user, as a password prompt of sudo does.
    """
    try:
        threads = os.listdir(f"{_PROC}/{at.pid}/task")
        return {_thread_waits(at, thread) for thread in threads[:64]}
    except PermissionError:
        return {"hidden"}
    except OSError:
        return {"other"}


def _thread_waits(at: Process, thread: str) -> Waits:
    with open(f"{_PROC}/{at.pid}/task/{thread}/syscall") as file:
        call = file.read().split()
    if len(call) < 2:
        return "other"
    kind = _CALLS.get(platform.machine(), {}).get(int(call[0]), "other")
    if kind == "terminal":
        device = os.stat(f"{_PROC}/{at.pid}/fd/{int(call[1], 16)}").st_rdev
        return "terminal" if device in (at.terminal, _DEV_TTY) else "other"
    return kind


def family(session: int, mark: str) -> set[int]:
    """The ids of all processes of a shell.

    Those of its session, those that were started with `mark` (NAME=value) in their environment, and what
    descends from these.
    """
    everyone = {each.pid: each for each in processes()}
    wanted = mark.encode()
    ours = {
        pid
        for pid, each in everyone.items()
        if each.session == session or wanted in _read(f"{_PROC}/{pid}/environ").split(b"\0")
    }
    while more := {pid for pid, each in everyone.items() if each.parent in ours} - ours:
        ours |= more
    return ours - {os.getpid()}


def end_family(leader: int, mark: str) -> None:
    """Ends all processes of the shell `leader`: they are told that the terminal is gone, then killed.

    The leader is stopped first and goes last: it starts nothing new, and what loses its parent stays a
    child of the leader (see `adopt_orphans`).
    """
    if not known():
        _signal_group(leader, signal.SIGHUP)
        _signal_group(leader, signal.SIGKILL)
        return
    _stop(leader)
    for pid in (found := family(leader, mark) - {leader}):
        _signal(pid, signal.SIGHUP)
        # A stopped process takes the signal only when it goes on.
        _signal(pid, signal.SIGCONT)
    deadline = time.monotonic() + _HANGUP_SECONDS
    while found and time.monotonic() < deadline:
        time.sleep(0.005)
        found = {pid for pid in found if (at := process(pid)) and at.state not in "ZX"}
    _end_members(leader, mark)
    _signal(leader, signal.SIGKILL)


def _stop(pid: int) -> None:
    """Stops a process, and returns when it has stopped: until then it still finishes a fork it has begun."""
    _signal(pid, signal.SIGSTOP)
    deadline = time.monotonic() + _STOP_SECONDS
    while (at := process(pid)) and at.state not in "TtZX" and time.monotonic() < deadline:
        time.sleep(0.001)


def end_marked(mark: str, after: float = _HANGUP_SECONDS) -> None:
    """Ends all processes that were started with `mark` in their environment, and what descends from them.

    For those that have been told already: a shell whose terminal is gone, a server whose input has ended.
    """
    time.sleep(after)
    _end_members(-1, mark)


def _end_members(leader: int, mark: str) -> None:
    """Kills them until several looks in a row find none: while a process becomes another program its
    environment reads as empty for a moment, so that one look may miss it."""
    empty = 0
    for _ in range(_ROUNDS):
        found = _frozen(leader, mark)
        empty = 0 if found else empty + 1
        if empty == _EMPTY_LOOKS:
            return
        for pid in found:
            _signal(pid, signal.SIGKILL)
        time.sleep(0.005)


def _frozen(leader: int, mark: str) -> set[int]:
    """The processes of a shell beside the leader, stopped, so that they do not fork faster than they end."""
    frozen: set[int] = set()
    while new := family(leader, mark) - frozen - {leader}:
        for pid in new:
            _signal(pid, signal.SIGSTOP)
        frozen |= new
    return frozen


def adopt_orphans() -> None:
    """Makes this process, and the program it turns into, the parent of descendants that lose their own."""
    if _C_LIBRARY is not None:
        _C_LIBRARY.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_group(group: int) -> None:
    """Kills a process group; one that has gone is not an error."""
    _signal_group(group, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        # It has ended by itself, or it belongs to another user and only the hang-up can reach it.
        return


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        # As for a single process.
        return


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        # The process has gone, or is not ours to look into.
        return b""
