"""The inner layer: what the worker puts on itself before it runs a line of the model's code.

Runs inside the sandbox, on the standard library alone. There is no way back from any of it.
"""

import ctypes
import os
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from signoff.tools.sandbox import landlock, seccomp
from signoff.tools.sandbox.kernel import checked, libc

_SET_PDEATHSIG, _SET_DUMPABLE, _KEEP_CAPABILITIES, _DROP_BOUNDING = 1, 4, 8, 24
_NO_NEW_PRIVILEGES, _AMBIENT, _AMBIENT_RAISE = 38, 47, 2
_CAPABILITIES_3 = 0x20080522
_SIGKILL = 9


@dataclass(frozen=True)
class Confinement:
    """What to put on.

    memory, file_size: bytes for each process and each file. cpu: seconds of each process. tasks: how many
    processes and threads there may be. forks: whether processes may be started at all. uid: who to become,
    None to stay. keep: capabilities that stay with that user. hidden: other processes are out of sight (a
    process namespace). mounted: only chosen folders are there (a mount namespace). read, write: the
    folders that Landlock leaves open. folder: where to work. owner: the process to end with.
    """

    memory: int
    file_size: int
    cpu: int
    tasks: int
    forks: bool
    uid: int | None
    keep: Sequence[int]
    hidden: bool
    mounted: bool
    read: Sequence[str]
    write: Sequence[str]
    folder: str
    owner: int | None


def confine(wanted: Confinement) -> dict[str, bool | str]:
    """Puts everything on and says what holds. Raises OSError when something that is needed cannot be had."""
    os.chdir(wanted.folder)
    os.umask(0o022)
    rules = _landlock(wanted)
    _limit(wanted)
    checked(libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no_new_privs")
    if wanted.uid is not None:
        _become(wanted.uid, wanted.keep)
    _end_with(wanted.owner)
    if rules:
        rules.enforce()
    scoped = rules is not None and landlock.scopes_signals()
    seccomp.install(
        seccomp.rules(
            processes=wanted.forks,
            guard_signals=not (wanted.hidden or scoped),
            guard_metadata=not wanted.mounted,
        )
    )
    return {
        "landlock": f"version {rules.version}" if rules else False,
        "seccomp": True,
        "own user": wanted.uid is not None,
        "no new privileges": True,
    }


def _landlock(wanted: Confinement) -> landlock.Rules | None:
    if wanted.mounted and not landlock.version():
        return None
    rules = landlock.Rules()
    rules.allow(wanted.read)
    rules.allow(wanted.write, change=True)
    return rules


def _limit(wanted: Confinement) -> None:
    # Not at the top: whoever only describes a confinement may be on Windows, where it is missing.
    import resource

    limits = {
        resource.RLIMIT_AS: wanted.memory,
        resource.RLIMIT_FSIZE: wanted.file_size,
        resource.RLIMIT_CPU: wanted.cpu,
        resource.RLIMIT_NOFILE: 256,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        # Without a user or a namespace of its own, it counts what the user's other programs run too.
        resource.RLIMIT_NPROC: wanted.tasks + (0 if wanted.hidden or wanted.uid is not None else _tasks()),
    }
    for kind, most in limits.items():
        _, hard = resource.getrlimit(kind)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))


def _tasks() -> int:
    """How many processes and threads the user has now."""
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        # It may end at any time.
        with suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == os.getuid():
                count += len(os.listdir(f"/proc/{name}/task"))
    return count


def _become(uid: int, keep: Iterable[int]) -> None:
    """Becomes the user `uid` with no group and of the capabilities only those in `keep` that it has."""
    kept = [number for number in keep if _effective() >> number & 1]
    for number in range(64):
        # Fails past the last capability of this kernel, or where none may be dropped: then none can be
        # gained either, since no_new_privs is on.
        if number not in kept:
            libc().prctl(_DROP_BOUNDING, number, 0, 0, 0)
    os.setgroups([])
    checked(libc().prctl(_KEEP_CAPABILITIES, 1, 0, 0, 0), "keep capabilities")
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    mask = sum(1 << number for number in kept)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    header = struct.pack("=Ii", _CAPABILITIES_3, 0)
    checked(libc().capset(header, struct.pack("=6I", low, low, low, high, high, high)), "capset")
    for number in kept:
        checked(libc().prctl(_AMBIENT, _AMBIENT_RAISE, number, 0, 0), "ambient capability")
    # A process that has changed its user may otherwise not read its own /proc entries.
    checked(libc().prctl(_SET_DUMPABLE, 1, 0, 0, 0), "dumpable")


def _effective() -> int:
    data = ctypes.create_string_buffer(24)
    checked(libc().capget(struct.pack("=Ii", _CAPABILITIES_3, 0), data), "capget")
    words: tuple[Any, ...] = struct.unpack("=6I", data.raw)
    return int(words[0]) | int(words[3]) << 32


def _end_with(owner: int | None) -> None:
    if owner is None:
        return
    checked(libc().prctl(_SET_PDEATHSIG, _SIGKILL, 0, 0, 0), "end with the owner")
    if os.getppid() != owner:
        raise ProcessLookupError("the owner has already ended")
