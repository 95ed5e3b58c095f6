"""Follows one command to its end, and stops it when it takes too long or waits for nobody.

One command while it runs in a shell: its marks, what it wrote, and what it came to.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from signoff.tools.pty.bash import INTERRUPT, QUIT, Bash, ShellEnded, WaitingFor, Watch, at_prompt
from signoff.tools.pty.marks import Mark, Nonces, end_line, run_line, without_echo
from signoff.tools.pty.output import Capture

_MOST_PENDING = 100_000


@dataclass
class Job:
    """What is known of a command so far. Changed by the reading thread alone, under the shell's lock.

    begun, exit_code: from its marks. prompted: bash shows its prompt although no end was marked; prompting:
    it is writing that prompt. asked: it was told to mark the end, so what is written from then on is only the
    echo of that.
    pending: output for a live listener, when there is one.
    typed, window: the line that was typed for this command, and what came while it was: its echo, and what a
    background job wrote. before: what the terminal showed since the last command.
    """

    live: bool
    nonces: Nonces = field(default_factory=Nonces)
    capture: Capture = field(default_factory=partial(Capture, whole=True))
    begun: bool = False
    prompting: bool = False
    prompted: bool = False
    asked: bool = False
    exit_code: int | None = None
    typed: bytes = b""
    window: bytearray = field(default_factory=bytearray)
    before: str = ""
    pending: bytearray = field(default_factory=bytearray)
    started: float = field(default_factory=time.monotonic)
    last_output: float = field(default_factory=time.monotonic)

    @property
    def echoing(self) -> bool:
        """Whether what is written now is only bash's prompt, or the echo of a line typed for this command."""
        return self.exit_code is None and (self.prompting or self.asked or not self.begun)

    def echoed(self, data: bytes) -> None:
        """What came while nothing of the command itself can come."""
        self.window += data[: max(_MOST_PENDING - len(self.window), 0)]

    def unasked(self) -> bytes:
        """What the window holds beside the echo, once."""
        data = without_echo(bytes(self.window), self.typed)
        self.window.clear()
        return data

    def marked(self, mark: Mark) -> None:
        if self.exit_code is not None:
            return
        if mark.kind == "begin":
            self.begun = True
        elif mark.kind == "end":
            self.exit_code = mark.code
        else:
            self.prompting = mark.kind == "prompt"
            self.prompted = not self.prompting
        self.last_output = time.monotonic()

    def wrote(self, data: bytes) -> None:
        self.capture.add(data)
        self.last_output = time.monotonic()
        if self.live:
            self.pending += data
            if len(self.pending) > 2 * _MOST_PENDING:
                del self.pending[:-_MOST_PENDING]

    def taken(self) -> bytes:
        """The pending output, once."""
        data = bytes(self.pending)
        self.pending.clear()
        return data


GRACE_SECONDS = 1.0
"""How long each step (^C, ^\\, kill) may take to end a command before the next one."""

_TICK = 0.05
_PROMPT_SECONDS = 0.15
_DRAIN_SECONDS = 0.2


class Run:
    """One command in a bash, seen from the thread that waits for it.

    changed: the lock under which the reading thread changes `job`, notified at every mark. on_output: gets
    the output while this thread waits. on_waiting: told whenever what the command waits for changes.
    prompt: what bash shows after it.
    """

    def __init__(
        self,
        bash: Bash,
        job: Job,
        changed: threading.Condition,
        on_output: Callable[[bytes], None] | None,
        on_waiting: Callable[[WaitingFor | None], None],
        prompt: str = "",
    ) -> None:
        self._bash = bash
        self._job = job
        self._changed = changed
        self._on_output = on_output
        self._on_waiting = on_waiting
        self._prompt = prompt

    def follow(self, path: str, timeout: float, *, interactive: bool) -> tuple[bool, WaitingFor | None]:
        """Runs the file and waits for the end, of the command or of bash.

        Returns whether the time-out came first, and for what the command waits then. Unless `interactive`,
        a command that waits for input is not waited for; nor is bash, when it waits before the beginning.
        """
        try:
            self._bash.plain_modes()
            self._type(run_line(self._job.nonces, path, self._prompt))
            return self._followed(timeout, interactive=interactive)
        except ShellEnded:
            return False, None

    def _followed(self, timeout: float, *, interactive: bool) -> tuple[bool, WaitingFor | None]:
        deadline = time.monotonic() + timeout
        watch = Watch(self._bash)
        waiting: WaitingFor | None = None
        while not self._ended(min(_TICK, deadline - time.monotonic())):
            if time.monotonic() >= deadline:
                return True, waiting
            if (now := watch.look(self._job.last_output)) != waiting:
                waiting = now
                self._on_waiting(waiting)
            if waiting and not (interactive and self._job.begun):
                return False, waiting
        return False, None

    def stop(self) -> bool:
        """Climbs the ladder until the command has ended: ^C, ^\\, kill, and at last the shell's own end.

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
            # ^C made bash give the line up, and its prompt could not say so.
            self._ask()
        return self._ended_within(GRACE_SECONDS)

    def drain(self) -> None:
        """Waits for what an ended bash left in the terminal, and hands out the last output."""
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
        """Waits up to `seconds` for something to happen; whether the command or bash has ended."""
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
            data = self._job.taken()
        if data and self._on_output:
            self._on_output(data)
