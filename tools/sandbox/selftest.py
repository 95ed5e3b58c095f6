"""Shows what a sandbox really enforces on this host: each probe is a program that tries what must not work.

What it has done is looked up outside, wherever it can be seen there.
"""

import os
import re
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from signoff.tools.processes.helpers import isolated
from signoff.tools.sandbox.base import PythonResult, Sandbox
from signoff.tools.sandbox.tool import SandboxKind, choose_sandbox

_TOKEN = "SIGNOFF_SELFTEST"
_LEAKED = "LEAKED "
_CONFIG = "[core]\n"
_MOST_LATE = 3.0
_SETTLE = 1.0
_MOST_OUTPUT = 8_000_000
_MOST_SAID = 120


@dataclass(frozen=True)
class Probe:
    """A program; it prints with LEAKED what nobody outside can see. timeout: its time limit in seconds.
    in_workspace: it works in a folder that holds a repository."""

    name: str
    tries: str
    code: str
    timeout: float = 5.0
    in_workspace: bool = False


PROBES = (
    Probe(
        "read files",
        "read a file in the home folder, and one that is open to everybody",
        """
for name in FILES:
    try:
        print(open(name).read())
    except Exception as error:
        print(error)
""",
    ),
    Probe("write files", "write a file outside the workspace", "open(WRITTEN, 'w').write('x')"),
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
        """
import socket
for family, address in LISTENERS:
    try:
        socket.socket(family).connect(address)
    except OSError as error:
        print(error)
""",
    ),
    Probe("other processes", "end a process outside", "import os\nos.kill(VICTIM, 9)"),
    Probe(
        "left behind",
        "leave a process behind, in a session of its own",
        """
import ctypes, os, time
child = os.fork()
if child == 0:
    try:
        os.setsid()
    finally:
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(15, MARK.encode(), 0, 0, 0)
            time.sleep(60)
        os._exit(0)
os.waitpid(child, 0)
time.sleep(0.2)
""",
    ),
    Probe(
        "fork bomb",
        "start 150 processes",
        """
import os, time
for number in range(150):
    if os.fork() == 0:
        time.sleep(3)
        os._exit(0)
print("LEAKED 150 processes were started")
""",
    ),
    Probe(
        "memory",
        "hold 1.5 GB for a second",
        """
held = "x" * 1_500_000_000
for _ in range(30_000_000):
    pass
print("LEAKED 1.5 GB were held")
""",
    ),
    Probe("time", "run past the time limit, in C code", "sum(range(10**12))", 1.0),
    Probe("output", "print 200 MB", "for _ in range(200): print('x' * 1_000_000)"),
    Probe(
        "protected files",
        "change git's configuration, add a hook, replace the folder",
        """
import os
def write(name):
    with open(name, "w") as file:
        file.write("changed")
os.symlink("../.git", "src/git")
for attempt in (lambda: write(".git/config"), lambda: write("src/git/config"),
                lambda: os.mkdir(".git/hooks"), lambda: os.rename(".git", "src/moved")):
    try:
        attempt()
    except OSError as error:
        print(error)
""",
        in_workspace=True,
    ),
)


@dataclass(frozen=True)
class Check:
    """The result of a probe: whether the sandbox held, what was seen, and how long the program ran."""

    name: str
    tries: str
    contained: bool
    observed: str
    seconds: float


def selftest(sandbox: Sandbox, kind: SandboxKind) -> Iterator[Check]:
    """Runs each probe in `sandbox`, or in another one of its kind if the probe needs a workspace of its own.

    Raises SetupError when a sandbox does not start.
    """
    for probe in PROBES:
        with _targets() as targets:
            within = choose_sandbox(kind, workspace=targets.workspace) if probe.in_workspace else sandbox
            result = within.run(targets.names() + probe.code, timeout=probe.timeout, thread=probe.name)
            within.close(None if probe.in_workspace else probe.name)
            leaks = targets.leaks(result, probe.timeout)
        observed = "; ".join(leaks) or _ending(result)
        yield Check(probe.name, probe.tries, not leaks, observed, result.seconds)


def _ending(result: PythonResult) -> str:
    said = [line for line in (result.stdout + result.stderr).splitlines() if line.strip()]
    how = {"ok": "ended", "error": "failed", "memory": "out of memory"}.get(result.exit, result.exit)
    return f"{how}: {said[-1][:_MOST_SAID]}" if said else how


@dataclass(frozen=True)
class Targets:
    """What a probe tries to reach. secret: what must not come out. mark: the name of a process that it leaves
    behind."""

    secret: str
    mark: str
    files: list[Path]
    written: Path
    workspace: Path
    listeners: list[socket.socket]
    victim: subprocess.Popen[bytes]

    def names(self) -> str:
        """Returns the assignments that a program begins with."""
        given = {
            "FILES": [str(file) for file in self.files],
            "WRITTEN": str(self.written),
            "LISTENERS": [(int(each.family), each.getsockname()) for each in self.listeners],
            "VICTIM": self.victim.pid,
            "MARK": self.mark,
        }
        return "".join(f"{name} = {value!r}\n" for name, value in given.items())

    def leaks(self, result: PythonResult, timeout: float) -> list[str]:
        """Returns what got through, in words."""
        output, config = result.stdout + result.stderr, self.workspace / ".git" / "config"
        signs = {
            "a secret came out": self.secret in output,
            "a file outside was written": self.written.exists(),
            "a listener outside was reached": bool(select.select(self.listeners, [], [], 0)[0]),
            "a process outside was ended": self._is_victim_ended(),
            "a process was left behind": self._end_leftovers(),
            "the repository was changed": (
                not config.exists() or config.read_text() != _CONFIG or len(os.listdir(config.parent)) > 1
            ),
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

    def _end_leftovers(self) -> bool:
        """Ends what the probe has left behind; whether there was something."""
        deadline = time.monotonic() + _SETTLE
        # The kernel takes a moment to end killed processes.
        while (processes := self._marked()) and time.monotonic() < deadline:
            time.sleep(0.02)
        for process in processes:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        return bool(processes)

    def _marked(self) -> list[int]:
        processes = []
        for entry in Path("/proc").glob("[0-9]*/stat"):
            # It may have ended since it was listed.
            with suppress(OSError):
                if re.search(rf"\({self.mark}\) [^ZX]", entry.read_text()):
                    processes.append(int(entry.parent.name))
        return processes


@contextmanager
def _targets() -> Iterator[Targets]:
    """Yields targets for one probe, all of them harmless, and removes them afterwards."""
    secret, mark = secrets.token_hex(12), f"sg{secrets.token_hex(5)}"
    with ExitStack() as held:
        temporary = tempfile.TemporaryDirectory(prefix="signoff-selftest-", ignore_cleanup_errors=True)
        folder = Path(held.enter_context(temporary)).resolve()
        files = [folder / "secret", Path.home() / f".signoff-selftest-{mark}"]
        for file in files:
            held.callback(file.unlink, missing_ok=True)
            # A home folder that cannot be written has no file to read.
            with suppress(OSError):
                file.write_text(secret)
        workspace = folder / "workspace"
        for name in (".git", "src"):
            (workspace / name).mkdir(parents=True)
        (workspace / ".git" / "config").write_text(_CONFIG)
        listeners = [_listener(socket.AF_INET, ("127.0.0.1", 0))]
        if sys.platform == "linux":
            listeners += [_listener(socket.AF_UNIX, name) for name in (f"{folder}/socket", f"\0{mark}")]
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
        yield Targets(secret, mark, files, folder / "written", workspace, listeners, victim)


def _listener(family: int, address: object) -> socket.socket:
    listener = socket.socket(family)
    listener.bind(address)  # type: ignore[arg-type]  # an address of any family
    listener.listen()
    return listener
