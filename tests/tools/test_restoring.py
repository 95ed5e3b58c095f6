"""A call that wrote a file is undone: what was there before comes back, unless the file has changed since."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage

from signoff import build_graph, outcome_of, sqlite_storage, undo
from signoff.graph.outcome import UndoReport
from signoff.models import ScriptedModel, call
from signoff.tools.files import workspace_tools
from signoff.tools.filesystem.restoring import MOST_BYTES, MOST_KEPT

THREAD: Any = {"configurable": {"thread_id": "t"}}
FINISH = call("finish_task", summary="Done.")


def write(path: str, content: str) -> Any:
    return call("write_file", path=path, content=content)


def edit(path: str, old: str, new: str) -> Any:
    return call("edit_file", path=path, old=old, new=new)


class Project:
    """A folder of files, a task that works on it, and the undo of that task."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.root.mkdir()
        self.database = folder / "t.sqlite"

    @property
    def files(self) -> dict[str, bytes]:
        paths = (path for path in self.root.rglob("*") if path.is_file())
        return {path.relative_to(self.root).as_posix(): path.read_bytes() for path in paths}

    def put(self, files: dict[str, bytes]) -> None:
        for name, data in files.items():
            (self.root / name).write_bytes(data)

    def run(self, *calls: Any) -> None:
        with sqlite_storage(self.database) as storage:
            model = ScriptedModel([*calls, FINISH])
            graph = build_graph(model, workspace_tools(self.root), storage=storage)
            assert outcome_of(graph.invoke({"messages": [("user", "go")]}, THREAD)).succeeded

    def undo(self) -> UndoReport:
        with sqlite_storage(self.database) as storage:
            graph = build_graph(ScriptedModel([]), workspace_tools(self.root), storage=storage)
            report = outcome_of(graph.invoke(undo(graph.get_state(THREAD)), THREAD)).undo
        assert report is not None
        return report


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


UNDONE: dict[str, tuple[dict[str, bytes], list[Any], list[str]]] = {
    "an edit": ({"a": b"one\ntwo\n"}, [edit("a", "two", "2")], ["Restored a."]),
    "an edit that removes": ({"a": b"one\ntwo\n"}, [edit("a", "one\n", "")], ["Restored a."]),
    "an edit that repeats": ({"a": b"aaa b"}, [edit("a", "aaa", "aaaaa")], ["Restored a."]),
    "with its line ends and its mark": (
        {"a": b"\xef\xbb\xbfone\r\ntwo\r\n"},
        [edit("a", "two", "\u00fc"), write("a", "three\n")],
        ["Restored a."] * 2,
    ),
    "a replaced file": ({"a": b"one\n"}, [write("a", "")], ["Restored a."]),
    "an empty file": ({"a": b""}, [write("a", "x")], ["Restored a."]),
    "one that was written as it was": ({"a": b"one\n"}, [write("a", "one\n")], ["Restored a."]),
    "a created file": ({}, [write("a", "x")], ["Removed a, which it had created."]),
    "several calls": (
        {"a": b"1"},
        [write("b", "x"), write("a", "2"), edit("b", "x", "y"), edit("a", "2", "3")],
        ["Restored a.", "Restored b.", "Restored a.", "Removed b, which it had created."],
    ),
    "a small piece of a large file": (
        {"a": b"x" * (MOST_KEPT * 2) + b"end"},
        [edit("a", "end", "END")],
        ["Restored a."],
    ),
}


@pytest.mark.parametrize("case", UNDONE)
def test_what_was_before_comes_back(case: str, project: Project) -> None:
    files, calls, said = UNDONE[case]
    project.put(files)
    project.run(*calls)
    report = project.undo()
    assert ([one.said for one in report.undone], report.standing) == (said, [])
    assert project.files == files
    # A second one does nothing, and says the same.
    assert [one.said for one in project.undo().undone] == said


STANDING: dict[str, tuple[bytes | None, Any, bytes | None, str]] = {
    "changed since": (b"1", write("a", "2"), b"3", "a has changed since, and was left as it is."),
    "created, and changed since": (None, write("a", "2"), b"3", "a has changed since"),
    "removed since": (b"1", write("a", "2"), None, "There is no a"),
    "too much was replaced": (
        b"x" * (MOST_KEPT + 1),
        write("a", "2"),
        b"2",
        "What was in a before was more than 200,000 characters, and is not kept.",
    ),
    "a file too large to look at": (
        b"x" * (MOST_BYTES + 1),
        write("a", "2"),
        b"2",
        "What was in a before is not recorded with this call.",
    ),
}


@pytest.mark.parametrize("case", STANDING)
def test_what_cannot_come_back_stands_and_the_file_is_left_as_it_is(case: str, project: Project) -> None:
    before, done, after, why = STANDING[case]
    project.put({} if before is None else {"a": before})
    project.run(done)
    if after is None:
        (project.root / "a").unlink()
    else:
        project.put({"a": after})
    report = project.undo()
    assert [(one.why, why in one.said) for one in report.standing] == [("undo_failed", True)], report
    assert project.files == ({} if after is None else {"a": after})


def test_an_undo_keeps_within_the_workspace_and_off_what_is_protected(project: Project) -> None:
    project.run(write("a", "x"))
    outside = project.root.parent / "outside"
    outside.write_bytes(b"x")
    (project.root / "a").unlink()
    (project.root / "a").symlink_to(outside)
    assert [one.why for one in project.undo().standing] == ["undo_failed"]
    assert outside.read_bytes() == b"x"


def test_the_mode_of_a_file_stays(project: Project) -> None:
    project.put({"run.sh": b"echo 1\n"})
    (project.root / "run.sh").chmod(0o755)
    project.run(edit("run.sh", "1", "2"))
    project.undo()
    assert (project.root / "run.sh").stat().st_mode & 0o777 == 0o755


def test_the_model_reads_nothing_of_what_is_recorded(tmp_path: Path) -> None:
    tools = {tool.name: tool for tool in workspace_tools(tmp_path)}
    (tmp_path / "a").write_text("before")
    given = {"name": "write_file", "args": {"path": "a", "content": "after"}, "id": "1", "type": "tool_call"}
    found = tools["write_file"].invoke(given)
    assert isinstance(found, ToolMessage)
    assert found.content == "Replaced a: 1 line, 5 bytes."
    assert set(found.artifact) == {"after", "at", "new", "old"}
