"""Splits what a program writes to its terminal into text, control characters and escape sequences."""

import codecs
import re
from collections.abc import Iterator

_MOST_HELD = 4_096
_MOST_NUMBER = 9_999
_STRING = r"[^\x07\x18\x1a\x1b]*"

_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x1f\x7f]+)"
    r"|\x1b\[(?P<mark>[<-?]?)(?P<numbers>[0-9:;]*)(?P<between>[ -/]*)(?P<csi>[@-~])"
    rf"|\x1b\](?P<osc>{_STRING})(?:\x07|\x1b\\)"
    rf"|\x1b[PX^_](?P<string>{_STRING})(?:\x07|\x1b\\)"
    r"|\x1b(?P<escape>[ -/]+[0-~]|[0-OQ-WYZ\\`-~])"
    r"|(?P<control>[\x00-\x1a\x1c-\x1f\x7f])"
)
_UNFINISHED = re.compile(rf"\x1b(?:\[[ -?]*|[\]PX^_]{_STRING}\x1b?|[ -/]*)\Z")
_BROKEN = re.compile(rf"\x1b(?:\[[ -?]*[@-~]?|[\]PX^_]{_STRING}|[ -/]*)")
_STRING_BEGUN = re.compile(r"\x1b[\]PX^_]")
_STRING_ENDS = re.compile(r"[\x07\x18\x1a\x1b]")
_NUMBERS_END = re.compile(r"[^ -?]")


class Escapes:
    """A stream of bytes as tokens, also where a character or a sequence comes in pieces.

    A token is a match whose `lastgroup` says what it is: `text`, `control`, `csi` (with the groups `mark`,
    `numbers` and `between`), `osc`, `string` (DCS and the like) or `escape`. Sequences that are malformed, or
    that come in pieces and are longer than some thousand characters, are left out.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""
        self._until: re.Pattern[str] | None = None

    def split(self, data: bytes) -> Iterator[re.Match[str]]:
        """The tokens of `data`; has to be read to its end."""
        text, self._held = self._held + self._decoder.decode(data), ""
        at = self._skipped(text)
        while at < len(text):
            if found := _TOKEN.match(text, at):
                yield found
                at = found.end()
            elif _UNFINISHED.match(text, at):
                self._hold(text[at:])
                return
            else:
                broken = _BROKEN.match(text, at)
                at = broken.end() if broken else at + 1

    def _hold(self, unfinished: str) -> None:
        if len(unfinished) <= _MOST_HELD:
            self._held = unfinished
            return
        self._until = _STRING_ENDS if _STRING_BEGUN.match(unfinished) else _NUMBERS_END
        # It may be the first half of a string's end.
        self._held = "\x1b" if unfinished.endswith("\x1b") else ""

    def _skipped(self, text: str) -> int:
        """Where to go on, when the beginning of `text` belongs to a sequence that is too long to keep."""
        if self._until is None:
            return 0
        end = self._until.search(text)
        if end is None:
            return len(text)
        self._until = None
        return end.start() if end[0] == "\x1b" else end.end()


def numbers(token: re.Match[str]) -> list[int]:
    """The parameters of a `csi` token, 0 for those left out."""
    return [_number(each) for each in re.split("[;:]", token["numbers"])]


def grouped_numbers(token: re.Match[str]) -> list[list[int]]:
    """The parameters of a `csi` token, each with the ones that colons join to it."""
    return [[_number(each) for each in group.split(":")] for group in token["numbers"].split(";")]


def _number(digits: str) -> int:
    return min(int(digits[-9:] or 0), _MOST_NUMBER) if len(digits) < 10 else _MOST_NUMBER
