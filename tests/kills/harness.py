"""Kills a process at a moment drawn from a seed, has another one go on, and compares what took place with
what is told.

A moment is before or after a write to the database, and before or after an effect.
"""

import json
import os
import random
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, Protocol

from signoff import Outcome, postgres_storage, sqlite_storage

MOST = 3
"""How often a thread is killed, at most."""


class Moments:
    """Kills this process at the n-th moment; 0 for never."""

    count: ClassVar[int] = 0
    kill_at: ClassVar[int] = 0

    @classmethod
    def passed(cls) -> None:
        cls.count += 1
        if cls.count == cls.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    @classmethod
    def around(cls, kind: type, *names: str) -> None:
        """Makes moments of every call of these methods."""
        for name in names:
            setattr(kind, name, cls._watched(getattr(kind, name)))

    @classmethod
    def _watched(cls, method: Callable[..., Any]) -> Callable[..., Any]:
        # With its signature: by that LangGraph tells what a saver takes.
        @wraps(method)
        def watched(*args: Any, **options: Any) -> Any:
            cls.passed()
            found = method(*args, **options)
            cls.passed()
            return found

        return watched


@dataclass(frozen=True)
class Outside:
    """What happens outside of the threads: a line in a file for each effect."""

    file: Path

    def happen(self, name: str) -> str:
        Moments.passed()
        with self.file.open("a") as out:
            out.write(f"{name}\n")
        Moments.passed()
        return f"did {name}"

    def seen(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []


@dataclass(frozen=True)
class Run:
    """One process of a thread. by_loop: whether it drives the thread in an event loop."""

    storage: Any
    thread: str
    outside: Outside
    by_loop: bool


class Target(Protocol):
    """What is killed. effects: the lines that may come of it; status: how it ends."""

    @property
    def effects(self) -> Sequence[str]: ...

    @property
    def status(self) -> str: ...

    def opened(self, database: str) -> Any:
        """A context with the storage."""

    def driven(self, run: Run) -> Outcome:
        """Drives the thread to its end, as anyone would who knows its id and the task."""

    def told(self, outcome: Outcome) -> Mapping[str, str]:
        """What is told of each effect: "ok", or something else."""


@contextmanager
def opened(database: str) -> Iterator[Any]:
    """A storage of ours, each write of which is two moments."""
    with postgres_storage(database) if "://" in database else sqlite_storage(database) as storage:
        Moments.around(type(storage.checkpointer), "put", "put_writes")
        Moments.around(type(storage.store), "batch", "swap")
        yield storage


def in_process(target: Target, database: str, name: str, folder: Path, kill_at: int) -> Any:
    """Drives the thread in a process of its own; None if that was killed."""
    report, child = folder / "report", os.fork()
    if child == 0:
        code = 1
        try:
            Moments.kill_at = kill_at
            with target.opened(database) as storage:
                by_loop = name.endswith("async")
                outcome = target.driven(Run(storage, name, Outside(folder / name), by_loop))
            told = {"told": target.told(outcome), "status": outcome.status, "moments": Moments.count}
            report.write_text(json.dumps(told))
            code = 0
        except BaseException:  # noqa: BLE001  a process of a fork must end here, whatever happens
            traceback.print_exc()
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return None
    assert os.WEXITSTATUS(status) == 0, f"a process of {name!r} failed"
    return json.loads(report.read_text())


def faults(target: Target, report: Mapping[str, Any], seen: Sequence[str]) -> Iterator[str]:
    """What is wrong after the kills of a thread."""
    times, told = Counter(seen), report["told"]
    for effect in target.effects:
        if times[effect] > 1:
            yield f"{effect} took place {times[effect]} times"
        if effect not in told:
            yield f"{effect} is told nowhere"
        elif told[effect] == "ok" and not times[effect]:
            yield f"{effect} is told as done, and did not take place"
    if report["status"] != target.status:
        yield f"it ended as {report['status']}"


@dataclass
class Swept:
    """What came of many kills."""

    kills: int = 0
    unknown: int = 0
    faults: tuple[str, ...] = ()


def sweep(target: Target, database: str, folder: Path, kills: int, seed: int) -> Swept:
    """As many threads as this number of kills takes, each killed at least once, and every third by a loop."""
    dice, swept = random.Random(seed), Swept()
    # Several targets may be swept in one database.
    first = f"{type(target).__name__} {seed}"
    whole = in_process(target, database, f"{first} whole", folder, 0)
    wrong = [*faults(target, whole, Outside(folder / f"{first} whole").seen())]
    assert not wrong, f"without a kill: {wrong}"
    while swept.kills < kills:
        number = swept.kills
        name = f"{first} {number} {'async' if number % 3 == 2 else 'sync'}"
        last = whole["moments"]
        for left in range(MOST, -1, -1):
            # Whoever goes on is killed sooner, since less is left to do.
            last = dice.randint(1, max(2, last)) if left else 0
            report = in_process(target, database, name, folder, last)
            if report is not None:
                break
            swept.kills += 1
        swept.unknown += sum(came != "ok" for came in report["told"].values())
        found = faults(target, report, Outside(folder / name).seen())
        swept.faults += tuple(f"seed {seed}, thread {name!r}: {fault}" for fault in found)
    return swept
