"""The restrictions that the worker puts on itself before it runs the model's code.

Runs inside the sandbox, on the standard library alone. None of it can be undone. Landlock names the folders
that this process may still reach. A seccomp filter refuses system calls: a call that is not named here is
allowed, up to the newest one known when this was written; newer calls fail as if they did not exist. Landlock
does not restrict file locks, which need only a readable file: the filter answers them as granted and grants
none, so that the code holds nobody up.
"""

import ctypes
import errno
import functools
import os
import stat
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple


@functools.cache
def libc() -> ctypes.CDLL:
    """The C library of this process, keeping `errno`."""
    return ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> int:
    """Returns `result`; raises OSError with `what` in its text when the result means that the call failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


_MAY_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same on every processor
_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_MAY_TRUNCATE = 1 << 14
_OF_A_FILE = _EXECUTE | _WRITE | _READ | _MAY_TRUNCATE
_LOOK = _EXECUTE | _READ | _LIST
# By version of Landlock: everything it can refuse. Devices, sockets and pipes may not be made anywhere: who
# opens one outside could wait for ever.
_ALL = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_CHANGE = _ALL[3] & ~(1 << 6 | 1 << 9 | 1 << 10 | 1 << 11)
_SCOPED = 6
"""From this version on, Landlock also restricts signals and abstract sockets."""


def version() -> int:
    """Returns the version of Landlock in this kernel; 0 where there is none."""
    number: int = libc().syscall(_MAY_CREATE, None, 0, 1)
    return max(number, 0)


def _straight(path: str) -> int:
    """Opens `path` one component at a time and returns its file descriptor.

    Another process may put a link in its place at any time.
    """
    place = os.open("/", os.O_PATH | os.O_CLOEXEC)
    for name in path.strip("/").split("/"):
        try:
            following = os.open(name, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=place)
        finally:
            os.close(place)
        place = following
        if stat.S_ISLNK(os.fstat(place).st_mode):
            os.close(place)
            raise FileNotFoundError(errno.ENOENT, "a link", path)
    return place


class Rules:
    """The paths that will be reachable. Created and filled while all paths still are."""

    def __init__(self) -> None:
        self.version = version()
        if not self.version:
            raise OSError(errno.ENOSYS, "Landlock is not available in this kernel")
        self._handled = _ALL[min(self.version, max(_ALL))]
        network, scoped = (3 if self.version >= 4 else 0), (3 if self.version >= _SCOPED else 0)
        size = 24 if self.version >= _SCOPED else 16 if self.version >= 4 else 8
        attributes = struct.pack("=QQQ", self._handled, network, scoped)
        handle = libc().syscall(_MAY_CREATE, attributes, ctypes.c_size_t(size), 0)
        self._handle = checked(handle, "landlock_create_ruleset")

    def allow(self, paths: Iterable[str], *, change: bool = False) -> None:
        """Allows reading and running files below `paths`, and with `change` also creating and changing them.

        Skips a path that does not exist. Follows no link on the way to a path that may be changed.
        """
        for path in paths:
            try:
                place = _straight(path) if change else os.open(path, os.O_PATH | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                continue
            try:
                self._add(place, (_LOOK | _CHANGE if change else _LOOK) & self._handled)
            finally:
                os.close(place)

    def _add(self, place: int, access: int) -> None:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            access &= _OF_A_FILE
        rule = struct.pack("=Qi", access, place)
        checked(libc().syscall(_ADD, self._handle, 1, rule, 0), "landlock_add_rule")

    def enforce(self) -> None:
        """Applies the rules to this process and all that it starts from now on. Raises OSError."""
        checked(libc().syscall(_RESTRICT, self._handle, 0), "landlock_restrict_self")
        os.close(self._handle)


NEWEST = 462
"""The newest call known when this was written, `mseal`. From 424 on, both processors use the same numbers."""

# Every call that is named here, with its numbers on x86_64 and on aarch64, which lacks some.
_NETWORK = """
    accept=43/202 accept4=288/242 bind=49/200 connect=42/203 listen=50/201 socket=41/198
"""
_NEW_PROCESSES = """
    execve=59/221 execveat=322/281 fork=57/- vfork=58/-
"""
_OTHER_PROCESSES = """
    kcmp=312/272 migrate_pages=256/238 move_pages=279/239 perf_event_open=298/241 pidfd_getfd=438/438
    process_madvise=440/440 process_mrelease=448/448 process_vm_readv=310/270 process_vm_writev=311/271
    ptrace=101/117
"""
# Ending the process group has to end everything.
_LEAVING_THE_GROUP = """
    setpgid=109/154 setsid=112/157
"""
_FILE_SYSTEMS = """
    chroot=161/51 fanotify_init=300/262 fanotify_mark=301/263 fsconfig=431/431 fsmount=432/432
    fsopen=430/430 fspick=433/433 listmount=458/458 mount=165/40 mount_setattr=442/442 move_mount=429/429
    name_to_handle_at=303/264 open_by_handle_at=304/265 open_tree=428/428 pivot_root=155/41
    quotactl=179/60 quotactl_fd=443/443 setns=308/268 statmount=457/457 truncate=76/45 umount2=166/39
    unshare=272/97
"""
# Parts of the kernel that often have bugs, or that bypass this filter.
_WAYS_AROUND = """
    _sysctl=156/- add_key=248/217 bpf=321/280 io_uring_enter=426/426 io_uring_register=427/427
    io_uring_setup=425/425 keyctl=250/219 landlock_add_rule=445/445 landlock_create_ruleset=444/444
    landlock_restrict_self=446/446 lookup_dcookie=212/18 memfd_secret=447/447 modify_ldt=154/-
    nfsservctl=180/42 personality=135/92 request_key=249/218 seccomp=317/277 sysfs=139/- uselib=134/-
    userfaultfd=323/282 ustat=136/-
"""
_MACHINE = """
    acct=163/89 adjtimex=159/171 clock_adjtime=305/266 clock_settime=227/112 delete_module=176/106
    finit_module=313/273 init_module=175/105 ioperm=173/- iopl=172/- kexec_file_load=320/294
    kexec_load=246/104 reboot=169/142 setdomainname=171/162 sethostname=170/161 settimeofday=164/170
    swapoff=168/225 swapon=167/224 syslog=103/116 vhangup=153/58
"""
_USERS = """
    capset=126/91 setfsgid=123/152 setfsuid=122/151 setgid=106/144 setgroups=116/159 setregid=114/143
    setresgid=119/149 setresuid=117/147 setreuid=113/145 setuid=105/146
"""
# Memory that neither a limit nor the memory check counts: files in memory (`memfd_secret` is above), larger
# buffers of sockets, and sockets that are on their way inside of others.
_UNCOUNTED = """
    memfd_create=319/279 sendmmsg=307/269 sendmsg=46/211 setsockopt=54/208
"""
# A user or a machine has few of them, and other programs need some.
_SCARCE = """
    inotify_init=253/- inotify_init1=294/26 io_setup=206/0
"""
# Shared memory and queues that outlive their process.
_OUTLIVING = """
    mq_open=240/180 mq_unlink=241/181 msgctl=71/187 msgget=68/186 msgrcv=70/188 msgsnd=69/189
    semctl=66/191 semget=64/190 semop=65/193 semtimedop=220/192 shmat=30/196 shmctl=31/195 shmget=29/194
"""
# Modes, owners, times and attributes, which Landlock does not restrict.
_METADATA = """
    chmod=90/- chown=92/- fchmod=91/52 fchmodat=268/53 fchmodat2=452/452 fchown=93/55 fchownat=260/54
    fremovexattr=199/16 fsetxattr=190/7 futimesat=261/- lchown=94/- lremovexattr=198/15 lsetxattr=189/6
    removexattr=197/14 setxattr=188/5 utime=132/- utimensat=280/88 utimes=235/-
"""
# Refused with some arguments, or answered.
_IN_PART = """
    clone=56/220 clone3=435/435 creat=85/- fallocate=285/47 fcntl=72/25 flock=73/32 ioctl=16/29
    ioprio_set=251/30 kill=62/129 mknod=133/- mknodat=259/33 open=2/- openat=257/56 openat2=437/437
    pidfd_send_signal=424/424 prctl=157/167 prlimit64=302/261 rt_sigqueueinfo=129/138
    rt_tgsigqueueinfo=297/240 sched_setaffinity=203/122 sched_setattr=314/274 sched_setparam=142/118
    sched_setscheduler=144/119 setpriority=141/140 socketpair=53/199 tgkill=234/131 tkill=200/130
"""
_REFUSED = "".join(
    (
        _NETWORK,
        _NEW_PROCESSES,
        _OTHER_PROCESSES,
        _LEAVING_THE_GROUP,
        _FILE_SYSTEMS,
        _WAYS_AROUND,
        _MACHINE,
        _USERS,
        _UNCOUNTED,
        _SCARCE,
        _OUTLIVING,
        _METADATA,
    )
)


def _numbers(table: str) -> dict[str, tuple[int, int | None]]:
    pairs = (entry.partition("=") for entry in table.split())
    columns = ((name, numbers.split("/")) for name, _, numbers in pairs)
    return {name: (int(intel), None if arm == "-" else int(arm)) for name, (intel, arm) in columns}


DENIED = tuple(_numbers(_REFUSED))
"""Refused always."""
NUMBERS = _numbers(_REFUSED + _IN_PART)
_SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
"""Calls whose first argument is the process that gets a signal."""


def send_signal(process: int, number: int) -> None:
    """Sends a signal to the main thread of `process`, and to no other one."""
    column = _ARCHITECTURES[os.uname().machine][1]
    libc().syscall(NUMBERS["tgkill"][column], process, process, number)


_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_EQUAL, _GREATER = 0x15, 0x25
_X32 = 0x40000000

_NAMESPACES = 0x7E020080  # CLONE_NEW*
_THREAD = 0x00010000
_OWN_ONLY = (
    "prlimit64",
    "sched_setaffinity",
    "sched_setscheduler",
    "sched_setparam",
    "sched_setattr",
)
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_LOCKS = (6, 7, 37, 38, 1024)  # F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW, F_SETLEASE
_SIGNAL_OWNER = (8, 15)  # F_SETOWN, F_SETOWN_EX
_SIZE_OF_A_PIPE = 1031  # F_SETPIPE_SZ
_SIGNAL_OWNER_OF_A_SOCKET = (0x8901, 0x8902)  # FIOSETOWN, SIOCSPGRP
_TRUNCATE, _ACCESS_MODE = 0o1000, 0o3
_CREATE, _TEMPORARY = 0o100, 0o20000000
_SPECIAL = 0o6000
"""Run as the owner, run as the group."""
_GIVES_A_MODE = (("creat", 1), ("mknod", 1), ("mknodat", 2))


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


def filter_rules() -> Iterator[FilterRule]:
    """Yields the rules of the system calls that are refused, for this process."""
    yield from (FilterRule(name) for name in DENIED)
    yield FilterRule("flock", error=0)
    yield from (FilterRule("fcntl", (Test(1, command),), error=0) for command in _LOCKS)
    # Their flags are in memory, which a filter cannot read: the C library then falls back to the older call.
    yield from (FilterRule(name, error=errno.ENOSYS) for name in ("clone3", "openat2"))
    yield FilterRule("clone", (Test(0, 0, _NAMESPACES, holds=False),))
    yield FilterRule("clone", (Test(0, 0, _THREAD),))
    # A pair of datagram sockets could still send to any other socket by its address.
    yield FilterRule("socketpair", (Test(0, 1, holds=False),))
    yield FilterRule("socketpair", (Test(1, 1, 0xF, holds=False),))
    yield from (FilterRule(name, (Test(0, 0, holds=False),)) for name in _OWN_ONLY)
    yield from (FilterRule(name, (Test(1, 0, holds=False),)) for name in ("setpriority", "ioprio_set"))
    yield from (
        FilterRule("ioctl", (Test(1, request),)) for request in (*_TERMINAL_INPUT, *_SIGNAL_OWNER_OF_A_SOCKET)
    )
    # The attributes of a file, which its owner changes by a descriptor that only reads.
    yield from (FilterRule("ioctl", (Test(1, kind << 8, 0xFF00),)) for kind in b"fX")
    # A file descriptor could otherwise send any signal to any process of the user when it has data.
    yield from (FilterRule("fcntl", (Test(1, command),)) for command in _SIGNAL_OWNER)
    yield FilterRule("fcntl", (Test(1, _SIZE_OF_A_PIPE),))
    yield FilterRule("prctl", (Test(0, 1),))  # PR_SET_PDEATHSIG: it must end with its owner
    # Landlock before its third version does not refuse truncating a file that is opened for reading.
    for name, argument in (("open", 1), ("openat", 2)):
        yield FilterRule(name, (Test(argument, _TRUNCATE, _TRUNCATE | _ACCESS_MODE),))
    # A setuid file would give whoever runs it the rights of this user.
    yield from (FilterRule(name, (Test(mode, 0, _SPECIAL, holds=False),)) for name, mode in _GIVES_A_MODE)
    for name, flags in (("open", 1), ("openat", 2)):
        # Without these flags there is no mode, and the argument holds an arbitrary value.
        creates = Test(flags, 0, _CREATE | _TEMPORARY, holds=False)
        yield FilterRule(name, (creates, Test(flags + 1, 0, _SPECIAL, holds=False)))
    # It fills a disk faster than it can be checked; the C library then writes instead.
    yield FilterRule("fallocate", error=errno.EOPNOTSUPP)
    # Landlock before its sixth version does not restrict signals.
    yield from (FilterRule(name, (Test(0, os.getpid(), holds=False),)) for name in _SIGNALS)
    yield FilterRule("pidfd_send_signal")


def install(wanted: Iterable[FilterRule]) -> None:
    """Installs the filter permanently on this process, its new threads and its children. Raises OSError."""
    if os.uname().machine not in _ARCHITECTURES or struct.calcsize("P") != 8:
        raise OSError(errno.ENOSYS, f"there is no seccomp filter for the processor {os.uname().machine}")
    audit, column = _ARCHITECTURES[os.uname().machine]
    program = b"".join(_program(wanted, audit, column))
    buffer = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    filled = Program(len(program) // 8, ctypes.addressof(buffer))
    checked(libc().prctl(22, 2, ctypes.byref(filled), 0, 0), "seccomp")


def _program(wanted: Iterable[FilterRule], audit: int, column: int) -> Iterator[bytes]:
    yield _step(_LOAD, 4)
    yield from (_step(_EQUAL, audit, 1, 0), _step(_RETURN, _KILL))
    yield _step(_LOAD, 0)
    yield from (_step(_GREATER, _X32 - 1, 0, 1), _step(_RETURN, _KILL))
    yield from (_step(_GREATER, NEWEST, 0, 1), _step(_RETURN, _ERRNO | errno.ENOSYS))
    for rule in wanted:
        number = NUMBERS[rule.name][column]
        if number is not None:
            yield from _rule(rule, number)
    yield _step(_RETURN, _ALLOW)


def _rule(rule: FilterRule, number: int) -> list[bytes]:
    if not rule.tests:
        return [_step(_EQUAL, number, 0, 1), _step(_RETURN, _ERRNO | rule.error)]
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


_SET_PDEATHSIG, _SET_DUMPABLE, _KEEP_CAPABILITIES, _DROP_BOUNDING, _SET_SECURE_BITS = 1, 4, 8, 24, 28
_NO_SETUID_FIXUP = 4
_NO_NEW_PRIVILEGES, _AMBIENT, _AMBIENT_RAISE = 38, 47, 2
_CAPABILITIES_3 = 0x20080522
_SIGKILL = 9


class Confinement(NamedTuple):
    """The restrictions to apply.

    addresses, file_size: bytes for the process and for each file. cpu: seconds. threads, descriptors: how
    many at once. uid: the user to become, None to keep the current one. keep: capabilities that this user
    keeps. read, write: the folders and files that Landlock leaves open. owner: the process to end with."""

    addresses: int
    file_size: int
    cpu: int
    threads: int
    descriptors: int
    uid: int | None
    keep: Sequence[int]
    read: Sequence[str]
    write: Sequence[str]
    owner: int


def confine(wanted: Confinement) -> dict[str, bool | str]:
    """Applies the restrictions and returns which ones hold. Raises OSError when a required one fails."""
    os.umask(0o022)
    rules = Rules()
    rules.allow(wanted.read)
    rules.allow(wanted.write, change=True)
    _limit(wanted)
    checked(libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no_new_privs")
    if wanted.uid is not None:
        _become(wanted.uid, wanted.keep)
    _end_with(wanted.owner)
    rules.enforce()
    install(filter_rules())
    return {
        "landlock": f"version {rules.version}",
        "seccomp": True,
        "own user": wanted.uid is not None,
        "no new privileges": True,
    }


def _limit(wanted: Confinement) -> None:
    # Not at the top: a module that only describes a confinement may be imported on Windows, which lacks it.
    import resource

    limits = {
        resource.RLIMIT_AS: wanted.addresses,
        resource.RLIMIT_FSIZE: wanted.file_size,
        resource.RLIMIT_CPU: wanted.cpu,
        resource.RLIMIT_NOFILE: wanted.descriptors,
        resource.RLIMIT_SIGPENDING: wanted.descriptors,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        # Without a user of its own, the limit also counts the user's other programs.
        resource.RLIMIT_NPROC: wanted.threads + (0 if wanted.uid is not None else _tasks()),
    }
    for kind, most in limits.items():
        _, hard = resource.getrlimit(kind)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))


def _tasks() -> int:
    """Returns how many processes and threads the user has now."""
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        # It may end at any time.
        with suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == os.getuid():
                count += len(os.listdir(f"/proc/{name}/task"))
    return count


def _become(uid: int, keep: Iterable[int]) -> None:
    """Becomes the user `uid` without groups, and keeps only the capabilities in `keep` that it has."""
    kept = [number for number in keep if _effective() >> number & 1]
    for number in range(64):
        # Fails past the last capability of this kernel, or where none may be dropped; then none can be gained
        # either, because no_new_privs is set.
        if number not in kept:
            libc().prctl(_DROP_BOUNDING, number, 0, 0, 0)
    os.setgroups([])
    checked(libc().prctl(_KEEP_CAPABILITIES, 1, 0, 0, 0), "keep capabilities")
    # Else access(2) would answer as if there were none.
    libc().prctl(_SET_SECURE_BITS, _NO_SETUID_FIXUP, 0, 0, 0)
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


def _end_with(owner: int) -> None:
    checked(libc().prctl(_SET_PDEATHSIG, _SIGKILL, 0, 0, 0), "end with the owner")
    if os.getppid() != owner:
        raise ProcessLookupError("the owner has already ended")
