"""What the processes of a terminal are doing, read from /proc, and how they are ended.

Only Linux tells what they do.
"""

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
# How long a process without an environment may be about to become another program.
_EXEC_SECONDS = 0.3
_INIT, _KERNEL = 1, 2
_PR_SET_CHILD_SUBREAPER = 36
# Loaded here, because little is allowed between a fork and the program that follows.
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
    """Whether this system reports what processes do."""
    return os.path.exists(f"{_PROC}/self/stat")


def processes() -> Iterator[Process]:
    """Yields all processes except zombies."""
    if not known():
        return
    for name in os.listdir(_PROC):
        if name.isdigit() and (found := process(int(name))) and found.state not in "ZX":
            yield found


def process(pid: int) -> Process | None:
    """Returns the process with this id, or None when it has ended."""
    row = _read(f"{_PROC}/{pid}/stat").decode(errors="replace").rpartition(")")[2].split()
    if not row:
        return None
    parent, group, session, terminal = (int(field) for field in row[1:5])
    return Process(pid, row[0], parent, group, session, terminal, int(row[11]) + int(row[12]))


def waits(at: Process) -> set[Waits]:
    """Returns what the threads of a process wait for: its terminal, several files, or something else.

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
    """Returns the ids of all processes of a shell.

    These are the processes of its session, those with `mark` (NAME=value) in their environment, and the
    descendants of both.
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
    """Ends all processes of the shell `leader`: they get SIGHUP, and SIGKILL if they do not end.

    The leader is stopped first and killed last, so that it starts nothing new and orphans become its children
    (see `adopt_orphans`).
    """
    if not known():
        _signal_group(leader, signal.SIGHUP)
        _signal_group(leader, signal.SIGKILL)
        return
    _stop(leader)
    for pid in (found := family(leader, mark) - {leader}):
        _signal(pid, signal.SIGHUP)
        # A stopped process handles the signal only when it continues.
        _signal(pid, signal.SIGCONT)
    deadline = time.monotonic() + _HANGUP_SECONDS
    while found and time.monotonic() < deadline:
        time.sleep(0.005)
        found = {pid for pid in found if (at := process(pid)) and at.state not in "ZX"}
    _end_members(leader, mark)
    _signal(leader, signal.SIGKILL)


def _stop(pid: int) -> None:
    """Stops a process and waits until it has stopped: until then it may still finish a fork."""
    _signal(pid, signal.SIGSTOP)
    deadline = time.monotonic() + _STOP_SECONDS
    while (at := process(pid)) and at.state not in "TtZX" and time.monotonic() < deadline:
        time.sleep(0.001)


def end_marked(mark: str, after: float = _HANGUP_SECONDS) -> None:
    """Kills all processes that were started with `mark` in their environment, and their descendants.

    For processes that were already asked to end: a shell whose terminal has closed, a server whose input has
    ended.
    """
    time.sleep(after)
    _end_members(-1, mark)


def _end_members(leader: int, mark: str) -> None:
    """Kills the processes until several checks in a row find none.

    During an `exec` the environment of a process reads as empty for a moment, so one check may miss it. On a
    busy machine the moment may last, so while some environment is empty, the checks go on for a time; a
    process that never has one is not waited for.
    """
    empty, since = 0, time.monotonic()
    for _ in range(_ROUNDS):
        found = _frozen(leader, mark)
        empty = 0 if found else empty + 1
        since = time.monotonic() if found else since
        waited = time.monotonic() - since > _EXEC_SECONDS
        if empty >= _EMPTY_LOOKS and (waited or not _become_others()):
            return
        for pid in found:
            _signal(pid, signal.SIGKILL)
        time.sleep(0.005)


def _become_others() -> bool:
    """Whether a process of this user has no environment just now.

    The first process may have none for good, and threads of the kernel never have one.
    """
    return any(
        each.state not in "ZX"
        and each.pid not in (_INIT, _KERNEL)
        and each.parent != _KERNEL
        and os.getuid() == _owner(each.pid)
        and not _read(f"{_PROC}/{each.pid}/environ")
        for each in processes()
    )


def _owner(pid: int) -> int:
    try:
        return os.stat(f"{_PROC}/{pid}").st_uid
    except OSError:
        return -1


def _frozen(leader: int, mark: str) -> set[int]:
    """Stops and returns a shell's processes except the leader, so that they cannot fork meanwhile."""
    frozen: set[int] = set()
    while new := family(leader, mark) - frozen - {leader}:
        for pid in new:
            _signal(pid, signal.SIGSTOP)
        frozen |= new
    return frozen


def adopt_orphans() -> None:
    """Makes this process, and the program it executes, the parent of orphaned descendants."""
    if _C_LIBRARY is not None:
        _C_LIBRARY.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_group(group: int) -> None:
    """Kills a process group; it is no error when the group has ended."""
    _signal_group(group, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        # It has ended by itself, or it belongs to another user and only the hang-up of the terminal reaches
        # it.
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
        # The process has ended, or may not be inspected.
        return b""
