"""The file tools: list, read, write, edit and search the files of a workspace.

Each reading and writing of a file notes its version, in this process and with the thread, as the artifact of
the result. `write_file` does not replace a file that has another version by now: somebody's change, also one
of a command or of the run's own Python code, would be lost.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import accumulate, pairwise
from threading import Lock
from typing import Annotated, Any

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.prebuilt import InjectedState
from pydantic import Field

from signoff.graph.errors import SetupError
from signoff.graph.foreign import LIMIT, Outputs, capped, count_noun, outputs_folder, valid_text
from signoff.graph.inside.private import saver_of
from signoff.graph.kinds import Kind
from signoff.tools.filesystem.edits import line_at, numbered, replaced
from signoff.tools.filesystem.globs import fitting
from signoff.tools.filesystem.paths import few, one_line, quote_path, spelled
from signoff.tools.filesystem.search import MOST_CONTEXT, search_files
from signoff.tools.filesystem.text import (
    MOST_READ,
    LineEnds,
    TextFile,
    part,
    split_lines,
    version_of,
    with_ends,
)
from signoff.tools.protected import within
from signoff.tools.workspace import MOST_VISITED, Deadline, FolderEntry, ThreadFolder, Workspace

__all__ = ["workspace_tools"]

# Room for the other lines of a result around the lines of a file.
_AROUND = 300

_CONTEXT = 3
_MOST_IN_A_LINE = 2_000
_MOST_ENTRIES = 5_000
_MOST_VERSIONS = 10_000
_LIST_SECONDS = 10.0
_VERSION = "file_version"

_Path = Annotated[
    str, Field(description="Path of the file, relative to the workspace, for example src/app.py.")
]
_Folder = Annotated[str, Field(description="Folder, relative to the workspace; . is the workspace itself.")]
_Searched = Annotated[str, Field(description="File or folder to search; . is the whole workspace.")]
_Glob = Annotated[
    str | None,
    Field(description="Only files whose name or path fits, for example *.py, src/**/*.ts or *.{js,ts}."),
]
_Start = Annotated[int, Field(description="First line to read, counted from 1.")]
_End = Annotated[int | None, Field(description="Last line to read; leave out for the end.")]
_Character = Annotated[
    int, Field(description="First character of start_line to show, counted from 1, for very long lines.")
]
_Content = Annotated[str, Field(description="The whole content of the file.")]
_Ends = Annotated[LineEnds, Field(description="keep: as the file has them. lf, crlf: change them.")]
_Old = Annotated[str, Field(description="The text to replace, exactly as in the file, without line numbers.")]
_New = Annotated[str, Field(description="The text to put in its place.")]
_All = Annotated[bool, Field(description="Replace every place where old is, not just one.")]
_Wanted = Annotated[str, Field(description="Regular expression, or plain text, to find within a line.")]
_Around = Annotated[int, Field(description=f"Lines to show around each match, at most {MOST_CONTEXT}.")]
_Messages = Annotated[Any, InjectedState("messages")]

_Versioned = tuple[str, dict[str, Any] | None]
"""A result, and its artifact: the version of the file that it is about."""


class Versions:
    """The version of each file as a thread has last seen it."""

    def __init__(self) -> None:
        self._noted: OrderedDict[tuple[str | None, str], str] = OrderedDict()
        # Reads run side by side.
        self._lock = Lock()

    def note(self, config: RunnableConfig, real: str, version: str) -> dict[str, Any]:
        """Notes what the thread has seen; returns the artifact by which the thread keeps it."""
        with self._lock:
            self._noted[_thread(config), real] = version
            self._noted.move_to_end((_thread(config), real))
            if len(self._noted) > _MOST_VERSIONS:
                self._noted.popitem(last=False)
        return {_VERSION: {"path": real, "version": version}}

    def seen(self, config: RunnableConfig, real: str, messages: Any) -> set[str]:
        """What the thread has last seen: as this process knows, which the calls of a reply share, and as its
        messages say, which another process may have written."""
        noted = self._noted.get((_thread(config), real))
        kept = next(_kept(messages, real), None)
        return {version for version in (noted, kept) if version is not None}


def _thread(config: RunnableConfig) -> str | None:
    thread_id = (config.get("configurable") or {}).get("thread_id")
    return None if thread_id is None else str(thread_id)


def _kept(messages: Any, real: str) -> Iterator[str]:
    for message in reversed(messages or ()):
        if isinstance(message, ToolMessage) and isinstance(message.artifact, Mapping):
            version = message.artifact.get(_VERSION)
            if isinstance(version, Mapping) and version.get("path") == real:
                yield str(version.get("version"))


class FileTools:
    """The functions of the five tools for one workspace. Their docstrings are what the model reads.

    An edit or a replacement keeps the file's line endings (unless `line_ends` says otherwise) and its byte
    order mark, and raises ToolException with the file unchanged if that is not UTF-8 text.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._versions = Versions()

    def _reading(self, path: str, config: RunnableConfig) -> Workspace:
        """The workspace; or, for an absolute path in that, the folder of the thread's long results."""
        if not os.path.isabs(path) or within(os.path.normpath(path), self._workspace.root):
            return self._workspace
        configurable = config.get("configurable") or {}
        outputs = Outputs.of(outputs_folder(), saver_of(configurable), _thread(config))
        names = (str(outputs.own), os.path.realpath(outputs.own))
        inside = any(within(os.path.normpath(path), name) for name in names)
        return ThreadFolder(outputs) if inside and outputs.own.is_dir() else self._workspace

    def list_files(self, config: RunnableConfig, path: _Folder = ".", glob: _Glob = None) -> str:
        """List all files in a folder and its subfolders, with sizes in bytes."""
        workspace = self._reading(path, config)
        name = workspace.relative(path)
        if workspace.entry(path).kind != "folder":
            return f"{name} is not a folder; read it with read_file."
        fits = fitting(glob, name)
        deadline = Deadline(_LIST_SECONDS)
        lines: list[str] = []
        ignored: list[str] = []
        end = ""
        for visited, entry in enumerate(workspace.walk(path)):
            if entry.kind == "ignored":
                ignored.append(quote_path(entry.path))
            elif not glob or (entry.kind == "file" and fits(entry.path)):
                lines.append(_listed(entry))
            if len(lines) > _MOST_ENTRIES:
                lines, end = lines[:_MOST_ENTRIES], f"{_MOST_ENTRIES} entries"
            elif visited >= MOST_VISITED:
                end = f"a look at {MOST_VISITED:,} entries"
            elif deadline.left <= 0:
                end = f"{deadline.seconds:g} seconds"
            if end:
                break
        if not lines:
            none = f"No file in {name} fits {glob}." if glob else f"The folder {name} is empty."
            lines = [none] if glob or not ignored else []
        if end:
            lines.append(f"Stopped after {end}; list one folder or pass a glob.")
        if ignored:
            lines.append(f"Not listed, as .gitignore says: {few(ignored)}.")
        return capped("\n".join(lines), keep=workspace.keep("list_files"))

    def read_file(
        self,
        config: RunnableConfig,
        path: _Path,
        start_line: _Start = 1,
        end_line: _End = None,
        start_character: _Character = 1,
    ) -> _Versioned:
        """Read a text file. Each line is shown as number|text; the file itself has no numbers."""
        workspace = self._reading(path, config)
        name = workspace.relative(path)
        with workspace.open(path) as file:
            text, size = TextFile(file), os.fstat(file.fileno()).st_size
        if text.kind:
            what = "a binary file" if text.kind == "binary" else f"{text.kind} text"
            raise ToolException(
                f"{name} is {what} ({size} bytes), not UTF-8; choose another, or convert it by a command."
            )
        _check_range(name, text, start_line, end_line, start_character)
        version = self._versions.note(config, str(file.name), text.version)
        count = len(text.lines)
        if not count:
            return f"{name} is empty (0 lines).", version
        last_wanted = min(end_line or count, count)
        rows = _rows(text, start_line, last_wanted, start_character)
        last = start_line + len(rows) - 1
        head = f"{name}, lines {start_line} to {last} of {count}"
        if not text.is_whole:
            head += f" in the first {MOST_READ:,} bytes; the rest of the file was not read"
        if not text.is_text:
            head += " (some bytes are not UTF-8 and shown as \ufffd)"
        head += _other_name(workspace, path, str(file.name))
        rest = "" if last == last_wanted else f"\n[Cut here: go on with start_line={last + 1}.]"
        return valid_text(f"{head}:\n" + "\n".join(rows) + rest), version

    def write_file(
        self,
        config: RunnableConfig,
        path: _Path,
        content: _Content,
        line_ends: _Ends = "keep",
        messages: _Messages = None,
    ) -> _Versioned:
        """Create a file, or replace all of it. To change a part of a file, use edit_file."""
        if valid_text(content) != content:
            raise ToolException("content holds characters that are not valid text; leave them out.")
        workspace, name = self._workspace, self._workspace.relative(path)
        before, real = _before(workspace, path, name), workspace.real(path)
        seen = self._versions.seen(config, real, messages)
        if before and seen and before.version not in seen:
            raise ToolException(
                f"{name} has changed since you read it: by a person, a command or Python code. Nothing was "
                "written, so that the change is not lost. Read it again with read_file, then write."
            )
        if line_ends != "keep":
            content = with_ends(content, {"lf": "\n", "crlf": "\r\n"}[line_ends])
        text, kept = before.applied(content, line_ends) if before else (content, "")
        data = text.encode()
        done = "Created" if workspace.write(path, data) else "Replaced"
        size = f"{count_noun(len(split_lines(text)), 'line')}, {count_noun(len(data), 'byte')}"
        return f"{done} {name}: {size}.{kept}", self._versions.note(config, real, version_of(data))

    def edit_file(
        self,
        config: RunnableConfig,
        path: _Path,
        old: _Old,
        new: _New,
        replace_all: _All = False,
        messages: _Messages = None,
    ) -> _Versioned:
        """Replace one piece of text in a file. Read the file first: old must be in it exactly once."""
        workspace, name = self._workspace, self._workspace.relative(path)
        old, new = (text.replace("\r\n", "\n") for text in (old, new))
        if not old:
            raise ToolException("old is empty; pass the text to replace, or use write_file for a new file.")
        if old == new:
            raise ToolException("old and new are the same; pass the changed text as new.")
        if valid_text(new) != new:
            raise ToolException("new holds characters that are not valid text; leave them out.")
        data = workspace.read(path)
        edited = replaced(_text(data, name), old, new, name, everywhere=replace_all)
        workspace.write(path, edited.text.encode())
        real = workspace.real(path)
        seen = self._versions.seen(config, real, messages)
        result = _edit_result(edited.text, edited.places, name)
        if version_of(data) not in seen:
            # Somebody's change that the thread has not seen is not seen now either.
            return result, None
        return result, self._versions.note(config, real, version_of(edited.text.encode()))

    def search_files(
        self,
        config: RunnableConfig,
        pattern: _Wanted,
        path: _Searched = ".",
        glob: _Glob = None,
        context: _Around = 0,
    ) -> str:
        """Find lines in files by a regular expression, which works within one line. Each result is file:line:
        text. If nothing matches, the pattern is looked for as plain text."""
        return search_files(self._reading(path, config), pattern, path, glob, context)


def _listed(entry: FolderEntry) -> str:
    note = {
        "file": f"({entry.size} bytes)",
        "link": "(link)",
        "other": "(not a regular file)",
        "empty": "(empty folder)",
        "skipped": "(folder, not listed)",
        "closed": "(folder, no access)",
        "deep": "(folder, too deep to be listed)",
        "ignored": "(ignored)",
    }[entry.kind]
    return f"{one_line(entry.path)}{'/' if 'folder' in note else ''} {note}"


def _other_name(workspace: Workspace, path: str, real: str) -> str:
    """A note if the file was opened by a name that only looks like its own."""
    if os.path.lexists(workspace.real(path)):
        return ""
    return f" (its name only looks like that: it is {spelled(os.path.relpath(real, workspace.root))})"


def _check_range(name: str, text: TextFile, start: int, end: int | None, character: int) -> None:
    if start < 1 or character < 1:
        raise ToolException("start_line and start_character count from 1; pass 1 or more.")
    if end is not None and end < start:
        raise ToolException("end_line is before start_line; leave it out to read to the end.")
    if start <= max(len(text.lines), 1):
        return
    lines = count_noun(len(text.lines), "line")
    if not text.is_whole:
        raise ToolException(
            f"{name} is read to {MOST_READ:,} bytes, which are {lines}; read what is behind by a command."
        )
    raise ToolException(f"{name} has {lines}, so line {start} does not exist; use a smaller start_line.")


def _rows(text: TextFile, first: int, last: int, character: int) -> list[str]:
    """The numbered lines, as many as fit into one result, at least one. A first line from a character on may
    fill all of it."""
    rows: list[str] = []
    left = LIMIT - _AROUND
    for number in range(first, last + 1):
        start = character if number == first else 1
        most = left - _AROUND if start > 1 else _MOST_IN_A_LINE
        row = f"{number}|{part(text.line(number), number, start, most)}"
        left -= len(row) + 1
        if left < 0 and rows:
            break
        rows.append(row)
    return rows


def _before(workspace: Workspace, path: str, name: str) -> TextFile | None:
    """The file at `path` that is to be replaced; None if it does not exist."""
    try:
        with workspace.open(path) as file:
            text = TextFile(file)
    except ToolException as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    if not text.is_whole:
        raise ToolException(f"{name} is larger than {MOST_READ:,} bytes; change it by a command.")
    if not text.is_text:
        raise ToolException(
            f"{name} is not UTF-8 text, replacing it by text would damage it; leave it as it is, or write to "
            "another file."
        )
    return text


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ToolException(f"{name} is not UTF-8 text, an edit would damage it; leave it.") from None


def _edit_result(text: str, places: tuple[tuple[int, int], ...], name: str) -> str:
    (start, length), lines = places[0], split_lines(text)
    first, last = line_at(text, start), line_at(text, start + length)
    above = max(first - _CONTEXT, 1)
    # Of a long line, what was put into it is shown.
    within_line = start - (text.rfind("\n", 0, start) + 1)
    before = numbered(lines[above - 1 : first - 1], above)
    after = numbered(lines[first - 1 : last + _CONTEXT], first, within_line)
    what = f"Edited {name}. The lines there are now:"
    if len(places) > 1:
        breaks = accumulate(text.count("\n", *span) for span in pairwise((0, *(at for at, _ in places))))
        numbers = [*dict.fromkeys(str(count + 1) for count in breaks)]
        what = f"Edited {name} in {len(places):,} places, in lines {few(numbers)}; around the first:"
    return capped("\n".join(filter(None, (what, before, after))), limit=4_000, keep=None)


def workspace_tools(
    root: str | os.PathLike[str] | Workspace, *, protect: Collection[str] | None = None
) -> list[BaseTool]:
    """The five file tools for the folder `root`; they return text and raise ToolException.

    protect: paths of the workspace that they may read but never write, beside git's folders, Python
    environments and Signoff's own folder; "!path" may be written. A Workspace brings its own protection.

    Raises SetupError if the folder, or a path in `protect`, does not exist.
    """
    if isinstance(root, Workspace) and protect is not None:
        raise SetupError("This Workspace already defines what is protected: pass protect to Workspace(…).")
    workspace = root if isinstance(root, Workspace) else Workspace(root, protect=protect)
    tools = FileTools(workspace)
    return [
        _tool(workspace, tools.list_files, Kind.READ),
        _tool(workspace, tools.read_file, Kind.READ, versioned=True),
        _tool(workspace, tools.write_file, Kind.WRITE, versioned=True),
        _tool(workspace, tools.edit_file, Kind.WRITE, versioned=True),
        _tool(workspace, tools.search_files, Kind.READ),
    ]


class _Working(StructuredTool):
    """keep: stores the full text of a result where `read_file` can read it (see `capped`)."""

    keep: Callable[[str], Callable[[str], str]] = Field(exclude=True, repr=False)


def _tool(workspace: Workspace, run: Callable[..., Any], kind: Kind, *, versioned: bool = False) -> BaseTool:
    """The tool whose arguments and description are those of the function `run`."""
    return _Working.from_function(
        run,
        keep=workspace.keep,
        description=" ".join((run.__doc__ or "").split()),
        response_format="content_and_artifact" if versioned else "content",
        metadata={"kind": str(kind)},
    )
