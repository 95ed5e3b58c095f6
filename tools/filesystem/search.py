"""search_files: a regular expression over the lines of the text files in a workspace, in bounded time.

`regex` matches with a time limit and lets other threads run meanwhile. A pattern is first looked for in the
whole text of a file, which is fast, where that cannot miss a line, and only then line by line. Python's own
`re` checks the pattern before, because `regex` writes out nested repeats, for which no memory suffices.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import regex  # type: ignore[import-untyped]  # the package has no types
from langchain_core.tools import ToolException

from signoff.graph.foreign import count_noun, valid_text
from signoff.graph.foreign_files import read_regular
from signoff.tools.filesystem.globs import fitting
from signoff.tools.filesystem.paths import few, one_line, quote_path
from signoff.tools.filesystem.text import around, not_text
from signoff.tools.workspace import EMPTY, Deadline, FolderEntry, Walk, Workspace, walk

SECONDS = 10.0
"""The time limit of one search, in seconds."""

MOST_HITS = 500
MOST_SEARCHED_BYTES = 50_000_000
MOST_CONTEXT = 10

_MOST_IN_A_FILE = 2_000_000
_MOST_PATTERN = 1_000
_MOST_REPEATS = 100_000
_MOST_IN_A_LINE = 300
# One file may take this long, and more if it is large: a pattern that goes wrong takes memory, too.
_FILE_SECONDS = 1.0
_CHARACTERS_A_SECOND = 10_000_000
# What matches within a line then also matches in a text of several: characters, classes, groups, and repeats
# that give back; or anything that looks around, but can itself match no line end.
_PLAIN = re.compile(r"(?!(?s:.*)[*+?}]\+)(?:\(\?i\))?(?:[^\\(]|\((?!\?[^:])|\\[^\W\dAGKLNRXZgkp]|\\[\W_])*")
_SET = r"\[(?!\^)(?:[^\]\\\x00-\x1f]|\\[wd\W])+\]"
_WITHIN = re.compile(rf"(?:\(\?i\))?(?:[^\\(\[\x00-\x1f]|\((?:\?(?:<?[=!]|[:>])|(?!\?))|\\[wdbB\W]|{_SET})*")
_LINE = re.compile("^.*", re.MULTILINE)
_REPEAT = re.compile(r"\{(?:\d*,)?(\d+),?\}")
# Braces that are no repeat: for `regex` they would allow errors in the match.
_BRACE = re.compile(r"\\(?:N\{[^}]*\}|.)|\{(?!\d+(?:,\d*)?\}|,\d*\})", re.DOTALL)
_HOW = " A glob fits a file's name or its path from the workspace: write *.py, src/**/*.ts or *.{js,ts}."
_IN_PART = "but for ASCII characters, since not UTF-8"
_SLOW = "to the end, since the pattern takes too long"
_NARROWER = "make the pattern narrower, or pass a path or a glob, to see others."


def _compiled(pattern: str) -> tuple["regex.Pattern[str]", "regex.Pattern[str]", str]:
    """What must match within a line; what must then match in a text of several; and why the
    pattern is no regular expression, so that it is searched for as plain text."""
    if not pattern:
        raise ToolException("The pattern is empty; pass the text or regular expression to search for.")
    if len(pattern) > _MOST_PATTERN:
        raise ToolException(f"The pattern is longer than {_MOST_PATTERN} characters; use a shorter one.")
    exact = _BRACE.sub(lambda match: match[0] if match[0].startswith("\\") else r"\{", pattern)
    try:
        re.compile(pattern)
        if math.prod(max(int(most), 1) for most in _REPEAT.findall(pattern)) > _MOST_REPEATS:
            raise ToolException(
                f"The repeats in the pattern multiply to more than {_MOST_REPEATS:,}; use smaller ones."
            )
        line = regex.compile(exact)
    except (re.error, regex.error, OverflowError, RecursionError, MemoryError) as error:
        literal = regex.compile(regex.escape(pattern))
        return literal, literal, valid_text(str(error)) or type(error).__name__
    is_plain = _PLAIN.fullmatch(exact) or _WITHIN.fullmatch(exact)
    return line, regex.compile(exact if is_plain else "", regex.MULTILINE), ""


@dataclass
class _Hits:
    """Matching lines, with those around them."""

    rows: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, entry: FolderEntry, text: str, places: list[tuple[int, int]], context: int) -> None:
        """places: the index of each matching line, and where in it the match is."""
        name, matches = one_line(entry.path), dict(places)
        self.count += len(matches)
        near = {n for index in matches for n in range(index - context, index + context + 1)}
        for index, line in enumerate(islice(_lines(text), max(near) + 1)):
            if index in near:
                sign = ":" if index in matches else "-"
                start = matches.get(index, 0) - _MOST_IN_A_LINE // 3
                self.rows.append(f"{name}{sign}{index + 1}{sign} {around(line, start, _MOST_IN_A_LINE)}")


class Search:
    """One search: the lines of text files that match `pattern`, as "file:line: text", and `context` lines
    around each, as "file-line- text". If none matches, those that hold the pattern as plain text.

    Stops after `SECONDS` and says what was found, and what was left out. Raises ToolException when there is
    nothing to search for or in, or the time ran out without a match.
    """

    def __init__(self, workspace: Workspace, pattern: str, context: int) -> None:
        self._workspace, self._deadline = workspace, Deadline(SECONDS)
        self._context = min(max(context, 0), MOST_CONTEXT)
        self._by_line, self._by_text, self._error = _compiled(pattern)
        self._has_line_end = "\n" in pattern or "\\n" in pattern
        self._plain = regex.compile(regex.escape(pattern))
        self._hits, self._plain_hits = _Hits(), _Hits()
        self._files = 0
        self._left_out: dict[str, list[str]] = {}
        self._end = ""
        self._visit: Walk | None = None

    def _run(self, path: str, glob: str | None) -> None:
        total = 0
        for entry, most in self._entries(path, glob):
            text, why = _text(entry, most)
            total += len(text)
            if why:
                self._leave_out(why, entry)
            if total > MOST_SEARCHED_BYTES:
                self._end = f"{MOST_SEARCHED_BYTES:,} characters"
            elif why in ("", _IN_PART):
                self._file(entry, text.replace("\r\n", "\n"))
            if self._hits.count >= MOST_HITS:
                self._end = f"{MOST_HITS} lines"
            if self._end:
                return

    def _entries(self, path: str, glob: str | None) -> Iterator[tuple[FolderEntry, int]]:
        """The files to search, each with the size that it may have."""
        named = self._workspace._entry(path)
        if named.kind != "folder":
            yield named, MOST_SEARCHED_BYTES
            return
        fits = fitting(glob, self._workspace.relative(path))
        self._visit = visit = walk(self._workspace, path, self._deadline)
        for entry in visit:
            if entry.kind == "file" and fits(entry.path):
                yield entry, _MOST_IN_A_FILE
            elif entry.kind != "file" and entry.note != EMPTY:
                self._leave_out(entry.note or entry.kind, entry)
        self._end = visit.end

    def _leave_out(self, why: str, entry: FolderEntry) -> None:
        self._left_out.setdefault(why, []).append(quote_path(entry.path))

    def _file(self, entry: FolderEntry, text: str) -> None:
        self._files += 1
        hits, places = self._hits, list[tuple[int, int]]()
        try:
            places.extend(islice(self._places(text, self._by_text, self._by_line), MOST_HITS - hits.count))
            if not places and not hits.count:
                hits = self._plain_hits
                places.extend(islice(self._places(text, self._plain, self._plain), MOST_HITS - hits.count))
        except (TimeoutError, MemoryError):
            # What was found before stays.
            self._leave_out(_SLOW, entry)
        if places:
            hits.add(entry, text, places, self._context)

    def _places(
        self, text: str, by_text: "regex.Pattern[str]", by_line: "regex.Pattern[str]"
    ) -> Iterator[tuple[int, int]]:
        """The index of each line that matches, and where in it the match is."""
        seconds = _FILE_SECONDS + len(text) / _CHARACTERS_A_SECOND
        deadline = Deadline(min(seconds, self._deadline.left))
        first = by_text.search(text, timeout=deadline.left)
        if not first:
            return
        for index, line in islice(enumerate(_lines(text)), text.count("\n", 0, first.start()), None):
            if match := by_line.search(line, timeout=deadline.left):
                yield index, match.start()

    def result(self, path: str, glob: str | None) -> str:
        """What is found at `path`, as text."""
        self._run(path, glob)
        hits, note = self._hits, ""
        names, notes = f" (names that match {quote_path(glob)})" if glob else "", self._notes()
        if not self._files:
            where = "the workspace" if path == "." else self._workspace.relative(path)
            nothing = "Nothing was searched" if notes else "There is no text file to search"
            raise ToolException(f"{nothing} in {where}{names}.{_HOW if glob else ''}{notes}")
        if self._error:
            note = f"The pattern is no regular expression ({self._error}); it was looked for as plain text. "
        elif not hits.count and self._plain_hits.count:
            hits, note = self._plain_hits, "No line matches the pattern; these hold it as plain text. "
        elif not hits.count and self._has_line_end:
            note = "A pattern works within one line, so one with a line end finds nothing. "
        if not hits.count and (_SLOW in self._left_out or self._deadline.left == 0):
            raise ToolException(
                f"{note}The search took too long, and found nothing before; use a simpler pattern, or pass a "
                f"path or a glob.{notes}"
            )
        if not hits.count and self._error:
            raise ToolException(
                f"{note}Put a backslash before literal special characters, such as \\( or \\[.{notes}"
            )
        count = f"{count_noun(hits.count, 'matching line')} in {count_noun(self._files, 'file')}{names}."
        return "\n".join([*(hits.rows or ["No matches."]), note + count + notes])

    def _notes(self) -> str:
        notes = "".join(f" Not searched ({why}): {few(paths)}." for why, paths in self._left_out.items())
        notes += f" {self._visit.note}" if self._visit and self._visit.note else ""
        if not self._end:
            return notes
        return f"{notes} Stopped after {self._end}: {_NARROWER}"


def _text(entry: FolderEntry, most: int) -> tuple[str, str]:
    """The text of a file, and why it cannot be searched, or only in part."""
    if entry.size > most:
        way = "unless passed as path" if most == _MOST_IN_A_FILE else "read parts of it with read_file"
        return "", f"larger than {most:,} bytes, {way}"
    try:
        data = read_regular(entry.real, most)
    except OSError:
        # Deleted or changed since it was listed, or not readable.
        return "", "it could not be read"
    if kind := not_text(data):
        return "", kind
    try:
        return data.decode("utf-8-sig"), ""
    except UnicodeDecodeError:
        return data.decode("utf-8-sig", "replace"), _IN_PART


def _lines(text: str) -> Iterator[str]:
    return (line[0] for line in _LINE.finditer(text.removesuffix("\n")))
