"""Finds the machines of a thread's delegates, and copies their saved states for a fork."""

from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from signoff.session.path import trail


def namespaces_below(saver: BaseCheckpointSaver[Any], thread_id: str) -> list[str]:
    """The namespaces of a thread's delegates, at all levels."""
    whole: RunnableConfig = {"configurable": {"thread_id": thread_id}}
    return sorted({one.config["configurable"].get("checkpoint_ns", "") for one in saver.list(whole)} - {""})


def copy_machine(saver: BaseCheckpointSaver[Any], source: str, ns: str, target: str) -> None:
    """Copies the saved state of one machine of the thread `source` to the thread `target`."""
    parent: RunnableConfig = {"configurable": {"thread_id": target, "checkpoint_ns": ns}}
    for saved in trail(saver, source, ns):
        versions = saved.checkpoint["channel_versions"]
        parent = saver.put(parent, saved.checkpoint, saved.metadata, versions)
        wrote: dict[str, list[tuple[str, object]]] = {}
        for task, channel, value in saved.pending_writes or ():
            wrote.setdefault(task, []).append((channel, value))
        for task, writes in wrote.items():
            saver.put_writes(parent, writes, task)
