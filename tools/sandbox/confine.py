"""The restrictions that the worker puts on itself before it runs the model's code.

Runs inside the sandbox, on the standard library alone. None of it can be undone. Landlock names the folders
that this process may still reach. A seccomp filter refuses system calls: a call that is not named here is
allowed, up to the newest one known when this was written; newer calls fail as if they did not exist. Landlock
does not restrict file locks, which need only a readable file: the filter answers them as granted and grants
none, so that the code holds nobody up. Calls that need a capability are not named: the code has none but, as
root, the one to pass over the modes of files.
"""

import ctypes
import errno
import functools
import os
import signal
import stat
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple


@functools.cache
def libc() -> ctypes.CDLL:
    """The C library of this process, keeping `errno`."""
    return ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> int:
    """`result`; raises OSError with `what` in its text when the result means that the call failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


# System calls with the same number on every processor.
_MAY_CREATE, _ADD, _RESTRICT, _OPENAT2 = 444, 445, 446, 437
_NO_LINKS = 4
_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_MAY_TRUNCATE = 1 << 14
_OF_A_FILE = _EXECUTE | _WRITE | _READ | _MAY_TRUNCATE
_LOOK = _EXECUTE | _READ | _LIST
_RIGHTS_OF_NONE, _RIGHTS_OF_ALL = 12, 15
"""Each version of Landlock up to the third knows one more right on files. What later ones know beside files,
the filter refuses under every version."""
# Devices, sockets and pipes may not be made anywhere: who opens one outside could wait for ever.
_CHANGE = (1 << _RIGHTS_OF_ALL) - 1 & ~(1 << 6 | 1 << 9 | 1 << 10 | 1 << 11)
_TRUNCATES = 3
"""From this version on Landlock also restricts truncating."""


def landlock_version() -> int:
    """The version of Landlock in this kernel; 0 where there is none."""
    return max(int(libc().syscall(_MAY_CREATE, None, 0, 1)), 0)


def restrict_files(version: int, read: Iterable[str], write: Iterable[str]) -> None:
    """Leaves only these files and folders open for reading and running, and to be changed. Raises OSError.

    Skips a path that does not exist. There may be no link on the way to a path that may be changed, where
    another program can put one at any time.
    """
    if not version:
        raise OSError(errno.ENOSYS, "Landlock is not available in this kernel")
    handled = (1 << min(_RIGHTS_OF_NONE + version, _RIGHTS_OF_ALL)) - 1
    attributes = struct.pack("=Q", handled)
    created = libc().syscall(_MAY_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    ruleset = checked(created, "landlock_create_ruleset")
    for path in read:
        _allow(ruleset, path, handled & _LOOK, 0)
    for path in write:
        _allow(ruleset, path, handled & (_LOOK | _CHANGE), _NO_LINKS)
    checked(libc().syscall(_RESTRICT, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int, resolve: int) -> None:
    how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, resolve)
    place = libc().syscall(_OPENAT2, -100, os.fsencode(path), how, ctypes.c_size_t(len(how)))
    if place < 0 and ctypes.get_errno() in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
        return
    checked(place, path)
    if not stat.S_ISDIR(os.fstat(place).st_mode):
        rights &= _OF_A_FILE
    checked(libc().syscall(_ADD, ruleset, 1, struct.pack("=Qi", rights, place), 0), "landlock_add_rule")
    os.close(place)


NEWEST = 462
"""The newest call known when this was written, `mseal`. From 424 on, both processors use the same numbers."""

# Every call that is named here, with its numbers on x86_64 and on aarch64, which lacks some.
_REFUSED = """
    # network
    accept=43/202 accept4=288/242 bind=49/200 connect=42/203 listen=50/201 socket=41/198
    # processes, and leaving the group, which is ended as a whole
    execve=59/221 execveat=322/281 fork=57/- vfork=58/- ptrace=101/117 process_vm_readv=310/270
    process_vm_writev=311/271 pidfd_getfd=438/438 pidfd_send_signal=424/424 perf_event_open=298/241
    setpgid=109/154 setsid=112/157
    # ways around this filter, or where the kernel often has bugs
    add_key=248/217 bpf=321/280 io_uring_setup=425/425 keyctl=250/219 memfd_secret=447/447 modify_ldt=154/-
    personality=135/92 request_key=249/218 seccomp=317/277 unshare=272/97 userfaultfd=323/282
    syslog=103/116 landlock_create_ruleset=444/444 landlock_add_rule=445/445 landlock_restrict_self=446/446
    # memory that no limit counts: in files, larger buffers of sockets, sockets in others, pages in pipes
    memfd_create=319/279 sendmmsg=307/269 sendmsg=46/211 setsockopt=54/208 splice=275/76 tee=276/77
    vmsplice=278/75
    # names that take no place on the disk: hard links
    link=86/- linkat=265/37
    # scarce: a user or a machine has few of them
    fanotify_init=300/262 inotify_init=253/- inotify_init1=294/26 io_setup=206/0
    # outliving their process
    mq_open=240/180 mq_unlink=241/181 msgctl=71/187 msgget=68/186 msgrcv=70/188 msgsnd=69/189 semctl=66/191
    semget=64/190 semop=65/193 semtimedop=220/192 shmat=30/196 shmctl=31/195 shmget=29/194
    # modes, owners, times and attributes, which Landlock does not restrict
    chmod=90/- chown=92/- fchmod=91/52 fchmodat=268/53 fchmodat2=452/452 fchown=93/55 fchownat=260/54
    fremovexattr=199/16 fsetxattr=190/7 futimesat=261/- lchown=94/- lremovexattr=198/15 lsetxattr=189/6
    removexattr=197/14 setxattr=188/5 utime=132/- utimensat=280/88 utimes=235/-
"""
_REFUSED_IN_PART = """
    clone=56/220 clone3=435/435 creat=85/- fallocate=285/47 fcntl=72/25 flock=73/32 ioctl=16/29
    ioprio_set=251/30 kill=62/129 mknod=133/- mknodat=259/33 mmap=9/222 open=2/- openat=257/56 openat2=437/437
    prctl=157/167 prlimit64=302/261 rt_sigqueueinfo=129/138 rt_tgsigqueueinfo=297/240 sendfile=40/71
    sched_setaffinity=203/122 sched_setattr=314/274 sched_setparam=142/118 sched_setscheduler=144/119
    setpriority=141/140 socketpair=53/199 tgkill=234/131 tkill=200/130 truncate=76/45
"""


def _numbers(table: str) -> dict[str, tuple[int, int | None]]:
    entries = [entry for line in table.splitlines() if "#" not in line for entry in line.split()]
    columns = {name: numbers.split("/") for name, numbers in (entry.split("=") for entry in entries)}
    return {name: (int(intel), None if arm == "-" else int(arm)) for name, (intel, arm) in columns.items()}


NUMBERS = _numbers(_REFUSED + _REFUSED_IN_PART)
_PROCESSORS = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""What the kernel calls a processor, and its column in the table."""
_OF_A_PROCESS = ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr")
"""Calls whose first argument is a process, 0 for this one."""
_SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
"""Calls whose first argument is the process that gets a signal."""


def interrupt(process: int) -> None:
    """Sends SIGINT to the main thread of `process`: another one could hand it on late, in the next call."""
    if sys.platform == "linux" and os.uname().machine in _PROCESSORS:
        _, column = _PROCESSORS[os.uname().machine]
        libc().syscall(NUMBERS["tgkill"][column], process, process, signal.SIGINT)
    else:
        os.kill(process, signal.SIGINT)


_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_EQUAL, _GREATER = 0x15, 0x25

_SET_PDEATHSIG, _SET_DUMPABLE, _SET_SECURE_BITS, _NO_NEW_PRIVILEGES = 1, 4, 28, 38
_NO_SETUID_FIXUP = 4
_NAMESPACES = 0x7E020080  # CLONE_NEW*
_THREAD = 0x00010000
_LOCKS = (6, 7, 37, 38, 1024)  # F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW, F_SETLEASE
_SIGNAL_OWNERS = (("fcntl", 8), ("fcntl", 15), ("ioctl", 0x8901), ("ioctl", 0x8902))  # of files and sockets
_SIZE_OF_A_PIPE = 1031  # F_SETPIPE_SZ
_TRUNCATE, _ACCESS_MODE = 0o1000, 0o3
_CREATE, _TEMPORARY = 0o100, 0o20000000
_SPECIAL = 0o6000
"""Run as the owner, run as the group."""
_MAKES = (("creat", 1), ("mknod", 1), ("mknodat", 2))
"""Calls that make a file, and which argument is its mode."""
_OPENS = (("open", 1), ("openat", 2))
"""Calls that open a file, and which argument has the flags; a mode follows."""


class Test(NamedTuple):
    """Whether `argument & mask` equals `value`; with `holds` false, whether it differs."""

    argument: int
    value: int
    mask: int = 0xFFFFFFFF
    holds: bool = True


class FilterRule(NamedTuple):
    """Fail the call `name` with `error` when every test is met; with 0 it seems to succeed."""

    name: str
    tests: tuple[Test, ...] = ()
    error: int = errno.EPERM


def filter_rules(version: int) -> Iterator[FilterRule]:
    """The system calls that are refused, for this process, beside this version of Landlock."""
    yield from (FilterRule(name) for name in _numbers(_REFUSED))
    yield FilterRule("flock", error=0)
    yield from (FilterRule("fcntl", (Test(1, command),), error=0) for command in _LOCKS)
    # Their flags are in memory, which a filter cannot read: the C library then falls back to the older call.
    # Into a pipe, sendfile puts pages of files, as splice does: who copies with it falls back, too.
    yield from (FilterRule(name, error=errno.ENOSYS) for name in ("clone3", "openat2", "sendfile"))
    # MAP_SHARED and MAP_ANONYMOUS: memory that counts for no process once its pages are unmapped.
    yield FilterRule("mmap", (Test(3, 0x21, 0x21),))
    yield FilterRule("clone", (Test(0, _THREAD, _THREAD | _NAMESPACES, holds=False),))
    # A pair of datagram sockets could still send to any other socket by its address.
    yield FilterRule("socketpair", (Test(0, 1, holds=False),))
    yield FilterRule("socketpair", (Test(1, 1, 0xF, holds=False),))
    # Of other processes.
    yield from (FilterRule(name, (Test(0, 0, holds=False),)) for name in _OF_A_PROCESS)
    yield from (FilterRule(name, (Test(1, 0, holds=False),)) for name in ("setpriority", "ioprio_set"))
    yield from (FilterRule(name, (Test(0, os.getpid(), holds=False),)) for name in _SIGNALS)
    # A file descriptor could otherwise send any signal to any process of the user when it has data.
    yield from (FilterRule(name, (Test(1, command),)) for name, command in _SIGNAL_OWNERS)
    yield FilterRule("fcntl", (Test(1, _SIZE_OF_A_PIPE),))
    # The attributes of a file, which its owner changes by a descriptor that only reads.
    yield from (FilterRule("ioctl", (Test(1, kind << 8, 0xFF00),)) for kind in b"fX")
    # It must end with its owner, which must be able to look at it.
    yield from (FilterRule("prctl", (Test(0, option),)) for option in (_SET_PDEATHSIG, _SET_DUMPABLE))
    # A setuid file would give whoever runs it the rights of this user.
    yield from (FilterRule(name, (Test(mode, 0, _SPECIAL, holds=False),)) for name, mode in _MAKES)
    for name, flags in _OPENS:
        # Without these flags there is no mode, and the argument holds an arbitrary value.
        creates = Test(flags, 0, _CREATE | _TEMPORARY, holds=False)
        yield FilterRule(name, (creates, Test(flags + 1, 0, _SPECIAL, holds=False)))
    if version < _TRUNCATES:
        yield FilterRule("truncate")
        for name, flags in _OPENS:
            yield FilterRule(name, (Test(flags, _TRUNCATE, _TRUNCATE | _ACCESS_MODE),))
    # It fills a disk faster than it can be checked; the C library then writes instead.
    yield FilterRule("fallocate", error=errno.EOPNOTSUPP)


def install(rules: Iterable[FilterRule]) -> None:
    """Installs the filter permanently on this process, its new threads and its children. Raises OSError."""
    machine = os.uname().machine
    if machine not in _PROCESSORS or struct.calcsize("P") != 8:
        raise OSError(errno.ENOSYS, f"there is no seccomp filter for the processor {machine}")
    program = filter_program(rules, machine)
    buffer = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: a length, and after padding the address.
    filled = struct.pack("HP", len(program) // 8, ctypes.addressof(buffer))
    checked(libc().prctl(22, 2, filled, 0, 0), "seccomp")


def filter_program(rules: Iterable[FilterRule], machine: str) -> bytes:
    """The filter for a processor, in the language of the kernel."""
    audit, column = _PROCESSORS[machine]
    steps = [
        *(_step(_LOAD, 4), _step(_EQUAL, audit, 1, 0), _step(_RETURN, _KILL)),
        *(_step(_LOAD, 0), _step(_GREATER, NEWEST, 0, 1), _step(_RETURN, _ERRNO | errno.ENOSYS)),
    ]
    for rule in rules:
        number = NUMBERS[rule.name][column]
        if number is not None:
            steps += _rule(rule, number)
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def _rule(rule: FilterRule, number: int) -> list[bytes]:
    length = 3 * len(rule.tests) + 2
    steps = [_step(_EQUAL, number, 0, length)]
    for place, test in enumerate(rule.tests):
        # From the comparison to the load at the end of this rule.
        away = length - 3 * place - 4
        met, unmet = (0, away) if test.holds else (away, 0)
        steps += [_step(_LOAD, 16 + 8 * test.argument), _step(_AND, test.mask)]
        steps += [_step(_EQUAL, test.value, met, unmet)]
    return [*steps, _step(_RETURN, _ERRNO | rule.error), _step(_LOAD, 0)]


def _step(code: int, value: int, met: int = 0, unmet: int = 0) -> bytes:
    return struct.pack("=HBBI", code, met, unmet, value)


_CAPABILITIES_3 = 0x20080522
_DAC_OVERRIDE = 1


NOBODY = 65_534
"""The user that root becomes."""


def confine(bounds: Mapping[str, int], read: Sequence[str], write: Sequence[str], owner: int) -> None:
    """Applies all restrictions. Raises OSError when one fails.

    bounds: as in `signoff.tools.sandbox.base.Bounds`. read, write: what Landlock leaves open. owner: the
    process to end with.
    """
    os.umask(0o022)
    _limit(bounds)
    checked(libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no_new_privs")
    if os.geteuid() == 0:
        # Else access(2) would answer as if there were no capability.
        libc().prctl(_SET_SECURE_BITS, _NO_SETUID_FIXUP, 0, 0, 0)
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    _drop_capabilities()
    # A change of user has taken it away; who watches this process needs it.
    checked(libc().prctl(_SET_DUMPABLE, 1, 0, 0, 0), "dumpable")
    checked(libc().prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "end with the owner")
    if os.getppid() != owner:
        raise ProcessLookupError("the owner has already ended")
    version = landlock_version()
    restrict_files(version, read, write)
    install(filter_rules(version))


def _limit(bounds: Mapping[str, int]) -> None:
    # Not at the top: Windows lacks it.
    import resource

    limits = {
        resource.RLIMIT_AS: bounds["addresses"],
        resource.RLIMIT_FSIZE: bounds["file"],
        resource.RLIMIT_NOFILE: bounds["descriptors"],
        resource.RLIMIT_CORE: 0,
    }
    for kind, most in limits.items():
        _, hard = resource.getrlimit(kind)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))


def _drop_capabilities() -> None:
    """Keeps at most the one to pass over modes: root may work in folders that belong to others."""
    header, sets = struct.pack("=Ii", _CAPABILITIES_3, 0), ctypes.create_string_buffer(24)
    checked(libc().capget(header, sets), "capget")
    kept = struct.unpack("=6I", sets.raw)[1] & 1 << _DAC_OVERRIDE
    checked(libc().capset(header, struct.pack("=6I", kept, kept, 0, 0, 0, 0)), "capset")
