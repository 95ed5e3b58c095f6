"""Hostile programs in the sandboxes: nothing gets through, and each is noticed where there is no sandbox.

The first line of a program names what is seen from outside when it succeeds. Nothing of it may be seen in a
sandbox; all of it is where there is none, so that a row which tries nothing fails. A program says LEAKED of
what only its own process can see.
"""

import fcntl
import os
import secrets
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from signoff.tools import LinuxSandbox, MontySandbox, PythonResult, Sandbox, UnsafeSandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the programs are written for Linux")

TOKEN = "SIGNOFF_ATTACK_TOKEN"
PROLOGUE = """
def attempt(*works):
    for work in works:
        try:
            print(work())
        except Exception as error:
            print(type(error).__name__, error)
def leaked(what, is_leaked):
    if is_leaked:
        print("LEAKED " + what)
"""
LIBC = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
"""
SOCKETS = """
import socket, time
def send(family, kind, address):
    with socket.socket(family, kind) as client:
        client.settimeout(1)
        client.connect(address)
        client.send(b"hello")
"""
CHANGING = """
import os
PROTECTED = (".git/config", ".git/HEAD", ".venv/bin/python", ".venv/pyvenv.cfg", "conda/bin/python",
             ".signoff/threads.sqlite")
def write(path, how="w"):
    with open(path, how) as file:
        file.write("changed")
def replace(path):
    write("src/other")
    os.replace("src/other", path)
"""
# By what a program uses of them.
HELPERS = {"libc.": LIBC, "socket.": SOCKETS, " write(": CHANGING}
SECOND_NAME = "an old second name of what is protected"
"""Held where the workspace is read-only: otherwise it is protected by name and place."""
# By name; the first line says what is noticed where it gets through.
ATTACKS = {
    "files": """# secret passwords
attempt(lambda: open(SECRET).read(), lambda: open(HOME).read(), lambda: open('/etc/passwd').read())
""",
    "links to files": """# secret
import os, tempfile
def linked(make, path):
    make(SECRET, path)
    return open(path).read()
own = tempfile.gettempdir()
attempt(lambda: linked(os.symlink, "src/soft"), lambda: linked(os.link, "src/hard"),
        lambda: linked(os.symlink, own + "/soft"), lambda: linked(os.link, own + "/hard"))
""",
    "files by another root": """# secret
attempt(*(lambda where=where: open(where + SECRET).read()
          for where in ("/proc/self/root", f"/proc/{VICTIM}/root", "/proc/1/root", "src" + "/.." * 20)))
""",
    "its environment": """# secret
import os
attempt(lambda: os.environ[TOKEN], lambda: os.getenv(TOKEN))
""",
    "the environment of others": """# secret
attempt(lambda: open(f'/proc/{VICTIM}/environ').read())
""",
    "writing outside": """# written
import os
attempt(lambda: open(OUTSIDE, "w"), lambda: os.mkdir(OUTSIDE), lambda: os.symlink("/", OUTSIDE),
        lambda: os.rename("src/app.py", OUTSIDE))
""",
    "changing outside": """# changed
import os
attempt(lambda: os.chmod(SECRET, 0), lambda: os.truncate(SECRET, 0), lambda: open(SECRET, "a").write("x"),
        lambda: os.open(SECRET, os.O_RDONLY | os.O_TRUNC), lambda: os.unlink(SECRET))
""",
    "the network": """# tcp udp unix abstract datagram listening
def send_from_pair():
    socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"hello", DATAGRAM)
attempt(lambda: send(socket.AF_INET, 1, ("127.0.0.1", TCP)), lambda: send(socket.AF_UNIX, 1, UNIX),
        lambda: socket.socket(socket.AF_INET, 2).sendto(b"hello", ("127.0.0.1", UDP)),
        lambda: send(socket.AF_UNIX, 1, chr(0) + ABSTRACT), send_from_pair,
        lambda: leaked("listening", socket.create_server(("127.0.0.1", 0))))
""",
    "the network by other modes of the processor": """# tcp
import struct
address = struct.pack("=H", 2) + struct.pack("!H4B", TCP, 127, 0, 0, 1) + bytes(8)
for make, connect in ((41, 42), (198, 203), (0x40000000 | 41, 0x40000000 | 42)):
    print(libc.syscall(connect, libc.syscall(make, 2, 1, 0), address, 16))
""",
    "a signal": """# ended
import os, signal
attempt(lambda: os.kill(VICTIM, 9), lambda: signal.pidfd_send_signal(os.pidfd_open(VICTIM), 9))
""",
    "a signal by a pipe": """# ended
import fcntl, os
reader, writer = os.pipe()
attempt(lambda: fcntl.fcntl(reader, fcntl.F_SETOWN, VICTIM), lambda: fcntl.fcntl(reader, 10, 9),
        lambda: fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC), lambda: os.write(writer, b"x"))
""",
    "tracing": """# ended
libc.ptrace(0x4206, VICTIM, None, ctypes.c_void_p(0x100000))
""",
    "memory that outlives it": """# shared
number = libc.shmget(0, 4096, 0o1666)
leaked("shared", number >= 0)
libc.shmctl(number, 0, None)
""",
    "privileges": """# mount namespace root chroot disk
leaked("mount", libc.mount(b"none", MOUNT.encode(), b"tmpfs", 0, None) == 0)
libc.umount2(MOUNT.encode(), 2)
attempt(lambda: os.setuid(0))
leaked("root", os.geteuid() == 0)
def read_disk(name):
    leaked("disk", open("/dev/" + name, "rb").read(1))
attempt(*(lambda name=name: read_disk(name) for name in ("sda", "vda", "xvda", "nvme0n1", "loop0")))
leaked("namespace", libc.unshare(0x10020000) == 0)
def leave():
    handle = os.open("/", os.O_RDONLY)
    os.chroot("src")
    leaked("chroot", True)
    os.fchdir(handle)
    os.chroot(".")
attempt(leave)
""",
    "processes": """# fork clone
def started(name, child):
    if child == 0:
        os._exit(0)
    leaked(name, child > 0)
started("fork", libc.fork())
started("clone", libc.syscall(56 if os.uname().machine == "x86_64" else 220, 17, 0, 0, 0, 0))
""",
    "hiding": """# hidden orphan
for n, what in ((4, 'hidden'), (1, 'orphan')):
    leaked(what, libc.prctl(n, 0, 0, 0, 0) == 0)
""",
    "memory of nobody": """# file map zero
import mmap, os
attempt(lambda: leaked("file", os.memfd_create("held")), lambda: leaked("map", mmap.mmap(-1, 4096)),
        lambda: leaked("zero", mmap.mmap(os.open("/dev/zero", os.O_RDWR), 4096)))
""",
    "memory in sockets": """# buffer passed many
import array, os, socket
held = [socket.socketpair()]
one, other = held[0]
attempt(lambda: other.setsockopt(1, 7, 10**9) or leaked("buffer", True),
        lambda: leaked("passed", one.sendmsg([b"x"], [(1, 1, array.array("i", [other.fileno()]))])))
def hold():
    for number in range(300):
        held.append(socket.socketpair())
    leaked("many", True)
attempt(hold)
""",
    "memory in pipes": """# vmsplice tee splice sendfile
import tempfile
class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
page = ctypes.create_string_buffer(b"x" * 4096)
file = tempfile.TemporaryFile()
file.write(page.raw)
file.flush()
full, into = os.pipe()
os.write(into, b"x")
at = ctypes.c_longlong(0)
leaked("tee", libc.tee(full, os.pipe()[1], 1, 0) > 0)
leaked("vmsplice", libc.vmsplice(into, ctypes.byref(Part(ctypes.addressof(page), 4096)), 1, 0) > 0)
leaked("splice", libc.splice(file.fileno(), ctypes.byref(at), into, None, 4096, 0) > 0)
leaked("sendfile", libc.sendfile(into, file.fileno(), ctypes.byref(at), 4096) > 0)
""",
    "memory of the kernel": """# rules watch
leaked("rules", libc.syscall(444, b"\\1" + bytes(7), ctypes.c_size_t(8), 0) >= 0)
leaked("watch", libc.inotify_init1(0) >= 0)
""",
    "changing what is protected": """# .git .venv .signoff conda
for path in PROTECTED:
    attempt(lambda: write(path, "a"), lambda: write(path), lambda: os.open(path, os.O_RDONLY | os.O_TRUNC),
            lambda: os.truncate(path, 0), lambda: replace(path), lambda: os.chmod(path, 0o600),
            lambda: os.unlink(path), lambda: write(path))
""",
    "adding to what is protected": """# .git .venv .signoff conda
attempt(lambda: os.mkdir(".git/hooks"), lambda: write(".git/hooks/pre-commit"), lambda: write(".venv/e.pth"),
        lambda: os.symlink("../../src", ".venv/bin/src"), lambda: write(".signoff/threads.sqlite-wal"),
        lambda: write("conda/bin/new"))
""",
    "moving what is protected": """# .git .venv .signoff conda
for name in (".git", ".venv", ".signoff", "conda"):
    attempt(lambda: os.rename(name, "src/" + name), lambda: os.rename(name, "moved"),
            lambda: os.mkdir(name), lambda: write(name + "/config"))
""",
    "other names of what is protected": """# .git .venv .signoff conda
handle = os.open(".git", os.O_RDONLY)
attempt(lambda: write(f"/proc/self/fd/{handle}/config"),
        lambda: os.write(os.open("HEAD", os.O_WRONLY, dir_fd=handle), b"changed"),
        lambda: write("linked/config"), lambda: write("src/../.git/config"))
for number, make in enumerate((os.link, os.symlink)):
    for path in PROTECTED:
        attempt(lambda: make(os.path.abspath(path), f"src/{number}"), lambda: write(f"src/{number}", "a"))
        attempt(lambda: os.unlink(f"src/{number}"))
""",
    SECOND_NAME: """# .venv
attempt(lambda: write('kept/twin.py'))
""",
    "locks": """# flock lockf lease
import fcntl
held = [open(".signoff/threads.sqlite", "rb") for _ in range(3)]
attempt(lambda: fcntl.fcntl(held[2], fcntl.F_SETLEASE, fcntl.F_RDLCK), lambda: fcntl.flock(held[0], 2),
        lambda: fcntl.lockf(held[1], fcntl.LOCK_SH))
""",
    "traps": """# trap
import os
for folder in ("src", os.path.expanduser("~")):
    attempt(lambda: os.mkfifo(folder + "/pipe"), lambda: os.mknod(folder + "/pipe2", 0o010600),
            lambda: os.mknod(folder + "/socket", 0o140600))
""",
    "a program that runs as its owner": """# setuid
open("src/plain", "w").close()
for bits in (0o4755, 0o2755):
    attempt(lambda: os.open(f"src/{bits}", os.O_CREAT | os.O_WRONLY, bits),
            lambda: os.open("src", os.O_TMPFILE | os.O_WRONLY, bits),
            lambda: os.mknod(f"src/{bits}-node", 0o100000 | bits), lambda: os.chmod("src/plain", bits),
            lambda: os.fchmod(os.open("src/plain", os.O_WRONLY), bits),
            lambda: os.chmod("plain", bits, dir_fd=os.open("src", os.O_RDONLY)))
libc.syscall(452, -100, b"src/plain", 0o4755, 0)
""",
}
OF_THE_WORKSPACE = [*ATTACKS][[*ATTACKS].index("changing what is protected") :]
# Possible for root alone, or where the host itself does not forbid it.
MAY_BE_REFUSED = {"mount", "namespace", "root", "chroot", "disk", "ended", "lease", "setuid"}
# The others use what Monty has not.
IN_MONTY = {
    *("files", "files by another root", "its environment", "the environment of others"),
    *("writing outside", "changing outside", "changing what is protected", "adding to what is protected"),
    *("moving what is protected", SECOND_NAME),
}
FILES = (
    *(".git/HEAD", ".git/config", ".venv/pyvenv.cfg", ".venv/bin/python", "conda/conda-meta/history"),
    *("conda/bin/python", ".signoff/threads.sqlite", "src/app.py", "kept/note.txt"),
)


class Arena:
    """What the programs try to reach, all of it harmless; what they have reached is seen from outside."""

    def __init__(self, folder: Path, held: ExitStack) -> None:
        self.folder, self.held = folder, held
        self.secret = f"secret-{secrets.token_hex(12)}"
        self.secret_file, self.outside = folder / "secret.txt", folder / "written"
        (folder / "mount").mkdir()
        self.home_file = Path.home() / f".signoff-attack-{secrets.token_hex(12)}"
        self.workspace = folder / "workspace"
        unix, abstract = str(folder / "unix"), f"\0{self.secret}"
        self.listeners = {
            "tcp": self.listener(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            "udp": self.listener(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            "unix": self.listener(socket.AF_UNIX, socket.SOCK_STREAM, unix),
            "datagram": self.listener(socket.AF_UNIX, socket.SOCK_DGRAM, f"{unix}-datagram"),
            "abstract": self.listener(socket.AF_UNIX, socket.SOCK_STREAM, abstract),
        }
        self.victim = self.new_victim()
        held.callback(self.end_victim)
        held.callback(self.home_file.unlink, missing_ok=True)
        ports = {name.upper(): self.listeners[name].getsockname()[1] for name in ("tcp", "udp")}
        self.names = ports | {
            "SECRET": str(self.secret_file),
            "HOME": str(self.home_file),
            "OUTSIDE": str(self.outside),
            "MOUNT": str(folder / "mount"),
            "TOKEN": TOKEN,
            "UNIX": unix,
            "DATAGRAM": f"{unix}-datagram",
            "ABSTRACT": self.secret,
        }

    def listener(self, family: int, kind: int, address: object) -> socket.socket:
        listener = self.held.enter_context(socket.socket(family, kind))
        listener.bind(address)  # type: ignore[arg-type]  # an address of any family
        listener.setblocking(False)
        if kind == socket.SOCK_STREAM:
            listener.listen()
        return listener

    def new_victim(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(["sleep", "900"], env={TOKEN: self.secret, "PATH": "/usr/bin:/bin"})

    def end_victim(self) -> None:
        self.victim.kill()
        self.victim.wait()

    def prepare(self) -> None:
        """Restores everything for the next program."""
        self.secret_file.write_text(self.secret)
        self.secret_file.chmod(0o644)
        self.home_file.write_text(self.secret)
        with suppress(FileNotFoundError):
            (os.rmdir if self.outside.is_dir() else os.unlink)(self.outside)
        if self.victim.poll() is not None:
            self.victim = self.new_victim()
        shutil.rmtree(self.workspace, ignore_errors=True)
        for name in FILES:
            path = self.workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{name} as it was")
        (self.workspace / "linked").symlink_to(".git")
        os.link(self.workspace / ".venv/bin/python", self.workspace / "kept/twin.py")
        # Open to everybody, so that only the sandbox protects it.
        for path in (self.workspace, *self.workspace.rglob("*")):
            path.chmod(0o777 if path.is_dir() else 0o666)
        self.before = self.workspace_state()

    def workspace_state(self) -> dict[str, set[tuple[object, ...]]]:
        """What is below each entry of the workspace."""
        state: dict[str, set[tuple[object, ...]]] = {name: set() for name in os.listdir(self.workspace)}
        for path in self.workspace.rglob("*"):
            info, name = path.lstat(), path.relative_to(self.workspace)
            content = path.read_bytes() if stat.S_ISREG(info.st_mode) else b""
            state[name.parts[0]].add((str(name), info.st_mode, content))
        return state

    def play(self, sandbox: Sandbox, code: str, thread: str = "a") -> tuple[set[str], PythonResult]:
        """What is noticed of a program, and its result."""
        self.prepare()
        names = self.names | {"VICTIM": self.victim.pid}
        helpers = [text for sign, text in HELPERS.items() if sign in code]
        texts = [*(f"{name} = {value!r}\n" for name, value in names.items()), PROLOGUE, *helpers, code]
        result = sandbox.run("".join(texts), timeout=20, thread=thread)
        noticed = self.locks()
        # What is traced ends with its tracer.
        sandbox.close(thread)
        return noticed | self.reached(result) | self.changes(), result

    def locks(self) -> set[str]:
        """Which locks somebody else holds on the database of the workspace."""
        path, noticed = self.workspace / ".signoff/threads.sqlite", set()
        if not path.exists():
            return set()
        try:
            handle = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        except BlockingIOError:
            return {"flock", "lockf", "lease"}
        with open(handle, "r+") as file:
            for name, lock in (("flock", fcntl.flock), ("lockf", fcntl.lockf)):
                try:
                    lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    noticed.add(name)
        return noticed

    def reached(self, result: PythonResult) -> set[str]:
        text = result.stdout + result.stderr + (result.value or "")
        noticed = {line.removeprefix("LEAKED ") for line in text.splitlines() if line.startswith("LEAKED ")}
        for name, listener in self.listeners.items():
            with suppress(BlockingIOError):
                if listener.type == socket.SOCK_STREAM:
                    listener.accept()[0].close()
                else:
                    listener.recv(100)
                noticed.add(name)
        with suppress(subprocess.TimeoutExpired):
            # The kernel takes a moment.
            self.victim.wait(0.1)
            noticed.add("ended")
        signs = {"secret": self.secret, "passwords": "root:"}
        return noticed | {name for name, sign in signs.items() if sign in text}

    def changes(self) -> set[str]:
        """What was changed outside, and the entries of the workspace that are not as they were."""
        state, before, file = self.workspace_state(), self.before, self.secret_file
        noticed = {name for name in state.keys() | before.keys() if state.get(name) != before.get(name)}
        modes = [path.lstat().st_mode for path in self.workspace.rglob("*")]
        signs = {
            "written": os.path.lexists(self.outside),
            "changed": not (
                file.exists() and file.stat().st_mode & 0o777 == 0o644 and file.read_text() == self.secret
            ),
            "trap": any(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) for mode in modes),
            "setuid": any(mode & (stat.S_ISUID | stat.S_ISGID) for mode in modes),
        }
        return noticed | {name for name, is_so in signs.items() if is_so}


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with ExitStack() as held, pytest.MonkeyPatch.context() as patch:
        arena = Arena(tmp_path_factory.mktemp("arena").resolve(), held)
        patch.setenv(TOKEN, arena.secret)
        arena.prepare()
        yield arena


@pytest.fixture(scope="module")
def sandbox_of(arena: Arena) -> Iterator[Callable[[str], Sandbox]]:
    """The sandbox of each kind, started once."""
    makers: dict[str, Callable[[], Sandbox]] = {
        "linux": lambda: LinuxSandbox(arena.workspace, writable=True),
        "read-only": lambda: LinuxSandbox(arena.workspace),
        "monty": lambda: MontySandbox(arena.workspace, writable=True),
        "none": lambda: UnsafeSandbox(arena.workspace, unsafe=True),
    }
    started: dict[str, Sandbox] = {}

    def sandbox_of(kind: str) -> Sandbox:
        started[kind] = started.get(kind) or makers[kind]()
        return started[kind]

    yield sandbox_of
    for sandbox in started.values():
        sandbox.close()


KINDS = {"linux": ATTACKS.keys() - {SECOND_NAME}, "read-only": OF_THE_WORKSPACE, "monty": IN_MONTY}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in KINDS.items() for name in ATTACKS if name in names]
)
def test_it_is_contained(arena: Arena, sandbox_of: Callable[[str], Sandbox], kind: str, name: str) -> None:
    if kind == "monty":
        pytest.importorskip("pydantic_monty")
    noticed, result = arena.play(sandbox_of(kind), ATTACKS[name])
    # Where the workspace can be changed, the rest of it may be.
    assert noticed - ({"src", "kept"} if kind != "read-only" else set()) == set(), result
    if kind == "monty":
        assert "No module named" not in result.stderr


@pytest.mark.parametrize("name", ATTACKS)
def test_it_is_noticed_without_a_sandbox(
    arena: Arena, sandbox_of: Callable[[str], Sandbox], name: str
) -> None:
    noticed, result = arena.play(sandbox_of("none"), ATTACKS[name])
    expected = set(ATTACKS[name].partition("\n")[0].split()[1:])
    assert expected - MAY_BE_REFUSED <= noticed - {"src", "kept"} <= expected, result


# They break their own interpreter, or try to.
BREAKING = {
    "a crash": "import ctypes\nctypes.string_at(0)",
    "a stack that overflows": "import sys\nsys.setrecursionlimit(10**9)\n"
    "def f(x): return repr(x)\nx = []\nfor _ in range(10**6): x = [x]\nf(x)",
    "closed output": "import os\nos.close(1)\nos.close(2)",
    "closed handles": "import os\nos.closerange(0, 65536)",
    "stopping itself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "a deaf loop": """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
while True: pass
""",
    "forged answers": """
import json, os
forged = json.dumps({"id": "0" * 32, "exit": "ok", "value": "forged"}).encode() + b"\\n"
for handle in range(3, 256):
    try: os.write(handle, forged * 100)
    except OSError: pass
""",
    "answers without end": """
import os
for handle in range(3, 256):
    try:
        for _ in range(100): os.write(handle, b"x" * 1_000_000)
    except OSError: pass
""",
    "other functions": "import builtins, json, os\njson.dumps = json.loads = lambda *rest, **more: '{}'\n"
    "builtins.compile = builtins.exec = None\nos.write = None",
}


@pytest.mark.parametrize("name", BREAKING)
def test_the_next_call_works(sandbox_of: Callable[[str], Sandbox], name: str) -> None:
    sandbox = sandbox_of("linux")
    broken = sandbox.run(BREAKING[name], thread=name, timeout=0.5)
    assert broken.value is None
    after = sandbox.run("print('on')\n6 * 7", thread=name)
    assert (after.exit, after.stdout, after.value) == ("ok", "on\n", "42")
