"""Kills a real process with SIGKILL at every moment of a tree of machines, and lets another one go on.

Run as a program: `python tests/support/sweeps/nested.py FOLDER WAY FIRST STRIDE [MOST]`. WAY is sync or
async; kill number n is at the moment FIRST + n * STRIDE, and every third process that goes on is killed, too.
The parent calls two delegates in one reply; each acts, calls a delegate of its own, which acts and asks, then
acts again and asks. An effect is a line in a file. One line of JSON for each kill tells what took place.
"""

import asyncio
import json
import os
import re
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.types import Command

import signoff.storage.sqlite
from signoff import build_graph, current_outcome, delegate, sqlite_storage
from signoff.models import ScriptedModel, call
from tests.support.sweeps.effect import Moments, Saver, Store

THREAD: Any = {"configurable": {"thread_id": "killed"}}
EFFECTS = ["left 1", "left deep", "left 2", "right 1", "right deep", "right 2"]
QUESTIONS = {("left",), ("left", "deep"), ("right",), ("right", "deep")}


def by_turn(*steps: Any) -> Any:
    """A script by the number of replies before; a step may be made of the task."""

    def script(messages: list[BaseMessage]) -> Any:
        at = sum(isinstance(message, AIMessage) for message in messages)
        task = next(message.text for message in messages if isinstance(message, HumanMessage))
        if at == len(steps):
            return call("finish_task", summary=f"Done. Outcome unknown: {unknown(messages)}")
        return steps[at](task) if callable(steps[at]) else steps[at]

    return ScriptedModel(script)


def unknown(messages: list[BaseMessage]) -> int:
    """How many calls were told as unknown, here and, as its delegates say, below."""
    texts = [message.text for message in messages if isinstance(message, ToolMessage)]
    below = sum(int(number) for text in texts for number in re.findall(r"Outcome unknown: (\d+)", text))
    return below + sum(text.startswith("Outcome unknown: act") for text in texts)


def graph_of(storage: Any, ledger: Path) -> Any:
    lock = threading.Lock()

    @tool
    def act(what: str) -> str:
        """Act."""
        Moments.passed()
        with lock, ledger.open("a") as file:
            file.write(f"{what}\n")
            file.flush()
        Moments.passed()
        return f"did {what}"

    def acting(what: str) -> Any:
        # A provider that repeats its ids: the journal must tell the machines apart.
        return lambda task: call("act", what=f"{task} {what}", id="call_0")

    ask = call("ask_user", question="Go on?", id="call_1")
    below = build_graph(by_turn(acting("deep"), ask), [act])
    deep = delegate("deep", below, description="Goes deeper.")
    steps = (acting("1"), lambda task: call("deep", task=task, id="call_2"), acting("2"), ask)
    child = build_graph(by_turn(*steps), [act, deep])
    both = [delegate(side, child, description="Works.") for side in ("left", "right")]
    calls = [call(side, task=side, id="call_0") for side in ("left", "right")]
    return build_graph(by_turn(calls), both, storage=storage)


def answer_of(state: Any, rounds: int) -> Any:
    """Answers all that wait, or only the last one, in turns."""
    waits = state.interrupts[-1:] if rounds % 2 else state.interrupts
    return Command(resume={interrupt.id: "yes" for interrupt in waits})


def drive(folder: Path, way: str, kill_at: int) -> dict[str, Any]:
    """Drives the thread to its end, as anyone would who knows its ID and the task."""
    signoff.storage.sqlite.ThreadSaver = Saver  # type: ignore[misc]  # the storage opens these from now on
    signoff.storage.sqlite.ThreadStore = Store  # type: ignore[misc]
    ledger, asked = folder / "ledger", folder / "asked"
    with sqlite_storage(folder / "threads.sqlite") as storage:
        graph = graph_of(storage, ledger)
        Moments.left, rounds = kill_at, 0
        while not current_outcome(graph.get_state(THREAD).values):
            state, rounds = graph.get_state(THREAD), rounds + 1
            what: Any = None if state.values.get("messages") else {"messages": [("user", "go")]}
            if state.interrupts:
                with asked.open("a") as file:
                    file.writelines(json.dumps(found.value["path"]) + "\n" for found in state.interrupts)
                what = answer_of(state, rounds)
            if way == "sync":
                graph.invoke(what, THREAD)
            else:
                asyncio.run(graph.ainvoke(what, THREAD))
        values = graph.get_state(THREAD).values
    happened = Counter(ledger.read_text().splitlines())
    return {
        "twice": [effect for effect, times in happened.items() if times > 1],
        "missing": [effect for effect in EFFECTS if not happened[effect]],
        "unknown": unknown(values["messages"]),
        "asked": sorted({tuple(json.loads(line)) for line in asked.read_text().splitlines()}),
        "told": [m.status for m in values["messages"] if m.type == "tool"],
        "turns": values["outcome"]["tree"]["turns"],
        "status": values["outcome"]["status"],
    }


def in_process(folder: Path, way: str, kill_at: int) -> bool:
    """Runs in a process of its own. True when it lived to the end."""
    child = os.fork()
    if child == 0:
        (folder / "report.json").write_text(json.dumps(drive(folder, way, kill_at)))
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def main(where: Path, way: str, first: int, stride: int, most: int) -> None:
    alive, number = False, 0
    while not alive and number < most:
        kill_at = first + number * stride
        number += 1
        folder = where / f"{way}-{kill_at}"
        folder.mkdir(parents=True)
        alive = in_process(folder, way, kill_at)
        again = 1 + 7 * (number % 20) if number % 3 == 0 and not alive else 0
        if again:
            in_process(folder, way, again)
        assert in_process(folder, way, 0)
        report = json.loads((folder / "report.json").read_text())
        print(json.dumps({"kill": kill_at, "alive": alive, "again": bool(again), **report}), flush=True)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[3:]]
    main(Path(sys.argv[1]), sys.argv[2], numbers[0], numbers[1], (numbers[2:] or [100_000])[0])
