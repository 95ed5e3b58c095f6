"""What our checkpointers and stores share: async runs by worker threads, and short version strings."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.store.base import BaseStore, Op, Result


class SaverInThreads(BaseCheckpointSaver[str]):
    """A synchronous checkpointer that async runs can use: each call runs in a worker thread."""

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        for found in await asyncio.to_thread(
            lambda: list(self.list(config, filter=filter, before=before, limit=limit))
        ):
            yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> dict[str, DeltaChannelHistory]:
        return dict(
            await asyncio.to_thread(lambda: self.get_delta_channel_history(config=config, channels=channels))
        )

    def get_next_version(self, current: str | None, channel: None) -> str:
        """LangGraph's version strings, shorter: every checkpoint holds about twenty of them. The number
        orders them, the random part tells forks apart."""
        number = int(current.partition(".")[0]) if current else 0
        return f"{number + 1:010}.{random.getrandbits(32):08x}"


class StoreInThreads(BaseStore):
    """A synchronous store that async runs can use: each batch runs in a worker thread."""

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await asyncio.to_thread(self.batch, list(ops))
