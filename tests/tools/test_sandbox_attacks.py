"""Hostile programs in the sandboxes: nothing gets through, and each is noticed where there is no sandbox.

The first line of a program names what is seen from outside when it succeeds. Nothing of it may be seen in a
sandbox; all of it is where there is none, so that a row which tries nothing fails. A program says LEAKED of
what only its own process can see.
"""

import os
import secrets
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from signoff.tools import LinuxSandbox, MontySandbox, PythonResult, Sandbox, UnsafeSandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the programs are written for Linux")

TOKEN = "SIGNOFF_ATTACK_TOKEN"
PROLOGUE = """
def attempt(*works, **leaks):
    for name, work in [*(("", work) for work in works), *leaks.items()]:
        try:
            print(work(), name and "\\nLEAKED " + name)
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
HELPERS = {"libc.": LIBC, " write(": CHANGING}
SECOND_NAME = "an old second name of what is protected"
"""Held where the workspace is read-only: otherwise it is protected by name and place."""
# By name; the first line says what is noticed where it gets through.
ATTACKS = {
    "files": """# secret passwords
attempt(lambda: open(SECRET).read(), lambda: open('/etc/passwd').read())
""",
    "links to files": """# secret
import os
os.symlink(SECRET, "src/soft")
attempt(lambda: open("src/soft").read(), lambda: os.link(SECRET, "src/hard"), lambda: open("src/hard").read())
""",
    "the environment": """# secret
import os
attempt(lambda: os.environ[TOKEN], lambda: open(f'/proc/{VICTIM}/environ').read())
""",
    "outside": """# written changed
import os
attempt(lambda: open(OUTSIDE, "w"), lambda: os.mkdir(OUTSIDE), lambda: os.symlink("/", OUTSIDE),
        lambda: os.rename("src/app.py", OUTSIDE), lambda: os.chmod(SECRET, 0), lambda: os.truncate(SECRET, 0),
        lambda: os.open(SECRET, os.O_RDONLY | os.O_TRUNC), lambda: os.unlink(SECRET))
""",
    "a signal by a pipe": """# ended
import fcntl, os
reader, writer = os.pipe()
attempt(lambda: fcntl.fcntl(reader, fcntl.F_SETOWN, VICTIM), lambda: fcntl.fcntl(reader, 10, 9),
        lambda: fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC), lambda: os.write(writer, b"x"))
""",
    "privileges": """# mount root disk
leaked("mount", libc.mount(b"none", b"src", b"tmpfs", 0, None) == 0)
libc.umount2(b"src", 2)
attempt(root=lambda: os.setuid(0), disk=lambda: open("/dev/vda", "rb"))
""",
    "calls that are refused in part": """# clone hidden orphan map zero datagram socket
import mmap, socket
child = libc.syscall(56 if os.uname().machine == "x86_64" else 220, 17, 0, 0, 0, 0)
if child == 0:
    os._exit(0)
leaked("clone", child > 0)
for option, what in ((4, 'hidden'), (1, 'orphan')):
    leaked(what, libc.prctl(option, 0, 0, 0, 0) == 0)
attempt(map=lambda: mmap.mmap(-1, 4096), zero=lambda: mmap.mmap(os.open("/dev/zero", os.O_RDWR), 4096),
        datagram=lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
# By other modes of the processor, too.
for number in (41, 198, 0x40000000 | 41):
    leaked("socket", libc.syscall(number, 2, 1, 0) >= 0)
""",
    "changing what is protected": """# .git .venv .signoff conda
for path in PROTECTED:
    attempt(lambda: write(path, "a"), lambda: os.open(path, os.O_RDONLY | os.O_TRUNC),
            lambda: os.truncate(path, 0), lambda: replace(path), lambda: os.unlink(path), lambda: write(path))
attempt(lambda: os.mkdir(".git/hooks"), lambda: write(".git/hooks/pre-commit"), lambda: write(".venv/e.pth"),
        lambda: os.symlink("../../src", ".venv/bin/src"), lambda: write(".signoff/threads.sqlite-wal"))
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
    "traps": """# trap
import os
for folder in ("src", os.path.expanduser("~")):
    attempt(lambda: os.mkfifo(folder + "/pipe"), lambda: os.mknod(folder + "/pipe2", 0o010600),
            lambda: os.mknod(folder + "/socket", 0o140600))
""",
    "a program that runs as its owner": """# setuid
import os
for bits in (0o4755, 0o2755):
    attempt(lambda: os.open(f"src/{bits}", os.O_CREAT | os.O_WRONLY, bits),
            lambda: os.mknod(f"src/{bits}-node", 0o100000 | bits), lambda: os.chmod("src/app.py", bits))
""",
}
# Possible for root alone, or where the host itself does not forbid it.
MAY_BE_REFUSED = {"mount", "root", "disk", "ended", "setuid"}
KINDS = {
    "linux": ATTACKS.keys() - {SECOND_NAME},
    "read-only": {"changing what is protected", "moving what is protected", SECOND_NAME, "traps"},
    # The others use what Monty has not.
    "monty": {"files", "the environment", "outside", "changing what is protected"},
}
FILES = (
    *(".git/HEAD", ".git/config", ".venv/pyvenv.cfg", ".venv/bin/python", "conda/conda-meta/history"),
    *("conda/bin/python", ".signoff/threads.sqlite", "src/app.py", "kept/note.txt"),
)


MAKERS: dict[str, Callable[[Path], Sandbox]] = {
    "linux": lambda workspace: LinuxSandbox(workspace, writable=True),
    "read-only": LinuxSandbox,
    "monty": lambda workspace: MontySandbox(workspace, writable=True),
    "none": lambda workspace: UnsafeSandbox(workspace, unsafe=True),
}


class Arena:
    """What the programs try to reach, all of it harmless; what they have reached is seen from outside."""

    def __init__(self, folder: Path) -> None:
        self.secret = f"secret-{secrets.token_hex(12)}"
        self.secret_file, self.outside = folder / "secret", folder / "written"
        self.workspace = folder / "workspace"
        self.sandboxes: dict[str, Sandbox] = {}
        self.names = {"SECRET": str(self.secret_file), "OUTSIDE": str(self.outside), "TOKEN": TOKEN}

    def sandbox(self, kind: str) -> Sandbox:
        """The sandbox of this kind, made once."""
        if kind not in self.sandboxes:
            self.sandboxes[kind] = MAKERS[kind](self.workspace)
        return self.sandboxes[kind]

    def prepare(self) -> None:
        """Restores everything for the next program."""
        self.secret_file.write_text(self.secret)
        self.secret_file.chmod(0o644)
        with suppress(FileNotFoundError):
            (os.rmdir if self.outside.is_dir() else os.unlink)(self.outside)
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

    def entries(self) -> set[tuple[str, int, bytes]]:
        """The name, the mode and the content of each entry of the workspace."""
        entries = set()
        for path in self.workspace.rglob("*"):
            mode = path.lstat().st_mode
            content = path.read_bytes() if stat.S_ISREG(mode) else b""
            entries.add((str(path.relative_to(self.workspace)), mode, content))
        return entries

    def play(self, sandbox: Sandbox, code: str) -> tuple[set[str], PythonResult]:
        """What is noticed of a program, and its result."""
        self.prepare()
        before = self.entries()
        environment = {TOKEN: self.secret, "PATH": "/usr/bin:/bin"}
        with subprocess.Popen(["sleep", "900"], env=environment) as victim:
            names: dict[str, object] = {**self.names, "VICTIM": victim.pid}
            helpers = [text for sign, text in HELPERS.items() if sign in code]
            texts = [*(f"{name} = {value!r}\n" for name, value in names.items()), PROLOGUE, *helpers, code]
            result = sandbox.run("".join(texts), timeout=20, thread="a")
            sandbox.close("a")
            noticed = set()
            if "VICTIM" in code:
                with suppress(subprocess.TimeoutExpired):
                    # The kernel takes a moment.
                    victim.wait(0.1)
                    noticed.add("ended")
            victim.kill()
        text = result.stdout + result.stderr + (result.value or "")
        noticed |= {line.removeprefix("LEAKED ") for line in text.splitlines() if line.startswith("LEAKED ")}
        return noticed | self.changed(text, before), result

    def changed(self, text: str, before: set[tuple[str, int, bytes]]) -> set[str]:
        """The entries of the workspace that have changed, what has outside of it, and what was read."""
        file, entries = self.secret_file, self.entries()
        modes = [mode for _, mode, _ in entries]
        signs = {
            "secret": self.secret in text,
            "passwords": "root:" in text,
            "written": os.path.lexists(self.outside),
            "changed": not (
                file.exists() and file.stat().st_mode & 0o777 == 0o644 and file.read_text() == self.secret
            ),
            "trap": any(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) for mode in modes),
            "setuid": any(mode & (stat.S_ISUID | stat.S_ISGID) for mode in modes),
        }
        changed = {name.partition("/")[0] for name, _, _ in before ^ entries}
        return changed | {name for name, is_so in signs.items() if is_so}


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with pytest.MonkeyPatch.context() as patch:
        arena = Arena(tmp_path_factory.mktemp("arena").resolve())
        patch.setenv(TOKEN, arena.secret)
        arena.prepare()
        yield arena
        for sandbox in arena.sandboxes.values():
            sandbox.close()


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in KINDS.items() for name in ATTACKS if name in names]
)
def test_it_is_contained(arena: Arena, kind: str, name: str) -> None:
    if kind == "monty":
        pytest.importorskip("pydantic_monty")
    noticed, result = arena.play(arena.sandbox(kind), ATTACKS[name])
    # Where the workspace can be changed, the rest of it may be.
    assert noticed - ({"src", "kept"} if kind != "read-only" else set()) == set(), result
    if kind == "monty":
        assert "No module named" not in result.stderr


@pytest.mark.parametrize("name", ATTACKS)
def test_it_is_noticed_without_a_sandbox(arena: Arena, name: str) -> None:
    noticed, result = arena.play(arena.sandbox("none"), ATTACKS[name])
    expected = set(ATTACKS[name].partition("\n")[0].split()[1:])
    assert expected - MAY_BE_REFUSED <= noticed - {"src", "kept"} <= expected, result


# They break their own interpreter, or try to.
BREAKING = {
    "a crash": "import ctypes\nctypes.string_at(0)",
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
def test_the_next_call_works(arena: Arena, name: str) -> None:
    sandbox = arena.sandbox("linux")
    broken = sandbox.run(BREAKING[name], thread=name, timeout=0.5)
    assert broken.value is None
    after = sandbox.run("print('on')\n6 * 7", thread=name)
    assert (after.exit, after.stdout, after.value) == ("ok", "on\n", "42")
