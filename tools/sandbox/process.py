"""Interpreters in processes of their own: code goes in, bounded output comes out.

Each thread that needs an interpreter has one, up to a limit, and all of them end with this process.
"""

import json
import os
import re
import secrets
import selectors
import signal
import subprocess
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import BoundedSemaphore, Lock
from typing import Any

from signoff.graph.errors import SetupError
from signoff.tools.sandbox.base import Bounds, Captured, Exit, PythonResult
from signoff.tools.sandbox.watch import EVERY, EVERY_DISK, DiskGuard, family, files_in, over_memory

_lock = Lock()
_starters: dict[int, ThreadPoolExecutor] = {}


def spawn(command: Sequence[str], env: Mapping[str, str], handles: tuple[int, int, int, int]) -> int:
    """Starts `command` as the leader of a session of its own and returns its process id.

    handles: the file descriptors of its stdout and stderr, and two that it inherits under the same numbers.
    stdin is empty. Linux sends the parent-death signal when the *thread* that started the child ends, so one
    thread starts all children. Raises OSError.
    """
    with _lock:
        # A forked child does not have the thread.
        starter = _starters.setdefault(os.getpid(), ThreadPoolExecutor(1, "signoff-spawn"))
    out, error, *passed = handles
    process = starter.submit(
        subprocess.Popen,
        command,
        env=dict(env),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=error,
        pass_fds=passed,
        start_new_session=True,
    ).result()
    # The caller waits for the process by its id; this keeps Popen from warning that nobody did.
    process.returncode = 0
    return process.pid


_MOST_OF_AN_ANSWER = 1_000_000
_TO_START = 20.0
_CHUNK = 65_536
_NO_RIGHT = re.compile(r"Errno (?:1|13|16|18|30)\]")  # EPERM, EACCES, EBUSY, EXDEV, EROFS
_END = 2_000


@dataclass(frozen=True)
class Launch:
    """How an interpreter is started.

    command: the program, to which the numbers of two file descriptors are added. settings: its first request.
    disk: folders in which files are counted, and on whose file systems the free space is watched. in_memory:
    folders of its own, in memory, whose files are counted. refused: the note for a call that failed because
    it had no right to write. clean: called when the interpreter has ended.
    """

    command: Sequence[str]
    env: Mapping[str, str]
    settings: Mapping[str, Any]
    disk: Sequence[str] = ()
    in_memory: Sequence[str] = ()
    refused: str = ""
    clean: Callable[[], None] = field(default=lambda: None)


@dataclass
class _Call:
    """A request in progress, and what has come back so far."""

    sending: bytes
    stdout: Captured
    stderr: Captured
    answers: bytearray = field(default_factory=bytearray)
    answer: dict[str, Any] | None = None
    ended: Exit | None = None
    why: str = ""

    @property
    def written(self) -> int:
        return self.stdout.total + self.stderr.total


class Interpreter:
    """A running interpreter. Its process group contains all that it starts, and is stopped between calls.

    Nothing it sends is trusted: an answer counts only for the call with the same random id, and anything that
    is not an answer ends the interpreter. Raises SetupError when it does not start.
    """

    def __init__(self, launch: Launch, bounds: Bounds) -> None:
        self._launch, self._bounds = launch, bounds
        self._alive = True
        self._ending = Lock()
        handles: list[int] = []
        try:
            handles += [*os.pipe(), *os.pipe(), *os.pipe(), *os.pipe()]
            out_r, out_w, error_r, error_w, answers_r, answers_w, requests_r, requests_w = handles
            command = [*launch.command, str(requests_r), str(answers_w)]
            self._process = spawn(command, launch.env, (out_w, error_w, requests_r, answers_w))
        except OSError as error:
            for handle in handles:
                os.close(handle)
            launch.clean()
            raise SetupError(f"Python cannot be started in the sandbox: {error}.") from error
        for handle in (out_w, error_w, answers_w, requests_r):
            os.close(handle)
        self._out, self._error, self._answers, self._requests = out_r, error_r, answers_r, requests_w
        for handle in (out_r, error_r, answers_r, requests_w):
            os.set_blocking(handle, False)
        self.held: Mapping[str, bool | str] = self._begin()

    @property
    def alive(self) -> bool:
        return self._alive

    def run(self, code: str, timeout: float, since: float = 0.0) -> PythonResult:
        """Runs `code`. Afterwards `alive` says whether the variables are still there.

        since: files made before are those of an earlier call, in seconds since 1970.
        """
        started = time.monotonic()
        nonce = secrets.token_hex(16)
        self._signal(signal.SIGCONT)
        call = self._exchange({"id": nonce, "code": code}, timeout, nonce, since)
        if call.answer is None or not _is_answer(call.answer):
            self.kill()
            call.ended = call.ended or "killed"
            call.why = call.why or "The interpreter exited."
        else:
            self._signal(signal.SIGSTOP)
        answer = call.answer if self._alive and call.answer else {"exit": call.ended or "killed"}
        if answer["exit"] == "error" and _NO_RIGHT.search(call.stderr.text()[-_END:]):
            call.why = self._launch.refused
        return PythonResult(
            exit=answer["exit"],
            stdout=call.stdout.text(),
            stderr=call.stderr.text(),
            value=answer.get("value"),
            seconds=time.monotonic() - started,
            truncated=call.stdout.truncated or call.stderr.truncated,
            note=call.why,
        )

    def sees(self, view: Callable[[int], bool]) -> bool:
        """Whether `view` holds for the process that runs the code, passed by its id outside the sandbox."""
        return view(family(self._process)[-1])

    def stop(self) -> None:
        """Ends the processes; may be called from any thread. A running call notices it and cleans up."""
        with self._ending:
            if self._alive:
                self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """Ends the interpreter and all that it started, and frees its resources; not during a call."""
        with self._ending:
            if not self._alive:
                return
            self._alive = False
            # Before the wait: until then no other process can have this id.
            self._signal(signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self._process, 0)
        for handle in (self._out, self._error, self._answers, self._requests):
            os.close(handle)
        self._launch.clean()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process, number)

    def _begin(self) -> Mapping[str, bool | str]:
        call = self._exchange(self._launch.settings, _TO_START, None)
        answer = call.answer or {}
        if isinstance(answer.get("ready"), dict):
            self._signal(signal.SIGSTOP)
            return dict(answer["ready"])
        reason = answer.get("failed") or call.stderr.text().strip() or call.why or "it ended at once"
        self.kill()
        raise SetupError(f"Python cannot be started in the sandbox: {reason}.")

    def _exchange(
        self, message: Mapping[str, Any], timeout: float, nonce: str | None, since: float = 0.0
    ) -> _Call:
        kept = self._bounds.kept
        call = _Call(json.dumps(message).encode() + b"\n", Captured(kept), Captured(kept))
        deadline = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            for handle in (self._out, self._error, self._answers):
                selector.register(handle, selectors.EVENT_READ)
            selector.register(self._requests, selectors.EVENT_WRITE)
            self._loop(selector, call, deadline, nonce, since)
        for handle in (self._out, self._error):
            self._read(handle, call, most=4)
        return call

    def _loop(
        self,
        selector: selectors.BaseSelector,
        call: _Call,
        deadline: float,
        nonce: str | None,
        since: float,
    ) -> None:
        # While it starts, none of the model's code runs: what fills the disk then is somebody else's.
        watched = self._launch.disk if nonce else ()
        disk = DiskGuard(watched, self._bounds.disk, self._bounds.files, self._still, since)
        look = look_at_memory = time.monotonic() + EVERY_DISK
        while call.answer is None and call.ended is None:
            now = time.monotonic()
            if now >= deadline:
                call.ended, call.why = "timeout", "The time limit was reached, and the interpreter was ended."
                return
            for key, _ in selector.select(min(deadline, look) - now):
                if not self._serve(key.fd, call, nonce):
                    selector.unregister(key.fd)
            if time.monotonic() >= look:
                look = time.monotonic() + EVERY_DISK
                if why := disk.over():
                    call.ended, call.why = "killed", why
                elif look >= look_at_memory:
                    look_at_memory = look + EVERY - EVERY_DISK
                    self._look(call)

    def _still(self, wanted: bool) -> None:
        self._signal(signal.SIGSTOP if wanted else signal.SIGCONT)

    def _look(self, call: _Call) -> None:
        if over_memory(self._process, self._bounds.memory_together):
            call.ended, call.why = "memory", "The processes together used too much memory and were ended."
        elif any(files_in(self._process, each) > self._bounds.files for each in self._launch.in_memory):
            call.ended, call.why = "killed", "The code made far too many files and was ended."

    def _serve(self, handle: int, call: _Call, nonce: str | None) -> bool:
        """Reads and writes what is possible now; False when nothing more will come."""
        if handle == self._requests:
            return self._send(call)
        open_still = self._read(handle, call)
        if handle == self._answers:
            if not open_still:
                call.ended = call.ended or "killed"
            self._take(call, nonce)
        if call.written > self._bounds.written:
            call.ended, call.why = "killed", "The code wrote far too much output and was ended."
        return open_still

    def _send(self, call: _Call) -> bool:
        try:
            call.sending = call.sending[os.write(self._requests, call.sending[:_CHUNK]) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        return bool(call.sending)

    def _read(self, handle: int, call: _Call, most: int = 1) -> bool:
        for _ in range(most):
            try:
                data = os.read(handle, _CHUNK)
            except BlockingIOError:
                return True
            if not data:
                return False
            if handle == self._answers:
                call.answers += data
            else:
                (call.stdout if handle == self._out else call.stderr).add(data)
        return True

    def _take(self, call: _Call, nonce: str | None) -> None:
        line, end, _ = call.answers.partition(b"\n")
        if not end and len(call.answers) <= _MOST_OF_AN_ANSWER:
            return
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, dict) and (nonce is None or answer.get("id") == nonce):
            call.answer = answer
        else:
            call.ended, call.why = "killed", "The code corrupted the interpreter, which was ended."


def _is_answer(answer: Mapping[str, Any]) -> bool:
    value = answer.get("value")
    return answer.get("exit") in ("ok", "error", "memory") and (value is None or isinstance(value, str))


MOST = 8
"""How many interpreters run at once; the least recently used one is ended to make room."""

LOST = "The variables of earlier calls are gone."

_REMEMBERED = 1_000


@dataclass
class _Seat:
    """The interpreter of one thread; the lock is held while a call runs."""

    lock: Lock = field(default_factory=Lock)
    interpreter: Interpreter | None = None
    lost: bool = False


class Pool:
    """Runs the code of each thread in that thread's interpreter, with at most `most` interpreters at once."""

    def __init__(self, start: Callable[[], Interpreter], most: int = MOST) -> None:
        self._start = start
        self._most = most
        self._turns = BoundedSemaphore(most)
        self._lock = Lock()
        self._seats: OrderedDict[str, _Seat] = OrderedDict()
        self._alive: set[Interpreter] = set()
        self._last_end = 0.0
        self._finalizer = weakref.finalize(self, _end, self._alive, os.getpid())

    def run(self, code: str, timeout: float, thread: str | None) -> PythonResult:
        """See `Sandbox.run`."""
        if thread is None:
            with self._turns:
                return self._once(code, timeout)
        seat = self._seat(thread)
        with seat.lock, self._turns:
            lost, seat.lost = seat.lost, False
            if seat.interpreter is None:
                seat.interpreter = self._started()
            result = self._run_in(seat.interpreter, code, timeout)
            if not seat.interpreter.alive or self._seats.get(thread) is not seat:
                lost = True
                self._drop(seat.interpreter)
                seat.interpreter = None
            note = f"{result.note} {LOST}".strip() if lost else result.note
            return replace(result, note=note)

    def close(self, thread: str | None) -> None:
        """See `Sandbox.close`. A running call ends as `killed`."""
        with self._lock:
            names = list(self._seats) if thread is None else [thread]
            seats = [seat for name in names if (seat := self._seats.pop(name, None))]
            idle = [seat for seat in seats if seat.lock.acquire(blocking=False)]
        for seat in seats:
            if seat.interpreter:
                seat.interpreter.stop()
        for seat in idle:
            if seat.interpreter:
                self._drop(seat.interpreter)
                seat.interpreter = None
            seat.lock.release()

    def _once(self, code: str, timeout: float) -> PythonResult:
        interpreter = self._started()
        try:
            return self._run_in(interpreter, code, timeout)
        finally:
            self._drop(interpreter)

    def _run_in(self, interpreter: Interpreter, code: str, timeout: float) -> PythonResult:
        try:
            return interpreter.run(code, timeout, self._last_end)
        finally:
            self._last_end = time.time()

    def _seat(self, thread: str) -> _Seat:
        with self._lock:
            seat = self._seats.setdefault(thread, _Seat())
            self._seats.move_to_end(thread)
            spare = [name for name, old in self._seats.items() if old.interpreter is None and old is not seat]
            for name in spare[: max(len(self._seats) - _REMEMBERED, 0)]:
                del self._seats[name]
            return seat

    def _started(self) -> Interpreter:
        """Returns a new interpreter, after making room for it."""
        with self._lock:
            for seat in list(self._seats.values()):
                if len(self._alive) < self._most:
                    break
                if seat.interpreter and seat.lock.acquire(blocking=False):
                    seat.interpreter.kill()
                    self._alive.discard(seat.interpreter)
                    seat.interpreter, seat.lost = None, True
                    seat.lock.release()
            interpreter = self._start()
            self._alive.add(interpreter)
            return interpreter

    def _drop(self, interpreter: Interpreter) -> None:
        interpreter.kill()
        with self._lock:
            self._alive.discard(interpreter)


def _end(alive: set[Interpreter], owner: int) -> None:
    # A fork of this process has the set, but does not own the processes.
    if os.getpid() == owner:
        for interpreter in list(alive):
            interpreter.kill()
