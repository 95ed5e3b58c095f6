"""Kills a real process with SIGKILL at every moment around an effect, and lets another one go on.

Run as a program: `python tests/support/sweeps/effect.py FOLDER DURABILITY TOOL STRIDE`. The effect is a line
in a file. One line of JSON for each kill tells which effects took place, and what the model was told of each.
"""

import json
import os
import signal
import sys
from functools import wraps
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.types import Command

import signoff.storage.sqlite
from signoff import build_graph, current_outcome, sqlite_storage
from signoff.graph.messages import is_reply
from signoff.models import ScriptedModel, call

THREAD: Any = {"configurable": {"thread_id": "killed"}}
# A provider that repeats its ids: two payments of one reply, and one more in the next.
SCRIPT = [
    [call("act", what="one", id="call_0"), call("act", what="two", id="call_0")],
    call("act", what="three", id="call_0"),
    call("finish_task", summary="All of it."),
]
EFFECTS = ["one", "two", "three"]


class Moments:
    """Ends the process at the n-th moment."""

    left = 0

    @classmethod
    def passed(cls) -> None:
        cls.left -= 1
        if cls.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def around(method: Any) -> Any:
    # With its signature: by that LangGraph tells what the saver takes.
    @wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        Moments.passed()
        done = method(*args, **kwargs)
        Moments.passed()
        return done

    return wrapped


class Saver(signoff.storage.sqlite.ThreadSaver):
    put = around(signoff.storage.sqlite.ThreadSaver.put)
    put_writes = around(signoff.storage.sqlite.ThreadSaver.put_writes)


class Store(signoff.storage.sqlite.ThreadStore):
    batch = around(signoff.storage.sqlite.ThreadStore.batch)
    swap = around(signoff.storage.sqlite.ThreadStore.swap)


def script(messages: list[BaseMessage]) -> Any:
    said = sum(map(is_reply, messages))
    # A claim over an unknown effect is refused once, and made again.
    return SCRIPT[min(said, len(SCRIPT) - 1)]


def act_tool(kind: str, ledger: Path) -> StructuredTool:
    def act(what: str) -> str:
        """Act."""
        Moments.passed()
        with ledger.open("a") as file:
            file.write(f"{what}\n")
            file.flush()
        Moments.passed()
        return f"did {what}"

    tool = StructuredTool.from_function(act)
    tool.metadata = {"kind": "write" if kind == "approval" else kind}
    return tool


def drive(folder: Path, durability: Any, kind: str, kill_at: int) -> dict[str, Any]:
    """Drives the thread to its end, as anyone would who knows its ID and the task."""
    signoff.storage.sqlite.ThreadSaver = Saver  # type: ignore[misc]  # the storage opens these from now on
    signoff.storage.sqlite.ThreadStore = Store  # type: ignore[misc]
    ledger = folder / "ledger"
    with sqlite_storage(folder / "threads.sqlite") as storage:
        approvals = {"act": True} if kind == "approval" else None
        graph = build_graph(
            ScriptedModel(script), [act_tool(kind, ledger)], storage=storage, approvals=approvals
        )
        Moments.left = kill_at
        while not current_outcome(graph.get_state(THREAD).values):
            state = graph.get_state(THREAD)
            what: Any = None if state.values.get("messages") else {"messages": [("user", "act")]}
            if state.interrupts:
                what = Command(resume={state.interrupts[0].id: "approve"})
            graph.invoke(what, THREAD, durability=durability)
        values = graph.get_state(THREAD).values
    told = {m.tool_call_id: [m.text[:15], m.status] for m in values["messages"] if isinstance(m, ToolMessage)}
    calls = [c["id"] for m in values["messages"] if isinstance(m, AIMessage) for c in m.tool_calls]
    return {
        "happened": ledger.read_text().splitlines() if ledger.exists() else [],
        "told": [told.get(str(call_id)) for call_id in calls][:3],
        "calls": len(calls),
        "distinct": len(set(calls)),
        "answers": sum(isinstance(m, ToolMessage) for m in values["messages"]),
        "status": values["outcome"]["status"],
    }


def in_child(folder: Path, durability: str, kind: str, kill_at: int) -> bool:
    """Runs in a process of its own. True when it lived to the end."""
    child = os.fork()
    if child == 0:
        (folder / "report.json").write_text(json.dumps(drive(folder, durability, kind, kill_at)))
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def main(where: Path, durability: str, kind: str, stride: int) -> None:
    kill_at, alive = 1 - stride, False
    while not alive:
        kill_at += stride
        folder = where / f"{durability}-{kind}-{kill_at}"
        folder.mkdir()
        alive = in_child(folder, durability, kind, kill_at)
        assert in_child(folder, durability, kind, 0)
        report = json.loads((folder / "report.json").read_text())
        print(json.dumps({"kill": kill_at, "alive": alive, **report}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
