"""The output of a command: captured in bounded memory, and shown as text without terminal control codes."""

import codecs
import errno
import os
import re
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO

from signoff.graph.foreign import count_noun

HEAD = 500_000
"""Bytes kept from the beginning of an output."""
TAIL = 500_000
"""Bytes kept from the end of an output."""

SPOOLED = 50_000_000
"""The largest output that is kept as a whole."""

_BLOCK = 1_000_000
_ERASE = "\x1a"
_LONGEST_HELD = 4_096
_STRING = r"[\]PX^_][^\x07\x1b\r\n]*"
_TO_THE_END = re.compile(r"\x1b\[0?K")
_WHOLE_LINE = re.compile(r"\x1b\[[12]K")
_ESCAPES = re.compile(
    rf"\x1b(?:\[[0-?]*[ -/]*[@-~]|{_STRING}(?:\x07|\x1b\\)|[ -/]*[0-OQ-WYZ\\`-~])|[\x1b\x07]"
)
_UNFINISHED = re.compile(rf"\x1b(?:\[[0-?]*[ -/]*|{_STRING}\x1b?|[ -/]*)\Z")
_MOVES = re.compile(f"([\r\b{_ERASE}])")
_SHOWN = "\t\n\r\b\x07\x1b"
_CONTROLS = {
    code: "\ufffd" for code in [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029] if chr(code) not in _SHOWN
}
# Line and page feeds of other kinds end a line; the shift characters only choose a character set.
_CONTROLS |= {0x0B: "\n", 0x0C: "\n", 0x0E: "", 0x0F: ""}


class Capture:
    """The first and the last bytes of an output of any length. whole: also keeps a long output in a file."""

    def __init__(self, head: int = HEAD, tail: int = TAIL, *, whole: bool = False) -> None:
        self._most_head, self._most_tail = head, tail
        self._head = bytearray()
        self._tail = bytearray()
        self.left_out = 0
        """The number of discarded bytes between the two parts."""
        self.spool = Spool() if whole else None
        """The whole output, once it is too large for memory."""

    def add(self, data: bytes) -> None:
        if self.spool and self.left_out:
            self.spool.add(data)
        room = self._most_head - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        if len(self._tail) > 2 * self._most_tail:
            self._drop()

    def text(self) -> str:
        """Returns the output without control codes; a sentence stands where bytes were left out."""
        self._drop()
        if not self.left_out:
            return harmless(bytes(self._head + self._tail))
        gap = f"\n[... {count_noun(self.left_out, 'byte')} of output left out here ...]\n"
        return harmless(bytes(self._head)) + gap + harmless(bytes(self._tail))

    def _drop(self) -> None:
        extra = max(len(self._tail) - self._most_tail, 0)
        if self.spool and extra and not self.left_out:
            self.spool.add(bytes(self._head + self._tail))
        self.left_out += extra
        del self._tail[:extra]


class Spool:
    """An output of up to `SPOOLED` bytes in an anonymous temporary file that is deleted with this object."""

    def __init__(self) -> None:
        self._file: BinaryIO | None = None
        self._size = 0
        self._lost = False

    def add(self, data: bytes) -> None:
        """Stores `data`; drops everything when it exceeds the limit or the disk is full."""
        if self._lost:
            return
        self._size += len(data)
        try:
            if self._size > SPOOLED:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed with this object
                weakref.finalize(self, self._file.close)
            self._file.write(data)
        except OSError:
            self._lost = True
            if self._file:
                with suppress(OSError):
                    # A write that failed before fails here again.
                    self._file.close()

    def text(self) -> str | None:
        """Returns the whole output without control codes; None when it is empty or not complete."""
        if self._lost or self._file is None:
            return None
        try:
            self._file.seek(0)
            return "".join(_rendered(self._file))
        except OSError:
            return None


def _rendered(file: BinaryIO) -> Iterator[str]:
    # In pieces of whole lines, because no rendering reaches past the end of a line.
    begun = b""
    while block := file.read(_BLOCK):
        lines, end, begun = (begun + block).rpartition(b"\n")
        if end:
            yield harmless(lines + end)
    yield harmless(begun)


class Live:
    """Removes control codes from output piece by piece, as it arrives."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""

    def feed(self, data: bytes) -> str:
        """Returns the text of `data`; the beginning of an escape sequence is held back for the next piece.

        A carriage return in a line that was already shown begins a new line.
        """
        text = self._held + self._decoder.decode(data)
        unfinished = _UNFINISHED.search(text) or re.search(r"\r+\Z", text)
        cut = unfinished.start() if unfinished else len(text)
        if len(text) - cut > _LONGEST_HELD:
            cut = len(text)
        self._held = text[cut:]
        text = _plain(text[:cut])
        return ("\n" if text.startswith("\r") and text.strip("\r") else "") + _settled(text)


def harmless(data: bytes) -> str:
    """Returns `data` as valid text without escape sequences or control characters, except tab and newline.

    Carriage returns, backspaces and erased lines have the effect that they have on a screen; bytes that are
    not UTF-8 and other control characters become U+FFFD.
    """
    return _settled(_plain(data.decode(errors="replace")))


def _plain(text: str) -> str:
    text = text.translate(_CONTROLS)
    text = _WHOLE_LINE.sub("\r" + _ERASE, _TO_THE_END.sub(_ERASE, text))
    return re.sub(r"\r+\n", "\n", _ESCAPES.sub("", text))


def _settled(text: str) -> str:
    if not _MOVES.search(text):
        return text
    return "\n".join(_line(line) if _MOVES.search(line) else line for line in text.split("\n"))


def _line(line: str) -> str:
    cells: list[str] = []
    at = 0
    for part in _MOVES.split(line):
        if part == "\r":
            at = 0
        elif part == "\b":
            at = max(at - 1, 0)
        elif part == _ERASE:
            del cells[at:]
        else:
            cells[at : at + len(part)] = part
            at += len(part)
    return "".join(cells)
