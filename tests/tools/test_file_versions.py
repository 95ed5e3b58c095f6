"""What a thread knows of files: one that has changed since it was read is not replaced."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import ToolException

from signoff import build_graph, sqlite_storage
from signoff.models import ScriptedModel, call, reply
from tests.support.benches.workspace import Bench, Call, Link
from tests.support.plays import FINISH, GO

READ: Call = ("read_file", {"path": "a.py"})
BY_LINK = ("read_file", {"path": "link"})
WRITE: Call = ("write_file", {"path": "a.py", "content": "ONE\n"})
EDIT: Call = ("edit_file", {"path": "a.py", "old": "one", "new": "two"})
CHANGED = "one\nthe user's new line\n"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "work", {"a.py": "one\n", "link": Link("a.py")})


# What happens before the write: a call of the thread, or the content that somebody else gives to the file.
WRITTEN: dict[str, list[Any]] = {
    "read": [READ],
    "read, changed, read again": [READ, CHANGED, READ],
    "read, changed and changed back": [READ, CHANGED, "one\n"],
    "read, then edited": [READ, EDIT],
    "read, then gone": [READ, None],
}
REFUSED: dict[str, list[Any]] = {
    "read, then changed": [READ, CHANGED],
    "read, changed, edited": [READ, CHANGED, EDIT],
    "read by another name, then changed": [BY_LINK, CHANGED],
}


@pytest.mark.parametrize("name", WRITTEN | REFUSED)
def test_a_change_is_not_lost(name: str, bench: Bench) -> None:
    config: Any = {"configurable": {"thread_id": "t"}}
    file = bench.root / "a.py"
    for step in (WRITTEN | REFUSED)[name]:
        if isinstance(step, tuple):
            bench.tools[step[0]].invoke(step[1], config)
        elif step is None:
            file.unlink()
        else:
            file.write_text(step)
    before = file.read_text() if file.exists() else ""
    with nullcontext() if name in WRITTEN else pytest.raises(ToolException, match=r"a\.py"):
        bench.tools["write_file"].invoke(WRITE[1], config)
    assert file.read_text() == ("ONE\n" if name in WRITTEN else before)


def statuses(state: Any) -> list[str]:
    results = (message for message in state["messages"] if isinstance(message, ToolMessage))
    return [f"{message.name} {message.status}" for message in results if "_file" in str(message.name)]


def test_it_is_kept_with_the_thread_for_another_process(bench: Bench, tmp_path: Path) -> None:
    def run(*steps: Any, thread: str = "t") -> list[str]:
        with sqlite_storage(tmp_path / "t.sqlite") as storage:
            model = ScriptedModel([*(call(name, **args) for name, args in steps), FINISH])
            graph = build_graph(model, [*Bench(bench.root).tools.values()], storage=storage)
            return statuses(graph.invoke(GO, {"configurable": {"thread_id": thread}}))

    run(READ)
    bench.put("a.py", CHANGED)
    read, refused, *rest = run(WRITE, READ, WRITE)
    assert (read, refused) == ("read_file success", "write_file error")
    assert rest == ["read_file success", "write_file success"]
    bench.put("a.py", CHANGED)
    assert run(WRITE)[-1] == "write_file error"
    # Another thread has not seen what was there before.
    assert run(WRITE, thread="u") == ["write_file success"]


def test_calls_of_one_reply_know_of_each_other(bench: Bench) -> None:
    calls = [call(name, **args) for name, args in (READ, EDIT, WRITE, WRITE)]
    graph = build_graph(ScriptedModel([calls[0], reply(*calls[1:]), FINISH]), [*bench.tools.values()])
    assert {row.split()[1] for row in statuses(graph.invoke(GO))} == {"success"}
