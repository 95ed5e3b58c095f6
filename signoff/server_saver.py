"""A checkpointer of ours as a LangGraph server uses it.

The server wraps every checkpointer that it is given, and its wrapper makes the channels' version strings by a
rule of its own, wider than ours. LangGraph orders versions as strings, so one thread must not hold both: the
newer would count as the older, and the next state would never run. What the server saves is therefore
written with our short strings, and what it reads is given with its wide ones.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.store.base import BaseStore

from signoff.session.session import Session
from signoff.session.standing import reading_graph


class SaverStorage(Protocol):
    """A checkpointer of `signoff.storage.base` and its store."""

    @property
    def checkpointer(self) -> Any: ...

    @property
    def store(self) -> BaseStore: ...


class ServerSaver(BaseCheckpointSaver[str]):
    """The checkpointer of `storage`, for async use by the server alone."""

    def __init__(self, storage: SaverStorage) -> None:
        super().__init__(serde=storage.checkpointer.serde)
        self.storage = storage
        self.saver: BaseCheckpointSaver[str] = storage.checkpointer

    def runner(self, thread_id: str) -> AbstractContextManager[None]:
        """Holds the thread, so that no other runner of any process can. Raises ThreadBusy."""
        held: AbstractContextManager[None] = self.storage.checkpointer.runner(thread_id)
        return held

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        found = await self.saver.aget_tuple(config)
        return found and _widened(found)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        async for found in self.saver.alist(config, filter=filter, before=before, limit=limit):
            yield _widened(found)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        new = _each(new_versions, narrow)
        return await self.saver.aput(config, _with_versions(checkpoint, narrow), metadata, new)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self.saver.aput_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await self.saver.adelete_thread(thread_id)

    async def adelete_for_runs(self, run_ids: Iterable[str]) -> None:
        """Raises ValueError, whose words the server passes on."""
        raise ValueError(
            "A run is not rolled back: what its tools have done stays done, and its steps are the record of "
            "it. Use the multitask strategy 'interrupt' in place of 'rollback'."
        )

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies a thread as it stands now, with what the journal says of its open calls: a copy without it
        would repeat effects."""

        def copy() -> None:
            Session(reading_graph(self.storage), source_thread_id).fork(None, target_thread_id)

        await asyncio.to_thread(copy)

    def get_next_version(self, current: str | None, channel: None) -> str:
        # The server asks its own wrapper; other callers must not mix the two kinds.
        return wide(self.saver.get_next_version(narrow(current) if current else None, None))


def wide(version: str) -> str:
    """Our version string as the server's: the same number, in 32 digits."""
    number, _, rest = version.partition(".")
    return f"{int(number):032}.{rest}"


def narrow(version: str) -> str:
    """The server's version string as ours: the same number, and a hash of what tells forks apart. One that
    came from us comes back as it was."""
    number, _, rest = version.partition(".")
    own = rest if len(rest) == 8 else f"{zlib.crc32(rest.encode()):08x}"
    return f"{int(number):010}.{own}"


def _widened(found: CheckpointTuple) -> CheckpointTuple:
    return found._replace(checkpoint=_with_versions(found.checkpoint, wide))


def _with_versions(checkpoint: Checkpoint, how: Callable[[str], str]) -> Checkpoint:
    changed = checkpoint.copy()
    changed["channel_versions"] = _each(checkpoint["channel_versions"], how)
    changed["versions_seen"] = {node: _each(seen, how) for node, seen in checkpoint["versions_seen"].items()}
    return changed


def _each(versions: ChannelVersions, how: Callable[[str], str]) -> ChannelVersions:
    return {channel: how(str(version)) for channel, version in versions.items()}
