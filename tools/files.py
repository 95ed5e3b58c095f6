"""The file tools: list, read, write, edit and search the files of a workspace.

Each reading and writing of a file notes its version, in this process and with the thread, as the artifact of
the result. `write_file` does not replace a file that has another version by now: somebody's change, also one
of a command or of the run's own Python code, would be lost.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Annotated, Any

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.prebuilt import InjectedState
from pydantic import Field

from signoff.graph.errors import SetupError
from signoff.graph.foreign import LIMIT, Outputs, capped, count_noun, outputs_folder, valid_text
from signoff.graph.inside.private import saver_of
from signoff.graph.kinds import Kind
from signoff.tools.filesystem.edits import replaced
from signoff.tools.filesystem.globs import fitting
from signoff.tools.filesystem.paths import few, one_line, quote_path, spelled
from signoff.tools.filesystem.search import Search
from signoff.tools.filesystem.text import MOST_READ, LineEnds, TextFile, applied, around
from signoff.tools.protected import within
from signoff.tools.workspace import Deadline, FolderEntry, ThreadFolder, Workspace, walk

__all__ = ["workspace_tools"]

# Room for the other lines of a result around the lines of a file.
_AROUND = 300

MOST_CHANGED = 10_000_000
"""The size of the largest file that is changed."""

_MOST_IN_A_LINE = 2_000
_MOST_ENTRIES = 5_000
_MOST_VERSIONS = 10_000
_LIST_SECONDS = 10.0
_VERSION = "file_version"
_Messages = Annotated[Any, InjectedState("messages")]
_Result = tuple[str, dict[str, Any] | None]
"""A result, and its artifact: the version of the file that it is about, if it is about one."""


class FileTools:
    """The functions of the five tools for one workspace. Their docstrings are what the model reads.

    An edit or a replacement keeps the file's line endings (unless `line_ends` says otherwise) and its byte
    order mark, and raises ToolException with the file unchanged if that is not UTF-8 text.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._versions: OrderedDict[tuple[str, str], str] = OrderedDict()

    def _reading(self, path: str, config: RunnableConfig) -> Workspace:
        """The workspace; or, for an absolute path in that, the folder of the thread's long results."""
        if not os.path.isabs(path):
            return self._workspace
        outputs, lexical = _outputs(config), os.path.normpath(path)
        is_inside = any(within(lexical, name) for name in (str(outputs.own), os.path.realpath(outputs.own)))
        # Without a database all threads have one folder, where only who knows a name may read.
        if is_inside and (outputs.own.is_dir() if outputs.owner else os.path.isfile(path)):
            return ThreadFolder(outputs.own)
        return self._workspace

    def _note(self, config: RunnableConfig, real: str, version: str) -> dict[str, Any]:
        """Notes what the thread has seen; returns the artifact by which the thread keeps it."""
        key = (_thread(config), real)
        self._versions.pop(key, None)
        self._versions[key] = version
        if len(self._versions) > _MOST_VERSIONS:
            self._versions.popitem(last=False)
        return {_VERSION: (real, version)}

    def _has_seen(self, config: RunnableConfig, real: str, version: str, messages: Any) -> bool | None:
        """Whether the thread has last seen this version of the file, as this process knows, which the calls
        of a reply share, or as its messages say, which another process may have written; None if it has seen
        none."""
        artifacts = (getattr(message, "artifact", None) for message in messages or ())
        kept = dict(each[_VERSION] for each in artifacts if isinstance(each, dict) and _VERSION in each)
        seen = {self._versions.get((_thread(config), real)), kept.get(real)} - {None}
        return version in seen if seen else None

    def list_files(self, config: RunnableConfig, path: str = ".", glob: str | None = None) -> _Result:
        """List all files in a folder and its subfolders, with sizes in bytes.

        Args:
            path: Folder, relative to the workspace; . is the workspace itself.
            glob: Only files whose name or path fits, for example *.py, src/**/*.ts or *.{js,ts}.
        """
        workspace = self._reading(path, config)
        name = workspace.relative(path)
        if workspace._entry(path).kind != "folder":
            return f"{name} is not a folder; read it with read_file.", None
        fits = fitting(glob, name)
        lines: list[str] = []
        ignored: list[str] = []
        visit = walk(workspace, path, Deadline(_LIST_SECONDS))
        for entry in visit:
            if len(lines) == _MOST_ENTRIES:
                visit.end = f"{_MOST_ENTRIES} entries"
                break
            if entry.kind == "ignored":
                ignored.append(quote_path(entry.path))
            elif not glob or (entry.kind == "file" and fits(entry.path)):
                lines.append(_listed(entry))
        if not lines and glob:
            lines.append(f"No file in {name} fits {glob}.")
        elif not lines and not ignored:
            lines.append(f"The folder {name} is empty.")
        if visit.end:
            lines.append(f"Stopped after {visit.end}; list one folder or pass a glob.")
        if visit.note:
            lines.append(visit.note)
        if ignored:
            lines.append(f"Not listed, as .gitignore says: {few(ignored)}.")
        return capped("\n".join(lines), keep=self._workspace.keep("list_files")), None

    def read_file(
        self,
        config: RunnableConfig,
        path: str,
        start_line: int = 1,
        end_line: int | None = None,
        start_character: int = 1,
    ) -> _Result:
        """Read a text file. Each line is shown as number|text; the file itself has no numbers.

        Args:
            path: Path of the file, relative to the workspace, for example src/app.py.
            start_line: First line to read, counted from 1.
            end_line: Last line to read; leave out for the end.
            start_character: First character of start_line to show, counted from 1, for very long lines.
        """
        workspace = self._reading(path, config)
        name, real = workspace.relative(path), workspace.existing(path)
        text = TextFile(workspace.head(path, MOST_READ + 1))
        if text.kind:
            raise ToolException(
                f"{name} is a {text.kind} file, not UTF-8 text; choose another, or convert it by a command."
            )
        _check_range(name, text, start_line, end_line, start_character)
        version = self._note(config, real, text.version)
        count = text.line_count
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
        if not os.path.lexists(workspace.real(path)):
            entry = spelled(os.path.relpath(real, workspace.root))
            head += f" (its name only looks like that: it is {entry})"
        rest = "" if last == last_wanted else f"\n[Cut here: go on with start_line={last + 1}.]"
        return valid_text(f"{head}:\n" + "\n".join(rows) + rest), version

    def write_file(
        self,
        config: RunnableConfig,
        path: str,
        content: str,
        line_ends: LineEnds = "keep",
        messages: _Messages = None,
    ) -> _Result:
        """Create a file, or replace all of it. To change a part of a file, use edit_file.

        Args:
            path: Path of the file, relative to the workspace, for example src/app.py.
            content: The whole content of the file.
            line_ends: keep: as the file has them. lf, crlf: change them.
        """
        _check_valid("content", content)
        name, real = self._workspace.relative(path), self._workspace.real(path)
        before = self._editable(path) if os.path.lexists(real) else None
        if before and self._has_seen(config, real, before.version, messages) is False:
            raise ToolException(
                f"{name} has changed since you read it: by a person, a command or Python code. Nothing was "
                "written, so that the change is not lost. Read it again with read_file, then write."
            )
        text, kept = applied(before.text if before else "", content, line_ends)
        written = TextFile(text.encode())
        done = "Created" if self._workspace.write(path, written.data) else "Replaced"
        size = f"{count_noun(written.line_count, 'line')}, {count_noun(len(written.data), 'byte')}"
        return f"{done} {name}: {size}.{kept}", self._note(config, real, written.version)

    def edit_file(
        self,
        config: RunnableConfig,
        path: str,
        old: str,
        new: str,
        replace_all: bool = False,
        messages: _Messages = None,
    ) -> _Result:
        """Replace one piece of text in a file. Read the file first: old must be in it exactly once.

        Args:
            path: Path of the file, relative to the workspace, for example src/app.py.
            old: The text to replace, exactly as in the file, without line numbers.
            new: The text to put in its place.
            replace_all: Replace every place where old is, not just one.
        """
        old, new = (text.replace("\r\n", "\n") for text in (old, new))
        if not old:
            raise ToolException("old is empty; pass the text to replace, or use write_file for a new file.")
        if old == new:
            raise ToolException("old and new are the same; pass the changed text as new.")
        _check_valid("new", new)
        name, before = self._workspace.relative(path), self._editable(path)
        edited, result = replaced(before.text, old, new, name, everywhere=replace_all)
        written = TextFile(edited.encode())
        self._workspace.write(path, written.data)
        real = self._workspace.real(path)
        # Somebody's change that the thread has not seen is not seen now either.
        is_seen = self._has_seen(config, real, before.version, messages)
        version = self._note(config, real, written.version) if is_seen else None
        return result, version

    def search_files(
        self, config: RunnableConfig, pattern: str, path: str = ".", glob: str | None = None, context: int = 0
    ) -> _Result:
        """Find lines in files by a regular expression or, if none matches, as plain text: file:line: text.

        Args:
            pattern: Regular expression, which works within one line, or plain text.
            path: File or folder to search; . is the whole workspace.
            glob: Only files whose name or path fits, for example *.py, src/**/*.ts or *.{js,ts}.
            context: Lines to show around each match, at most 10.
        """
        text = Search(self._reading(path, config), pattern, context).result(path, glob)
        return capped(text, keep=self._workspace.keep("search_files")), None

    def _editable(self, path: str) -> TextFile:
        """The file at `path`, which is to be changed."""
        text = TextFile(self._workspace.head(path, MOST_CHANGED + 1))
        if len(text.data) > MOST_CHANGED:
            raise ToolException(f"{quote_path(path)} is larger than {MOST_CHANGED:,} bytes; use a command.")
        if not text.is_text:
            raise ToolException(
                f"{quote_path(path)} is not UTF-8 text, and a change would damage it; leave it as it is, or "
                "write to another file."
            )
        return text


def _outputs(config: RunnableConfig) -> Outputs:
    configurable = config.get("configurable") or {}
    thread_id = configurable.get("thread_id")
    thread = None if thread_id is None else str(thread_id)
    return Outputs.of(outputs_folder(), saver_of(configurable), thread)


def _thread(config: RunnableConfig) -> str:
    """The thread, with its database if it has one."""
    return _outputs(config).owner or str((config.get("configurable") or {}).get("thread_id"))


def _check_valid(argument: str, text: str) -> None:
    if valid_text(text) != text:
        raise ToolException(f"{argument} holds characters that are not valid text; leave them out.")


def _listed(entry: FolderEntry) -> str:
    if entry.kind == "file":
        return f"{one_line(entry.path)} ({entry.size} bytes)"
    slash = "/" if entry.kind == "folder" else ""
    return f"{one_line(entry.path)}{slash} ({', '.join(filter(None, (entry.kind, entry.note)))})"


def _check_range(name: str, text: TextFile, start: int, end: int | None, character: int) -> None:
    if start < 1 or character < 1:
        raise ToolException("start_line and start_character count from 1; pass 1 or more.")
    if end is not None and end < start:
        raise ToolException("end_line is before start_line; leave it out to read to the end.")
    if start > max(text.line_count, 1):
        lines = count_noun(text.line_count, "line")
        where = "" if text.is_whole else f" in the first {MOST_READ:,} bytes, and the rest is not read"
        raise ToolException(f"{name} has {lines}{where}, so line {start} does not exist; use a smaller one.")


def _rows(text: TextFile, first: int, last: int, character: int) -> list[str]:
    """The numbered lines, as many as fit into one result, at least one. A first line from a character on may
    fill all of it."""
    rows: list[str] = []
    left = LIMIT - _AROUND
    for number, line in text.lines(first, last):
        start = character - 1 if number == first else 0
        most = left - _AROUND if start else _MOST_IN_A_LINE
        row = f"{number}|{around(line, start, most)}"
        left -= len(row) + 1
        if left < 0 and rows:
            break
        rows.append(row)
    return rows


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
    writes = (tools.write_file, tools.edit_file)
    return [
        _Working.from_function(
            run,
            keep=workspace.keep,
            parse_docstring=True,
            response_format="content_and_artifact",
            metadata={"kind": str(Kind.WRITE if run in writes else Kind.READ)},
        )
        for run in (tools.list_files, tools.read_file, *writes, tools.search_files)
    ]


class _Working(StructuredTool):
    """keep: stores the full text of a result where `read_file` can read it (see `capped`)."""

    keep: Callable[[str], Callable[[str], str]] = Field(exclude=True, repr=False)
