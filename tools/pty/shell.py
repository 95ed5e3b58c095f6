"""A shell in a pseudo-terminal that keeps its working folder and variables from command to command."""

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from langchain_core.tools import ToolException

from signoff.graph.errors import SetupError
from signoff.tools.pty.environment import bash_path, check, clean_environment, written
from signoff.tools.pty.job import Mark, Nonces, RunningCommand, TerminalMarks, prompt_text
from signoff.tools.pty.output import Capture, Spool

if TYPE_CHECKING:
    from signoff.tools.pty.bash import Bash, WaitingFor


_MOST_BETWEEN = 100_000

OnOutput = Callable[[bytes], None]


@dataclass(frozen=True)
class ShellResult:
    """The result of a command.

    exit_code: as in `$?`, 128 and more for a signal; None when the shell ended before it was known. output:
    text without control codes; a very long one lacks its middle. timed_out: stopped at the time limit.
    waiting_for: the input it waited for when it was stopped. restarted: the shell ended with the command or
    before it; the folder, variables and background jobs are gone. seconds: how long it took. truncated: bytes
    of output that were left out. before: what the terminal showed between the last command and this one, such
    as output of background jobs; not what a person typed, nor the output of that.
    """

    exit_code: int | None
    output: str
    timed_out: bool
    waiting_for: "WaitingFor | None"
    restarted: bool
    seconds: float
    truncated: int
    before: str = ""
    spool: Spool | None = field(default=None, repr=False, compare=False)

    @property
    def whole_output(self) -> str:
        """The output including its middle where that was kept; read into memory at each access."""
        whole = self.spool.text() if self.truncated and self.spool else None
        return self.output if whole is None else whole


class Shell:
    """A persistent bash in a pseudo-terminal, started in `cwd` with a clean environment.

    env: variables in addition to the few that are inherited (PATH, HOME, locale, time zone); nothing else of
    this process's environment reaches a command. on_output: called with everything the terminal shows, also
    between commands, in the shell's reading thread: it must not block or raise. interactive: a person types
    by `write`, so a command that waits for input is left waiting. prompt: what bash shows a person while it
    waits for a command, as in `PS1`; `on_output` gets the marks (OSC 133) as well.

    One command runs at a time. This is a terminal, not a boundary: commands may do what the user may. `close`
    ends bash and whatever it started, on Linux also what left its session by `setsid` or `nohup`. Processes
    that bash leaves behind when it ends itself (`exit`) are ended too, unless they have a session of their
    own and an emptied environment. When this process is killed, running programs only get SIGHUP.

    Raises SetupError where there is no bash, no Unix terminal, or no folder `cwd`.
    """

    def __init__(
        self,
        cwd: str | os.PathLike[str],
        *,
        env: Mapping[str, str] | None = None,
        rows: int = 24,
        cols: int = 120,
        on_output: OnOutput | None = None,
        interactive: bool = False,
        prompt: str = "",
    ) -> None:
        self.cwd: str = os.path.abspath(os.fspath(cwd))
        self.interactive = interactive
        self._executable = bash_path(self.cwd)
        self._size = (rows, cols)
        self._on_output = on_output
        self._prompt = prompt
        self._environment = clean_environment(
            {"PS1": prompt_text(prompt), **(env or {})} if prompt else env or {}
        )
        self._turn = threading.Lock()
        self._changed = threading.Condition()
        self._job: RunningCommand | None = None
        # Outlive the job: bash shows its prompt, and the mark in it, after the command has returned.
        self._nonces, self._past = Nonces(), Nonces()
        self._between = Capture(_MOST_BETWEEN, _MOST_BETWEEN)
        # Whether bash has run nothing yet, is showing its prompt, or has shown it and waits for a line.
        self._fresh, self._prompting, self._ready = True, False, False
        # Whether a person has typed since bash last showed its prompt, and whether that was after a command
        # had ended but before the prompt that follows it: that prompt then does not answer the input.
        self._typed, self._early = False, False
        self.closed: bool = False
        """Whether `close` was called."""
        self._bash = self._started()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def busy(self) -> bool:
        """Whether a command is running."""
        return self._turn.locked()

    def unused(self) -> bool:
        """Whether neither a command nor anything else that was started here runs."""
        return not self.busy and (not self._bash.alive() or self._bash.alone())

    def run(self, command: str, timeout: float = 60.0, on_output: OnOutput | None = None) -> ShellResult:
        """Runs `command` and returns when it has ended or was stopped, or when the shell has ended.

        timeout: seconds, after which it is stopped by ^C, ^\\, and SIGKILL, in this order. on_output: called
        in this thread with the raw output as it arrives; when much arrives at once, its oldest part is
        missing. A second caller waits up to its own timeout for its turn. Raises ToolException for an invalid
        command or timeout, and when the shell is busy or closed.
        """
        check(command, timeout)
        if not self._turn.acquire(timeout=min(timeout, threading.TIMEOUT_MAX)):
            raise ToolException("The shell is still running another command; try again when it has ended.")
        try:
            with written(command) as path:
                return self._run(path, timeout, on_output)
        finally:
            self._job = None
            self._turn.release()

    def write(self, data: bytes) -> None:
        """Types `data` into the terminal, even while a command runs."""
        if data:
            with self._changed:
                running = self._job is not None and self._job.exit_code is None
                self._typed, self._early = True, self._early or not (self._ready or running)
                self._ready = self._ready and b"\n" not in data and b"\r" not in data
        self._bash.type(data)

    def resize(self, rows: int, cols: int) -> None:
        """Resizes the terminal to `rows` by `cols` characters."""
        self._size = (rows, cols)
        self._bash.resize(rows, cols)

    def interrupt(self) -> None:
        """Presses ^C, even where the running program gave that key another meaning."""
        self._bash.press(b"\x03")

    def close(self) -> None:
        """Ends the shell and everything it started; a running command fails. May be called again."""
        self.closed = True
        self._bash.end()

    def _set_unused(self) -> None:
        self._fresh, self._prompting, self._ready, self._typed, self._early = True, False, False, False, False

    def _started(self) -> "Bash":
        # Imported here: Windows, where this module must still load, has no such terminal.
        from signoff.tools.pty.bash import Bash

        marks = TerminalMarks()
        self._set_unused()
        try:
            return Bash(
                self._executable,
                self.cwd,
                self._environment,
                self._size,
                lambda data: self._received(marks, data),
            )
        except OSError as error:
            raise SetupError(
                f"A shell cannot start in {self.cwd} ({error}); use a folder that exists and can be opened."
            ) from error

    def _received(self, marks: TerminalMarks, data: bytes) -> None:
        shown = bytearray()
        with self._changed:
            job = self._job
            for piece in marks.split(data):
                if isinstance(piece, Mark) and self._nonces.own(piece):
                    shown += self._marked(piece, job)
                    self._changed.notify_all()
                    continue
                raw = piece.raw if isinstance(piece, Mark) else piece
                if isinstance(piece, Mark) and self._past.own(piece):
                    # The prompt after the previous command, which may come after the next one was started.
                    self._prompting = piece.kind == "prompt"
                elif job and job.echoing:
                    if not (self._prompt and (self._prompting or job.prompting)):
                        job.echoed(raw)
                    continue
                elif job and job.exit_code is None:
                    job.wrote(raw)
                elif not ((self._prompt and self._prompting) or self._typed or self._fresh):
                    self._between.add(raw)
                shown += raw
            if not data:
                self._changed.notify_all()
        if shown and self._on_output:
            self._on_output(bytes(shown))

    def _marked(self, mark: Mark, job: RunningCommand | None) -> bytes:
        """Records a mark of this shell; returns what the terminal shows for it."""
        unasked = b""
        if job and job.exit_code is None and mark.kind in ("begin", "end"):
            unasked = job.unasked() if job.echoing else b""
            if not (self._typed or self._fresh):
                self._between.add(unasked)
            if mark.kind == "begin":
                job.before, self._between = self._between.text(), Capture(_MOST_BETWEEN, _MOST_BETWEEN)
                self._fresh = self._prompting = self._typed = self._early = self._ready = False
        if mark.kind in ("prompt", "ready"):
            self._prompting = mark.kind == "prompt"
        if mark.kind == "ready":
            self._typed, self._early, self._ready = self._early, False, True
        if job:
            job.marked(mark)
        seen = self._prompt and (mark.kind == "begin" or not (job and job.exit_code is None))
        return unasked + (mark.raw if seen else b"")

    def _run(self, path: str, timeout: float, on_output: OnOutput | None) -> ShellResult:
        restarted = self._make_ready()
        begun, result = self._try_run(path, timeout, on_output)
        if not begun and not result.timed_out:
            # An earlier command, such as `readonly PS1`, keeps this bash from running the next ones.
            self._make_ready()
            restarted = True
            begun, result = self._try_run(path, timeout, on_output)
            if not begun and not result.timed_out:
                raise ToolException("bash did not run the command, even after a restart; try again.")
        return replace(result, restarted=restarted or result.restarted)

    def _try_run(self, path: str, timeout: float, on_output: OnOutput | None) -> tuple[bool, ShellResult]:
        """Runs the command in this bash; returns whether it began, and its result. Ends bash if not."""
        from signoff.tools.pty.run import CommandRun

        job = RunningCommand(live=on_output is not None)
        with self._changed:
            self._job, self._past, self._nonces = job, self._nonces, job.nonces
        run = CommandRun(self._bash, job, self._changed, on_output, self._prompt)
        try:
            timed_out, waiting = run.follow(path, timeout, interactive=self.interactive)
            stopped = not (timed_out or waiting) or run.stop()
        except BaseException:
            # A listener that raises, or ^C in this process, must not leave the command running.
            self._bash.end()
            raise
        if self.closed:
            raise ToolException("The shell was closed while the command ran.")
        code = job.exit_code
        if code is None:
            run.drain()
            code = self._bash.exit_code() if stopped else None
        lost = job.exit_code is None or not job.begun
        if lost:
            self._bash.end()
        return job.begun, ShellResult(
            exit_code=code if job.begun else None,
            output=job.capture.text(),
            timed_out=timed_out,
            waiting_for=waiting,
            restarted=lost,
            seconds=time.monotonic() - job.started,
            truncated=job.capture.left_out,
            before=job.before,
            spool=job.capture.spool,
        )

    def _make_ready(self) -> bool:
        """Starts a new bash if the last one has ended; returns whether it did."""
        if self.closed:
            raise ToolException("The shell is closed; open a new one.")
        if self._bash.alive():
            if self.interactive and not self._bash.at_prompt(within=0.5):
                raise ToolException(
                    "A program that was started from the keyboard is still running; end it first."
                )
            return False
        unnoticed = not self._bash.ended
        self._bash.end()
        self._bash = self._started()
        if self.closed:
            self._bash.end()
        return unnoticed
