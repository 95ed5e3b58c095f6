"""Stops a runner with SIGSTOP at every moment of a run, lets another one finish its thread, and wakes it up.

Run as a program: `python -m tests.support.sweeps.fence URL STRIDE` with the URL of an empty PostgreSQL
database; a stride of 1 tries every moment, before and after each statement. Meanwhile the stopped runner has
lost the session that held its thread, or all its sessions. One line of JSON for each stop tells what came of
it.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage

from signoff import build_graph, current_outcome
from signoff.graph.build import Graph
from signoff.graph.compiled.graph import in_thread
from signoff.graph.errors import SignoffError
from signoff.graph.messages import is_reply
from signoff.models import ScriptedModel, call
from signoff.storage.postgres import PostgresStorage, postgres_storage
from tests.support.servers.postgres import execute

EFFECTS = ["one", "two", "three"]
SCRIPT = [
    [call("act", what="one"), call("act", what="two")],
    call("act", what="three"),
    call("finish_task", summary="All of it."),
]
STATEMENTS = [(psycopg.Cursor, "execute"), (psycopg.Cursor, "executemany"), (psycopg.Pipeline, "sync")]
WAYS = [("lock", "sync"), ("all", "sync"), ("lock", "async"), ("all", "async")]
_SESSIONS = {
    "all": "SELECT pid FROM pg_stat_activity WHERE application_name = %s",
    "lock": "SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE application_name = %s "
    "AND locktype = 'advisory' AND mode = 'ExclusiveLock'",
}
_ROWS = (
    "SELECT (SELECT count(*) FROM checkpoints), (SELECT count(*) FROM checkpoint_writes), "
    "(SELECT count(*) FROM checkpoint_blobs), (SELECT count(*) FROM store), "
    "(SELECT max(updated_at)::text FROM store)"
)


class Moments:
    """Stops the process at the n-th moment."""

    left = 0

    @classmethod
    def passed(cls) -> None:
        cls.left -= 1
        if cls.left == 0:
            os.kill(os.getpid(), signal.SIGSTOP)


def around(method: Any) -> Any:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        Moments.passed()
        done = method(*args, **kwargs)
        Moments.passed()
        return done

    return wrapped


def script(messages: list[BaseMessage]) -> Any:
    said = sum(map(is_reply, messages))
    # A claim over an unknown effect is refused once, and made again.
    return SCRIPT[min(said, len(SCRIPT) - 1)]


def graph_of(storage: PostgresStorage, ledger: Path, who: str) -> Graph:
    def act(what: str) -> str:
        """Act."""
        Moments.passed()
        with ledger.open("a") as file:
            file.write(f"{who} {what}\n")
        Moments.passed()
        return f"did {what}"

    return build_graph(ScriptedModel(script), [act], storage=storage)


def config_of(thread_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id}}


def task_for(graph: Graph, thread_id: str) -> Any:
    """What starts the thread, or goes on with it."""
    known = graph.get_state(config_of(thread_id)).values.get("messages")
    return None if known else {"messages": [HumanMessage("act", id="task")]}


def stopped_run(url: str, thread_id: str, ledger: Path, way: str, stop_at: int) -> str:
    """Runs the thread and stops on the way; what it ended with: an error of ours, or nothing."""
    for owner, name in STATEMENTS:
        setattr(owner, name, around(getattr(owner, name)))
    with postgres_storage(f"{url}?application_name={thread_id}") as storage:
        graph = graph_of(storage, ledger, "child")
        given, config = task_for(graph, thread_id), config_of(thread_id)

        def run() -> None:
            with graph.runner(config):
                Moments.left = stop_at
                for _ in graph.stream_held(given, config):
                    pass
                Moments.left = 0

        async def arun() -> None:
            async with in_thread(graph.runner(config)):
                Moments.left = stop_at
                async for _ in graph.astream_held(given, config):
                    pass
                Moments.left = 0

        try:
            asyncio.run(arun()) if way == "async" else run()
        except SignoffError as error:
            return type(error).__name__
        return ""


def in_child(work: Callable[[], Any], report: Path) -> int:
    """The id of a process of its own that does the work, and reports what came of it."""
    child = os.fork()
    if child == 0:
        try:
            report.write_text(json.dumps(work()))
            os._exit(0)
        except BaseException:  # noqa: BLE001  a forked process must end here, whatever happens
            traceback.print_exc()
            os._exit(1)
    return child


def stops(child: int) -> bool:
    """Waits until a process stops, or ends."""
    status = os.waitpid(child, os.WUNTRACED)[1]
    if not os.WIFSTOPPED(status) and status:
        raise RuntimeError(f"a process failed with status {status}")
    return os.WIFSTOPPED(status)


def cut_off(url: str, thread_id: str, which: str) -> None:
    """Ends sessions of the stopped runner, and waits until they are gone."""
    pids = [pid for (pid,) in execute(url, _SESSIONS[which], thread_id)]
    for pid in pids:
        execute(url, "SELECT pg_terminate_backend(%s)", pid)
    while execute(url, "SELECT 1 FROM pg_stat_activity WHERE pid = ANY(%s)", pids):
        time.sleep(0.01)


def finish(url: str, thread_id: str, ledger: Path) -> dict[str, Any]:
    """Another runner drives the thread to its end."""
    begun = time.monotonic()
    with postgres_storage(url) as storage:
        graph, config = graph_of(storage, ledger, "other"), config_of(thread_id)
        was_over = bool(current_outcome(graph.get_state(config).values))
        graph.invoke(task_for(graph, thread_id), config)
        while not current_outcome(graph.get_state(config).values):
            graph.invoke(None, config)
    return {"seconds": round(time.monotonic() - begun, 2), "was_over": was_over}


def found(url: str, thread_id: str, ledger: Path) -> dict[str, Any]:
    """How the thread stands in the end."""
    with postgres_storage(url) as storage:
        values = graph_of(storage, ledger, "").get_state(config_of(thread_id)).values
        history = list(storage.checkpointer.list(config_of(thread_id)))
    told = [(m.text[:15], m.status) for m in values["messages"] if isinstance(m, ToolMessage)]
    parents = [str((point.parent_config or {}).get("configurable")) for point in history]
    return {
        "told": told[:3],
        "outcome": (current_outcome(values) or {}).get("summary"),
        "forks": len(parents) - len(set(parents)),
    }


def one_stop(url: str, which: str, way: str, stop_at: int, folder: Path) -> dict[str, Any] | None:
    """What came of stopping at one moment; None when the run was over before.

    This process has no threads and no storage open, so that it can fork: all work is done in others.
    """
    thread_id = f"{which}-{way}-{stop_at}"
    ledger, report, other = (folder / f"{thread_id}.{kind}" for kind in ("ledger", "report", "other"))
    ledger.touch()
    child = in_child(partial(stopped_run, url, thread_id, ledger, way, stop_at), report)
    if not stops(child):
        return None
    cut_off(url, thread_id, which)
    stops(in_child(partial(finish, url, thread_id, ledger), other))
    before, lines, finished = (
        execute(url, _ROWS),
        ledger.read_text().splitlines(),
        json.loads(other.read_text()),
    )
    os.kill(child, signal.SIGCONT)
    stops(child)
    after, wrote = ledger.read_text().splitlines(), execute(url, _ROWS) != before
    stops(in_child(partial(found, url, thread_id, ledger), other))
    return {
        "stop": thread_id,
        "child": json.loads(report.read_text()),
        "happened": [line.split()[1] for line in after],
        "late": [line.split()[1] for line in after[len(lines) :]],
        "wrote": wrote,
        **finished,
        **json.loads(other.read_text()),
    }


def faults(stop: dict[str, Any]) -> list[str]:
    """What went wrong; nothing when the stopped runner has done nothing more."""
    wrong = {
        # Nothing is left to be refused when it stopped after its very last write.
        f"ended with {stop['child'] or 'no error'}": stop["child"] not in ("ThreadLost", "StorageError")
        and not stop["was_over"],
        f"outcome {stop['outcome']}": stop["outcome"] != "All of it.",
        "wrote to the database": stop["wrote"],
        "forked the history": stop["forks"] > 0,
        "more than one late effect": len(stop["late"]) > 1,
    }
    for effect, (told, status) in zip(EFFECTS, stop["told"], strict=True):
        happened = stop["happened"].count(effect)
        wrong[f"{effect} happened {happened} times"] = happened > 1
        known = status == "success"
        wrong[f"{effect} was told wrong"] = known and (happened, told) != (1, f"did {effect}")
        # Nothing can be asked between "started" and the effect itself; it is told as unknown.
        wrong[f"{effect} was late"] = known and effect in stop["late"]
    return [what for what, is_so in wrong.items() if is_so]


def main(url: str, stride: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for nth, (which, way) in enumerate(WAYS):
            # Each way at other moments.
            for stop_at in count(1 + nth * stride // len(WAYS), stride):
                stop = one_stop(url, which, way, stop_at, Path(folder))
                if stop is None:
                    break
                print(json.dumps({**stop, "faults": faults(stop)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
