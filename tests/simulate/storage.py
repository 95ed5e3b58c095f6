"""A storage in memory with the public contract, for processes that die, stall and are cut off.

What is stored outlives a process. One runner holds a thread; a write to a thread that its process does not
hold is refused, and told to the laws. Before and after each write the schedule may let something happen.
"""

import copy
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import BaseStore, Op, PutOp
from langgraph.store.memory import InMemoryStore

from signoff import StorageError, ThreadBusy, ThreadLost

# Written without holding the thread: a request for a pause, a rating, what workers know, a run's settings.
WITHOUT_HOLD = {"requests", "ratings", "inbox", "settings"}


class Killed(BaseException):
    """Stands for SIGKILL: the process is gone, and nothing that it does from now on counts."""


@dataclass
class Database:
    """What is stored, and which process holds which thread."""

    checkpoints: InMemorySaver = field(default_factory=InMemorySaver)
    entries: InMemoryStore = field(default_factory=InMemoryStore)
    holders: dict[str, "Process"] = field(default_factory=dict)
    unheld: list[str] = field(default_factory=list)

    def copied(self) -> "Database":
        """The same threads on another machine, where nobody holds them."""
        found = Database()
        for name in ("storage", "writes", "blobs"):
            setattr(found.checkpoints, name, copy.deepcopy(getattr(self.checkpoints, name)))
        found.entries.batch([PutOp(e.namespace, e.key, e.value) for e in self.all_entries()])
        return found

    def all_entries(self) -> list[Any]:
        return self.entries.search((), limit=100_000)

    def content(self) -> Any:
        """Everything that is stored, to compare."""
        saved = self.checkpoints
        rows = [*saved.storage.items()], [*saved.writes.items()], len(saved.blobs)
        kept = [e for e in self.all_entries() if e.namespace[1] not in WITHOUT_HOLD]
        return repr(rows), sorted((e.namespace, e.key, repr(e.value)) for e in kept)


@dataclass(eq=False)
class Process:
    """A process that runs threads.

    moment: what the schedule lets happen before and after a write. tears: what it does once a part of its
    next write has landed. lost: the threads that another process has taken from it.
    """

    moment: Callable[[str], None] = lambda what: None
    tears: Callable[[], None] | None = None
    is_dead: bool = False
    lost: set[str] = field(default_factory=set)

    def alive(self) -> None:
        if self.is_dead:
            raise Killed

    def die(self) -> None:
        self.is_dead = True
        raise Killed


class MemoryStorage:
    """The storage of one process. is_held: whether a thread must be held to be written, as with ours."""

    def __init__(self, database: Database, process: Process, *, is_held: bool = True) -> None:
        self.database, self.process, self.is_held = database, process, is_held
        self.checkpointer, self.store = Saver(self), Store(self)

    @contextmanager
    def runner(self, thread_id: str) -> Iterator[None]:
        self.process.alive()
        holders = self.database.holders
        holder = holders.get(thread_id)
        if holder is not None and not holder.is_dead:
            raise ThreadBusy(f"Thread {thread_id!r} is running elsewhere.")
        holders[thread_id] = self.process
        self.process.lost.discard(thread_id)
        try:
            yield
        finally:
            if holders.get(thread_id) is self.process:
                del holders[thread_id]

    def is_running(self, thread_id: str) -> bool:
        holder = self.database.holders.get(thread_id)
        return holder is not None and not holder.is_dead

    def writes(self, thread_id: str, what: str, work: Callable[[], Any]) -> Any:
        """A write to a thread, which its process must hold."""
        self.process.alive()
        self.process.moment(f"before {what}")
        if thread_id in self.process.lost:
            raise ThreadLost(f"Another runner has taken thread {thread_id!r} over.")
        if self.is_held and self.database.holders.get(thread_id) is not self.process:
            self.database.unheld.append(f"{what} of {thread_id!r}")
            raise StorageError(f"Thread {thread_id!r} is written by a process that does not hold it.")
        done = work()
        self.process.moment(f"after {what}")
        return done

    def torn(self, parts: Sequence[Any]) -> tuple[Sequence[Any], Callable[[], None]]:
        """The parts of a write that land, and what happens then."""
        tears = self.process.tears
        if tears is None or len(parts) < 2:
            return parts, lambda: None
        self.process.tears = None
        return parts[: len(parts) // 2], tears


class Saver(BaseCheckpointSaver[str]):
    """LangGraph's saver in memory, by the hold of a process."""

    def __init__(self, storage: MemoryStorage) -> None:
        self._storage, self._saver = storage, storage.database.checkpoints
        super().__init__(serde=self._saver.serde)

    def runner(self, thread_id: str) -> Any:
        return self._storage.runner(thread_id)

    def is_running(self, thread_id: str) -> bool:
        return self._storage.is_running(thread_id)

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._saver.get_next_version(current, channel)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        self._storage.process.alive()
        return self._saver.get_tuple(config)

    def list(self, config: RunnableConfig | None, **options: Any) -> Iterator[CheckpointTuple]:
        self._storage.process.alive()
        return self._saver.list(config, **options)

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: Any
    ) -> RunnableConfig:
        found: RunnableConfig = self._storage.writes(
            config["configurable"]["thread_id"],
            "checkpoint",
            lambda: self._saver.put(config, checkpoint, metadata, new_versions),
        )
        return found

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        # All or none: LangGraph takes a task for done where any of its writes is there.
        self._storage.writes(
            config["configurable"]["thread_id"],
            "writes",
            lambda: self._saver.put_writes(config, writes, task_id, task_path),
        )

    def delete_thread(self, thread_id: str) -> None:
        self._storage.process.alive()
        self._saver.delete_thread(thread_id)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self.get_tuple(config)

    async def alist(self, config: RunnableConfig | None, **options: Any) -> AsyncIterator[CheckpointTuple]:
        for found in self.list(config, **options):
            yield found

    async def aput(self, *args: Any, **options: Any) -> RunnableConfig:
        return self.put(*args, **options)

    async def aput_writes(self, *args: Any, **options: Any) -> None:
        self.put_writes(*args, **options)

    def get_delta_channel_history(self, **options: Any) -> Any:
        self._storage.process.alive()
        return self._saver.get_delta_channel_history(**options)

    async def aget_delta_channel_history(self, **options: Any) -> Any:
        return self.get_delta_channel_history(**options)


class Store(BaseStore):
    """LangGraph's store in memory, by the hold of a process, with a `swap`."""

    def __init__(self, storage: MemoryStorage) -> None:
        self._storage, self._store = storage, storage.database.entries

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        ops = list(ops)
        self._storage.process.alive()
        puts = [op for op in ops if isinstance(op, PutOp) and _thread_of(op.namespace) is not None]
        if not puts:
            return self._store.batch(ops)
        thread_id = _thread_of(puts[0].namespace)
        assert thread_id is not None, "it is one of a thread"

        def written() -> list[Any]:
            landing, tears = self._storage.torn(ops)
            found = self._store.batch(landing)
            tears()
            return found

        found: list[Any] = self._storage.writes(thread_id, "entries", written)
        return found

    async def abatch(self, ops: Iterable[Op]) -> list[Any]:
        return self.batch(ops)

    def swap(
        self, namespace: tuple[str, ...], key: str, before: dict[str, Any] | None, after: dict[str, Any]
    ) -> bool:
        def swapped() -> bool:
            item = self._store.get(namespace, key)
            if (item.value if item else None) != before:
                return False
            self._store.put(namespace, key, after)
            return True

        thread_id = _thread_of(namespace)
        done: bool = swapped() if thread_id is None else self._storage.writes(thread_id, "journal", swapped)
        return done


def _thread_of(namespace: tuple[str, ...]) -> str | None:
    """The thread that an entry belongs to, if it may be written by its runner alone."""
    if len(namespace) < 3 or namespace[0] != "signoff" or namespace[1] in WITHOUT_HOLD:
        return None
    return namespace[2]
