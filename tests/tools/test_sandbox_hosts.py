"""The Linux sandbox on other hosts: another user, other versions of Landlock, another processor."""

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from signoff.tools.sandbox.confine import NUMBERS, filter_program, filter_rules

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are confined on Linux only")
NOBODY = 65_534

_AS_NOBODY = """
from signoff.tools.sandbox import Bounds, LinuxSandbox
sandbox = LinuxSandbox(bounds=Bounds(memory=150_000_000))
hidden = "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\\n"
held = "import time\\nheld = [b'x' * 1_000_000 for _ in range(400)]; time.sleep(5)"
pairs = "import socket, time\\nheld = [socket.socketpair() for _ in range(110)]; time.sleep(0.3)"
threads = "import threading as t, time\\nfor _ in range(40): t.Thread(target=time.sleep, args=(0.2,)).start()"
print(sandbox.run("6 * 7", thread="a").value)
print(sandbox.run(hidden + held, thread="a", timeout=20).exit)
print(sandbox.run(threads, thread="a").exit)
small = LinuxSandbox(bounds=Bounds(memory=50_000_000))
print(small.run(hidden + pairs, thread="a", timeout=20).exit)
for each in (sandbox, small): each.close()
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root becomes another user")
def test_another_user_is_watched_as_well(tmp_path: Path) -> None:
    """Code cannot hide itself from who watches it. The capability is for a Python in root's home folder."""
    os.chown(tmp_path, NOBODY, NOBODY)
    ids = ["--reuid", f"{NOBODY}", "--regid", f"{NOBODY}", "--clear-groups"]
    capability = ["--inh-caps", "+dac_override", "--ambient-caps", "+dac_override"]
    done = subprocess.run(
        ["setpriv", *ids, *capability, sys.executable, "-c", _AS_NOBODY],
        env={**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == (["42", "memory", "ok", "memory"], "")


_WITH_A_VERSION = """
import os, signal, socket, sys
from signoff.tools.sandbox import confine
from signoff.tools.sandbox.base import Bounds
from dataclasses import asdict
confine.landlock_version = lambda: int(sys.argv[1])
work, own = sys.argv[2:]
os.chdir(work)
confine.confine(asdict(Bounds()), ["/usr", "/lib", "/lib64", work], [own], os.getppid())
open(f"{own}/new", "w").write("text")
if int(sys.argv[1]) >= 3:
    os.truncate(f"{own}/new", 2)
print(open("file").read())
for forbidden in (
    lambda: open("file", "w"), lambda: os.truncate("file", 0), lambda: os.open("file", os.O_TRUNC),
    lambda: os.remove("file"), lambda: os.kill(os.getppid(), 0), os.fork, lambda: os.chmod(f"{own}/new", 0),
    lambda: open("/etc/passwd"), socket.socket, lambda: os.mkfifo(f"{own}/pipe"),
    lambda: os.link(f"{own}/new", f"{own}/twin"),
    lambda: os.truncate(os.open("file", os.O_RDONLY), 0),
):
    try:
        forbidden()
        print("done")
    except (OSError, ValueError):
        pass
"""


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6, 7])
def test_every_version_of_landlock_holds_the_same(version: int, tmp_path: Path) -> None:
    work, own = tmp_path / "work", tmp_path / "own"
    for folder in (work, own):
        folder.mkdir()
        folder.chmod(0o777)
    (work / "file").write_text("as it was")
    command = [sys.executable, "-c", _WITH_A_VERSION, str(version), str(work), str(own)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("as it was\n", "")
    assert (work / "file").read_text() == "as it was"


def answer_of(program: bytes, audit: int, number: int, *arguments: int) -> int:
    """What a filter answers to a call: the kernel's little language, as far as filters use it."""
    data = struct.pack("<IIQ6Q", number, audit, 0, *arguments, *[0] * (6 - len(arguments)))
    steps = list(struct.iter_unpack("=HBBI", program))
    at = register = 0
    while True:
        code, met, unmet, value = steps[at]
        at += 1
        match code:
            case 0x20:
                (register,) = struct.unpack_from("<I", data, value)
            case 0x54:
                register &= value
            case 0x15:
                at += met if register == value else unmet
            case 0x25:
                at += met if register > value else unmet
            case 0x06:
                return int(value)


ALLOWED, REFUSED, GRANTED, UNKNOWN, ENDED = 0x7FFF0000, 0x50001, 0x50000, 0x50026, 0x80000000
THIS_PROCESS = -1
PROCESSORS = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
CALLS = {
    "a socket": ("socket", (1, 1, 0), REFUSED),
    "a program": ("execve", (), REFUSED),
    "a lock": ("flock", (3, 2), GRANTED),
    "a lock of a part": ("fcntl", (3, 6), GRANTED),
    "the flags of a descriptor": ("fcntl", (3, 1), ALLOWED),
    "reading": ("openat", (3, 0, 0, 0o6777), ALLOWED),
    "a new file": ("openat", (3, 0, 0o101, 0o644), ALLOWED),
    "a new setuid file": ("openat", (3, 0, 0o101, 0o4755), REFUSED),
    "truncating with a right to read": ("openat", (3, 0, 0o1000), REFUSED),
    "a thread": ("clone", (0x3D0F00,), ALLOWED),
    "a process": ("clone", (17,), REFUSED),
    "a namespace": ("clone", (0x10010000,), REFUSED),
    "memory": ("mmap", (0, 4096, 3, 0x22), ALLOWED),
    "a shared map of a file": ("mmap", (0, 4096, 3, 0x01), ALLOWED),
    "shared memory": ("mmap", (0, 4096, 3, 0x21), REFUSED),
    "huge shared memory": ("mmap", (0, 4096, 3, 0x40021), REFUSED),
    "a copy of the kernel": ("sendfile", (), UNKNOWN),
    "hiding": ("prctl", (4, 0), REFUSED),
    "a signal to itself": ("kill", (THIS_PROCESS, 0), ALLOWED),
    "a signal to another": ("kill", (1, 0), REFUSED),
    "what a filter cannot read": ("clone3", (), UNKNOWN),
}


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("case", CALLS)
def test_the_filter_of_every_processor(processor: str, case: str) -> None:
    audit, column = PROCESSORS[processor]
    name, numbers, expected = CALLS[case]
    # A worker of the test run is not the process that has read this file.
    arguments = [os.getpid() if number == THIS_PROCESS else number for number in numbers]
    program = filter_program(filter_rules(1), processor)
    number = NUMBERS[name][column]
    assert number is not None
    assert answer_of(program, audit, number, *arguments) == expected
    assert answer_of(program, audit, 463) == UNKNOWN
    assert answer_of(program, 0x40000003, number, *arguments) == ENDED


HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


@pytest.mark.parametrize("processor", PROCESSORS)
def test_the_numbers_are_those_of_the_kernel(processor: str) -> None:
    if not HEADERS[processor].exists():
        pytest.skip("the headers of the kernel are not installed")
    words = (line.split() for line in HEADERS[processor].read_text().splitlines())
    defined = {word[1]: word[2] for word in words if len(word) == 3 and word[2].isdigit()}
    for name, numbers in NUMBERS.items():
        number = numbers[PROCESSORS[processor][1]]
        known = defined.get(f"__NR_{name}", defined.get(f"__NR3264_{name}"))
        if known is not None:
            assert int(known) == number, name
