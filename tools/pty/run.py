"""Follows one command to its end, and stops it at its time limit or when no input can come."""

import threading
import time
from collections.abc import Callable

from signoff.tools.pty.bash import INTERRUPT, QUIT, Bash, InputWatch, ShellEnded, WaitingFor, at_prompt
from signoff.tools.pty.job import RunningCommand, end_line, run_line

GRACE_SECONDS = 1.0
"""Seconds that each step (^C, ^\\, kill) may take to end a command before the next one."""

_TICK = 0.05
_PROMPT_SECONDS = 0.15
_DRAIN_SECONDS = 0.2


class CommandRun:
    """One command in a bash, as seen by the thread that waits for it.

    changed: the lock under which the reading thread changes `job`, notified at every mark. on_output: gets
    the output while this thread waits. prompt: what bash shows after the command.
    """

    def __init__(
        self,
        bash: Bash,
        job: RunningCommand,
        changed: threading.Condition,
        on_output: Callable[[bytes], None] | None,
        prompt: str = "",
    ) -> None:
        self._bash = bash
        self._job = job
        self._changed = changed
        self._on_output = on_output
        self._prompt = prompt

    def follow(self, path: str, timeout: float, *, interactive: bool) -> tuple[bool, WaitingFor | None]:
        """Runs the file and waits until the command or bash ends.

        Returns whether the time limit came first, and what the command waits for. Unless `interactive`, also
        returns when the command waits for input; and in any case when bash does before the command has begun.
        """
        try:
            self._bash.plain_modes()
            self._type(run_line(self._job.nonces, path, self._prompt))
            return self._followed(timeout, interactive=interactive)
        except ShellEnded:
            return False, None

    def _followed(self, timeout: float, *, interactive: bool) -> tuple[bool, WaitingFor | None]:
        deadline = time.monotonic() + timeout
        watch = InputWatch(self._bash)
        waiting: WaitingFor | None = None
        while not self._ended(min(_TICK, deadline - time.monotonic())):
            if time.monotonic() >= deadline:
                return True, waiting
            waiting = watch.look(self._job.last_output)
            if waiting and not (interactive and self._job.begun):
                return False, waiting
        return False, None

    def stop(self) -> bool:
        """Stops the command step by step: ^C, ^\\, SIGKILL, and at last by ending the shell.

        Returns whether the command or the shell ended before that last step.
        """
        try:
            for step in (self._interrupt, self._quit, self._bash.kill_foreground):
                if self._stopped_by(step):
                    return True
        except ShellEnded:
            return True
        self._bash.end()
        return False

    def _stopped_by(self, step: Callable[[], bool]) -> bool:
        if not step():
            return False
        if self._ended_within(_PROMPT_SECONDS):
            return True
        if at_prompt(self._bash):
            # ^C made bash abandon the line, and its prompt could not report that.
            self._ask()
        return self._ended_within(GRACE_SECONDS)

    def drain(self) -> None:
        """Reads what an ended bash left in the terminal, and passes on the last output."""
        quiet = time.monotonic() + _DRAIN_SECONDS
        while self._bash.reading() and time.monotonic() < max(quiet, self._job.last_output + _DRAIN_SECONDS):
            time.sleep(0.005)
        self._hand_out()

    def _interrupt(self) -> bool:
        self._bash.press(INTERRUPT)
        return True

    def _quit(self) -> bool:
        self._bash.press(QUIT)
        return True

    def _ask(self) -> None:
        with self._changed:
            self._job.asked = True
        self._type(end_line(self._job.nonces))

    def _type(self, line: bytes) -> None:
        with self._changed:
            self._job.typed = line
        self._bash.type(line)

    def _ended_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not self._ended(_TICK):
            if time.monotonic() >= deadline:
                return False
        return True

    def _ended(self, seconds: float) -> bool:
        """Waits up to `seconds` for a change; returns whether the command or bash has ended."""
        with self._changed:
            if self._job.exit_code is None and not self._job.prompted:
                self._changed.wait(max(seconds, 0.0))
            ended = self._job.exit_code is not None
            prompted, self._job.prompted = self._job.prompted, False
        self._hand_out()
        if ended or not self._bash.alive():
            return True
        if prompted and self._bash.foreground() == self._bash.pid:
            self._ask()
        return False

    def _hand_out(self) -> None:
        with self._changed:
            data = self._job.take()
        if data and self._on_output:
            self._on_output(data)
