"""Interpreters in processes of their own: code goes in, bounded output comes out.

Each thread that needs an interpreter has one, up to a limit, and all of them end with this process. A call
that takes too long is interrupted first, as by Ctrl-C; what does not stop then is ended.
"""

import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
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
from signoff.tools.sandbox.base import MB, Bounds, Captured, Exit, PythonResult
from signoff.tools.sandbox.confine import send_signal
from signoff.tools.sandbox.watch import EVERY, DiskGuard, memory, resident

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


# A value has 100,000 characters, of which JSON may write twelve for one.
_MOST_OF_AN_ANSWER = 2_000_000
_TO_START = 20.0
_CHUNK = 65_536
_TO_STOP = 2.0
"""How long code may go on after an interrupt, in seconds; halfway there is a second one."""
_INTERRUPTED = "The code was interrupted. The variables are still there; what was half changed stays so."
_NOT_INTERRUPTED = (
    "The code did not stop when it was interrupted (it ran in C code, or caught the interrupt), and the "
    "interpreter was ended; what was half changed stays so."
)


@dataclass(frozen=True)
class Launch:
    """How an interpreter is started.

    command: the program, to which the numbers of two file descriptors are added. settings: its first request.
    disk: folders in which files are counted, and on whose file systems the free space is watched. finish:
    completes a result, with the worker's answer. outdated: why a new interpreter is needed; empty if it is
    not. clean: called when the interpreter has ended."""

    command: Sequence[str]
    env: Mapping[str, str]
    settings: Mapping[str, Any]
    disk: Sequence[str] = ()
    finish: Callable[[PythonResult, Mapping[str, Any]], PythonResult] = lambda result, _: result
    outdated: Callable[[], str] = lambda: ""
    clean: Callable[[], None] = lambda: None


@dataclass
class _Call:
    """A request in progress, and what has come back so far. stops: when it is interrupted, and how often
    that has happened.
    """

    sending: bytes
    stdout: Captured
    stderr: Captured
    nonce: str | None
    deadline: float
    answers: bytearray = field(default_factory=bytearray)
    answer: dict[str, Any] | None = None
    interrupts: int = 0
    ended: Exit | None = None
    why: str = ""

    @property
    def written(self) -> int:
        return self.stdout.total + self.stderr.total

    def end(self, how: Exit, why: str) -> None:
        self.ended, self.why = how, why


class Interpreter:
    """A running interpreter. Its process group contains all that it starts, and is stopped between calls.

    Nothing it sends is trusted: an answer counts only for the call with the same random id, and anything that
    is not an answer ends the interpreter. fits: whether there is room for what it uses now. Raises SetupError
    when it does not start.
    """

    def __init__(self, launch: Launch, bounds: Bounds, fits: Callable[[], bool] = lambda: True) -> None:
        self._fits = fits
        self._memory: int | None = None
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

    @property
    def memory(self) -> int:
        """The bytes that it uses, as they were when they were last looked at."""
        if self._memory is None:
            self._memory = memory(self._process)
        return self._memory

    def outdated(self) -> str:
        return self._launch.outdated()

    def run(self, code: str, timeout: float, since: float = 0.0) -> PythonResult:
        """Runs `code`. Afterwards `alive` says whether the variables are still there.

        since: files made before are those of an earlier call, in seconds since 1970.
        """
        started = time.monotonic()
        nonce = secrets.token_hex(16)
        self._signal(signal.SIGCONT)
        call = self._exchange({"id": nonce, "code": code}, started + timeout, nonce, since)
        whole = call.ended is None and call.answer is not None and _is_answer(call.answer)
        answer = call.answer if whole else None
        if answer is None:
            self.kill()
            call.end(call.ended or "killed", call.why or "The interpreter exited.")
        else:
            self._signal(signal.SIGSTOP)
            self._memory = None
            call.end(*self._ending_of(answer, call))
        result = PythonResult(
            exit=call.ended or "killed",
            stdout=call.stdout.text(),
            stderr=call.stderr.text(),
            value=None if answer is None else answer["value"],
            seconds=time.monotonic() - started,
            truncated=call.stdout.truncated or call.stderr.truncated,
            note=call.why,
        )
        return self._launch.finish(result, answer or {})

    def _ending_of(self, answer: Mapping[str, Any], call: _Call) -> tuple[Exit, str]:
        exit: Exit = answer["exit"]
        if answer["exit"] == "interrupted":
            return ("timeout", _INTERRUPTED) if call.interrupts else ("error", "")
        used, reserved = self._bounds.memory // MB, self._bounds.addresses // MB
        bound = f"An interpreter may use {used:,} MB of memory, and reserve {reserved:,} MB."
        return exit, bound if exit == "memory" else ""

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

    def _interrupt(self) -> None:
        # To the main thread alone: another one could hand it on late, in the next call.
        if sys.platform == "linux":
            send_signal(self._process, signal.SIGINT)
        else:
            os.kill(self._process, signal.SIGINT)

    def _begin(self) -> Mapping[str, bool | str]:
        call = self._exchange(self._launch.settings, time.monotonic() + _TO_START, None)
        answer = call.answer or {}
        if isinstance(answer.get("ready"), dict):
            self._signal(signal.SIGSTOP)
            return dict(answer["ready"])
        reason = answer.get("failed") or call.stderr.text().strip() or call.why or "it ended at once"
        self.kill()
        raise SetupError(f"Python cannot be started in the sandbox: {reason}.")

    def _exchange(
        self, message: Mapping[str, Any], deadline: float, nonce: str | None, since: float = 0.0
    ) -> _Call:
        kept = self._bounds.kept
        sending = json.dumps(message).encode() + b"\n"
        call = _Call(sending, Captured(kept), Captured(kept), nonce, deadline)
        with selectors.DefaultSelector() as selector:
            for handle in (self._out, self._error, self._answers):
                selector.register(handle, selectors.EVENT_READ)
            selector.register(self._requests, selectors.EVENT_WRITE)
            self._loop(selector, call, since)
        for handle in (self._out, self._error):
            self._read(handle, call, most=4)
        return call

    def _loop(self, selector: selectors.BaseSelector, call: _Call, since: float) -> None:
        # While it starts, none of the model's code runs: what fills the disk then is somebody else's.
        watched = self._launch.disk if call.nonce else ()
        disk = DiskGuard(watched, self._bounds.disk, self._bounds.files, since)
        look = time.monotonic() + EVERY
        while call.answer is None and call.ended is None:
            now = time.monotonic()
            for key, _ in selector.select(max(min(call.deadline, look) - now, 0)):
                if not self._serve(key.fd, call):
                    selector.unregister(key.fd)
            if call.answer is None and time.monotonic() >= call.deadline:
                self._stop_late(call)
            if time.monotonic() >= look:
                self._look(call, disk)
                look = time.monotonic() + EVERY
        # What a call took stays after it, however short it was.
        if call.nonce and call.ended is None and resident(self._process) > self._bounds.memory // 8:
            self._look(call, disk)

    def _stop_late(self, call: _Call) -> None:
        if call.nonce is None or call.interrupts == 2:
            call.end("timeout", _NOT_INTERRUPTED)
            return
        self._interrupt()
        call.interrupts += 1
        call.deadline = time.monotonic() + _TO_STOP / 2

    def _look(self, call: _Call, disk: DiskGuard) -> None:
        self._memory = memory(self._process)
        if self.memory > self._bounds.memory:
            most = self._bounds.memory // MB
            call.end(
                "memory", f"The code used more than {most:,} MB of memory, and the interpreter was ended."
            )
        elif not self._fits():
            most = self._bounds.memory_together // MB
            call.end("memory", f"All interpreters used more than {most:,} MB of memory; this one was ended.")
        elif why := disk.over():
            call.end("killed", why)

    def _serve(self, handle: int, call: _Call) -> bool:
        """Reads and writes what is possible now; False when nothing more will come."""
        if handle == self._requests:
            return self._send(call)
        open_still = self._read(handle, call)
        if handle == self._answers:
            if not open_still:
                call.ended = call.ended or "killed"
            self._take(call)
        if call.written > self._bounds.written:
            call.end("killed", "The code wrote far too much output and was ended.")
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

    def _take(self, call: _Call) -> None:
        line, end, _ = call.answers.partition(b"\n")
        if not end and len(call.answers) <= _MOST_OF_AN_ANSWER:
            return
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, dict) and (call.nonce is None or answer.get("id") == call.nonce):
            call.answer = answer
        else:
            call.end("killed", "The code corrupted the interpreter, which was ended.")


def _is_answer(answer: Mapping[str, Any]) -> bool:
    value = answer.get("value")
    how = ("ok", "error", "memory", "interrupted")
    return answer.get("exit") in how and (value is None or isinstance(value, str))


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
    """Runs the code of each thread in that thread's interpreter, with at most `most` interpreters at once.

    launch: how the interpreter of a thread is started; for None, one that is used once.
    """

    def __init__(self, launch: Callable[[str | None], Launch], bounds: Bounds, most: int = MOST) -> None:
        self._launch, self._bounds, self._most = launch, bounds, most
        self._turns = BoundedSemaphore(most)
        self._lock = Lock()
        self._seats: OrderedDict[str, _Seat] = OrderedDict()
        self._alive: set[Interpreter] = set()
        self._last_end = 0.0
        self._finalizer = weakref.finalize(self, _end, self._alive, os.getpid())

    def run(self, code: str, timeout: float, thread: str | None) -> PythonResult:
        """See `Sandbox.run`."""
        seat = _Seat() if thread is None else self._seat(thread)
        with seat.lock, self._turns:
            lost, seat.lost = seat.lost, False
            why = seat.interpreter.outdated() if seat.interpreter else ""
            if why:
                self._empty(seat)
            if seat.interpreter is None:
                seat.interpreter = self._started(thread)
            interpreter = seat.interpreter
            try:
                result = interpreter.run(code, timeout, self._last_end)
            finally:
                self._last_end = time.time()
                if not interpreter.alive or thread is None or self._seats.get(thread) is not seat:
                    self._empty(seat)
            gone = thread is not None and (lost or bool(why) or seat.interpreter is None)
            if not gone:
                return result
            return replace(result, note=" ".join(filter(None, (result.note, why, LOST))))

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
            self._empty(seat)
            seat.lock.release()

    def _seat(self, thread: str) -> _Seat:
        with self._lock:
            seat = self._seats.setdefault(thread, _Seat())
            self._seats.move_to_end(thread)
            spare = [name for name, old in self._seats.items() if old.interpreter is None and old is not seat]
            for name in spare[: max(len(self._seats) - _REMEMBERED, 0)]:
                del self._seats[name]
            return seat

    def _started(self, thread: str | None) -> Interpreter:
        """Returns a new interpreter, after making room for it."""
        with self._lock:
            self._end_idle(lambda: len(self._alive) < self._most)
            # An interpreter that knew its pool would keep it alive.
            fits = weakref.WeakMethod(self._fits)
            interpreter = Interpreter(self._launch(thread), self._bounds, lambda: (fits() or bool)())
            self._alive.add(interpreter)
            return interpreter

    def _fits(self) -> bool:
        """Whether all interpreters together use no more than they may, after the idle ones are ended."""

        def is_enough() -> bool:
            return sum(each.memory for each in list(self._alive)) <= self._bounds.memory_together

        if is_enough():
            return True
        with self._lock:
            self._end_idle(is_enough)
        return is_enough()

    def _end_idle(self, is_enough: Callable[[], bool]) -> None:
        """Ends idle interpreters, the least recently used one first, until it is enough."""
        for seat in list(self._seats.values()):
            if is_enough():
                return
            if seat.interpreter and seat.lock.acquire(blocking=False):
                self._empty(seat)
                seat.lost = True
                seat.lock.release()

    def _empty(self, seat: _Seat) -> None:
        """Ends the interpreter of a seat whose lock is held."""
        if seat.interpreter:
            seat.interpreter.kill()
            self._alive.discard(seat.interpreter)
            seat.interpreter = None


def _end(alive: set[Interpreter], owner: int) -> None:
    # A fork of this process has the set, but does not own the processes.
    if os.getpid() == owner:
        for interpreter in list(alive):
            interpreter.kill()
