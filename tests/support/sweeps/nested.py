"""Kills a real process with SIGKILL at every moment of a tree of machines, and lets another one go on.

Run as a program: `python tests/support/sweeps/nested.py FOLDER WAY FIRST STRIDE [MOST] [DATABASE]`. WAY is
sync, async, or in-turn: sync, and the parent calls its delegates in two replies, so that no two machines run
at once. Kill number n is at the moment FIRST + n * STRIDE, and up to five processes that go on are killed,
too. DATABASE is the address of a PostgreSQL database; without it there is one of SQLite for each kill.

The parent calls two delegates in one reply; each acts, calls a delegate of its own, which acts and asks, then
acts again and asks. The tree has limits, so that each reply is in its ledger, too. An effect is a line
in a file, and so is a reply of a model. One line of JSON for each kill tells what took place.
"""

import asyncio
import json
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.types import Command

import signoff.storage.sqlite
from signoff import Limits, ThreadBusy, build_graph, current_outcome, delegate, sqlite_storage
from signoff.graph.messages import is_reply
from signoff.models import ScriptedModel, call, reply
from tests.support.sweeps.effect import Moments, Saver, Store, around

TOKENS = 100
"""Of each reply."""
EFFECTS = ["left 1", "left deep", "left 2", "right 1", "right deep", "right 2"]
QUESTIONS = {("left",), ("left", "deep"), ("right",), ("right", "deep")}


def by_turn(said: Path, *steps: Any) -> Any:
    """A script by the number of replies before; a step may be made of the task. said: where each is noted."""

    def script(messages: list[BaseMessage]) -> Any:
        Moments.passed()
        with said.open("a") as file:
            file.write("one\n")
        Moments.passed()
        found = step(messages)
        return reply(*(found if isinstance(found, list) else [found]), usage=(TOKENS - 10, 10))

    def step(messages: list[BaseMessage]) -> Any:
        at = sum(map(is_reply, messages))
        task = next(message.text for message in messages if isinstance(message, HumanMessage))
        if at >= len(steps):
            return call("finish_task", summary=f"Done. Outcome unknown: {unknown(messages)}")
        return steps[at](task) if callable(steps[at]) else steps[at]

    return ScriptedModel(script)


def unknown(messages: list[BaseMessage]) -> int:
    """How many calls were told as unknown, here and, as its delegates say, below."""
    texts = [message.text for message in messages if isinstance(message, ToolMessage)]
    below = sum(int(number) for text in texts for number in re.findall(r"Outcome unknown: (\d+)", text))
    return below + sum(text.startswith("Outcome unknown: act") for text in texts)


def graph_of(storage: Any, ledger: Path, *, in_turn: bool = False) -> Any:
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
    said, own = ledger.with_name("replies"), Limits(tokens=100_000)
    below = build_graph(by_turn(said, acting("deep"), ask), [act])
    deep = delegate("deep", below, description="Goes deeper.")
    steps = (acting("1"), lambda task: call("deep", task=task, id="call_2"), acting("2"), ask)
    child = build_graph(by_turn(said, *steps), [act, deep], limits=own)
    both = [delegate(side, child, description="Works.") for side in ("left", "right")]
    calls = [call(side, task=side, id="call_0") for side in ("left", "right")]
    limits = Limits(tree_turns=60, tool_calls=60, tokens=100_000)
    lead = by_turn(said, *calls) if in_turn else by_turn(said, calls)
    return build_graph(lead, both, storage=storage, limits=limits)


def kills_of(report: Mapping[str, Any]) -> int:
    """How many kills a report is of."""
    return int(not report["alive"]) + int(report["again"])


_MOST_AGAIN = 6


def faults(report: Mapping[str, Any]) -> list[str]:
    """What is not as it must be after the kills of a report; without any it is as without kills."""
    spent, real = report["tokens"], TOKENS * report["replies"]
    right = {
        "no effect twice": report["twice"] == [],
        # What had started and was cut short is told as unknown, and never run again.
        "no effect lost in silence": len(report["missing"]) <= report["unknown"],
        "no wait lost": {tuple(path) for path in report["asked"]} == QUESTIONS,
        "the end": (report["status"], report["told"]) == ("success", ["success"] * 3),
        "turns": report["turns"] == 18 + report["in_turn"],
        # A reply of each machine that runs may be cut short before it has cost anything.
        "the ledger": real <= spent <= real + (2 - report["in_turn"]) * TOKENS * kills_of(report),
    }
    return [name for name, holds in right.items() if not holds]


def answer_of(state: Any, rounds: int) -> Any:
    """Answers all that wait, or only the last one, in turns."""
    waits = state.interrupts[-1:] if rounds % 2 else state.interrupts
    return Command(resume={interrupt.id: "yes" for interrupt in waits})


@contextmanager
def storage_of(folder: Path, database: str) -> Iterator[Any]:
    """Whose every write is a moment at which the process may end."""
    if database:
        from signoff.storage import postgres_tables as tables
        from signoff.storage.postgres import postgres_storage

        for kind, names in (
            (tables.PostgresThreads, ("put", "put_writes")),
            (tables.PostgresEntries, ("batch", "swap")),
        ):
            for name in names:
                setattr(kind, name, around(getattr(kind, name)))
        with postgres_storage(database) as storage:
            yield storage
        return
    signoff.storage.sqlite.ThreadSaver = Saver  # type: ignore[misc]  # the storage opens these from now on
    signoff.storage.sqlite.ThreadStore = Store  # type: ignore[misc]
    with sqlite_storage(folder / "threads.sqlite") as storage:
        yield storage


def patient(run: Any) -> Any:
    """Runs as soon as the thread is free: a server may learn late that a process has died."""
    until = time.monotonic() + 30
    while True:
        try:
            return run()
        except ThreadBusy:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def drive(folder: Path, way: str, kill_at: int, database: str = "") -> dict[str, Any]:
    """Drives the thread to its end, as anyone would who knows its ID and the task."""
    ledger, asked = folder / "ledger", folder / "asked"
    thread: Any = {"configurable": {"thread_id": folder.name}}
    with storage_of(folder, database) as storage:
        graph = graph_of(storage, ledger, in_turn=way == "in-turn")
        Moments.left, rounds = kill_at, 0
        while not current_outcome(graph.get_state(thread).values):
            state, rounds = graph.get_state(thread), rounds + 1
            what: Any = None if state.values.get("messages") else {"messages": [("user", "go")]}
            if state.interrupts:
                with asked.open("a") as file:
                    file.writelines(json.dumps(found.value["path"]) + "\n" for found in state.interrupts)
                what = answer_of(state, rounds)
            if way != "async":
                patient(lambda what=what: graph.invoke(what, thread))
            else:
                patient(lambda what=what: asyncio.run(graph.ainvoke(what, thread)))
        values = graph.get_state(thread).values
        (row,) = storage.store.search(("signoff", "ledger", folder.name))
    (machine,) = row.value["machines"].values()
    happened = Counter(ledger.read_text().splitlines())
    return {
        "in_turn": way == "in-turn",
        "twice": [effect for effect, times in happened.items() if times > 1],
        "missing": [effect for effect in EFFECTS if not happened[effect]],
        "unknown": unknown(values["messages"]),
        "asked": sorted({tuple(json.loads(line)) for line in asked.read_text().splitlines()}),
        "told": [m.status for m in values["messages"] if m.type == "tool"],
        "turns": values["outcome"]["tree"]["turns"],
        "replies": len(folder.joinpath("replies").read_text().splitlines()),
        "tokens": machine["used"]["tokens"] + machine.get("lost", {}).get("tokens", 0),
        "status": values["outcome"]["status"],
    }


def in_process(folder: Path, way: str, kill_at: int, database: str) -> bool:
    """Runs in a process of its own. True when it lived to the end."""
    child = os.fork()
    if child == 0:
        (folder / "report.json").write_text(json.dumps(drive(folder, way, kill_at, database)))
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def main(where: Path, way: str, first: int, stride: int, most: int, database: str) -> None:
    alive, number = False, 0
    while not alive and number < most:
        kill_at = first + number * stride
        number += 1
        folder = where / f"{way}-{kill_at}"
        folder.mkdir(parents=True)
        alive = in_process(folder, way, kill_at, database)
        again = 0
        # Whoever goes on dies, too, and so does the next one.
        while not alive and again < number % _MOST_AGAIN:
            if in_process(folder, way, 11 + 29 * ((number + again) % 7), database):
                break
            again += 1
        assert in_process(folder, way, 0, database)
        report = json.loads((folder / "report.json").read_text())
        print(json.dumps({"kill": kill_at, "alive": alive, "again": again, **report}), flush=True)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[3:6]]
    where, found = Path(sys.argv[1]), "".join(sys.argv[6:7])
    main(where, sys.argv[2], numbers[0], numbers[1], (numbers[2:] or [100_000])[0], found)
