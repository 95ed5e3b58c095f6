"""Databases of released versions: one file a version, with a thread in every condition it can be left in.

Run before a release, in the repository: `python -m tests.released` writes the file of the current version.
`tests/test_released.py` picks every thread of every file up. Conditions are added, never removed or renamed.
"""

import gzip
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langchain_core.tools import BaseTool, tool
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import Command, StateSnapshot

from signoff import Limits, build_graph, current_outcome, extend, go_on, retry, sqlite_storage
from signoff.graph.build import Graph, Storage
from signoff.models import ScriptedModel, call

REPOSITORY = Path(__file__).parent.parent
FOLDER = Path(__file__).parent / "released"
CURRENT = FOLDER / f"{version('signoff')}.sqlite.gz"

FINISH = call("finish_task", summary="All of it.")
ASK = call("ask_user", question="Which one?")
PAY = call("pay", amount=3)
NOTES = [call("note", text=f"{number} " + "x" * 1_000) for number in range(12)]

GoOn = Callable[[StateSnapshot], Any]


def answer(words: Any) -> GoOn:
    """Goes on with the answer to what the thread waits for."""
    return lambda state: Command(resume={state.interrupts[0].id: words})


def message(text: str) -> GoOn:
    """Goes on with a new message."""
    return lambda state: {"messages": [("user", text)]}


@dataclass(frozen=True)
class Condition:
    """How a thread is left, and how it ends when it is picked up.

    before: what the model says until then. tasks: the messages. left: what cuts the last run short, if
    something does: "drained", "killed", or the state after which it stops. settings: of the graph.
    stands: how it is found (see `stands`). go_on: how it is picked up. after: what the model says then.
    ends: status, reason, turns and tool calls of the outcome. runs: the effects that take place when it is
    picked up, and no others. shows: words that the model is shown again.
    """

    before: Sequence[Any]
    stands: str
    go_on: GoOn
    ends: tuple[str, str, int, int]
    after: Sequence[Any] = (FINISH,)
    tasks: Sequence[str] = ("the first",)
    left: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    runs: Sequence[str] = ()
    shows: str = "the first"


CONDITIONS: dict[str, Condition] = {
    "waits for an answer": Condition(
        before=[ASK],
        stands="question",
        go_on=answer("blue"),
        ends=("success", "finish_task", 2, 0),
        shows="blue",
    ),
    "waits for an approval": Condition(
        before=[PAY],
        settings={"approvals": {"pay": True}},
        stands="approval",
        go_on=answer("approve"),
        runs=["pay 3"],
        ends=("success", "finish_task", 2, 1),
    ),
    "waits for an action": Condition(
        before=[call("shell", command="ls")],
        stands="action",
        go_on=answer("3 files"),
        ends=("success", "finish_task", 2, 1),
        shows="3 files",
    ),
    "drained after a reply with an open call": Condition(
        before=[PAY],
        left="drained",
        stands="stopped",
        go_on=go_on,
        runs=["pay 3"],
        ends=("success", "finish_task", 2, 1),
        shows="paid 3",
    ),
    "killed in a tool": Condition(
        before=[PAY],
        left="killed",
        stands="stopped",
        go_on=go_on,
        ends=("success", "finish_task", 2, 1),
        shows="Outcome unknown",
    ),
    "just reminded after talk": Condition(
        before=["Let me see."],
        left="nudge",
        stands="stopped",
        go_on=go_on,
        ends=("success", "finish_task", 2, 0),
        shows="Let me see.",
    ),
    "ended with success": Condition(
        before=[FINISH], stands="success", go_on=message("the second"), ends=("success", "finish_task", 1, 0)
    ),
    "ended at a limit": Condition(
        before=[PAY],
        settings={"limits": Limits(turns=1)},
        stands="limit",
        go_on=lambda state: extend(state.values, turns=1),
        ends=("success", "finish_task", 2, 1),
    ),
    "ended with an error": Condition(
        before=[PAY, ConnectionError("down")],
        stands="error",
        go_on=lambda state: retry(state.values),
        ends=("success", "finish_task", 2, 1),
    ),
    "in its second task": Condition(
        before=[PAY, FINISH, PAY, ASK],
        tasks=["the first", "the second"],
        stands="question",
        go_on=answer("blue"),
        ends=("success", "finish_task", 3, 1),
    ),
    "with a folded history": Condition(
        before=[*NOTES, ASK],
        settings={"view_tokens": 3_000},
        stands="question",
        go_on=answer("blue"),
        ends=("success", "finish_task", 14, 12),
        shows="- note({'text': '2 xxx",
    ),
}


def tools(ran: list[str], deadly: bool) -> list[BaseTool]:
    """The tools of every thread; `ran` takes what takes effect. A deadly `pay` kills the process."""

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        if deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        ran.append(f"pay {amount}")
        return f"paid {amount}"

    @tool
    def note(text: str) -> str:
        """Note."""
        return "noted"

    @tool
    def shell(command: str) -> str:
        """Run a command."""
        raise AssertionError("the driver runs it")

    note.metadata, shell.metadata = {"kind": "read"}, {"kind": "terminal"}
    return [pay, note, shell]


def thread(name: str) -> Any:
    """The configuration of the thread in this condition."""
    return {"configurable": {"thread_id": name}}


def graph_for(
    name: str, model: ScriptedModel, storage: Storage, ran: list[str], *, deadly: bool = False
) -> Graph:
    """The graph that runs the thread in this condition."""
    settings = CONDITIONS[name].settings
    return build_graph(model, tools(ran, deadly), hand_over=["shell"], storage=storage, **settings)


def stands(state: StateSnapshot) -> str:
    """How a thread is found: the status of its outcome, what it waits for, or "stopped"."""
    if outcome := current_outcome(state.values):
        return str(outcome["status"])
    if state.interrupts:
        return str(state.interrupts[0].value.get("type", "approval"))
    return "stopped"


def leave(name: str, file: Path) -> None:
    """Brings the thread into its condition; does not return where it is killed."""
    condition, control = CONDITIONS[name], RunControl()

    def drained(messages: Any) -> Any:
        control.request_drain()
        return condition.before[-1]

    before = [*condition.before[:-1], drained] if condition.left == "drained" else condition.before
    stops = [condition.left] if condition.left not in ("", "drained", "killed") else None
    with sqlite_storage(file) as storage, ScriptedModel(before) as model:
        graph = graph_for(name, model, storage, [], deadly=condition.left == "killed")
        for text in condition.tasks:
            given = {"messages": [("user", text)]}
            try:
                graph.invoke(given, thread(name), control=control, interrupt_after=stops)
            except GraphDrained:
                assert condition.left == "drained"


def write(target: Path) -> None:
    """Writes the database with one thread in each condition."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "threads.sqlite"
        for name, condition in CONDITIONS.items():
            if condition.left == "killed":
                # By its module name, so that it imports as this one does.
                done = subprocess.run([sys.executable, "-m", "tests.released", file, name], cwd=REPOSITORY)
                assert done.returncode == -signal.SIGKILL
            else:
                leave(name, file)
        with sqlite3.connect(file) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
            connection.execute("VACUUM")
        connection.close()
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(gzip.compress(file.read_bytes(), mtime=0))


def unpack(packed: Path, folder: Path) -> Path:
    """A copy of a written database in `folder`, to be opened."""
    file = folder / "threads.sqlite"
    file.write_bytes(gzip.decompress(packed.read_bytes()))
    return file


if __name__ == "__main__":
    if sys.argv[1:]:
        leave(sys.argv[2], Path(sys.argv[1]))
    else:
        write(CURRENT)
        print(f"{CURRENT}: {len(CONDITIONS)} threads, {CURRENT.stat().st_size:,} bytes")
