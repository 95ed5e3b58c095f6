"""What a state wrote is saved with the checkpoint that follows, and no later than somebody may rely on it."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

from signoff import Limits, Session, StorageError, build_graph, delegate, postgres_storage, sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.messages import is_reply
from signoff.models import ScriptedModel, call
from signoff.nodes.delegates.descent import DESCENT, Descent
from signoff.storage import SqliteStorage
from signoff.storage.base import fork_mark, short_version, version_mark, version_number
from signoff.storage.postgres_pool import batches
from tests.support.ends import saved_outcome
from tests.support.servers.postgres import execute

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "go")]}
SCRIPT = [call("look"), call("finish_task", summary="x")]
NODE = "~__pregel_pull, decide"


def look() -> str:
    """Look."""
    return "seen"


def graph_on(storage: Any, script: Any = SCRIPT) -> Graph:
    return build_graph(ScriptedModel(script), [look], storage=storage)


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[SqliteStorage]:
    with sqlite_storage(tmp_path / "threads.sqlite") as opened:
        yield opened


@contextmanager
def elsewhere(storage: SqliteStorage) -> Iterator[Any]:
    """What another process finds in the file now."""
    with sqlite_storage(storage.path) as other:
        yield other.checkpointer.get_tuple(THREAD)


def written(storage: SqliteStorage) -> set[Any]:
    """The events of the newest checkpoint and of what was written after it, as another process sees them."""
    with elsewhere(storage) as found:
        events = {value for _, channel, value in found.pending_writes or () if channel == "event"}
        return events | {found.checkpoint["channel_values"].get("event")}


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_step_is_one_transaction_in_a_file(way: str, storage: SqliteStorage) -> None:
    told: list[str] = []
    storage.checkpointer.conn.set_trace_callback(told.append)
    run(graph_on(storage), way)
    storage.checkpointer.conn.set_trace_callback(None)
    checkpoints = len(list(storage.checkpointer.list(THREAD)))
    assert checkpoints > 8
    assert told.count("COMMIT") == checkpoints


def lead_on(storage: Any, limits: Limits | None = None, below: Any = SCRIPT) -> Graph:
    worker = delegate("worker", build_graph(ScriptedModel(below), [look]), description="Works.")
    steps = [call("worker", task="Look."), SCRIPT[-1]]
    return build_graph(ScriptedModel(steps), [worker], storage=storage, limits=limits)


LIMITS = [None, Limits(tree_turns=9, tool_calls=9, tokens=9_000)]


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_step_of_a_delegate_is_one_transaction_in_a_file_with_the_ledger_of_its_tree(
    way: str, limits: Limits | None, storage: SqliteStorage
) -> None:
    told, beside = list[str](), list[str]()
    graph = lead_on(storage, limits)
    storage.checkpointer.conn.set_trace_callback(told.append)
    storage.store.conn.set_trace_callback(beside.append)
    run(graph, way)
    storage.checkpointer.conn.set_trace_callback(None)
    storage.store.conn.set_trace_callback(None)
    checkpoints = storage.checkpointer.conn.execute("SELECT count(*) FROM checkpoints").fetchone()
    assert told.count("COMMIT") == checkpoints[0] > 16
    # It is read once, and never written by itself.
    assert sum("signoff.ledger" in one for one in beside) == (limits is not None)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_reply_is_asked_for_when_it_is_reserved_in_a_file(
    way: str, durability: Any, tmp_path: Path
) -> None:
    reply_is_asked_for_when_reserved(partial(sqlite_storage, tmp_path / "threads.sqlite"), way, durability)


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_reply_is_asked_for_when_it_is_reserved_in_postgresql(
    way: str, durability: Any, postgres_url: str
) -> None:
    reply_is_asked_for_when_reserved(partial(postgres_storage, postgres_url), way, durability)


def reply_is_asked_for_when_reserved(open_storage: Callable[[], Any], way: str, durability: Any) -> None:
    found: list[tuple[int, float]] = []

    def below(messages: list[Any]) -> Any:
        # Another process would find the same.
        with open_storage() as other:
            (row,) = other.store.search(("signoff", "ledger"))
        (entry,) = [entry for ns, entry in row.value["machines"].items() if ns]
        found.append((entry["open"]["turn"], entry["used"]["tree_turns"]))
        return SCRIPT[sum(map(is_reply, messages))]

    with open_storage() as storage:
        graph = lead_on(storage, Limits(tree_turns=9), below)
        if way == "sync":
            graph.invoke(GO, THREAD, durability=durability)
        else:
            asyncio.run(graph.ainvoke(GO, THREAD, durability=durability))
    assert found == [(1, 0), (2, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_step_is_one_transaction_in_postgresql(way: str, postgres_url: str) -> None:
    with postgres_storage(postgres_url) as storage:
        run(graph_on(storage), way)
    # Rows with the same xmin were written by the same transaction.
    together = (
        "SELECT w.xmin = c.xmin, count(*) FROM checkpoint_writes w "
        "JOIN checkpoints c ON c.parent_checkpoint_id = w.checkpoint_id "
        # What the input began may be saved with the checkpoint of the input already.
        "WHERE w.task_path NOT LIKE '%__start__' GROUP BY 1"
    )
    ((same, count),) = execute(postgres_url, together)
    assert same
    assert count > 20


def run(graph: Graph, way: str) -> None:
    result = graph.invoke(GO, THREAD) if way == "sync" else asyncio.run(graph.ainvoke(GO, THREAD))
    assert result["outcome"]["status"] == "success"


@pytest.mark.parametrize("way", ["sync", "async"])
def test_an_effect_runs_when_its_reply_and_its_start_are_saved_in_a_file(way: str, tmp_path: Path) -> None:
    effect_runs_after_what_comes_before_it(partial(sqlite_storage, tmp_path / "threads.sqlite"), way)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["sync", "async"])
def test_an_effect_runs_when_its_reply_and_its_start_are_saved_in_postgresql(
    way: str, postgres_url: str
) -> None:
    effect_runs_after_what_comes_before_it(partial(postgres_storage, postgres_url), way)


def effect_runs_after_what_comes_before_it(open_storage: Callable[[], Any], way: str) -> None:
    found: list[tuple[int, list[str]]] = []

    def pay(what: str) -> str:
        """Pay."""
        # Another process would find the same: nothing but what is saved for good.
        with open_storage() as other:
            messages = graph_on(other).get_state(THREAD).values["messages"]
            journal = sorted(item.value["status"] for item in other.store.search(("signoff", "journal")))
        found.append((sum(map(is_reply, messages)), journal))
        return "paid"

    first, second = call("pay", what="one"), call("pay", what="two")
    with open_storage() as storage:
        script: Any = [[first, second], call("pay", what="three"), SCRIPT[-1]]
        run(build_graph(ScriptedModel(script), [pay], storage=storage), way)
    # The replies, and what the journal says.
    assert found == [(1, ["started"]), (1, ["done", "started"]), (2, ["done", "done", "started"])]


def test_who_has_seen_an_update_finds_it_saved(storage: SqliteStorage) -> None:
    for update in graph_on(storage).stream(GO, THREAD, stream_mode="updates"):
        for values in update.values():
            assert values["event"] in written(storage)


async def test_who_has_seen_an_update_in_an_event_loop_finds_it_saved(storage: SqliteStorage) -> None:
    async for update in graph_on(storage).astream(GO, THREAD, stream_mode="updates"):
        for values in update.values():
            assert values["event"] in written(storage)


def test_who_follows_a_session_finds_the_reply_saved(storage: SqliteStorage) -> None:
    for event in Session(graph_on(storage), "t").events("go"):
        if type(event).__name__ == "Said":
            assert "replied" in written(storage)


def test_what_was_seen_before_the_run_was_left_is_there(storage: SqliteStorage) -> None:
    graph = graph_on(storage)
    stream: Any = graph.stream(GO, THREAD, stream_mode="updates")
    while "call_llm" not in next(stream):
        pass
    stream.close()
    assert "replied" in written(storage)
    result = graph_on(storage, SCRIPT[1:]).invoke(None, THREAD)
    assert sum(bool(getattr(message, "tool_calls", ())) for message in result["messages"]) == 2


def test_a_checkpoint_that_cannot_be_saved_loses_nothing_of_its_state(storage: SqliteStorage) -> None:
    connection = storage.store.conn
    connection.execute(
        "CREATE TRIGGER full BEFORE INSERT ON checkpoints WHEN json_extract(NEW.metadata, '$.step') = 3 "
        "BEGIN SELECT RAISE(ABORT, 'no room'); END"
    )
    with pytest.raises(StorageError, match="no room"):
        graph_on(storage).invoke(GO, THREAD)
    assert "replied" in written(storage)
    connection.execute("DROP TRIGGER full")
    # A model that is asked once more has only the second reply.
    graph = graph_on(storage, SCRIPT[1:])
    graph.invoke(None, THREAD)
    outcome = saved_outcome(graph.get_state(THREAD).values)
    assert outcome is not None
    assert (outcome["status"], outcome["turns"]) == ("success", 2)


BELOW = {DESCENT: Descent(ns="worker:1", deeper=1)}
WAITS: list[tuple[str, str, str, bool]] = [
    (NODE, "", "event", True),
    (NODE, "", "__interrupt__", False),
    (NODE, "", "__error__", False),
    (NODE, "", "__resume__", False),
    (NODE, "inner:1", "event", False),
    ("~__pregel_push, 0", "", "event", False),
    ("", "", "event", False),
]


@pytest.mark.parametrize(("path", "namespace", "channel", "waits"), WAITS)
@pytest.mark.parametrize("way", ["sync", "async"])
def test_only_what_a_checkpoint_follows_waits(
    path: str, namespace: str, channel: str, waits: bool, way: str, storage: SqliteStorage
) -> None:
    saver = storage.checkpointer
    at: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": namespace}}
    at = saver.put(at, empty_checkpoint(), {}, {})
    given: Any = (at, [(channel, "v")], "task", path)

    def pending(own: Any) -> bool:
        found = own.get_tuple(at)
        return bool(found and found.pending_writes)

    with sqlite_storage(storage.path) as other, saver.whole_steps("t"):
        asyncio.run(saver.aput_writes(*given)) if way == "async" else saver.put_writes(*given)
        assert pending(other.checkpointer) is not waits
        # Whoever reads by this checkpointer finds everything, and everybody else does afterwards.
        assert pending(saver)
        assert pending(other.checkpointer)


@pytest.mark.parametrize(
    ("namespace", "waits"),
    [
        ("worker:1", True),
        # A graph that a tool of the delegate runs.
        ("worker:1|execute:2", False),
    ],
)
def test_what_a_delegate_writes_waits_if_it_runs_one_state_at_a_time(
    namespace: str, waits: bool, storage: SqliteStorage
) -> None:
    saver = storage.checkpointer
    at: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": namespace}}
    at = saver.put(at, empty_checkpoint(), {}, {})
    with saver.whole_steps("t"):
        saver.put_writes({"configurable": {**at["configurable"], **BELOW}}, [("event", "v")], "task", NODE)
        assert saver.holds("t") is waits


NAME = (("signoff", "ledger", "t"), "task")


def test_an_entry_is_held_only_in_a_run_that_saves_each_step_in_the_same_database(
    storage: SqliteStorage, tmp_path: Path
) -> None:
    saver, store = storage.checkpointer, storage.store
    assert saver.entry("t", store, NAME) is None
    with saver.whole_steps("t"):
        assert saver.entry("t", store, NAME) is None
    with saver.whole_steps("t", keeps_entries=True), sqlite_storage(tmp_path / "other") as other:
        assert saver.entry("t", other.store, NAME) is None
        assert saver.entry("another", store, NAME) is None
        assert saver.entry("t", store, NAME) is saver.entry("t", store, NAME) is not None


def test_a_held_entry_is_saved_with_whatever_comes_next_and_read_anew_by_the_next_run(
    storage: SqliteStorage,
) -> None:
    saver, store = storage.checkpointer, storage.store
    at: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}

    def counted(value: Any) -> tuple[dict[str, Any], int]:
        number = value["n"] + 1 if value else 1
        return {"n": number}, number

    def stored() -> Any:
        item = store.get(*NAME)
        return item and item.value["n"]

    for begun in (0, 10):
        if begun:
            store.put(*NAME, {"n": begun})
        with saver.whole_steps("t", keeps_entries=True):
            held = saver.entry("t", store, NAME)
            assert held is not None
            assert [held.change(counted), held.change(counted)] == [begun + 1, begun + 2]
            assert saver.holds("t")
            assert stored() == (begun or None)
            saver.put(at, empty_checkpoint(), {}, {})
            assert (stored(), saver.holds("t")) == (begun + 2, False)
            held.change(lambda value: (dict(value or {}), None))
            assert not saver.holds("t")
            held.change(counted)
        assert stored() == begun + 3


@pytest.mark.parametrize("held", [True, False])
def test_what_still_waits_is_saved_in_the_end_whatever_ends_it(held: bool, storage: SqliteStorage) -> None:
    saver = storage.checkpointer
    at = saver.put({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, empty_checkpoint(), {}, {})

    def broken_off() -> None:
        with saver.whole_steps("t"):
            saver.put_writes(at, [("event", "v")], "task", NODE if held else "")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    with elsewhere(storage) as found:
        assert found.pending_writes == [("task", "event", "v")]
    saver.put_writes(at, [("event", "w")], "later", NODE)
    with elsewhere(storage) as found:
        assert len(found.pending_writes) == 2


INSERT = "INSERT INTO t (a, b) VALUES (%s, %s) ON CONFLICT (a) DO NOTHING"
UPSERT = "INSERT INTO t (a, b) VALUES (%s, %s) ON CONFLICT (a) DO UPDATE SET b = EXCLUDED.b"
ROWS = [(1, 2), (3, 4), (5, 6)]
MANY = [number for n in range(20) for number in (n, -n)]


@pytest.mark.parametrize(
    ("query", "rows", "values"),
    [
        (INSERT, ROWS, [[1, 2, 3, 4, 5, 6]]),
        (INSERT, ROWS[:1], [(1, 2)]),
        (UPSERT, ROWS, [*ROWS]),
        (
            INSERT,
            [(n, n) for n in range(20)],
            [[n for n in range(16) for _ in "ab"], [16, 16, 17, 17, 18, 18, 19, 19]],
        ),
        (INSERT, [], []),
    ],
)
def test_rows_go_together_where_that_does_the_same(query: str, rows: Any, values: Any) -> None:
    found = list(batches(query, rows))
    assert [list(each) for _, each in found] == [list(each) for each in values]
    assert [statement.count(b"%s") for statement, _ in found] == [len(each) for each in values]


def test_versions_sort_by_their_number_and_after_those_of_langgraphs_savers() -> None:
    numbers = [1, 9, 61, 62, 3_843, 3_844, 10**6, 10**12]
    versions = [short_version(number, fork_mark(7)) for number in numbers]
    assert versions == sorted(versions)
    assert [version_number(version) for version in versions] == numbers
    assert {version_mark(version) for version in versions} == {fork_mark(7)}
    assert all(version > f"{10**12:032}.0.999" for version in versions)
    # Whoever counts by decimal digits must not take a low number for the next one.
    assert not any(version.partition(".")[0].isdecimal() for version in versions)
    assert len({fork_mark(bits) for bits in (0, 1, 2**32 - 1)}) == 3


def test_a_thread_of_langgraphs_own_saver_goes_on_here(tmp_path: Path) -> None:
    file = tmp_path / "threads.sqlite"
    script = [call("ask_user", question="Which one?"), call("finish_task", summary="Done.")]
    with SqliteSaver.from_conn_string(str(file)) as plain, ScriptedModel(script[:1]) as model:
        (pending,) = build_graph(model, checkpointer=plain).invoke(GO, THREAD)["__interrupt__"]
    with sqlite_storage(file) as storage, ScriptedModel(script[1:]) as model:
        graph = build_graph(model, storage=storage)
        assert graph.invoke(Command(resume={pending.id: "blue"}), THREAD)["outcome"]["status"] == "success"
        saved = storage.checkpointer.get_tuple(THREAD)
    assert saved is not None
    versions = [str(version) for version in saved.checkpoint["channel_versions"].values()]
    newest = max(versions, key=version_number)
    assert newest == short_version(version_number(newest), ""), "it is in our form"


def test_the_steps_since_the_last_copy_of_the_history_are_not_counted_up_to_langgraphs_bound(
    storage: SqliteStorage,
) -> None:
    saver = storage.checkpointer
    at: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    for inside, steps in [(False, 4_999), (True, 2_500)]:
        counted: Any = {"messages": (1_200, 4_999), "digest": (0, 4_999)}
        metadata: Any = {"step": 1, "counters_since_delta_snapshot": counted}
        with saver.whole_steps("t" if inside else "another"):
            saver.put(at, empty_checkpoint(), metadata, {})
        assert counted == {"messages": (1_200, steps), "digest": (0, 4_999)}


def test_langgraphs_own_saver_reads_what_is_written_and_refuses_to_go_on(storage: SqliteStorage) -> None:
    graph_on(storage).invoke(GO, THREAD)
    ours = [state.values for state in graph_on(storage).get_state_history(THREAD)]
    with SqliteSaver.from_conn_string(str(storage.path)) as plain:
        graph = build_graph(ScriptedModel(SCRIPT), [look], checkpointer=plain, store=storage.store)
        assert [state.values for state in graph.get_state_history(THREAD)] == ours
        with pytest.raises(ValueError, match="invalid literal for int"):
            graph.invoke({"messages": [("user", "once more")]}, THREAD)
