"""Kills agents with plain `Guards`, a store and LangGraph's default durability, and goes on with them.

Run as a program: `python -m tests.guarded_kills --kills 500`. A process pays some people, one or two in a
reply, and is killed in a payment, before or after the money has gone, or at a random moment; the next one
goes on with the thread, and may be killed, too. The letter that comes with the task makes the checkpoint
late. Each payment is a line in a file. At the end nobody may be paid twice, and what is said of a payment
must be true.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import select
import signal
import sys
import tempfile
import time
import traceback
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.store.postgres import PostgresStore
from langgraph.store.postgres.aio import AsyncPostgresStore
from langgraph.store.sqlite import SqliteStore
from langgraph.store.sqlite.aio import AsyncSqliteStore

from signoff import current_outcome, sqlite_storage
from signoff.graph.messages import marks
from signoff.guards import Guards
from signoff.models import ScriptedModel, call, reply
from signoff.storage.postgres import postgres_storage
from tests.support.arguments import at_least

SQLITE = ("sqlite, sync", "sqlite, async", "signoff sqlite, sync", "signoff sqlite, async")
POSTGRES = tuple(way.replace("sqlite", "postgres") for way in SQLITE)
LONGEST = 0.6
"""The seconds after which the random moments end."""

_LETTERS = (0, 20_000, 400_000, 1_200_000)
_POINTS = ("before", "after")


@dataclass(frozen=True)
class Plan:
    """What one thread does: whom it pays, in which replies, and how long its letter is."""

    seed: int

    @property
    def replies(self) -> list[list[str]]:
        dice = random.Random(self.seed)
        sizes = [dice.choice((1, 1, 2)) for _ in range(dice.randint(2, 4))]
        return [[f"{self.seed}-{at}-{number}" for number in range(size)] for at, size in enumerate(sizes)]

    @property
    def task(self) -> str:
        return "Pay them all." + "Dear Sir. " * (random.Random(self.seed + 1).choice(_LETTERS) // 10)

    def step(self, messages: list[BaseMessage]) -> Any:
        """Pays the first ones whose payment has no result, with call ids that are new each time."""
        told = results(messages)
        for names in self.replies:
            if left := [name for name in names if name not in told]:
                return reply(*(call("pay", id=uuid.uuid4().hex, to=name) for name in left))
        return call("finish_task", summary="Ended.", outcome="partial")


def results(messages: Sequence[BaseMessage]) -> dict[str, ToolMessage]:
    """The last result of each payment, by whom it pays; none for one that was not run."""
    answers = {
        m.tool_call_id: m for m in messages if isinstance(m, ToolMessage) and "not_run" not in marks(m)
    }
    calls = [
        call for m in messages if isinstance(m, AIMessage) for call in m.tool_calls if call["name"] == "pay"
    ]
    return {call["args"]["to"]: answers[call["id"] or ""] for call in calls if call["id"] in answers}


@dataclass(frozen=True)
class Kill:
    """When a process dies: seconds after it began, or in a payment, before or after the money has gone."""

    seconds: float | None = None
    payment: int = 0
    point: str = ""


def drawn(dice: random.Random) -> Kill:
    if dice.random() < 0.4:
        return Kill(seconds=dice.uniform(0, LONGEST))
    return Kill(payment=dice.randint(1, 2), point=dice.choice(_POINTS))


def agent_on(saver: Any, store: Any, plan: Plan, ledger: Path, kill: Kill) -> Any:
    """An agent with the tool that pays; the tool kills its process if it is to."""
    started = Counter[str]()

    def pay(to: str) -> str:
        """Pay somebody."""
        started["payments"] += 1
        dies = started["payments"] == kill.payment
        if dies and kill.point == "before":
            os._exit(9)
        with ledger.open("a") as file:
            file.write(f"{to}\n")
        if dies:
            os._exit(9)
        return f"paid {to}"

    async def apay(to: str) -> str:
        """Pay somebody."""
        return pay(to)

    tool = StructuredTool.from_function(pay, coroutine=apay)
    saved = {"checkpointer": saver, "store": store}
    return create_agent(ScriptedModel(plan.step), [tool], middleware=[Guards()], **saved)


@contextmanager
def opened(way: str, database: str) -> Iterator[tuple[Any, Any]]:
    """The saver and the store of this way, for sync runs."""
    with ExitStack() as stack:
        if way.startswith("signoff"):
            open_storage: Any = postgres_storage if "postgres" in way else sqlite_storage
            storage = stack.enter_context(open_storage(database))
            yield storage.checkpointer, storage.store
            return
        saver_class: Any = PostgresSaver if "postgres" in way else SqliteSaver
        store_class: Any = PostgresStore if "postgres" in way else SqliteStore
        saver = stack.enter_context(saver_class.from_conn_string(database))
        store = stack.enter_context(store_class.from_conn_string(_beside(database)))
        saver.setup()
        store.setup()
        yield saver, store


@asynccontextmanager
async def aopened(way: str, database: str) -> AsyncIterator[tuple[Any, Any]]:
    """The same for async runs; our own storages serve both."""
    if way.startswith("signoff"):
        with opened(way, database) as both:
            yield both
        return
    saver_class, store_class = (
        (AsyncPostgresSaver, AsyncPostgresStore)
        if "postgres" in way
        else (AsyncSqliteSaver, AsyncSqliteStore)
    )
    async with (
        saver_class.from_conn_string(database) as saver,
        store_class.from_conn_string(_beside(database)) as store,
    ):
        await saver.setup()
        await store.setup()
        yield saver, store


def _beside(database: str) -> str:
    return database if "://" in database else f"{database}.store"


def in_child(way: str, database: str, plan: Plan, ledger: Path, kill: Kill) -> dict[str, Any] | None:
    """Begins the thread, or goes on with it, in a process of its own; None if that was killed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(read)
            report = _run(way, database, plan, ledger, kill, lambda: os.write(write, b"!"))
            os.write(write, json.dumps(report).encode())
            code = 0
        except BaseException:  # noqa: BLE001  it is printed, and the exit code says so
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read(1) == b"!", "the process did not begin"
        if kill.seconds is not None and not select.select([pipe], [], [], kill.seconds)[0]:
            os.kill(child, signal.SIGKILL)
        text = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9, -signal.SIGKILL), f"the process ended with {code}"
    return json.loads(text) if code == 0 else None


def _run(
    way: str, database: str, plan: Plan, ledger: Path, kill: Kill, begins: Callable[[], object]
) -> dict[str, Any]:
    config: RunnableConfig = {"configurable": {"thread_id": str(plan.seed)}}
    task = {"messages": [("user", plan.task)]}

    async def arun() -> Any:
        async with aopened(way, database) as (saver, store):
            agent = agent_on(saver, store, plan, ledger, kill)
            given = None if (await agent.aget_state(config)).values.get("messages") else task
            begins()
            return await agent.ainvoke(given, config)

    if way.endswith("async"):
        return told(asyncio.run(arun()))
    with opened(way, database) as (saver, store):
        agent = agent_on(saver, store, plan, ledger, kill)
        given = None if agent.get_state(config).values.get("messages") else task
        begins()
        return told(agent.invoke(given, config))


def told(state: Mapping[str, Any]) -> dict[str, Any]:
    outcome = current_outcome(state)
    found = results(state["messages"])
    unknown = {name: bool(marks(result).get("unknown")) for name, result in found.items()}
    return {"ended": outcome["reason"] if outcome else None, "unknown": unknown}


@dataclass(frozen=True)
class Result:
    """One thread: how often it was killed, how many payments are unknown, and what is wrong."""

    kills: int
    unknown: int
    problems: list[str]


def run_one(seed: int, way: str, database: str, folder: Path, most: int = 3) -> Result:
    """Runs one thread to its end, killed up to so many times."""
    plan, dice, ledger = Plan(seed), random.Random(f"{seed} {way}"), folder / f"{seed}.paid"
    ledger.touch()
    kills, report = 0, None
    for _ in range(most):
        report = in_child(way, database, plan, ledger, drawn(dice))
        if report is not None:
            break
        kills += 1
    report = report or in_child(way, database, plan, ledger, Kill())
    assert report is not None, "nobody has killed it"
    paid, unknown = Counter(ledger.read_text().split()), report["unknown"]
    problems = [f"twice: {name}" for name, times in paid.items() if times > 1]
    problems += [f"ended: {report['ended']}"] if report["ended"] != "finish_task" else []
    names = [name for reply in plan.replies for name in reply]
    problems += [f"lost: {name}" for name in names if name not in unknown]
    problems += [
        f"told, not done: {name}" for name in names if not unknown.get(name, True) and not paid[name]
    ]
    return Result(kills, sum(unknown.values()), problems)


def sweep(way: str, database: str, folder: Path, seeds: Iterable[int], kills: int) -> Result:
    """As many threads as this number of kills takes."""
    total, unknown, problems = 0, 0, list[str]()
    for seed in seeds:
        if total >= kills:
            break
        found = run_one(seed, way, database, folder)
        total, unknown = total + found.kills, unknown + found.unknown
        problems += [f"{way}, seed {seed}: {problem}" for problem in found.problems]
    return Result(total, unknown, problems)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=at_least(1), default=500)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--database", default="", help="postgresql://…; else new SQLite files")
    given = parser.parse_args(words)
    ways = POSTGRES if given.database else SQLITE
    totals = Counter[str]()
    for number, way in enumerate(ways):
        with tempfile.TemporaryDirectory() as name:
            database = given.database or f"{name}/threads.sqlite"
            seeds = itertools.count(given.seed + number * 10_000)
            found = sweep(way, database, Path(name), seeds, -(-given.kills // len(ways)))
        print(f"{way}: {found.kills} kills, {found.unknown} unknown, {found.problems or 'right'}", flush=True)
        totals.update(kills=found.kills, unknown=found.unknown, wrong=len(found.problems))
    print(f"seed {given.seed}: {totals['kills']} kills, {totals['unknown']} unknown, {totals['wrong']} wrong")
    return 1 if totals["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
