"""Parses a reply of the tagged text protocol into plans, actions and state updates.

Nothing is guessed. A tag or a fence counts only at the beginning of a line, or right after the end of another
part; in a code block, in a string of arguments, within another part or in a sentence it is text. A part that
was left open has `whole=False`. Every pattern here takes time linear in the length of the reply. Quoted text
does not count as the writer's own.
"""

import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

_OPEN = (
    r"(?:(?P<fence>`{3,}+(?=[^`\n]*+$)|~{3,}+)(?P<info>[^\n]*+)"
    r"|<(?P<tag>PLAN|STATE_UPDATE|ASK)\s*+>"
    r"|<(?P<wide>CALL|EVIDENCE)(?P<attributes>\s[^<>]{0,300}+)?>)"
)
_FLAGS = re.IGNORECASE | re.MULTILINE
_AT_LINE = re.compile(rf"^[ \t]*+{_OPEN}", _FLAGS)
_HERE = re.compile(rf"[ \t]*+{_OPEN}", _FLAGS)
_ENDS = {
    tag: re.compile(rf"(?P<end></{tag}\s*+>)|^[ \t]*+{_OPEN}", _FLAGS)
    for tag in ("PLAN", "STATE_UPDATE", "ASK", "CALL")
}
_CLOSING = re.compile(r"^[ \t]*+(`{3,}+|~{3,}+)[ \t]*+$", re.MULTILINE)
EVIDENCE = re.compile(r"<EVIDENCE(?:\s[^<>]{0,300}+)?>", re.IGNORECASE)
_EVIDENCE_END = re.compile(r"</EVIDENCE\s*+>", re.IGNORECASE)
_NAME = re.compile(r"""\bname\s*+=\s*+["']?([^"'\s/]{1,128})""", re.IGNORECASE)
_BEFORE_JSON = re.compile(r"\s*+(?:`{3,}+\w*+\s*+)?")
_AFTER_JSON = re.compile(r"\s*+(?:`{3,}+\s*+)?</CALL\s*+>", re.IGNORECASE)
# Models write strings that span lines, so control characters are allowed.
_JSON = json.JSONDecoder(strict=False)
PYTHON = frozenset({"python", "python3", "py"})
"""The languages of code blocks that are run; every other block is text."""

# A reply with more broken parts is not serious, and each costs time proportional to the text before it.
_MOST_BROKEN = 32

_TOKEN = re.compile(r"""\#[^\n]*+|\"{3}|'{3}|"(?:\\.|[^"\\\n])*+"?|'(?:\\.|[^'\\\n])*+'?""", re.DOTALL)
_STRING_END = {
    '"""': re.compile(r'(?:[^\\"]|\\.|"(?!""))*+"""', re.DOTALL),
    "'''": re.compile(r"(?:[^\\']|\\.|'(?!''))*+'''", re.DOTALL),
}


@dataclass(frozen=True)
class TaggedSection:
    """The text of a plan or a state update. `whole`: whether it was closed."""

    text: str
    whole: bool


@dataclass(frozen=True)
class ReplyPart:
    """An action of the reply: a code block, a call of the tool `name`, or a question.

    text: the code, the question, or the arguments as they were written. args: the arguments of a call; None
    if they are not a JSON object. whole: whether it was closed.
    """

    kind: Literal["code", "call", "ask"]
    text: str
    whole: bool = True
    name: str = ""
    args: dict[str, Any] | None = None


@dataclass(frozen=True)
class Reading:
    """A parsed reply.

    plain: the text outside of all parts. upto: the offset of evidence that the reply made up, from which on
    nothing was read; None without it.
    """

    plans: tuple[TaggedSection, ...] = ()
    updates: tuple[TaggedSection, ...] = ()
    parts: tuple[ReplyPart, ...] = ()
    plain: str = ""
    upto: int | None = None


def plain_lines(text: str) -> str:
    """Returns `text` with uniform line endings; `Reading.upto` is an offset in it."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_text(text: str) -> Reading:
    """Parses the reply `text`. Never raises, whatever the text is."""
    return _Reader(plain_lines(text)).read()


@dataclass
class _Reader:
    text: str
    plans: list[TaggedSection] = field(default_factory=list)
    updates: list[TaggedSection] = field(default_factory=list)
    parts: list[ReplyPart] = field(default_factory=list)
    upto: int | None = None
    broken: int = 0
    # After a string in a code block that never ended, no further one is searched for: that would take
    # quadratic time.
    strings: bool = True

    def read(self) -> Reading:
        plain: list[str] = []
        end: int | None = 0
        at, after = 0, False
        while found := (after and _HERE.match(self.text, at)) or _AT_LINE.search(self.text, at):
            plain.append(self.text[at : found.start()])
            end = self._take(found)
            if end is None or self.broken > _MOST_BROKEN:
                end = None
                break
            at, after = end, True
        if end is not None:
            plain.append(self.text[at:])
        text = "\n".join(part.strip() for part in plain if part.strip())
        return Reading(tuple(self.plans), tuple(self.updates), tuple(self.parts), text, self.upto)

    def _add(self, part: ReplyPart) -> None:
        self.parts.append(part)
        self.broken += part.args is None if part.kind == "call" else not part.whole

    def _take(self, found: re.Match[str]) -> int | None:
        """Reads the part that begins at `found`; returns its end, or None when nothing after it counts."""
        if found["fence"]:
            return self._block(found)
        if found["wide"]:
            return self._call(found) if found["wide"].upper() == "CALL" else self._evidence(found)
        tag = found["tag"].upper()
        section, end = self._section(tag, found.end())
        if tag == "ASK":
            self._add(ReplyPart("ask", section.text.strip(), section.whole))
        else:
            (self.plans if tag == "PLAN" else self.updates).append(section)
        return end

    def _block(self, found: re.Match[str]) -> int | None:
        python = _is_python(found)
        block = self._fenced(found)
        if block is None:
            if python:
                self._add(ReplyPart("code", self.text[found.end() :], whole=False))
            return None
        stop, end = block
        code = textwrap.dedent(self.text[found.end() + 1 : stop])
        if python and code.strip():
            self._add(ReplyPart("code", code))
        return end

    def _fenced(self, found: re.Match[str]) -> tuple[int, int] | None:
        """Returns the end of a block's code and of its closing fence; None when the block was left open.

        A fence within a triple-quoted string belongs to the code if that string ends before a later fence.
        """
        first: tuple[int, int] | None = None
        at, quote = found.end(), ""
        for closing in _CLOSING.finditer(self.text, min(at + 1, len(self.text))):
            if closing[1][0] != found["fence"][0] or len(closing[1]) < len(found["fence"]):
                continue
            here = (closing.start(), closing.end())
            if not (self.strings and _is_python(found)):
                return here
            first = first or here
            quote = _open_string(self.text[at : closing.start()], quote)
            at = closing.start()
            if not quote:
                return here
        if first:
            self.strings = False
        return first

    def _section(self, tag: str, start: int) -> tuple[TaggedSection, int]:
        """Returns the text from `start` to the closing tag, or, if it is missing, to the next part."""
        at, stop = start, None
        while found := _ENDS[tag].search(self.text, at):
            if found["end"]:
                return TaggedSection(self.text[start : found.start()], whole=True), found.end()
            if found["fence"]:
                stop = found.start() if stop is None else stop
                block = self._fenced(found)
                if block is None:
                    break
                at = block[1]
            elif (found["wide"] or "").upper() == "EVIDENCE":
                at = found.end()
            else:
                stop = found.start() if stop is None else stop
                break
        stop = len(self.text) if stop is None else stop
        return TaggedSection(self.text[start:stop], whole=False), stop

    def _call(self, found: re.Match[str]) -> int:
        named = _NAME.search(found["attributes"] or "")
        if not named:
            return found.end()
        if (found["attributes"] or "").rstrip().endswith("/"):
            self._add(ReplyPart("call", "", name=named[1], args={}))
            return found.end()
        before = _BEFORE_JSON.match(self.text, found.end())
        start = before.end() if before else found.end()
        args, end = _object(self.text, start)
        if args is not None:
            closed = _AFTER_JSON.match(self.text, end)
            self._add(ReplyPart("call", self.text[start:end], closed is not None, named[1], args))
            return closed.end() if closed else end
        section, end = self._section("CALL", found.end())
        empty = section.whole and not section.text.strip()
        self._add(ReplyPart("call", section.text, section.whole, named[1], {} if empty else None))
        return end

    def _evidence(self, found: re.Match[str]) -> int | None:
        """Evidence in a reply is a quotation, unless it follows an action: then it is made up."""
        if self.parts:
            self.upto = found.start()
            return None
        closed = _EVIDENCE_END.search(self.text, found.end())
        return closed.end() if closed else None


def _is_python(found: re.Match[str]) -> bool:
    return (found["info"].split() or [""])[0].lower() in PYTHON


def _object(text: str, start: int) -> tuple[dict[str, Any] | None, int]:
    """Returns the JSON object at `start` and its end."""
    try:
        value, end = _JSON.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, start
    return (value, end) if isinstance(value, dict) else (None, start)


def _open_string(code: str, quote: str) -> str:
    """Returns the triple quotes of the string still open at the end of `code`; `quote`: at its beginning."""
    at = 0
    while True:
        if quote:
            ended = _STRING_END[quote].match(code, at)
            if not ended:
                return quote
            at, quote = ended.end(), ""
        for token in _TOKEN.finditer(code, at):
            if token[0] in _STRING_END:
                at, quote = token.end(), token[0]
                break
        else:
            return ""


_EVIDENCE = re.compile(r"[ \t]*+<EVIDENCE[\s>]", re.IGNORECASE)
_FENCE = re.compile(r"[ \t]*+(`{3,}+|~{3,}+)(.*)")


def prose(text: str) -> str:
    """Returns `text` without code blocks, inline code and quoted evidence: the model's own words."""
    return "\n".join(re.sub(r"`[^\n]*`", "", line) for line in _outside(text.split("\n")))


def _outside(lines: list[str]) -> Iterator[str]:
    fence, quoted = "", False
    for line in lines:
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
        elif mark and not quoted:
            fence = mark[1]
        elif quoted or _EVIDENCE.match(line):
            quoted = not _EVIDENCE_END.search(line)
        else:
            yield line
