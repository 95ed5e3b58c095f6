"""What every storage offers: its threads as rows, a hold on one of them, and deleting one whole."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from signoff.graph.compiled.graph import is_running, storage_errors
from signoff.graph.errors import SetupError, StorageError, ThreadError
from signoff.graph.foreign import checked_thread_id

if TYPE_CHECKING:
    from signoff.graph.outcome import Outcome
    from signoff.session.decisions import AnyWaiting
    from signoff.session.status import Condition


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


@dataclass(frozen=True)
class Storage:
    """A checkpointer and a store on one database: `sqlite_storage(path)` or `postgres_storage(url)`.

    It is open; `close()` or the end of a `with` block closes it, and with it the shells, interpreters and MCP
    servers of the graphs that were built with it.
    """

    checkpointer: BaseCheckpointSaver[Any]
    store: BaseStore
    _opened: ExitStack = field(default_factory=ExitStack, repr=False, compare=False)

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
        if condition is not None and (not isinstance(condition, str) or condition not in words):
            raise SetupError(f"threads(condition=) takes one of {', '.join(words)}, not {condition!r:.80}.")
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise SetupError(f"threads(limit=) takes a whole number, at least 1, not {limit!r:.80}.")
        wanted = None if condition is None else Condition(condition)
        with storage_errors():
            return [*islice(self._rows(wanted, _place(before)), limit)]

    async def athreads(
        self,
        condition: "Condition | str | None" = None,
        *,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[ThreadRow]:
        """`threads` for an event loop."""
        return await asyncio.to_thread(self.threads, condition, limit=limit, before=before)

    def runner(self, thread_id: str) -> AbstractContextManager[None]:
        """Holds the thread during a `with` block, so that nothing else in any process runs it. Raises
        ThreadBusy if something does."""
        hold: AbstractContextManager[None] = self._saver.runner(checked_thread_id(thread_id))
        return hold

    def swap(
        self, namespace: tuple[str, ...], key: str, before: dict[str, Any] | None, after: dict[str, Any]
    ) -> bool:
        """Replaces an entry of the store by `after` if it is still `before` (None: there is none); returns
        whether it did. Atomic over threads and processes."""
        with storage_errors():
            store: Any = self.store
            return bool(store.swap(namespace, key, before, after))

    def delete(self, thread_id: str) -> None:
        """Deletes the thread and all that is stored of it, if it exists. Raises ThreadBusy while it runs."""
        with storage_errors():
            self.checkpointer.delete_thread(checked_thread_id(thread_id))

    def close(self) -> None:
        """Closes the database, and what tools hold open. A second time it does nothing."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _saver(self) -> Any:
        return self.checkpointer

    def _rows(self, wanted: "Condition | None", before: tuple[str, str] | None) -> Iterator[ThreadRow]:
        from signoff.session.status import Condition

        for checkpoint_id, thread_id in self._saver.newest_first():
            if before is not None and (checkpoint_id, thread_id) >= before:
                continue
            # Asked first: otherwise a run that ends in between would look as if it had been stopped.
            running = is_running(self.checkpointer, thread_id)
            if wanted is not None and running is not (wanted is Condition.RUNNING):
                continue
            row = _row(self, thread_id, f"{checkpoint_id}{_BETWEEN}{thread_id}", running=running)
            if wanted in (None, row.condition):
                yield row


_BETWEEN = "/"


def _place(cursor: str | None) -> tuple[str, str] | None:
    """The newest checkpoint and the thread of a cursor."""
    if cursor is None:
        return None
    checkpoint_id, between, thread_id = (
        cursor.partition(_BETWEEN) if isinstance(cursor, str) else ("", "", "")
    )
    if not (checkpoint_id and between and thread_id):
        raise SetupError(f"threads(before=) takes the cursor of a row, not {cursor!r:.80}.")
    return checkpoint_id, thread_id


def _row(storage: Storage, thread_id: str, cursor: str, *, running: bool) -> ThreadRow:
    from signoff.session.status import Condition, look, reading_graph, running_now

    try:
        status = look(reading_graph(storage), thread_id)
    except (StorageError, ThreadError):
        return ThreadRow(thread_id, Condition.UNKNOWN, cursor=cursor)
    status = running_now(status) if running else status
    task = status.task.messages[0].text if status.task.messages else ""
    return ThreadRow(
        thread_id,
        status.condition,
        next(iter(task.strip().splitlines()), ""),
        status.waits,
        status.outcome,
        status.changed,
        cursor,
    )
