"""Databases that versions have written, with a thread in every condition it can be left in.

Run before a release, in the repository: `python -m tests.released` writes those of the current version, for
SQLite and for PostgreSQL. `tests/storage/test_released.py` picks every thread of every file up. The files of
another version, and those of a version that was released, are never written again.
"""

import asyncio
import functools
import gzip
import lzma
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import StateSnapshot, interrupt

from signoff import Answer, Session, build_graph, current_outcome, postgres_storage, sqlite_storage
from signoff.graph.build import Graph
from signoff.models import ScriptedModel
from signoff.workers import drive, submit
from tests.support.benches.workers import Bench, opened, taken
from tests.support.prepared import run_python
from tests.support.released_conditions import ASK, CONDITIONS, FINISH, down
from tests.support.servers import postgres

REPOSITORY = Path(__file__).parent.parent
FOLDER = Path(__file__).parent / "released"
VERSION = version("signoff")
SQLITE, POSTGRES = ".sqlite.xz", ".postgres.sql.xz"
# Those up to 0.2.0.dev0 are packed by gzip, which takes twice the space.
FILES, DUMPS = sorted(FOLDER.glob("*.sqlite.[gx]z")), sorted(FOLDER.glob("*.postgres.sql.[gx]z"))

QUEUED: dict[str, tuple[Any, ...]] = {
    "queued: a task": (FINISH,),
    "queued: an answer": (ASK, FINISH),
    "queued: its worker died": (FINISH,),
    "queued: two tasks, one of them done": (FINISH, FINISH, FINISH),
}
"""The threads of workers, which only a PostgreSQL database holds, with what the model says in each."""

# What `pg_dump` writes for its own shell, and settings that an older server does not know.
_NOT_LOADED = ("\\restrict", "\\unrestrict", "SET transaction_timeout", "--")


_made: dict[str, StructuredTool] = {}


def _tool(function: Callable[..., str]) -> StructuredTool:
    """The tool of this function. Those of one name share the schemas that are dear to make."""
    if (name := function.__name__) not in _made:
        _made[name] = StructuredTool.from_function(function)
        _ = _made[name].tool_call_schema
    return _made[name].model_copy(update={"func": function})


def tools(ran: list[str], deadly: bool) -> list[BaseTool]:
    """The tools of every thread; `ran` takes what takes effect. A deadly `pay` kills the process."""

    def pay(amount: int) -> str:
        """Pay."""
        if deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        ran.append(f"pay {amount}")
        return f"paid {amount}"

    def choose() -> str:
        """Pay with a card that the user chooses."""
        chosen = interrupt({"type": "card", "question": "Which card?"})
        ran.append(f"chose {chosen}")
        return f"chose {chosen}"

    def run_python(code: str) -> str:
        """Run a program."""
        raise ToolException("NameError: name 'x' is not defined")

    def note(text: str) -> str:
        """Note."""
        return "noted"

    def shell(command: str) -> str:
        """Run a command."""
        raise AssertionError("the driver runs it")

    made = [_tool(function) for function in (pay, choose, run_python, note, shell)]
    for tool, kind in zip(made[3:], ("read", "terminal"), strict=True):
        tool.metadata = {"kind": kind}
    return list[BaseTool](made)


def thread(name: str) -> Any:
    """The configuration of the thread in this condition."""
    return {"configurable": {"thread_id": name}}


def opened_at(address: Path | str) -> AbstractContextManager[Any]:
    """The storage at this file, or at this URL of a PostgreSQL database."""
    is_url = str(address).startswith("postgresql://")
    return postgres_storage(str(address)) if is_url else sqlite_storage(address)


def graph_for(
    name: str, model: ScriptedModel, storage: Any, ran: list[str], *, deadly: bool = False
) -> Graph:
    """The graph that runs the thread in this condition."""
    condition = CONDITIONS[name]
    made = condition.model(model)
    first, *others = [ScriptedModel(down), made] if condition.in_reserve else [made]
    return build_graph(
        first,
        [*tools(ran, deadly), *condition.tools],
        hand_over=["shell"],
        storage=storage,
        fallbacks=others,
        **condition.settings,
    )


def stands(state: StateSnapshot) -> str:
    """How a thread is found: the status of its outcome, what it waits for, or "stopped"."""
    if outcome := current_outcome(state.values):
        return str(outcome["status"])
    if state.interrupts:
        return str(state.interrupts[0].value.get("type", "approval"))
    return "stopped"


def begin(name: str, address: Path | str) -> None:
    """Runs the tasks of a condition; does not return where that is killed."""
    condition, control = CONDITIONS[name], RunControl()

    def drained(messages: Any) -> Any:
        control.request_drain()
        time.sleep(3 if condition.left == "silent" else 0)
        return condition.before[-1]

    drains = condition.left in ("drained", "silent")
    before = [*condition.before[:-1], drained] if drains else condition.before
    cut = not condition.left or drains or condition.left.startswith("killed")
    stops = None if cut else [condition.left]
    with opened_at(address) as storage, ScriptedModel(before) as model:
        graph = graph_for(name, model, storage, [], deadly=condition.left == "killed")
        if condition.left == "killed unsaved":
            _die_after_a_reply(storage.checkpointer)
        if condition.left == "killed unwritten":
            _die_after_an_effect(storage.store)
        for text in condition.tasks:
            given = {"messages": [("user", text)]}
            try:
                graph.invoke(given, thread(name), control=control, interrupt_after=stops)
            except GraphDrained:
                assert drains
        for move in condition.moves if not condition.left else ():
            move(graph, thread(name))


def _die_after_a_reply(saver: Any) -> None:
    """From now on the process is killed when the first reply of a model is saved, before its checkpoint."""
    put_writes = saver.put_writes

    def put_and_die(config: Any, writes: Any, *rest: Any, **named: Any) -> None:
        put_writes(config, writes, *rest, **named)
        if ("event", "replied") in list(writes):
            os.kill(os.getpid(), signal.SIGKILL)

    saver.put_writes = put_and_die


def _die_after_an_effect(store: Any) -> None:
    """From now on the process is killed when the journal has a result, before any checkpoint of it."""
    batch = store.batch

    def batch_and_die(operations: Any) -> Any:
        given = list(operations)
        done = batch(given)
        if any((getattr(one, "value", None) or {}).get("status") == "done" for one in given):
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    store.batch = batch_and_die


def leave(name: str, address: Path | str) -> None:
    """Brings the thread into its condition."""
    condition = CONDITIONS[name]
    if not condition.left.startswith("killed"):
        begin(name, address)
        return
    # By its module name, so that it imports as this one does.
    done = run_python("-m", "tests.released", str(address), name, cwd=REPOSITORY)
    assert done.returncode == -signal.SIGKILL, f"{name} was not killed"
    with opened_at(address) as storage, ScriptedModel(condition.later) as model:
        for move in condition.moves:
            move(graph_for(name, model, storage, []), thread(name))


def write_sqlite(target: Path) -> None:
    """Writes the database with one thread in each condition."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "threads.sqlite"
        for name in CONDITIONS:
            leave(name, file)
        with sqlite3.connect(file) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
            connection.execute("VACUUM")
        connection.close()
        _keep(target, file.read_bytes())


def write_postgres(target: Path, server: postgres.Server) -> None:
    """Writes the dump of a database with one thread in each condition, and the workers' queue."""
    url = server.fresh()
    for name in CONDITIONS:
        leave(name, url)
    with postgres_storage(url) as storage:
        _hand_to_workers(QueueBench(storage, url))
    command = [str(server.binaries / "pg_dump"), "--no-owner", "--no-privileges", "--inserts", url]
    dumped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line for line in dumped.splitlines() if not line.startswith(_NOT_LOADED)]
    _keep(target, "\n".join(lines).encode())


class QueueBench(Bench):
    """The threads of workers, each with its own script."""

    @contextmanager
    def graphs(self, thread_id: str) -> Iterator[Graph]:
        self.steps = QUEUED[thread_id]
        yield self.graph()


def _hand_to_workers(bench: QueueBench) -> None:
    """Leaves jobs that wait, one that its worker took and died with, and requests that are not delivered."""
    task, waits, died, half = QUEUED
    bench.submit("the first", half)
    bench.work()
    bench.submit("the second", half, id="order 2")
    bench.submit("the third", half)
    with bench.graphs(waits) as graph:
        submit(bench.storage, "the first", waits)
        assert drive(graph, waits).state == "waiting"
        waiting = Session(graph, waits).status().waiting
        assert waiting is not None
    bench.submit(Answer("blue", waiting.interrupt_id), waits)
    postgres.execute(bench.url, "UPDATE procrastinate_jobs SET scheduled_at = now() + interval '1 hour'")
    bench.submit("the first", died)
    asyncio.run(_die(bench))
    postgres.execute(bench.url, "UPDATE procrastinate_jobs SET scheduled_at = NULL")
    bench.submit("the first", task)


async def _die(bench: Bench) -> None:
    """A worker takes a job, and is heard of no more."""
    async with opened(bench) as jobs:
        assert (await taken(jobs)).task_kwargs["thread_id"] == "queued: its worker died"


def _keep(target: Path, content: bytes) -> None:
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(lzma.compress(content, preset=9))


@functools.lru_cache(maxsize=1)
def content_of(packed: Path) -> bytes:
    """The content of a written file; the last one is kept, for the many tests that want one after another."""
    read = packed.read_bytes()
    return lzma.decompress(read) if packed.suffix == ".xz" else gzip.decompress(read)


def current(sort: str) -> Path:
    """The file of the current version."""
    return FOLDER / f"{VERSION}{sort}"


def name_of(packed: Path) -> str:
    """The name of a written database, for a test."""
    return packed.stem


def check_target(target: Path) -> None:
    """Raises SystemExit for a file that must not be written again."""
    written = target.stem.removesuffix(".sqlite").removesuffix(".postgres.sql")
    if written != VERSION:
        raise SystemExit(f"{target.name} is of another version than {VERSION}; it is never written again.")
    if target.exists() and ".dev" not in written:
        raise SystemExit(f"{target.name} is of a released version; it is never written again.")


def unpack(packed: Path, folder: Path) -> Path:
    """A copy of a written SQLite database in `folder`, to be opened."""
    file = folder / "threads.sqlite"
    file.write_bytes(content_of(packed))
    return file


def load(packed: Path, url: str) -> None:
    """Loads a written dump into the empty PostgreSQL database at `url`."""
    with psycopg.connect(url) as connection:
        connection.execute(content_of(packed))


def main() -> None:
    """Writes the databases of the current version."""
    binaries = postgres.binaries()
    if binaries is None:
        raise SystemExit(postgres.MISSING)
    for sort in (SQLITE, POSTGRES):
        check_target(current(sort))
    write_sqlite(current(SQLITE))
    server = postgres.Server(binaries)
    try:
        write_postgres(current(POSTGRES), server)
    finally:
        server.remove()
    for sort in (SQLITE, POSTGRES):
        print(f"{current(sort)}: {len(CONDITIONS)} threads, {current(sort).stat().st_size:,} bytes")


if __name__ == "__main__":
    if sys.argv[1:]:
        begin(sys.argv[2], sys.argv[1])
    else:
        main()
