"""Completion checks, which must pass before a claim of "done" is accepted.

A check is a Python function or a shell command. It may run several times for one claim (after a kill in the
middle, all of them run again), so it must be repeatable and change nothing. A command runs in a separate
process group, within its time limit, and its output is capped while it is read.
"""

import contextlib
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import IO, Any

from signoff.graph.arguments import describe, listed, positive
from signoff.graph.errors import SetupError
from signoff.graph.foreign import valid_text, words

HALF = 512 * 1024
"""The number of bytes kept from the beginning and from the end of an output."""

_CHUNK = 64 * 1024
_LOOK_EVERY = 0.1
_AFTER_EXIT = 0.5
CHECK_SECONDS = 60.0


@dataclass(frozen=True)
class Ran:
    """The result of a command. code: its exit code, negative for a signal; None when it was aborted. late: it
    ran out of time. output: both of its streams; a very long one is truncated in the middle."""

    code: int | None
    output: str
    late: bool = False

    @property
    def ended(self) -> bool:
        """Whether it ended by itself."""
        return self.code is not None


class CappedOutput:
    """The beginning and the end of a byte stream, in bounded memory, read by a separate thread."""

    def __init__(self, half: int = HALF) -> None:
        self.closed = threading.Event()
        self._lock = threading.Lock()
        self._half = half
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._in_tail = 0
        self._dropped = 0

    def read(self, stream: IO[bytes]) -> None:
        """Reads until every process has closed the other end."""
        with stream:
            while data := stream.read(_CHUNK):
                with self._lock:
                    self.add(data)
        self.closed.set()

    def add(self, data: bytes) -> None:
        room = self._half - len(self._head)
        self._head += data[:room]
        if rest := data[max(room, 0) :]:
            self._tail.append(rest)
            self._in_tail += len(rest)
        while self._tail and self._in_tail - len(self._tail[0]) >= self._half:
            self._in_tail -= len(self._tail[0])
            self._dropped += len(self._tail.popleft())

    def text(self) -> str:
        with self._lock:
            head, dropped, tail = bytes(self._head), self._dropped, b"".join(self._tail)
        gap = f"\n[... {dropped} bytes were not kept ...]\n" if dropped else ""
        return head.decode(errors="replace") + gap + tail.decode(errors="replace")


def run_command(
    command: str | tuple[str, ...], folder: Path, seconds: float, stopped: Callable[[], bool]
) -> Ran:
    """Runs `command` in `folder`: a text by the shell, a tuple as it is. Its standard input is empty. When
    its time is up, or `stopped` returns true, it is killed with all processes of its group; so are those that
    it leaves behind. Raises OSError if it cannot be started, ValueError for a NUL in it.
    """
    process = subprocess.Popen(
        command,
        bufsize=0,
        shell=isinstance(command, str),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    kept, until = CappedOutput(), time.monotonic() + seconds
    assert process.stdout is not None, "it was asked for"
    threading.Thread(target=kept.read, args=(process.stdout,), name="signoff-check", daemon=True).start()
    try:
        ended = _wait(process, kept, until, stopped)
    finally:
        _kill(process)
    kept.closed.wait(_AFTER_EXIT)
    return Ran(
        process.returncode if ended else None, kept.text(), late=not ended and time.monotonic() >= until
    )


def _wait(
    process: subprocess.Popen[bytes], kept: CappedOutput, until: float, stopped: Callable[[], bool]
) -> bool:
    """Waits until the process has ended, and returns whether it did so in time. Its output so far is read."""
    pause = 0.001
    while not _has_ended(process):
        left = until - time.monotonic()
        if left <= 0 or stopped():
            return False
        # Normally its output is closed when it ends; if it is closed early, there is nothing to wait on.
        if kept.closed.wait(min(_LOOK_EVERY, left)):
            time.sleep(pause)
            pause = min(2 * pause, _LOOK_EVERY)
    # Processes that it left behind may keep the output open: they are not awaited.
    kept.closed.wait(_AFTER_EXIT)
    return True


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process has ended. It is not reaped yet, so that its group id stays reserved."""
    if not hasattr(os, "waitid"):
        # Windows, and macOS before Python 3.13.
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills the process with its whole group, including processes left behind, and reaps it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


Run = Callable[..., Any] | str | Sequence[str]
"""A function, a shell command, or a program with its arguments."""


@dataclass(frozen=True)
class Check:
    """A completion check with a folder or a time of its own.

    run: a function, a shell command, or a program with its arguments. folder: where a command runs; the
    current directory of the process if None. seconds: how long it may take.

    Raises SetupError for anything else, with one sentence that says what to write.
    """

    run: Run
    folder: str | PathLike[str] | None = None
    seconds: float = CHECK_SECONDS

    def __post_init__(self) -> None:
        positive("seconds of a Check", self.seconds, none=False)
        if inspect.isclass(self.run) or not (callable(self.run) or _words_of(self.run)):
            raise SetupError(f"The check {describe(self.run)} is neither a function nor a command.")
        if inspect.isgeneratorfunction(self.run) or inspect.isasyncgenfunction(self.run):
            raise SetupError(
                f"The check {_name_of(self.run)} is a generator, which says neither True nor False; write a "
                "function that returns."
            )
        if self.folder is None:
            return
        if callable(self.run):
            raise SetupError(
                f"folder= is for a command, and the check {_name_of(self.run)} is a function; leave it out."
            )
        if not isinstance(self.folder, str | PathLike):
            raise SetupError(f"folder of a Check is {describe(self.folder)}; pass the path of a folder.")
        if not Path(self.folder).expanduser().is_dir():
            raise SetupError(f"folder of a Check is {str(self.folder)!r}, which is not a folder.")


AnyCheck = Check | Run
"""What `checks=` may hold."""

ASKABLE = ("claim", "arguments", "messages", "state", "context")
_MOST_NAME = 80


@dataclass(frozen=True)
class Failure:
    """A check that did not pass. why: a key of `Texts.results`; detail: the value for that text; output: the
    output of the check."""

    name: str
    why: str
    detail: str = ""
    output: str = ""


@dataclass(frozen=True)
class Passed:
    """A check that passed. output: the output of the check."""

    name: str
    output: str = ""


Found = Failure | Passed


@dataclass(frozen=True)
class FunctionCheck:
    """Calls a function with the arguments that it names. The check passes if it returns True or None."""

    name: str
    function: Callable[..., Any]
    wants: tuple[str, ...]
    seconds: float

    @property
    def is_async(self) -> bool:
        """Whether it must be awaited in the graph's event loop."""
        call = getattr(self.function, "__call__", None)  # noqa: B004  its kind is asked for, not whether it is there
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(call)

    def call(self, given: Mapping[str, Any]) -> Any:
        """The function's return value, which for an async function is an awaitable."""
        return self.function(**{name: given[name] for name in self.wants})

    def judge(self, value: Any) -> Found:
        """The result of the check for this return value."""
        if value is None or value is True:
            return Passed(self.name)
        if isinstance(value, str):
            return Failure(self.name, "check_failed", output=valid_text(value))
        return Failure(self.name, "check_returned", detail=_cut(words(value)))

    def raised(self, error: BaseException) -> Failure:
        return Failure(self.name, "check_raised", type(error).__name__, words(error))

    def late(self) -> Failure:
        return Failure(self.name, "check_late", f"{self.seconds:g}")


@dataclass(frozen=True)
class CommandCheck:
    """Runs a command in a folder. The check passes if the command exits with code 0 in time."""

    name: str
    command: str | tuple[str, ...]
    folder: Path
    seconds: float

    def run(self, stopped: Callable[[], bool]) -> Found:
        """Runs it to its end, or until `stopped` returns true. Never raises for what the command does."""
        try:
            found = run_command(self.command, self.folder, self.seconds, stopped)
        except OSError as error:
            return Failure(self.name, "check_not_started", output=words(error))
        if found.code is None:
            return Failure(self.name, "check_killed", f"{self.seconds:g}", found.output)
        if found.code < 0:
            return Failure(self.name, "check_signal", str(-found.code), found.output)
        if found.code:
            return Failure(self.name, "check_exit", str(found.code), found.output)
        return Passed(self.name, found.output)


OneCheck = FunctionCheck | CommandCheck


def make_checks(checks: Iterable[AnyCheck] | None) -> tuple[OneCheck, ...]:
    """The checks of a graph. Raises SetupError for anything that is not a check, and for a function with a
    parameter that is not in ASKABLE."""
    every = listed("checks", checks, '["pytest -q"]')
    return tuple(_with_unique_names([_make(check) for check in every]))


def _with_unique_names(checks: Sequence[OneCheck]) -> Iterator[OneCheck]:
    """The checks with unique names: a failure is recognised by its name."""
    times = Counter[str]()
    for check in checks:
        times[check.name] += 1
        number = times[check.name]
        yield check if number == 1 else replace(check, name=f"{check.name} ({number})")


def _make(given: AnyCheck) -> OneCheck:
    check = given if isinstance(given, Check) else Check(given)
    if callable(check.run):
        return FunctionCheck(_name_of(check.run), check.run, _wants(check.run), check.seconds)
    command = check.run if isinstance(check.run, str) else tuple(check.run)
    return CommandCheck(_cut(" ".join(_words_of(check.run))), command, _folder_of(check), check.seconds)


def _words_of(command: object) -> list[str]:
    """The words of a command; none for anything that is not a command."""
    words = [command] if isinstance(command, str) else list(command) if isinstance(command, Sequence) else []
    is_command = words and all(map(_is_word, words)) and words[0].strip()
    return words if is_command else []


def _is_word(word: object) -> bool:
    """Whether a program can be started with it: no system takes NUL, or half a character."""
    return isinstance(word, str) and valid_text(word) == word


def _folder_of(check: Check) -> Path:
    try:
        return Path(check.folder or os.curdir).expanduser().resolve(strict=True)
    except OSError as error:
        raise SetupError(
            f"The check {describe(check.run)} has no folder to run in ({words(error)}); write "
            "Check(…, folder=…)."
        ) from error


def _wants(function: Callable[..., Any]) -> tuple[str, ...]:
    """The parameters of the function that are passed by name, without those that have a default."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    if any(part.kind is part.VAR_KEYWORD for part in found):
        # The context is passed to every function that names it.
        return tuple(name for name in ASKABLE if name != "context" or any(p.name == name for p in found))
    named = [part for part in found if part.kind in (part.POSITIONAL_OR_KEYWORD, part.KEYWORD_ONLY)]
    asked = [part for part in found if part.default is part.empty and part.kind is not part.VAR_POSITIONAL]
    if strange := [part.name for part in asked if part not in named or part.name not in ASKABLE]:
        raise SetupError(
            f"The check {_name_of(function)} asks for {', '.join(strange)}; a check may ask for "
            f"{', '.join(ASKABLE)}."
        )
    return tuple(part.name for part in named if part.name in ASKABLE)


def _name_of(function: Callable[..., Any]) -> str:
    inner = function.func if isinstance(function, partial) else function
    return _cut(str(getattr(inner, "__name__", type(inner).__name__)))


def _cut(text: str) -> str:
    flat = " ".join(valid_text(text).split())
    return flat if len(flat) <= _MOST_NAME else f"{flat[: _MOST_NAME - 1]}…"
