"""search_files: a regular expression over the text files of a workspace, in bounded time.

Python's `re` can take exponential time and blocks the interpreter meanwhile, so the search runs in a child
process that is ended at its time limit.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from langchain_core.tools import ToolException

from signoff.graph.errors import SetupError
from signoff.graph.foreign import capped, count_noun, valid_text
from signoff.tools.filesystem.globs import fitting
from signoff.tools.filesystem.paths import quote_path
from signoff.tools.processes.helpers import isolated, program_text
from signoff.tools.workspace import FolderEntry, Workspace

SECONDS = 10
"""The time limit of one search, in seconds."""

MOST_HITS = 500
MOST_SEARCHED_BYTES = 50_000_000

_MOST_IN_A_FILE = 2_000_000
_MOST_ENTRIES = 100_000
_MOST_PATTERN = 1_000
_MOST_IN_A_LINE = 300
_WORKER = program_text(Path(__file__).with_name("search_worker.py"))


def search_files(
    workspace: Workspace, pattern: str, path: str = ".", glob: str | None = None, *, seconds: int = SECONDS
) -> str:
    """Returns the lines of text files at `path` that match `pattern`, as "file:line: text".

    Stops after `seconds` and returns what was found. Raises ToolException when the pattern is not a regular
    expression, or when the time ran out without a match.
    """
    if not pattern:
        raise ToolException("The pattern is empty; pass the text or regular expression to search for.")
    if len(pattern) > _MOST_PATTERN:
        raise ToolException(f"The pattern is longer than {_MOST_PATTERN} characters; use a shorter one.")
    texts = _gathered(workspace, path, glob)
    if not texts.files:
        name = workspace.relative(path)
        where = "the workspace" if name == "." else name
        nothing = "Nothing was searched" if texts.left_out else "There is no text file to search"
        raise ToolException(f"{nothing} in {where}{_fits(glob)}.{texts.left_out}")
    hits, in_time = _run(_command(workspace), pattern, texts.block, seconds)
    if not in_time and not hits:
        raise ToolException(
            f"The search took longer than {count_noun(seconds, 'second')}; use a simpler pattern."
        )
    lines = [f"{hit['file']}:{hit['line']}: {hit['text']}" for hit in hits] or ["No matches."]
    notes = f"{count_noun(len(hits), 'matching line')} in {count_noun(texts.files, 'file')}{_fits(glob)}."
    if len(hits) == MOST_HITS:
        notes += f" Stopped at {MOST_HITS}: make the pattern narrower to see others."
    if not in_time:
        notes += (
            f" Stopped after {count_noun(seconds, 'second')}: the rest was not searched; use a "
            "simpler pattern."
        )
    return capped("\n".join([*lines, notes + texts.left_out]), keep=workspace.keep("search_files"))


def _fits(glob: str | None) -> str:
    return f" (names that match {glob})" if glob else ""


@dataclass(frozen=True)
class _Texts:
    """The text files that the worker reads, and sentences about those that were left out."""

    block: bytes
    files: int
    left_out: str


def _gathered(workspace: Workspace, path: str, glob: str | None) -> _Texts:
    parts: list[bytes] = []
    large: list[str] = []
    ignored: list[str] = []
    total = unreadable = 0
    rest = ""
    most, found = _candidates(workspace, path, glob)
    for entry in found:
        if entry.kind == "ignored":
            ignored.append(quote_path(entry.path))
            continue
        if entry.size > most:
            large.append(quote_path(entry.path))
            continue
        try:
            data = workspace.read(entry.path, most)
        except ToolException:
            # Deleted or changed since it was listed, or not readable: counted and reported.
            unreadable += 1
            continue
        if b"\0" in data[:8_000]:
            continue
        total += len(data)
        if total > MOST_SEARCHED_BYTES:
            rest = " The rest was not searched because it is too much at once: pass a path or a glob."
            break
        parts.append(json.dumps({"file": entry.path, "bytes": len(data)}).encode() + b"\n" + data)
    said = _skipped_note(f"larger than {most:,} bytes", large)
    said += " Pass one of them as path to search it." if large else ""
    said += f" {count_noun(unreadable, 'file')} could not be read." if unreadable else ""
    return _Texts(b"".join(parts), len(parts), said + _skipped_note("as .gitignore says", ignored) + rest)


def _candidates(workspace: Workspace, path: str, glob: str | None) -> tuple[int, Iterator[FolderEntry]]:
    """Returns the files to search and the largest size in bytes, which is higher for a named file."""
    if workspace.kind(path) != "folder":
        with workspace.open(path) as file:
            size = os.fstat(file.fileno()).st_size
        name = workspace.relative(path)
        if size > MOST_SEARCHED_BYTES:
            raise ToolException(
                f"{name} has {size:,} bytes, more than the {MOST_SEARCHED_BYTES:,} that one search reads; "
                "read parts of it with read_file, or search it with a command."
            )
        return MOST_SEARCHED_BYTES, iter([FolderEntry(name, "file", size)])
    fits = fitting(glob, workspace.relative(path))
    found = islice(workspace.walk(path), _MOST_ENTRIES)
    return _MOST_IN_A_FILE, (
        entry for entry in found if entry.kind == "ignored" or (entry.kind == "file" and fits(entry.path))
    )


def _skipped_note(why: str, paths: list[str]) -> str:
    if not paths:
        return ""
    more = f" and {len(paths) - 5:,} more" if len(paths) > 5 else ""
    return f" Not searched, {why}: {', '.join(paths[:5])}{more}."


def _command(workspace: Workspace) -> list[str]:
    # Isolated and without site packages: 20 ms to start, and nothing in the workspace is run or imported.
    try:
        return isolated(_WORKER, workspace=workspace.root, protect=workspace.protect)
    except SetupError as error:
        raise ToolException(str(error)) from error


def _run(command: list[str], pattern: str, block: bytes, seconds: int) -> tuple[list[dict[str, Any]], bool]:
    """Returns the worker's matches, and whether it finished in time."""
    request = {"pattern": pattern, "hits": MOST_HITS, "characters": _MOST_IN_A_LINE, "seconds": seconds + 1}
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    in_time = True
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere) as worker:
        try:
            answer, _ = worker.communicate(json.dumps(request).encode() + b"\n" + block, timeout=seconds)
        except subprocess.TimeoutExpired:
            in_time = False
            worker.kill()
            answer, _ = worker.communicate()
    # What follows the last newline is a match that was not written completely, or nothing.
    messages = [json.loads(line) for line in answer.split(b"\n")[:-1]]
    for message in messages:
        if "error" in message:
            raise ToolException(
                f"The pattern is not a valid regular expression: {valid_text(message['error'])}; "
                "put a backslash before literal special characters, such as \\( or \\[."
            )
    if in_time and worker.returncode:
        raise ToolException("The search failed; use a simpler pattern or search fewer files.")
    return messages, in_time
