"""Code in the Linux sandbox: what comes back, what stays from call to call, and what ends it."""

import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from signoff.tools.sandbox import Bounds, LinuxSandbox
from tests.support.process_table import children, gone, state

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are confined on Linux only")
GONE = "The variables of earlier calls are gone."
PROCESS = "open('/proc/self/stat').read().split()[0]"


@pytest.fixture
def sandbox() -> Iterator[LinuxSandbox]:
    sandbox = LinuxSandbox()
    yield sandbox
    sandbox.close()


def process_of(sandbox: LinuxSandbox, thread: str) -> int:
    return int(str(sandbox.run(PROCESS, thread=thread).value).strip("'"))


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
        (
            "-" * 50_000 + "1",
            "error",
            "",
            "SyntaxError: the code is nested too deeply for Python\n",
            None,
        ),
        ("x = 'x' * 10**10", "memory", "", "MemoryError\n", None),
        ("import os; os._exit(0)", "killed", "", "", None),
        ("import asyncio\nasync def f(): return 7\nasyncio.run(f())\nasyncio.run(f())", "ok", "", "", "7"),
        ("async def f(): return 7\nx = await f()\nx * await f()", "ok", "", "", "49"),
        ("if __name__ == '__main__': print('main')", "ok", "main\n", "", None),
        ("print(1)\r\nprint(2)", "ok", "1\n2\n", "", None),
        ("for n in range(9): print(f'\\r{n} of 8', end='')", "ok", "8 of 8", "", None),
        ("print('long line\\r\\x1b[Kshort\\x1b[31m red\\x1b[0m')", "ok", "short red\n", "", None),
        ("print('ab\\b\\bx')", "ok", "xb\n", "", None),
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
    for code in ("1 / 0", "raise SystemExit(3)", "x" + "x" * 10 + " = 'x' * 10**10"):
        sandbox.run(code, thread="a")
        assert sandbox.run("x", thread="a").value == "1"
    sandbox.close("a")
    assert "NameError" in sandbox.run("x", thread="a").stderr


INTERRUPTED = {
    "a loop": "while True: pass",
    "a sleep": "import time; time.sleep(60)",
    "a lock": "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "a pattern": "import re; re.match('(a+)+$', 'a' * 40 + 'b')",
    "a queue": "import queue; queue.Queue().get()",
    "a coroutine": "import asyncio; await asyncio.sleep(60)",
    "a pool": "import time\nfrom concurrent.futures import ThreadPoolExecutor\n"
    "with ThreadPoolExecutor(1) as pool: pool.submit(time.sleep, 60).result()",
    "a coroutine of a thread": "import asyncio, time\nawait asyncio.to_thread(time.sleep, 60)",
    "a join": "import threading, time\n"
    "thread = threading.Thread(target=time.sleep, args=(60,), daemon=True); thread.start(); thread.join()",
}


@pytest.mark.timed
@pytest.mark.parametrize("case", INTERRUPTED)
def test_a_time_out_interrupts_and_the_variables_stay(sandbox: LinuxSandbox, case: str) -> None:
    sandbox.run("x = 1", thread="a")
    result = sandbox.run(f"print('before', end='')\n{INTERRUPTED[case]}", thread="a", timeout=0.3)
    assert (result.exit, result.stdout) == ("timeout", "before")
    assert "interrupted" in result.note
    assert GONE not in result.note
    assert result.seconds < 2
    assert "KeyboardInterrupt" in result.stderr
    assert "sandbox/worker.py" not in result.stderr
    assert sandbox.run("x", thread="a").value == "1"


ENDED = {
    "C code": "sum(range(10**12))",
    "it is caught": "import time\nwhile True:\n    try: time.sleep(9)\n    except KeyboardInterrupt: pass",
    "it is ignored": "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(60)",
}


@pytest.mark.timed
@pytest.mark.parametrize("case", ENDED)
def test_what_does_not_stop_is_ended_and_that_is_said(sandbox: LinuxSandbox, case: str) -> None:
    process = process_of(sandbox, "a")
    result = sandbox.run(f"print('before', end='')\n{ENDED[case]}", thread="a", timeout=0.3)
    assert (result.exit, result.stdout) == ("timeout", "before")
    assert "did not stop" in result.note
    assert result.note.endswith(GONE)
    assert 2 <= result.seconds < 5
    assert gone(process)
    assert sandbox.run("6 * 7", thread="a").value == "42"


@pytest.mark.timed
def test_signals_that_code_blocked_come_in_the_next_call(sandbox: LinuxSandbox) -> None:
    sandbox.run("import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}); x = 1", thread="a")
    assert sandbox.run("while True: pass", thread="a", timeout=0.3).exit == "timeout"
    assert sandbox.run("x", thread="a").value == "1"


def test_an_interrupt_reaches_only_its_call(sandbox: LinuxSandbox) -> None:
    """Calls that end just when their time is up; the next ones, in which a signal would be late, end well."""
    for number in range(20):
        sandbox.run(f"import time\nx = {number}\ntime.sleep(0.05)", thread="a", timeout=0.05)
        after = sandbox.run("time.sleep(0.01); y = 1; y", thread="a")
        assert (after.exit, after.value) == ("ok", "1"), after.stderr


def test_late_output_is_marked(sandbox: LinuxSandbox) -> None:
    sandbox.run(
        "import threading, time, logging, sys\nlogging.basicConfig(stream=sys.stdout, format='%(message)s')\n"
        "def worker():\n    time.sleep(0.3); print('late', 'words')\n"
        "    print('two\\nlines'); logging.warning('logged')\n"
        "threading.Thread(target=worker).start()",
        thread="a",
    )
    code = "import time\nfor n in range(5): print(n); time.sleep(0.1)\n"
    code += "thread = threading.Thread(target=print, args=('of this call',)); thread.start(); thread.join()"
    lines = sandbox.run(code, thread="a").stdout.splitlines()
    late = [line.rpartition("] ") for line in lines if "earlier call" in line]
    assert [text for _, _, text in late] == ["late words", "two", "lines", "logged"]
    assert {"0", "4", "of this call"} <= set(lines)


@pytest.mark.parametrize(
    "pool", ["concurrent.futures import ThreadPoolExecutor", "multiprocessing.pool import ThreadPool"]
)
def test_the_threads_of_a_pool_serve_the_call_that_gives_them_work(sandbox: LinuxSandbox, pool: str) -> None:
    name = pool.rpartition(" ")[2]
    assert (
        sandbox.run(f"from {pool}\npool = {name}(2); list(pool.map(print, 'a'))", thread="a").stdout == "a\n"
    )
    assert sandbox.run("list(pool.map(print, 'b')); None", thread="a").stdout == "b\n"


def test_output_is_cut_while_reading() -> None:
    sandbox = LinuxSandbox(bounds=Bounds(kept=1_000, written=300_000))
    result = sandbox.run("print('a' * 5_000 + 'z' * 5_000)", thread="a")
    assert (result.exit, result.truncated) == ("ok", True)
    assert result.stdout.startswith("a" * 500 + "\n[... 9,001 bytes of output left out here ...]\nz")
    assert result.stdout.endswith("z\n")
    assert len(result.stdout) < 1_100
    result = sandbox.run("while True: print('x' * 1_000)", thread="a", timeout=20)
    assert (result.exit, result.truncated) == ("killed", True)
    assert "far too much output" in result.note
    sandbox.close()


def test_nothing_runs_between_calls(sandbox: LinuxSandbox) -> None:
    process = process_of(sandbox, "a")
    sandbox.run(
        "import threading, time\ncount = 0\ndef work():\n    global count\n    while True: count += 1\n"
        "threading.Thread(target=work, daemon=True).start()",
        thread="a",
    )
    assert children(process) == []
    deadline = time.monotonic() + 2
    while state(process) != "T" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert state(process) == "T"
    assert sandbox.run("count > 0", thread="a").value == "True"


def test_many_threads_at_once_share_eight_interpreters(sandbox: LinuxSandbox) -> None:
    results: dict[int, str | None] = {}

    def use(number: int) -> None:
        sandbox.run(f"x = {number}", thread=str(number))
        results[number] = sandbox.run("import time; time.sleep(0.02); x", thread=str(number)).value

    users = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert results == {number: str(number) for number in range(8)}
    sandbox.run("y = 1", thread="one more")
    notes = [sandbox.run("1", thread=str(number)).note for number in range(8)]
    assert GONE in notes


@pytest.mark.timed
def test_closing_ends_a_running_call(sandbox: LinuxSandbox) -> None:
    sandbox.run("x = 1", thread="a")
    threading.Timer(0.3, sandbox.close, ("a",)).start()
    result = sandbox.run("import time; time.sleep(30)", thread="a", timeout=20)
    assert (result.exit, result.seconds < 5) == ("killed", True)
    assert sandbox.run("6 * 7", thread="a").value == "42"


_OWNER = f"""
import os, signal, sys, time
from signoff.tools.sandbox import LinuxSandbox
sandbox = LinuxSandbox()
print(sandbox.run({PROCESS!r}, thread="a").value.strip("'"), flush=True)
if sys.argv[1] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how", ["kill", "exit"])
@pytest.mark.slow
def test_interpreters_end_with_their_owner(how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _OWNER, how], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == (-signal.SIGKILL if how == "kill" else 0), done.stderr
    assert gone(int(done.stdout))


def test_interpreters_end_with_their_sandbox() -> None:
    sandbox = LinuxSandbox()
    process = process_of(sandbox, "a")
    del sandbox
    gc.collect()
    assert gone(process)


def test_an_interpreter_outlives_the_thread_that_started_it(sandbox: LinuxSandbox) -> None:
    starter = threading.Thread(target=sandbox.run, args=("x = 1",), kwargs={"thread": "a"})
    starter.start()
    starter.join()
    time.sleep(0.1)
    assert sandbox.run("x", thread="a").value == "1"
