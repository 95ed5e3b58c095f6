"""write_file does not replace a file that has changed since the thread has read it."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import ToolException
from langgraph.checkpoint.memory import InMemorySaver

from signoff import build_graph, sqlite_storage
from signoff.graph.foreign import Outputs, outputs_folder
from signoff.models import ScriptedModel, call, reply
from signoff.tools.files import workspace_tools

READ = call("read_file", path="a.py")
WRITE = call("write_file", path="a.py", content="ONE\n")
EDIT = call("edit_file", path="a.py", old="one", new="two")
FINISH = call("finish_task", summary="Done.")
CHANGED = "one\nthe user's new line\n"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.py").write_text("one\n")
    return work


TABLE: list[tuple[str, list[str], bool]] = [
    # What happens before the write: a call, or the content that somebody else gives to the file.
    ("never read", ["!one more\n"], True),
    ("read", ["read"], True),
    ("read, then changed", ["read", "!" + CHANGED], False),
    ("a part read, then changed", ["part", "!" + CHANGED], False),
    ("read, changed, read again", ["read", "!" + CHANGED, "read"], True),
    ("read, changed and changed back", ["read", "!" + CHANGED, "!one\n"], True),
    ("read, then edited", ["read", "edit"], True),
    ("written before", ["write"], True),
    ("written, then changed", ["write", "!" + CHANGED], False),
    ("read, changed, edited", ["read", "!" + CHANGED, "edit"], False),
    ("edited, never read", ["edit"], True),
    ("read, then gone", ["read", "gone"], True),
    ("read by another name, then changed", ["link", "!" + CHANGED], False),
    ("read by another thread, then changed", ["other", "!" + CHANGED], True),
]


@pytest.mark.parametrize(("name", "steps", "written"), TABLE, ids=[name for name, _, _ in TABLE])
def test_a_change_is_not_lost(name: str, steps: list[str], written: bool, work: Path) -> None:
    tools = {tool.name: tool for tool in workspace_tools(work)}
    config: Any = {"configurable": {"thread_id": "t"}}
    (work / "link").symlink_to("a.py")
    calls: dict[str, Callable[[], object]] = {
        "read": lambda: tools["read_file"].invoke({"path": "a.py"}, config),
        "part": lambda: tools["read_file"].invoke({"path": "a.py", "end_line": 1}, config),
        "link": lambda: tools["read_file"].invoke({"path": "link"}, config),
        "other": lambda: tools["read_file"].invoke({"path": "a.py"}, {"configurable": {"thread_id": "u"}}),
        "edit": lambda: tools["edit_file"].invoke({"path": "a.py", "old": "one", "new": "two"}, config),
        "write": lambda: tools["write_file"].invoke({"path": "a.py", "content": "1\n"}, config),
        "gone": lambda: os.unlink(work / "a.py"),
    }
    for step in steps:
        (work / "a.py").write_text(step[1:]) if step.startswith("!") else calls[step]()
    before = (work / "a.py").read_text() if (work / "a.py").exists() else None
    refused = pytest.raises(ToolException, match="changed since you read it")
    with nullcontext() if written else refused:
        tools["write_file"].invoke({"path": "a.py", "content": "ONE\n"}, config)
    assert ((work / "a.py").read_text() == "ONE\n") is written
    assert written or (work / "a.py").read_text() == before


def results(state: dict[str, Any]) -> list[tuple[str, str]]:
    return [(m.name, m.status) for m in state["messages"] if m.type == "tool" and m.name.endswith("_file")]


def test_also_in_another_process(work: Path, tmp_path: Path) -> None:
    """The version is kept with the thread, and the tools of the second graph know nothing else."""
    config: Any = {"configurable": {"thread_id": "t"}}

    def run(*replies: Any) -> dict[str, Any]:
        with sqlite_storage(tmp_path / "t.sqlite") as storage:
            graph = build_graph(ScriptedModel([*replies]), workspace_tools(work), storage=storage)
            state: dict[str, Any] = graph.invoke({"messages": [("user", "Change a.py.")]}, config)
            return state

    run(READ, FINISH)
    (work / "a.py").write_text(CHANGED)
    state = run(WRITE, READ, WRITE, FINISH)
    assert results(state)[-3:] == [
        ("write_file", "error"),
        ("read_file", "success"),
        ("write_file", "success"),
    ]
    (work / "a.py").write_text(CHANGED)
    assert results(run(WRITE, FINISH))[-1] == ("write_file", "error")


def test_calls_of_one_reply_know_of_each_other(work: Path) -> None:
    """Also without a thread, and where the state has not seen the results of the reply yet."""
    model = ScriptedModel([READ, reply(EDIT, WRITE, WRITE), FINISH])
    state = build_graph(model, workspace_tools(work)).invoke({"messages": [("user", "Change a.py.")]})
    assert {status for _, status in results(state)} == {"success"}


def test_with_create_agent(work: Path) -> None:
    config: Any = {"configurable": {"thread_id": "t"}}
    saver = InMemorySaver()

    def run(*replies: Any) -> dict[str, Any]:
        model = ScriptedModel([*replies, reply("Done.")])
        agent: Any = create_agent(model, list(workspace_tools(work)), checkpointer=saver)
        state: dict[str, Any] = agent.invoke({"messages": [("user", "Change a.py.")]}, config)
        return state

    run(READ)
    (work / "a.py").write_text(CHANGED)
    with pytest.raises(ToolException, match="changed since you read it"):
        run(WRITE)
    assert (work / "a.py").read_text() == CHANGED


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunnableConfig:
    """A thread with a folder of results, with what Python code left in it, beside those of others."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    saver = InMemorySaver()
    for owned in (Outputs.of(outputs_folder(), saver, "t"), Outputs.of(outputs_folder(), None, None)):
        folder = owned.own / "python"
        folder.mkdir(parents=True)
        (folder / "table.csv").write_text("a,b\n1,2\n")
        (folder / "out").symlink_to(tmp_path / "work")
        (folder / "up").symlink_to("..")
    (outputs_folder() / "another").mkdir()
    (outputs_folder() / "another/secret").write_text("secret")
    return {"configurable": {"thread_id": "t", "__pregel_checkpointer": saver}}


def folder_of(config: RunnableConfig) -> Path:
    saver = config.get("configurable", {}).get("__pregel_checkpointer")
    return Outputs.of(outputs_folder(), saver, "t").own / "python"


def test_the_folder_of_the_threads_results_is_read_and_never_written(
    work: Path, config: RunnableConfig
) -> None:
    tools = {tool.name: tool for tool in workspace_tools(work)}
    path = str(folder_of(config) / "table.csv")
    (work.parent / "cache").rename(work.parent / "real")
    (work.parent / "cache").symlink_to("real")
    assert tools["read_file"].invoke({"path": path}, config).endswith("1|a,b\n2|1,2")
    folder = folder_of(config).resolve()
    path = str(folder / "table.csv")
    assert tools["read_file"].invoke({"path": path}, config) == f"{path}, lines 1 to 2 of 2:\n1|a,b\n2|1,2"
    assert f"{path} (8 bytes)" in tools["list_files"].invoke({"path": str(folder)}, config)
    assert f"{path}:2: 1,2" in tools["search_files"].invoke({"pattern": "1,2", "path": str(folder)}, config)
    for other in ("../../another/secret", "out/a.py"):
        with pytest.raises(ToolException, match="outside the workspace"):
            tools["read_file"].invoke({"path": f"{folder}/{other}"}, config)
    for name, arguments in (("write_file", {"content": "x"}), ("edit_file", {"old": "a", "new": "x"})):
        with pytest.raises(ToolException, match="outside the workspace"):
            tools[name].invoke({"path": path, **arguments}, config)
    assert (folder / "table.csv").read_text() == "a,b\n1,2\n"


def test_without_a_database_only_a_result_that_is_named_is_read(work: Path, config: RunnableConfig) -> None:
    """All threads without one have the same folder, and may not look around in it."""
    tools = {tool.name: tool for tool in workspace_tools(work)}
    folder = folder_of({})
    result = tools["read_file"].invoke({"path": str(folder / "table.csv")})
    assert result.endswith("1|a,b\n2|1,2")
    for path in (folder, folder.parent, folder / "up", folder / "up/python", folder / "table.csv/..", "/"):
        for name, arguments in (("list_files", {}), ("search_files", {"pattern": "1"})):
            with pytest.raises(ToolException, match="outside the workspace"):
                tools[name].invoke({"path": str(path), **arguments})
    # Nor does a thread with a database read there, or the other way round.
    nowhere: RunnableConfig = {}
    for path, place in ((folder, config), (folder_of(config), nowhere)):
        with pytest.raises(ToolException, match="outside the workspace"):
            tools["list_files"].invoke({"path": str(path)}, place)
