"""Code in a sandbox: what comes back, what stays from call to call, and what ends it."""

import errno
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from signoff.tools.sandbox import Bounds, LinuxSandbox
from signoff.tools.sandbox import confine as landlock
from signoff.tools.sandbox.linux import wrapping
from tests.support.process_table import children, gone, runs, state

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are confined on Linux only")
needs_bubblewrap = pytest.mark.skipif(
    sys.platform != "linux" or wrapping() != "", reason="bubblewrap does not work on this host"
)
needs_landlock = pytest.mark.skipif(
    sys.platform != "linux" or not landlock.version(), reason="this kernel has no Landlock"
)
LAYERS = [
    pytest.param(True, id="bubblewrap", marks=needs_bubblewrap),
    pytest.param(False, id="inner-layer-alone", marks=needs_landlock),
]
Make = Callable[..., LinuxSandbox]


@pytest.fixture(params=LAYERS)
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes a sandbox with the layers of this test, closed after it."""
    made: list[LinuxSandbox] = []

    def build(
        workspace: Path | None = None, *, writable: bool = True, bounds: Bounds | None = None
    ) -> LinuxSandbox:
        wrapped: bool = request.param
        made.append(LinuxSandbox(workspace, writable=writable, bounds=bounds, bubblewrap=wrapped))
        return made[-1]

    yield build
    for sandbox in made:
        sandbox.close()


@pytest.fixture
def sandbox(make: Make) -> LinuxSandbox:
    return make()


def interpreter_of(sandbox: LinuxSandbox, thread: str) -> int:
    """The leader of the thread's process group, as a person would find it with ps."""
    seat = sandbox._pool._seats[thread]
    assert seat.interpreter is not None
    return seat.interpreter._process


@pytest.mark.parametrize(
    ("code", "exit", "stdout", "stderr", "value"),
    [
        ("", "ok", "", "", None),
        ("print('hä')\n6 * 7", "ok", "hä\n", "", "42"),
        ("x = 1", "ok", "", "", None),
        ("None", "ok", "", "", None),
        ("import sys; print('no', file=sys.stderr)", "ok", "", "no\n", None),
        ("import os; os.write(1, b'\\xff'); None", "ok", "\ufffd", "", None),
        ("raise SystemExit", "ok", "", "", None),
        ("raise SystemExit('enough')", "error", "", "SystemExit: enough\n", None),
        ("input()", "error", "", "EOFError: EOF when reading a line\n", None),
        ("1 +", "error", "", "SyntaxError: invalid syntax\n", None),
        ("1 / 0", "error", "", "ZeroDivisionError: division by zero\n", None),
        ("raise KeyboardInterrupt", "error", "", "KeyboardInterrupt\n", None),
        ("'\\0'.encode('\\0')", "error", "", "ValueError: embedded null character\n", None),
        ("x = 'x' * 10**10", "memory", "", "MemoryError\n", None),
        ("import os; os._exit(0)", "killed", "", "", None),
        ("import asyncio\nasync def f(): return 7\nasyncio.run(f())", "ok", "", "", "7"),
    ],
)
def test_what_comes_back(
    sandbox: LinuxSandbox, code: str, exit: str, stdout: str, stderr: str, value: str | None
) -> None:
    result = sandbox.run(code)
    assert (result.exit, result.stdout, result.value, result.truncated) == (exit, stdout, value, False)
    assert result.stderr.endswith(stderr)
    assert bool(result.stderr) == bool(stderr)


def test_a_traceback_shows_the_code_and_nothing_of_the_sandbox(sandbox: LinuxSandbox) -> None:
    sandbox.run("def half(x):\n    return x / 0", thread="a")
    lines = sandbox.run("half(1)", thread="a").stderr.splitlines()
    # Which lines get marks below them differs between versions of Python.
    assert [line for line in lines if line.strip(" ~^")] == [
        "Traceback (most recent call last):",
        '  File "<python 2>", line 1, in <module>',
        "    half(1)",
        '  File "<python 1>", line 2, in half',
        "    return x / 0",
        "ZeroDivisionError: division by zero",
    ]


def test_variables_stay_in_their_thread(sandbox: LinuxSandbox) -> None:
    sandbox.run("x = 1", thread="a")
    sandbox.run("x = 2", thread="b")
    assert sandbox.run("x", thread="a").value == "1"
    assert sandbox.run("x", thread="b").value == "2"
    assert "NameError" in sandbox.run("x").stderr
    sandbox.run("1 / 0", thread="a")
    assert sandbox.run("x", thread="a").value == "1"
    sandbox.close("a")
    assert "NameError" in sandbox.run("x", thread="a").stderr


@pytest.mark.timed
def test_a_timeout_ends_the_interpreter_and_says_so(sandbox: LinuxSandbox) -> None:
    sandbox.run("x = 1", thread="a")
    process = interpreter_of(sandbox, "a")
    result = sandbox.run("print('before', flush=True)\nsum(range(10**12))", thread="a", timeout=0.5)
    assert (result.exit, result.stdout) == ("timeout", "before\n")
    assert result.note.endswith("The variables of earlier calls are gone.")
    assert 0.5 <= result.seconds < 3
    assert not runs(process)
    after = sandbox.run("x", thread="a")
    assert ("NameError" in after.stderr, after.note) == (True, "")


def test_output_is_cut_while_reading(make: Make) -> None:
    sandbox = make(bounds=Bounds(kept=1_000, written=300_000))
    result = sandbox.run("print('a' * 5_000 + 'z' * 5_000)", thread="a")
    assert (result.exit, result.truncated) == ("ok", True)
    assert result.stdout.startswith("a" * 500 + "\n[... 9001 bytes of output left out ...]\nz")
    assert result.stdout.endswith("z\n")
    assert len(result.stdout) < 1_100
    result = sandbox.run("while True: print('x' * 1_000)", thread="a", timeout=20)
    assert (result.exit, result.truncated) == ("killed", True)
    assert "far too much output" in result.note


def test_the_workspace_is_where_the_code_works(make: Make, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("hello")
    (tmp_path / "link").symlink_to("/etc/passwd")
    sandbox = make(tmp_path)
    assert sandbox.run("import os\nos.getcwd(), open('in.txt').read()").value == f"('{tmp_path}', 'hello')"
    assert sandbox.run("open('out.txt', 'w').write('done'); os = None").exit == "ok"
    assert (tmp_path / "out.txt").read_text() == "done"
    assert sandbox.run("open('link').read()").exit == "error"
    assert sandbox.enforced()["workspace"] == "writable"


def test_a_read_only_workspace_stays_as_it_is(make: Make, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("hello")
    sandbox = make(tmp_path, writable=False)
    assert sandbox.run("open('in.txt').read()").value == "'hello'"
    for code in ("open('new', 'w')", "open('in.txt', 'w')", "import os; os.unlink('in.txt')"):
        assert sandbox.run(code).exit == "error"
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("in.txt", "hello")]


def test_nothing_runs_between_calls(sandbox: LinuxSandbox) -> None:
    sandbox.run(
        "import threading, time\ncount = 0\ndef work():\n    global count\n    while True: count += 1\n"
        "threading.Thread(target=work, daemon=True).start()",
        thread="a",
    )
    process = interpreter_of(sandbox, "a")
    family = [process, *children(process)]
    deadline = time.monotonic() + 2
    while (states := {state(each) for each in family}) != {"T"} and time.monotonic() < deadline:
        time.sleep(0.01)
    assert states == {"T"}
    assert sandbox.run("count > 0", thread="a").value == "True"


def test_many_threads_at_once_share_a_bounded_number_of_interpreters(make: Make) -> None:
    sandbox = make()
    sandbox._pool._most = 3
    results: dict[int, str | None] = {}

    def use(number: int) -> None:
        sandbox.run(f"x = {number}", thread=str(number))
        results[number] = sandbox.run("import time; time.sleep(0.02); x", thread=str(number)).value

    users = [threading.Thread(target=use, args=(number,)) for number in range(3)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert results == {number: str(number) for number in range(3)}
    sandbox.run("y = 1", thread="one more")
    assert len(sandbox._pool._alive) == 3
    oldest = next(name for name, seat in sandbox._pool._seats.items() if seat.lost)
    assert sandbox.run("1", thread=oldest).note == "The variables of earlier calls are gone."


@pytest.mark.timed
def test_closing_ends_a_running_call(sandbox: LinuxSandbox) -> None:
    threading.Timer(0.3, sandbox.close, ("a",)).start()
    result = sandbox.run("import time; time.sleep(30)", thread="a", timeout=20)
    assert (result.exit, result.seconds < 5) == ("killed", True)
    assert not sandbox._pool._alive


def test_filling_the_disk_ends_the_interpreter(make: Make, tmp_path: Path) -> None:
    sandbox = make(tmp_path, bounds=Bounds(disk=20_000_000))
    code = """
import time
for number in range(20):
    with open(str(number), "wb") as file:
        file.write(b"x" * 5_000_000)
    time.sleep(0.1)
"""
    result = sandbox.run(code, thread="a", timeout=30)
    assert (result.exit, result.note.startswith("The disk was filling up")) == ("killed", True)


@pytest.mark.parametrize("number", [{"x86_64": 319, "aarch64": 279}, {"x86_64": 447, "aarch64": 447}])
def test_files_in_memory_are_refused(sandbox: LinuxSandbox, number: dict[str, int]) -> None:
    code = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    code += f"libc.syscall({number[platform.machine()]}, b'x', 0), ctypes.get_errno()"
    assert sandbox.run(code).value == f"(-1, {errno.EPERM})"


@needs_bubblewrap
@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
def test_files_in_memory_folders_are_counted_over_all_calls(folder: str) -> None:
    sandbox = LinuxSandbox(bubblewrap=True, bounds=Bounds(files=1_000))
    code = (
        f"import os, time\nfor n in range(600): os.mknod(f'{folder}/{{n}}-{{time.time()}}')\ntime.sleep(0.6)"
    )
    results = [sandbox.run(code, thread="a") for _ in range(2)]
    assert [result.exit for result in results] == ["ok", "killed"]
    assert "far too many files" in results[1].note
    sandbox.close()


@needs_bubblewrap
def test_memory_counts_for_all_processes_together() -> None:
    sandbox = LinuxSandbox(bubblewrap=True, bounds=Bounds(memory_together=120_000_000))
    code = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        held = bytearray(b"x" * 40_000_000)
        time.sleep(20)
        os._exit(0)
time.sleep(20)
"""
    result = sandbox.run(code, timeout=15)
    assert (result.exit, "too much memory" in result.note) == ("memory", True)
    sandbox.close()


_OWNER = """
import os, signal, sys, time
from signoff.tools.sandbox import LinuxSandbox
sandbox = LinuxSandbox(bubblewrap=sys.argv[1] == "True")
sandbox.run("1", thread="a")
print(sandbox._pool._seats["a"].interpreter._process, flush=True)
if sys.argv[2] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how", ["kill", "exit"])
@pytest.mark.parametrize("wrapped", LAYERS)
@pytest.mark.slow
@pytest.mark.sample(2)
def test_interpreters_end_with_their_owner(wrapped: bool, how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _OWNER, str(wrapped), how],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == (-signal.SIGKILL if how == "kill" else 0), done.stderr
    assert gone(int(done.stdout))


def test_an_interpreter_outlives_the_thread_that_started_it(sandbox: LinuxSandbox) -> None:
    starter = threading.Thread(target=sandbox.run, args=("x = 1",), kwargs={"thread": "a"})
    starter.start()
    starter.join()
    time.sleep(0.1)
    assert sandbox.run("x", thread="a").value == "1"


@needs_bubblewrap
def test_programs_can_be_started_in_bubblewrap_but_not_without() -> None:
    code = "import subprocess\nsubprocess.run(['echo', 'hi'], capture_output=True, text=True).stdout"
    for wrapped, exit in ((True, "ok"), (False, "error")):
        sandbox = LinuxSandbox(bubblewrap=wrapped)
        assert sandbox.run(code).exit == exit
        sandbox.close()


@needs_linux
def test_old_kernels_leave_signals_and_modes_to_the_filter() -> None:
    """Where neither name spaces nor Landlock hide other processes, the filter alone must."""
    program = (
        "import os, sys\nfrom signoff.tools.sandbox.confine import filter_rules, install, libc\n"
        "libc().prctl(38, 1, 0, 0, 0)\n"
        "install(filter_rules(processes=False, guard_signals=True, guard_metadata=True))\n"
        "os.kill(os.getpid(), 0)\n"
        "for forbidden in (lambda: os.kill(os.getppid(), 0), lambda: os.killpg(0, 0), os.fork,\n"
        "                  lambda: os.chmod(sys.argv[1], 0), lambda: os.utime(sys.argv[1])):\n"
        "    try:\n        forbidden()\n    except PermissionError:\n        print('refused')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "/tmp"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("refused\n" * 5, "")
