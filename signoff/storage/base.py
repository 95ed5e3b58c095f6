"""The shared parts of checkpointers and stores: async calls in worker threads, short version strings."""

import asyncio
import random
import string
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
        """Returns the next version string. It is short: every checkpoint holds about twenty of them."""
        number = version_number(current) if current else 0
        return short_version(number + 1, self.fork_mark())

    def fork_mark(self) -> str:
        """Returns a mark that distinguishes two versions with the same number, which two forks may have."""
        return fork_mark(random.getrandbits(32))


FORK_MARK = 6
"""The length of a mark, which encodes 32 bits."""

# In sort order of text.
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase


def _in_digits(number: int) -> str:
    digits = ""
    while number:
        number, rest = divmod(number, len(_DIGITS))
        digits = _DIGITS[rest] + digits
    return digits


def fork_mark(bits: int) -> str:
    """Returns 32 bits encoded as the end of a version string."""
    return _in_digits(bits).rjust(FORK_MARK, _DIGITS[0])


def short_version(number: int, mark: str) -> str:
    """Returns a version string that sorts by its number.

    It is a letter for the number of digits, the number in base 62, and the mark of the fork. It sorts after
    the version strings of LangGraph's savers: decimal digits, a dot and a mark. These fail on a thread with
    ours instead of continuing with a lower number.
    """
    digits = _in_digits(number)
    return f"{_LENGTHS[len(digits)]}{digits}{mark}"


def version_number(version: str) -> int:
    """Returns the number of a version string, ours or one of LangGraph's savers."""
    if "." in version:
        return int(version.partition(".")[0])
    number = 0
    for digit in version[1 : _end(version)]:
        number = number * len(_DIGITS) + _DIGITS.index(digit)
    return number


def version_mark(version: str) -> str:
    """Returns the mark that distinguishes it from others with the same number."""
    return version.partition(".")[2] if "." in version else version[_end(version) :]


_LENGTHS = "@" + string.ascii_uppercase
"""The letters for 1 and more digits."""


def _end(version: str) -> int:
    return 1 + _LENGTHS.index(version[0])


class StoreInThreads(BaseStore):
    """A synchronous store that async runs can use: each batch runs in a worker thread."""

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await asyncio.to_thread(self.batch, list(ops))
