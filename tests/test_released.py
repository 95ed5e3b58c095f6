"""Threads that a released version left behind are picked up by the code of today."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from signoff import sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.machine import MACHINE
from signoff.models import ScriptedModel
from tests.histories import assert_sendable
from tests.released import CONDITIONS, CURRENT, FOLDER, graph_for, stands, thread, unpack, write

FILES = sorted(FOLDER.glob("*.sqlite.gz"))
Run = Callable[[Graph, Any, Any], dict[str, Any]]


def invoke(graph: Graph, given: Any, config: Any) -> dict[str, Any]:
    return graph.invoke(given, config)


def ainvoke(graph: Graph, given: Any, config: Any) -> dict[str, Any]:
    return asyncio.run(graph.ainvoke(given, config))


def pick_up(name: str, file: Path, run: Run) -> None:
    """Goes on with the thread of this name, and checks how it was found, what ran and how it ended."""
    condition, ran = CONDITIONS[name], list[str]()
    with sqlite_storage(file) as storage, ScriptedModel(condition.after) as model:
        graph = graph_for(name, model, storage, ran)
        state = graph.get_state(thread(name))
        assert stands(state) == condition.stands
        outcome = run(graph, condition.go_on(state), thread(name))["outcome"]
        machine = graph.get_state(thread(name)).values["machine"]
    assert tuple(outcome[part] for part in ("status", "reason", "turns", "tool_calls")) == condition.ends
    assert ran == list(condition.runs)
    shown = model.seen[0].messages
    assert_sendable(shown)
    assert condition.shows in "\n".join(message.text for message in shown)
    assert machine == MACHINE


@pytest.mark.parametrize("run", [invoke, ainvoke])
@pytest.mark.parametrize("name", CONDITIONS)
@pytest.mark.parametrize("packed", FILES, ids=lambda file: file.name.removesuffix(".sqlite.gz"))
def test_a_thread_of_a_released_version_is_picked_up(
    packed: Path, name: str, run: Run, tmp_path: Path
) -> None:
    file = unpack(packed, tmp_path)
    with sqlite_storage(file) as storage:
        if name not in storage.threads():
            pytest.skip("this version did not write it")
    pick_up(name, file, run)


@pytest.mark.parametrize("packed", FILES, ids=lambda file: file.name.removesuffix(".sqlite.gz"))
def test_no_thread_of_a_file_is_left_out(packed: Path, tmp_path: Path) -> None:
    with sqlite_storage(unpack(packed, tmp_path)) as storage:
        assert set(storage.threads()) <= set(CONDITIONS)
    assert packed.stat().st_size < 300_000


def test_there_is_a_file_of_this_version_with_every_condition(tmp_path: Path) -> None:
    assert CURRENT in FILES, "write it: python -m tests.released"
    with sqlite_storage(unpack(CURRENT, tmp_path)) as storage:
        assert set(storage.threads()) == set(CONDITIONS), "write it again: python -m tests.released"


@pytest.mark.slow
def test_what_the_script_writes_today_is_picked_up_too(tmp_path: Path) -> None:
    write(tmp_path / "new" / "today.sqlite.gz")
    for name in CONDITIONS:
        pick_up(name, unpack(tmp_path / "new" / "today.sqlite.gz", tmp_path), invoke)
