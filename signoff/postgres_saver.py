"""The checkpointer in PostgreSQL."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg import Cursor
from psycopg.rows import DictRow

from signoff.nodes.journal import label
from signoff.postgres_ids import usable
from signoff.postgres_pool import Database, FencedPool, writing
from signoff.savers import SaverInThreads, strict_serde


class PostgresThreads(SaverInThreads, PostgresSaver):
    """LangGraph's PostgreSQL checkpointer, usable from sync and async runs alike, by several machines.

    What is written to a thread that is held here is written only while it is: see `runner`.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(FencedPool(database), serde=strict_serde())
        self.database = database

    def runner(self, thread_id: str) -> AbstractContextManager[None]:
        """Holds the thread, so that no other runner of any process can. Raises ThreadBusy."""
        return self.database.holds.hold(thread_id)

    def is_running(self, thread_id: str) -> bool:
        """Whether some process runs the thread now."""
        with self.database.cursor() as cursor:
            return self.database.holds.is_held(cursor, thread_id)

    def threads(self) -> list[str]:
        """The ids of all threads, the one changed last first."""
        with self.database.cursor() as cursor:
            cursor.execute(
                "SELECT thread_id FROM checkpoints GROUP BY thread_id ORDER BY max(checkpoint_id) DESC"
            )
            return [row["thread_id"] for row in cursor.fetchall()]

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        usable(config["configurable"]["thread_id"])
        return super().get_tuple(config)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        with self._writing(config["configurable"]["thread_id"]):
            return super().put(config, checkpoint, metadata, new_versions)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        with self._writing(config["configurable"]["thread_id"]):
            super().put_writes(config, writes, task_id, task_path)

    def delete_thread(self, thread_id: str) -> None:
        with self._writing(thread_id):
            super().delete_thread(thread_id)

    def _writing(self, thread_id: str) -> AbstractContextManager[None]:
        return writing((label(thread_id),))

    @contextmanager
    def _cursor(self, *, pipeline: bool = False) -> Iterator[Cursor[DictRow]]:
        """LangGraph's saver does everything by such a cursor, with `pipeline` what must be done as one. The
        name is private: a saver that asks for none like this uses the pool that it was given."""
        with self.database.cursor(together=pipeline) as cursor:
            yield cursor
