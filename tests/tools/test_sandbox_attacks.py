"""Hostile programs in the Linux sandbox: nothing gets through, and each is noticed where there is no sandbox.

`python -m signoff.tools.sandbox` plays the plain ones: see `test_sandbox_choice`. The first line of a program
names what is seen from outside when it succeeds: entries of the workspace that it must not change, what is
outside, and more. Nothing of it may be seen in a sandbox; all of it is where there is none, so that a row
which tries nothing fails. A program says LEAKED of what only its own process can see.
"""

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from signoff.tools import LinuxSandbox, Sandbox, UnsafeSandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the programs are written for Linux")

SECRET = "the secret outside"
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
    "links to files": """# secret
import os
os.symlink(SECRET, "src/soft")
attempt(lambda: open("src/soft").read(), lambda: os.link(SECRET, "src/hard"), lambda: open("src/hard").read())
""",
    "outside": """# outside
import os
attempt(lambda: open(OUTSIDE, "w"), lambda: os.mkdir(OUTSIDE), lambda: os.symlink("/", OUTSIDE),
        lambda: os.rename("src/app.py", OUTSIDE), lambda: os.chmod(SECRET, 0), lambda: os.truncate(SECRET, 0),
        lambda: os.open(SECRET, os.O_RDONLY | os.O_TRUNC), lambda: os.unlink(SECRET))
""",
    "a signal by a pipe": """# owner
import fcntl, os
reader, writer = os.pipe()
attempt(owner=lambda: fcntl.fcntl(reader, fcntl.F_SETOWN, os.getppid()))
attempt(owner=lambda: fcntl.fcntl(reader, 15, b"\\1\\0\\0\\0" + os.getppid().to_bytes(4, "little")))
""",
    "privileges": """# mount root disk groups
leaked("groups", 0 in os.getgroups())
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
MAY_BE_REFUSED = {"mount", "root", "disk", "groups", "setuid"}
WRITABLE = ATTACKS.keys() - {SECOND_NAME}
READ_ONLY = ("changing what is protected", "moving what is protected", SECOND_NAME, "traps")
FILES = (
    *(".git/HEAD", ".git/config", ".venv/pyvenv.cfg", ".venv/bin/python", "conda/conda-meta/history"),
    *("conda/bin/python", ".signoff/threads.sqlite", "src/app.py", "kept/note.txt"),
)


@pytest.fixture
def arena(tmp_path: Path) -> Path:
    """What the programs try to reach: open to everybody, so that only the sandbox protects it."""
    arena = tmp_path.resolve()
    (arena / "secret").write_text(SECRET)
    workspace = arena / "workspace"
    for name in FILES:
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text("as it was")
    (workspace / "linked").symlink_to(".git")
    os.link(workspace / ".venv/bin/python", workspace / "kept/twin.py")
    for path in arena.rglob("*"):
        path.chmod(0o777 if path.is_dir() else 0o666)
    return arena


def entries(arena: Path) -> set[tuple[Path, int, bytes]]:
    """The path, the mode and the content of each entry."""
    paths = [(path.relative_to(arena), path, path.lstat().st_mode) for path in arena.rglob("*")]
    return {(name, mode, path.read_bytes() if stat.S_ISREG(mode) else b"") for name, path, mode in paths}


def sign(path: Path, mode: int) -> str:
    """What a changed entry is a sign of."""
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        return "trap"
    if mode & (stat.S_ISUID | stat.S_ISGID):
        return "setuid"
    return path.parts[1] if path.parts[0] == "workspace" else "outside"


def noticed(sandbox: Sandbox, code: str, arena: Path) -> set[str]:
    """What is noticed of a program from outside, but for what may be changed in an open workspace."""
    before = entries(arena)
    names = {"SECRET": str(arena / "secret"), "OUTSIDE": str(arena / "written")}
    helpers = [text for part, text in HELPERS.items() if part in code]
    texts = [*(f"{name} = {value!r}\n" for name, value in names.items()), PROLOGUE, *helpers, code]
    result = sandbox.run("".join(texts), timeout=20, thread="a")
    sandbox.close()
    signs = {sign(path, mode) for path, mode, _ in before ^ entries(arena)} - {"src", "kept"}
    text = f"{result.stdout}{result.stderr}{result.value}"
    leaks = {line.removeprefix("LEAKED ") for line in text.splitlines() if line.startswith("LEAKED ")}
    return signs | leaks | ({"secret"} if SECRET in text else set())


@pytest.mark.parametrize("name", sorted(WRITABLE))
def test_it_is_contained(arena: Path, name: str) -> None:
    assert noticed(LinuxSandbox(arena / "workspace", writable=True), ATTACKS[name], arena) == set()


@pytest.mark.parametrize("name", READ_ONLY)
def test_a_workspace_that_is_only_read_stays_as_it_was(arena: Path, name: str) -> None:
    before = entries(arena)
    assert noticed(LinuxSandbox(arena / "workspace"), ATTACKS[name], arena) == set()
    assert entries(arena) == before


@pytest.mark.parametrize("name", ATTACKS)
def test_it_is_noticed_without_a_sandbox(arena: Path, name: str) -> None:
    signs = noticed(UnsafeSandbox(arena / "workspace", unsafe=True), ATTACKS[name], arena)
    expected = set(ATTACKS[name].partition("\n")[0].split()[1:])
    assert expected - MAY_BE_REFUSED <= signs <= expected


# They break their own interpreter, or try to.
BREAKING = {
    "a crash": "import ctypes\nctypes.string_at(0)",
    "closed handles": "import os\nos.closerange(0, 65536)",
    "stopping itself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "forged answers": """
import json, os
forged = json.dumps({"id": "0" * 32, "exit": "ok", "value": "forged"}).encode() + b"\\n"
for handle in range(3, 256):
    try: os.write(handle, forged * 100)
    except OSError: pass
""",
    "other functions": "import builtins, json, os\njson.dumps = json.loads = lambda *rest, **more: '{}'\n"
    "builtins.compile = builtins.exec = None\nos.write = None",
}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LinuxSandbox]:
    sandbox = LinuxSandbox()
    yield sandbox
    sandbox.close()


@pytest.mark.parametrize("name", BREAKING)
def test_the_next_call_works(sandbox: LinuxSandbox, name: str) -> None:
    broken = sandbox.run(BREAKING[name], thread=name, timeout=0.5)
    assert broken.value is None
    after = sandbox.run("print('on')\n6 * 7", thread=name)
    assert (after.exit, after.stdout, after.value) == ("ok", "on\n", "42")
