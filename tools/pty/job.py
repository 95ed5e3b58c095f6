"""One command while it runs in a shell: its marks, what it wrote, and when it has ended."""

import time
from dataclasses import dataclass, field
from functools import partial

from signoff.tools.pty.marks import Mark, Nonces, without_echo
from signoff.tools.pty.output import Capture

_MOST_PENDING = 100_000


@dataclass
class RunningCommand:
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
