"""Runs on PostgreSQL to which something happens on the way."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from signoff import Graph, build_graph
from signoff.models import ScriptedModel, call
from signoff.storage import PostgresStorage
from tests.support.servers.postgres import execute

THREAD: Any = {"configurable": {"thread_id": "t"}}
GO: Any = {"messages": [("user", "go")]}
FINISH = call("finish_task", summary="x")
# The first finish is questioned where the outcome of an act is unknown.
SCRIPT: list[Any] = [[call("act", what="one"), call("act", what="two")], FINISH, FINISH]
LOCKS = (
    "FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND objsubid = 1 "
    "AND mode = 'ExclusiveLock' AND datname = current_database()"
)


def cut_lock(url: str) -> None:
    """Ends the session that holds a thread, as an administrator or a broken network does."""
    ((pid,),) = execute(url, f"SELECT pid {LOCKS}")
    execute(url, "SELECT pg_terminate_backend(%s)", pid)
    while execute(url, "SELECT 1 FROM pg_stat_activity WHERE pid = %s", pid):
        time.sleep(0.01)


class Acts:
    """A tool with an effect; in its first call something befalls the runner."""

    def __init__(self, storage: PostgresStorage, script: Any, befalls: Callable[[], Any]) -> None:
        self.done: list[str] = []
        self.befalls = befalls
        self.graph: Graph = build_graph(ScriptedModel(script), [self.act()], storage=storage)

    def act(self) -> Callable[[str], str]:
        def act(what: str) -> str:
            """Act."""
            self.done.append(what)
            if len(self.done) == 1:
                self.befalls()
            return f"did {what}"

        return act


def invoked(graph: Graph, given: Any, way: str) -> Any:
    return asyncio.run(graph.ainvoke(given, THREAD)) if way == "async" else graph.invoke(given, THREAD)


def results(graph: Graph) -> list[str]:
    return [m.text for m in graph.get_state(THREAD).values["messages"] if m.type == "tool"]
