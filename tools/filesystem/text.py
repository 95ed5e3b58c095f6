"""Text files on disk: their lines, line endings and byte order mark, at any size."""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal

CLIPPED = 2_000
"""How many characters of one line are shown."""

_BLOCK = 1_000_000
_BOM = "\ufeff"


@dataclass(frozen=True)
class Measured:
    """The format of a file.

    lines: how many lines it has, as editors count them. offset: where the wanted line begins. is_text:
    whether the whole file is UTF-8. ends, windows_ends: how many line endings there are, and how many of them
    are "\\r\\n".
    """

    lines: int
    offset: int
    is_text: bool
    ends: int
    windows_ends: int
    has_bom: bool

    def applied(self, content: str) -> tuple[str, str]:
        """Returns `content` with this file's line endings and byte order mark, and a sentence about them."""
        text = content
        if self.ends:
            text = content.replace("\r\n", "\n").replace("\n", end_of(self.ends, self.windows_ends))
        if self.has_bom and not text.startswith(_BOM):
            text = _BOM + text
        if text == content:
            return text, ""
        return text, f" Unchanged: {self._describe()}."

    def _describe(self) -> str:
        name = "CRLF" if end_of(self.ends, self.windows_ends) == "\r\n" else "LF"
        mixed = " (most of them; they were mixed)" if 0 < self.windows_ends < self.ends else ""
        parts = [f"line endings {name}{mixed}"] if self.ends else []
        return " and ".join([*parts, "the byte order mark"] if self.has_bom else parts)


def end_of(ends: int, windows_ends: int) -> Literal["\n", "\r\n"]:
    """Returns the most frequent line ending."""
    return "\r\n" if windows_ends * 2 > ends else "\n"


def split_lines(text: str) -> list[str]:
    """Returns the lines of `text`, without their endings; only "\\n" and "\\r\\n" end a line."""
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def clipped(line: str, most: int = CLIPPED, length: int | None = None) -> str:
    """Returns the beginning of a line. length: the characters of the whole line, if `line` is a part."""
    length = len(line) if length is None else length
    return line if length <= most else f"{line[:most]}... [{length - most} more characters in this line]"


def measured(file: BinaryIO, line: int = 1) -> Measured:
    """Reads the whole `file` in blocks and returns its format. line: the line whose offset is wanted."""
    ends = windows_ends = size = offset = 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    is_text, held, last = True, b"", b""
    file.seek(0)
    has_bom = file.read(3) == codecs.BOM_UTF8
    for block in _blocks(file):
        try:
            if is_text:
                decoder.decode(block)
        except UnicodeDecodeError:
            is_text = False
        found = block.count(b"\n")
        if ends < line - 1 <= ends + found:
            offset = size + _after(block, line - 1 - ends)
        # A "\r\n" may begin in the block before.
        windows_ends += (held + block).count(b"\r\n")
        held = b"\r" if block.endswith(b"\r") else b""
        ends += found
        size += len(block)
        last = block[-1:]
    try:
        decoder.decode(b"", final=is_text)
    except UnicodeDecodeError:
        is_text = False
    # A byte order mark alone is not a line.
    lines = ends + (last not in (b"", b"\n") and not (has_bom and size == len(codecs.BOM_UTF8)))
    return Measured(lines, offset, is_text, ends, windows_ends, has_bom)


def one_line_of(file: BinaryIO) -> str:
    """Reads the next line without its ending; of a long line, counts and leaves out the rest."""
    decoder = codecs.getincrementaldecoder("utf-8-sig" if file.tell() == 0 else "utf-8")(errors="replace")
    begun, length, end = "", 0, ""
    while piece := file.readline(_BLOCK):
        text = end + decoder.decode(piece, final=piece.endswith(b"\n"))
        # Held back: it may be the first half of a line ending.
        end = "\r" if text.endswith("\r") else ""
        text = text.removesuffix("\r")
        if text.endswith("\n"):
            text, end = text.removesuffix("\n").removesuffix("\r"), ""
        length += len(text)
        begun += text[: CLIPPED + 1 - len(begun)]
        if piece.endswith(b"\n"):
            break
    rest = decoder.decode(b"", final=True)
    return clipped(begun + rest, length=length + len(rest))


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    while block := file.read(_BLOCK):
        yield block


def _after(block: bytes, count: int) -> int:
    """Returns the offset of the line after this many line endings."""
    at = 0
    for _ in range(count):
        at = block.index(b"\n", at) + 1
    return at
