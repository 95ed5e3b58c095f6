"""edit_file: one exact, unique replacement, and help when there is none."""

import difflib
import re

from langchain_core.tools import ToolException

from signoff.tools.output import capped, valid_text
from signoff.tools.workspace import Workspace

_CONTEXT = 3
_MOST_PLACES = 3
_MOST_NAMED_LINES = 10
_MOST_IN_A_LINE = 300
_COMPARED_LINES = 5_000
_LINE_NUMBER = re.compile(r"^ *\d+\|", re.MULTILINE)


def numbered(lines: list[str], first: int, *, clip: int = 2_000) -> str:
    """`lines` as "12|text", counted from `first`; a line longer than `clip` characters is cut."""
    return "\n".join(f"{number}|{_clipped(line, clip)}" for number, line in enumerate(lines, start=first))


def split_lines(text: str) -> list[str]:
    """The lines of `text` without their ends, as editors count them: "\\n" and "\\r\\n" alone end one."""
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def edit_file(workspace: Workspace, path: str, old: str, new: str) -> str:
    """Replaces `old`, which must occur exactly once in the file, by `new`; shows the lines around.

    Line ends of `old` and `new` do not matter: those of the file are kept. Raises ToolException, the
    file unchanged, when `old` is missing or ambiguous or the file is not UTF-8 text.
    """
    name = workspace.relative(path)
    old, new = (text.replace("\r\n", "\n") for text in (old, new))
    if not old:
        raise ToolException("old is empty; give the exact text to replace, or use write_file for a new file.")
    if old == new:
        raise ToolException(
            "old and new are the same, so nothing would change; give the changed text as new."
        )
    if valid_text(new) != new:
        raise ToolException("new holds characters that are not valid text; leave them out.")
    text = _text(workspace.read(path), name)
    found = _occurrences(text, old)
    if not found:
        raise ToolException(_missing(text, old, name))
    if len(found) > 1:
        raise ToolException(_ambiguous(text, found, name))
    start, end = found[0].span()
    inserted = new.replace("\n", _line_end(text, found[0].group()))
    changed = text[:start] + inserted + text[end:]
    workspace.write(path, changed.encode())
    return _result(changed, start, start + len(inserted), name)


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ToolException(
            f"{name} is not UTF-8 text, an edit would damage it; leave it as it is."
        ) from None


def _occurrences(text: str, old: str) -> list[re.Match[str]]:
    """Where `old` is, overlaps included, either line end fitting; enough of them to tell the model."""
    pattern = re.compile(r"\r?\n".join(re.escape(line) for line in old.split("\n")))
    found: list[re.Match[str]] = []
    match = pattern.search(text)
    while match and len(found) <= _MOST_NAMED_LINES:
        found.append(match)
        match = pattern.search(text, match.start() + 1)
    return found


def _line_end(text: str, replaced: str) -> str:
    sample = replaced if "\n" in replaced else text
    return "\r\n" if sample.count("\r\n") * 2 > sample.count("\n") else "\n"


def _line_at(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _result(text: str, start: int, end: int, name: str) -> str:
    lines = split_lines(text)
    first, last = _line_at(text, start), _line_at(text, end)
    above = max(first - _CONTEXT, 1)
    around = numbered(lines[above - 1 : last + _CONTEXT], above, clip=_MOST_IN_A_LINE)
    return capped(f"Edited {name}. The lines there are now:\n{around}", limit=4_000, keep=None)


def _ambiguous(text: str, found: list[re.Match[str]], name: str) -> str:
    lines = [str(_line_at(text, match.start())) for match in found[:_MOST_NAMED_LINES]]
    more = " and more" if len(found) > _MOST_NAMED_LINES else ""
    return (
        f"old occurs more than once in {name}, at lines {', '.join(lines)}{more}; nothing was changed. "
        "Include more lines before or after it in old, so that it fits one place only."
    )


def _missing(text: str, old: str, name: str) -> str:
    said = f"old is not in {name}; nothing was changed."
    if _LINE_NUMBER.search(old) and _occurrences(text, _LINE_NUMBER.sub("", old)):
        return f"{said} Leave out the line numbers and the bar that read_file puts before each line."
    if " ".join(old.split()) in " ".join(text.split()):
        said += " It is there with other spaces, indentation or line breaks."
    places = _closest(split_lines(text), split_lines(old))
    if not places:
        return f"{said} No line comes close; read the file with read_file and copy the text exactly."
    return f"{said} The closest lines are below; copy the text exactly.\n" + "\n...\n".join(places)


def _closest(lines: list[str], old: list[str]) -> list[str]:
    """The places in `lines` that look most like `old`, found by its longest line, numbered."""
    anchor = max(range(len(old)), key=lambda index: len(old[index].strip()))
    wanted = old[anchor].strip()[:_MOST_IN_A_LINE]
    known: dict[str, int] = {}
    for number, line in enumerate(lines[:_COMPARED_LINES]):
        known.setdefault(line.strip()[:_MOST_IN_A_LINE], number)
    if not wanted:
        return []
    starts = [known[line] - anchor for line in difflib.get_close_matches(wanted, known, _MOST_PLACES, 0.5)]
    span = min(len(old), _MOST_NAMED_LINES)
    return [_place(lines, start, span) for start in sorted(starts)]


def _place(lines: list[str], start: int, span: int) -> str:
    first = max(start - 1, 0)
    return numbered(lines[first : max(start, 0) + span + 1], first + 1, clip=_MOST_IN_A_LINE)


def _clipped(line: str, most: int) -> str:
    return (
        line if len(line) <= most else f"{line[:most]}... [{len(line) - most} more characters in this line]"
    )
