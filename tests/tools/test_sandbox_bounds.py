"""Code in the Linux sandbox and what it may use: memory, threads, processes, descriptors, and old kernels."""

import errno
import platform
import subprocess
import sys
from collections.abc import Iterator

import pytest

from signoff.tools.sandbox import Bounds, LinuxSandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are confined on Linux only")
GONE = "The variables of earlier calls are gone."
MB = 1_000_000


@pytest.fixture
def sandbox() -> Iterator[LinuxSandbox]:
    sandbox = LinuxSandbox(bounds=Bounds(memory=200 * MB, memory_together=400 * MB))
    yield sandbox
    sandbox.close()


def test_one_absurd_allocation_is_an_error_and_the_variables_stay(sandbox: LinuxSandbox) -> None:
    result = sandbox.run("x = 1\ny = bytearray(10**10)", thread="a")
    assert (result.exit, "200 MB" in result.note, GONE in result.note) == ("memory", True, False)
    assert sandbox.run("x", thread="a").value == "1"


HOLDING = {
    "memory": "held = []\nwhile True: held.append(b'x' * 1_000_000)",
    "mapped memory": "import mmap\nheld = mmap.mmap(-1, 10**9, access=mmap.ACCESS_COPY)\n"
    "while True: held.write(b'x' * 1_000_000)",
    "private pages of a file": "import mmap, tempfile\n"
    "file = tempfile.TemporaryFile(); file.truncate(250_000_000)\n"
    "held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)\n"
    "for n in range(240): held.write(b'x' * 1_000_000)",
    "many threads": "import threading\n"
    "def work():\n    held = []\n    while True: held.append(b'x' * 1_000_000)\n"
    "for _ in range(8): threading.Thread(target=work, daemon=True).start()\nthreading.Event().wait()",
}


@pytest.mark.timed
@pytest.mark.parametrize("case", HOLDING)
def test_what_uses_more_memory_is_ended(sandbox: LinuxSandbox, case: str) -> None:
    result = sandbox.run(HOLDING[case] + "\nimport time; time.sleep(5)", thread="a", timeout=20)
    assert (result.exit, "more than 200 MB" in result.note) == ("memory", True)
    assert result.note.endswith(GONE)


def test_short_calls_together_use_no_more(sandbox: LinuxSandbox) -> None:
    code = "held = globals().get('held', []); held.append(b'x' * (20_000_000 + len(held)))"
    results = [sandbox.run(code, thread="a") for _ in range(12)]
    assert [result.exit for result in results[:8]] == ["ok"] * 8
    assert "memory" in [result.exit for result in results]


def test_a_value_of_any_characters_comes_back(sandbox: LinuxSandbox) -> None:
    result = sandbox.run("'\U0001f600' * 200_000")
    assert (result.exit, len(result.value or "")) == ("ok", 100_000)


def test_buffers_count_as_memory() -> None:
    """Sockets and pipes hold what no process holds: each counts as if it were full."""
    sandbox = LinuxSandbox(bounds=Bounds(memory=50 * MB))
    code = """
import os, socket, time
held = []
while True:
    try:
        one, other = socket.socketpair()
    except OSError:
        break
    held += [one, other]
    for end in (one, other):
        end.setblocking(False)
        try:
            while True: end.send(b'x' * 65536)
        except OSError: pass
time.sleep(5)
"""
    assert sandbox.run(code, timeout=20).exit == "memory"
    sandbox.close()


def test_reserved_addresses_and_pages_of_files_are_no_memory(sandbox: LinuxSandbox) -> None:
    code = """
import mmap, tempfile, time
reserved = mmap.mmap(-1, 2 * 10**9, access=mmap.ACCESS_COPY)
file = tempfile.TemporaryFile()
for _ in range(240): file.write(b'x' * 1_000_000)
file.flush()
mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
sum(mapped[at] for at in range(0, len(mapped), 4096))
time.sleep(0.3)
"""
    assert sandbox.run(code, timeout=20).exit == "ok"


def test_idle_interpreters_end_first() -> None:
    sandbox = LinuxSandbox(bounds=Bounds(memory=200 * MB, memory_together=300 * MB))
    for thread in ("a", "b"):
        assert sandbox.run("held = b'x' * 100_000_000", thread=thread).exit == "ok"
    assert sandbox.run("import time\nheld = b'x' * 100_000_000; time.sleep(0.3)", thread="c").exit == "ok"
    results = [sandbox.run("len(held)", thread=thread) for thread in ("a", "b", "c")]
    assert [result.value for result in results] == [None, "100000000", "100000000"]
    assert results[0].note == GONE
    sandbox.close()


@pytest.mark.parametrize(("count", "exit"), [(32, "ok"), (200, "error")])
def test_threads(sandbox: LinuxSandbox, count: int, exit: str) -> None:
    code = f"""
import threading, time
threads = [threading.Thread(target=time.sleep, args=(0.5,)) for _ in range({count})]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    assert sandbox.run(code, thread="a").exit == exit


def test_descriptors(sandbox: LinuxSandbox) -> None:
    result = sandbox.run("held = [open('/dev/null') for _ in range(1000)]")
    assert "Too many open files" in result.stderr


PROCESSES = {
    "fork": "import os; os.fork()",
    "a shell": "import os; os.system('ls')",
    "subprocess": "import subprocess; subprocess.run(['ls'])",
    "popen": "import os; os.popen('ls').read()",
    "exec": "import os; os.execv('/bin/ls', ['ls'])",
    "spawn": "import os; os.posix_spawn('/bin/ls', ['ls'], {})",
    "a terminal": "import pty; pty.spawn('ls')",
    "a pool": "import multiprocessing; multiprocessing.Pool(2)",
    "another pool": "from concurrent.futures import ProcessPoolExecutor\n"
    "with ProcessPoolExecutor(2) as pool: print(list(pool.map(abs, [1])))",
    "a process": "import multiprocessing; multiprocessing.get_context('spawn').Process(target=print).start()",
    "a manager": "import multiprocessing; multiprocessing.Manager()",
    "a coroutine": "import asyncio; await asyncio.create_subprocess_exec('ls')",
}


@pytest.mark.parametrize("case", PROCESSES)
def test_no_process_starts_and_a_sentence_says_so(sandbox: LinuxSandbox, case: str) -> None:
    result = sandbox.run(PROCESSES[case], thread="a", timeout=10)
    assert (result.exit, "own folder" in result.note) == ("error", False)
    assert "run_shell" in result.stderr


def test_what_libraries_ask_of_the_system_goes_on(sandbox: LinuxSandbox) -> None:
    code = "import uuid, platform, ctypes.util; uuid.uuid1(), platform.platform(), platform.processor()\n"
    code += "ctypes.util.find_library('c'), ctypes.CDLL(None).system(b'ls')"
    assert sandbox.run(code).exit == "ok"


CALLS = {
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "execve": (59, 221),
    "setsockopt": (54, 208),
    "sendmsg": (46, 211),
    "vmsplice": (278, 75),
    "splice": (275, 76),
    "tee": (276, 77),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
    "io_uring_setup": (425, 425),
    "inotify_init1": (294, 26),
    "io_setup": (206, 0),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_are_refused(sandbox: LinuxSandbox, name: str) -> None:
    number = CALLS[name][platform.machine() == "aarch64"]
    code = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    code += f"libc.syscall({number}, b'x', 0), ctypes.get_errno()"
    assert sandbox.run(code).value == f"(-1, {errno.EPERM})"


@pytest.mark.parametrize("command", ["0x40086602", "0x401c5820", "0x40806685"])
def test_the_attributes_of_files_stay(sandbox: LinuxSandbox, command: str) -> None:
    code = f"import fcntl; open('f', 'w').close(); fcntl.ioctl(open('f'), {command}, bytes(128))"
    assert "Operation not permitted" in sandbox.run(code).stderr


def test_old_kernels_leave_signals_and_modes_to_the_filter() -> None:
    """Where Landlock does not restrict signals, the filter alone must."""
    program = (
        "import os, sys\nfrom signoff.tools.sandbox.confine import filter_rules, install, libc\n"
        "libc().prctl(38, 1, 0, 0, 0)\n"
        "install(filter_rules(1))\n"
        "os.kill(os.getpid(), 0)\n"
        "for forbidden in (lambda: os.kill(os.getppid(), 0), lambda: os.killpg(0, 0), os.fork,\n"
        "                  lambda: os.chmod(sys.argv[1], 0), lambda: os.utime(sys.argv[1])):\n"
        "    try:\n        forbidden()\n    except PermissionError:\n        print('refused')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "/tmp"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("refused\n" * 5, "")
