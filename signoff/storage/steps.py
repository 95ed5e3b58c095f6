"""Saves a super-step as a whole: the writes of its state and the next checkpoint, in one transaction.

LangGraph saves the writes of a node as soon as it has run, and the checkpoint right after. Where one state
runs at a time nothing happens between the two, so the writes may wait for the checkpoint. If the process is
killed in between, the state runs again: its effects are in the journal by then.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP, ChannelVersions, Checkpoint, CheckpointMetadata

from signoff.graph.errors import ThreadLost
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


Held = dict[int, Statement]
"""The waiting statements, numbered in the order in which they were written."""


class HeldWrites:
    """The writes that wait for their checkpoint, by thread; only for threads inside `whole_steps`.

    It has no lock, which a signal could leave held: each line changes one dict once, which is atomic in
    Python. Writes are removed only after they were saved, so that none gets lost in between; writes that two
    callers save at once are in the database once, because none of them replaces anything.
    """

    def __init__(self) -> None:
        self._by_thread: dict[str, Held] = {}
        self._numbers = itertools.count()

    def begin(self, thread_id: str, held: Held) -> None:
        self._by_thread[thread_id] = held

    def end(self, thread_id: str, held: Held) -> None:
        # Not the entry of a run that began after this one was interrupted.
        if self._by_thread.get(thread_id) is held:
            self._by_thread.pop(thread_id, None)

    def add(self, thread_id: str, statements: Iterable[Statement]) -> bool:
        """Adds statements; returns False if the run has ended meanwhile, and they are not held."""
        held = self._by_thread.get(thread_id)
        if held is None:
            return False
        for statement in statements:
            held[next(self._numbers)] = statement
        # If the run ended before the last statement was added, nothing would save it any more.
        return self._by_thread.get(thread_id) is held

    def of(self, thread_id: str) -> Held:
        """Returns a copy of the waiting statements."""
        held = self._by_thread.get(thread_id)
        return held.copy() if held else {}

    def are_saved(self, thread_id: str, numbers: Iterable[int]) -> None:
        held = self._by_thread.get(thread_id, {})
        for number in numbers:
            held.pop(number, None)

    def runs(self, thread_id: str) -> bool:
        """Whether new writes of the thread are held."""
        return thread_id in self._by_thread

    def there(self, thread_id: str) -> bool:
        return bool(self._by_thread.get(thread_id))

    def threads(self) -> list[str]:
        return [thread_id for thread_id, held in self._by_thread.copy().items() if held]


class StepSaver(SaverInThreads):
    """A SQL checkpointer that saves the writes of a state together with the next checkpoint.

    It does so only inside `whole_steps`. Reads through this checkpointer include the waiting writes.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._held = HeldWrites()

    def save(self, thread_id: str, statements: Sequence[Statement]) -> None:
        """Executes the statements in one transaction."""
        raise NotImplementedError

    def record(self, thread_id: str, write: Callable[[], Any]) -> list[Statement]:
        """Returns the statements by which `write` writes to the thread."""
        return recorded(write)

    def in_turn(self, work: Callable[[], Any]) -> Any:
        """Runs `work` where no signal can interrupt it."""
        return work()

    @contextmanager
    def whole_steps(self, thread_id: str) -> Iterator[None]:
        """Lets the writes of a state wait for their checkpoint inside the block.

        For a run that holds the thread and runs one state at a time. Saves at the end whatever still waits.
        """
        held: Held = {}
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

    def holds(self, thread_id: str) -> bool:
        """Whether writes of the thread wait for their checkpoint."""
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
        """Saves the statements after the waiting ones."""
        held = self._held.of(thread_id)
        if held or statements:
            self.save(thread_id, [*held.values(), *statements])
            self._held.are_saved(thread_id, held)


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
        and not config["configurable"].get("checkpoint_ns")
        and not any(channel in WRITES_IDX_MAP for channel, _ in writes)
    )
