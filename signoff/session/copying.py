"""Copies a thread as it is stored, with its records, into another storage: for a reader that must not touch
the first one, such as another version of Signoff."""

from langchain_core.runnables import RunnableConfig

from signoff.graph.build import Storage
from signoff.graph.compiled.graph import runner
from signoff.graph.errors import ThreadError
from signoff.graph.foreign import checked_thread_id
from signoff.session.export import entries
from signoff.session.path import trail
from signoff.session.status import readable


def copy_thread(source: Storage, thread_id: str, target: Storage) -> None:
    """Copies every checkpoint that led to where the thread stands, and what the store holds of it.

    Branches that were left are not copied. Raises ThreadBusy while the thread runs, ThreadError when nothing
    is kept of it, StorageError when it cannot be read.
    """
    with runner(source.checkpointer, checked_thread_id(thread_id)), readable(thread_id):
        saved = trail(source.checkpointer, thread_id)
        records = list(entries(source.store, thread_id))
    if not saved:
        raise ThreadError(f"There is no thread {thread_id!r}; nothing was copied.")
    parent: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    for one in saved:
        versions = one.checkpoint["channel_versions"]
        parent = target.checkpointer.put(parent, one.checkpoint, one.metadata, versions)
        wrote: dict[str, list[tuple[str, object]]] = {}
        for task, channel, value in one.pending_writes or ():
            wrote.setdefault(task, []).append((channel, value))
        for task, writes in wrote.items():
            target.checkpointer.put_writes(parent, writes, task)
    for item in records:
        target.store.put(item.namespace, item.key, item.value)
