"""Code in the Linux sandbox and what it may use: memory, threads, descriptors, the disk, system calls."""

import errno
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from signoff.tools import Bounds, LinuxSandbox
from signoff.tools.sandbox.confine import NUMBERS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are confined on Linux only")
MB = 1_000_000
SMALL = Bounds(memory=100 * MB, memory_together=180 * MB, descriptors=128, file=30 * MB)
# By what the model reads of them. The disk is that of all, so that only their own cases bound it.
BOUNDS = {
    "100 MB": SMALL,
    "50 MB": Bounds(memory=50 * MB),
    "64": SMALL,
    "files": Bounds(files=1_000),
    "60 MB": Bounds(disk=60 * MB),
}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LinuxSandbox]:
    """One with small bounds, for all."""
    sandbox = LinuxSandbox(bounds=SMALL)
    yield sandbox
    sandbox.close()


HOLD = "    while True: held.append(b'x' * 1_000_000)\n"
OWN = "import os; os.chdir(os.path.expanduser('~'))\n"
FILL = """
number = 0
while True:
    open(str(number), 'wb').write(b'x' * {})
    number += 1
"""
BUFFERS = """
import socket
held = []
try:
    while True: held.append(socket.socketpair())
except OSError: pass
"""
THREADS_IN_C = """
import ctypes
libc, long = ctypes.CDLL(None), ctypes.c_void_p(600)
for _ in range(400): libc.pthread_create(ctypes.byref(ctypes.c_long()), None, libc.sleep, long)
"""
# How it ends, and the bound that the model reads.
EXCEEDING = {
    "memory of threads": (
        *("memory", "100 MB"),
        f"import threading\ndef work():\n    held = []\n{HOLD}"
        "for _ in range(8): threading.Thread(target=work, daemon=True).start()",
    ),
    # Sockets and pipes hold what no process holds: each counts as if it were full.
    "memory in buffers": ("memory", "50 MB", BUFFERS),
    "threads that C starts": ("killed", "64", THREADS_IN_C),
    "files of its own": ("killed", "files", OWN + FILL.format(0)),
    "the disk by the workspace": ("killed", "60 MB", "import os; os.chdir('src')" + FILL.format(MB)),
}


@pytest.mark.parametrize("case", EXCEEDING)
def test_what_uses_more_is_ended(tmp_path: Path, case: str) -> None:
    exit, bound, code = EXCEEDING[case]
    for folder in (".git", "src"):
        (tmp_path / folder).mkdir()
    sandbox = LinuxSandbox(tmp_path, writable=True, bounds=BOUNDS[bound])
    sandbox.run("x = 1", thread="a")
    result = sandbox.run(f"{code}\nimport time; time.sleep(60)", thread="a", timeout=60)
    assert (result.exit, bound in result.note) == (exit, True), result
    assert sandbox.run("x", thread="a").value is None
    sandbox.close()


def test_short_calls_together_use_no_more(sandbox: LinuxSandbox) -> None:
    code = "held = globals().get('held', []); held.append(b'x' * (10_000_000 + len(held)))"
    exits = [sandbox.run(code, thread="short").exit for _ in range(12)]
    assert exits[:7] == ["ok"] * 7
    assert "memory" in exits
    sandbox.close("short")


FREE = """
import mmap, tempfile, threading, time
reserved = mmap.mmap(-1, 2 * 10**9, access=mmap.ACCESS_COPY)
file = tempfile.TemporaryFile()
file.write(b'x' * 20_000_000)
file.flush()
held = [mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) for _ in range(6)]
sum(one[at] for one in held for at in range(0, len(one), 4096))
# For longer than it takes to look.
for _ in range(32): threading.Thread(target=time.sleep, args=(0.2,)).start()
time.sleep(0.3)
"""


def test_reserved_addresses_pages_of_files_and_some_threads_are_free(sandbox: LinuxSandbox) -> None:
    result = sandbox.run(FREE, thread="free")
    assert (result.exit, result.note) == ("ok", ""), result.stderr
    sandbox.close("free")


def test_idle_interpreters_end_first(sandbox: LinuxSandbox) -> None:
    code = "import time\nheld = b'x' * 60_000_000; time.sleep(0.2)"
    assert [sandbox.run(code, thread=thread).exit for thread in "abc"] == ["ok"] * 3
    results = [sandbox.run("len(held)", thread=thread) for thread in "abc"]
    assert [result.value for result in results] == [None, "60000000", "60000000"]
    assert results[0].note != ""
    for thread in "abc":
        sandbox.close(thread)


# What Python itself says of it, the bound, or the name of the tool for programs.
REFUSED = {
    "a thread too many": (
        "can't start new thread",
        "import threading, time\n"
        "for _ in range(200): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
    ),
    "a descriptor too many": ("Too many open files", "held = [open('/dev/null') for _ in range(1000)]"),
    "a file too large": ("30 MB", f"{OWN}open('a', 'wb').write(b'x' * 40_000_000)"),
    "a fork": ("run_shell", "import os; os.fork()"),
    "a shell": ("run_shell", "import subprocess; subprocess.run('ls', shell=True)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_at_once(sandbox: LinuxSandbox, case: str) -> None:
    words, code = REFUSED[case]
    sandbox.run("x = 1", thread="refused")
    result = sandbox.run(code, thread="refused")
    assert (result.exit, words in result.stderr + result.note) == ("error", True)
    assert sandbox.run("x", thread="refused").value == "1"


# System calls that a program makes by their numbers, with arguments that would fail in another way.
CALLS = """
    accept4 bind connect listen socket execve execveat ptrace process_vm_readv process_vm_writev
    pidfd_getfd pidfd_send_signal perf_event_open setpgid setsid add_key bpf io_uring_setup keyctl
    memfd_secret personality request_key seccomp unshare userfaultfd syslog landlock_add_rule
    landlock_restrict_self memfd_create sendmmsg sendmsg setsockopt splice tee vmsplice linkat
    fanotify_init inotify_init1 io_setup mq_open mq_unlink msgctl msgget msgrcv msgsnd semctl semget semop
    semtimedop shmat shmctl shmget fchmod fchmodat fchmodat2 fchown fchownat fsetxattr lsetxattr setxattr
    fremovexattr lremovexattr removexattr utimensat kill tgkill tkill prlimit64 sched_setaffinity
    setpriority
"""


def test_calls_of_the_system_that_are_refused(sandbox: LinuxSandbox) -> None:
    column = platform.machine() == "aarch64"
    numbers = {name: NUMBERS[name][column] for name in [*CALLS.split(), "sendfile"]}
    numbers["newer than the filter"] = 463
    code = f"""
import ctypes
libc, bad = ctypes.CDLL(None, use_errno=True), ctypes.c_long(-1)
errors = {{}}
for name, number in {numbers}.items():
    errors[name] = libc.syscall(number, *[bad] * 6) and ctypes.get_errno()
errors
"""
    expected = dict.fromkeys(numbers, errno.EPERM)
    expected |= dict.fromkeys(("newer than the filter", "sendfile"), errno.ENOSYS)
    assert sandbox.run(code, thread="refused").value == str(expected)


HEADER = Path("/usr/include/asm-generic/unistd.h")


@pytest.mark.skipif(not HEADER.exists(), reason="the headers of the kernel are not installed")
def test_the_filter_names_the_calls_of_the_other_processor_too() -> None:
    """No run here shows that, so that the table is compared with the kernel's own."""
    words = [line.split() for line in HEADER.read_text().splitlines()]
    defined = {word[1]: int(word[2]) for word in words if len(word) == 3 and word[2].isdigit()}
    kernels = {name: defined.get(f"__NR_{name}", defined.get(f"__NR3264_{name}")) for name in NUMBERS}
    known = {name: number for name, number in kernels.items() if number is not None}
    assert known == {name: NUMBERS[name][1] for name in known}
    assert len(known) > 80


def test_the_attributes_of_files_stay(sandbox: LinuxSandbox) -> None:
    for command in ("0x40086602", "0x401c5820", "0x40806685"):
        code = f"{OWN}import fcntl; open('f', 'w').close(); fcntl.ioctl(open('f'), {command}, bytes(128))"
        assert "Operation not permitted" in sandbox.run(code, thread="refused").stderr
