"""The checkpointer of a SQLite file."""

import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.sqlite import SqliteSaver

from signoff.locks import is_locked, thread_lock
from signoff.savers import SaverInThreads


class ThreadSaver(SaverInThreads, SqliteSaver):
    """LangGraph's SQLite checkpointer, usable from async runs too: each call runs in a worker thread.

    It knows its file, beside which the lock of each thread is kept.
    """

    def __init__(self, connection: sqlite3.Connection, file: Path, serde: SerializerProtocol) -> None:
        super().__init__(connection, serde=serde)
        self.file = file

    def runner(self, thread_id: str) -> AbstractContextManager[None]:
        """Holds the thread, so that no other runner of any process can. Raises ThreadBusy."""
        return thread_lock(self.file, thread_id)

    def is_running(self, thread_id: str) -> bool:
        """Whether some process runs the thread now."""
        return is_locked(self.file, thread_id)

    def threads(self) -> list[str]:
        """The ids of all threads, the one changed last first."""
        with self.cursor(transaction=False) as cursor:
            cursor.execute(
                "SELECT thread_id FROM checkpoints GROUP BY thread_id ORDER BY MAX(checkpoint_id) DESC"
            )
            return [row[0] for row in cursor.fetchall()]
