"""The world of the stateful test: a database that a process may be killed at, tools with effects that are
counted, and a model that says what it is told to."""

import contextvars
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.store.base import PutOp

from signoff import Approval, Session, sqlite_storage
from signoff.graph.foreign import strict_serde
from signoff.session.status import deps_of
from signoff.storage.sqlite import SqliteStorage, ThreadSaver, ThreadStore
from signoff.tools.approvals import read_answer
from tests.support.stateful.cast import Settings, cast_of
from tests.support.stateful.checks import view_faults
from tests.support.stateful.said import SAID


class Killed(BaseException):
    """Stands for SIGKILL: the process is gone, and nothing that it does from now on counts."""


@dataclass
class Fuse:
    """Kills the process at the n-th moment from when it was set; 0 for never."""

    left: int = 0
    dead: bool = False

    def moment(self) -> None:
        self.alive()
        self.left = max(0, self.left - 1) if self.left != 1 else self._blow()

    def alive(self) -> None:
        if self.dead:
            raise Killed

    def _blow(self) -> int:
        self.dead = True
        raise Killed


class Saver(ThreadSaver):
    """Killed before or after a write; a dead process neither reads nor writes."""

    fuse: Fuse

    def get_tuple(self, *args: Any, **kwargs: Any) -> Any:
        self.fuse.alive()
        return super().get_tuple(*args, **kwargs)

    def put(self, *args: Any, **kwargs: Any) -> Any:
        self.fuse.moment()
        done = super().put(*args, **kwargs)
        self.fuse.moment()
        return done

    # LangGraph gives the path only to a saver that names it, and by that path ours tells what may wait.
    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.fuse.moment()
        super().put_writes(config, writes, task_id, task_path)
        self.fuse.moment()

    def save(self, *args: Any) -> None:
        self.fuse.alive()
        super().save(*args)


class Store(ThreadStore):
    """As the saver."""

    fuse: Fuse

    def batch(self, ops: Any) -> Any:
        ops = list(ops)
        check = self.fuse.moment if any(isinstance(op, PutOp) for op in ops) else self.fuse.alive
        check()
        done = super().batch(ops)
        check()
        return done

    def swap(self, *args: Any, **kwargs: Any) -> bool:
        self.fuse.moment()
        done = super().swap(*args, **kwargs)
        self.fuse.moment()
        return done


class World:
    """Everything outside of the thread: the database's file, the effects, what the model will say.

    effects: how often each took place, by thread and token. approved: tokens that a person has been shown.
    never: tokens of calls that may not run at all. again: how often a person has let one run once more.
    """

    def __init__(self, file: Path, settings: Settings) -> None:
        self.file, self.settings = file, settings
        self.effects, self.again = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        self.approved, self.never = set[str](), set[str]()
        self.queue: list[str] = []
        self.faults: list[str] = []
        self.running = ""
        self.during: tuple[int, Callable[[], None]] | None = None
        self._tokens = 0
        self._stack = ExitStack()
        self._cast = cast_of(settings)
        self._cast.stage = self
        self.open()

    def open(self) -> None:
        """As a new process does."""
        self.fuse = Fuse()
        self.storage = self._opened(self._stack.enter_context(sqlite_storage(self.file)))
        parts = {"checkpointer": self.storage.checkpointer, "store": self.storage.store}
        self.graph = self._cast.graph.copy(update=parts)
        # A new process has read nothing yet.
        deps_of(self.graph).readings.clear()

    def close(self) -> None:
        self._stack.close()

    def _opened(self, plain: SqliteStorage) -> SqliteStorage:
        saver = Saver(plain.checkpointer.conn, plain.path, strict_serde())
        store = Store(plain.store.conn)
        saver.is_setup = True
        saver.fuse = store.fuse = self.fuse
        return SqliteStorage(plain.path, saver, store)

    def session(self, thread_id: str, on_pending: Any = "answer") -> Session:
        return Session(self.graph, thread_id, on_pending=on_pending)

    def token(self, *, never: bool = False) -> str:
        self._tokens += 1
        token = f"e{self._tokens}"
        if never:
            self.never.add(token)
        return token

    def say(self, messages: list[BaseMessage]) -> Any:
        self.faults += view_faults(messages)
        self.point()
        return SAID[self.queue.pop(0) if self.queue else self.settings.usual](self)

    def approve(self, thread: str, waiting: Any, answer: Any) -> None:
        """Notes what a person lets happen by an answer that fits."""
        if not isinstance(waiting, Approval):
            return
        asked = [(one.name, one.args) for one in waiting.calls]
        given = read_answer(waiting.read(answer), asked, [one.allowed for one in waiting.calls])
        for decision, (_, args) in zip(given, asked, strict=True):
            token = str(args.get("name"))
            if decision.type in ("approve", "edit"):
                known = token in self.approved or self.effects[thread, token] > 0
                self.again[thread, token] += known and self.settings.unknown == "ask"
                self.approved.add(token)

    def forked(self, thread: str, target: str) -> None:
        """What has happened must not happen again in a fork."""
        for (own, token), times in list(self.effects.items()):
            if own == thread:
                self.effects[target, token] = times
                self.again[target, token] = self.again[thread, token]

    def point(self) -> None:
        """A moment in the middle of a run, in which something may happen from outside."""
        self.fuse.moment()
        if self.during is None:
            return
        left, act = self.during
        self.during = None if left == 0 else (left - 1, act)
        if left == 0:
            # Nothing of the run may show in there, as if it were another process.
            contextvars.Context().run(act)

    def happen(self, name: str) -> str:
        """An effect."""
        self.point()
        self.effects[self.running, name] += 1
        self.fuse.moment()
        return f"did {name}"

    def pay(self, name: str) -> str:
        """An effect that a person must have approved."""
        if name not in self.approved:
            self.faults.append(f"{name} was paid without an approval")
        return self.happen(name)
