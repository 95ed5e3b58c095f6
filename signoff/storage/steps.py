"""Saves a step as a whole: what its state wrote, and the checkpoint that follows, in one transaction.

LangGraph saves what a node wrote as soon as it has run, and the checkpoint right after. Where one state runs
at a time nothing happens between the two, so the writes may wait for the checkpoint. A process that is
killed in that moment runs the state again: its effects are in the journal by then.
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
"""SQL, and the rows of parameters that it is carried out with."""

_OF_A_NODE = "~__pregel_pull, "
"""How LangGraph begins the path of a node; that of a task which a node has started begins otherwise."""


class Recorder:
    """Stands in for a cursor, and keeps what is written by it."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []

    def execute(self, query: str, parameters: Sequence[Any] = ()) -> None:
        self.statements.append((query, [parameters]))

    def executemany(self, query: str, rows: Sequence[Any]) -> None:
        self.statements.append((query, list(rows)))


_recorder: ContextVar[Recorder | None] = ContextVar("_recorder", default=None)


def recorder() -> Recorder | None:
    """What a cursor that is asked for now is to be; None for a real one."""
    return _recorder.get()


def recorded(write: Callable[[], Any]) -> list[Statement]:
    """What `write` writes by a cursor, which is not carried out."""
    found = Recorder()
    # A context of its own is left whatever interrupts it, and wherever.
    copy_context().run(_record, found, write)
    return found.statements


def _record(found: Recorder, write: Callable[[], Any]) -> None:
    _recorder.set(found)
    write()


Held = dict[int, Statement]
"""What waits, numbered in the order in which it was written."""


class HeldWrites:
    """What waits for its checkpoint, by thread; only for threads that are run step by step now.

    Without a lock, which an interrupt could leave held: each line changes one dict once, which Python does as
    a whole. What is saved is taken out only afterwards, so that it cannot get lost in between; what two save
    at once is in the database once, as none of it replaces anything.
    """

    def __init__(self) -> None:
        self._by_thread: dict[str, Held] = {}
        self._numbers = itertools.count()

    def begin(self, thread_id: str, held: Held) -> None:
        self._by_thread[thread_id] = held

    def end(self, thread_id: str, held: Held) -> None:
        # Not that of a run that has begun since this one was interrupted.
        if self._by_thread.get(thread_id) is held:
            self._by_thread.pop(thread_id, None)

    def add(self, thread_id: str, statements: Iterable[Statement]) -> bool:
        """Whether they are held. They are not when the run has come to its end meanwhile."""
        held = self._by_thread.get(thread_id)
        if held is None:
            return False
        for statement in statements:
            held[next(self._numbers)] = statement
        # Had the run ended before the last one was there, nobody might save it any more.
        return self._by_thread.get(thread_id) is held

    def of(self, thread_id: str) -> Held:
        """A copy of what waits now."""
        held = self._by_thread.get(thread_id)
        return held.copy() if held else {}

    def are_saved(self, thread_id: str, numbers: Iterable[int]) -> None:
        held = self._by_thread.get(thread_id, {})
        for number in numbers:
            held.pop(number, None)

    def runs(self, thread_id: str) -> bool:
        """Whether what comes is held."""
        return thread_id in self._by_thread

    def there(self, thread_id: str) -> bool:
        return bool(self._by_thread.get(thread_id))

    def threads(self) -> list[str]:
        return [thread_id for thread_id, held in self._by_thread.copy().items() if held]


class StepSaver(SaverInThreads):
    """A checkpointer over SQL that saves what a state wrote together with the checkpoint that follows.

    It does so only inside `whole_steps`. What is read of a thread, by this checkpointer, is everything.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._held = HeldWrites()

    def save(self, thread_id: str, statements: Sequence[Statement]) -> None:
        """Carries them out in one transaction."""
        raise NotImplementedError

    def record(self, thread_id: str, write: Callable[[], Any]) -> list[Statement]:
        """What `write` writes to the thread."""
        return recorded(write)

    def in_turn(self, work: Callable[[], Any]) -> Any:
        """Does the work where no interrupt can cut it short."""
        return work()

    @contextmanager
    def whole_steps(self, thread_id: str) -> Iterator[None]:
        """For a run that holds the thread, and runs one state at a time: meanwhile the writes of a state may
        wait for their checkpoint. Whatever still waits in the end is saved then."""
        held: Held = {}
        try:
            self._held.begin(thread_id, held)
            yield
        except BaseException:
            # What ended the run is told, and not that a database which failed still does.
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
        """Whether something of the thread waits for its checkpoint."""
        return self._held.there(thread_id)

    def save_held(self, thread_id: str) -> None:
        """Saves what waits."""
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
        """Saves what waits of the thread that is to be read, or of all."""
        asked = None if config is None else config["configurable"].get("thread_id")
        for thread_id in self._held.threads() if asked is None else [asked]:
            # Of a thread that another runner has taken, the database tells all that counts.
            with suppress(ThreadLost):
                self.save_held(thread_id)

    def _write(self, thread_id: str, write: Callable[[], Any]) -> None:
        statements = self.record(thread_id, write)
        self.in_turn(lambda: self._save(thread_id, statements))

    def _save(self, thread_id: str, statements: Sequence[Statement]) -> None:
        """Saves them after what waits."""
        held = self._held.of(thread_id)
        if held or statements:
            self.save(thread_id, [*held.values(), *statements])
            self._held.are_saved(thread_id, held)


_COUNTERS, _HISTORY, _MOST_STEPS = "counters_since_delta_snapshot", "messages", 2_500


def _leave_copies_to_channel(metadata: CheckpointMetadata) -> None:
    """Keeps LangGraph from copying the whole history whenever 5,000 steps are over, which lets the place of a
    long thread grow with the square of its length: `HistoryChannel` has copies in proportion to it.

    LangGraph counts on from what stands here. Should it once count elsewhere, it copies as often as before.
    """
    counters = metadata.get(_COUNTERS)
    if isinstance(counters, dict) and _HISTORY in counters:
        updates, steps = counters[_HISTORY]
        counters[_HISTORY] = (updates, min(steps, _MOST_STEPS))


def _may_wait(config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_path: str) -> bool:
    """Whether the checkpoint follows at once: after an error, an interrupt or an answer to one, none does."""
    return (
        task_path.startswith(_OF_A_NODE)
        and not config["configurable"].get("checkpoint_ns")
        and not any(channel in WRITES_IDX_MAP for channel, _ in writes)
    )
