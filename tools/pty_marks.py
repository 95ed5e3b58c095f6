"""How a command is given to bash, and the marks by which its beginning, end and exit code are known.

The marks are OSC 133 sequences, as terminals know them, each with a nonce of its own for every command.
They are written to the terminal itself, so they arrive in order with the output wherever that was
redirected to. A command can read the nonces of its prompt (`$PS1`) and of its beginning (`$_`), but not
that of its end, so it is not ended by what it happens to print. One that sets out to can still forge its
end (by a DEBUG trap, `set -v`, or bash's memory): a shell is not a boundary.
"""

import re
import secrets
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["prompt", "ready", "begin", "end"]

_MARK = re.compile(rb"\x1b\]133;([ABCD]);(?:(\d{1,3});)?([0-9a-f]{32})\x07")
_HEAD = b"\x1b]133;"
_LONGEST = 64
_KINDS: dict[bytes, Kind] = {b"A": "prompt", b"B": "ready", b"C": "begin", b"D": "end"}
# Erases what somebody typed and did not enter, so that it does not become part of the line.
_CLEAR_LINE = b"\x15"


@dataclass(frozen=True)
class Mark:
    """One mark: `begin` of a command, its `end` with the exit code, or where bash's prompt after it begins
    (`prompt`) and ends (`ready`)."""

    kind: Kind
    code: int | None
    nonce: str
    raw: bytes


def _nonce() -> str:
    return secrets.token_hex(16)


@dataclass(frozen=True)
class Nonces:
    """What makes the marks of one command its own. All differ, as a command can read the first two."""

    prompt: str = field(default_factory=_nonce)
    begin: str = field(default_factory=_nonce)
    end: str = field(default_factory=_nonce)

    def own(self, mark: Mark) -> bool:
        """Whether `mark` is one of this command's."""
        nonces = {"prompt": self.prompt, "ready": self.prompt, "begin": self.begin, "end": self.end}
        return mark.nonce == nonces[mark.kind]


class Marks:
    """Splits a stream of bytes into output and marks, also where a mark comes in two pieces."""

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
    """The `PS1` that shows `prompt` between two marks, with a nonce or without one."""
    end = f";{nonce}" if nonce else ""
    return rf"\[\e]133;A{end}\a\]{prompt}\[\e]133;B{end}\a\]"


def run_line(nonces: Nonces, path: str, prompt: str = "") -> bytes:
    """What to type to run the commands in the file `path` between two marks.

    The prompt holds marks too: they show that bash gave the whole line up (^C, a failed expansion), so
    that the end has to be asked for with `end_line`. Without the mark of its beginning nothing runs.
    """
    shown = f"PS1={shlex.quote(prompt_text(prompt, nonces.prompt))} PS2="
    if prompt:
        # Not exported: a bash within this one would mark its own prompts as if they were this one's.
        shown += r"'> '; \builtin export -n PS1"
    begin = rf"\builtin printf '\033]133;C;{nonces.begin}\a' >/dev/tty"
    return _CLEAR_LINE + f"{shown}; {begin} && \\builtin . {shlex.quote(path)}; {_end(nonces)}\n".encode()


def end_line(nonces: Nonces) -> bytes:
    """What to type at the prompt to have the end mark of a command that was given up."""
    return f"{_end(nonces)}\n".encode()


def _end(nonces: Nonces) -> str:
    # Quoted, as IFS may hold a digit; grouped, so that `set -x` does not show the nonce in the output.
    return rf"""{{ \builtin printf '\033]133;D;%s;{nonces.end}\a' "$?" >/dev/tty; }} 2>/dev/null"""
