"""An interpreter in a process of its own: code goes in, bounded output comes out.

A call that takes too long is interrupted first, as by Ctrl-C; what does not stop then is ended. What no limit
on one process or one file bounds is looked at from outside: all memory, all threads, the whole disk. The
program that runs inside is one text, so that it reads no file that could have been changed.
"""

import json
import os
import re
import secrets
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from signoff.graph.errors import SetupError
from signoff.tools.processes.helpers import base_python, program_text
from signoff.tools.sandbox.base import MB, TOO_MUCH_OUTPUT, Bounds, Exit, Output, PythonResult
from signoff.tools.sandbox.confine import interrupt
from signoff.tools.sandbox.folder import OwnFolder

# In the order of their imports; the last one is the program itself.
_PARTS = ("confine", "adapt", "worker")
_BEGIN = """
import sys, types
for name, file, text in {parts!r}:
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__ = file
    exec(compile(text, file, "exec"), module.__dict__)
module.main()
"""


_FILES = [(f"signoff.tools.sandbox.{name}", str(Path(__file__).parent / f"{name}.py")) for name in _PARTS]
PROGRAM = _BEGIN.format(parts=[(name, file, program_text(file)) for name, file in _FILES])

_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/nix/store")
_CONFIGURATION = (
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"),
    *("/etc/localtime", "/etc/fonts", "/etc/mime.types"),
)
_MACHINE = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system/cpu")
_OWN_PROCESS = ("/proc/self/maps", "/proc/self/stat", "/proc/self/statm", "/proc/self/status")


def packages() -> list[str]:
    """The folders in which `import` finds packages."""
    paths = sysconfig.get_paths()
    return list(dict.fromkeys(os.path.realpath(paths[name]) for name in ("purelib", "platlib")))


def readable() -> list[str]:
    """What Python and its packages need of this machine. Raises SetupError like `base_python`."""
    library = [folder for folder in [sysconfig.get_config_var("LIBDIR")] if folder]
    python = [base_python(), os.path.dirname(os.__file__), os.path.join(sys.base_prefix, "lib"), *library]
    return [*_SYSTEM, *_CONFIGURATION, *_MACHINE, *_OWN_PROCESS, *python, *packages()]


EVERY = 0.04
"""Seconds between two looks; what is used or written in between is not prevented."""

# Anonymous, shared and swapped memory, and the tables for it; pages of files can be read again.
_USED = re.compile(rb"^(?:RssAnon|RssShmem|VmSwap|VmPTE|HugetlbPages):\s*(\d+)", re.MULTILINE)
_THREADS = re.compile(rb"^Threads:\s*(\d+)", re.MULTILINE)


def usage(process: int) -> tuple[int, int]:
    """The bytes of memory and the threads that a process uses; nothing when it has ended.

    Each of its descriptors counts as a full socket: what is in buffers belongs to no process.
    """
    try:
        status = Path(f"/proc/{process}/status").read_bytes()
    except OSError:
        return 0, 0
    memory = sum(map(int, _USED.findall(status))) * 1024
    # Closed to root without the capability for it; or it has ended.
    with suppress(OSError):
        size = int(Path("/proc/sys/net/core/wmem_default").read_text())
        memory += len(os.listdir(f"/proc/{process}/fd")) * size
    return memory, sum(map(int, _THREADS.findall(status)))


def disk_exceeded(states: "Mapping[str, os.statvfs_result]", bounds: Bounds) -> str:
    """What of the file systems of folders has been used since they had these states, if it is too much.

    Whoever used it: then a file counts that was deleted and is still open. Files count where the file system
    has a number for them.
    """
    for folder, before in states.items():
        try:
            now = os.statvfs(folder)
        except OSError:
            return "The folder of this code was deleted while it ran, and the interpreter was ended."
        if (before.f_bavail - now.f_bavail) * now.f_frsize > bounds.disk:
            return f"The disk was filling up while the code ran, past {bounds.disk // MB:,} MB: Python ended."
        if before.f_ffree - now.f_ffree > bounds.files:
            return "Far too many files were made while the code ran, and the interpreter was ended."
    return ""


_lock = Lock()
_starters: dict[int, ThreadPoolExecutor] = {}


def spawn(command: Sequence[str], env: Mapping[str, str], channel: int) -> "subprocess.Popen[bytes]":
    """Starts `command` as the leader of a session of its own, which inherits `channel`; stdin is empty.

    Linux sends the parent-death signal when the *thread* that started the child ends, so one thread starts
    all children. Raises OSError.
    """
    with _lock:
        # A forked child does not have the thread.
        starter = _starters.setdefault(os.getpid(), ThreadPoolExecutor(1, "signoff-spawn"))
    return starter.submit(
        subprocess.Popen,
        command,
        bufsize=0,
        env=dict(env),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[channel],
        start_new_session=True,
    ).result()


# A value has 100,000 characters, of which JSON may write twelve for one.
_MOST_OF_AN_ANSWER = 2_000_000
_EXITS = ("ok", "error", "memory", "large", "interrupted")
_TO_START = 20.0
_CHUNK = 65_536
_READ_EVERY = 0.005
"""Seconds between two looks at the output. A reader that waits would be woken up by each `print`."""
_AGAIN = 0.5
_INTERRUPTS = 4
"""Code is interrupted so often, so many seconds apart: on its way out it may wait, as a pool for threads."""
_INTERRUPTED = "The code was interrupted. The variables are still there; what was half changed stays so."
_NOT_INTERRUPTED = "The code did not stop when interrupted, and Python was ended; what it half changed stays."


@dataclass
class _Call:
    """A request in progress, and what has come back so far. nonce: the id of its answer; None for the first
    request. deadline: when it is interrupted."""

    sending: bytes
    nonce: str | None
    deadline: float
    output: Output
    answers: bytearray = field(default_factory=bytearray)
    answer: dict[str, Any] | None = None
    interrupts: int = 0
    exit: Exit | None = None
    why: str = ""

    @property
    def is_over(self) -> bool:
        return self.answer is not None or self.exit is not None

    def end(self, exit: Exit, why: str) -> None:
        self.exit, self.why = exit, why


class ProcessInterpreter:
    """A running interpreter. Its process group contains all that it starts, and is stopped between calls.

    Nothing it sends is trusted: an answer counts only for the call with the same random id, and anything that
    is not an answer ends the interpreter. settings, env: what it begins with. folder: where the code writes.
    fits: whether there is room for what it uses now. disk: folders whose file systems are watched. Raises
    SetupError when it does not start.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        env: Mapping[str, str],
        folder: OwnFolder,
        bounds: Bounds,
        fits: Callable[[], bool],
        disk: Sequence[str] = (),
    ) -> None:
        self.folder, self._bounds, self._fits, self._disk = folder, bounds, fits, disk
        self._looked = 0.0
        self.alive = True
        self._ending = Lock()
        self._channel, inside = socket.socketpair()
        command = [base_python(), "-I", "-S", "-B", "-c", PROGRAM, str(inside.fileno())]
        with inside:
            try:
                self._process = spawn(command, env, inside.fileno())
            except OSError as error:
                self._channel.close()
                raise SetupError(f"Python cannot be started in the sandbox: {error}.") from error
        self._files = [file for file in (self._channel, self._process.stdout, self._process.stderr) if file]
        for file in self._files:
            os.set_blocking(file.fileno(), False)
        self._poll = select.poll()
        self._begin({**settings, "own": folder.path, "packages": packages()})

    @property
    def memory(self) -> int:
        return usage(self._process.pid)[0]

    def run(self, code: str, timeout: float) -> PythonResult:
        """Runs `code`. Afterwards `alive` says whether the variables are still there."""
        started = time.monotonic()
        nonce = secrets.token_hex(16)
        call = self._exchange({"id": nonce, "code": code}, started + timeout, nonce)
        answer = call.answer if call.exit is None else None
        if answer is None:
            self.kill()
            call.end(call.exit or "killed", call.why or "The interpreter exited.")
        else:
            call.end(*self._ending_of(answer, call))
        value = answer["value"] if answer else None
        result = call.output.result(call.exit or "killed", value, started, call.why)
        return self.folder.finish(result, answer or {})

    def _ending_of(self, answer: Mapping[str, Any], call: _Call) -> tuple[Exit, str]:
        exit: Exit = answer["exit"]
        if answer["exit"] == "interrupted":
            return ("timeout", _INTERRUPTED) if call.interrupts else ("error", "")
        if answer["exit"] == "large":
            return "error", f"A file may have at most {self._bounds.file // MB:,} MB."
        used, reserved = self._bounds.memory // MB, self._bounds.addresses // MB
        bound = f"An interpreter may use {used:,} MB of memory, and reserve {reserved:,} MB."
        return exit, bound if exit == "memory" else ""

    def stop(self) -> None:
        with self._ending:
            if self.alive:
                self._signal(signal.SIGKILL)

    def kill(self) -> None:
        with self._ending:
            if not self.alive:
                return
            self.alive = False
            # Before the wait: until then no other process can have this id.
            self._signal(signal.SIGKILL)
            self._process.wait()
        for file in self._files:
            file.close()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _begin(self, settings: Mapping[str, Any]) -> None:
        call = self._exchange(settings, time.monotonic() + _TO_START, None)
        answer = call.answer or {}
        if "ready" in answer:
            return
        stderr = call.output.result("killed", None, 0, "").stderr.strip()
        reason = answer.get("failed") or stderr or call.why or "it ended at once"
        self.kill()
        raise SetupError(f"Python cannot be started in the sandbox: {reason}.")

    def _exchange(self, request: Mapping[str, Any], deadline: float, nonce: str | None) -> _Call:
        call = _Call(json.dumps(request).encode() + b"\n", nonce, deadline, Output(self._bounds))
        # While it starts, none of the model's code runs: what fills the disk then is somebody else's.
        disk = {folder: os.statvfs(folder) for folder in self._disk if nonce}
        look = time.monotonic() + EVERY
        self._serve(call, 0.0)
        self._signal(signal.SIGCONT)
        is_full = False
        while not call.is_over:
            self._serve(call, 0.0 if is_full else _READ_EVERY)
            is_full = self._read_output(call)
            if not call.is_over and time.monotonic() >= call.deadline:
                self._stop_late(call)
            if time.monotonic() >= look:
                self._look(call, disk)
                look = time.monotonic() + EVERY
        # What calls took stays after them, however short they were.
        if nonce and call.exit is None and time.monotonic() - self._looked > EVERY / 10:
            self._look(call, disk)
        self._signal(signal.SIGSTOP)
        self._read_output(call)
        return call

    def _stop_late(self, call: _Call) -> None:
        if call.nonce is None or call.interrupts == _INTERRUPTS:
            call.end("timeout", _NOT_INTERRUPTED)
            return
        interrupt(self._process.pid)
        call.interrupts += 1
        call.deadline += _AGAIN

    def _look(self, call: _Call, disk: "Mapping[str, os.statvfs_result]") -> None:
        used, threads = usage(self._process.pid)
        self._looked = time.monotonic()
        most, most_together = self._bounds.memory // MB, self._bounds.memory_together // MB
        if used > self._bounds.memory:
            call.end("memory", f"The code used more than {most:,} MB of memory, and Python was ended.")
        elif not self._fits():
            call.end("memory", f"All interpreters used more than {most_together:,} MB; this one was ended.")
        elif threads > 2 * self._bounds.threads:
            call.end("killed", f"The code ran more than {self._bounds.threads} threads and was ended.")
        elif why := disk_exceeded(disk, self._bounds):
            call.end("killed", why)

    def _serve(self, call: _Call, seconds: float) -> None:
        """Sends and receives what is possible now, after waiting for it for at most so long."""
        self._poll.register(self._channel, select.POLLIN | (select.POLLOUT if call.sending else 0))
        for _, events in self._poll.poll(seconds * 1000):
            # The receiving notices when it has ended.
            with suppress(ConnectionError):
                if events & select.POLLOUT:
                    call.sending = call.sending[self._channel.send(call.sending[:_CHUNK]) :]
            if events & ~select.POLLOUT:
                self._receive(call)

    def _receive(self, call: _Call) -> None:
        try:
            data = self._channel.recv(_CHUNK)
        except ConnectionError:
            data = b""
        if not data:
            call.exit = call.exit or "killed"
        call.answers += data
        line, end, _ = call.answers.partition(b"\n")
        if not end and len(call.answers) <= _MOST_OF_AN_ANSWER:
            return
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, dict) and (call.nonce is None or _is_answer(answer, call.nonce)):
            call.answer = answer
        else:
            call.end("killed", "The code corrupted the interpreter, which was ended.")

    def _read_output(self, call: _Call) -> bool:
        """Whether there was so much that there may be more."""
        is_full = False
        for name, stream in (("stdout", self._process.stdout), ("stderr", self._process.stderr)):
            if stream and (data := stream.read(_CHUNK)):
                if not call.output.add(name, data):
                    call.end("killed", TOO_MUCH_OUTPUT)
                is_full = is_full or len(data) == _CHUNK
        return is_full


def _is_answer(answer: Mapping[str, Any], nonce: str) -> bool:
    is_text = isinstance(answer.get("value"), str | None)
    return answer.get("id") == nonce and answer.get("exit") in _EXITS and is_text
