"""Kills a real process with SIGKILL at every moment of an undo of five effects, and lets another one go on.

Run as a program: `python tests/support/sweeps/undo.py FOLDER WAY STRIDE`. WAY: `failure`, at the end of a
task that ran out of turns, or `request`, of a task that has ended; `-async` after it for an event loop. One
line of JSON for each kill tells which undos took place, and what the outcome says of each effect.
"""

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.tools import StructuredTool

import signoff.storage.sqlite
from signoff import build_graph, current_outcome, sqlite_storage, undo
from signoff.graph.build import Graph
from signoff.graph.messages import is_reply
from signoff.models import ScriptedModel, call
from tests.support.sweeps.effect import THREAD, Moments, Saver, Store

EFFECTS = ["one", "two", "three", "four", "five"]


def script(messages: list[BaseMessage]) -> Any:
    return call("act", what=EFFECTS[sum(map(is_reply, messages))])


def act_tool(ledger: Path) -> StructuredTool:
    def act(what: str) -> str:
        """Act."""
        return f"did {what}"

    def take_back(args: dict[str, Any], result: str) -> str:
        Moments.passed()
        with ledger.open("a") as file:
            file.write(f"{args['what']}\n")
            file.flush()
        Moments.passed()
        return f"{result} no more"

    tool = StructuredTool.from_function(act)
    tool.metadata = {"undo": take_back}
    return tool


def begin(graph: Graph, way: str) -> None:
    """Brings the thread to where its undo begins."""
    options: dict[str, Any] = {"interrupt_before": ["undo"]} if way == "failure" else {}
    graph.invoke({"messages": [("user", "act")]}, THREAD, **options)


def go_on(graph: Graph, way: str) -> None:
    """What anyone would do who knows the thread, and what was asked of it."""
    state = graph.get_state(THREAD)
    asked = way == "request" and current_outcome(state.values) and "undo" not in state.values
    graph.invoke(undo(state) if asked else None, THREAD)


async def ago_on(graph: Graph, way: str) -> None:
    state = await graph.aget_state(THREAD)
    asked = way == "request" and current_outcome(state.values) and "undo" not in state.values
    await graph.ainvoke(undo(state) if asked else None, THREAD)


def drive(folder: Path, way: str, kill_at: int) -> dict[str, Any]:
    signoff.storage.sqlite.ThreadSaver = Saver  # type: ignore[misc]  # the storage opens these from now on
    signoff.storage.sqlite.ThreadStore = Store  # type: ignore[misc]
    ledger, (reason, _, mode) = folder / "ledger", way.partition("-")
    with sqlite_storage(folder / "threads.sqlite") as storage:
        failure: Any = "undo" if reason == "failure" else "keep"
        graph = build_graph(
            ScriptedModel(script),
            [act_tool(ledger)],
            storage=storage,
            limits={"turns": 5},
            on_failure=failure,
        )
        if kill_at < 0:
            begin(graph, reason)
            return {}
        Moments.left = kill_at
        while not (current_outcome(graph.get_state(THREAD).values) or {}).get("undo"):
            if mode:
                asyncio.run(ago_on(graph, reason))
            else:
                go_on(graph, reason)
        report = graph.get_state(THREAD).values["outcome"]["undo"]
    told = [(one["call"], "undone") for one in report["undone"]]
    told += [(one["call"], one["why"]) for one in report["standing"]]
    undone = ledger.read_text().splitlines() if ledger.exists() else []
    return {"undone": undone, "told": {named.split("'")[1]: how for named, how in told}, "lines": len(told)}


def in_child(folder: Path, way: str, kill_at: int) -> bool:
    """Runs in a process of its own. True when it lived to the end."""
    child = os.fork()
    if child == 0:
        (folder / "report.json").write_text(json.dumps(drive(folder, way, kill_at)))
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def main(where: Path, way: str, stride: int) -> None:
    before = where / way
    before.mkdir()
    assert in_child(before, way, -1)
    kill_at, alive = 1 - stride, False
    while not alive:
        kill_at += stride
        folder = where / f"{way}-{kill_at}"
        shutil.copytree(before, folder)
        alive = in_child(folder, way, kill_at)
        assert in_child(folder, way, 0)
        report = json.loads((folder / "report.json").read_text())
        print(json.dumps({"kill": kill_at, "alive": alive, **report}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
