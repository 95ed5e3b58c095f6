"""What both databases have in common: async calls, writes by a hold, and values that each gives back."""

import json
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from functools import partial, wraps
from typing import Any, TypeVar

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

from signoff.graph.compiled.graph import GRACE_SECONDS
from signoff.graph.compiled.holds import Hold, busy, closed, hold_of
from signoff.graph.errors import StorageError, quote_id
from signoff.graph.foreign import checked_thread_id, label, strict_serde, thread_of, valid_text, valid_values
from signoff.storage.forking import databases, leak
from signoff.storage.threads import row_kept

SCHEMA = 4
"""The number of the form in which threads are stored: SQLite's `user_version`, PostgreSQL's `signoff_schema`.

It is incremented whenever this code would misread a thread in the form before."""
FREE = ("requests", "ratings", "inbox", "threads")
"""The sorts of entries that anybody may write: requests to pause, ratings, orders to workers, settings."""

_CLOCK_SECONDS = 2.0
"""The clocks of machines that keep time differ by less."""
_MOST_NAMESPACES = 100_000
_T = TypeVar("_T")


def check_schema(version: int, database: object) -> None:
    """Raises StorageError for a database that was written in another form, that of this number."""
    if version != SCHEMA:
        age, advice = "an older", "open it with that Signoff, or use another database."
        if version > SCHEMA:
            age, advice = "a newer", "upgrade Signoff."
        raise StorageError(
            f"The database {database} was written by {age} Signoff (version {version}; this one reads "
            f"{SCHEMA}): {advice}"
        )


def comes_true(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition comes true within so many seconds."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


class LockedHold(Hold):
    """A hold, and the lock that makes it the only one."""

    @abstractmethod
    def lock(self) -> bool:
        """Takes the lock; returns whether it could."""

    @abstractmethod
    def unlock(self) -> None:
        """Frees the lock, if this hold has it."""


class Database(ABC):
    """The way to an open database.

    name: the same wherever it is opened. place: the same for people, without a password. conn: a connection,
    or a pool of them; None until this process has made it.
    """

    conn: Any = None

    def __init__(self, name: object, place: str) -> None:
        self.name, self.place = name, place
        self.users: list[Any] = []
        """LangGraph's savers and stores on it; each has the connection as `conn`, too."""
        self._is_open, self._connecting = True, threading.Lock()
        databases.add(self)
        self.check()

    def forget_inherited(self) -> None:
        """Leaves to its parent what a forked child has inherited."""
        leak(self.conn)
        self.conn, self._connecting = None, threading.Lock()

    def check(self) -> None:
        """Raises StorageError once it is closed. A forked child connects anew."""
        if not self._is_open:
            raise closed()
        if self.conn is None:
            with self._connecting:
                if self.conn is None:
                    conn = self.connect()
                    for user in self.users:
                        user.conn = conn
                    self.conn = conn

    def close(self) -> None:
        """Closes what this process has opened. A second time it does nothing."""
        was_open, self._is_open = self._is_open, False
        if was_open and self.conn is not None:
            self.disconnect()

    @abstractmethod
    def connect(self) -> Any:
        """Opens the connections, and what serves them; returns `conn`."""

    @abstractmethod
    def disconnect(self) -> None:
        """Closes the connections, and ends what serves them."""

    @abstractmethod
    def do(self, work: Callable[[], _T], hold: Hold | None = None) -> _T:
        """Does the work on the database, a write by its hold. Raises ThreadLost if that has ended."""

    @abstractmethod
    async def ado(self, work: Callable[[], _T]) -> _T:
        """Does the work for an event loop.

        Not on the loop's default executor, where it would wait for tools that block.
        """

    @abstractmethod
    def query(self, sql: str, *values: object) -> Sequence[tuple[Any, ...]]:
        """The rows of a statement of ours, with %s for each value."""

    @abstractmethod
    def unlocked_hold(self, thread_id: str) -> LockedHold:
        """A hold on the thread whose lock is still to be taken."""

    @abstractmethod
    def is_held(self, thread_id: str) -> bool:
        """Whether a runner of any process has the thread."""

    @contextmanager
    def hold(self, thread_id: str) -> Iterator[Hold]:
        """Takes the thread for the block. Raises ThreadBusy if somebody else has it."""
        self.check()
        hold, process = self.unlocked_hold(thread_id), os.getpid()
        try:
            if not comes_true(hold.lock, GRACE_SECONDS):
                raise busy(thread_id)
            yield hold
        finally:
            # A child that was forked within the block does not have the lock.
            if os.getpid() == process:
                try:
                    hold.end()
                finally:
                    hold.unlock()

    def hold_to_write(self, thread_id: str, configurable: Mapping[str, Any]) -> AbstractContextManager[Hold]:
        """The hold of the run that writes, or one for this write alone."""
        hold = hold_of(label(thread_id), self.name, configurable)
        return self.hold(thread_id) if hold is None else nullcontext(hold)


def async_form(name: str) -> Any:
    """The async form of the method of this name."""

    async def call(self: Any, *arguments: Any, **options: Any) -> Any:
        method = partial(getattr(self, name), *arguments, **options)
        return await self.database.ado(partial(copy_context().run, method))

    return call


class ThreadSaver(BaseCheckpointSaver[Any]):
    """A synchronous checkpointer of LangGraph's, for async runs, too; it writes to threads it holds."""

    database: Database
    aget_tuple = async_form("get_tuple")
    aput = async_form("put")
    adelete_thread = async_form("delete_thread")
    aget_delta_channel_history = async_form("get_delta_channel_history")

    def __init__(self, database: Database, entries: "EntryStore") -> None:
        """entries: the store in the same database."""
        super().__init__(database.conn, serde=strict_serde())  # type: ignore[misc]  # of LangGraph's saver
        self.database, self.entries = database, entries
        # LangGraph's would make threads wait for each other, and stay locked in a child that is forked.
        self.lock: Any = nullcontext()
        database.users.append(self)

    @contextmanager
    def runner(self, thread_id: str) -> Iterator[Hold]:
        """Holds the thread, and gives the hold by which its run writes. Raises ThreadBusy."""
        with self.database.hold(checked_thread_id(thread_id)) as hold:
            self._wait_for_clock(thread_id)
            with row_kept(self, self.entries, hold):
                yield hold

    def _wait_for_clock(self, thread_id: str) -> None:
        """Waits until a checkpoint of this machine would be the newest one of the thread.

        LangGraph takes the one with the greatest id, which begins with the writer's clock: what is written on
        a machine whose clock is behind would be lost. Raises StorageError if it is far behind.
        """
        query = "SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = %s"
        ((newest,),) = self.database.query(query, thread_id)
        if not comes_true(lambda: not newest or newest < str(uuid6(clock_seq=-2)), _CLOCK_SECONDS):
            raise StorageError(
                f"Thread {quote_id(thread_id)} was last written by a machine whose clock is ahead of this "
                "one's, so that what is written here would be lost; set the clocks of both."
            )

    def is_running(self, thread_id: str) -> bool:
        """Whether a runner of any process holds the thread."""
        return self.database.is_held(thread_id)

    def newest_first(self) -> "Sequence[tuple[str, str]]":
        """The newest checkpoint of every thread, and the thread, newest first."""
        # From thread to thread by the index: a list of threads must not read all checkpoints.
        threads = self.database.query(
            "WITH RECURSIVE thread(id) AS (SELECT min(thread_id) FROM checkpoints UNION ALL SELECT (SELECT "
            "min(thread_id) FROM checkpoints WHERE thread_id > id) FROM thread WHERE id IS NOT NULL) "
            "SELECT (SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = id AND checkpoint_ns = '') "
            "AS newest, id FROM thread WHERE id IS NOT NULL"
        )
        return sorted(((newest or "", thread_id) for newest, thread_id in threads), reverse=True)

    def threads(self) -> "Sequence[str]":
        """The ids of all threads, the one changed last first."""
        return [thread_id for _, thread_id in self.newest_first()]

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self.database.do(partial(super().get_tuple, config))

    def list(self, config: RunnableConfig | None, **options: Any) -> Iterator[CheckpointTuple]:
        # LangGraph's are generators, which would keep a lock or a connection until they end.
        checkpoints = super().list(config, **options)
        yield from self.database.do(lambda: [*checkpoints])

    async def alist(self, config: RunnableConfig | None, **options: Any) -> AsyncIterator[CheckpointTuple]:
        for checkpoint in await self.database.ado(lambda: [*self.list(config, **options)]):
            yield checkpoint

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
        # PostgreSQL would keep these as JSON, SQLite as msgpack.
        for name, value in checkpoint["channel_values"].items():
            if isinstance(value, str | float) and as_json(value) != value:
                raise StorageError(
                    f"The text in {name!r} has characters that no database keeps: {value!r:.80}."
                )
            if isinstance(value, int) and not -(2**63) <= value < 2**64:
                raise StorageError(f"The number in {name!r} has more than 64 bits: {value!r:.80}.")
        _leave_copies_to_channel(metadata)
        return self._write(config, partial(super().put, config, checkpoint, metadata, new_versions))

    # LangGraph looks in both signatures whether a saver takes a path, which keeps parallel writes in order.
    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._write(config, partial(super().put_writes, config, writes, task_id, task_path))

    aput_writes = wraps(put_writes)(async_form("put_writes"))

    # LangGraph's would take steps from a thread that runs.
    prune = BaseCheckpointSaver.prune
    aprune = BaseCheckpointSaver.aprune

    def delete_thread(self, thread_id: str) -> None:
        """Deletes the thread and all that is stored of it, if it exists. Raises ThreadBusy while it runs."""
        # Its imports are needed only for deleting.
        from signoff.storage.deleting import delete_files

        # The checkpoints last: after a crash in between the thread can be seen, and deleted again.
        with self.database.hold(checked_thread_id(thread_id)) as hold, hold.here():
            delete_files(self, self.entries, thread_id)
            self.entries.delete_thread(thread_id)
            self._delete_queued(thread_id)
            self.database.do(partial(super().delete_thread, thread_id), hold)

    def _delete_queued(self, thread_id: str) -> None:
        """Deletes the thread's place in the queue of the workers, which SQLite does not have."""

    def _write(self, config: RunnableConfig, write: Callable[[], _T]) -> _T:
        configurable = config["configurable"]
        with self.database.hold_to_write(configurable["thread_id"], configurable) as hold:
            try:
                return self.database.do(write, hold)
            except TypeError as error:
                raise StorageError(f"What is stored is messages and plain values: {error}.") from error


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
    abatch = async_form("batch")

    def __init__(self, database: Database) -> None:
        super().__init__(database.conn)  # type: ignore[call-arg]  # of LangGraph's store
        self.database = database
        # As in ThreadSaver.
        self.lock: Any = nullcontext()
        database.users.append(self)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        sanitized = [_sanitized(op) for op in ops]
        # LangGraph's own would read and write in one transaction, as one who reads at first.
        reads = [op for op in sanitized if not isinstance(op, PutOp)]
        if reads and len(reads) < len(sanitized):
            results = iter(self.batch(reads))
            self.batch([op for op in sanitized if isinstance(op, PutOp)])
            return [None if isinstance(op, PutOp) else next(results) for op in sanitized]
        work: Callable[[], list[Result]] = partial(super().batch, sanitized)  # type: ignore[safe-super]
        return self._write([op.namespace for op in sanitized if isinstance(op, PutOp)], work)

    def swap(
        self, namespace: tuple[str, ...], key: str, before: dict[str, Any] | None, after: dict[str, Any]
    ) -> bool:
        """Replaces the value by `after` if it is still `before` (None: no entry); returns whether it did.

        Atomic over threads and processes: of two that claim the same entry one gets it.
        """
        place = valid_text(".".join(namespace)), valid_text(key)
        known = None if before is None else as_json(before)
        return self._write([namespace], partial(self.swap_now, *place, known, as_json(after)))

    def delete_thread(self, thread_id: str) -> None:
        """Deletes all entries of a thread, also those that cannot be read."""
        query = "DELETE FROM store WHERE prefix = %s"
        own = label(thread_id)
        for namespace in self.list_namespaces(prefix=("signoff", "*", own), limit=_MOST_NAMESPACES):
            # LangGraph takes a label such as "*" for any.
            if namespace[2] == own:
                self._write([namespace], partial(self.database.query, query, ".".join(namespace)))

    @abstractmethod
    def swap_now(self, prefix: str, key: str, before: Any, after: Any) -> bool:
        """Does what `swap` does, where the database may be used."""

    def _write(self, namespaces: Iterable[tuple[str, ...]], work: Callable[[], _T]) -> _T:
        owner = _owner(namespaces)
        if owner is None:
            return self.database.do(work)
        with self.database.hold_to_write(owner, {}) as hold:
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


def _sanitized(op: Op) -> Op:
    if not isinstance(op, PutOp | GetOp):
        return op
    op = op._replace(namespace=tuple(map(valid_text, op.namespace)), key=valid_text(op.key))
    return op if isinstance(op, GetOp) or op.value is None else op._replace(value=as_json(op.value))


def as_json(value: Any) -> Any:
    """The value as every database gives it back. Raises StorageError for one that none can keep."""
    try:
        return valid_values(json.loads(json.dumps(value, allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise StorageError(f"What is stored is JSON: {error}.") from error
