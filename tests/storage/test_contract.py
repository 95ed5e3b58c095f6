"""What every storage promises: SQLite, PostgreSQL, and as far as it goes somebody else's saver and store.

`tests/door/test_threads.py` lists threads, `test_deleting.py` deletes them, `tests/kills` and
`tests/simulate` kill their runners; here are an atomic swap, one runner, what is read again, the end of a
storage, and LangGraph's own suite for checkpointers.
"""

import asyncio
import gc
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from multiprocessing import get_context
from pathlib import Path
from threading import Event
from typing import Any, cast

import langgraph.checkpoint.base.id
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore
from langgraph.types import Command

from signoff import Graph, Storage, StorageError, ThreadBusy, ThreadLost, TooLate, build_graph
from signoff.models import ScriptedModel, call
from tests.support.databases import storage_at
from tests.support.rows import ids

NAME = "t. Ü%2E"
LABEL = "t%2E %C3%9C%252E"
"""The thread in the namespaces of a store, which have no dots."""
THREAD: Any = {"configurable": {"thread_id": NAME}}
PLACE: Any = {"configurable": {"thread_id": NAME, "checkpoint_ns": ""}}
GO: Any = {"messages": [("user", "go")]}
ASKS, DONE = call("ask_user", question="Which?"), call("finish_task", summary="Done.")
BEFORE = {"status": "started", "attempt": 1}
Open = Callable[[], Storage]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    is_postgres = request.param == "postgres"
    return str(request.getfixturevalue("postgres_url") if is_postgres else tmp_path / "t.sqlite")


@pytest.fixture
def opened(address: str) -> Iterator[Open]:
    """Opens the same database, as often as it is called."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(storage_at(address))


def test_a_graph_keeps_its_storage_open(address: str) -> None:
    graph: Any = build_graph(ScriptedModel([DONE]), storage=cast(Any, storage_at(address)))
    gc.collect()
    assert graph.invoke(GO, THREAD)["outcome"]["status"] == "success"
    graph.checkpointer.database.close()


def test_a_swap_looks_at_the_whole_value(opened: Open) -> None:
    storage = opened()
    assert not storage.swap(("a",), "k", {}, {"n": 1})
    assert storage.swap(("a",), "k", None, {"n": 1, "m": {"x": []}})
    assert not storage.swap(("a",), "k", None, {"n": 2})
    assert not storage.swap(("a",), "k", {"n": 1}, {"n": 2})
    # The same value in another order, and as LangGraph's own `put` writes it.
    assert storage.swap(("a",), "k", {"m": {"x": []}, "n": 1}, {"n": 2})
    storage.store.put(("a",), "k", {"n": 3, "ä": [1, 2]})
    assert not storage.swap(("a",), "k", {"n": 3}, {"n": 4})
    assert storage.swap(("a",), "k", {"n": 3, "ä": [1, 2]}, {"n": 4})
    assert [item.value for item in storage.store.search(("a",))] == [{"n": 4}]


@pytest.mark.parametrize("before", [None, BEFORE], ids=["a new one", "one that is there"])
def test_of_many_that_claim_the_same_entry_one_gets_it(opened: Open, before: dict[str, Any] | None) -> None:
    claimants = [opened(), opened()]
    if before is not None:
        claimants[0].store.put(("a",), "k", before)
    with ThreadPoolExecutor(8) as threads:
        claims = [
            threads.submit(claimants[number % 2].swap, ("a",), "k", before, {"by": number})
            for number in range(24)
        ]
    (winner,) = [number for number, claim in enumerate(claims) if claim.result()]
    found = claimants[1].store.get(("a",), "k")
    assert found is not None
    assert found.value == {"by": winner}


def test_one_runner_holds_a_thread_whoever_asks_for_it(opened: Open) -> None:
    here, elsewhere = opened(), opened()
    graph = build_graph(ScriptedModel([DONE, DONE]), storage=elsewhere)
    with here.runner(NAME):
        for refused in (lambda: graph.invoke(GO, THREAD), lambda: elsewhere.delete(NAME)):
            with pytest.raises(ThreadBusy, match=re.escape(NAME)):
                refused()
        assert graph.invoke(GO, {"configurable": {"thread_id": "u"}})["outcome"]["status"] == "success"
    assert ids(here) == ["u"]
    assert graph.invoke(GO, THREAD)["outcome"]["summary"] == "Done."


OURS = ("signoff", "journal", LABEL, "r")
WRITES: Mapping[str, Callable[[Storage, Graph], Any]] = {
    "an entry": lambda storage, graph: storage.store.put(OURS, "k", {}),
    "an entry, in a loop": lambda storage, graph: asyncio.run(storage.store.aput(OURS, "k", {})),
    "a swap": lambda storage, graph: storage.swap(OURS, "k", None, {}),
    "an edit": lambda storage, graph: graph.update_state(THREAD, GO, as_node="compress"),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("held", [False, True], ids=["nobody has it", "the next one has it"])
def test_whoever_has_let_go_of_a_thread_writes_to_it_no_more(opened: Open, name: str, held: bool) -> None:
    """As does the thread of a tool that was given up, in whose context the run's own hold is."""
    storage = opened()
    graph = build_graph(ScriptedModel([DONE]), storage=storage)
    saver: Any = storage.checkpointer
    with saver.runner(NAME) as hold, hold.here():
        late = copy_context()
    with ExitStack() as stack:
        if held:
            stack.enter_context(storage.runner(NAME))
        with pytest.raises(ThreadLost):
            late.run(WRITES[name], storage, graph)
    assert storage.store.search(("signoff", "journal")) == []
    assert graph.get_state(THREAD).values == {}


@pytest.mark.parametrize("name", WRITES)
def test_who_does_not_hold_a_thread_that_somebody_runs_does_not_write_to_it(opened: Open, name: str) -> None:
    storage, elsewhere = opened(), opened()
    graph = build_graph(ScriptedModel([DONE]), storage=storage)
    with elsewhere.runner(NAME), pytest.raises(ThreadBusy):
        WRITES[name](storage, graph)
    with elsewhere.runner(NAME):
        for sort in ("requests", "ratings", "inbox", "threads"):
            storage.store.put(("signoff", sort, LABEL), "k", {})
    WRITES[name](storage, graph)


def test_a_list_need_not_read_a_thread_that_somebody_has_let_go(opened: Open) -> None:
    """Its row in the store says how it stands; what was written without one is read, and its row mended."""
    storage = opened()
    graph = build_graph(ScriptedModel([ASKS, DONE]), storage=storage)

    def kept() -> list[str]:
        return [item.value["condition"] for item in storage.store.search(("signoff", "rows"))]

    graph.invoke(GO, THREAD)
    assert kept() == ["waiting"]
    with pytest.raises(TooLate):
        graph.invoke(Command(resume={"0" * 32: "red"}), THREAD)
    assert kept() == ["waiting"]
    with storage.runner(NAME):
        assert kept() == ["running"]
    graph.invoke(Command(resume="red"), THREAD)
    assert kept() == ["ended"]
    storage.store.delete(("signoff", "rows", LABEL), "row")
    assert [str(row.condition) for row in storage.threads()] == kept() == ["ended"]


def test_a_forked_child_works_but_does_not_hold_what_its_parent_holds(opened: Open) -> None:
    storage = opened()
    graph = build_graph(ScriptedModel([DONE] * 2), storage=storage)

    def in_child() -> None:
        for write in WRITES.values():
            with pytest.raises(ThreadLost):
                write(storage, graph)
        for name, own in (("inherited", storage), ("own", opened())):
            child = build_graph(ScriptedModel([DONE]), storage=own)
            assert child.invoke(GO, {"configurable": {"thread_id": name}})["outcome"]["status"] == "success"
        storage.delete("inherited")

    saver: Any = storage.checkpointer
    with saver.runner(NAME) as hold, hold.here():
        child = get_context("fork").Process(target=in_child)
        child.start()
        child.join(60)
        assert child.exitcode == 0
    assert graph.invoke(GO, THREAD)["outcome"]["status"] == "success"
    assert sorted(ids(storage)) == ["own", NAME]


def test_no_child_hangs_that_is_forked_while_another_thread_works(opened: Open) -> None:
    """A lock of the database's library that the other thread has would stay locked in the child."""
    inherited, stop = opened(), Event()
    # So that no thread imports any more: a lock of Python's import would stay locked, too.
    build_graph(ScriptedModel([DONE]), storage=inherited).invoke(GO, THREAD)

    def works() -> None:
        while not stop.is_set():
            with opened() as other, other.runner("busy"):
                pass

    def in_child(number: int) -> None:
        graph = build_graph(ScriptedModel([DONE]), storage=inherited if number % 2 else opened())
        graph.invoke(GO, {"configurable": {"thread_id": f"child {number}"}})

    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(works)
        children = [get_context("fork").Process(target=in_child, args=(number,)) for number in range(8)]
        for child in children:
            child.start()
            child.join(60)
        stop.set()
    working.result()
    assert [child.exitcode for child in children] == [0] * 8


@pytest.mark.parametrize(("behind", "comes"), [(0.3, True), (60.0, False)])
def test_what_a_clock_behind_would_hide_is_waited_for_or_refused(
    opened: Open, behind: float, comes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LangGraph takes the checkpoint with the greatest id for the newest one, and it begins with a clock."""
    storage = opened()
    graph = build_graph(ScriptedModel([ASKS, DONE]), storage=storage)
    time_ns = time.time_ns
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time_ns", lambda: time_ns() + int(behind * 1e9))
        ahead.setattr(langgraph.checkpoint.base.id, "_last_v6_timestamp", None)
        assert graph.invoke(GO, THREAD)["__interrupt__"]
    monkeypatch.setattr(langgraph.checkpoint.base.id, "_last_v6_timestamp", None)
    if comes:
        assert graph.invoke(Command(resume="red"), THREAD)["outcome"]["status"] == "success"
    else:
        with pytest.raises(StorageError, match="clock"):
            graph.invoke(Command(resume="red"), THREAD)
        assert [str(row.condition) for row in storage.threads()] == ["waiting"]


def test_what_one_has_saved_another_reads_and_goes_on_with(opened: Open) -> None:
    first = build_graph(ScriptedModel([ASKS]), storage=opened())
    waiting = first.invoke(GO, THREAD)
    second = build_graph(ScriptedModel([DONE]), storage=opened())
    assert second.get_state(THREAD).values["messages"] == waiting["messages"]
    ended = asyncio.run(second.ainvoke({"messages": [("user", "The red one.")]}, THREAD))
    assert [message.text for message in ended["messages"] if message.type == "tool"][:1] == ["The red one."]
    assert first.get_state(THREAD).values["messages"] == ended["messages"]


def test_a_storage_that_was_closed_is_closed_for_everybody(opened: Open) -> None:
    storage = opened()
    graph = build_graph(ScriptedModel([DONE]), storage=storage)
    storage.close()
    storage.close()
    for use in (
        storage.threads,
        lambda: build_graph(ScriptedModel([]), storage=storage),
        lambda: storage.swap(("a",), "k", None, {}),
        lambda: graph.invoke(GO, THREAD),
        lambda: storage.delete(NAME),
    ):
        with pytest.raises(StorageError):
            use()


UNSTORABLE: Mapping[str, Callable[[Storage], Any]] = {
    "a number": lambda storage: put(storage, 2**70),
    "a number in a list": lambda storage: put(storage, [2**70]),
    "text": lambda storage: put(storage, "a\0b"),
    "an object": lambda storage: put(storage, object()),
    "an entry": lambda storage: storage.store.put(("a",), "k", {"n": float("nan")}),
}


def put(storage: Storage, value: Any) -> Any:
    checkpoint: Any = {**empty_checkpoint(), "channel_values": {"x": value}, "channel_versions": {"x": 1}}
    return storage.checkpointer.put(PLACE, checkpoint, {}, {"x": 1})


@pytest.mark.parametrize("name", UNSTORABLE)
def test_what_one_database_could_not_give_back_each_refuses(opened: Open, name: str) -> None:
    storage = opened()
    with pytest.raises(StorageError):
        UNSTORABLE[name](storage)
    assert (storage.checkpointer.get_tuple(THREAD), storage.store.search(("a",))) == (None, [])


def test_text_in_an_entry_is_made_valid_wherever_it_stands(opened: Open) -> None:
    store = opened().store
    store.put(("a",), "k", {"a\0": ("b\0", ["\ud800"])})
    assert [item.value for item in store.search(("a",))] == [{"a\ufffd": ["b\ufffd", ["\ufffd"]]}]


async def test_langgraphs_suite_for_checkpointers_passes(opened: Open) -> None:
    @checkpointer_test(name="ours")
    async def ours() -> AsyncIterator[Any]:
        yield opened().checkpointer

    report = await validate(ours)
    failed = {name: found.failures for name, found in report.results.items() if found.failures}
    assert (failed, report.passed_all_base()) == ({}, True)


def of_langgraph(stack: ExitStack, file: Path) -> dict[str, Any]:
    saver = stack.enter_context(SqliteSaver.from_conn_string(str(file)))
    store = stack.enter_context(SqliteStore.from_conn_string(str(file)))
    store.setup()
    return {"checkpointer": saver, "store": store}


OTHERS: Mapping[str, Callable[[ExitStack, Path], dict[str, Any]]] = {
    "in memory": lambda stack, file: {"checkpointer": InMemorySaver(), "store": InMemoryStore()},
    "LangGraph's own for SQLite": of_langgraph,
}


@pytest.mark.parametrize("name", OTHERS)
def test_somebody_elses_saver_and_store_do(name: str, tmp_path: Path) -> None:
    paid = list[int]()

    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    def graph() -> Graph:
        model = ScriptedModel(lambda messages: DONE if messages[-1].type == "tool" else call("pay", amount=3))
        return build_graph(model, [pay], approvals={"pay": True}, **saved)

    with ExitStack() as stack:
        saved = OTHERS[name](stack, tmp_path / "t.sqlite")
        assert graph().invoke(GO, THREAD)["__interrupt__"]
        ended = graph().invoke(Command(resume="approve"), THREAD)
        assert (ended["outcome"]["status"], paid) == ("success", [3])
        entries = {item.namespace[1] for item in saved["store"].search(("signoff",), limit=100)}
        assert {"journal", "outcomes"} <= entries
