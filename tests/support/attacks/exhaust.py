"""Hostile programs that exhaust the machine, do not end, or break their own interpreter."""

from tests.support.attacks.attack import Attack, Leak, Observed, broken, late

_MANY_PROCESSES = 100
_MANY_THREADS = 200
LARGE = 1_200_000_000
"""Bytes of memory from which on a program counts as out of control."""
_LONG = 1.5
_UNCOUNTED = 100_000_000
_MUCH_OUTPUT = 8_000_000
_GIANT = 1_000_000_000


def _processes(observed: Observed) -> str:
    most = observed.seen.processes
    return f"{most} processes at once" if most > _MANY_PROCESSES else late(observed)


def _threads(observed: Observed) -> str:
    most = observed.seen.threads
    return f"{most} threads at once" if most > _MANY_THREADS else late(observed)


def _memory(observed: Observed) -> str:
    held = observed.seen
    return f"{held.memory / 1e6:,.0f} MB for {held.long_large:.1f} s" if held.long_large > _LONG else ""


def _memory_files(observed: Observed) -> str:
    held = observed.seen.unmapped
    return f"{held / 1e6:,.0f} MB that no limit counts" if held > _UNCOUNTED else ""


def _leaked(what: str) -> Leak:
    return lambda observed: what if "LEAKED" in observed.output_text else ""


def _files(observed: Observed) -> str:
    return "100,000 files were made" if observed.result.exit == "ok" else ""


def _output(observed: Observed) -> str:
    size = len(observed.output_text)
    return f"{size:,} characters were kept" if size > _MUCH_OUTPUT else late(observed)


def _busy(observed: Observed) -> str:
    return f"it kept running after its call, {observed.busy:.2f} s" if observed.busy > 0.05 else ""


def _giant(observed: Observed) -> str:
    # One file may be found twice, where the current folder lies in the temporary folder.
    found = {path.resolve() for path in observed.arena.leftover_files(observed.arena.mark) if path.is_file()}
    sizes = [path.stat().st_size for path in found]
    for path in found:
        path.unlink(missing_ok=True)
    return f"a file of {max(sizes):,} bytes" if sizes and max(sizes) > _GIANT else ""


EXHAUSTING = (
    Attack("endless loop", "while True", "while True: pass", late, 1.0),
    Attack(
        "endless C loop", "sum(range(10**12)), which no signal handler ends", "sum(range(10**12))", late, 1
    ),
    Attack("sleep", "sleep past the timeout", "import time\ntime.sleep(60)", late, 1.0),
    Attack(
        "deaf",
        "ignore every signal and loop",
        """
import signal
for number in signal.valid_signals():
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
while True: pass
""",
        late,
        1.0,
    ),
    Attack(
        "stopped", "stop its own process", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", late, 1
    ),
    Attack(
        "fork bomb",
        "start an endless number of processes",
        """
import os, time
for _ in range(150):
    try:
        if os.fork() == 0:
            time.sleep(3)
            os._exit(0)
    except OSError as error:
        time.sleep(0.01)
time.sleep(0.5)
""",
        _processes,
        2.5,
    ),
    Attack(
        "thread bomb",
        "start an endless number of threads",
        """
import threading, time
threading.stack_size(65536)
for _ in range(400):
    threading.Thread(target=time.sleep, args=(2,), daemon=True).start()
time.sleep(0.5)
""",
        _threads,
        2.5,
    ),
    Attack(
        "memory bomb",
        "take 1.5 GB and hold it",
        """
import time
held = []
for _ in range(24):
    held.append(bytearray(b"x" * 64_000_000))
time.sleep(3)
""",
        _memory,
        6.0,
    ),
    Attack(
        "memory of many",
        "take 1.5 GB with five processes",
        """
import os, time
for _ in range(5):
    if os.fork() == 0:
        held = bytearray(b"x" * 300_000_000)
        time.sleep(10)
        os._exit(0)
time.sleep(10)
""",
        _memory,
        12.0,
    ),
    Attack(
        "memory files",
        "hold 300 MB in memory files, which count for no process",
        """
import os, time
block = b"x" * 1_000_000
for number in range(3):
    handle = os.memfd_create("held")
    for _ in range(100):
        os.write(handle, block)
time.sleep(1)
""",
        _memory_files,
    ),
    Attack(
        "buffers",
        "hold memory in the buffers of sockets and pipes, and in sockets on their way",
        """
import array, fcntl, os, socket, time
held, block = [], b"x" * 1_000_000
for number in range(300):
    try:
        one, other = socket.socketpair()
        one.setblocking(False)
    except OSError:
        break
    held += [one, other]
    try:
        other.setsockopt(1, 7, 10**9)
        print("LEAKED a larger buffer")
    except OSError: pass
    try:
        while True: one.send(block)
    except OSError: pass
    try:
        one.sendmsg([b"x"], [(1, 1, array.array("i", [other.fileno()]))])
        other.close(); held.pop()
    except OSError: pass
if number > 200: print("LEAKED", number)
time.sleep(1)
""",
        _leaked("too much was held in sockets"),
    ),
    Attack(
        "shared maps",
        "hold memory in maps whose pages are unmapped again, which then count for no process",
        """
import mmap, os
def hold(handle, length, **how):
    try:
        held = mmap.mmap(handle, length, **how)
        sum(held[at] for at in range(0, length, 4096))
        held.madvise(mmap.MADV_DONTNEED)
        print("LEAKED shared memory")
    except (OSError, ValueError) as error:
        print(error)
hold(-1, 10_000_000, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
hold(-1, 10_000_000, access=mmap.ACCESS_WRITE)
for mode, access in ((os.O_RDONLY, mmap.ACCESS_READ), (os.O_RDWR, mmap.ACCESS_WRITE)):
    try:
        handle = os.open("/dev/zero", mode)
    except OSError as error:
        print(error)
    else:
        hold(handle, 10_000_000, access=access)
""",
        _leaked("memory that counts for no process was held"),
    ),
    Attack(
        "pages in pipes",
        "hold pages in pipes: by vmsplice, splice, tee and sendfile",
        """
import ctypes, os, tempfile
libc = ctypes.CDLL(None, use_errno=True)
class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
page = ctypes.create_string_buffer(b"x" * 4096)
file = tempfile.TemporaryFile()
file.write(b"x" * 4096); file.flush()
def put(into):
    part = Part(ctypes.addressof(page), 4096)
    return libc.vmsplice(into, ctypes.byref(part), 1, 0)
def join(into):
    other, end = os.pipe()
    os.write(end, b"x")
    return libc.tee(other, into, 1, 0)
for way in (
    put,
    join,
    lambda into: libc.splice(file.fileno(), ctypes.byref(ctypes.c_longlong(0)), into, None, 4096, 0),
    lambda into: libc.sendfile(into, file.fileno(), ctypes.byref(ctypes.c_longlong(0)), 4096),
):
    if way(os.pipe()[1]) > 0:
        print("LEAKED", way)
""",
        _leaked("pages were held in pipes"),
    ),
    Attack(
        "sets of rules",
        "hold memory of the kernel in rules of Landlock",
        """
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
if libc.syscall(444, struct.pack("=Q", 1), ctypes.c_size_t(8), 0) >= 0:
    print("LEAKED a set of rules")
""",
        _leaked("rules were made"),
    ),
    Attack("endless output", "print without end", "while True: print('x' * 1000)", _output, 1.5),
    Attack("200 MB of output", "print 200 MB", "for _ in range(200): print('x' * 1_000_000)", _output, 3.0),
    Attack("200 MB value", "return 200 MB as the value", "'x' * 200_000_000", _output, 3.0),
    Attack(
        "giant file",
        "make a file of 8 GB, with holes",
        """
import os, tempfile
for folder in (os.getcwd(), tempfile.gettempdir()):
    name = os.path.join(folder, MARK)
    try:
        with open(name, "wb") as file:
            file.truncate(8_000_000_000)
    except OSError as error:
        print(error)
""",
        _giant,
    ),
    Attack(
        "many files",
        "leave 3,000 files in the temporary folder",
        """
import os, tempfile
folder = os.path.join(tempfile.gettempdir(), MARK + "-many")
os.mkdir(folder)
for number in range(3000):
    open(os.path.join(folder, str(number)), "w").close()
""",
        lambda observed: "",
    ),
    Attack(
        "empty files",
        "make 100,000 empty files, which use no space",
        """
import os, tempfile, time
folder = os.path.join(tempfile.gettempdir(), MARK + "-many")
os.mkdir(folder)
for number in range(100_000):
    os.mknod(os.path.join(folder, str(number)))
    if number % 20_000 == 19_999: time.sleep(0.3)
""",
        _files,
        10.0,
    ),
    Attack(
        "daemon",
        "leave a process behind, forked twice in a session of its own",
        """
import os, time
child = os.fork()
if child == 0:
    try:
        os.setsid()
    except OSError:
        pass
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
# A program that ends at once is ended with its group before the process has left it.
os.waitpid(child, 0)
""",
        lambda observed: "",
    ),
    Attack(
        "afterwards",
        "keep running in a thread after the call has returned",
        "import threading\ndef work():\n    while True: pass\n"
        "threading.Thread(target=work, daemon=True).start()",
        _busy,
    ),
    Attack("os._exit", "end the interpreter", "import os\nos._exit(0)", broken),
    Attack("SystemExit", "leave by exit()", "raise SystemExit(3)", broken),
    Attack("crash", "read address 0", "import ctypes\nctypes.string_at(0)", broken),
    Attack(
        "deep recursion",
        "overflow the C stack",
        "import sys\nsys.setrecursionlimit(10**9)\n"
        "def f(x): return repr(x)\nx = []\nfor _ in range(10**6): x = [x]\nf(x)",
        broken,
    ),
    Attack("closed output", "close stdout and stderr", "import os\nos.close(1)\nos.close(2)", broken),
    Attack("closed handles", "close every file descriptor", "import os\nos.closerange(0, 65536)", broken),
    Attack(
        "forged answers",
        "write forged answers to every file descriptor",
        """
import json, os
forged = json.dumps({"id": "0" * 32, "exit": "ok", "value": "forged"}).encode() + b"\\n"
for handle in range(3, 256):
    try:
        os.write(handle, forged * 100)
    except OSError:
        pass
""",
        broken,
    ),
    Attack(
        "answers without end",
        "write 100 MB of garbage to every file descriptor",
        """
import os
garbage = b"x" * 1_000_000
for handle in range(3, 256):
    try:
        for _ in range(100):
            os.write(handle, garbage)
    except OSError:
        pass
""",
        lambda observed: broken(observed) or late(observed),
        3.0,
    ),
    Attack("twin", "let a forked copy run on as if it were the interpreter", "import os\nos.fork()", broken),
    Attack(
        "poisoned interpreter",
        "replace functions that the interpreter itself uses",
        "import builtins, json, os\njson.dumps = json.loads = lambda *rest, **more: '{}'\n"
        "builtins.compile = builtins.exec = None\nos.write = None",
        broken,
    ),
)
