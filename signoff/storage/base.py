"""What both databases have in common: async calls, writes by a hold, and values that each gives back."""

import asyncio
import ctypes
import json
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.base.id import uuid6
from langgraph.store.base import BaseStore, GetOp, Op, PutOp, Result

from signoff.graph.compiled.holds import Hold, closed, hold_of
from signoff.graph.errors import StorageError, quote_id
from signoff.graph.foreign import checked_thread_id, label, thread_of, valid_text, valid_values
from signoff.storage.threads import told

FREE = ("requests", "ratings", "inbox", "threads")
"""The sorts of entries that anybody may write: requests to pause, ratings, orders to workers, settings."""

_CLOCK_SECONDS = 2.0
"""The clocks of machines that keep time differ by less."""
_T = TypeVar("_T")


class Database(ABC):
    """The way to an open database.

    name: the same wherever it is opened. address: for people, without a password. executor: for async calls.
    parameter: the place of a value in a statement.
    """

    parameter: str
    executor: Executor
    address: Any

    def __init__(self, name: object) -> None:
        self.name = name
        self.users: list[Any] = []
        """LangGraph's savers and stores on it; each has a connection, or a pool of them, as `conn`."""
        self._is_open = True
        self._begin_lock, self._has_begun = threading.Lock(), False

    def check(self) -> None:
        """Raises StorageError once it is closed. A forked child begins anew: its parent's connections, and
        the threads that use them, are not its own."""
        if not self._is_open:
            raise closed()
        if not self._has_begun:
            with self._begin_lock:
                if not self._has_begun:
                    self.begin()
                    with _forking:
                        _databases.add(self)
                    self._has_begun = True

    def close(self) -> None:
        """Closes what this process has opened. A second time it does nothing."""
        was_open, self._is_open = self._is_open, False
        if was_open and self._has_begun:
            self.end()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """No thread of this process works for the database during the block."""
        yield

    def leave(self) -> None:
        """Leaves to its parent what a forked child has inherited."""
        self._begin_lock, self._has_begun = threading.Lock(), False

    @abstractmethod
    def begin(self) -> None:
        """Opens connections, and gives them to the users."""

    @abstractmethod
    def end(self) -> None:
        """Ends the executor, and closes the connections."""

    @abstractmethod
    def do(self, work: Callable[[], _T], hold: Hold | None = None) -> _T:
        """Does the work on the database, a write by its hold. Raises ThreadLost if that has ended."""

    @abstractmethod
    def query(self, sql: str, *values: object) -> Sequence[tuple[Any, ...]]:
        """The rows of a statement of ours."""

    @abstractmethod
    def hold(self, thread_id: str) -> AbstractContextManager[Hold]:
        """Takes the thread for the block. Raises ThreadBusy if somebody else has it."""

    @abstractmethod
    def is_held(self, thread_id: str) -> bool:
        """Whether a runner of any process has the thread."""

    def held(self, thread_id: str, configurable: Mapping[str, Any]) -> AbstractContextManager[Hold]:
        """The hold of the run that writes, or one for this write alone."""
        found = hold_of(label(thread_id), self.name, configurable)
        return self.hold(thread_id) if found is None else nullcontext(found)


def never_freed(found: object) -> None:
    """Keeps what a child has of its parent's connections: freeing it would tidy up behind the parent."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(found))


_databases = WeakSet[Database]()
_forking, _resting = threading.Lock(), ExitStack()


def _before_fork() -> None:
    """A child in which a lock of the database's library is taken would wait for it for ever."""
    _forking.acquire()
    for database in _databases:
        _resting.enter_context(database.resting())


def _after_fork(*, in_child: bool) -> None:
    try:
        _resting.close()
        for database in _databases if in_child else ():
            database.leave()
    finally:
        _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_child=partial(_after_fork, in_child=True),
        after_in_parent=partial(_after_fork, in_child=False),
    )


def in_executor(name: str) -> Any:
    """The async form of the method of this name.

    Not on the default executor of the event loop, where it would wait for tools that block.
    """

    async def call(self: Any, *given: Any, **options: Any) -> Any:
        self.database.check()
        work = partial(copy_context().run, partial(getattr(self, name), *given, **options))
        return await asyncio.get_running_loop().run_in_executor(self.database.executor, work)

    return call


class ThreadSaver(BaseCheckpointSaver[Any]):
    """A synchronous checkpointer of LangGraph's, for async runs, too; it writes to threads it holds."""

    database: Database
    entries: "EntryStore"
    """The store in the same database."""
    aget_tuple = in_executor("get_tuple")
    aput = in_executor("put")
    adelete_thread = in_executor("delete_thread")
    aget_delta_channel_history = in_executor("get_delta_channel_history")
    _alisted = in_executor("_listed")

    @contextmanager
    def runner(self, thread_id: str) -> Iterator[Hold]:
        """Holds the thread, and gives the hold by which its run writes. Raises ThreadBusy."""
        with self.database.hold(checked_thread_id(thread_id)) as hold:
            self._wait_for_clock(thread_id)
            with told(self, self.entries, hold):
                yield hold

    def _wait_for_clock(self, thread_id: str) -> None:
        """Waits until a checkpoint of this machine would be the newest one of the thread.

        LangGraph takes the one with the greatest id, which begins with the writer's clock: what is written on
        a machine whose clock is behind would be lost. Raises StorageError if it is far behind.
        """
        query = f"SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = {self.database.parameter}"
        ((newest,),) = self.database.query(query, thread_id)
        until = time.monotonic() + _CLOCK_SECONDS
        while newest and newest >= str(uuid6(clock_seq=-2)):
            if time.monotonic() > until:
                raise StorageError(
                    f"Thread {quote_id(thread_id)} was last written by a machine whose clock is ahead of "
                    "this one's, so that what is written here would be lost; set the clocks of both."
                )
            time.sleep(0.01)

    def is_running(self, thread_id: str) -> bool:
        """Whether a runner of any process holds the thread."""
        return self.database.is_held(thread_id)

    def newest_first(self) -> "Sequence[tuple[str, str]]":
        """The newest checkpoint of every thread, and the thread, newest first."""
        # From thread to thread by the index: a list of threads must not read all checkpoints.
        found = self.database.query(
            "WITH RECURSIVE thread(id) AS (SELECT min(thread_id) FROM checkpoints UNION ALL SELECT (SELECT "
            "min(thread_id) FROM checkpoints WHERE thread_id > id) FROM thread WHERE id IS NOT NULL) "
            "SELECT (SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = id AND checkpoint_ns = '') "
            "AS newest, id FROM thread WHERE id IS NOT NULL"
        )
        return sorted(((newest or "", thread_id) for newest, thread_id in found), reverse=True)

    def threads(self) -> "Sequence[str]":
        """The ids of all threads, the one changed last first."""
        return [thread_id for _, thread_id in self.newest_first()]

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self.database.do(partial(super().get_tuple, config))

    def list(self, config: RunnableConfig | None, **options: Any) -> Iterator[CheckpointTuple]:
        # LangGraph's are generators, which would keep a lock or a connection until they end.
        found = super().list(config, **options)
        yield from self.database.do(lambda: [*found])

    def _listed(self, config: RunnableConfig | None, **options: Any) -> "Sequence[CheckpointTuple]":
        return [*self.list(config, **options)]

    async def alist(self, config: RunnableConfig | None, **options: Any) -> AsyncIterator[CheckpointTuple]:
        for found in await self._alisted(config, **options):
            yield found

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        read = super().get_delta_channel_history
        return self.database.do(lambda: read(config=config, channels=channels))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        for name, value in checkpoint["channel_values"].items():
            # PostgreSQL would keep it as JSON, SQLite as it is.
            if isinstance(value, str | float) and as_json(value) != value:
                raise StorageError(
                    f"The text in {name!r} has characters that no database keeps: {value!r:.80}."
                )
        _leave_copies_to_channel(metadata)
        return self._written(config, partial(super().put, config, checkpoint, metadata, new_versions))

    # LangGraph looks in both signatures whether a saver takes a path, which keeps parallel writes in order.
    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._written(config, partial(super().put_writes, config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await _aput_writes(self, config, writes, task_id, task_path)

    # LangGraph's would take steps from a thread that runs.
    prune = BaseCheckpointSaver.prune
    aprune = BaseCheckpointSaver.aprune

    def delete_thread(self, thread_id: str) -> None:
        """Deletes the thread and all that is stored of it, if it exists. Raises ThreadBusy while it runs."""
        # Its imports are needed only for deleting.
        from signoff.storage.deleting import delete_all_of

        with self.database.hold(checked_thread_id(thread_id)) as hold, hold.here():
            delete_all_of(self, self.entries, thread_id, self.entries.clear)
            self._delete_queued(thread_id)
            self.database.do(partial(super().delete_thread, thread_id), hold)

    def _delete_queued(self, thread_id: str) -> None:
        """Deletes the thread's place in the queue of the workers, which SQLite does not have."""

    def _written(self, config: RunnableConfig, write: Callable[[], _T]) -> _T:
        configurable = config["configurable"]
        with self.database.held(configurable["thread_id"], configurable) as hold:
            return self.database.do(write, hold)


_aput_writes = in_executor("put_writes")
_COUNTERS, _HISTORY, _MOST_STEPS = "counters_since_delta_snapshot", "messages", 2_500


def _leave_copies_to_channel(metadata: CheckpointMetadata) -> None:
    """Keeps LangGraph from copying the whole history every 5,000 steps.

    With those copies the size of a long thread would grow with the square of its length; `HistoryChannel`
    makes copies in proportion to it.
    """
    counters = metadata.get(_COUNTERS)
    if isinstance(counters, dict) and _HISTORY in counters:
        updates, steps = counters[_HISTORY]
        counters[_HISTORY] = (updates, min(steps, _MOST_STEPS))


class EntryStore(BaseStore):
    """A synchronous store of LangGraph's, for async runs, too.

    An entry of a thread (its namespace is `signoff`, a sort and the thread's label) is written by whoever
    holds the thread, but for the sorts in FREE.
    """

    database: Database

    abatch = in_executor("batch")

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        sound = [_sound(op) for op in ops]
        # LangGraph's own would read and write in one transaction, as one who reads at first.
        read = [op for op in sound if not isinstance(op, PutOp)]
        if read and len(read) < len(sound):
            found = iter(self.batch(read))
            self.batch([op for op in sound if isinstance(op, PutOp)])
            return [None if isinstance(op, PutOp) else next(found) for op in sound]
        work: Callable[[], list[Result]] = partial(super().batch, sound)  # type: ignore[safe-super]
        return self._done([op.namespace for op in sound if isinstance(op, PutOp)], work)

    def swap(
        self, namespace: tuple[str, ...], key: str, before: dict[str, Any] | None, after: dict[str, Any]
    ) -> bool:
        """Replaces the value by `after` if it is still `before` (None: no entry); returns whether it did.

        Atomic over threads and processes: of two that claim the same entry one gets it.
        """
        place = ".".join(namespace), valid_text(key)
        known = None if before is None else as_json(before)
        return self._done([namespace], partial(self.swap_now, *place, known, as_json(after)))

    def clear(self, namespace: tuple[str, ...]) -> None:
        """Deletes all entries of a namespace, also those that cannot be read."""
        query = f"DELETE FROM store WHERE prefix = {self.database.parameter}"
        self._done([namespace], partial(self.database.query, query, ".".join(namespace)))

    @abstractmethod
    def swap_now(self, prefix: str, key: str, before: Any, after: Any) -> bool:
        """Does what `swap` does, where the database may be used."""

    def _done(self, written: Iterable[tuple[str, ...]], work: Callable[[], _T]) -> _T:
        owner = _owner(written)
        if owner is None:
            return self.database.do(work)
        with self.database.held(owner, {}) as hold:
            return self.database.do(work, hold)


def _owner(namespaces: Iterable[tuple[str, ...]]) -> str | None:
    """The id of the thread whose runner alone may write there; None if anybody may."""
    owners = {
        thread_of(namespace[2])
        for namespace in namespaces
        if namespace[:1] == ("signoff",) and len(namespace) > 2 and namespace[1] not in FREE
    }
    if len(owners) > 1:
        raise StorageError("One batch writes to one thread; write to each in a batch of its own.")
    return next(iter(owners), None)


def _sound(op: Op) -> Op:
    if isinstance(op, PutOp):
        value = None if op.value is None else as_json(op.value)
        return op._replace(key=valid_text(op.key), value=value)
    return op._replace(key=valid_text(op.key)) if isinstance(op, GetOp) else op


def as_json(value: Any) -> Any:
    """The value as every database gives it back. Raises StorageError for one that none can keep."""
    try:
        return json.loads(json.dumps(valid_values(value), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise StorageError(f"What is stored is JSON: {error}.") from error
