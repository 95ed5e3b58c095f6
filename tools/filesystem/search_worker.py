"""Searches the files given on stdin for a regular expression, one line at a time.

Started as a program of its own by `signoff.tools.filesystem.search`, because a regular expression can take
exponential time and only ending the process stops it. Uses the standard library alone.

stdin: a JSON line {pattern, hits, characters, seconds}; then per file a JSON line {file, bytes} and the
bytes. stdout: a JSON line per hit {file, line, text}, or one {error}.
"""

import faulthandler
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, BinaryIO

_MEMORY = 1_000_000_000
_BLOCK = 1_000_000


def main() -> None:
    """Answers the request on stdin."""
    source = sys.stdin.buffer
    request = json.loads(source.readline())
    _limit(request["seconds"])
    try:
        pattern = re.compile(request["pattern"])
        left = request["hits"]
        for hit in _hits(pattern, source, request["characters"]):
            _answer(hit)
            left -= 1
            if not left:
                break
    except (re.error, OverflowError, RecursionError) as error:
        _answer({"error": str(error)})
    except MemoryError:
        _answer({"error": "it needs too much memory"})
    sys.stdout.flush()
    # Leaves the remaining files unread, and skips the interpreter's shutdown.
    os._exit(0)


def _limit(seconds: int) -> None:
    # A watchdog thread that ends the process in the middle of a match, even when the parent has ended.
    faulthandler.dump_traceback_later(seconds, exit=True, file=os.open(os.devnull, os.O_WRONLY))
    # Windows has no such module, some systems no such limit: then there is only the time limit.
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def _hits(pattern: re.Pattern[str], source: BinaryIO, characters: int) -> Iterator[dict[str, Any]]:
    while header := source.readline():
        entry = json.loads(header)
        for number, line in enumerate(_lines(source, entry["bytes"]), start=1):
            if found := pattern.search(line):
                clipped = _around(line, found.start(), characters)
                yield {"file": entry["file"], "line": number, "text": clipped}


def _lines(source: BinaryIO, left: int) -> Iterator[str]:
    """Yields the lines of the next file, block by block: a large file would take too much memory."""
    encoding, begun = "utf-8-sig", b""
    while True:
        block = source.read(min(left, _BLOCK))
        left = left - len(block) if block else 0
        whole, end, rest = (begun + block).rpartition(b"\n") if left else (begun + block, b"", b"")
        if end or not left:
            text = whole.decode(encoding, errors="replace")
            for line in (text if left else text.removesuffix("\n")).split("\n"):
                yield line.removesuffix("\r")
            encoding = "utf-8"
        if not left:
            return
        begun = rest


def _around(line: str, at: int, characters: int) -> str:
    if len(line) <= characters:
        return line
    start = max(0, min(at - characters // 3, len(line) - characters))
    end = start + characters
    return ("..." if start else "") + line[start:end] + ("..." if end < len(line) else "")


def _answer(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
