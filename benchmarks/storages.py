"""Measures what a storage promises: `python -m benchmarks.storages [--postgres URL] [PART…]`.

- `crowd`: 100 runs at once on one SQLite file; on LangGraph's `AsyncSqliteSaver` a raw graph of two nodes.
- `turns`: CPU and bytes a turn of one long run, beside the raw graph on LangGraph's `SqliteSaver`.
- `list`: 1,000 threads of 200 turns each in a list.
- `held`: 200 threads on PostgreSQL, 40 of them held at once.
- `rivals`: 6 processes run 2 threads: no effect twice, none lost.
- `stopped`: a runner stands still for ten seconds while another one wants its thread, and goes on.
- `forks`: 300 forks of a process two threads of which write, one of them by an event loop; every second
  child works with the graph it has inherited, the others open a storage of their own.

Exits with 1 where something is lost, done twice, or beyond its bound.
"""

import argparse
import asyncio
import multiprocessing
import os
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from signoff import Limits, SignoffError, Storage, ThreadBusy, build_graph, postgres_storage, sqlite_storage
from signoff.models import ScriptedModel, call

CROWD, CROWD_TURNS, CROWD_REPEATS, MOST_TIMES = 100, 9, 5, 1.4
LENGTHS, REPEATS = (200, 2_000), 3
THREADS, THREAD_TURNS, LIST_SECONDS = 1_000, 200, 1.0
MANY, HELD = 200, 40
PROCESSES, SHARED, TASKS = 6, 2, 5
STOPPED_SECONDS = 10.0
FORKED, FORK_TURNS, HANGS_SECONDS, REFUSED = 300, 3, 60.0, 3
FORKS: Any = multiprocessing.get_context("fork")


@tool
def look(at: int) -> str:
    """Looks."""
    return "ok"


look.metadata = {"kind": "read"}


def thread(name: str) -> RunnableConfig:
    return {"configurable": {"thread_id": name}, "recursion_limit": 100_000}


def asked(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text)]}


def replies(turns: int) -> Callable[[Sequence[BaseMessage]], Any]:
    """A model that looks in each turn but the last, in which it finishes."""

    def reply(messages: Sequence[BaseMessage]) -> Any:
        # A reminder follows words of the model that it has not said.
        said = sum(isinstance(message, AIMessage) and bool(message.tool_calls) for message in messages)
        return call("finish_task", summary="Done.") if said + 1 == turns else call("look", at=said)

    return reply


def signoff_graph(turns: int, storage: Storage | None) -> Any:
    policy = {"tool_seconds": None, "prompt_tokens": 100_000_000, "compaction": "lines"}
    model = ScriptedModel(replies(turns))
    return build_graph(model, [look], storage=storage, limits=Limits(turns=turns), policy=policy)


class State(TypedDict):
    messages: Annotated[list[Any], add_messages]


def raw_graph(turns: int, saver: Any) -> Any:
    """A model node and a tool node, as LangGraph's pages write them, with the same model."""
    model = ScriptedModel(replies(turns))

    async def ask(state: State) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    def ask_now(state: State) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    async def use(state: State) -> dict[str, Any]:
        return use_now(state)

    def use_now(state: State) -> dict[str, Any]:
        calls = state["messages"][-1].tool_calls
        return {"messages": [ToolMessage("ok", tool_call_id=one["id"]) for one in calls]}

    def then(state: State) -> str:
        return END if state["messages"][-1].tool_calls[0]["name"] == "finish_task" else "tools"

    builder = StateGraph(State)
    builder.add_node("model", RunnableLambda(ask_now, ask))
    builder.add_node("tools", RunnableLambda(use_now, use))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", then, ["tools", END])
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=saver)


def crowd(_: str) -> bool:
    found: dict[str, list[float]] = {"signoff": [], "raw": []}
    for _number in range(CROWD_REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            with sqlite_storage(Path(folder, "signoff.sqlite")) as storage:
                found["signoff"].append(asyncio.run(_at_once(signoff_graph(CROWD_TURNS, storage))))
            found["raw"].append(asyncio.run(_raw_at_once(Path(folder, "raw.sqlite"))))
    ours, raw = median(found["signoff"]), median(found["raw"])
    print(
        f"{CROWD} runs of {CROWD_TURNS} turns at once: {ours:.2f} s; raw graph {raw:.2f} s: {ours / raw:.2f}"
    )
    return ours <= MOST_TIMES * raw


async def _raw_at_once(file: Path) -> float:
    async with AsyncSqliteSaver.from_conn_string(str(file)) as saver:
        return await _at_once(raw_graph(CROWD_TURNS, saver))


async def _at_once(graph: Any) -> float:
    given = asked("go")
    await graph.ainvoke(given, thread("warm"))
    begun = time.perf_counter()
    await asyncio.gather(*(graph.ainvoke(given, thread(f"{number}")) for number in range(CROWD)))
    return time.perf_counter() - begun


def turns(_: str) -> bool:
    for length in LENGTHS:
        found: dict[str, list[tuple[float, float]]] = {"signoff": [], "raw": []}
        for _number in range(REPEATS):
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "signoff.sqlite")
                with sqlite_storage(file) as storage:
                    cpu = _cpu_of(signoff_graph(length, storage))
                found["signoff"].append((cpu, _size(file)))
                file = Path(folder, "raw.sqlite")
                with SqliteSaver.from_conn_string(str(file)) as saver:
                    cpu = _cpu_of(raw_graph(length, saver))
                found["raw"].append((cpu, _size(file)))
        for name, each in found.items():
            cpu, size = (median(column) / length for column in zip(*each, strict=True))
            print(f"{length} turns, {name}: {cpu * 1e3:.2f} ms of CPU and {size / 1e3:.2f} KB a turn")
    return True


def _cpu_of(graph: Any) -> float:
    begun = time.process_time()
    graph.invoke(asked("go"), thread("t"))
    return time.process_time() - begun


def _size(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return file.stat().st_size


def listing(_: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "threads.sqlite")
        with sqlite_storage(file) as storage:
            signoff_graph(THREAD_TURNS, storage).invoke(asked("go"), thread("t 0"))
        with closing(sqlite3.connect(file)) as connection:
            for table in ("checkpoints", "writes", "store"):
                _copy(connection, table)
            connection.commit()
        with sqlite_storage(file) as storage:
            begun = time.perf_counter()
            rows = storage.threads()
            first = time.perf_counter() - begun
            begun = time.perf_counter()
            waiting = storage.threads("waiting")
            second = time.perf_counter() - begun
    print(
        f"{len(rows)} threads of {THREAD_TURNS} turns: all listed in {first:.2f} s, those that wait in "
        f"{second:.2f} s"
    )
    ended = sum(str(row.condition) == "ended" for row in rows)
    return (len(rows), ended, waiting) == (THREADS, THREADS, []) and first <= LIST_SECONDS


def _copy(connection: sqlite3.Connection, table: str) -> None:
    """Gives every further thread the rows of the first one."""
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    own = "prefix" if table == "store" else "thread_id"
    chosen = ", ".join(f"replace({name}, 't 0', ?1)" if name == own else name for name in columns)
    connection.execute(f"CREATE TEMP TABLE first_{table} AS SELECT * FROM {table} WHERE {own} LIKE '%t 0'")
    threads = ((f"t {number}",) for number in range(1, THREADS))
    connection.executemany(f"INSERT INTO {table} SELECT {chosen} FROM first_{table}", threads)


def held(url: str) -> bool:
    together = threading.Barrier(HELD, timeout=60)

    @tool
    def waits() -> str:
        """Waits until as many threads as may are held."""
        together.wait()
        return "ok"

    waits.metadata = {"kind": "read"}

    def reply(messages: Sequence[BaseMessage]) -> Any:
        return call("finish_task", summary="Done.") if len(messages) > 2 else call("waits")

    with postgres_storage(url) as storage, ThreadPoolExecutor(HELD) as pool:
        graph = build_graph(ScriptedModel(reply), [waits], storage=storage)
        begun = time.perf_counter()
        results = pool.map(lambda number: graph.invoke(asked("go"), thread(f"held {number}")), range(MANY))
        ended = Counter(result["outcome"]["status"] for result in results)
        seconds = time.perf_counter() - begun
    print(f"{MANY} threads on PostgreSQL, {HELD} held at once: {dict(ended)} in {seconds:.1f} s")
    return ended["success"] == MANY


def opened(address: str) -> Storage:
    return postgres_storage(address) if "://" in address else sqlite_storage(address)


def paying(address: str, effects: Path, seconds: float = 0.0) -> Any:
    """A graph whose tool leaves a line outside for each task."""

    @tool
    def pay(task: str) -> str:
        """Pays."""
        with effects.open("a") as file:
            file.write(f"{task}\n")
        time.sleep(seconds)
        return "paid"

    def reply(messages: Sequence[BaseMessage]) -> Any:
        begins = max(at for at, message in enumerate(messages) if message.type == "human")
        is_paid = any(message.type == "tool" for message in messages[begins:])
        return call("finish_task", summary="Paid.") if is_paid else call("pay", task=messages[begins].text)

    return build_graph(ScriptedModel(reply), [pay], storage=opened(address))


def rivals(url: str) -> bool:
    return _on_each(_rivals, url)


def _rivals(address: str, effects: Path) -> bool:
    opened(address).close()
    processes = [FORKS.Process(target=_pays, args=(address, effects, number)) for number in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    done = Counter(effects.read_text().splitlines())
    wrong = [process.exitcode for process in processes if process.exitcode]
    given, twice = PROCESSES * TASKS, [task for task, times in done.items() if times > 1]
    print(
        f"{PROCESSES} processes, {SHARED} threads, {_kind(address)}: {given} tasks, {len(done)} paid, "
        f"{len(twice)} twice"
    )
    return len(done) == given and not twice and not wrong


def _pays(address: str, effects: Path, number: int) -> None:
    graph = paying(address, effects)
    for at in range(TASKS):
        task = f"process {number} task {at}"
        while True:
            try:
                outcome = graph.invoke(asked(task), thread(f"shared {number % SHARED}"))["outcome"]
                assert outcome["status"] == "success"
                break
            except ThreadBusy:
                time.sleep(0.01)


def stopped(url: str) -> bool:
    return _on_each(_stopped, url)


def _stopped(address: str, effects: Path) -> bool:
    runner = FORKS.Process(target=_pays_slowly, args=(address, effects))
    runner.start()
    while not effects.read_text() and runner.is_alive():
        time.sleep(0.01)
    os.kill(runner.pid, signal.SIGSTOP)
    until, refused, graph = time.monotonic() + STOPPED_SECONDS, 0, paying(address, effects)
    while time.monotonic() < until:
        try:
            graph.invoke(asked("another"), thread("t"))
        except ThreadBusy:
            refused += 1
    os.kill(runner.pid, signal.SIGCONT)
    runner.join()
    outcome = graph.invoke(asked("the next"), thread("t"))["outcome"]["status"]
    done = effects.read_text().splitlines()
    print(
        f"a runner stopped for {STOPPED_SECONDS:g} s, {_kind(address)}: {refused} others refused, then "
        f"{done}, {outcome}"
    )
    return done == ["the first", "the next"] and not runner.exitcode and outcome == "success"


def _pays_slowly(address: str, effects: Path) -> None:
    outcome = paying(address, effects, 1.0).invoke(asked("the first"), thread("t"))["outcome"]
    assert outcome["status"] == "success"


def forks(url: str) -> bool:
    return _on_each(_forks, url)


def _forks(address: str, _: Path) -> bool:
    with opened(address) as storage, ThreadPoolExecutor(2) as pool:
        graph = signoff_graph(FORK_TURNS, storage)
        # So that no thread of the parent imports any more: a lock of Python's would stay locked in a child.
        for by_loop in (False, True):
            _works(graph, f"first {by_loop}", by_loop)
        begun, is_over = time.perf_counter(), threading.Event()
        writing = [pool.submit(_writes, graph, is_over, by_loop) for by_loop in (False, True)]
        try:
            ends = Counter(_end_of_child(graph, address, number) for number in range(FORKED))
        finally:
            is_over.set()
        written, seconds = sum(each.result() for each in writing), time.perf_counter() - begun
        ended = Counter(row.thread_id.split()[0] for row in storage.threads("ended"))
    check = "" if "://" in address else _integrity_check(address)
    print(
        f"{FORKED} forks beside threads that write, {_kind(address)}: {dict(ends)} in {seconds:.0f} s, "
        f"{written} runs beside them{check and f', integrity_check: {check}'}"
    )
    are_all_there = (ended["child"], ended["writer"]) == (ends["worked"], written)
    return are_all_there and check in ("", "ok") and not ends.keys() - {"worked", "refused"}


def _integrity_check(file: str) -> str:
    with closing(sqlite3.connect(file)) as connection:
        return "; ".join(text for (text,) in connection.execute("PRAGMA integrity_check"))


def _works(graph: Any, name: str, by_loop: bool) -> None:
    given = asked("go"), thread(name)
    state = asyncio.run(graph.ainvoke(*given)) if by_loop else graph.invoke(*given)
    assert state["outcome"]["status"] == "success"


def _writes(graph: Any, is_over: threading.Event, by_loop: bool) -> int:
    """How many runs it has made until it is over."""
    runs = 0
    while not is_over.is_set():
        _works(graph, f"writer {by_loop} {runs}", by_loop)
        runs += 1
    return runs


def _end_of_child(graph: Any, address: str, number: int) -> str:
    """What became of a child that had a minute; with an odd number it opens a storage of its own."""
    child = FORKS.Process(target=_child, args=(graph, address, number))
    child.start()
    child.join(HANGS_SECONDS)
    if child.exitcode is None:
        child.kill()
        child.join()
        return "hung"
    return {0: "worked", REFUSED: "refused"}.get(child.exitcode, "failed")


def _child(graph: Any, address: str, number: int) -> None:
    try:
        own = signoff_graph(FORK_TURNS, opened(address)) if number % 2 else graph
        _works(own, f"child {number}", by_loop=number % 4 > 1)
    except SignoffError as error:
        print(f"child {number}: {error}", flush=True)
        sys.exit(REFUSED)


def _on_each(part: Callable[[str, Path], bool], url: str) -> bool:
    """Measures on SQLite, and on PostgreSQL where there is one."""
    with tempfile.TemporaryDirectory() as folder:
        results = []
        for address in filter(None, [f"{folder}/threads.sqlite", url]):
            effects = Path(folder, f"{_kind(address)}.effects")
            effects.touch()
            results.append(part(address, effects))
        return all(results)


def _kind(address: str) -> str:
    return "PostgreSQL" if "://" in address else "SQLite"


PARTS: dict[str, Callable[[str], bool]] = {
    "crowd": crowd,
    "turns": turns,
    "list": listing,
    "held": held,
    "rivals": rivals,
    "stopped": stopped,
    "forks": forks,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], default=[], metavar="PART")
    parser.add_argument("--postgres", default="", metavar="URL", help="an empty database")
    given = parser.parse_args()
    wanted = given.parts or [name for name in PARTS if name != "held" or given.postgres]
    right = [PARTS[name](given.postgres) for name in wanted]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
