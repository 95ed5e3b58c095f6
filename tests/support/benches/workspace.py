"""A folder with the file tools in it: files, a call, what a model reads, and what is on the disk then."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, ToolException

from signoff.tools import Workspace, workspace_tools

Files = Mapping[str, str | bytes | None]
"""Contents by path; a Link, None for a pipe; a path that ends in a slash is an empty folder."""
Call = tuple[str, dict[str, Any]]
_READ = re.compile(r"(\d+\|.*)")
_LISTED = re.compile(r"(.+) \((\w+)[^()]*\)$")
_ROWS = {
    "list_files": _LISTED,
    "read_file": _READ,
    "edit_file": _READ,
    "search_files": re.compile(r"(.+?[:-]\d+[:-] .*)"),
}


class Link(str):
    """The target of a link."""


def calls(tool: str, **args: Any) -> Call:
    return tool, args


def rows_of(tool: str, text: str) -> list[str]:
    """The lines of a result that are lines of files (`3|x`, `a.py:3: x`) or entries (`a.py 120`)."""
    found = (_ROWS[tool].match(line) for line in text.split("\n"))
    return [" ".join(match.groups()) for match in found if match]


class Bench:
    """The folder, its tools, and their results, checked to be text that can be saved."""

    def __init__(self, root: Path, files: Files | None = None, protect: Sequence[str] | None = None) -> None:
        self.root = root
        for path, content in (files or {}).items():
            self.put(path, content)
        workspace = Workspace(root, protect=protect)
        self.tools: dict[str, BaseTool] = {tool.name: tool for tool in workspace_tools(workspace)}

    def put(self, name: str, content: str | bytes | None) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir()
        elif content is None:
            os.mkfifo(path)
        elif isinstance(content, Link):
            path.symlink_to(content)
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    def __call__(self, tool: str, **args: Any) -> str:
        result = self.tools[tool].invoke(args)
        assert isinstance(result, str)
        result.encode()
        return result

    def refusal(self, tool: str, **args: Any) -> str:
        with pytest.raises(ToolException) as error:
            self(tool, **args)
        str(error.value).encode()
        return str(error.value)

    def rows(self, tool: str, **args: Any) -> list[str]:
        return rows_of(tool, self(tool, **args))

    def disk(self) -> dict[str, Any]:
        """What is in the folder now."""
        paths = [path for path in self.root.rglob("*") if path.is_symlink() or not path.is_dir()]
        found = {path.relative_to(self.root).as_posix(): path for path in paths}
        return {name: _content(path) for name, path in found.items()}


def _content(path: Path) -> Any:
    if path.is_symlink():
        return Link(os.readlink(path))
    return path.read_bytes() if path.is_file() else None


@dataclass(frozen=True)
class Case:
    """Files, a call, and what must come of it: see `check`.

    rows: see `rows_of`. says: parts of the rest, as names and numbers. after: the files that are changed.
    """

    files: Files
    call: Call
    rows: Sequence[str] | None
    says: Sequence[str]
    is_refused: bool = False
    after: Files = field(default_factory=dict)


def shows(call: Call, files: Files, rows: Sequence[str], *says: str) -> Case:
    return Case(files, call, rows, says)


def changes(call: Call, files: Files, after: Files, *says: str, rows: Sequence[str] | None = None) -> Case:
    return Case(files, call, rows, says, after=after)


def refuses(call: Call, files: Files, *says: str, rows: Sequence[str] | None = None) -> Case:
    return Case(files, call, rows, says, is_refused=True)


def check(case: Case, root: Path) -> None:
    """Makes the call. Fails unless the model reads what it must, or is refused, and nothing else of what is
    on the disk changes."""
    tool, args = case.call
    bench = Bench(root, case.files)
    after = {**bench.disk(), **case.after}
    text = bench.refusal(tool, **args) if case.is_refused else bench(tool, **args)
    assert case.rows is None or rows_of(tool, text) == list(case.rows)
    assert [part for part in case.says if part not in text] == []
    assert bench.disk() == {
        name: content.encode() if isinstance(content, str) and not isinstance(content, Link) else content
        for name, content in after.items()
    }
