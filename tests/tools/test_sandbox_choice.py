"""Which sandbox a host gets, Monty, other kernels and users, and the command that shows what holds here."""

import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from signoff import SetupError
from signoff.tools import Bounds, MontySandbox, UnsafeSandbox, choose_sandbox
from signoff.tools.sandbox.confine import NUMBERS
from tests.support.process_table import gone

NOT_HERE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "protection by the unsafe one": ("unsafe=True", lambda _: UnsafeSandbox(unsafe=False)),
    "a workspace that is not there": ("missing", lambda path: choose_sandbox(workspace=path / "missing")),
    "an unknown one": ("docker", lambda _: choose_sandbox("docker")),  # type: ignore[arg-type]
    "Monty": ("monty", lambda _: choose_sandbox("monty")),
    "Linux": ("Linux", lambda _: choose_sandbox("linux")),
    "any": ("unsafe", lambda _: choose_sandbox()),
}


@pytest.mark.parametrize("case", NOT_HERE)
def test_what_cannot_be_had_is_a_setup_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: str
) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    words, choose = NOT_HERE[case]
    with pytest.raises(SetupError, match=words):
        choose(tmp_path)


def test_elsewhere_it_is_monty(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pydantic_monty")
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    sandbox = choose_sandbox()
    assert isinstance(sandbox, MontySandbox)
    sandbox.close()


@pytest.mark.skipif(sys.platform == "win32", reason="the unsafe sandbox does not exist there")
def test_the_unsafe_one_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SetupError, match="Windows"):
        choose_sandbox("unsafe")
    monkeypatch.undo()
    sandbox = UnsafeSandbox(unsafe=True)
    sandbox.run("x = 1", thread="a")
    monkeypatch.setattr(sys, "platform", "darwin")
    result = sandbox.run("import time; time.sleep(600)", thread="a", timeout=0.3)
    monkeypatch.undo()
    assert (result.exit, sandbox.run("x", thread="a").value) == ("timeout", "1")
    sandbox.close()


# Monty.


@pytest.fixture
def work(tmp_path: Path) -> Path:
    pytest.importorskip("pydantic_monty")
    work = tmp_path / "work"
    work.mkdir()
    (work / "in.txt").write_text("hello")
    return work


MONTY = {
    "x = 1\nprint('hi')": ("ok", "hi\n", None),
    "x * 42": ("ok", "", "42"),
    "1 / 0": ("error", "", None),
    "import socket": ("error", "", None),
    "import ctypes": ("error", "", None),
    "import subprocess": ("error", "", None),
    "x = 'x' * 10**10": ("memory", "", None),
    "while True: print('x' * 10_000)": ("memory", None, None),
    "while True: pass": ("timeout", "", None),
}


def test_monty_keeps_variables_and_ends_what_takes_too_much(work: Path) -> None:
    # So little that a slow machine has written it before its time is up.
    sandbox = MontySandbox(work, bounds=Bounds(written=1_000))
    for code, expected in MONTY.items():
        result = sandbox.run(code, thread="a", timeout=0.5 if "while" in code else 60)
        assert (result.exit, result.stdout if expected[1] is not None else None, result.value) == expected
        # A new limit keeps what there is, and another thread has nothing.
        assert sandbox.run("x", thread="a").exit == ("ok" if expected[0] in ("ok", "error") else "error")
        assert sandbox.run("x", thread="b").exit == "error"
    assert result.note != ""
    sandbox.close()


def test_monty_reads_the_workspace_and_writes_to_a_folder_of_its_own(work: Path) -> None:
    sandbox = MontySandbox(work)
    assert sandbox.run("open('in.txt').read()", thread="a").value == "'hello'"
    refused = sandbox.run("open('out.txt', 'w')", thread="a")
    assert (refused.exit, "/own" in refused.note) == ("error", True)
    result = sandbox.run("open('/own/out.txt', 'w').write('done')", thread="a")
    [(name, size)] = result.files.items()
    assert (Path(name).read_text(), size) == ("done", 4)
    assert sandbox.run("open('/own/out.txt').read()", thread="a").value == "'done'"
    assert sandbox.run("open('/own/out.txt').read()", thread="b").exit == "error"
    sandbox.close()
    assert not Path(name).exists()


def test_monty_opens_a_workspace_in_which_nothing_is_protected(work: Path) -> None:
    sandbox = MontySandbox(work, writable=True)
    assert sandbox.run("open('out.txt', 'w').write('x')", thread="a").exit == "ok"
    sandbox.close()
    (work / ".git").mkdir()
    sandbox = MontySandbox(work, writable=True)
    assert sandbox.run("open('out.txt', 'w').write('y')", thread="a").exit == "error"
    assert (sandbox.enforced()["workspace"], sandbox.enforced()["protected"]) == ("read-only", ".git")
    sandbox.close()
    assert (work / "out.txt").read_text() == "x"


# Other kernels, users and processors.

HOSTS = """
import ctypes, fcntl, json, os, signal, struct, sys, threading
from signoff import SetupError
from signoff.tools import Bounds, LinuxSandbox, choose_sandbox

def step(code, value, met=0, unmet=0):
    return struct.pack("=HBBI", code, met, unmet, value)

# Who asks for Landlock is answered here, as kernels of that version would.
libc = ctypes.CDLL(None, use_errno=True)
program = b"".join((step(0x20, 0), step(0x15, 444, 0, 1), step(6, 0x7FC00000), step(6, 0x7FFF0000)))
buffer = ctypes.create_string_buffer(program)
libc.prctl(38, 1, 0, 0, 0)
seccomp = {"x86_64": 317, "aarch64": 277}[os.uname().machine]
listener = libc.syscall(seccomp, 1, 8, struct.pack("HP", 4, ctypes.addressof(buffer)))

def answer():
    while True:
        request = bytearray(80)
        fcntl.ioctl(listener, 0xC0502100, request)
        (number,), (flags,) = struct.unpack_from("=Q", request), struct.unpack_from("=Q", request, 48)
        result = (version, 0, 0) if flags == 1 else (0, 0, 1)
        fcntl.ioctl(listener, 0xC0182101, struct.pack("=QqiI", number, *(result if version else (0, -38, 0))))

threading.Thread(target=answer, daemon=True).start()
seen = {}
work, code, pairs = sys.argv[1:]
for version in (1, 2, 3, 4, 7):
    sandbox = LinuxSandbox(work)
    assert f"version {version}" in sandbox.enforced()["own files"]
    seen[f"version {version}"] = sandbox.run(code, thread="a").value
    sandbox.close()
small = LinuxSandbox(bounds=Bounds(memory=50_000_000))
seen["memory"] = small.run(pairs, timeout=60, thread="a").exit
seen["process"] = int(small.run("open('/proc/self/stat').read().split()[0]", thread="a").value.strip("'"))
version = 0
def chosen(kind):
    try:
        return type(choose_sandbox(kind)).__name__
    except SetupError as error:
        return f"refused: {'Landlock' in str(error)}"
seen["linux"], seen["auto"] = chosen("linux"), chosen("auto")
sys.modules["pydantic_monty"] = None
seen["none"] = chosen("auto")
print(json.dumps(seen), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
# What must not be done under any version of Landlock; the last ones must.
FORBIDDEN = """
import os, resource, socket
own = os.path.expanduser("~")
open(f"{own}/new", "w").write("text")
def done(*works):
    count = 0
    for work in works:
        try:
            work()
            count += 1
        except (OSError, ValueError):
            pass
    return count
done(lambda: open("file", "w"), lambda: os.truncate("file", 0), lambda: os.open("file", os.O_TRUNC),
     lambda: os.remove("file"), lambda: os.kill(os.getppid(), 0), lambda: os.killpg(0, 0), os.fork,
     lambda: os.chmod(f"{own}/new", 0), lambda: os.utime(f"{own}/new"), lambda: open("/etc/passwd"),
     socket.socket, lambda: os.mkfifo(f"{own}/pipe"), lambda: os.link(f"{own}/new", f"{own}/twin"),
     lambda: os.truncate(os.open("file", os.O_RDONLY), 0), lambda: open("/dev/tty", "w"),
     lambda: resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (99, 99))), \
done(lambda: os.kill(os.getpid(), 0)), open("file").read(), open(f"{own}/new").read()
"""
PAIRS = "import socket, time\nheld = [socket.socketpair() for _ in range(110)]; time.sleep(60)"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What happens to another user of another kernel; root alone becomes another user."""
    folder, command, env = tmp_path_factory.mktemp("hosts").resolve(), [], dict(os.environ)
    (folder / "file").write_text("as it was")
    if os.geteuid() == 0 and shutil.which("setpriv"):
        # The capability is for a Python in root's home folder.
        capability = ["--inh-caps", "+dac_override", "--ambient-caps", "+dac_override"]
        command = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *capability]
        os.chown(folder, 65_534, 65_534)
        env |= {"HOME": str(folder), "XDG_CACHE_HOME": str(folder)}
    command += [sys.executable, "-c", HOSTS, str(folder), FORBIDDEN, PAIRS]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    yield json.loads(done.stdout)
    assert (folder / "file").read_text() == "as it was"


# What a host has, and what becomes of it.
HELD = {f"version {version}": "(0, 1, 'as it was', 'text')" for version in (1, 2, 3, 4, 7)}
WITHOUT_LANDLOCK = {"linux": "refused: True", "auto": "MontySandbox", "none": "refused: True"}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are confined on Linux only")
@pytest.mark.parametrize("what", [*HELD, *WITHOUT_LANDLOCK, "memory", "process"])
def test_other_kernels_and_users(hosts: dict[str, Any], what: str) -> None:
    if what == "auto":
        pytest.importorskip("pydantic_monty")
    if what == "process":
        assert gone(hosts[what])
    else:
        assert hosts[what] == (HELD | WITHOUT_LANDLOCK | {"memory": "memory"})[what]


HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


@pytest.mark.parametrize("processor", HEADERS)
def test_the_filter_names_the_calls_of_other_processors_too(processor: str) -> None:
    """No run here shows that, so that the table is compared with the kernel's own."""
    if not HEADERS[processor].exists():
        pytest.skip("the headers of the kernel are not installed")
    words = (line.split() for line in HEADERS[processor].read_text().splitlines())
    defined = {word[1]: word[2] for word in words if len(word) == 3 and word[2].isdigit()}
    compared = 0
    for name, numbers in NUMBERS.items():
        known = defined.get(f"__NR_{name}", defined.get(f"__NR3264_{name}"))
        if known is not None:
            assert int(known) == numbers[[*HEADERS].index(processor)], name
            compared += 1
    assert compared > 80


# `python -m signoff.tools.sandbox`.

HELD_ANYWHERE = {"memory", "time", "output"}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="most of the programs are written for Linux")
@pytest.mark.parametrize("kind", ["auto", "monty", "unsafe"])
def test_the_command_says_what_holds(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == "monty":
        pytest.importorskip("pydantic_monty")
    before = dict(os.environ)
    # The one of them that people look at shows tables.
    form = [] if kind == "auto" else ["--json"]
    monkeypatch.setattr(sys, "argv", ["sandbox", "--sandbox", kind, "--workspace", str(tmp_path), *form])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("signoff.tools.sandbox", run_name="__main__")
    shown = capsys.readouterr().out
    assert ended.value.code == (1 if kind == "unsafe" else 0)
    assert (dict(os.environ), os.listdir(tmp_path)) == (before, [])
    if kind == "auto":
        assert ("Landlock" in shown, "seccomp" in shown, "LEAKED" in shown) == (True, True, False)
        return
    told = json.loads(shown)
    checks = told["checks"]
    assert len(checks) == told["programs"] == 14
    contained = {check["name"] for check in checks if check["contained"]}
    tried = {check["name"] for check in checks if check["tried"]}
    assert (len(contained), len(tried)) == (told["contained"], told["tried"])
    # Monty has no modules for some of them, which therefore show nothing, and count for nothing.
    assert contained == (HELD_ANYWHERE if kind == "unsafe" else tried)
    assert (len(tried) == 14, bool(told["enforced"]["own network"])) == (kind == "unsafe", kind == "monty")
