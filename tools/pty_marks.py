"""How a command is given to bash, and the marks by which its beginning, end and exit code are known.

The marks are OSC 133 sequences, as terminals know them, with a nonce of the command in them. They are
written to the terminal itself, so they arrive in order with the output wherever that was redirected to,
and only the line that bash is given holds the nonce: a command cannot forge one by printing.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

_MARK = re.compile(rb"\x1b\]133;([ACD]);(?:(\d{1,3});)?([0-9a-f]{32})\x07")
_HEAD = b"\x1b]133;"
_LONGEST = 64
_KINDS: dict[bytes, Literal["prompt", "begin", "end"]] = {b"A": "prompt", b"C": "begin", b"D": "end"}
# Erases what somebody typed and did not enter, so that it does not become part of the line.
_CLEAR_LINE = b"\x15"


@dataclass(frozen=True)
class Mark:
    """One mark: `begin` of a command, its `end` with the exit code, or bash's `prompt` after it."""

    kind: Literal["prompt", "begin", "end"]
    code: int | None
    nonce: str
    raw: bytes


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


def run_line(nonce: str, path: str) -> bytes:
    """What to type to run the commands in the file `path` between two marks.

    The prompt holds a mark too: it shows that bash gave the whole line up (^C, a failed expansion), so
    that the end has to be asked for with `end_line`.
    """
    prompt = rf"PS1='\[\e]133;A;{nonce}\a\]' PS2="
    begin = rf"\builtin printf '\033]133;C;{nonce}\a' >/dev/tty"
    return _CLEAR_LINE + f"{prompt}; {begin}; \\builtin . {shlex.quote(path)}; {_end(nonce)}\n".encode()


def end_line(nonce: str) -> bytes:
    """What to type at the prompt to have the end mark of a command that was given up."""
    return f"{_end(nonce)}\n".encode()


def _end(nonce: str) -> str:
    # Quoted, as IFS may hold a digit; grouped, so that `set -x` does not show the nonce in the output.
    return rf"""{{ \builtin printf '\033]133;D;%s;{nonce}\a' "$?" >/dev/tty; }} 2>/dev/null"""
