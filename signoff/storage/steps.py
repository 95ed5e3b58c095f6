"""Saves a super-step as a whole: the writes of its state and the next checkpoint, in one transaction.

LangGraph saves the writes of a node as soon as it has run, and the checkpoint right after. Where one state
runs at a time nothing happens between the two, so the writes may wait for the checkpoint. If the process is
killed in between, the state runs again: its effects are in the journal by then.

What a state changes in an entry of the store that belongs to the thread may wait, too (`HeldEntry`), if the
checkpoint is saved before the next state begins.
"""

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP, ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.store.base import BaseStore

from signoff.graph.errors import ThreadLost
from signoff.nodes.delegates.descent import is_machine
from signoff.storage.base import SaverInThreads

Statement = tuple[str, Sequence[Any]]
"""SQL, and the rows of parameters to execute it with."""

_OF_A_NODE = "~__pregel_pull, "
"""The prefix of a node's task path in LangGraph; a task that a node has started has another prefix."""


class Recorder:
    """Stands in for a cursor and records its statements."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []

    def execute(self, query: str, parameters: Sequence[Any] = ()) -> None:
        self.statements.append((query, [parameters]))

    def executemany(self, query: str, rows: Sequence[Any]) -> None:
        self.statements.append((query, list(rows)))


_recorder: ContextVar[Recorder | None] = ContextVar("_recorder", default=None)


def recorder() -> Recorder | None:
    """Returns the recorder to use instead of a cursor now; None for a real cursor."""
    return _recorder.get()


def recorded(write: Callable[[], Any]) -> list[Statement]:
    """Returns the statements that `write` would execute, without executing them."""
    found = Recorder()
    # A context of its own is left correctly wherever a signal interrupts it.
    copy_context().run(_record, found, write)
    return found.statements


def _record(found: Recorder, write: Callable[[], Any]) -> None:
    _recorder.set(found)
    write()


_T = TypeVar("_T")
Value = dict[str, Any]
EntryName = tuple[tuple[str, ...], str]
"""The namespace and the key of an entry in the store."""


class HeldEntry:
    """An entry of the store that nobody but the runner of a thread changes, while it runs.

    It is read once; from then on this object has its value. What is changed is saved together with whatever
    of the thread is saved next.
    """

    def __init__(self, read: Callable[[], Value | None]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._value: Value | None = None
        self._changes = self._saved = 0
        self.is_read = False

    def change(self, edit: Callable[[Value | None], tuple[Value, _T]]) -> _T:
        """Replaces the value by what `edit` makes of it; returns its result.

        Reads the database for the first change. `edit` must leave the value that it is given as it is.
        """
        with self._lock:
            if not self.is_read:
                self._value, self.is_read = self._read(), True
            after, found = edit(self._value)
            if after != self._value:
                self._value, self._changes = after, self._changes + 1
        return found

    @property
    def waits(self) -> bool:
        """Whether there is something to save."""
        return self._changes != self._saved

    def unsaved(self) -> tuple[int, Value] | None:
        """Returns the number of the last change, and the value; None if there is nothing to save."""
        with self._lock:
            if self._changes == self._saved or self._value is None:
                return None
            return self._changes, self._value

    def is_saved(self, number: int) -> None:
        self._saved = number


Held = dict[int, Statement]
"""The waiting statements, numbered in the order in which they were written."""


@dataclass(eq=False)
class HeldSteps:
    """What waits in one run of a thread.

    in_order: held while something is saved with entries, of which an older value must not follow a newer one.
    """

    writes: Held = field(default_factory=dict)
    entries: dict[EntryName, HeldEntry] = field(default_factory=dict)
    keeps_entries: bool = False
    in_order: threading.Lock = field(default_factory=threading.Lock)

    def unsaved(self) -> list[tuple[EntryName, int, Value]]:
        """Returns the entries to save, each with the number of its last change."""
        waiting = [(name, entry) for name, entry in self.entries.copy().items() if entry.waits]
        return [(name, *one) for name, entry in waiting if (one := entry.unsaved()) is not None]

    def waits(self) -> bool:
        return bool(self.writes) or bool(self.unsaved())


class HeldWrites:
    """What waits for its checkpoint, by thread; only for threads inside `whole_steps`.

    Writes have no lock, which a signal could leave held: each line changes one dict once, which is atomic in
    Python. Writes are removed only after they were saved, so that none gets lost in between; writes that two
    callers save at once are in the database once, because none of them replaces anything.
    """

    def __init__(self) -> None:
        self._by_thread: dict[str, HeldSteps] = {}
        self._numbers = itertools.count()

    def begin(self, thread_id: str, held: HeldSteps) -> None:
        self._by_thread[thread_id] = held

    def end(self, thread_id: str, held: HeldSteps) -> None:
        # Not the entry of a run that began after this one was interrupted.
        if self._by_thread.get(thread_id) is held:
            self._by_thread.pop(thread_id, None)

    def add(self, thread_id: str, statements: Iterable[Statement]) -> bool:
        """Adds statements; returns False if the run has ended meanwhile, and they are not held."""
        held = self._by_thread.get(thread_id)
        if held is None:
            return False
        for statement in statements:
            held.writes[next(self._numbers)] = statement
        # If the run ended before the last statement was added, nothing would save it any more.
        return self._by_thread.get(thread_id) is held

    def of(self, thread_id: str) -> HeldSteps | None:
        return self._by_thread.get(thread_id)

    def runs(self, thread_id: str) -> bool:
        """Whether new writes of the thread are held."""
        return thread_id in self._by_thread

    def there(self, thread_id: str) -> bool:
        held = self._by_thread.get(thread_id)
        return held is not None and held.waits()

    def threads(self) -> list[str]:
        return [thread_id for thread_id, held in self._by_thread.copy().items() if held.waits()]


class StepSaver(SaverInThreads):
    """A SQL checkpointer that saves the writes of a state together with the next checkpoint.

    It does so only inside `whole_steps`. Reads through this checkpointer include the waiting writes.
    entries: the store in the same database, whose entries may be saved with a checkpoint.
    """

    entries: BaseStore | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._held = HeldWrites()

    def save(self, thread_id: str, statements: Sequence[Statement]) -> None:
        """Executes the statements in one transaction."""
        raise NotImplementedError

    def entry_saved(self, name: EntryName, value: Mapping[str, Any]) -> Statement:
        """Returns the statement that saves an entry of the store."""
        raise NotImplementedError

    def record(self, thread_id: str, write: Callable[[], Any]) -> list[Statement]:
        """Returns the statements by which `write` writes to the thread."""
        return recorded(write)

    def in_turn(self, work: Callable[[], Any]) -> Any:
        """Runs `work` where no signal can interrupt it."""
        return work()

    @contextmanager
    def whole_steps(self, thread_id: str, *, keeps_entries: bool = False) -> Iterator[None]:
        """Lets the writes of a state wait for their checkpoint inside the block.

        For a run that holds the thread and runs one state at a time. Saves at the end whatever still waits.
        keeps_entries: entries of the store may wait, too, since each checkpoint is saved before the next
        state begins.
        """
        held = HeldSteps(keeps_entries=keeps_entries)
        try:
            self._held.begin(thread_id, held)
            yield
        except BaseException:
            # Report what ended the run, not that the database still fails.
            with suppress(Exception):
                self.save_held(thread_id)
            raise
        else:
            self.save_held(thread_id)
        finally:
            try:
                self._held.end(thread_id, held)
            finally:
                # Should an interrupt have come to the line above.
                self._held.end(thread_id, held)

    def entry(self, thread_id: str, store: BaseStore | None, name: EntryName) -> HeldEntry | None:
        """Returns an entry of `store` that only the runner of the thread changes.

        None if it cannot be saved with the thread's checkpoints: it is in another database, the thread does
        not run in `whole_steps`, or its checkpoints may be saved later.
        """
        held = self._held.of(thread_id)
        if held is None or not held.keeps_entries or store is None or store is not self.entries:
            return None
        found = held.entries.get(name)
        return found or held.entries.setdefault(name, HeldEntry(lambda: _value_in(store, name)))

    def holds(self, thread_id: str) -> bool:
        """Whether something of the thread waits for its checkpoint."""
        return self._held.there(thread_id)

    def save_held(self, thread_id: str) -> None:
        """Saves the waiting writes."""
        if self._held.there(thread_id):
            self.in_turn(lambda: self._save(thread_id, []))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        configurable = config["configurable"]
        if self._held.runs(configurable["thread_id"]):
            _leave_copies_to_channel(metadata)
        self._write(
            configurable["thread_id"],
            lambda: super(StepSaver, self).put(config, checkpoint, metadata, new_versions),
        )
        names = ("thread_id", "checkpoint_ns")
        return {"configurable": {**{n: configurable[n] for n in names}, "checkpoint_id": checkpoint["id"]}}

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        thread_id = config["configurable"]["thread_id"]
        found = self.record(
            thread_id, lambda: super(StepSaver, self).put_writes(config, writes, task_id, task_path)
        )
        if not (_may_wait(config, writes, task_path) and self._held.add(thread_id, found)):
            self.in_turn(lambda: self._save(thread_id, found))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        if _may_wait(config, writes, task_path) and self._held.runs(config["configurable"]["thread_id"]):
            self.put_writes(config, writes, task_id, task_path)
        else:
            await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    def save_all_held(self, config: RunnableConfig | None) -> None:
        """Saves the waiting writes of the thread that is about to be read, or of all threads."""
        asked = None if config is None else config["configurable"].get("thread_id")
        for thread_id in self._held.threads() if asked is None else [asked]:
            # For a thread that another runner has taken, only what is in the database counts.
            with suppress(ThreadLost):
                self.save_held(thread_id)

    def _write(self, thread_id: str, write: Callable[[], Any]) -> None:
        statements = self.record(thread_id, write)
        self.in_turn(lambda: self._save(thread_id, statements))

    def _save(self, thread_id: str, statements: Sequence[Statement]) -> None:
        """Saves the statements after the waiting ones, and the entries."""
        held = self._held.of(thread_id)
        if held is None:
            self.save(thread_id, statements)
            return
        # An entry that begins to wait from now on is saved by whoever changes it.
        has_entries = bool(held.entries)
        with held.in_order if has_entries else nullcontext():
            writes, changed = held.writes.copy(), held.unsaved() if has_entries else []
            entries = [self.entry_saved(name, value) for name, _, value in changed]
            if writes or statements or entries:
                self.save(thread_id, [*writes.values(), *statements, *entries])
            for number in writes:
                held.writes.pop(number, None)
            for name, number, _ in changed:
                held.entries[name].is_saved(number)


def _value_in(store: BaseStore, name: EntryName) -> Value | None:
    item = store.get(*name)
    return None if item is None else item.value


_COUNTERS, _HISTORY, _MOST_STEPS = "counters_since_delta_snapshot", "messages", 2_500


def _leave_copies_to_channel(metadata: CheckpointMetadata) -> None:
    """Keeps LangGraph from copying the whole history every 5,000 steps.

    With those copies the size of a long thread would grow with the square of its length; `HistoryChannel`
    makes copies in proportion to it. LangGraph continues counting from the value here. If it ever counts
    elsewhere, it copies as often as before.
    """
    counters = metadata.get(_COUNTERS)
    if isinstance(counters, dict) and _HISTORY in counters:
        updates, steps = counters[_HISTORY]
        counters[_HISTORY] = (updates, min(steps, _MOST_STEPS))


def _may_wait(config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_path: str) -> bool:
    """Whether the checkpoint follows at once; none does after an error, an interrupt or a resume value."""
    return (
        task_path.startswith(_OF_A_NODE)
        and is_machine(config["configurable"])
        and not any(channel in WRITES_IDX_MAP for channel, _ in writes)
    )
