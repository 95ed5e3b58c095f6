"""One exact replacement in a text, and what to tell a model whose text is not there."""

import difflib
import json
import re
import time
from bisect import bisect_left
from collections.abc import Iterator

from langchain_core.tools import ToolException

from signoff.graph.foreign import capped
from signoff.tools.filesystem.looks import look, odd_characters
from signoff.tools.filesystem.paths import few
from signoff.tools.filesystem.text import around, end_of, split_lines, with_ends

_CONTEXT = 3
_MOST_SHOWN = 4_000
_MOST_NAMED_LINES = 10
_MOST_REPLACED = 100_000
_MOST_IN_A_LINE = 300
_SECONDS = 2.0
_LEAST_ALIKE = 0.5
_LINE_NUMBER = re.compile(r"^ *\d+\|", re.MULTILINE)


def replaced(text: str, old: str, new: str, name: str, *, everywhere: bool) -> tuple[str, str]:
    """`text` with `new` in the place of `old`, whatever the line endings of these two: those of the text are
    kept; and what a model is told of it. `old` must be there exactly once, unless `everywhere`. Raises
    ToolException with advice."""
    plain = text.replace("\r\n", "\n")
    windows_ends = [match.start() - index for index, match in enumerate(re.finditer("\r\n", text))]
    starts = _starts(plain, old, overlapping=not everywhere)
    if not starts:
        raise ToolException(_missing(plain, old, name))
    if len(starts) > 1 and not everywhere:
        raise ToolException(_ambiguous(plain, starts, name))
    if len(starts) > _MOST_REPLACED:
        raise ToolException(
            f"old occurs more than {_MOST_REPLACED:,} times in {name}; change it by a command."
        )
    in_a_line = with_ends(new, end_of(text))
    parts: list[str] = []
    done = 0
    for start in starts:
        first = start + bisect_left(windows_ends, start)
        last = start + len(old) + bisect_left(windows_ends, start + len(old))
        put = with_ends(new, end_of(text[first:last])) if "\n" in old else in_a_line
        parts += [text[done:first], put]
        done = last
    edited = "".join([*parts, text[done:]])
    what = f"Edited {name}. The lines there are now:"
    if len(starts) > 1:
        what = f"Edited {name} in {len(starts):,} places. The lines around the first are now:"
    return edited, f"{what}\n{_shown(edited, len(parts[0]), len(parts[0]) + len(parts[1]))}"


def _shown(text: str, start: int, end: int) -> str:
    """The lines around this part of a text; of a long line, the part around its start."""
    lines, first = split_lines(text), _line_at(text, start)
    within_line = start - (text.rfind("\n", 0, start) + 1)
    shown = _numbered(lines, first - _CONTEXT, _line_at(text, end) + _CONTEXT, first, within_line)
    return capped(shown, limit=_MOST_SHOWN, keep=None)


def _starts(text: str, old: str, *, overlapping: bool) -> list[int]:
    """Where `old` is in `text`; enough of these places for a message."""
    starts: list[int] = []
    at = text.find(old)
    while at >= 0 and len(starts) <= (_MOST_NAMED_LINES if overlapping else _MOST_REPLACED):
        starts.append(at)
        at = text.find(old, at + (1 if overlapping else len(old)))
    return starts


def _line_at(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _numbered(lines: list[str], first: int, last: int, number: int, shown: int) -> str:
    """The lines from `first` to `last` as "12|text"; of a long line a part, of that with this number the part
    around the character `shown`."""
    numbers = range(max(first, 1), min(last, len(lines)) + 1)
    starts = {number: shown - _MOST_IN_A_LINE // 3}
    return "\n".join(f"{n}|{around(lines[n - 1], starts.get(n, 0), _MOST_IN_A_LINE)}" for n in numbers)


def _ambiguous(text: str, starts: list[int], name: str) -> str:
    lines = dict.fromkeys(str(_line_at(text, start)) for start in starts[:_MOST_NAMED_LINES])
    more = " and more" if len(starts) > _MOST_NAMED_LINES else ""
    return (
        f"old occurs more than once in {name}, in lines {', '.join(lines)}{more}; nothing was changed. "
        "Include more lines before or after it in old, so that it fits one place only, or pass "
        "replace_all=true to change all of them."
    )


def _missing(text: str, old: str, name: str) -> str:
    problem = f"old is not in {name}; nothing was changed."
    if _LINE_NUMBER.search(old) and _LINE_NUMBER.sub("", old) in text:
        return f"{problem} Leave out the line numbers and the bar that read_file puts before each line."
    if advice := _alike(text, old):
        return f"{problem} {advice}"
    if " ".join(old.split()) in " ".join(text.split()):
        problem += " It is there with other spaces, indentation or line breaks."
    place, looked = _closest(split_lines(text), split_lines(old))
    if not place:
        return (
            f"{problem} No line comes close{looked}; read the file with read_file and copy the text exactly."
        )
    return f"{problem} The closest lines are below{looked}; copy the text exactly.\n{place}"


def _alike(text: str, old: str) -> str:
    """Where the file has text that only looks like `old`, with the names of the characters that differ."""
    looks, wanted = look(text), look(old)
    at = looks.find(wanted) if wanted.strip() else -1
    if at < 0:
        return ""
    # Also at what only looks like the end of a line, which then differs.
    lines = text.splitlines(keepends=True)
    above = looks.count("\n", 0, at)
    first = number = 1 + sum(line.endswith("\n") for line in lines[:above])
    places: list[str] = []
    for line, part in zip(lines[above:], old.splitlines(keepends=True), strict=False):
        sides = {"the file": odd_characters(line, part), "old": odd_characters(part, line)}
        places += [f"in line {number} {side} has {few(names)}" for side, names in sides.items() if names]
        number += line.endswith("\n")
    # Else the same characters are there in another order.
    shown = few(places) or f"line {first} is {json.dumps(lines[above].rstrip()[:_MOST_IN_A_LINE])}"
    return (
        f"It looks the same in the file but is written otherwise: {shown}. Write it in old as the file has "
        "it, in JSON with escapes such as \\u00a0."
    )


def _closest(lines: list[str], old: list[str]) -> tuple[str, str]:
    """The place in `lines` that is most similar to `old`, found by its longest line, if any is; and how far
    they were compared, if the time for it was too short."""
    anchor = max(range(len(old)), key=lambda index: len(old[index].strip()))
    wanted = old[anchor].strip()[:_MOST_IN_A_LINE]
    matcher = difflib.SequenceMatcher(b=wanted, autojunk=False)
    end = time.monotonic() + _SECONDS
    known, most = {""}, _LEAST_ALIKE
    place = looked = ""
    for number, start, part in _parts(lines, len(wanted)):
        if part in known:
            continue
        if time.monotonic() > end:
            looked = f" (only what is before character {start + 1:,} of line {number:,} was compared)"
            break
        known.add(part)
        matcher.set_seq1(part)
        # The exact figure takes far longer than these bounds of it.
        if matcher.real_quick_ratio() > most and matcher.quick_ratio() > most and matcher.ratio() > most:
            most, first = matcher.ratio(), number - anchor
            place = _numbered(lines, first - 1, first + min(len(old), _MOST_NAMED_LINES), number, start)
    return place, looked


def _parts(lines: list[str], length: int) -> Iterator[tuple[int, int, str]]:
    """Each line with its number; of a long one parts that overlap, so that one holds a text of this length
    wherever it is, and where they start."""
    for number, line in enumerate(lines, 1):
        step = max(length // 2, 1) if len(line) > _MOST_IN_A_LINE else _MOST_IN_A_LINE
        for start in range(0, len(line), step):
            yield number, start, line[start : start + 3 * step].strip()
