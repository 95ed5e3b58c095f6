"""The file tools: list, read, write, edit and search the files of a workspace.

`edit_file` makes one exact, unique replacement, and gives advice if there is no match.
"""

import difflib
import os
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import islice
from typing import BinaryIO

from langchain_core.tools import BaseTool, StructuredTool, ToolException
from pydantic import BaseModel, Field

from signoff.graph.errors import SetupError
from signoff.graph.foreign import LIMIT, capped, count_noun, valid_text
from signoff.graph.kinds import Kind
from signoff.tools.filesystem.globs import fitting
from signoff.tools.filesystem.paths import quote_path
from signoff.tools.filesystem.search import search_files
from signoff.tools.filesystem.text import Measured, clipped, end_of, measured, one_line_of, split_lines
from signoff.tools.filesystem.unseen import UNSEEN
from signoff.tools.workspace import FolderEntry, Workspace

__all__ = ["workspace_tools"]

_CONTEXT = 3
_MOST_PLACES = 3
_MOST_NAMED_LINES = 10
_MOST_IN_A_LINE = 300
_COMPARED_LINES = 5_000
# The second and third parts of a Korean syllable: not combining characters, but composed with the first.
_JAMO = {chr(code) for code in range(0x1161, 0x1200)}
_LOOKS = {code: "" for first, last in UNSEEN for code in range(first, last + 1) if code != ord("\t")}
_LOOKS |= {code: " " for code in _LOOKS if unicodedata.category(chr(code)) == "Zs" or code == 0x2800}
_LINE_NUMBER = re.compile(r"^ *\d+\|", re.MULTILINE)


def numbered(lines: list[str], first: int) -> str:
    """`lines` as "12|text", counted from `first`; a long line is truncated."""
    return "\n".join(f"{number}|{clipped(line, _MOST_IN_A_LINE)}" for number, line in enumerate(lines, first))


def edit_file(workspace: Workspace, path: str, old: str, new: str) -> str:
    """Replaces `old`, which must occur exactly once in the file, by `new`; returns the surrounding lines.

    The line endings of `old` and `new` do not matter: those of the file are kept. Raises ToolException, with
    the file unchanged, if `old` is missing or ambiguous, or the file is not UTF-8 text.
    """
    name = workspace.relative(path)
    old, new = (text.replace("\r\n", "\n") for text in (old, new))
    if not old:
        raise ToolException("old is empty; pass the exact text to replace, or use write_file for a new file.")
    if old == new:
        raise ToolException(
            "old and new are the same, so nothing would change; pass the changed text as new."
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


def _pattern(old: str) -> str:
    return r"\r?\n".join(re.escape(line) for line in old.split("\n"))


def _occurrences(text: str, old: str) -> list[re.Match[str]]:
    """The matches of `old`, including overlaps, with any line endings; enough of them for the message."""
    pattern = re.compile(_pattern(old))
    found: list[re.Match[str]] = []
    match = pattern.search(text)
    while match and len(found) <= _MOST_NAMED_LINES:
        found.append(match)
        match = pattern.search(text, match.start() + 1)
    return found


def _line_end(text: str, replaced: str) -> str:
    sample = replaced if "\n" in replaced else text
    return end_of(sample.count("\n"), sample.count("\r\n"))


def _line_at(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _result(text: str, start: int, end: int, name: str) -> str:
    lines = split_lines(text)
    first, last = _line_at(text, start), _line_at(text, end)
    above = max(first - _CONTEXT, 1)
    around = numbered(lines[above - 1 : last + _CONTEXT], above)
    return capped(f"Edited {name}. The lines there are now:\n{around}", limit=4_000, keep=None)


def _ambiguous(text: str, found: list[re.Match[str]], name: str) -> str:
    lines = dict.fromkeys(str(_line_at(text, match.start())) for match in found[:_MOST_NAMED_LINES])
    more = " and more" if len(found) > _MOST_NAMED_LINES else ""
    word = "line" if len(lines) == 1 else "lines"
    return (
        f"old occurs more than once in {name}, at {word} {', '.join(lines)}{more}; nothing was changed. "
        "Include more lines before or after it in old, so that it fits one place only."
    )


def _missing(text: str, old: str, name: str) -> str:
    said = f"old is not in {name}; nothing was changed."
    if _LINE_NUMBER.search(old) and _occurrences(text, _LINE_NUMBER.sub("", old)):
        return f"{said} Leave out the line numbers and the bar that read_file puts before each line."
    if ends := _too_many_ends(text, old):
        return f"{said} {ends}"
    if alike := _alike(text, old):
        return f"{said} {alike}"
    if " ".join(old.split()) in " ".join(text.split()):
        said += " It is there with other spaces, indentation or line breaks."
    places = _closest(split_lines(text), split_lines(old))
    if not places:
        return f"{said} No line comes close; read the file with read_file and copy the text exactly."
    return f"{said} The closest lines are below; copy the text exactly.\n" + "\n...\n".join(places)


def _too_many_ends(text: str, old: str) -> str:
    """Advice if `old` matches except for line endings after it, as at the end of a file without one."""
    bare = old.rstrip("\n")
    found = re.search(rf"{_pattern(bare)}((?:\r?\n)*)\Z", text) if bare != old and bare else None
    if not found:
        return ""
    has = found[1].count("\n")
    ends = count_noun(has, "line end") if has else "no line end"
    given = count_noun(len(old) - len(bare), "line end")
    line = _line_at(text, found.start(1))
    return f"The file has {ends} behind line {line}, its last one, where old has {given}: leave out the rest."


def _alike(text: str, old: str) -> str:
    """Where the file has text that only looks like `old`, with the names of the characters that differ."""
    look, wanted = _look(text), _look(old)
    at = look.find(wanted) if wanted.strip() else -1
    if at < 0:
        return ""
    first = look.count("\n", 0, at)
    there = text.split("\n")[first : first + wanted.count("\n") + 1]
    names: dict[str, None] = {}
    for number, (line, given) in enumerate(zip(there, old.split("\n"), strict=True), start=first + 1):
        for has, wants in _differences(line.removesuffix("\r"), given):
            names.setdefault(
                f"line {number} has {_name_characters(has)} where old has {_name_characters(wants)}"
            )
    few = list(names)[:_MOST_PLACES]
    more = ", and more" if len(names) > len(few) else ""
    return (
        f"It looks the same in the file but is written otherwise: {'; '.join(few)}{more}. Write it in old as "
        "the file has it, in JSON with escapes such as \\u00a0."
    )


def _differences(line: str, given: str) -> Iterator[tuple[str, str]]:
    """The pairs of characters in a line and in the given part of it that only look alike."""
    here, wanted = _pieces(line), _pieces(given)
    looks, target = [*map(_line_look, here)], [*map(_line_look, wanted)]
    for start in range(len(here) - len(wanted) + 1):
        if looks[start : start + len(wanted)] == target:
            pairs = zip(here[start:], wanted, strict=False)
            yield from ((has, wants) for has, wants in pairs if has != wants)
            return


def _pieces(line: str) -> list[str]:
    """The characters of `line`, each with its combining and invisible characters."""
    found: list[str] = []
    for character in line:
        joins = unicodedata.combining(character) or character in _JAMO or not _line_look(character)
        if found and (joins or not _line_look(found[-1])):
            found[-1] += character
        else:
            found.append(character)
    return found


def _look(text: str) -> str:
    """`text` as it looks: composed, every kind of space as a space, without invisible characters."""
    return "\n".join(_line_look(line) for line in text.split("\n"))


def _line_look(line: str) -> str:
    return unicodedata.normalize("NFC", line.translate(_LOOKS)) if not line.isascii() else line.rstrip("\r")


def _name_characters(piece: str) -> str:
    return " ".join(f"U+{ord(each):04X} {unicodedata.name(each, '')}".strip() for each in piece)


def _closest(lines: list[str], old: list[str]) -> list[str]:
    """The places in `lines` that are most similar to `old`, found by its longest line, each once."""
    anchor = max(range(len(old)), key=lambda index: len(old[index].strip()))
    wanted = old[anchor].strip()[:_MOST_IN_A_LINE]
    known: dict[str, int] = {}
    for number, line in enumerate(lines[:_COMPARED_LINES]):
        known.setdefault(line.strip()[:_MOST_IN_A_LINE], number)
    if not wanted:
        return []
    close = difflib.get_close_matches(wanted, known, _MOST_PLACES, 0.5)
    span = min(len(old), _MOST_NAMED_LINES)
    places: list[tuple[int, int]] = []
    for start in sorted(known[line] - anchor for line in close):
        first, end = max(start - 1, 0), min(max(start, 0) + span + 1, len(lines))
        if places and first <= places[-1][1]:
            places[-1] = (places[-1][0], max(end, places[-1][1]))
        else:
            places.append((first, end))
    return [numbered(lines[first:end], first + 1) for first, end in places]


# Room for the other lines of a result around the lines of a file.
_AROUND = 200

_MOST_ENTRIES = 5_000
_MOST_VISITED = 100_000
_MOST_NAMED = 5

_PATH = "Path of the file, relative to the workspace, for example src/app.py."
_FOLDER = "Folder, relative to the workspace; . is the workspace itself."
_DESCRIPTIONS = {
    "list_files": "List all files in a folder and its subfolders, with sizes in bytes.",
    "read_file": "Read a text file. Each line is shown as number|text; the file itself has no numbers.",
    "write_file": "Create a file, or replace all of it. To change a part of a file, use edit_file.",
    "edit_file": "Replace one piece of text in a file. Read the file first: old must be in it exactly once.",
    "search_files": "Find lines in files by a regular expression. Each result is file:line: text.",
}
_GLOB = "Only files whose name or path fits, for example *.py, src/**/*.ts or *.{js,ts}."


class ListFiles(BaseModel):
    """Arguments of `list_files`."""

    path: str = Field(default=".", description=_FOLDER)
    glob: str | None = Field(default=None, description=_GLOB)


class ReadFile(BaseModel):
    """Arguments of `read_file`."""

    path: str = Field(description=_PATH)
    start_line: int = Field(default=1, description="First line to read, counted from 1.")
    end_line: int | None = Field(default=None, description="Last line to read; leave out for the end.")


class WriteFile(BaseModel):
    """Arguments of `write_file`."""

    path: str = Field(description=_PATH)
    content: str = Field(description="The whole content of the file.")


class EditFile(BaseModel):
    """Arguments of `edit_file`."""

    path: str = Field(description=_PATH)
    old: str = Field(description="The text to replace, exactly as in the file, without line numbers.")
    new: str = Field(description="The text to put in its place.")


class SearchFiles(BaseModel):
    """Arguments of `search_files`."""

    pattern: str = Field(description="Regular expression, or plain text, to find within a line.")
    path: str = Field(default=".", description="File or folder to search; . is the whole workspace.")
    glob: str | None = Field(default=None, description=_GLOB)


def list_files(workspace: Workspace, path: str = ".", glob: str | None = None) -> str:
    """The files below `path` with their sizes in bytes, one per line; long listings are truncated."""
    name = workspace.relative(path)
    if workspace.kind(path) != "folder":
        return f"{name} is not a folder; read it with read_file."
    fits = fitting(glob, name)
    lines: list[str] = []
    ignored: list[str] = []
    for entry in islice(workspace.walk(path), _MOST_VISITED):
        if entry.kind == "ignored":
            ignored.append(quote_path(entry.path))
        elif not glob or (entry.kind == "file" and fits(entry.path)):
            lines.append(_listed(entry))
        if len(lines) > _MOST_ENTRIES:
            lines[-1] = f"Stopped after {_MOST_ENTRIES} entries; list one folder or pass a glob."
            break
    if not lines:
        none = f"No file in {name} fits {glob}." if glob else f"The folder {name} is empty."
        lines = [none] if glob or not ignored else []
    if ignored:
        more = f" and {len(ignored) - _MOST_NAMED:,} more" if len(ignored) > _MOST_NAMED else ""
        lines.append(f"Not listed, as .gitignore says: {', '.join(ignored[:_MOST_NAMED])}{more}.")
    return capped("\n".join(lines), keep=workspace.keep("list_files"))


def _listed(entry: FolderEntry) -> str:
    path = valid_text(entry.path).replace("\n", "\\n")
    said = {
        "file": f"({entry.size} bytes)",
        "link": "(link)",
        "other": "(not a regular file)",
        "empty": "(empty folder)",
        "skipped": "(folder, not listed)",
        "closed": "(folder, no access)",
        "ignored": "(ignored)",
    }[entry.kind]
    return f"{path}{'/' if 'folder' in said else ''} {said}"


def read_file(workspace: Workspace, path: str, start_line: int = 1, end_line: int | None = None) -> str:
    """Lines `start_line` to `end_line` (from 1, both included) of a text file, numbered "12|text"."""
    name = workspace.relative(path)
    with workspace.open(path) as file:
        if b"\0" in file.read(8_000):
            size = os.fstat(file.fileno()).st_size
            raise ToolException(f"{name} is a binary file ({size} bytes), not text; choose a text file.")
        found = measured(file, start_line)
        _check_range(name, found.lines, start_line, end_line)
        if not found.lines:
            return f"{name} is empty (0 lines)."
        last_wanted = min(end_line or found.lines, found.lines)
        file.seek(found.offset)
        rows = _rows(file, start_line, last_wanted)
    last = start_line + len(rows) - 1
    head = f"{name}, lines {start_line} to {last} of {found.lines}"
    if not found.is_text:
        head += " (some bytes are not UTF-8 and shown as \ufffd)"
    rest = "" if last == last_wanted else f"\n[Cut here: go on with start_line={last + 1}.]"
    return valid_text(f"{head}:\n" + "\n".join(rows) + rest)


def _check_range(name: str, count: int, start: int, end: int | None) -> None:
    if start < 1:
        raise ToolException("start_line counts from 1; pass 1 or more.")
    if end is not None and end < start:
        raise ToolException("end_line is before start_line; leave it out to read to the end.")
    if start > max(count, 1):
        raise ToolException(
            f"{name} has {count_noun(count, 'line')}, so line {start} does not exist; use a "
            "smaller start_line."
        )


def _rows(file: BinaryIO, first: int, last: int) -> list[str]:
    """The numbered lines, as many as fit into one result, at least one."""
    rows: list[str] = []
    left = LIMIT - _AROUND
    for number in range(first, last + 1):
        row = f"{number}|{one_line_of(file)}"
        left -= len(row) + 1
        if left < 0 and rows:
            break
        rows.append(row)
    return rows


def write_file(workspace: Workspace, path: str, content: str) -> str:
    """Creates the file with its folders, or replaces all of its text; `content` is written as UTF-8.

    A replaced file keeps its line endings and its byte order mark. Raises ToolException, with the file
    unchanged, if it is not UTF-8 text.
    """
    if valid_text(content) != content:
        raise ToolException("content holds characters that are not valid text; leave them out.")
    name = workspace.relative(path)
    style = _style(workspace, path, name)
    text, kept = style.applied(content) if style else (content, "")
    data = text.encode()
    done = "Created" if workspace.write(path, data) else "Replaced"
    size = f"{count_noun(len(split_lines(text)), 'line')}, {count_noun(len(data), 'byte')}"
    return f"{done} {name}: {size}.{kept}"


def _style(workspace: Workspace, path: str, name: str) -> Measured | None:
    """The format of the file at `path`; None if it does not exist."""
    try:
        with workspace.open(path) as file:
            style = measured(file)
    except ToolException as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    if not style.is_text:
        raise ToolException(
            f"{name} is not UTF-8 text, replacing it by text would damage it; leave it as it is, or write to "
            "another file."
        )
    return style


def workspace_tools(
    root: str | os.PathLike[str] | Workspace, *, protect: Collection[str] | None = None
) -> list[BaseTool]:
    """The five file tools for the folder `root`; they return text and raise ToolException.

    protect: what they may read but never write. None means `PROTECTED` of `signoff.tools.protected`: "git"
    (`.git` and repositories), "python" (virtual environments, conda environments, the running Python) and
    "signoff" (its installation and its folder `.signoff`). Omit a name to remove that protection, add a path
    of the workspace to protect it, add "!path" to exempt it. A Workspace brings its own protection.

    Raises SetupError if the folder, or a path in `protect`, does not exist.
    """
    if isinstance(root, Workspace) and protect is not None:
        raise SetupError("This Workspace already defines what is protected: pass protect to Workspace(…).")
    workspace = root if isinstance(root, Workspace) else Workspace(root, protect=protect)
    table: list[tuple[Callable[..., str], type[BaseModel], Kind]] = [
        (list_files, ListFiles, Kind.READ),
        (read_file, ReadFile, Kind.READ),
        (write_file, WriteFile, Kind.WRITE),
        (edit_file, EditFile, Kind.WRITE),
        (search_files, SearchFiles, Kind.READ),
    ]
    return [_tool(workspace, *row) for row in table]


class _Working(StructuredTool):
    """keep: stores the full text of a result where `read_file` can read it (see `capped`)."""

    keep: Callable[[str], Callable[[str], str]] = Field(exclude=True, repr=False)


def _tool(workspace: Workspace, run: Callable[..., str], schema: type[BaseModel], kind: Kind) -> BaseTool:
    return _Working(
        keep=workspace.keep,
        name=run.__name__,
        description=_DESCRIPTIONS[run.__name__],
        args_schema=schema,
        func=partial(run, workspace),
        metadata={"kind": str(kind)},
    )
