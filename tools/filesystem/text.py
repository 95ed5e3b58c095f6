"""Text files on disk: their lines, line endings, byte order mark and version, read to a bound."""

import codecs
import hashlib
from typing import BinaryIO, Literal

LineEnds = Literal["keep", "lf", "crlf"]

MOST_READ = 50_000_000
"""How many bytes of a file are read at all: it may be sparse, or without an end."""

_BOM = "\ufeff"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class TextFile:
    """The content of a file, of which at most `MOST_READ` bytes are read, to the end of a line.

    is_whole: whether all of it was read. is_text: whether it is UTF-8. kind: "binary" or "UTF-16" if it
    cannot be read as text. version: tells it from the same file with other content.
    """

    def __init__(self, file: BinaryIO) -> None:
        data = file.read(MOST_READ + 1)
        self.is_whole = len(data) <= MOST_READ
        self.data = data if self.is_whole else data[: data.rfind(b"\n") + 1 or MOST_READ]
        self.kind = not_text(data)
        self.version = version_of(self.data)
        # As editors count them: only "\n" and "\r\n" end a line, and a byte order mark alone is none.
        body = self.data.removeprefix(codecs.BOM_UTF8)
        self.lines = body.removesuffix(b"\n").split(b"\n") if body else []

    @property
    def is_text(self) -> bool:
        try:
            self.data.decode()
        except UnicodeDecodeError:
            return False
        return True

    def line(self, number: int) -> str:
        """The line of this number, from 1, without its ending."""
        return self.lines[number - 1].removesuffix(b"\r").decode(errors="replace")

    def applied(self, content: str, line_ends: LineEnds) -> tuple[str, str]:
        """`content` with this file's byte order mark and, unless they are to change, line endings; and a
        sentence about what stays."""
        ends, windows_ends = self.data.count(b"\n"), self.data.count(b"\r\n")
        kept, text = [], content
        if ends and line_ends == "keep":
            end = end_of(ends, windows_ends)
            mixed = " (most of them; they were mixed)" if 0 < windows_ends < ends else ""
            kept.append(f"line endings {'CRLF' if end == CRLF else 'LF'}{mixed}")
            text = with_ends(content, end)
        if self.data.startswith(codecs.BOM_UTF8):
            kept.append("the byte order mark")
            text = text if text.startswith(_BOM) else _BOM + text
        return text, "" if text == content else f" Unchanged: {' and '.join(kept)}."


CRLF = "\r\n"


def version_of(data: bytes) -> str:
    """The version of a file with this content."""
    return hashlib.sha256(data).hexdigest()


def with_ends(content: str, end: str) -> str:
    return content.replace(CRLF, "\n").replace("\n", end)


def end_of(ends: int, windows_ends: int) -> str:
    """The most frequent line ending."""
    return CRLF if windows_ends * 2 > ends else "\n"


def split_lines(text: str) -> list[str]:
    """The lines of `text`, without their endings."""
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def not_text(head: bytes) -> str:
    """What a file is that begins with these bytes, if it cannot be read as text; else empty."""
    if head.startswith(_UTF_16):
        return "UTF-16"
    return "binary" if b"\0" in head[:8_000] else ""


def around(line: str, at: int, most: int) -> str:
    """The part of a long line around the character at this index, and where in the line it is."""
    if len(line) <= most:
        return line
    start = max(0, min(at - most // 3, len(line) - most))
    end = start + most
    where = f" [characters {start + 1:,} to {end:,} of {len(line):,} in this line]"
    return ("..." if start else "") + line[start:end] + ("..." if end < len(line) else "") + where


def part(line: str, number: int, first: int, most: int) -> str:
    """At most `most` characters of the line of this number from the `first` (from 1) on, and how to see the
    others."""
    before = f"[{first - 1:,} characters before] ..." if first > 1 else ""
    left = len(line) - first + 1 - most
    shown = before + line[first - 1 : first - 1 + most]
    if left <= 0:
        return shown
    way = f"start_line={number}, start_character={first + most} shows them"
    return f"{shown}... [{left} more characters in this line; {way}]"
