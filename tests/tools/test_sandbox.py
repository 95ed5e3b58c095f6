"""Code in the Linux sandbox: what comes back, what works, what stays from call to call, and what ends it."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from signoff.tools import Bounds, LinuxSandbox
from tests.support.process_table import children, gone, state
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are confined on Linux only")
PROCESS = "int(open('/proc/self/stat').read().split()[0])"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LinuxSandbox]:
    """One for all, each with threads of its own."""
    sandbox = LinuxSandbox()
    yield sandbox
    sandbox.close()


def process_of(sandbox: LinuxSandbox, thread: str) -> int:
    return int(str(sandbox.run(PROCESS, thread=thread).value))


OWN = "import os; os.chdir(os.path.expanduser('~'))\n"
COPIES = """
open('a', 'w').write('1')
import shutil; shutil.copy('a', 'b'); shutil.copy2('a', 'c')
os.mkdir('d'); shutil.copytree('d', 'e'); shutil.move('c', 'd'); os.listdir('d'), os.access('.', os.W_OK)
"""
MACHINE = """
import uuid, platform, ctypes.util
uuid.uuid1(), platform.platform(), platform.processor(), ctypes.util.find_library('c')
ctypes.CDLL(None).system(b'ls')
open('/proc/self/status').read().count('VmRSS')
"""
RUN = "import asyncio\nasync def f(): return 7\n"
HALF = "def half(x):\n    return x / 0\nhalf(1)"
# The code, its value and what it prints; of what fails, how it ends and a part of what is said of it.
WORKS: dict[str, tuple[str, str | None, str]] = {
    "a value and what is printed": ("print('hä')\n6 * 7", "42", "hä\n"),
    "bytes that are no text": ("import os; os.write(1, b'\\xff'); None", None, "\ufffd"),
    "an event loop, twice": (f"{RUN}asyncio.run(f())\nasyncio.run(f())", "7", ""),
    "await at the top": ("async def f(): return 7\nx = await f()\nx * await f()", "49", ""),
    "other line ends": ("print(1)\r\nprint(2)", None, "1\n2\n"),
    "a bar that goes back": ("for n in range(9): print(f'\\r{n} of 8', end='')", None, "8 of 8"),
    "access and copies": (OWN + COPIES, "(['c'], True)", ""),
    "what libraries ask of the machine": (MACHINE, "1", ""),
    "the whole of a long value": ("'\U0001f600' * 200_000", "'" + "\U0001f600" * 99_999, ""),
}
FAILS = {
    "leaving with a reason": ("raise SystemExit('enough')", "error", "SystemExit: enough\n"),
    "no input": ("input()", "error", "EOFError: EOF when reading a line\n"),
    "an error": (HALF, "error", 'File "<python 1>", line 2, in half\n    return x / 0\n'),
    "code without bottom": ("-" * 50_000 + "1", "error", "SyntaxError: "),
    "ending itself": ("import os; os._exit(0)", "killed", ""),
}


@pytest.mark.parametrize("case", WORKS)
def test_what_works(sandbox: LinuxSandbox, case: str) -> None:
    code, value, stdout = WORKS[case]
    result = sandbox.run(code, thread="calls")
    assert (result.exit, result.value, result.stdout, result.stderr) == ("ok", value, stdout, "")
    assert (result.note, result.truncated) == ("", False)


@pytest.mark.parametrize("case", FAILS)
def test_what_fails(sandbox: LinuxSandbox, case: str) -> None:
    code, exit, stderr = FAILS[case]
    result = sandbox.run(code, thread=case)
    assert (result.exit, result.value, stderr in result.stderr) == (exit, None, True)
    assert ("worker.py" in result.stderr, bool(result.stderr)) == (False, bool(stderr))


def test_variables_stay_in_their_thread(sandbox: LinuxSandbox) -> None:
    sandbox.run("x = 1", thread="a")
    sandbox.run("x = 2", thread="b")
    values = [sandbox.run("x", thread=thread).value for thread in ("a", "b", "c", None)]
    assert values == ["1", "2", None, None]
    for code in ("1 / 0", "raise SystemExit(3)", "y = 'x' * 10**10"):
        assert sandbox.run(code, thread="a").exit != "ok"
        assert sandbox.run("x", thread="a").value == "1"
    assert sandbox.run("import os; os._exit(0)", thread="a").note != ""
    sandbox.close("b")
    assert [sandbox.run("x", thread=thread).value for thread in ("a", "b")] == [None, None]


INTERRUPTED = {
    "a loop": "while True: pass",
    "a pool": "import time\nfrom concurrent.futures import ThreadPoolExecutor\n"
    "with ThreadPoolExecutor(1) as pool: pool.submit(time.sleep, 600).result()",
}
ENDED = {
    "C code": "sum(range(10**12))",
    "it is caught": "import time\nwhile True:\n    try: time.sleep(9)\n    except KeyboardInterrupt: pass",
}


@pytest.mark.parametrize("case", INTERRUPTED)
def test_a_time_out_interrupts_and_the_variables_stay(sandbox: LinuxSandbox, case: str) -> None:
    sandbox.run("x = 1", thread="late")
    result = sandbox.run(f"print('before', end='')\n{INTERRUPTED[case]}", thread="late", timeout=0.3)
    assert (result.exit, result.stdout, bool(result.note)) == ("timeout", "before", True)
    assert "KeyboardInterrupt" in result.stderr
    assert "worker.py" not in result.stderr
    assert sandbox.run("x", thread="late").value == "1"


@pytest.mark.parametrize("case", ENDED)
def test_what_does_not_stop_is_ended_and_that_is_said(sandbox: LinuxSandbox, case: str) -> None:
    process = process_of(sandbox, "late")
    interrupted = sandbox.run("while True: pass", thread="late", timeout=0.1)
    result = sandbox.run(f"print('before', end='')\n{ENDED[case]}", thread="late", timeout=0.1)
    assert (result.exit, result.stdout) == ("timeout", "before")
    assert result.note not in ("", interrupted.note)
    assert gone(process)
    assert sandbox.run("6 * 7", thread="late").value == "42"


def test_an_interrupt_reaches_only_its_call(sandbox: LinuxSandbox) -> None:
    """Calls that end just when their time is up; the next ones, in which a signal would be late, end well."""
    for number in range(10):
        sandbox.run(f"import time\nx = {number}\ntime.sleep(0.05)", thread="a", timeout=0.05)
        after = sandbox.run("time.sleep(0.01); y = 1; y", thread="a")
        assert (after.exit, after.value) == ("ok", "1"), after.stderr


def test_output_is_cut_while_reading() -> None:
    sandbox = LinuxSandbox(bounds=Bounds(kept=1_000, written=300_000))
    result = sandbox.run("print('a' * 5_000 + 'z' * 5_000)", thread="a")
    assert (result.exit, result.truncated, len(result.stdout) < 1_100) == ("ok", True, True)
    assert result.stdout.startswith("a" * 500 + "\n")
    assert result.stdout.endswith("\n" + "z" * 499 + "\n")
    result = sandbox.run("while True: print('x' * 1_000)", thread="a", timeout=60)
    assert (result.exit, result.truncated, bool(result.note)) == ("killed", True, True)
    sandbox.close()


def test_nothing_runs_between_calls(sandbox: LinuxSandbox) -> None:
    process = process_of(sandbox, "a")
    sandbox.run(
        "import threading\ncount = 0\ndef work():\n    global count\n    while True: count += 1\n"
        "threading.Thread(target=work, daemon=True).start()",
        thread="a",
    )
    assert children(process) == []
    assert until(lambda: state(process) == "T")
    assert sandbox.run("count > 0", thread="a").value == "True"
    sandbox.close("a")
    assert gone(process)


def test_many_threads_at_once_share_eight_interpreters() -> None:
    sandbox = LinuxSandbox()

    def use(number: str) -> str | None:
        sandbox.run(f"x = {number}", thread=number)
        return sandbox.run("import time; time.sleep(0.02); x", thread=number).value

    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(use, "01234567")] == [*"01234567"]
    assert [sandbox.run("x", thread=number).value for number in "01234567"] == [*"01234567"]
    sandbox.run("x = 8", thread="one more")
    # What was not used for longest has made room, and is told so.
    kept, ended = sandbox.run("x", thread="7"), sandbox.run("x", thread="0")
    assert (kept.value, kept.note, ended.value, bool(ended.note)) == ("7", "", None, True)
    sandbox.close()


def test_closing_ends_a_running_call(sandbox: LinuxSandbox) -> None:
    own = Path(str(sandbox.run("import os; os.path.expanduser('~')", thread="a").value).strip("'"))

    code = "import time; open(os.path.expanduser('~/begun'), 'w').close(); time.sleep(600)"
    with ThreadPoolExecutor() as pool:
        running = pool.submit(sandbox.run, code, thread="a", timeout=600)
        assert until((own / "begun").exists)
        sandbox.close("a")
        assert running.result().exit == "killed"
    assert sandbox.run("6 * 7", thread="a").value == "42"
