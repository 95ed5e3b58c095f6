"""Threads with random scripts, killed with SIGKILL at random moments, again and again until they are done.

Run as a program: `python -m tests.random_kills --threads 200 [--seed N] [--database postgresql://…]`. It
prints one line for each thread, its seed first, and fails when one of them did not end like a run that was
not killed.
"""

import argparse
import os
import random
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool

from signoff import (
    Action,
    Approval,
    Confirmation,
    Failed,
    Finished,
    Question,
    Session,
    build_graph,
    sqlite_storage,
)
from signoff.graph.messages import is_reply
from signoff.models import ScriptedModel, call, reply
from tests.support.arguments import at_least

# Seconds that a process lives at most: so that a few kills fall on every thread.
LONGEST = {"sqlite": 0.12, "postgres": 0.25}
PARTS = ("status", "reason", "summary", "turns", "nudges", "refusals", "tool_calls")


@dataclass
class Plan:
    """What one thread does: the script of the model, and the tasks."""

    seed: int
    script: list[Any] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        dice = random.Random(self.seed)
        for number in range(dice.randint(1, 2)):
            self.tasks.append(f"task {number} of {self.seed}")
            for _ in range(dice.randint(2, 6)):
                self.script.append(self._turn(dice))
            if dice.random() < 0.3:
                self.script.append(call("finish_task", summary=""))
            sure = dice.random() < 0.8
            # Not "done", which is refused over an unknown effect.
            asks = not sure
            ends = call(
                "finish_task", summary=f"Done {number}.", outcome="partial", requires_user_confirmation=asks
            )
            self.script.append(ends)

    def _turn(self, dice: random.Random) -> Any:
        def effect() -> dict[str, Any]:
            return {"name": f"{self.seed}-{dice.getrandbits(48):x}"}

        turns: list[Callable[[], Any]] = [
            lambda: "Let me see.",
            lambda: call("think", thought="hm"),
            lambda: [call("look", where="a"), call("look", where="b")],
            lambda: call("write", **effect()),
            lambda: [call("write", **effect()), call("look", where="c"), call("write", **effect())],
            lambda: call("pay", **effect()),
            lambda: call("act", **effect()),
            lambda: call("ask_user", question="Which?"),
            lambda: reply("So.", call("write", **effect()), call("ask_user", question="And?")),
            lambda: call("fail"),
        ]
        return dice.choice(turns)()

    def step(self, messages: list[BaseMessage]) -> Any:
        return self.script[sum(map(is_reply, messages))]


class World:
    """Where effects show: a file with one line for each that took place."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.touch()

    def happen(self, name: str) -> str:
        """An effect."""
        time.sleep(0.001)
        with self.file.open("a") as out:
            out.write(f"{name}\n")
        time.sleep(0.001)
        return f"did {name}"

    def seen(self) -> list[str]:
        return self.file.read_text().split()

    def tools(self) -> list[BaseTool]:
        def look(where: str) -> str:
            """Look."""
            return where

        def fail() -> str:
            """Fail."""
            raise ValueError("it failed")

        kinds: dict[str, Callable[..., str]] = {
            "write": self.happen,
            "pay": self.happen,
            "act": self.happen,
            "look": look,
            "fail": fail,
        }
        made: list[BaseTool] = []
        for name, work in kinds.items():
            kind = "read" if name in ("look", "fail") else "write"
            made.append(StructuredTool.from_function(work, name=name, metadata={"kind": kind}))
        return made


def storage_at(database: str) -> AbstractContextManager[Any]:
    if database.startswith("postgres"):
        from signoff.storage.postgres import postgres_storage

        return postgres_storage(database)
    return sqlite_storage(database)


def session_on(storage: Any, plan: Plan, world: World, thread_id: str) -> Session:
    graph = build_graph(
        ScriptedModel(plan.step, delay=0.001),
        world.tools(),
        storage=storage,
        approvals={"pay": True},
        hand_over=["act"],
    )
    return Session(graph, thread_id)


def drive(session: Session, plan: Plan, world: World) -> dict[str, Any]:
    """Drives the thread to the end of its last task, as anyone would who knows only its ID."""
    outcomes = []
    while True:
        thread_status = session.status()
        said = [
            message.text for message in thread_status.values.get("messages", ()) if message.type == "human"
        ]
        left = [task for task in plan.tasks if task not in said]
        if thread_status.outcome is not None and not left:
            break
        begin = left[0] if thread_status.outcome is not None or not said else None
        decision = session.run(begin)
        while not isinstance(decision, Finished | Failed):
            decision = session.resume(_answer(decision, world))
    store = session.graph.store
    assert store is not None
    items = store.search(("signoff", "outcomes", session.thread_id), limit=100)
    for item in sorted(items, key=lambda item: item.created_at):
        outcomes.append({part: item.value[part] for part in PARTS})
    return {"outcomes": outcomes}


def _answer(decision: Any, world: World) -> Any:
    match decision:
        case Question():
            return "blue"
        case Approval():
            return "approve"
        case Confirmation():
            return "yes"
        case Action(args=args, unknown=unknown):
            # What was handed out before may have been done: look first.
            done = unknown and args["name"] in world.seen()
            return f"did {args['name']}" if done else world.happen(args["name"])
    raise AssertionError(decision)


def in_child(database: str, plan: Plan, world: World, thread_id: str, wait: float | None) -> bool:
    """Drives the thread in a process of its own, killed `wait` seconds after it began. True when it ended."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        code = 1
        try:
            with storage_at(database) as storage:
                session = session_on(storage, plan, world, thread_id)
                os.write(write, b"!")
                drive(session, plan, world)
                code = 0
        finally:
            os._exit(code)
    os.close(write)
    try:
        if wait is not None:
            assert os.read(read, 1) == b"!", "the child did not begin"
            # The pipe closes when the child ends by itself.
            select.select([read], [], [], wait)
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(read)
    status = os.waitpid(child, 0)[1]
    assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0, "the driver failed"
    return os.WIFEXITED(status)


@dataclass(frozen=True)
class Result:
    """One thread: how often it was killed, what it ended like, and what it should have ended like."""

    seed: int
    kills: int
    ended: dict[str, Any]
    expected: dict[str, Any]
    effects: list[str]
    unknown: int
    problems: list[str]


def run_one(seed: int, database: str, folder: Path) -> Result:
    """Runs one thread to its end, killing it again and again."""
    plan, dice = Plan(seed), random.Random(seed + 1)
    world, other = World(folder / f"{seed}.effects"), World(folder / f"{seed}.expected")
    with sqlite_storage(folder / f"{seed}.expected.sqlite") as storage:
        expected = drive(session_on(storage, plan, other, f"r{seed}"), plan, other)
    kills, longest = 0, LONGEST["postgres" if database.startswith("postgres") else "sqlite"]
    while not in_child(database, plan, world, f"r{seed}", dice.uniform(0, longest)):
        kills += 1
    with storage_at(database) as storage:
        session = session_on(storage, plan, world, f"r{seed}")
        ended = drive(session, plan, world)
        messages = session.status().values["messages"]
    effects, calls = world.seen(), _results(messages)
    twice = [name for name in set(effects) if effects.count(name) > 1]
    told = {name for name, text in calls.items() if text.startswith("did ")}
    problems = [f"twice: {twice}"] if twice else []
    problems += [f"told, not done: {told - set(effects)}"] if told - set(effects) else []
    hidden = set(effects) - told - {name for name, text in calls.items() if "unknown" in text}
    problems += [f"done, not told: {hidden}"] if hidden else []
    problems += [f"{ended} instead of {expected}"] if ended != expected else []
    unknown = sum("unknown" in text for text in calls.values())
    return Result(seed, kills, ended, expected, effects, unknown, problems)


def _results(messages: list[BaseMessage]) -> dict[str, str]:
    """The result of every call with an effect, by the name of the effect."""
    answers = {m.tool_call_id: m.text for m in messages if isinstance(m, ToolMessage)}
    return {
        c["args"]["name"]: answers[c["id"] or ""]
        for m in messages
        if is_reply(m)
        for c in m.tool_calls
        if "name" in c["args"]
    }


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=at_least(1), default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--database", help="postgresql://…; else a new SQLite file")
    given = parser.parse_args(words)
    kills = bad = unknown = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for seed in range(given.seed, given.seed + given.threads):
            found = run_one(seed, given.database or str(folder / "threads.sqlite"), folder)
            kills, bad, unknown = kills + found.kills, bad + bool(found.problems), unknown + found.unknown
            print(f"seed {seed}: {found.kills} kills, {'; '.join(found.problems) or 'right'}", flush=True)
    print(f"{given.threads} threads, {kills} kills, {unknown} outcomes unknown, {bad} threads wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
