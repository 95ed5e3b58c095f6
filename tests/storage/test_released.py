"""Threads that earlier versions left behind are picked up by the code of today, in SQLite and PostgreSQL."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from signoff import Limits, build_graph, extend, sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.machine import MACHINE
from signoff.models import ScriptedModel
from signoff.nodes.journal import recorded
from signoff.storage.postgres import postgres_storage
from tests.released import (
    DUMPS,
    FILES,
    POSTGRES,
    QUEUED,
    SQLITE,
    QueueBench,
    check_target,
    content_of,
    current,
    graph_for,
    load,
    name_of,
    stands,
    thread,
    tools,
    unpack,
    write_sqlite,
)
from tests.support.histories import assert_sendable
from tests.support.released_conditions import CONDITIONS, PAY

Run = Callable[[Graph, Any, Any], dict[str, Any]]


every_file = pytest.mark.parametrize("packed", FILES, ids=name_of)
every_dump = pytest.mark.parametrize("packed", DUMPS, ids=name_of)


def invoke(graph: Graph, given: Any, config: Any) -> dict[str, Any]:
    return graph.invoke(given, config)


def ainvoke(graph: Graph, given: Any, config: Any) -> dict[str, Any]:
    return asyncio.run(graph.ainvoke(given, config))


both_ways = pytest.mark.parametrize("run", [invoke, ainvoke])


def pick_up(name: str, storage: Any, run: Run) -> None:
    """Goes on with the thread of this name, and checks how it was found, what ran and how it ended."""
    condition, ran = CONDITIONS[name], list[str]()
    with ScriptedModel(condition.after) as model:
        graph = graph_for(name, model, storage, ran)
        state = graph.get_state(thread(name))
        assert stands(state) == condition.stands, name
        result = run(graph, condition.go_on(state), thread(name))
        machine = graph.get_state(thread(name)).values["machine"]
    outcome = result["outcome"]
    ended = tuple(outcome[part] for part in ("status", "reason", "turns", "tool_calls"))
    assert ended == condition.ends, name
    assert ran == list(condition.runs), name
    if model.seen:
        assert_sendable(model.seen[0].messages)
    shown = model.seen[0].messages if model.seen else result["messages"]
    assert condition.shows in "\n".join(message.text for message in shown), name
    assert machine == MACHINE


def threads_in(packed: Path) -> list[str]:
    """The conditions that this version wrote."""
    with closing(sqlite3.connect(":memory:")) as connection:
        # In memory there can be no file for a log beside it.
        content = bytearray(content_of(packed))
        content[18:20] = b"\1\1"
        connection.deserialize(bytes(content))
        found = {name for (name,) in connection.execute("SELECT DISTINCT thread_id FROM checkpoints")}
    return [name for name in CONDITIONS if name in found]


@both_ways
@pytest.mark.parametrize(
    ("packed", "name"),
    [pytest.param(file, name, id=f"{name_of(file)}-{name}") for file in FILES for name in threads_in(file)],
)
def test_a_thread_of_an_earlier_version_is_picked_up(
    packed: Path, name: str, run: Run, tmp_path: Path
) -> None:
    with sqlite_storage(unpack(packed, tmp_path)) as storage:
        pick_up(name, storage, run)


@every_file
def test_a_thread_of_an_earlier_version_is_extended_under_a_lower_limit(packed: Path, tmp_path: Path) -> None:
    name = "ended at a limit twice, after a phase and a refusal"
    if name not in threads_in(packed):
        pytest.skip("this version left no such thread")
    with sqlite_storage(unpack(packed, tmp_path)) as storage, ScriptedModel([PAY, PAY, PAY]) as model:
        graph = build_graph(model, tools([], False), limits=Limits(turns=1), storage=storage)
        used = graph.get_state(thread(name)).values["outcome"]["turns"]
        for turns in (2, 1):
            found = graph.invoke(extend(graph.get_state(thread(name)), turns=turns), thread(name))["outcome"]
            used += turns
            assert (found["reason"], found["turns"]) == ("turns", used)


# The files of all versions are picked up both ways, and have the same threads.
DUMPS_PICKED_UP = [
    pytest.param(packed, run, id=f"{name_of(packed)}-{run.__name__}")
    for at, packed in enumerate(DUMPS)
    for way, run in enumerate((invoke, ainvoke))
    if packed == DUMPS[-1] or way == at % 2
]


@pytest.mark.parametrize(("packed", "run"), DUMPS_PICKED_UP)
def test_the_threads_of_a_dump_are_picked_up(packed: Path, run: Run, postgres_url: str) -> None:
    load(packed, postgres_url)
    with postgres_storage(postgres_url) as storage:
        for name in CONDITIONS.keys() & set(storage.threads()):
            pick_up(name, storage, run)


@every_dump
def test_a_worker_finishes_what_waits_in_the_queue_of_a_dump(packed: Path, postgres_url: str) -> None:
    load(packed, postgres_url)
    with postgres_storage(postgres_url) as storage:
        bench = QueueBench(storage, postgres_url)
        task, waits, died, half = QUEUED
        assert sorted(bench.jobs("todo")) == [(task, 0), (waits, 0), (half, 0)]
        assert bench.jobs("doing") == [(died, 0)]
        bench.work()
        assert bench.jobs("todo", "doing") == []
        assert {name: bench.said(name) for name in QUEUED} == {
            task: ["the first"],
            waits: ["the first"],
            died: ["the first"],
            half: ["the first", "the second", "the third"],
        }
        ends = {name: [outcome.status for outcome in recorded(storage.store, name)] for name in QUEUED}
        assert ends == {task: ["success"], waits: ["success"], died: ["success"], half: ["success"] * 3}
        bench.submit("the second", half, id="order 2")
        assert bench.jobs("todo") == [], "what was delivered is known by its id"


@every_file
def test_no_thread_of_a_file_is_left_out(packed: Path, tmp_path: Path) -> None:
    with sqlite_storage(unpack(packed, tmp_path)) as storage:
        assert set(storage.threads()) <= set(CONDITIONS)
    assert packed.stat().st_size < 300_000


@every_dump
def test_no_thread_of_a_dump_is_left_out(packed: Path, postgres_url: str) -> None:
    load(packed, postgres_url)
    with postgres_storage(postgres_url) as storage:
        assert set(storage.threads()) <= {*CONDITIONS, *QUEUED}
    assert packed.stat().st_size < 300_000


def test_there_is_a_file_of_this_version_with_every_condition(tmp_path: Path) -> None:
    assert current(SQLITE) in FILES, "write it: python -m tests.released"
    with sqlite_storage(unpack(current(SQLITE), tmp_path)) as storage:
        assert set(storage.threads()) == set(CONDITIONS), "write it again: python -m tests.released"


def test_there_is_a_dump_of_this_version_with_every_condition(postgres_url: str) -> None:
    assert current(POSTGRES) in DUMPS, "write it: python -m tests.released"
    load(current(POSTGRES), postgres_url)
    with postgres_storage(postgres_url) as storage:
        assert CONDITIONS.keys() <= set(storage.threads()), "write it again: python -m tests.released"


def test_the_files_of_another_version_are_never_written_again() -> None:
    check_target(current(SQLITE))
    for file in {*FILES, *DUMPS} - {current(SQLITE), current(POSTGRES)}:
        with pytest.raises(SystemExit, match="never written again"):
            check_target(file)


@pytest.mark.slow
def test_what_the_script_writes_today_is_picked_up_too(tmp_path: Path) -> None:
    today = tmp_path / "new" / f"today{SQLITE}"
    write_sqlite(today)
    for name in CONDITIONS:
        with sqlite_storage(unpack(today, tmp_path)) as storage:
            pick_up(name, storage, invoke)
