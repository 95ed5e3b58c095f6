"""Hostile programs that reach for other processes, devices and the powers of the system."""

from pathlib import Path

from signoff.tools.sandbox.attack import Attack, Observed, secret_shown
from signoff.tools.sandbox.attacks_reach import CALL, READ


def _disk(observed: Observed) -> str:
    names = [name for name, print_ in observed.arena.disks().items() if print_ in observed.shown]
    return f"raw disks were read: {', '.join(names)}" if names else ""


def _typed(observed: Observed) -> str:
    return "text reached a terminal outside" if observed.arena.typed() else ""


def _killed(observed: Observed) -> str:
    return "a process outside was ended" if observed.arena.victim_ended() else ""


def _traced(observed: Observed) -> str:
    return "a process outside was traced" if observed.seen.traced else _killed(observed)


def _limited(observed: Observed) -> str:
    limits = Path(f"/proc/{observed.arena.victim}/limits")
    lines = limits.read_text().splitlines() if limits.exists() else []
    changed = any(line.startswith("Max open files") and line.split()[3] == "17" for line in lines)
    return "the limits of a process outside were changed" if changed else ""


def _mounted(observed: Observed) -> str:
    return "a file system was mounted" if observed.arena.unmount() else ""


def _administrator(observed: Observed) -> str:
    return "it had the powers of an administrator" if observed.seen.administrator else ""


def _root(observed: Observed) -> str:
    return "it ran as root of this host" if observed.seen.root else ""


def _shared(observed: Observed) -> str:
    return "it left shared memory behind" if observed.arena.shared_memory() else ""


INTRUDING = (
    Attack(
        "kill",
        "end a process outside, as it would the parent",
        "import os\nos.kill(VICTIM, 9)",
        _killed,
    ),
    Attack(
        "kill by a handle",
        "let a pipe send the signal",
        """
import fcntl, os, time
reader, writer = os.pipe()
fcntl.fcntl(reader, fcntl.F_SETOWN, VICTIM)
fcntl.fcntl(reader, 10, 9)
fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC)
os.write(writer, b"x")
time.sleep(0.2)
""",
        _killed,
    ),
    Attack(
        "ptrace",
        "trace a process outside so that it ends with the program",
        f"{CALL}\nimport time\nprint(libc.ptrace(0x4206, VICTIM, None, ctypes.c_void_p(0x100000)))\n"
        "time.sleep(0.5)",
        _traced,
    ),
    Attack(
        "limits of others",
        "change the limits of a process outside",
        "import resource\nresource.prlimit(VICTIM, resource.RLIMIT_NOFILE, (17, 17))",
        _limited,
    ),
    Attack(
        "mount",
        "mount a file system, in its own name space too",
        f"{CALL}\nlibc.mount(b'none', MOUNT_POINT.encode(), b'tmpfs', 0, None)\nprint(ctypes.get_errno())",
        _mounted,
    ),
    Attack(
        "user namespace",
        "become the administrator of a new name space",
        f"{CALL}\nimport time\nprint(libc.unshare(0x10020000), ctypes.get_errno())\ntime.sleep(0.4)",
        _administrator,
    ),
    Attack(
        "chroot",
        "leave through a nested root folder",
        READ
        + """
import os, tempfile
folder = tempfile.mkdtemp()
handle = os.open("/", os.O_RDONLY)
os.chroot(folder)
os.fchdir(handle)
os.chroot(".")
show(SECRET_FILE)
""",
        secret_shown,
    ),
    Attack("setuid", "become root", "import os, time\nos.setuid(0)\ntime.sleep(0.4)", _root),
    Attack(
        "disks",
        "read the raw disks",
        """
import hashlib, os
for name in [*(f"{kind}{letter}" for kind in ("sd", "vd", "xvd") for letter in "abcd"), "nvme0n1", "loop0"]:
    try:
        with open(f"/dev/{name}", "rb") as disk:
            print(hashlib.sha256(disk.read(4096)).hexdigest())
    except OSError as error:
        print(error)
""",
        _disk,
    ),
    Attack("terminal", "write to the user's terminal", "open(TERMINAL, 'w').write('hello')", _typed),
    Attack(
        "shared memory",
        "leave memory behind that outlives it",
        f"{CALL}\nprint(libc.shmget(SHARED_KEY, 4096, 0o1666), ctypes.get_errno())",
        _shared,
    ),
)
