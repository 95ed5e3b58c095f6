"""One command while it runs in a shell: its marks, its output, and its end.

The marks that show its beginning, end and exit code are OSC 133 sequences, which terminals know, each with a
nonce for every command. They are written to the terminal itself, so they arrive in order with the output,
wherever that was redirected to. A command can read the nonces of its prompt (`$PS1`) and of its beginning
(`$_`), but not that of its end, so no accidental output ends it. A hostile command can still forge its end
(by a DEBUG trap, `set -v`, or bash's memory): a shell is not a security boundary.
"""

import re
import secrets
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from signoff.tools.pty.output import Capture

Kind = Literal["prompt", "ready", "begin", "end"]

_MARK = re.compile(rb"\x1b\]133;([ABCD]);(?:(\d{1,3});)?([0-9a-f]{32})\x07")
_HEAD = b"\x1b]133;"
_LONGEST = 64
_KINDS: dict[bytes, Kind] = {b"A": "prompt", b"B": "ready", b"C": "begin", b"D": "end"}
# Erases input that was typed but not entered, so that it does not become part of the line.
_CLEAR_LINE = b"\x15"


@dataclass(frozen=True)
class Mark:
    """One mark: `begin` or `end` (with exit code) of a command, `prompt` or `ready` around the prompt."""

    kind: Kind
    code: int | None
    nonce: str
    raw: bytes


def _nonce() -> str:
    return secrets.token_hex(16)


@dataclass(frozen=True)
class Nonces:
    """The nonces in the marks of one command. All differ, because a command can read the first two."""

    prompt: str = field(default_factory=_nonce)
    begin: str = field(default_factory=_nonce)
    end: str = field(default_factory=_nonce)

    def own(self, mark: Mark) -> bool:
        """Whether `mark` belongs to this command."""
        nonces = {"prompt": self.prompt, "ready": self.prompt, "begin": self.begin, "end": self.end}
        return mark.nonce == nonces[mark.kind]


class TerminalMarks:
    """Splits a stream of bytes into output and marks, even where a mark arrives in two pieces."""

    def __init__(self) -> None:
        self._held = b""

    def split(self, data: bytes) -> Iterator[bytes | Mark]:
        data = self._held + data
        self._held = b""
        at = 0
        for found in _MARK.finditer(data):
            if found.start() > at:
                yield data[at : found.start()]
            code = int(found[2]) if found[2] else None
            yield Mark(_KINDS[found[1]], code, found[3].decode(), found[0])
            at = found.end()
        start = data.rfind(b"\x1b", max(at, len(data) - _LONGEST))
        if start >= 0 and _HEAD.startswith(data[start : start + len(_HEAD)]) and b"\x07" not in data[start:]:
            self._held = data[start:]
            data = data[:start]
        if at < len(data):
            yield data[at:]


def prompt_text(prompt: str, nonce: str = "") -> str:
    """Returns the `PS1` that shows `prompt` between two marks, with or without a nonce."""
    end = f";{nonce}" if nonce else ""
    return rf"\[\e]133;A{end}\a\]{prompt}\[\e]133;B{end}\a\]"


def run_line(nonces: Nonces, path: str, prompt: str = "") -> bytes:
    """Returns the line to type to run the commands in the file `path` between two marks.

    The prompt has marks too: they show that bash abandoned the whole line (^C, a failed expansion), so that
    `end_line` must request the end mark. Nothing runs unless the mark of the beginning was written.
    """
    shown = f"PS1={shlex.quote(prompt_text(prompt, nonces.prompt))} PS2="
    if prompt:
        # Not exported: a nested bash would mark its prompts as if they were those of this one.
        shown += r"'> '; \declare +x PS1"
    mark = rf"'\033]133;C;{nonces.begin}\a'"
    file = shlex.quote(path)
    line = (
        f"{{ {shown}; }} 2>/dev/null; if {_SHADOWED}; "
        rf"then {{ ({_unshadowed(mark)}); }} 2>/dev/null && \. {file}; "
        rf"else {{ \builtin printf {mark} >/dev/tty; }} 2>/dev/null && \builtin . {file}; fi; "
    )
    return _CLEAR_LINE + f"{line}{_end(nonces)}\n".encode()


def end_line(nonces: Nonces) -> bytes:
    """Returns the line to type at the prompt for the end mark of an abandoned command."""
    return f"{_end(nonces)}\n".encode()


def without_echo(data: bytes, typed: bytes) -> bytes:
    """Returns the output while a line was typed, without the echo; empty when the echo is not found.

    A background job may write at any time, so the echo may come in pieces. Under `set -v` it comes twice.
    """
    echo = typed.removeprefix(_CLEAR_LINE).replace(b"\n", b"\r\n")
    pieces = _pieces(data, echo)
    if not pieces:
        return b""
    while pieces:
        data = b"".join(data[end:start] for end, start in _gaps(data, pieces))
        pieces = _pieces(data, echo)
    return data


def _pieces(data: bytes, echo: bytes) -> list[tuple[int, int]]:
    """Returns the ranges of the echo in `data`, as few as possible; empty when the echo is not complete."""
    found: list[tuple[int, int]] = []
    at = 0
    while echo:
        # Every prefix of a prefix that occurs also occurs, so bisection finds the longest.
        least, most = 0, len(echo)
        while least < most:
            middle = (least + most + 1) // 2
            least, most = (middle, most) if echo[:middle] in data[at:] else (least, middle - 1)
        if not least:
            return []
        start = data.index(echo[:least], at)
        at = start + least
        found.append((start, at))
        echo = echo[least:]
    return found


def _gaps(data: bytes, pieces: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Returns the ranges between the pieces."""
    ends = [0, *(end for _, end in pieces)]
    starts = [*(start for start, _ in pieces), len(data)]
    for end, start in zip(ends, starts, strict=True):
        # Output in between may begin with the text that continues the echo; a job mostly writes whole lines.
        shift = 0
        while shift < end and data[end - shift - 1] == data[start - shift - 1] and start > end:
            shift += 1
            if data[: start - shift].endswith(b"\n"):
                end, start = end - shift, start - shift
                break
        yield end, start


# The variable that holds the exit code until its mark is written.
_CODE = "__signoff"
# Whether a function of that name is defined, which would run instead of bash's builtin.
_SHADOWED = r"{ \declare -F builtin >/dev/null; } 2>/dev/null"


def _unshadowed(mark: str) -> str:
    # In POSIX mode no function hides `unset`; in a subshell, so that the function stays defined outside.
    return rf"POSIXLY_CORRECT=; \unset -f builtin; \builtin printf {mark} >/dev/tty"


def _end(nonces: Nonces) -> str:
    # Quoted, as IFS may hold a digit; grouped, so that `set -x` does not show the nonce in the output.
    mark = rf"'\033]133;D;%s;{nonces.end}\a'" + f' "${_CODE}"'
    return (
        f"{{ {_CODE}=$?; if {_SHADOWED}; then ({_unshadowed(mark)}); "
        rf"else \builtin printf {mark} >/dev/tty; fi; }} 2>/dev/null"
    )


_MOST_PENDING = 100_000


@dataclass
class RunningCommand:
    """The state of a running command. Only the reading thread changes it, under the shell's lock.

    begun, exit_code: from its marks. prompted: bash shows its prompt although there was no end mark;
    prompting: it is writing that prompt. asked: the end mark was requested, so further output is only the
    echo of that. pending: output for a live listener, when there is one. typed, window: the line that was
    typed for this command, and the output meanwhile: its echo, and that of background jobs. before: what the
    terminal showed since the last command.
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
        """Whether output is now only bash's prompt, or the echo of a line typed for this command."""
        return self.exit_code is None and (self.prompting or self.asked or not self.begun)

    def echoed(self, data: bytes) -> None:
        """Records output that cannot come from the command itself."""
        self.window += data[: max(_MOST_PENDING - len(self.window), 0)]

    def unasked(self) -> bytes:
        """Returns the window's output except the echo, and empties it."""
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

    def take(self) -> bytes:
        """Returns the pending output and empties it."""
        data = bytes(self.pending)
        self.pending.clear()
        return data
