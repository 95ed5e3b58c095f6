"""What every storage offers: its threads as rows, a hold on one of them, and deleting one whole.

The row of a thread is an entry of the store, written when a runner takes the thread (`running`) and when it
lets go (how it stands then), so that a list reads no checkpoints. It names the checkpoint that it describes.
A row that is not of the newest one, or says `running` while nobody holds the thread, is read anew and mended.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore, GetOp

from signoff.graph.compiled.holds import Hold, closed
from signoff.graph.errors import SetupError, ThreadBusy, ThreadError, Unreadable
from signoff.graph.foreign import checked_thread_id, label

if TYPE_CHECKING:
    from signoff.graph.outcome import Outcome
    from signoff.session.decisions import AnyWaiting
    from signoff.session.status import Condition

ROWS = "rows"
_KEY, _PAGE, _RUNNING = "row", 200, "running"


@dataclass(frozen=True)
class ThreadRow:
    """One thread in the list of a storage.

    condition: `unknown` for a thread that cannot be read. task: the first line of the current task. waits:
    what it waits for, as in `Session.status()`. outcome: how the task ended. changed: ISO 8601. cursor: for
    `threads(before=)`, to list what comes after this row.
    """

    thread_id: str
    condition: "Condition"
    task: str = ""
    waits: tuple["AnyWaiting", ...] = ()
    outcome: "Outcome | None" = None
    changed: str = ""
    cursor: str = ""


@dataclass(eq=False)
class Storage:
    """A checkpointer and a store on one database: `sqlite_storage(path)` or `postgres_storage(url)`.

    It is open; `close()` or the end of a `with` block closes it, and with it the shells, interpreters and MCP
    servers of the graphs that were built with it.
    """

    checkpointer: BaseCheckpointSaver[Any]
    store: BaseStore
    is_open: bool = field(default=True, init=False, repr=False)
    _close: Callable[[], None] = field(default=lambda: None, repr=False)

    def threads(
        self,
        condition: "Condition | str | None" = None,
        *,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[ThreadRow]:
        """The threads, the one changed last first.

        condition: only those that stand so: running, waiting, paused, stopped, ended or unknown. limit: at
        most so many; all by default. before: the `cursor` of a row; lists what comes after that row.
        """
        # Most users of a storage list nothing, and this imports the whole graph.
        from signoff.session.status import Condition

        words = [str(each) for each in Condition]
        if condition is not None and condition not in words:
            raise SetupError(f"threads(condition=) takes one of {', '.join(words)}, not {condition!r:.80}.")
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise SetupError(f"threads(limit=) takes a whole number, at least 1, not {limit!r:.80}.")
        place = _place(before)
        if not self.is_open:
            raise closed()
        rows = (row for row in self._rows(place) if condition in (None, row.condition))
        return [*islice(rows, limit)]

    async def athreads(
        self,
        condition: "Condition | str | None" = None,
        *,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[ThreadRow]:
        """`threads` for an event loop."""
        return await asyncio.to_thread(self.threads, condition, limit=limit, before=before)

    def runner(self, thread_id: str) -> AbstractContextManager[object]:
        """Holds the thread during a `with` block, so that nothing else in any process runs it. Raises
        ThreadBusy if something does."""
        hold: AbstractContextManager[object] = self._saver.runner(checked_thread_id(thread_id))
        return hold

    def swap(
        self, namespace: tuple[str, ...], key: str, before: dict[str, Any] | None, after: dict[str, Any]
    ) -> bool:
        """Replaces an entry of the store by `after` if it is still `before` (None: there is none); returns
        whether it did. Atomic over threads and processes."""
        store: Any = self.store
        return bool(store.swap(namespace, key, before, after))

    def delete(self, thread_id: str) -> None:
        """Deletes the thread and all that is stored of it, if it exists. Raises ThreadBusy while it runs."""
        self.checkpointer.delete_thread(thread_id)

    def close(self) -> None:
        """Closes the database, and what tools hold open. A second time it does nothing."""
        # Most users of this package open no database.
        from signoff.tools.processes.held import end_with

        self.is_open = False
        end_with(self.checkpointer)
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    @property
    def _saver(self) -> Any:
        return self.checkpointer

    def _rows(self, before: tuple[str, str] | None) -> Iterator[ThreadRow]:
        newest = [place for place in self._saver.newest_first() if before is None or place < before]
        for start in range(0, len(newest), _PAGE):
            page = newest[start : start + _PAGE]
            items: Any = self.store.batch([GetOp(*_entry(thread_id)) for _, thread_id in page])
            for (checkpoint_id, thread_id), item in zip(page, items, strict=True):
                value: Mapping[str, Any] | None = item and item.value
                if value is None or value["checkpoint"] != checkpoint_id or value["condition"] == _RUNNING:
                    value = self._mended(thread_id, value)
                yield _row_of(thread_id, value, f"{checkpoint_id}/{thread_id}")

    def _mended(self, thread_id: str, known: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """The row of a thread that runs, was killed, or was written without one."""
        # Asked first: otherwise a run that ends in between would look as if it had been stopped.
        is_running = self._saver.is_running(thread_id)
        value = row(self.checkpointer, self.store, thread_id)
        if is_running:
            return {**value, "condition": _RUNNING, "waits": [], "outcome": None}
        if value != known:
            # It is mended later where somebody has begun to run the thread.
            with suppress(ThreadBusy):
                self.store.put(*_entry(thread_id), value)
        return value


def _entry(thread_id: str) -> tuple[tuple[str, ...], str]:
    return ("signoff", ROWS, label(thread_id)), _KEY


@contextmanager
def row_kept(saver: BaseCheckpointSaver[Any], store: BaseStore, hold: Hold) -> Iterator[None]:
    """Keeps the row of a thread that is held for a run."""
    entry = _entry(hold.thread_id)
    with hold.here():
        store.put(*entry, {"checkpoint": "", "condition": _RUNNING})
    try:
        yield
    finally:
        # A row that cannot be written now is mended by whoever lists it; what ended the run is reported.
        with suppress(Exception), hold.here():
            value = row(saver, store, hold.thread_id)
            # A run that has saved nothing has made no thread.
            store.put(*entry, value) if value["checkpoint"] else store.delete(*entry)


def row(saver: BaseCheckpointSaver[Any], store: BaseStore, thread_id: str) -> dict[str, Any]:
    """How a thread stands that nobody runs, read from its newest checkpoint."""
    # These import the whole graph.
    from signoff.session.status import Condition, Standing, look, reading_graph

    try:
        status = look(reading_graph(Storage(saver, store)), thread_id)
    except (Unreadable, ThreadError):
        newest = saver.get_tuple({"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}})
        checkpoint_id = newest.config["configurable"]["checkpoint_id"] if newest else ""
        return {"checkpoint": checkpoint_id, "condition": str(Condition.UNKNOWN)}
    assert isinstance(status, Standing), "nobody was asked whether it runs"
    task = status.task.messages[0].text if status.task.messages else ""
    return {
        "checkpoint": status.checkpoint_id,
        "condition": str(status.condition),
        "task": next(iter(task.strip().splitlines()), ""),
        "waits": [
            [wait.interrupt_id, status.asked[wait.interrupt_id], wait._reply_id] for wait in status.waits
        ],
        "outcome": None if status.outcome is None else status.outcome.model_dump(mode="json"),
        "changed": status.changed,
    }


def _row_of(thread_id: str, value: Mapping[str, Any], cursor: str) -> ThreadRow:
    from signoff.graph.outcome import Outcome
    from signoff.session.decisions import waiting_of
    from signoff.session.status import Condition

    outcome = value.get("outcome")
    return ThreadRow(
        thread_id,
        Condition(value["condition"]),
        value.get("task", ""),
        tuple(
            replace(waiting_of(interrupt_id, asked), _reply_id=reply_id)
            for interrupt_id, asked, reply_id in value.get("waits", ())
        ),
        outcome and Outcome.model_validate(outcome),
        value.get("changed", ""),
        cursor,
    )


def _place(cursor: str | None) -> tuple[str, str] | None:
    """The newest checkpoint and the thread of a cursor."""
    if cursor is None:
        return None
    if isinstance(cursor, str):
        checkpoint_id, _, thread_id = cursor.partition("/")
        # A thread of which a kill has left only what is below it has no checkpoint of its own.
        if thread_id:
            return checkpoint_id, thread_id
    raise SetupError(f"threads(before=) takes the cursor of a row, not {cursor!r:.80}.")
