"""Which sandbox a host gets, Monty, other kernels, and the command that shows what holds here."""

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from signoff import SetupError
from signoff.tools import Bounds, MontySandbox, UnsafeSandbox, choose_sandbox

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


# Monty.


@pytest.fixture
def work(tmp_path: Path) -> Path:
    pytest.importorskip("pydantic_monty")
    work = tmp_path / "work"
    work.mkdir()
    (work / "in.txt").write_text("hello")
    return work


def test_monty_ends_what_takes_too_much(work: Path) -> None:
    sandbox = MontySandbox(work, bounds=Bounds(written=1_000))
    ends = {"import socket": "error", "'x' * 10**10": "memory", "while True: print('x' * 10_000)": "killed"}
    assert {code: sandbox.run(code, thread="a", timeout=60).exit for code in ends} == ends
    # What a thread has goes with what was ended, and only that thread had it.
    assert [sandbox.run(code, thread="a").exit for code in ("x = 1", "x")] == ["ok", "ok"]
    assert sandbox.run("x", thread="b").exit == "error"
    assert sandbox.run("while True: pass", thread="a", timeout=0.5).exit == "timeout"
    assert sandbox.run("x", thread="a").exit == "error"
    sandbox.close()


def test_monty_reads_the_workspace_and_writes_to_a_folder_of_its_own(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    sandbox = MontySandbox(work)
    (work.parent / "outside.txt").write_text("secret")
    for way in ("../outside.txt", f"{work.parent}/outside.txt", "/proc/self/environ"):
        assert sandbox.run(f"open({way!r}).read()", thread="a").exit == "error"
    assert "secret" not in str(sandbox.run("import os\nos.environ['TOKEN']", thread="a"))
    assert sandbox.run("open('in.txt').read()", thread="a").value == "'hello'"
    refused = sandbox.run("open('out.txt', 'w')", thread="a")
    assert (refused.exit, "/own" in refused.note) == ("error", True)
    result = sandbox.run("open('/own/out.txt', 'w').write('done')", thread="a")
    [(name, size)] = result.files.items()
    assert (Path(name).read_text(), size) == ("done", 4)
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


# Other kernels.

HOSTS = """
import ctypes, fcntl, json, os, struct, sys, threading
from signoff import SetupError
from signoff.tools import LinuxSandbox, choose_sandbox

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
work, code = sys.argv[1:]
for version in (1, 3):
    sandbox = LinuxSandbox(work)
    assert f"version {version}" in sandbox.enforced()["own files"]
    seen[f"version {version}"] = sandbox.run(code, thread="a").value
    sandbox.close()
version = 0
def chosen(kind):
    try:
        return type(choose_sandbox(kind)).__name__
    except SetupError as error:
        return f"refused: {'Landlock' in str(error)}"
print(json.dumps(seen | {kind: chosen(kind) for kind in ("linux", "auto")}), flush=True)
"""
# What later versions of Landlock know of must not be done under any; how often it was, and what is left.
FORBIDDEN = """
import os
own = os.path.expanduser("~")
open(f"{own}/new", "w").write("text")
count = 0
for work in (lambda: os.truncate("file", 0), lambda: os.open("file", os.O_TRUNC), lambda: os.remove("file"),
             lambda: os.kill(os.getppid(), 0), lambda: os.link(f"{own}/new", f"{own}/twin"),
             lambda: os.mkfifo(f"{own}/pipe"), lambda: open("/dev/tty", "w")):
    try:
        work()
        count += 1
    except OSError:
        pass
count, open("file").read(), open(f"{own}/new").read()
"""


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="processes are confined on Linux only")
def test_other_kernels(tmp_path: Path) -> None:
    pytest.importorskip("pydantic_monty")
    (tmp_path / "file").write_text("as it was")
    command = [sys.executable, "-c", HOSTS, str(tmp_path.resolve()), FORBIDDEN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    held = {f"version {version}": "(0, 'as it was', 'text')" for version in (1, 3)}
    assert json.loads(done.stdout) == held | {"linux": "refused: True", "auto": "MontySandbox"}
    assert (tmp_path / "file").read_text() == "as it was"


# `python -m signoff.tools.sandbox`.


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="most of the programs are written for Linux")
@pytest.mark.parametrize("kind", ["auto", pytest.param("unsafe", marks=pytest.mark.thorough)])
def test_the_command_says_what_holds(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
    checks = json.loads(shown)["checks"]
    contained = {check["name"] for check in checks if check["contained"]}
    assert (len(checks), contained) == (14, {"memory", "time", "output"})
