"""The interpreter inside the sandbox: confines itself, then runs the code that it is sent.

Started as a program of its own (see `program`), isolated, on the standard library alone. Arguments: the
number of the file descriptor that requests come from and of the one that answers go to. A request is a JSON
line: first {confinement, folder, own, packages}, then {id, code} each. The answers: {ready} or {failed}, then
{id, exit, value, refused, database}. Whoever reads them must not trust them: the code can write them too.

SIGINT interrupts the code of the current call, and nothing else: between calls it is ignored.
"""

import _signal  # type: ignore[import-not-found]  # it has no stubs
import _thread
import ast
import builtins
import fcntl
import functools
import io
import json
import linecache
import os
import re
import signal
import sys
import traceback
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

from signoff.tools.sandbox.adapt import Hook, adapt, add_names

_MOST_OF_A_VALUE = 100_000
_HIGH = 100
_HERE = os.path.dirname(__file__)
_COROUTINE = 0x80
"""The flag of code that awaits at the top."""
_EARLIER = "[printed by an earlier call] "
_VALUE = " value"
"""The variable of the last expression's value; no code can use this name."""


class Calls:
    """The number of the current call, or of the next one, and in which one each thread was started."""

    def __init__(self) -> None:
        self.number = 1
        self._local = _thread._local()
        # `threading` takes the function when it is imported. The second one is for Python 3.13 and later.
        for name in ("start_new_thread", "start_joinable_thread"):
            if start := getattr(_thread, name, None):
                setattr(_thread, name, self._numbering(start))

    def _numbering(self, start: Callable[..., Any]) -> Callable[..., Any]:
        def start_numbered(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
            number = getattr(self._local, "number", self.number)

            def run(*values: Any, **options: Any) -> Any:
                self._local.number = number
                return function(*values, **options)

            return start(run, *arguments, **keywords)

        return start_numbered

    def marked(self, text: str) -> str:
        """Returns `text`, marked at the start of each line if it comes from a thread of an earlier call."""
        local = self._local
        if getattr(local, "number", self.number) == self.number or not isinstance(text, str) or not text:
            return text
        begins = getattr(local, "begins", True)
        local.begins = text.endswith("\n")
        lines = text.split("\n")
        marked = [_EARLIER + line if line and (begins or at) else line for at, line in enumerate(lines)]
        return "\n".join(marked)


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


def _printing_at_once(original: Callable[..., None]) -> Callable[..., None]:
    """`print` that writes once: each write of an `Output` wakes up who reads it."""

    @functools.wraps(original)
    def print_at_once(*values: Any, **options: Any) -> None:
        end = options.get("end", "\n")
        if options.keys() <= {"end"} and isinstance(end, str) and sys.stdout is not None:
            sys.stdout.write(" ".join(map(str, values)) + end)
        else:
            original(*values, **options)

    return print_at_once


class Streams:
    """stdin, stdout and stderr as they were at the start, whatever the code does to them."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._kept = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _HIGH) for number in range(3)]
        self._outputs = [Output(number, calls) for number in (1, 2)]
        builtins.print = _printing_at_once(builtins.print)

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

    def error(self, text: str) -> None:
        os.write(self._kept[2], text.encode(errors="backslashreplace"))


class Namespace:
    """A namespace that outlives the calls. hook: None where nothing is refused."""

    def __init__(self, hook: Hook | None) -> None:
        self._hook = hook
        self._calls = Calls()
        self._streams = Streams(self._calls)
        self._sources: list[str] = []
        self._running = self._interrupted = False
        self._process = os.getpid()
        self._module = types.ModuleType("__main__")
        self._module.__dict__["__builtins__"] = builtins
        self._module.__file__ = os.path.join(os.getcwd(), "run_python.py")
        sys.modules["__main__"] = self._module
        signal.signal(signal.SIGINT, self._interrupt)

    def source_of(self, kind: type) -> str | None:
        """Returns the name of the newest source that defines the class `kind`."""
        pattern = re.compile(rf"^\s*class\s+{re.escape(kind.__name__)}\b", re.MULTILINE)
        for name in reversed(self._sources):
            if pattern.search("".join(linecache.getlines(name))):
                return name
        return None

    def run(self, code: str) -> dict[str, Any]:
        """Returns how the code ended (ok, error, memory, interrupted), the text of the last expression's
        value, and whether it tried to write, or opened a database, where it cannot write.
        """
        self._streams.restore()
        # The function of `signal` makes an enumeration of the handler, which is slow.
        _signal.signal(_signal.SIGINT, self._interrupt)
        self._interrupted = False
        if self._hook:
            self._hook.listen()
        exit, value = "ok", None
        try:
            value = self._run(code, f"<python {self._calls.number}>")
        except SystemExit as wanted:
            if wanted.code not in (None, 0):
                exit = "error"
                self._streams.flush()
                self._streams.error(f"SystemExit: {wanted.code}\n")
        except BaseException as error:  # noqa: BLE001  (whatever the code raised is its result)
            self._running = False
            exit = "memory" if isinstance(error, MemoryError) else "error"
            self._streams.flush()
            self._streams.error(_traceback_text(error))
        self._streams.flush()
        if os.getpid() != self._process:
            # A process that the code forked, which ran to the end of the code.
            os._exit(0)
        # What a thread prints from here on is late.
        self._calls.number += 1
        outcome: dict[str, Any] = {"exit": "interrupted" if self._interrupted else exit, "value": value}
        if self._hook:
            self._hook.listening = False
            outcome |= {"refused": self._hook.refused, "database": self._hook.database}
        return outcome

    def _interrupt(self, number: int, frame: types.FrameType | None) -> None:
        if self._running:
            self._interrupted = True
            raise KeyboardInterrupt

    def _run(self, code: str, name: str) -> str | None:
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        self._sources.append(name)
        # Not ast.parse, which would appear in the traceback of a syntax error.
        flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        tree: ast.Module = compile(code, name, "exec", flags)
        if tree.body and isinstance(last := tree.body[-1], ast.Expr):
            target = ast.copy_location(ast.Name(_VALUE, ast.Store()), last)
            tree.body[-1] = ast.copy_location(ast.Assign([target], last.value), last)
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
    """Returns the traceback as Python prints it, without the lines of the sandbox."""
    steps = []
    trace = error.__traceback__
    while trace is not None:
        if os.path.dirname(trace.tb_frame.f_code.co_filename) != _HERE:
            steps.append(trace)
        trace = trace.tb_next
    for step, following in zip(steps, [*steps[1:], None]):  # noqa: B905  (without steps, nothing follows)
        step.tb_next = following
    try:
        return "".join(traceback.format_exception(type(error), error, steps[0] if steps else None))
    except Exception:  # noqa: BLE001  (an exception that cannot be formatted is named by its class)
        return f"{type(error).__name__}\n"


def answer(handle: int, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(handle, data) :]


def begin(settings: dict[str, Any]) -> tuple[Namespace, dict[str, bool | str]]:
    """Confines this process as asked and makes the packages importable. Raises OSError."""
    os.chdir(settings["folder"])
    held: dict[str, bool | str] = {}
    hook = None
    if wanted := settings["confinement"]:
        from signoff.tools.sandbox.confine import Confinement, confine

        held = confine(Confinement(**wanted))
        hook = Hook(wanted["write"])
    # A file that grows too large raises an error in the code instead of ending the interpreter.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for name in [name for name in sys.modules if name.split(".")[0] == "signoff"]:
        del sys.modules[name]
    sys.path[:] = ["", *sys.path, *settings["packages"]]
    add_names()
    namespace = Namespace(hook)
    if hook:
        adapt(settings["own"], namespace.source_of)
    return namespace, held


def main() -> None:
    """Serves the file descriptors named on the command line, one request after the other."""
    requests, answers = int(sys.argv[1]), int(sys.argv[2])
    sys.argv = [""]
    for handle in (requests, answers):
        os.set_inheritable(handle, False)
    source: BinaryIO = os.fdopen(requests, "rb")
    try:
        namespace, held = begin(json.loads(source.readline()))
    except OSError as error:
        answer(answers, {"failed": str(error)})
        return
    answer(answers, {"ready": held})
    while line := source.readline():
        request = json.loads(line)
        answer(answers, {"id": request["id"], **namespace.run(request["code"])})


if __name__ == "__main__":
    main()
