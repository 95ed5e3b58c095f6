"""search_files: a regular expression over the lines of the text files in a workspace, in bounded time.

`regex` matches with a time limit and lets other threads run meanwhile. A pattern is first looked for in the
whole text of a file, which is fast, and only then line by line. Python's own `re` checks the pattern before,
because `regex` writes out nested repeats, for which no memory suffices.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import regex  # type: ignore[import-untyped]  # the package has no types
from langchain_core.tools import ToolException

from signoff.graph.foreign import capped, count_noun, valid_text
from signoff.graph.foreign_files import read_regular
from signoff.tools.filesystem.globs import fitting
from signoff.tools.filesystem.paths import few, one_line, quote_path
from signoff.tools.filesystem.text import around, not_text
from signoff.tools.workspace import MOST_VISITED, Deadline, FolderEntry, Workspace

SECONDS = 10.0
"""The time limit of one search, in seconds."""

MOST_HITS = 500
MOST_SEARCHED_BYTES = 50_000_000
MOST_CONTEXT = 10

_MOST_IN_A_FILE = 2_000_000
_MOST_PATTERN = 1_000
_MOST_REPEATS = 20_000
_MOST_IN_A_LINE = 300
# One file may take this long, and more if it is large: a pattern that goes wrong takes memory, too.
_FILE_SECONDS = 1.0
_BYTES_A_SECOND = 10_000_000
_SIGNS = frozenset(r".^$*+?{}[]\|()")
# What may match within a line and not in a text of several: the ends of a text; and what looks around or does
# not give back, where a part of the pattern can match a line end.
_TEXT_ENDS = re.compile(r"\\[AZ]")
_STRICT = re.compile(r"\(\?(?:<?[=!]|>|\()|[*+?}]\+")
_LINE_END = re.compile(r"\\[sWDntrvfxuUN0-9]|\[\^|\(\?[a-zA-Z]*s|[\n\r]")
_REPEAT = re.compile(r"(\)?)\{(\d*)(?:,(\d*))?\}")
# Braces that are no repeat: for `regex` they would allow errors in the match.
_BRACE = re.compile(r"\\(?:N\{[^}]*\}|.)|\{(?!\d+(?:,\d*)?\}|,\d*\})", re.DOTALL)
_LARGER, _PASSED_OVER = "Not searched, larger than", "Passed over"
_UNTOLD = frozenset({"__pycache__", ".signoff"})


def search_files(
    workspace: Workspace,
    pattern: str,
    path: str = ".",
    glob: str | None = None,
    context: int = 0,
    *,
    seconds: float = SECONDS,
) -> str:
    """The lines of text files at `path` that match `pattern`, as "file:line: text", and `context` lines
    around each, as "file-line- text". If none matches, those that hold the pattern as plain text.

    Stops after `seconds` and says what was found. Raises ToolException when there is nothing to search for or
    in, or the time ran out without a match.
    """
    search = _Search(workspace, _pattern(pattern), min(max(context, 0), MOST_CONTEXT), Deadline(seconds))
    search.run(path, glob)
    return search.result(path, glob)


@dataclass(frozen=True)
class _Pattern:
    """line: what must match within a line. text: the same for a text of several lines, if that is possible.
    plain: the pattern as plain text, where that is something else. has_line_end: so that it matches nothing.
    error: why it is no regular expression, so that it is searched for as plain text."""

    line: "regex.Pattern[str]"
    text: "regex.Pattern[str] | None"
    has_line_end: bool
    plain: str = ""
    error: str = ""


def _pattern(pattern: str) -> _Pattern:
    if not pattern:
        raise ToolException("The pattern is empty; pass the text or regular expression to search for.")
    if len(pattern) > _MOST_PATTERN:
        raise ToolException(f"The pattern is longer than {_MOST_PATTERN} characters; use a shorter one.")
    has_line_end = "\n" in pattern or "\\n" in pattern
    exact = _BRACE.sub(lambda match: match[0] if match[0].startswith("\\") else r"\{", pattern)
    try:
        re.compile(pattern)
        if _repeats(pattern) > _MOST_REPEATS:
            raise ToolException(
                f"The repeats in the pattern multiply to more than {_MOST_REPEATS:,}; use smaller ones."
            )
        line = regex.compile(exact)
    except (re.error, regex.error, OverflowError, RecursionError, MemoryError) as error:
        literal = regex.compile(regex.escape(pattern))
        return _Pattern(literal, literal, has_line_end, error=valid_text(str(error)) or type(error).__name__)
    is_bound = _TEXT_ENDS.search(exact) or (_STRICT.search(exact) and _LINE_END.search(exact))
    text = None if is_bound else regex.compile(exact, regex.MULTILINE)
    return _Pattern(line, text, has_line_end, "" if _SIGNS.isdisjoint(pattern) else pattern)


def _repeats(pattern: str) -> int:
    """How often a part may be repeated, at most: those of groups by each other and by the largest of another
    part."""
    groups = largest = 1
    for of_group, least, most in _REPEAT.findall(pattern):
        count = max(int(least or 1), int(most or 1), 1)
        groups, largest = (groups * count, largest) if of_group else (groups, max(largest, count))
    return groups * largest


@dataclass
class _Hits:
    """Matching lines, with those around them."""

    rows: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, entry: FolderEntry, lines: list[str], places: list[tuple[int, int]], context: int) -> None:
        """places: the index of each matching line, and where in it the match is."""
        name, last = one_line(entry.path), -1
        matches = dict(places[: MOST_HITS - self.count])
        self.count += len(matches)
        near = {n for index in matches for n in range(index - context, index + context + 1)}
        for index in sorted(near.intersection(range(len(lines)))):
            if context and self.rows and index != last + 1:
                self.rows.append("--")
            sign, last = ":" if index in matches else "-", index
            text = around(lines[index], matches.get(index, 0), _MOST_IN_A_LINE)
            self.rows.append(f"{name}{sign}{index + 1}{sign} {text}")

    @property
    def is_full(self) -> bool:
        return self.count >= MOST_HITS


class _Search:
    """One search. What was left out is kept by the reason."""

    def __init__(self, workspace: Workspace, pattern: _Pattern, context: int, deadline: Deadline) -> None:
        self._workspace, self._pattern, self._context = workspace, pattern, context
        self._deadline = deadline
        self._hits, self._plain_hits = _Hits(), _Hits()
        self._files = 0
        self._left_out: dict[str, list[str]] = {}
        self._is_folder = True
        self._is_late = False
        self._end = ""

    def run(self, path: str, glob: str | None) -> None:
        named, total = self._workspace.entry(path), 0
        self._is_folder = named.kind == "folder"
        most = _MOST_IN_A_FILE if self._is_folder else MOST_SEARCHED_BYTES
        for entry in self._entries(path, glob) if self._is_folder else [named]:
            if self._deadline.left <= 0:
                self._is_late, self._end = True, f" Stopped after {self._deadline.seconds:g} s"
                return
            data = self._data(entry, most)
            total += len(data or b"")
            if total > MOST_SEARCHED_BYTES:
                self._end = f" Stopped after {MOST_SEARCHED_BYTES:,} bytes"
                return
            if data is not None:
                self._file(entry, data)
            if self._hits.is_full:
                self._end = f" Stopped at {MOST_HITS} lines"
                return

    def _entries(self, path: str, glob: str | None) -> Iterator[FolderEntry]:
        fits = fitting(glob, self._workspace.relative(path))
        for visited, entry in enumerate(self._workspace.walk(path)):
            if visited >= MOST_VISITED:
                self._end = f" Stopped after {MOST_VISITED:,} entries"
                return
            if entry.kind == "ignored":
                self._leave_out("Not searched, as .gitignore says", entry)
            elif entry.kind in ("skipped", "closed", "deep"):
                if entry.path.rsplit("/", 1)[-1] not in _UNTOLD:
                    self._leave_out(_PASSED_OVER, entry)
            elif entry.kind == "file" and fits(entry.path):
                yield entry

    def _data(self, entry: FolderEntry, most: int) -> bytes | None:
        """The content of a file; None, with a note, if it cannot be searched."""
        data = b""
        try:
            data = read_regular(entry.real, most) if entry.size <= most else b""
            why = f"{_LARGER} {most:,} bytes" if entry.size > most else ""
        except OSError:
            # Deleted or changed since it was listed, or not readable.
            why = "Could not be read"
        if kind := not_text(data):
            why = f"Not searched, {kind}"
        if why:
            self._leave_out(why, entry)
        return None if why else data

    def _leave_out(self, why: str, entry: FolderEntry) -> None:
        self._left_out.setdefault(why, []).append(quote_path(entry.path))

    def _file(self, entry: FolderEntry, data: bytes) -> None:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = data.decode("utf-8-sig", "replace")
            self._leave_out("Searched by ASCII characters only, since not UTF-8", entry)
        text = text.replace("\r\n", "\n")
        self._files += 1
        try:
            matches = self._matches(text, _FILE_SECONDS + len(data) / _BYTES_A_SECOND)
        except (TimeoutError, MemoryError):
            self._is_late = True
            self._leave_out("Not searched to the end, since the pattern takes too long", entry)
            return
        plain = self._pattern.plain
        if matches:
            self._hits.add(entry, _lines(text), matches, self._context)
        elif plain and plain in text and not self._hits.count:
            lines = _lines(text)
            places = [(index, line.find(plain)) for index, line in enumerate(lines) if plain in line]
            self._plain_hits.add(entry, lines, places, self._context)

    def _matches(self, text: str, seconds: float) -> list[tuple[int, int]]:
        deadline = Deadline(min(seconds, max(self._deadline.left, 0.01)))
        by_text, by_line = self._pattern.text, self._pattern.line
        if by_text and not by_text.search(text, timeout=deadline.left):
            return []
        places: list[tuple[int, int]] = []
        for index, line in enumerate(_lines(text)):
            if match := by_line.search(line, timeout=max(deadline.left, 0.01)):
                places.append((index, match.start()))
                if self._hits.count + len(places) >= MOST_HITS:
                    break
        return places

    def result(self, path: str, glob: str | None) -> str:
        hits, note, error = self._hits, "", self._pattern.error
        names, notes = f" (names that match {glob})" if glob else "", self._notes()
        if error:
            note = (
                f"The pattern is not a valid regular expression: {error}; it was looked for as plain text. "
            )
            if not hits.count:
                raise ToolException(
                    f"{note}Put a backslash before literal special characters, such as \\( or \\[.{notes}"
                )
        elif not hits.count and self._plain_hits.count:
            hits, note = self._plain_hits, "No line matches the pattern; these hold it as plain text. "
        if not self._files:
            raise ToolException(self._nothing(path, names, notes))
        if self._is_late and not hits.count:
            raise ToolException(
                f"The search took too long, and found nothing before; use a simpler pattern, or pass a path "
                f"or a glob.{notes}"
            )
        if not hits.count and self._pattern.has_line_end:
            note = "A pattern works within one line, so one with a line end finds nothing. "
        count = f"{count_noun(hits.count, 'matching line')} in {count_noun(self._files, 'file')}{names}."
        rows = [*(hits.rows or ["No matches."]), note + count + notes]
        return capped("\n".join(rows), keep=self._workspace.keep("search_files"))

    def _nothing(self, path: str, names: str, notes: str) -> str:
        where = "the workspace" if path == "." else self._workspace.relative(path)
        nothing = "Nothing was searched" if notes else "There is no text file to search"
        how = (
            " A glob is compared with a file's name and with its path from the workspace: write *.py, "
            "src/**/*.ts or *.{js,ts}, or leave it out."
        )
        return f"{nothing} in {where}{names}.{how if names else ''}{notes}"

    def _notes(self) -> str:
        notes = ""
        for what, paths in self._left_out.items():
            notes += f" {what}: {few(paths)}."
        if any(what.startswith((_LARGER, _PASSED_OVER)) for what in self._left_out):
            notes += (
                " Pass one of them as path to search it."
                if self._is_folder
                else " Read parts of it with read_file, or search it by a command."
            )
        if self._end:
            notes += f"{self._end}: make the pattern narrower, or pass a path or a glob, to see others."
        return notes


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")
