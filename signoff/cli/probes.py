"""Shows what a sandbox really enforces on this host: each probe is a program that tries what must not work.

What it has done is looked up outside, wherever it can be seen there. Each has its target; where the sandbox
lacks what a program tries it with, it counts as not tried, and not as contained.
"""

import os
import re
import secrets
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from signoff.tools import PythonResult, choose_sandbox
from signoff.tools.processes.helpers import isolated
from signoff.tools.sandbox.tool import SandboxKind

_TOKEN = "SIGNOFF_SELFTEST"
_LEAKED = "LEAKED "
_CONFIG = "[core]\n"
_MOST_LATE = 4.0
_MOST_OUTPUT = 8_000_000
_MOST_SAID = 120
_LACKS = re.compile(r"No module named|has no attribute")


@dataclass(frozen=True)
class Probe:
    """A program; it prints with LEAKED what nobody outside can see. timeout: its time limit in seconds."""

    name: str
    tries: str
    code: str
    timeout: float = 5.0


_ATTEMPTS = """
def attempt(*works):
    for work in works:
        try:
            work()
        except (OSError, RuntimeError) as error:
            print(error)
"""
PROBES = (
    Probe("read files", "read a file that is open to everybody", "print(open(SECRET).read())"),
    Probe("write files", "write a file outside the workspace", "open(WRITTEN, 'w').write('x')"),
    Probe("read-only files", "change a file of the workspace", "open('file.txt', 'w').write('x')"),
    Probe(
        "protected files",
        "change git's configuration, add a hook, replace the folder, where the workspace can be changed",
        f"""{_ATTEMPTS}
import os
attempt(lambda: os.symlink("../.git", "src/git"), lambda: open(".git/config", "w").write("x"),
        lambda: open("src/git/config", "w").write("x"), lambda: os.mkdir(".git/hooks"),
        lambda: os.rename(".git", "src/moved"))
""",
    ),
    Probe(
        "modes",
        "let everybody change a file of its own",
        f"""
import os, tempfile
with tempfile.NamedTemporaryFile() as file:
    os.chmod(file.name, 0o666)
    print("{_LEAKED}the mode was changed")
""",
    ),
    Probe(
        "locks",
        "hold locks on a file of the workspace",
        f"""{_ATTEMPTS}
import fcntl
file = open("file.txt", "rb")
attempt(lambda: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB),
        lambda: fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB))
""",
    ),
    Probe(
        "environment",
        "read the environment, and that of every process",
        f"""
import glob, os
print(os.environ.get({_TOKEN!r}))
for name in glob.glob("/proc/[0-9]*/environ"):
    try:
        entries = open(name, "rb").read().split(bytes(1))
        print([entry for entry in entries if entry.startswith({_TOKEN.encode()!r})])
    except OSError as error:
        print(error)
""",
    ),
    Probe(
        "network",
        "connect to a server, a socket file and an abstract socket",
        f"""{_ATTEMPTS}
import socket
attempt(*(lambda pair=pair: socket.socket(pair[0]).connect(pair[1]) for pair in LISTENERS))
""",
    ),
    Probe("other processes", "end a process outside", "import os\nos.kill(VICTIM, 9)"),
    Probe(
        "own processes",
        "start a process",
        f"""
import ctypes, os
child = ctypes.CDLL(None).fork()
if child == 0:
    os._exit(0)
if child > 0:
    print("{_LEAKED}a process was started")
""",
    ),
    Probe(
        "memory",
        "hold 1.5 GB for a second",
        f"""
held = "x" * 1_500_000_000
for _ in range(30_000_000):
    pass
print("{_LEAKED}1.5 GB were held")
""",
    ),
    Probe(
        "shared memory",
        "hold memory that counts for no process",
        f"""
import mmap
held = mmap.mmap(-1, 4096, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
print("{_LEAKED}shared memory was mapped")
""",
    ),
    Probe("time", "run past the time limit, in C code", "sum(range(10**12))", 1.0),
    Probe("output", "print 200 MB", "for _ in range(200): print('x' * 1_000_000)"),
)


@dataclass(frozen=True)
class ProbeResult:
    """The result of a probe: what was seen, and how long the program ran.

    tried: False where the sandbox lacks what the program tries it with, so that it shows nothing. contained:
    it was tried, and the sandbox held.
    """

    name: str
    tries: str
    contained: bool
    tried: bool
    observed: str
    seconds: float

    @property
    def leaked(self) -> bool:
        return self.tried and not self.contained


def selftest(kind: SandboxKind) -> Iterator[ProbeResult]:
    """Runs each probe in a sandbox of this kind with a workspace of its own.

    Raises SetupError when a sandbox does not start.
    """
    for probe in PROBES:
        with _targets() as targets:
            writable = probe.name == "protected files"
            sandbox = choose_sandbox(kind, workspace=targets.workspace, writable=writable)
            result = sandbox.run(targets.names() + probe.code, timeout=probe.timeout, thread="selftest")
            leaks = targets.leaks(result, probe.timeout)
            sandbox.close()
        observed = "; ".join(leaks) or _ending(result)
        tried = bool(leaks) or not _LACKS.search(result.stderr)
        yield ProbeResult(probe.name, probe.tries, tried and not leaks, tried, observed, result.seconds)


def _ending(result: PythonResult) -> str:
    lines = [line for line in (result.stdout + result.stderr).splitlines() if line.strip()]
    how = {"ok": "ended", "error": "failed", "memory": "out of memory"}.get(result.exit, result.exit)
    return f"{how}: {lines[-1][:_MOST_SAID]}" if lines else how


@dataclass(frozen=True)
class Targets:
    """What a probe tries to reach. secret: what must not come out."""

    secret: str
    folder: Path
    listeners: list[socket.socket]
    victim: subprocess.Popen[bytes]

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    def names(self) -> str:
        """The assignments that a program begins with."""
        names = {
            "SECRET": str(self.folder / "secret"),
            "WRITTEN": str(self.folder / "written"),
            "LISTENERS": [(int(each.family), each.getsockname()) for each in self.listeners],
            "VICTIM": self.victim.pid,
        }
        return "".join(f"{name} = {value!r}\n" for name, value in names.items())

    def leaks(self, result: PythonResult, timeout: float) -> list[str]:
        """What got through, in words."""
        output, git = result.stdout + result.stderr, self.workspace / ".git"
        git_files = [(file.name, file.read_text()) for file in git.iterdir()] if git.is_dir() else []
        signs = {
            "a secret came out": self.secret in output,
            "a file outside was written": (self.folder / "written").exists(),
            "a file of the workspace was changed": (self.workspace / "file.txt").read_text() != "",
            "the repository was changed": git_files != [("config", _CONFIG)],
            "a lock was held": self._is_locked(),
            "a listener outside was reached": bool(select.select(self.listeners, [], [], 0)[0]),
            "a process outside was ended": self._is_victim_ended(),
            f"it ran for {result.seconds:.1f} s": result.seconds > timeout + _MOST_LATE,
            f"{len(output):,} characters were kept": len(output) > _MOST_OUTPUT,
        }
        own_words = [line.removeprefix(_LEAKED) for line in output.splitlines() if line.startswith(_LEAKED)]
        return [*(words for words, seen in signs.items() if seen), *own_words]

    def _is_victim_ended(self) -> bool:
        try:
            # The kernel takes a moment here, too.
            self.victim.wait(0.1)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _is_locked(self) -> bool:
        program = "import fcntl, os, sys\nfile = os.open(sys.argv[1], os.O_RDWR | os.O_NONBLOCK)\n"
        program += "for lock in (fcntl.flock, fcntl.lockf): lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)"
        command = isolated(program, str(self.workspace / "file.txt"))
        return subprocess.run(command, capture_output=True, check=False).returncode != 0


@contextmanager
def _targets() -> Iterator[Targets]:
    """Yields targets for one probe, all of them harmless, and removes them afterwards."""
    secret = secrets.token_hex(12)
    with ExitStack() as held:
        temporary = tempfile.TemporaryDirectory(prefix="signoff-selftest-", ignore_cleanup_errors=True)
        folder = Path(held.enter_context(temporary)).resolve()
        for name in (".git", "src"):
            (folder / "workspace" / name).mkdir(parents=True)
        for name, text in (
            ("secret", secret),
            ("workspace/file.txt", ""),
            ("workspace/.git/config", _CONFIG),
        ):
            (folder / name).write_text(text)
        listeners = [_listener(socket.AF_INET, ("127.0.0.1", 0))]
        if sys.platform == "linux":
            listeners += [_listener(socket.AF_UNIX, name) for name in (f"{folder}/socket", f"\0{secret}")]
        for listener in listeners:
            held.enter_context(listener)
        # Open to everybody, so that only the sandbox protects them.
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o777 if path.is_dir() else 0o666)
        env = {_TOKEN: secret, "SYSTEMROOT": os.environ.get("SYSTEMROOT", "")}
        victim = subprocess.Popen(isolated("import time; time.sleep(900)"), env=env, stdin=subprocess.DEVNULL)
        held.callback(victim.wait)
        held.callback(victim.kill)
        os.environ[_TOKEN] = secret
        held.callback(os.environ.pop, _TOKEN, None)
        yield Targets(secret, folder, listeners, victim)


def _listener(family: int, address: object) -> socket.socket:
    listener = socket.socket(family)
    listener.bind(address)  # type: ignore[arg-type]  # an address of any family
    listener.listen()
    return listener
