"""Copies a stored thread with its records to another storage, for a reader that must not touch the original,
such as another version of Signoff."""

from collections.abc import Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from signoff.graph.build import Storage
from signoff.graph.compiled.graph import runner
from signoff.graph.errors import ThreadError
from signoff.graph.foreign import checked_thread_id
from signoff.session.export import entries
from signoff.session.path import trail
from signoff.session.status import readable


def copy_thread(source: Storage, thread_id: str, target: Storage) -> None:
    """Copies every checkpoint that led to the thread's current state, and its store entries.

    Abandoned branches are not copied. Raises ThreadBusy while the thread runs, ThreadError if nothing is
    stored for it, StorageError if it cannot be read.
    """
    with runner(source.checkpointer, checked_thread_id(thread_id)), readable(thread_id):
        saved = trail(source.checkpointer, thread_id)
        records = list(entries(source.store, thread_id))
        below = namespaces_below(source.checkpointer, thread_id)
    if not saved:
        raise ThreadError(f"There is no thread {thread_id!r}; nothing was copied.")
    for ns in below:
        copy_machine(source.checkpointer, thread_id, ns, target.checkpointer, thread_id)
    _put(target.checkpointer, thread_id, "", saved)
    for item in records:
        target.store.put(item.namespace, item.key, item.value)


def namespaces_below(saver: BaseCheckpointSaver[Any], thread_id: str) -> list[str]:
    """The namespaces of a thread's delegates, at all levels."""
    whole: RunnableConfig = {"configurable": {"thread_id": thread_id}}
    return sorted({one.config["configurable"].get("checkpoint_ns", "") for one in saver.list(whole)} - {""})


def copy_machine(
    source: BaseCheckpointSaver[Any], thread_id: str, ns: str, target: BaseCheckpointSaver[Any], to: str
) -> None:
    """Copies the saved state of one machine of a thread to the thread `to`."""
    _put(target, to, ns, trail(source, thread_id, ns))


def _put(target: BaseCheckpointSaver[Any], thread_id: str, ns: str, saved: Sequence[CheckpointTuple]) -> None:
    parent: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns}}
    for one in saved:
        versions = one.checkpoint["channel_versions"]
        parent = target.put(parent, one.checkpoint, one.metadata, versions)
        wrote: dict[str, list[tuple[str, object]]] = {}
        for task, channel, value in one.pending_writes or ():
            wrote.setdefault(task, []).append((channel, value))
        for task, writes in wrote.items():
            target.put_writes(parent, writes, task)
