"""The interpreter inside the sandbox: confines itself, then runs the code that it is sent.

Started as a program of its own (see `process`), isolated, on the standard library alone. Argument: the number
of the file descriptor from which requests come and to which answers go. A request is a JSON line: first
{confinement, folder, own, packages}, then {id, code} each. The answers: {ready} or {failed}, then {id, exit,
value, refused, database}. Whoever reads them must not trust them: the code can write them too.

SIGINT interrupts the code of the current call, and nothing else: between calls it is ignored.
"""

import _signal  # type: ignore[import-not-found]  # it has no stubs
import _thread
import ast
import builtins
import errno
import fcntl
import io
import json
import linecache
import os
import signal
import site
import sys
import traceback
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

from signoff.tools.sandbox.adapt import Hook, adapt
from signoff.tools.sandbox.confine import confine

_MOST_OF_A_VALUE = 100_000
_HERE = os.path.dirname(__file__)
_COROUTINE = 0x80
"""The flag of code that awaits at the top."""
_EARLIER = "[printed by a thread of an earlier call] "
_VALUE = " value"
"""The variable of the last expression's value; no code can use this name."""


class Calls:
    """The number of the current call, or of the next one, and in which one each thread was started.

    threads: how many there may be; who starts more by other ways is ended from outside.
    """

    def __init__(self, threads: int) -> None:
        self.number = 1
        self._threads = threads
        self._numbers: dict[int, int] = {}
        self._local = _thread._local()
        # `threading` takes the function when it is imported. The second one is for Python 3.13 and later.
        for name in ("start_new_thread", "start_joinable_thread"):
            if start := getattr(_thread, name, None):
                setattr(_thread, name, self._numbering(start))

    def _numbering(self, start: Callable[..., Any]) -> Callable[..., Any]:
        def start_numbered(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
            if _thread._count() >= self._threads:
                raise RuntimeError(f"can't start new thread: there are {self._threads}, and may be no more")
            number = self._of_this_thread()

            def run(*values: Any, **options: Any) -> Any:
                self._numbers[_thread.get_ident()] = number
                return function(*values, **options)

            return start(run, *arguments, **keywords)

        return start_numbered

    def begin(self) -> None:
        """A thread of a pool that waits there for work serves the call that begins."""
        for thread, frame in sys._current_frames().items():
            if frame.f_code.co_filename.endswith(("/futures/thread.py", "/multiprocessing/pool.py")):
                self._numbers[thread] = self.number

    def _of_this_thread(self) -> int:
        return self._numbers.get(_thread.get_ident(), self.number)

    def marked(self, text: str) -> str:
        """`text`, marked at the start of each line if it comes from a thread of an earlier call."""
        if self._of_this_thread() == self.number or not isinstance(text, str) or not text:
            return text
        begins = getattr(self._local, "begins", True)
        self._local.begins = text.endswith("\n")
        lines = enumerate(text.split("\n"))
        return "\n".join(_EARLIER + line if line and (begins or at) else line for at, line in lines)


class Output(io.TextIOWrapper):
    """A stream that holds nothing back: an interpreter may be ended at any time."""

    def __init__(self, number: int, calls: Calls) -> None:
        buffer = io.BufferedWriter(io.FileIO(number, "w", closefd=False))
        super().__init__(buffer, "utf-8", "backslashreplace", line_buffering=True)
        self._calls = calls

    def write(self, text: str) -> int:
        super().write(self._calls.marked(text))
        if not text.endswith("\n"):
            self.flush()
        return len(text)


class Streams:
    """stdin, stdout and stderr as they were at the start, whatever the code does to them."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._kept = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 100) for number in range(3)]
        self._outputs = [Output(number, calls) for number in (1, 2)]

    def restore(self) -> None:
        for number, kept in enumerate(self._kept):
            os.dup2(kept, number)
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8")
        for number, output in enumerate(self._outputs):
            if output.closed:
                self._outputs[number] = Output(number + 1, self._calls)
        # The same ones again: handlers of `logging` keep them.
        sys.stdout, sys.stderr = self._outputs

    def flush(self) -> None:
        for stream in (sys.stdout, sys.stderr, *self._outputs):
            # The code closed it, replaced it, or filled it.
            with suppress(Exception):
                stream.flush()


class Namespace:
    """A namespace that outlives the calls.

    threads: how many may run. sources: the newest source that defines a class, by the name of the class."""

    def __init__(self, hook: Hook, threads: int, sources: dict[str, str]) -> None:
        self._hook = hook
        self._calls = Calls(threads)
        self._streams = Streams(self._calls)
        self._sources = sources
        self._running = self._interrupted = False
        self._process = os.getpid()
        self._module = types.ModuleType("__main__")
        self._module.__dict__["__builtins__"] = builtins
        self._module.__file__ = os.path.join(os.getcwd(), "run_python.py")
        sys.modules["__main__"] = self._module
        signal.signal(signal.SIGINT, self._interrupt)

    def run(self, code: str) -> dict[str, Any]:
        """How the code ended (ok, error, memory, large, interrupted), the text of the last expression's
        value, and whether it tried to write, or opened a database, where it cannot write.
        """
        self._streams.restore()
        # The function of `signal` makes an enumeration of the handler, which is slow.
        _signal.signal(_signal.SIGINT, self._interrupt)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        self._interrupted = False
        self._hook.listen()
        self._calls.begin()
        exit, value = "ok", None
        try:
            value = self._run(code, f"<python {self._calls.number}>")
        except BaseException as error:  # noqa: BLE001  (whatever the code raised is its result)
            if not isinstance(error, SystemExit) or error.code not in (None, 0):
                exit = "memory" if isinstance(error, MemoryError) else "error"
                if isinstance(error, OSError) and error.errno == errno.EFBIG:
                    exit = "large"
                self._streams.flush()
                self._streams.restore()
                sys.stderr.write(text := _traceback_text(error))
                self._hook.hear_error(text)
        self._streams.flush()
        if os.getpid() != self._process:
            # A process that the code forked, which ran to the end of the code.
            os._exit(0)
        # What a thread prints from here on is late.
        self._calls.number += 1
        self._hook.listening = False
        noted = {"refused": self._hook.refused, "database": self._hook.database}
        return {"exit": "interrupted" if self._interrupted else exit, "value": value, **noted}

    def _interrupt(self, number: int, frame: types.FrameType | None) -> None:
        if self._running:
            self._interrupted = True
            raise KeyboardInterrupt

    def _run(self, code: str, name: str) -> str | None:
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        # Not ast.parse, which would appear in the traceback of a syntax error.
        flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        try:
            tree: ast.Module = compile(code, name, "exec", flags)
        except MemoryError:
            raise SyntaxError("the code is nested too deeply for Python") from None
        if tree.body and isinstance(last := tree.body[-1], ast.Expr):
            target = ast.copy_location(ast.Name(_VALUE, ast.Store()), last)
            tree.body[-1] = ast.copy_location(ast.Assign([target], last.value), last)
        self._sources |= {node.name: name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        names = self._module.__dict__
        program = compile(tree, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        self._running = True
        try:
            if program.co_flags & _COROUTINE:
                import asyncio  # Slow to import, and few need it

                asyncio.run(eval(program, names))
            else:
                exec(program, names)
            value = names.get(_VALUE)
            return None if value is None else repr(value)[:_MOST_OF_A_VALUE]
        finally:
            self._running = False
            names.pop(_VALUE, None)


def _traceback_text(error: BaseException) -> str:
    """The traceback as Python prints it, without the lines of the sandbox."""
    try:
        part: Any = (shown := traceback.TracebackException.from_exception(error))
        while part:
            lines = [line for line in part.stack if os.path.dirname(line.filename) != _HERE]
            part.stack = traceback.StackSummary.from_list(lines) if lines else None
            part = part.__cause__ or part.__context__
        return "".join(shown.format())
    except Exception:  # noqa: BLE001  (an exception that cannot be formatted is named by its class)
        return f"{type(error).__name__}\n"


def answer(channel: int, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(channel, data) :]


def begin(settings: dict[str, Any]) -> Namespace:
    """Confines this process as asked and makes the packages importable. Raises OSError."""
    os.chdir(settings["folder"])
    hook, threads, sources = Hook([]), sys.maxsize, dict[str, str]()
    if confinement := settings["confinement"]:
        confine(**confinement)
        hook, threads = Hook(confinement["write"]), confinement["bounds"]["threads"]
        sys.addaudithook(hook.hear)
        adapt(settings["own"], sources)
    # A file that grows too large raises an error in the code instead of ending the interpreter.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for name in [name for name in sys.modules if name.startswith("signoff")]:
        del sys.modules[name]
    sys.path[:] = ["", *sys.path, *settings["packages"]]
    # Python itself adds these names.
    site.setquit()
    site.sethelper()
    return Namespace(hook, threads, sources)


def main() -> None:
    """Serves the file descriptor named on the command line, one request after the other."""
    channel = int(sys.argv[1])
    sys.argv = [""]
    os.set_inheritable(channel, False)
    requests: BinaryIO = os.fdopen(channel, "rb", closefd=False)
    try:
        namespace = begin(json.loads(requests.readline()))
    except OSError as error:
        answer(channel, {"failed": str(error)})
        return
    answer(channel, {"ready": True})
    while line := requests.readline():
        request = json.loads(line)
        answer(channel, {"id": request["id"], **namespace.run(request["code"])})
