"""Kills a real process with SIGKILL before and after every single write of a run, and picks the thread up.

Run as a program: `python -m tests.support.sweeps.kill FOLDER`. It prints one line of JSON for each kill:
where it was, how the thread stood, and how it ended after another process had gone on with it.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.types import Command

import signoff.storage.sqlite
from signoff import build_graph, current_outcome, sqlite_storage
from signoff.graph.build import Graph
from signoff.graph.messages import is_reply
from signoff.models import ScriptedModel, call
from signoff.session.path import steps
from tests.support.cases.path import told

THREAD: Any = {"configurable": {"thread_id": "killed"}}
SCRIPT = [
    call("add", a=1, b=2),
    [call("think", thought="hm"), call("ask_user", question="Which one?")],
    call("finish_task", summary="The first task."),
    "Let me see.",
    call("finish_task", summary="The second task."),
]
TASKS = ["the first", "the second"]


def script(messages: list[BaseMessage]) -> Any:
    return SCRIPT[sum(map(is_reply, messages))]


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


class Killer(signoff.storage.sqlite.ThreadSaver):
    """Ends the process at the n-th moment before or after a write."""

    left = 0

    def _moment(self) -> None:
        Killer.left -= 1
        if Killer.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def put(self, *args: Any, **kwargs: Any) -> Any:
        self._moment()
        done = super().put(*args, **kwargs)
        self._moment()
        return done

    # LangGraph gives the path only to a saver that names it, and by that path ours tells what may wait.
    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self._moment()
        super().put_writes(config, writes, task_id, task_path)
        self._moment()


def advance(graph: Graph) -> bool:
    """One step on with the thread, as anyone would who knows only its ID. False when all tasks have ended."""
    state = graph.get_state(THREAD)
    said = [message.text for message in state.values.get("messages", ()) if message.type == "human"]
    if state.interrupts:
        graph.invoke(Command(resume={state.interrupts[0].id: "blue"}), THREAD, durability="sync")
    elif not said or current_outcome(state.values):
        left = TASKS[sum(task in said for task in TASKS) :]
        if not left:
            return False
        graph.invoke({"messages": [("user", left[0])]}, THREAD, durability="sync")
    else:
        graph.invoke(None, THREAD, durability="sync")
    return True


def run(file: Path, kill_at: int) -> dict[str, Any]:
    """Drives the thread in `file` to its end, unless it is killed before."""
    signoff.storage.sqlite.ThreadSaver = Killer  # type: ignore[misc]  # the storage opens this saver from now on
    with sqlite_storage(file) as storage:
        graph = build_graph(ScriptedModel(script), [add], storage=storage)
        Killer.left = kill_at
        found = graph.get_state(THREAD)
        stood = {"next": list(found.next), "outcome": (found.values.get("outcome") or {}).get("summary")}
        while advance(graph):
            pass
        state = graph.get_state(THREAD).values
        kinds = [f"{m.type}:{m.text[:20]}" for m in state["messages"]]
        parts = ("status", "summary", "turns", "nudges", "tool_calls")
        recorded = storage.store.search(("signoff", "outcomes"))
        return {
            "recorded": sorted(item.value["summary"] for item in recorded),
            "stood": stood,
            "ended": {key: state["outcome"][key] for key in parts},
            "messages": kinds,
            "path": told(steps(storage.checkpointer, "killed")),
        }


def in_child(file: Path, kill_at: int, report: Path) -> bool:
    """Runs in a process of its own. True when it lived to the end."""
    child = os.fork()
    if child == 0:
        report.write_text(json.dumps(run(file, kill_at)))
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def main(folder: Path) -> None:
    kill_at, alive = 0, False
    while not alive:
        kill_at += 1
        file, report = folder / f"{kill_at}.sqlite", folder / f"{kill_at}.json"
        alive = in_child(file, kill_at, report)
        assert in_child(file, 0, report)
        print(json.dumps({"kill": kill_at, "alive": alive, **json.loads(report.read_text())}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
