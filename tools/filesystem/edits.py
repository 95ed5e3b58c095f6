"""One exact replacement in a text, and what to tell a model whose text is not there."""

import difflib
import re
import time
from bisect import bisect_left
from dataclasses import dataclass
from heapq import nlargest

from langchain_core.tools import ToolException

from signoff.graph.foreign import count_noun
from signoff.tools.filesystem.looks import character_names, differences, look
from signoff.tools.filesystem.text import around, end_of, split_lines, with_ends

_MOST_PLACES = 3
_MOST_NAMED_LINES = 10
_MOST_REPLACED = 100_000
_MOST_IN_A_LINE = 300
_MOST_SCORED = 50
_SECONDS = 2.0
_LEAST_ALIKE = 0.5
_WORD = re.compile(r"\w+")
_LINE_NUMBER = re.compile(r"^ *\d+\|", re.MULTILINE)


@dataclass(frozen=True)
class Edited:
    """The changed text; the offset and the length of what was put at each place in it."""

    text: str
    places: tuple[tuple[int, int], ...]


def replaced(text: str, old: str, new: str, name: str, *, everywhere: bool) -> Edited:
    """`text` with `new` in the place of `old`, whatever the line endings of these two: those of the text are
    kept. `old` must be there exactly once, unless `everywhere`. Raises ToolException with advice."""
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
    in_a_line = with_ends(new, _end_of(text))
    parts: list[str] = []
    places: list[tuple[int, int]] = []
    done = length = 0
    for start in starts:
        first = start + bisect_left(windows_ends, start)
        last = start + len(old) + bisect_left(windows_ends, start + len(old))
        put = with_ends(new, _end_of(text[first:last])) if "\n" in old else in_a_line
        parts += [text[done:first], put]
        length += first - done
        places.append((length, len(put)))
        length, done = length + len(put), last
    return Edited("".join([*parts, text[done:]]), tuple(places))


def _end_of(text: str) -> str:
    return end_of(text.count("\n"), text.count("\r\n"))


def _starts(text: str, old: str, *, overlapping: bool) -> list[int]:
    """Where `old` is in `text`; enough of these places for a message."""
    starts: list[int] = []
    at = text.find(old)
    while at >= 0 and len(starts) <= (_MOST_NAMED_LINES if overlapping else _MOST_REPLACED):
        starts.append(at)
        at = text.find(old, at + (1 if overlapping else len(old)))
    return starts


def line_at(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def numbered(lines: list[str], first: int, shown: int = 0) -> str:
    """`lines` as "12|text", counted from `first`; of a long line a part, of the first one that around the
    character `shown`."""
    rows = [around(line, 0 if index else shown, _MOST_IN_A_LINE) for index, line in enumerate(lines)]
    return "\n".join(f"{number}|{row}" for number, row in enumerate(rows, first))


def _ambiguous(text: str, starts: list[int], name: str) -> str:
    lines = dict.fromkeys(str(line_at(text, start)) for start in starts[:_MOST_NAMED_LINES])
    more = " and more" if len(starts) > _MOST_NAMED_LINES else ""
    word = "line" if len(lines) == 1 else "lines"
    return (
        f"old occurs more than once in {name}, at {word} {', '.join(lines)}{more}; nothing was changed. "
        "Include more lines before or after it in old, so that it fits one place only, or pass "
        "replace_all=true to change all of them."
    )


def _missing(text: str, old: str, name: str) -> str:
    problem = f"old is not in {name}; nothing was changed."
    if _LINE_NUMBER.search(old) and _LINE_NUMBER.sub("", old) in text:
        return f"{problem} Leave out the line numbers and the bar that read_file puts before each line."
    if advice := _too_many_ends(text, old) or _alike(text, old):
        return f"{problem} {advice}"
    if " ".join(old.split()) in " ".join(text.split()):
        problem += " It is there with other spaces, indentation or line breaks."
    lines = split_lines(text)
    places, compared = _closest(lines, split_lines(old))
    looked = "" if compared == len(lines) else f" (only the first {compared:,} lines were compared)"
    if not places:
        return (
            f"{problem} No line comes close{looked}; read the file with read_file and copy the text exactly."
        )
    return f"{problem} The closest lines are below{looked}; copy the text exactly.\n" + "\n...\n".join(places)


def _too_many_ends(text: str, old: str) -> str:
    """Advice if `old` matches except for line endings after it, as at the end of a file without one."""
    bare, body = old.rstrip("\n"), text.rstrip("\n")
    if not bare or bare == old or not body.endswith(bare):
        return ""
    has = len(text) - len(body)
    ends = count_noun(has, "line end") if has else "no line end"
    wanted = count_noun(len(old) - len(bare), "line end")
    line = line_at(text, len(body))
    return (
        f"The file has {ends} behind line {line}, its last one, where old has {wanted}: leave out the rest."
    )


def _alike(text: str, old: str) -> str:
    """Where the file has text that only looks like `old`, with the names of the characters that differ."""
    looks, wanted = look(text), look(old)
    at = looks.find(wanted) if wanted.strip() else -1
    if at < 0:
        return ""
    first = looks.count("\n", 0, at)
    there = text.split("\n")[first : first + wanted.count("\n") + 1]
    names: dict[str, None] = {}
    for number, (line, part) in enumerate(zip(there, old.split("\n"), strict=True), start=first + 1):
        for has, wants in differences(line, part):
            names.setdefault(
                f"line {number} has {character_names(has)} where old has {character_names(wants)}"
            )
    shown = "; ".join(list(names)[:_MOST_PLACES]) or f"from line {first + 1} on"
    more = ", and more" if len(names) > _MOST_PLACES else ""
    return (
        f"It looks the same in the file but is written otherwise: {shown}{more}. Write it in old as the file "
        "has it, in JSON with escapes such as \\u00a0."
    )


def _closest(lines: list[str], old: list[str]) -> tuple[list[str], int]:
    """The places in `lines` that are most similar to `old`, found by its longest line, each once; and how
    many lines were compared in the time for it."""
    anchor = max(range(len(old)), key=lambda index: len(old[index].strip()))
    wanted = old[anchor].strip()[:_MOST_IN_A_LINE]
    if not wanted:
        return [], len(lines)
    scores, compared = _scores(lines, wanted)
    matcher = difflib.SequenceMatcher(b=wanted)
    ratios: dict[int, float] = {}
    for number in nlargest(_MOST_SCORED, scores, scores.__getitem__):
        matcher.set_seq1(lines[number].strip()[:_MOST_IN_A_LINE])
        ratios[number] = matcher.ratio()
    best = nlargest(_MOST_PLACES, ratios, ratios.__getitem__)
    close = [number for number in best if ratios[number] >= _LEAST_ALIKE]
    span = min(len(old), _MOST_NAMED_LINES)
    places: list[tuple[int, int]] = []
    for start in sorted(number - anchor for number in close):
        first, end = max(start - 1, 0), min(max(start, 0) + span + 1, len(lines))
        if places and first <= places[-1][1]:
            places[-1] = (places[-1][0], max(end, places[-1][1]))
        else:
            places.append((first, end))
    return [numbered(lines[first:end], first + 1) for first, end in places], compared


def _scores(lines: list[str], wanted: str) -> tuple[dict[int, float], int]:
    """How many characters of words each line shares with `wanted`, then how many characters at all: this
    finds the few whose similarity is worth its time. The first of equal lines stands for all."""
    words = set(_WORD.findall(wanted))
    matcher = difflib.SequenceMatcher(b=wanted)
    end = time.monotonic() + _SECONDS
    scores: dict[int, float] = {}
    known: set[str] = set()
    for number, line in enumerate(lines):
        if number % 256 == 0 and time.monotonic() > end:
            return scores, number
        text = line.strip()[:_MOST_IN_A_LINE]
        if text not in known:
            known.add(text)
            matcher.set_seq1(text)
            shared = words.intersection(_WORD.findall(text))
            scores[number] = sum(map(len, shared)) + matcher.quick_ratio()
    return scores, len(lines)
