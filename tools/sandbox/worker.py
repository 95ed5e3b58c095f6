"""The interpreter inside the sandbox: confines itself, then runs the code that it is sent.

Started as a program of its own (see `inside`), isolated, on the standard library alone. Arguments: the number
of the file descriptor that requests come from and of the one that answers go to. A request is a JSON line:
first {confinement, folder, packages}, then {id, code} each. The answers: {ready} or {failed}, then {id, exit,
value}. Whoever reads them must not trust them: the code can write them too.
"""

import ast
import builtins
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
from contextlib import suppress
from typing import Any, BinaryIO

_MOST_OF_A_VALUE = 100_000
_HIGH = 100


class Streams:
    """stdin, stdout and stderr as they were at the start, whatever the code does to them."""

    def __init__(self) -> None:
        self._kept = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _HIGH) for number in range(3)]

    def restore(self) -> None:
        for number, kept in enumerate(self._kept):
            os.dup2(kept, number)
        sys.stdin = _text(0, "r")
        sys.stdout = _text(1, "w")
        sys.stderr = _text(2, "w")

    def flush(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            # The code closed it, replaced it, or filled it.
            with suppress(Exception):
                stream.flush()

    def error(self, text: str) -> None:
        os.write(self._kept[2], text.encode(errors="backslashreplace"))


def _text(number: int, mode: str) -> io.TextIOWrapper:
    raw = io.FileIO(number, mode, closefd=False)
    buffered = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    return io.TextIOWrapper(buffered, "utf-8", "backslashreplace", line_buffering=True)


class Namespace:
    """A namespace that outlives the calls."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._process = os.getpid()
        self._count = 0
        self._module = types.ModuleType("__main__")
        self._module.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = self._module

    def run(self, code: str) -> tuple[str, str | None]:
        """Returns how the code ended (ok, error, memory) and the text of the last expression's value."""
        self._count += 1
        self._streams.restore()
        exit, value = "ok", None
        try:
            value = self._run(code, f"<python {self._count}>")
        except SystemExit as wanted:
            if wanted.code not in (None, 0):
                exit = "error"
                self._streams.flush()
                self._streams.error(f"SystemExit: {wanted.code}\n")
        except BaseException as error:  # noqa: BLE001  (whatever the code raised is its result)
            exit = "memory" if isinstance(error, MemoryError) else "error"
            self._streams.flush()
            self._streams.error(_traceback_text(error))
        self._streams.flush()
        if os.getpid() != self._process:
            # A process that the code forked, which ran to the end of the code.
            os._exit(0)
        return exit, value

    def _run(self, code: str, name: str) -> str | None:
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        # Not ast.parse, which would appear in the traceback of a syntax error.
        tree: ast.Module = compile(code, name, "exec", ast.PyCF_ONLY_AST)  # type: ignore[assignment]  # in mode exec it is one
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        names = self._module.__dict__
        exec(compile(tree, name, "exec"), names)
        if not isinstance(last, ast.Expr):
            return None
        value = eval(compile(ast.Expression(last.value), name, "eval"), names)
        return None if value is None else repr(value)[:_MOST_OF_A_VALUE]


def _traceback_text(error: BaseException) -> str:
    """Returns the traceback as Python prints it, without the lines of this file."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, trace))
    except Exception:  # noqa: BLE001  (an exception that cannot be formatted is named by its class)
        return f"{type(error).__name__}\n"


def answer(handle: int, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(handle, data) :]


def serve(requests: BinaryIO, answers: int) -> None:
    """Serves one request after the other until there are no more."""
    interpreter = Namespace(Streams())
    while line := requests.readline():
        request = json.loads(line)
        exit, value = interpreter.run(request["code"])
        answer(answers, {"id": request["id"], "exit": exit, "value": value})


def begin(settings: dict[str, Any]) -> dict[str, bool | str]:
    """Confines this process as asked and makes the packages importable. Raises OSError."""
    held: dict[str, bool | str] = {}
    if settings["confinement"] is not None:
        from signoff.tools.sandbox.confine import Confinement, confine

        held = confine(Confinement(**settings["confinement"]))
    else:
        os.chdir(settings["folder"])
    # A file that grows too large raises an error in the code instead of ending the interpreter.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for name in [name for name in sys.modules if name.split(".")[0] == "signoff"]:
        del sys.modules[name]
    sys.path[:] = ["", *sys.path, *settings["packages"]]
    site.setquit()
    return held


def main() -> None:
    """Serves the file descriptors named on the command line."""
    requests, answers = int(sys.argv[1]), int(sys.argv[2])
    sys.argv = [""]
    for handle in (requests, answers):
        os.set_inheritable(handle, False)
    source = os.fdopen(requests, "rb")
    try:
        held = begin(json.loads(source.readline()))
    except OSError as error:
        answer(answers, {"failed": str(error)})
        return
    answer(answers, {"ready": held})
    serve(source, answers)


if __name__ == "__main__":
    main()
