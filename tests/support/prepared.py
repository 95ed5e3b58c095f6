"""Commands of `signoff`, and programs in Python, in processes that have imported everything already.

A command takes two seconds of CPU before it does anything, for what it imports. A test that needs a process
(for signals, kills, terminals, two at once) mostly does not need that. So one process imports once, and each
command is a fork of it. To a test it is a `subprocess.Popen`: it has a number, streams, signals and an exit
code of its own. What the interpreter decides when it starts (encodings, say) needs a real start.
"""

import fcntl
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Started by few commands, and dear.
_LEFT_OUT = ("signoff.server", "signoff.graph.studio", "signoff.workers", "signoff.verify")
_source: dict[int, tuple[socket.socket, "subprocess.Popen[bytes]"]] = {}


class Prepared(subprocess.Popen[str]):
    """A command in a fork of the process that has imported everything. args: the words after `signoff`."""

    of_python = False

    def _execute_child(self, args: Any, *options: Any) -> None:
        # The arguments of CPython's own, which starts a program here.
        (_, _, _, _, cwd, env, _, _, _, *streams, _, _, _, _, _, new_session, _) = options
        stdin, _, _, stdout, _, stderr = streams
        self._told, told = os.pipe()
        self._said = b""
        given = {
            "words": list(map(str, args)),
            "of_python": self.of_python,
            "env": dict(os.environ if env is None else env),
            "cwd": str(cwd or os.getcwd()),
            "session": bool(new_session),
        }
        fds = [number if fd == -1 else fd for number, fd in enumerate((stdin, stdout, stderr))]
        socket.send_fds(_forks(), [json.dumps(given).encode()], [*fds, told])
        os.close(told)
        self.pid = int(self._line(None))
        self._child_created = True
        self._close_pipe_fds(*streams)  # type: ignore[attr-defined]  # CPython's own does it there, too

    def _line(self, seconds: float | None) -> str:
        """The next line of what is told of the process; empty when there is none in time."""
        while b"\n" not in self._said:
            if not select.select([self._told], [], [], seconds)[0]:
                return ""
            if not (more := os.read(self._told, 64)):
                raise ChildProcessError("the process that waits for this command is gone")
            self._said += more
        line, _, self._said = self._said.partition(b"\n")
        return line.decode()

    def _try_wait(self, flags: int) -> tuple[int, int]:
        status = self._line(0 if flags & os.WNOHANG else None)
        if status:
            os.close(self._told)
        return (self.pid, int(status)) if status else (0, 0)

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)  # type: ignore[attr-defined]  # as CPython's own
        return self.returncode


class PreparedPython(Prepared):
    """A program in such a fork. args: what stands after `python`: a file, `-c` or `-m`, and its words."""

    of_python = True


def run_python(*words: str | Path, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Runs a program to its end, as `subprocess.run` with `capture_output=True`."""
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with PreparedPython(words, text=True, stdin=subprocess.DEVNULL, **streams, **options) as process:
        out, err = process.communicate()
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def _forks() -> socket.socket:
    """Where forks are asked for: of one process for each that runs tests, and it ends with that one."""
    if os.getpid() not in _source:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tests.support.prepared", str(theirs.fileno())]
        process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()
        _source[os.getpid()] = ours, process
    return _source[os.getpid()][0]


def serve(source: socket.socket) -> dict[str, Any]:
    """Forks for each request, and tells how each fork ended. Returns in each fork, with what it is to run."""
    ended, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    waiting: dict[int, int] = {}
    heard: list[int | socket.socket] = [source, ended]
    while True:
        ready, _, _ = select.select(heard, [], [])
        if ended in ready:
            os.read(ended, 4096)
            while waiting and (found := os.waitpid(-1, os.WNOHANG))[0]:
                _tell(waiting.pop(found[0]), found[1], last=True)
        if source not in ready:
            continue
        data, fds, _, _ = socket.recv_fds(source, 1 << 20, 4)
        if not data:
            sys.exit()
        if (pid := os.fork()) == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            source.close()
            for fd in (ended, wakes, fds[3], *waiting.values()):
                os.close(fd)
            return _begun(json.loads(data), fds[:3])
        waiting[pid] = fds[3]
        _tell(fds[3], pid)
        for fd in fds[:3]:
            os.close(fd)


def _tell(told: int, number: int, *, last: bool = False) -> None:
    # Nobody may listen any more.
    with suppress(BrokenPipeError):
        os.write(told, b"%d\n" % number)
    if last:
        os.close(told)


def _begun(given: dict[str, Any], streams: list[int]) -> dict[str, Any]:
    if given["session"]:
        os.setsid()
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    if given["session"] and os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    return given


def become(given: dict[str, Any]) -> None:
    """Makes this process what a new one would be that was started so."""
    os.chdir(given["cwd"])
    os.environ.clear()
    os.environ.update(given["env"])
    write_through = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  as long as the process
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = open(number, "w", encoding="utf-8", errors="strict" if number == 1 else "backslashreplace")  # noqa: SIM115
        stream.reconfigure(line_buffering=number == 2 or os.isatty(number), write_through=write_through)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv = given["words"] if given["of_python"] else ["signoff", *given["words"]]
    sys.path[0] = given["cwd"]


def program(words: list[str]) -> None:
    """Runs what `python` runs when it is given these words."""
    match words:
        case ["-W", action, *others]:
            warnings.simplefilter(action)  # type: ignore[arg-type]  # as on the command line
            del sys.argv[:2]
            program(others)
        case ["-c", code, *_]:
            del sys.argv[1]
            exec(compile(code, "<string>", "exec"), vars(sys.modules["__main__"]))
        case ["-m", name, *_]:
            del sys.argv[0]
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        case [file, *_]:
            sys.path[0] = str(Path(file).parent)
            runpy.run_path(file, run_name="__main__")


def prepare() -> None:
    """Imports what commands need."""
    import signoff

    for module in pkgutil.walk_packages(signoff.__path__, "signoff."):
        if not module.name.startswith(_LEFT_OUT) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    importlib.import_module("langgraph.checkpoint.sqlite")
    assert threading.active_count() == 1, "a fork has one thread only"
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        prepare()
        given = serve(asked)
    become(given)
    if given["of_python"]:
        program(given["words"])
    else:
        runpy.run_module("signoff.cli", run_name="__main__", alter_sys=True)
