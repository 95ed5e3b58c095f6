"""Text files on disk: their lines, line endings, byte order mark and version, read to a bound."""

import codecs
import hashlib
from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from typing import Literal

LineEnds = Literal["keep", "lf", "crlf"]

MOST_READ = 50_000_000
"""How many bytes of a file are read at all: it may be sparse, or without an end."""

CRLF = "\r\n"
_BOM = "\ufeff"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class TextFile:
    """The content of a file, of which at most `MOST_READ` bytes count, to the end of a line.

    is_whole: whether that is all of it. is_text: whether it is UTF-8. kind: "binary" or "UTF-16" if it
    cannot be read as text. version: tells it from the same file with other content.
    """

    def __init__(self, data: bytes) -> None:
        self.is_whole = len(data) <= MOST_READ
        self.data = data if self.is_whole else data[: data.rfind(b"\n", 0, MOST_READ) + 1 or MOST_READ]
        self.kind = not_text(data)
        self.version = hashlib.sha256(self.data).hexdigest()
        # As editors count them: only "\n" and "\r\n" end a line, and a byte order mark alone is none.
        self._body = self.data.removeprefix(codecs.BOM_UTF8)
        self.line_count = self._body.count(b"\n") + (self._body[-1:] not in (b"\n", b""))

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace")

    @property
    def is_text(self) -> bool:
        return "\ufffd" not in self.text or self.text.encode() == self.data

    def lines(self, first: int, last: int) -> Iterator[tuple[int, str]]:
        """The lines of these numbers, from 1, each with its number and without its ending."""
        for number, line in enumerate(islice(BytesIO(self._body), first - 1, last), first):
            yield number, line.removesuffix(b"\n").removesuffix(b"\r").decode(errors="replace")


def applied(before: str, content: str, line_ends: LineEnds) -> tuple[str, str]:
    """`content` with the byte order mark of the text `before` and, unless they are to change, its line
    endings; and a sentence about what stays."""
    if line_ends != "keep":
        content = with_ends(content, "\n" if line_ends == "lf" else CRLF)
    text, kept = content, []
    if "\n" in before and line_ends == "keep":
        end = end_of(before)
        kept.append(f"line endings {'CRLF' if end == CRLF else 'LF'}")
        text = with_ends(content, end)
    if before.startswith(_BOM):
        kept.append("the byte order mark")
        text = text if text.startswith(_BOM) else _BOM + text
    return text, "" if text == content else f" Unchanged: {' and '.join(kept)}."


def with_ends(content: str, end: str) -> str:
    return content.replace(CRLF, "\n").replace("\n", end)


def end_of(text: str) -> str:
    """The most frequent line ending."""
    return CRLF if text.count(CRLF) * 2 > text.count("\n") else "\n"


def split_lines(text: str) -> list[str]:
    """The lines of `text`, without their endings."""
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def not_text(head: bytes) -> str:
    """What a file is that begins with these bytes, if it cannot be read as text; else empty."""
    if head.startswith(_UTF_16):
        return "UTF-16"
    return "binary" if b"\0" in head[:8_000] else ""


def around(line: str, start: int, most: int) -> str:
    """The part of a long line from the character at this index on, and where in the line it is."""
    if len(line) <= most:
        return line
    start = max(0, min(start, len(line) - most))
    end = start + most
    where = (
        f"[characters {start + 1:,} to {end:,} of {len(line):,}; read_file shows others by start_character]"
    )
    return f"{'...' if start else ''}{line[start:end]}{'...' if end < len(line) else ''} {where}"
