"""The proof: threads with effectful steps on three workers that suffer every kind of failure."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.workers import agent
from benchmarks.workers.fleet import QUEUE, Fleet, wait_until
from benchmarks.workers.record import Record
from signoff import StorageError, postgres_storage
from signoff.graph.messages import marks
from signoff.session.status import Condition, look, reading_graph
from signoff.storage import PostgresStorage
from signoff.workers import submit
from signoff.workers.inbox import DEAD_AFTER
from tests.support.servers.postgres import Server

HEARTBEAT = 1.0
_WORKERS = 3
_STOP_SECONDS = HEARTBEAT * DEAD_AFTER + 3
_LONGEST_SECONDS = 600


@dataclass(frozen=True)
class Plan:
    """The work, and the failures of the workers during it."""

    threads: int = 60
    steps: int = 12
    kills: int = 6
    stops: int = 1
    restarts: int = 1


@dataclass(frozen=True)
class Figures:
    """The result. effects, effects_twice, calls_twice and refused are counted in the outside record.

    threads_right: threads that ended with success and have each step in the record exactly once.
    effects: those that took place; effects_twice: those that took place more than once. calls_twice: tool
    calls that ran more than once. refused: repetitions that the idempotency key prevented. uncertain: calls
    reported to the model as "outcome unknown"; repeated: those of them that were missing and called again.
    """

    plan: Plan
    threads_right: int
    effects: int
    effects_twice: int
    calls_twice: int
    refused: int
    uncertain: int
    repeated: int
    kills: int
    stops: int
    restarts: int
    taken_over: int
    workers_ended: tuple[int, ...]
    seconds: float

    @property
    def right(self) -> bool:
        plan = self.plan
        return (
            self.threads_right == plan.threads
            and self.effects == plan.threads * plan.steps
            and self.effects_twice == self.calls_twice == 0
            and (self.kills, self.stops, self.restarts) == (plan.kills, plan.stops, plan.restarts)
            and not any(self.workers_ended)
        )


def prove(plan: Plan, server: Server, folder: Path) -> Figures:
    """Runs the plan on a new database of the server; `folder` gets the record and the workers' log."""
    url, record = server.fresh(), Record(folder / "record")
    accounts = [f"account-{number:02}" for number in range(1, plan.threads + 1)]
    fleet = Fleet(url, record.file, folder / "log", HEARTBEAT)
    begun = time.monotonic()
    try:
        with postgres_storage(url) as storage:
            for account in accounts:
                submit(storage, agent.task(account, plan.steps), account, queue=QUEUE)
            for _ in range(_WORKERS):
                fleet.start()
            _disturb(plan, fleet, record, server)
            wait_until(lambda: all(_ended(storage, account) for account in accounts), _LONGEST_SECONDS, 0.5)
            codes = fleet.end()
            return _figures(plan, storage, accounts, record, fleet, codes, time.monotonic() - begun)
    finally:
        fleet.close()


def _disturb(plan: Plan, fleet: Fleet, record: Record, server: Server) -> None:
    """Causes the failures while the work goes on, evenly spread over its effects."""
    # The killed worker's threads are still to be taken over when the database restarts.
    kills = [fleet.kill] * (plan.kills - plan.restarts) + [
        partial(fleet.kill, server.restart)
    ] * plan.restarts
    timers = list[threading.Timer]()

    def stop() -> None:
        timers.append(threading.Timer(_STOP_SECONDS, fleet.stop()))
        timers[-1].start()

    happenings: list[Callable[[], None]] = [*kills[::2], *[stop] * plan.stops, *kills[1::2]]
    every = plan.threads * plan.steps // (len(happenings) + 2)
    for nth, happen in enumerate(happenings, start=1):
        wait_until(partial(_has_done, record, nth * every), _LONGEST_SECONDS)
        happen()
    for timer in timers:
        timer.join()


def _has_done(record: Record, effects: int) -> bool:
    return record.keys("done", "account", "step").total() >= effects


def _ended(storage: PostgresStorage, account: str) -> bool:
    try:
        return look(reading_graph(storage), account).condition is Condition.ENDED
    except StorageError:
        return False


def _figures(
    plan: Plan,
    storage: PostgresStorage,
    accounts: Sequence[str],
    record: Record,
    fleet: Fleet,
    codes: Sequence[int],
    seconds: float,
) -> Figures:
    effects = record.keys("done", "account", "step")
    calls = record.keys("called", "account", "call")
    right, uncertain, repeated = 0, 0, 0
    for account in accounts:
        values = look(reading_graph(storage), account).values
        outcome = values.get("outcome") or {}
        ended = (outcome.get("status"), outcome.get("summary")) == (
            "success",
            agent.summary(account, plan.steps),
        )
        right += ended and all(effects[account, step] == 1 for step in range(1, plan.steps + 1))
        told = [message for message in values.get("messages", ()) if message.type == "tool"]
        uncertain += sum(bool(marks(message).get("unknown")) for message in told)
        repeated += sum(message.text.endswith("is missing.") for message in told)
    return Figures(
        plan=plan,
        threads_right=right,
        effects=effects.total(),
        effects_twice=sum(count > 1 for count in effects.values()),
        calls_twice=sum(count > 1 for count in calls.values()),
        refused=record.keys("refused", "account", "step").total(),
        uncertain=uncertain,
        repeated=repeated,
        kills=fleet.kills,
        stops=fleet.stops,
        restarts=plan.restarts,
        taken_over=fleet.taken_over(),
        workers_ended=tuple(codes),
        seconds=round(seconds, 1),
    )
